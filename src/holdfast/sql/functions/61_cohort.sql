-- Cohorts: one claim for several claimers, each with a token, a lease and a name of its own.
--
-- claim_cohort() claims once for all of them, and then deals what came out: the lease rows of that claim are replaced, in the
-- transaction that made them, by one row for each claimer and part. The rows are those that claims one after the other
-- would have written: tiles without a space between them, of which the last ends where the claim's own row did. So the cursor
-- stands where it stood, nothing that settles or sweeps can tell the difference, and a cohort that rolls back never happened.
--
-- Lock order: that of claim. It holds all lanes in which rows are dealt.

create or replace function holdfast._check_cohort(maxes int[], leases interval[], consumers text[]) returns void language plpgsql stable
as $$
declare
  v_claimers int := coalesce(cardinality(maxes), 0);
begin
  if v_claimers not between 1 and 1000 then
    perform holdfast._fail('QH301', 'the number of claimers is out of range', format('maxes has %s elements.', v_claimers),
      'maxes takes one number for each of 1 to 1,000 claimers.');
  end if;
  if cardinality(leases) <> v_claimers or cardinality(consumers) <> v_claimers then
    perform holdfast._fail('QH301', 'maxes, leases and consumers are of different lengths',
      format('They have %s, %s and %s elements.', v_claimers, coalesce(cardinality(leases)::text, 'no'), coalesce(cardinality(consumers)::text, 'no')),
      'Pass an element for each claimer, null where there is nothing to say, or no array at all.');
  end if;
  -- If the ends of a range are good, all between them are.
  perform holdfast._check_claim(a.least, a.shortest, a.longest_name), holdfast._check_claim(a.most, a.longest, null)
  from (select case when count(c.max) = count(*) then min(c.max) end as least, max(c.max) as most, min(c.lease) as shortest, max(c.lease) as longest,
               (array_agg(c.name order by length(c.name) desc nulls last))[1] as longest_name
        from unnest(maxes, leases, consumers) c(max, lease, name)) a;
end $$;
comment on function holdfast._check_cohort is 'Refuse bad arguments of claim_cohort, and a transaction it cannot work in';

create or replace function holdfast._shares(maxes int[], messages bigint) returns int[] language plpgsql immutable
as $$
begin
  -- One each, to the earlier ones if they are too few: else whoever asks for little would never get anything beside others
  -- who ask for much. So whoever's part is below one gets one, and the rest is divided among those who asked for more.
  if messages <= cardinality(maxes) then
    return array(select (c.nth <= messages)::int from generate_series(1, cardinality(maxes)) c(nth));
  end if;
  return (
    with asked as (
      select m.nth, m.max::bigint as max, row_number() over (order by m.max, m.nth) - 1 as smaller,
             sum(m.max) over (order by m.max desc, m.nth desc) as whole
      from unnest(maxes) with ordinality m(max, nth)
    ), cut as (
      select a.smaller as ones, messages - a.smaller as many, a.whole from asked a
      where a.max * (messages - a.smaller) >= a.whole order by a.smaller limit 1
    ), divided as (
      select a.nth, case when a.smaller < c.ones then 1 else c.many * a.max / c.whole end as share,
             case when a.smaller < c.ones then 0 else c.many * a.max % c.whole end as rest
      from asked a, cut c
    ), ranked as (
      select d.nth, d.share, messages - sum(d.share) over () as more, row_number() over (order by d.rest desc, d.nth) as turn from divided d
    )
    select array_agg((r.share + (r.turn <= r.more)::int)::int order by r.nth) from ranked r);
end $$;
comment on function holdfast._shares is
  'Divide messages, no more than were asked for, among claimers: one each, an earlier one first, and beyond that in proportion to what they asked for, by largest remainder, of equals to the earlier';

create or replace function holdfast._deal(token bigint, lanes int[], maxes int[], leases interval[], consumers text[])
returns setof holdfast.cohort_delivery language plpgsql volatile
as $$
declare
  v_tokens bigint[] := array(select holdfast._token() from generate_series(1, cardinality(maxes)));
  v_shares int[] := holdfast._shares(maxes, (select sum(cardinality(l.ids)) from holdfast.lease l where l.token = _deal.token));
