-- Settling: ack, nack, reject, release, extend, next.
--
-- The fence is the lease row: an id counts only while it is in a lease with that token. What is not is skipped,
-- or an error if the caller asks for strict. A lease that a restore or a copy brought along is none: its lane's boot
-- row speaks of another database. Lease rows are locked in id order; no lane lock is taken.

create or replace function holdfast._check_token(token bigint) returns void language plpgsql immutable
as $$
begin
  if token is null then
    perform holdfast._fail('QH304', 'the lease is lost', 'The token is null.', 'Pass the token that claim returned. It returns no row, and so no token, when there is nothing to claim.');
  end if;
end $$;
comment on function holdfast._check_token is 'Refuse to settle without a token';

create or replace function holdfast._lost_lease(detail text) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH304', 'the lease is lost', detail,
    'Pass queue and token as claim returned them. If they are right, the lease ran out, or the messages were settled or discarded before: roll back, and claim again.');
end $$;
comment on function holdfast._lost_lease is 'Refuse to settle what the token does not hold';

create or replace function holdfast._check_whole(held int, handed int) returns void language plpgsql stable
as $$
begin
  if held <> handed then
    perform holdfast._lost_lease(format('This token holds %s of the %s messages that it was given and has not settled.', held, handed));
  end if;
end $$;
comment on function holdfast._check_whole is 'For strict without ids: refuse if a part of what the claim handed out is gone';

create or replace function holdfast._unlease(queue text, token bigint, ids bigint[], strict boolean) returns bigint[]
language plpgsql volatile
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(_unlease.queue);
  v_lease record;
  v_mine bigint[];
  v_out bigint[] := '{}';
  v_handed int := 0;
  v_passes int := 0;
begin
  perform holdfast._check_token(_unlease.token);
  -- A lease that is being split shows its new part only to a later statement: so look twice, unless all is found.
  while v_passes < 2 and (_unlease.ids is null or cardinality(v_out) < cardinality(_unlease.ids)) loop
    v_passes := v_passes + 1;
    for v_lease in
      select l.part, l.ids, l.handed from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
      where l.token = _unlease.token and l.queue_id = v_queue.id and l.ids <> '{}' order by l.part for update of l
    loop
      v_mine := case when _unlease.ids is null then v_lease.ids
                     else array(select i from unnest(v_lease.ids) i where i in (select unnest(_unlease.ids))) end;
      continue when v_mine = '{}';
      v_passes := 0;
      v_out := v_out || v_mine;
      v_handed := v_lease.handed;
      update holdfast.lease l set ids = array(select i from unnest(v_lease.ids) i where i not in (select unnest(v_mine))), lo = null
      where l.token = _unlease.token and l.part = v_lease.part;
      delete from holdfast.lease l using holdfast.lane n
      where l.token = _unlease.token and l.part = v_lease.part and l.ids = '{}'
        and n.id = l.lane_id and l.upto <= coalesce(pg_sequence_last_value(n.cursor), 0);
    end loop;
  end loop;
  if _unlease.ids is null and strict then
    perform holdfast._check_whole(cardinality(v_out), v_handed);
  elsif _unlease.ids is not null and v_out <> '{}' then
    update holdfast.lease l set handed = l.handed - cardinality(v_out) where l.token = _unlease.token and l.queue_id = v_queue.id;
  end if;
  return v_out;
end $$;
comment on function holdfast._unlease is 'Take ids (null: all) out of the leases with this token; returns those that were in them. strict, without ids: all that the claim handed out, or an error';

create or replace function holdfast._settlement(ids bigint[], owned bigint[], settled bigint[], strict boolean) returns holdfast.settlement
language plpgsql volatile
as $$
declare
  v_wanted bigint[] := coalesce(ids, owned);
  v_skipped bigint[] := '{}';
begin
  if cardinality(v_wanted) <> cardinality(settled) then
    v_skipped := array(select distinct i from unnest(v_wanted) i where (i = any (settled)) is not true);
  end if;
  if strict and (cardinality(v_skipped) > 0 or cardinality(v_wanted) = 0) then
    perform holdfast._lost_lease(
      case when cardinality(v_wanted) = 0 then 'This token holds no message of this queue.'
           else format('This token does not hold %s of the %s messages: %s%s.', cardinality(v_skipped), cardinality(v_wanted),
                       array_to_string(v_skipped[1:5], ', ', 'null'), case when cardinality(v_skipped) > 5 then ', …' else '' end) end);
  end if;
  return (settled, v_skipped)::holdfast.settlement;
