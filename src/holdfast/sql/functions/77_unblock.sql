-- Blocked keys: lines that wait behind their head, and what to do about a dead one (on_dead = block).
--
-- A dead head that blocks its line stays in the queue, parked, with blocks_since set: so it still has its place, and a
-- retry delivers it before everything that waits behind it. Its time to live stands still from its death to the retry:
-- it would be wrong to let it expire while somebody is to decide about it.

create or replace function holdfast._waiting(queue_id int, ordering_key text, order_no bigint) returns bigint language plpgsql stable
as $$
begin
  return (select count(*) from (select from holdfast.message m where m.queue_id = _waiting.queue_id and m.ordering_key = _waiting.ordering_key
                                and m.order_no > _waiting.order_no order by m.order_no limit 10001) w);
end $$;
comment on function holdfast._waiting is 'How many messages stand behind this one in its line; 10,001 means more';

create or replace function holdfast._heads_of_parked(queue_id int, "limit" int) returns setof holdfast.message language plpgsql stable
as $$
declare
  v_keys text[];
begin
  -- Lines are found by what is parked in them; of that, a bounded number is looked at in each lane.
  v_keys := array(
    select distinct p.ordering_key from holdfast.lane l cross join lateral (
      select m.ordering_key from holdfast.message m where m.id >> 40 = l.id and m.due_at = 'infinity' order by m.due_at, m.id limit 10000) p
    where l.queue_id = _heads_of_parked.queue_id and p.ordering_key is not null limit _heads_of_parked."limit");
  return query
    select f.* from unnest(v_keys) k(key) cross join lateral (
      select m.* from holdfast.message m where m.queue_id = _heads_of_parked.queue_id and m.ordering_key = k.key order by m.order_no limit 1) f
    where f.blocks_since is null;
end $$;
comment on function holdfast._heads_of_parked is 'The living heads of lines in which somebody is parked';

create or replace function holdfast.blocked_keys(queue text, "limit" int default 100)
returns table (key text, head bigint, since timestamptz, waiting bigint, reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(blocked_keys.queue);
begin
  perform holdfast._check_limit("limit");
  return query
    with dead as (
      select m.* from holdfast.message m where m.queue_id = v_queue.id and m.blocks_since is not null
      order by m.ordering_key limit blocked_keys."limit"
    ), blocking as (
      select d.ordering_key, d.id, d.order_no, d.blocks_since as since, 'dead' as reason from dead d
      union all
      (select h.ordering_key, h.id, h.order_no, h.enqueued_at,
              case when exists (select from holdfast._holders(array[h.id])) then 'in_flight'
                   when h.due_at > holdfast.now() then 'scheduled' else 'ready' end
       from holdfast._heads_of_parked(v_queue.id, "limit") h)
      limit blocked_keys."limit"
    )
    select nullif(b.ordering_key, ''), b.id, b.since, holdfast._waiting(v_queue.id, b.ordering_key, b.order_no), b.reason from blocking b;
end $$;
comment on function holdfast.blocked_keys is
  'Lines that wait behind their head: dead ones first, which wait for unblock(), then those whose head is in flight, scheduled or ready';

create or replace function holdfast.unblock(queue text, key text default null, how text default 'retry') returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(unblock.queue);
  v_now timestamptz := holdfast.now();
  v_id bigint;
begin
  if how is null or how not in ('retry', 'skip') then
    perform holdfast._fail('QH311', 'unknown way to unblock a key', format('Got %s.', coalesce(quote_literal(left(how, 50)), 'null')),
      'how takes retry (deliver the dead message again) or skip (move it to the dead letters).');
  end if;
  perform holdfast._check_isolation('unblock');
  select m.id into v_id from holdfast.message m
  where m.queue_id = v_queue.id and m.ordering_key = coalesce(unblock.key, '') and m.blocks_since is not null for update;
  if not found then
    perform holdfast._fail('QH312', 'no dead message blocks this key', format('Queue "%s", key %s.', v_queue.name, coalesce(quote_literal(left(unblock.key, 200)), 'null')),
      'holdfast.blocked_keys lists the keys that are blocked. Somebody may have unblocked it before.');
  end if;
  if how = 'skip' then
    v_queue.on_dead := 'continue';
    perform holdfast._bury(v_queue, array[v_id], v_now);
  else
    update holdfast.message m set
      due_at = v_now, blocks_since = null, deliveries = 0, failures = 0,
      -- One that died after its time gets the queue's, as a dead letter does that is sent back: it is to be delivered.
      expires_at = case when m.expires_at > m.blocks_since then m.expires_at + (v_now - m.blocks_since)
                        when m.expires_at is not null then v_now + v_queue.ttl end
    where m.id = v_id;
  end if;
  perform holdfast._wake(v_queue);
  return v_id;
end $$;
comment on function holdfast.unblock is
  'Let a line go on that a dead message blocks. retry: deliver it again, with its deliveries at zero; skip: move it to the dead letters. A strict queue has one line: key null. Returns its id';