begin
  return query
    with claimed as (
      -- A row without ids carries the cursor past what cannot be taken: it stays.
      delete from holdfast.lease l where l.token = _deal.token and l.ids <> '{}' returning l.*
    ), held as materialized (
      -- Joined with nothing, the ids are unpacked here, once, and not for each slice of them.
      select c.part, c.lane_id, c.upto, c.claimed_at, c.deadline, c.made_by, c.ids || '{}' as ids, cardinality(c.ids) as size,
             sum(cardinality(c.ids)) over (order by array_position(lanes, c.lane_id), c.upto > 0) - cardinality(c.ids) as before
      from claimed c
    ), claimer as (
      select a.nth::int as nth, a.token, a.share, a.lease, a.name, sum(a.share) over (order by a.nth) - a.share as before
      from unnest(v_tokens, v_shares, leases, consumers) with ordinality a(token, share, lease, name, nth)
    ), slice as (
      select h.part, h.lane_id, h.upto, h.claimed_at, h.made_by, c.nth as claimer, c.token, c.share, c.name,
             coalesce(h.claimed_at + c.lease, h.deadline) as deadline, greatest(c.before, h.before) as before,
             h.ids[greatest(c.before - h.before, 0) + 1 : least(c.before + c.share - h.before, h.size)] as ids,
             c.before + c.share >= h.before + h.size as is_last
      from held h join claimer c on c.share > 0 and c.before < h.before + h.size and h.before < c.before + c.share
    ), tile as (
      select s.*, case when s.upto > 0 and not s.is_last then s.ids[cardinality(s.ids)] + 1 else s.upto end as ends from slice s
    ), dealt as (
      insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, lo,
                                  upto, handed, made_by)
      select t.token, t.part, n.queue_id, n.id, n.queue_name, n.fence, n.cursor, t.name, t.claimed_at, t.deadline, t.ids,
             case when t.upto = 0 then t.ids end,
             case when n.plain and cardinality(t.ids) = t.share and t.ids[1] + t.share = t.ends then t.ids[1] end,
             t.ends, t.share, t.made_by
      from tile t join holdfast.lane n on n.id = t.lane_id
    )
    select t.claimer, t.token, m.id, n.queue_name, m.payload, m.body, m.content_type, m.headers, n.priority::int, m.key,
           nullif(m.ordering_key, ''), m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1,
           coalesce(m.max_deliveries, n.max_deliveries), m.enqueued_at, t.deadline, m.last_error, m.origin
    from tile t join holdfast.lane n on n.id = t.lane_id
      cross join lateral unnest(t.ids) with ordinality i(id, nth)
      -- One by one: where the log was drained when it was last vacuumed, a join would walk all of it.
      cross join lateral (select m.* from holdfast.message m where m.id = i.id offset 0) m
    order by t.before + i.nth;
end $$;
comment on function holdfast._deal is
  'Under the lane locks: replace the leases that a claim of this transaction has made by those of several claimers, and return what each got. lanes: in the order in which the claim took them';

create or replace function holdfast.claim_cohort(
  queue text, maxes int[], leases interval[] default null, consumers text[] default null, alone boolean default false
) returns setof holdfast.cohort_delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_token bigint;
  v_lanes int[];
begin
  perform holdfast._check_cohort(maxes, leases, consumers);
  if cardinality(maxes) = 1 then
    return query
      select 1, d.* from unnest(maxes, leases, consumers) c(max, lease, name)
        cross join lateral holdfast.claim(claim_cohort.queue, c.max, c.lease, c.name, alone) d;
    return;
  end if;
  select min(l.token), array_agg(l.id order by l.first) into v_token, v_lanes
  from (select min(d.token) as token, (d.id >> 40)::int as id, min(d.nth) as first
        from holdfast.claim(claim_cohort.queue, least((select sum(m) from unnest(maxes) m), 10000)::int, null, null, alone)
          with ordinality d(token, id, queue, payload, body, content_type, headers, priority, key, ordering_key, correlation_id, tag,
                            deliveries, max_deliveries, enqueued_at, deadline, last_error, origin, nth)
        group by 2) l;
  if v_token is not null then
    return query select d.* from holdfast._deal(v_token, v_lanes, maxes, leases, consumers) d;
  end if;
end $$;
comment on function holdfast.claim_cohort is
  'Claim for several claimers at once: what is there is divided in proportion to maxes, each gets a token of its own, an earlier one earlier messages. alone: as in claim';