end $$;
comment on function holdfast._settlement is 'The answer of a settling verb; strict turns a skipped id into an error';

create or replace function holdfast.ack(queue text, token bigint, ids bigint[] default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lo bigint;
  v_upto bigint;
  v_rows bigint;
  v_owned bigint[];
  v_done bigint[];
  v_now timestamptz;
  v_queue holdfast.queue;
  v_consumer text;
  v_claimed_at timestamptz;
begin
  -- The plain case: a token with one lease over a range of ids, settled as a whole. Above the cursor register it must
  -- stay, empty; the two conditions on the register exclude each other, and it moves upwards only.
  update holdfast.lease l set ids = '{}'
  where l.token = ack.token and l.lo is not null and l.ids <> '{}' and (ack.ids is null or ack.ids = l.ids) and l.queue_name = ack.queue
    and pg_sequence_last_value(l.booted) = holdfast._boot_mark() and l.upto > coalesce(pg_sequence_last_value(l.cursor), 0)
  returning l.lo, l.upto into v_lo, v_upto;
  if v_lo is null then
    delete from holdfast.lease l
    where l.token = ack.token and l.lo is not null and l.ids <> '{}' and (ack.ids is null or ack.ids = l.ids) and l.queue_name = ack.queue
      and pg_sequence_last_value(l.booted) = holdfast._boot_mark() and l.upto <= coalesce(pg_sequence_last_value(l.cursor), 0)
    returning l.lo, l.upto into v_lo, v_upto;
  end if;
  if v_lo is not null then
    if v_upto = v_lo + 1 then
      delete from holdfast.message m where m.id = v_lo;
    else
      delete from holdfast.message m where m.id >= v_lo and m.id < v_upto;
    end if;
    get diagnostics v_rows = row_count;
    v_owned := coalesce(ack.ids, array(select generate_series(v_lo, v_upto - 1)));
    if v_rows = v_upto - v_lo or (v_rows > 0 and strict is not true) then
      return (v_owned, '{}'::bigint[])::holdfast.settlement;
    end if;
    -- Discarded at the moment of the claim. Of several it is not known which, only that not all are there: enough for strict.
    return holdfast._settlement(v_owned, v_owned, '{}', strict);
  end if;
  v_queue := holdfast._queue(ack.queue);
  if 'done' = any (v_queue.keep) then
    -- Before the lease is gone.
    select max(l.consumer), min(l.claimed_at) into v_consumer, v_claimed_at from holdfast.lease l
    where l.token = ack.token and l.queue_id = v_queue.id;
  end if;
  v_owned := holdfast._unlease(ack.queue, ack.token, ack.ids, strict);
  v_now := holdfast.now();
  v_done := holdfast._end(v_queue.id, holdfast._still_alive(v_queue, v_owned, v_now), 'done', v_now, v_consumer, v_claimed_at);
  return holdfast._settlement(ack.ids, v_owned, v_done, strict);
end $$;
comment on function holdfast.ack is 'These messages (null: all under the token) are done: they end here';

create or replace function holdfast.nack(
  queue text, token bigint, ids bigint[] default null, delay interval default null, error text default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_owned bigint[];
  v_back bigint[];
  v_queue holdfast.queue := holdfast._work_queue(nack.queue);
begin
  if delay < interval '0' or delay > interval '10 years' then
    perform holdfast._fail('QH305', 'delay is out of range', format('Got %s.', delay), 'A retry can be delayed by 0 seconds to 10 years.');
  end if;
  v_owned := holdfast._unlease(nack.queue, nack.token, nack.ids, strict);
  v_back := holdfast._return(v_queue.id, v_owned, holdfast.now(), nack.delay, left(nack.error, 10000), true);
  perform holdfast._wake(v_queue);
  return holdfast._settlement(nack.ids, v_owned, v_back, strict);
end $$;
comment on function holdfast.nack is
  'These messages failed: deliver them again after delay (null: the queue''s backoff), or bury them once max_deliveries is reached';

create or replace function holdfast._give_up(queue holdfast.queue, ids bigint[], at timestamptz, error text) returns bigint[] language plpgsql volatile
as $$
declare
  v_dead bigint[];
begin
  _give_up.ids := holdfast._still_alive(queue, _give_up.ids, at);
  with dead as (
    update holdfast.message m set
      deliveries = coalesce(m.deliveries, 0) + 1, failures = coalesce(m.failures, 0) + 1, last_error = coalesce(_give_up.error, m.last_error),
      head = case when m.ordering_key is not null then true end, due_at = at
    where m.id = any (_give_up.ids) returning m.id
  )
  select coalesce(array_agg(d.id), '{}') into v_dead from dead d;
  perform holdfast._count(queue.id, 'nacked', cardinality(v_dead));
  if v_dead <> '{}' then
    perform holdfast._bury(queue, v_dead, at);
  end if;
  return v_dead;
end $$;
comment on function holdfast._give_up is 'A delivery did not work out, and none will: count it, and bury the messages';

create or replace function holdfast.reject(
  queue text, token bigint, ids bigint[] default null, error text default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(reject.queue);
  v_owned bigint[] := holdfast._unlease(reject.queue, reject.token, reject.ids, strict);
  v_dead bigint[] := holdfast._give_up(v_queue, v_owned, holdfast.now(), left(reject.error, 10000));
begin
  return holdfast._settlement(reject.ids, v_owned, v_dead, strict);
end $$;
comment on function holdfast.reject is
  'These messages failed, and will fail again: they are dead, whatever deliveries they have left. Without a dead-letter queue they end';

create or replace function holdfast.release(queue text, token bigint, ids bigint[] default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_owned bigint[] := holdfast._unlease(release.queue, release.token, release.ids, strict);
  v_queue holdfast.queue := holdfast._queue(release.queue);
  v_back bigint[] := holdfast._still_alive(v_queue, v_owned, holdfast.now());
begin
  with back as (
    update holdfast.message m set due_at = holdfast.now(), head = case when m.ordering_key is not null then true end
    where m.id = any (v_back) returning m.id
  )
  select coalesce(array_agg(b.id), '{}') into v_back from back b;
  perform holdfast._wake(v_queue);
  return holdfast._settlement(release.ids, v_owned, v_back, strict);
end $$;
comment on function holdfast.release is 'Give messages back unworked: claimable at once, and not counted as a delivery';

create or replace function holdfast._used(budget text, deliveries int, failures int) returns int language sql immutable
  return coalesce(case budget when 'failures' then failures else deliveries end, 0);
comment on function holdfast._used is 'What of its max_deliveries a message has used up, by the budget of its queue';

create or replace function holdfast._return(queue_id int, ids bigint[], at timestamptz, delay interval, error text, failed boolean)
returns bigint[] language plpgsql volatile
as $$
declare
  v_queue holdfast.queue;
  v_back bigint[];
  v_spent bigint[];
begin
  select q.* into v_queue from holdfast.queue q where q.id = _return.queue_id;
  _return.ids := holdfast._still_alive(v_queue, _return.ids, at);
  with back as (
    update holdfast.message m set
      deliveries = coalesce(m.deliveries, 0) + 1,
      failures = case when failed or v_queue.lapse_is_failure then coalesce(m.failures, 0) + 1 else m.failures end,
      last_error = coalesce(_return.error, m.last_error),
      -- It was handed out, so it was the first of its line; and it keeps its place.
      head = case when m.ordering_key is not null then true end,
      due_at = at + coalesce(delay, holdfast._backoff(v_queue, coalesce(m.failures, 0)))
    where m.id = any (_return.ids)
    returning m.id, holdfast._used(v_queue.budget, m.deliveries, m.failures)
                    >= nullif(coalesce(m.max_deliveries, v_queue.max_deliveries), 0) as spent
  )
  select coalesce(array_agg(b.id), '{}'), array_agg(b.id) filter (where b.spent) into v_back, v_spent from back b;
  perform holdfast._count(v_queue.id, case when failed then 'nacked' else 'lapsed' end, cardinality(v_back));
  if v_spent is not null then
    perform holdfast._bury(v_queue, v_spent, at);
  end if;
  return v_back;
end $$;
comment on function holdfast._return is 'A delivery did not work out: count it, and make the messages due again or bury them';

create or replace function holdfast._backoff(queue holdfast.queue, failures int) returns interval language sql volatile
  return make_interval(secs => least((queue).backoff_cap, (queue).backoff_base * (queue).backoff_factor ^ least(failures, 100))
                               * (1 + (queue).backoff_jitter * random()));
comment on function holdfast._backoff is 'How long to wait after so many failures';

create or replace function holdfast._split_part() returns int language sql volatile
  return 8388608 + floor(random() * 2139095040)::int;
comment on function holdfast._split_part is 'A part number that is no lane''s';

create or replace function holdfast._extend_lease(lease holdfast.lease, ids bigint[], deadline timestamptz) returns void
language plpgsql volatile
as $$
begin
  if cardinality(_extend_lease.ids) = cardinality(lease.ids) then
    update holdfast.lease l set deadline = _extend_lease.deadline where l.token = lease.token and l.part = lease.part;
    return;
  end if;
  update holdfast.lease l set ids = array(select i from unnest(lease.ids) i where i not in (select unnest(_extend_lease.ids))), lo = null
  where l.token = lease.token and l.part = lease.part;
  loop
    insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, upto,
                                handed, made_by)
    values (lease.token, holdfast._split_part(), lease.queue_id, lease.lane_id, lease.queue_name, lease.booted, lease.cursor, lease.consumer,
            lease.claimed_at, _extend_lease.deadline, _extend_lease.ids, _extend_lease.ids, 0, lease.handed, pg_current_xact_id())
    on conflict do nothing;
    exit when found;
  end loop;
end $$;
comment on function holdfast._extend_lease is 'Set the deadline of a locked lease, or split some ids off into one of their own';

create or replace function holdfast.extend(
  queue text, token bigint, lease interval default null, ids bigint[] default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(extend.queue);
  v_extended bigint[] := '{}';
  v_lease holdfast.lease;
  v_mine bigint[];
  v_handed int := 0;
  v_passes int := 0;
begin
  perform holdfast._check_lease(extend.lease);
  perform holdfast._check_token(extend.token);
  -- Twice, for the same reason as in _unlease.
  while v_passes < 2 and (extend.ids is null or cardinality(v_extended) < cardinality(extend.ids)) loop
    v_passes := v_passes + 1;
    for v_lease in
      select l.* from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
      where l.token = extend.token and l.queue_id = v_queue.id and l.ids <> '{}'
        -- Hashed: the containment operator compares each with each, half a second for 10,000 messages.
        and (v_extended = '{}' or exists (select from unnest(l.ids) i where i not in (select unnest(v_extended))))
      order by l.part for update of l
    loop
      v_mine := case when extend.ids is null then v_lease.ids
                     else array(select i from unnest(v_lease.ids) i where i in (select unnest(extend.ids))) end;
      -- What was discarded is not held any more; nor what is past its time to live, where that counts in flight.
      v_mine := array(select m.id from holdfast.message m where m.id = any (v_mine) and m.id not in (select unnest(v_extended))
                      and (not v_queue.expire_in_flight or m.expires_at is null or m.expires_at > holdfast.now()));
      continue when v_mine = '{}';
      v_passes := 0;
      v_extended := v_extended || v_mine;
      v_handed := v_lease.handed;
      -- From now on, not from before a wait for whoever had the lease locked.
      perform holdfast._extend_lease(v_lease, v_mine, holdfast.now() + coalesce(extend.lease, v_queue.lease));
    end loop;
  end loop;
  if strict and extend.ids is null then
    perform holdfast._check_whole(cardinality(v_extended), v_handed);
  end if;
  return holdfast._settlement(extend.ids, v_extended, v_extended, strict);
end $$;
comment on function holdfast.extend is
  'Hold these messages (null: all under the token) for another lease from now on; some of them get a lease of their own with the same token';

create or replace function holdfast.next(
  queue text, token bigint, max int default 1, lease interval default null, consumer text default null,
  alone boolean default false, strict boolean default false)
returns setof holdfast.delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  if next.token is not null then
    perform holdfast.ack(next.queue, next.token, null, strict);
  end if;
  -- The ack must be durable, so the claim may not lower synchronous_commit.
  return query select * from holdfast.claim(next.queue, next.max, next.lease, next.consumer, false);
end $$;
comment on function holdfast.next is 'Ack everything under the token (null: there is nothing yet) and claim again, in one call';
