-- Dead letters: messages that used up their deliveries live on in another queue, with where they came from.
--
-- Every move draws a new id; origin.root_id is the first one, and origin.sent_at is when the message was sent under it.
-- A move is one transaction: it deletes and inserts.
-- Moves pass max_depth and the size limit.
--
-- A dead letter with a replaceable key is not sent back beside a living message of that key: it would be delivered after
-- a newer one. It stays until that one has ended; of several dead ones the first goes.

create or replace function holdfast._bury(queue holdfast.queue, ids bigint[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
  v_ids regclass;
  v_xid xid8;
  v_keys text[];
  v_orders bigint[];
begin
  if queue.ordering is not null and queue.on_dead = 'block' then
    ids := holdfast._block(_bury.ids, at);
  end if;
  if queue.dead_letter is null then
    perform holdfast._end(queue.id, _bury.ids, 'failed', at);
    return;
  end if;
  if ids = '{}' then
    return;
  end if;
  if queue.ordered then
    select array_agg(m.ordering_key), array_agg(m.order_no) into v_keys, v_orders
    from holdfast.message m where m.id = any (_bury.ids) and m.ordering_key is not null;
  end if;
  v_grave := holdfast._grave(queue.dead_letter);
  v_ids := holdfast._ids(v_grave, v_grave.priority_default);
  v_xid := pg_current_xact_id();
  with gone as (
    delete from holdfast.message m where m.id = any (_bury.ids) returning m.*
  )
  insert into holdfast.message (id, queue_id, enqueued_at, payload, body, content_type, headers, tag, correlation_id, last_error, row_of, origin)
  select nextval(v_ids), v_grave.id, at, g.payload, g.body, g.content_type, g.headers, g.tag, g.correlation_id, g.last_error, v_grave.row_of,
         jsonb_strip_nulls(jsonb_build_object(
           'queue', queue.name, 'id', g.id, 'root_id', holdfast._root_id(g.id, g.origin),
           'deliveries', g.deliveries, 'failures', coalesce(g.failures, 0), 'error', g.last_error, 'priority', l.priority,
           'key', g.key, 'idempotency_key', g.idempotency_key, 'ordering_key', nullif(g.ordering_key, ''),
           'max_deliveries', g.max_deliveries,
           'redrives', g.origin -> 'redrives', 'sent_at', holdfast._sent_at(g.origin, g.enqueued_at), 'enqueued_at', g.enqueued_at,
           'died_at', at))
  from gone g join holdfast.lane l on l.id = g.id >> 40 order by g.id;
  perform holdfast._count(queue.id, 'dead', cardinality(_bury.ids));
  if v_keys is not null then
    perform holdfast._pass_baton(queue.id, v_keys, v_orders, array_fill(true, array[cardinality(v_keys)]), at);
  end if;
  perform holdfast._wake(v_grave);
end $$;
comment on function holdfast._bury is
  'Move messages that used up their deliveries to the dead-letter queue; without one they end. Where on_dead is block, ordered ones stay';

create or replace function holdfast._sent_at(origin jsonb, enqueued_at timestamptz) returns jsonb language sql stable
  return coalesce(origin -> 'sent_at', origin -> 'enqueued_at', to_jsonb(enqueued_at));
comment on function holdfast._sent_at is 'When a message was sent first, before any move';

create or replace function holdfast._block(ids bigint[], at timestamptz) returns bigint[] language plpgsql volatile
as $$
declare
  v_stay bigint[];
begin
  with blocking as (
    update holdfast.message m set due_at = 'infinity', blocks_since = at
    where m.id = any (_block.ids) and m.ordering_key is not null returning m.id
  )
  select coalesce(array_agg(b.id), '{}') into v_stay from blocking b;
  return array(select i from unnest(ids) i where i not in (select unnest(v_stay)));
end $$;
comment on function holdfast._block is 'Let dead heads stay where they are and block their lines; returns those of the messages that stand in none';

create or replace function holdfast._grave(queue text) returns holdfast.queue language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
begin
  loop
    -- Whoever drops it is waited for, or has to wait until this burial is over.
    select q.* into v_grave from holdfast.queue q where q.name = _grave.queue for key share;
    if found then
      return v_grave;
    end if;
    perform holdfast._create_queue(_grave.queue, '{"dead_letter": false, "max_deliveries": 0}');
  end loop;
end $$;
comment on function holdfast._grave is 'A dead-letter queue, made on first use: it does not bury in turn';

create or replace function holdfast._spent(queue_id int, ids bigint[]) returns bigint[] language plpgsql stable
as $$
begin
  return array(
    select m.id from holdfast.message m join holdfast.queue q on q.id = _spent.queue_id
    where m.id = any (_spent.ids)
      and holdfast._used(q.budget, coalesce(m.deliveries, 0) + 1, coalesce(m.failures, 0) + q.lapse_is_failure::int)
          >= nullif(coalesce(m.max_deliveries, q.max_deliveries), 0));
end $$;
comment on function holdfast._spent is 'Which of these messages in flight are dead when their lease runs out';

create or replace function holdfast._can_bury(queue_id int) returns boolean
language plpgsql volatile set lock_timeout = '100ms'
as $$
declare
  v_grave holdfast.queue;
  v_name text := (select q.dead_letter from holdfast.queue q where q.id = _can_bury.queue_id);
begin
  if v_name is not null then
    v_grave := holdfast._grave(v_name);
    perform holdfast._ids(v_grave, v_grave.priority_default);
  end if;
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._can_bury is
  'Lay hands on the dead-letter queue of this one, without waiting for long: whoever holds a lane may not wait for somebody who makes or changes it';

create or replace function holdfast.redrive(
  queue text, ids bigint[] default null, filter jsonb default null, "limit" int default 1000, target text default null)
returns table (id bigint, new_id bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(redrive.queue);
  v_target holdfast.queue;
  v_grave holdfast.queue;
  v_graves int[];
  v_locked holdfast.queue;
  v_lanes int[] := '{}';
  v_ids bigint[];
  v_free bigint[];
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_filter(filter);
  perform holdfast._check_isolation('redrive');
  v_target := holdfast._redrive_target(v_queue, redrive.target);
  v_graves := array(select q.id from holdfast._graves(v_queue, redrive.ids) q);
  if v_graves = '{}' then
    perform holdfast._check_buries(v_queue);
    return;
  end if;
  select q.* into v_grave from holdfast.queue q where q.name = v_queue.dead_letter;
  -- Before the lane locks: whoever has sent with one of these keys and is still open is waited for.
  perform holdfast._lock_keys(holdfast._line_lock(), v_target.id, array_agg(holdfast._line_in(v_target, d.origin))),
          holdfast._lock_keys(holdfast._key_lock(), v_target.id, array_agg(d.origin ->> 'key')),
          holdfast._lock_keys(holdfast._idempotency_lock(), v_target.id, array_agg(d.origin ->> 'idempotency_key'))
  from holdfast._movable(v_target, v_grave, v_queue.name, redrive.ids, filter, "limit") d;
  for v_locked in select q.* from holdfast.queue q where q.id = any (v_graves) order by q.id loop
    v_lanes := v_lanes || holdfast._await_graves(v_locked);
  end loop;
  v_ids := array(select d.id from holdfast._movable(v_target, v_grave, v_queue.name, redrive.ids, filter, "limit") d where d.id >> 40 = any (v_lanes));
  v_free := holdfast._without_rivals(v_target, holdfast._unheld(v_ids));
  return query select * from holdfast._send_back_all(v_target, v_free);
end $$;
comment on function holdfast.redrive is
  'Send dead letters of this queue back to it, or to target: these ids, wherever they lie, or those that match filter, oldest first. Those in somebody''s lease stay, or behind a claim that is left open, and those whose key a living message has';

create or replace function holdfast._redrive_target(queue holdfast.queue, target text) returns holdfast.queue language plpgsql volatile
as $$
declare
  v_target holdfast.queue;
begin
  -- Nobody drops the target while messages are moved to it.
  select q.* into v_target from holdfast.queue q where q.name = coalesce(_redrive_target.target, queue.name) for key share;
  if not found and target is null then
    perform holdfast._no_queue(queue.name);
  elsif not found then
    perform holdfast._fail('QH105', format('target queue "%s" does not exist', left(target, 200)), 'Nothing was moved.',
      'Create it with holdfast.create_queue, or check the spelling.');
  end if;
  if v_target.kind = 'log' then
    perform holdfast._not_a_queue(v_target.name);
  end if;
  return v_target;
end $$;
comment on function holdfast._redrive_target is 'Where dead letters of a queue go, locked so that it stays; or an error that says why they cannot';

create or replace function holdfast._check_buries(queue holdfast.queue) returns void language plpgsql immutable
as $$
begin
  if queue.dead_letter is null then
    perform holdfast._fail('QH105', format('queue "%s" has no dead-letter queue', queue.name), 'Its dead_letter is off.',
      'Pass the queue that the messages came from, not the one where they lie.');
  end if;
end $$;
comment on function holdfast._check_buries is 'Refuse to redrive where there is no dead-letter queue';

create or replace function holdfast._graves(queue holdfast.queue, ids bigint[]) returns setof holdfast.queue language plpgsql stable
as $$
declare
  v_grave holdfast.queue;
begin
  select q.* into v_grave from holdfast.queue q where q.name = queue.dead_letter;
  if ids is null then
    return query select q.* from holdfast.queue q where q.id = v_grave.id;
  else
    return query select q.* from holdfast.queue q
      where q.id in (select d.queue_id from holdfast._dead(v_grave, queue.name, _graves.ids, null, cardinality(_graves.ids)) d);
  end if;
end $$;
comment on function holdfast._graves is
  'Where the dead letters of a queue lie; of named ones, where those lie: it may have buried elsewhere when they died';

create or replace function holdfast._await_grave(lane_id int) returns boolean
language plpgsql volatile set lock_timeout = '2s'
as $$
begin
  -- Not for ever: whoever sends with the keys of these dead letters waits as long.
  perform pg_advisory_xact_lock(holdfast._lane_lock(), lane_id);
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._await_grave is
  'Lock a lane of a dead-letter queue, so that nobody claims a dead letter while it is being moved. false: a claim that is left open keeps it';

create or replace function holdfast._await_graves(grave holdfast.queue) returns int[] language plpgsql volatile
as $$
declare
  v_lane int;
  v_got int[] := '{}';
begin
  for v_lane in select l.id from holdfast.lane l where l.queue_id = grave.id order by l.id loop
    if holdfast._await_grave(v_lane) then
      v_got := v_got || v_lane;
    end if;
  end loop;
  return v_got;
end $$;
comment on function holdfast._await_graves is 'Lock the lanes of a dead-letter queue; returns those that could be got';

create or replace function holdfast._unheld(ids bigint[]) returns bigint[] language plpgsql volatile
as $$
begin
  return array(select m.id from holdfast.message m where m.id = any (_unheld.ids)
               and m.id not in (select h.id from holdfast._holders(_unheld.ids) h) for update skip locked);
end $$;
comment on function holdfast._unheld is 'Under the lane locks: lock those of these messages that are in nobody''s hands; returns them';

create or replace function holdfast._send_back(target holdfast.queue, grave holdfast.queue, ids bigint[])
returns table (id bigint, new_id bigint) language plpgsql volatile
as $$
begin
  return query select * from holdfast._move_back(target, _send_back.ids, holdfast.now());
  perform holdfast._entomb_in(grave, _send_back.ids);
  perform holdfast._count(grave.id, 'moved', cardinality(_send_back.ids));
  perform holdfast._wake(target);
end $$;
comment on function holdfast._send_back is 'Move locked dead letters into a queue, with all that belongs to it: tombstones, counters, sleepers';

create or replace function holdfast._send_back_all(target holdfast.queue, ids bigint[])
returns table (id bigint, new_id bigint) language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
begin
  for v_grave in select q.* from holdfast.queue q
                 where q.id in (select m.queue_id from holdfast.message m where m.id = any (_send_back_all.ids)) order by q.id loop
    return query select * from holdfast._send_back(target, v_grave, array(
      select m.id from holdfast.message m where m.id = any (_send_back_all.ids) and m.queue_id = v_grave.id order by m.id));
  end loop;
end $$;
comment on function holdfast._send_back_all is 'As _send_back, out of whatever queues they lie in';

create or replace function holdfast._check_filter(filter jsonb) returns void language plpgsql stable
as $$
declare
  v_unknown text;
begin
  if filter is null then
    return;
  end if;
  if jsonb_typeof(filter) <> 'object' then
    perform holdfast._fail('QH403', 'filter must be a JSON object', format('Got %s.', left(filter::text, 100)), 'Fields: error, tag, dead_before, dead_after.');
  end if;
  select k into v_unknown from jsonb_object_keys(filter) k where k not in ('error', 'tag', 'dead_before', 'dead_after');
  if found then
    perform holdfast._fail('QH403', format('unknown field "%s" in filter', left(v_unknown, 100)), format('Got %s.', left((filter -> v_unknown)::text, 100)), 'Fields: error, tag, dead_before, dead_after.');
  end if;
  perform (filter ->> 'dead_before')::timestamptz, (filter ->> 'dead_after')::timestamptz;
exception
  when data_exception then
    perform holdfast._fail('QH403', 'filter has a bad time', sqlerrm, 'dead_before and dead_after take ISO times.');
end $$;
comment on function holdfast._check_filter is 'Refuse a bad filter of redrive';

create or replace function holdfast._dead(grave holdfast.queue, queue text, ids bigint[], filter jsonb, "limit" int, after bigint default 0)
returns setof holdfast.message language plpgsql stable
as $$
begin
  if ids is not null then
    -- Wherever they lie. What was moved on keeps its origin, and is no dead letter any more.
    return query
      select m.* from (select distinct i.id from unnest(_dead.ids) i(id) where i.id > after) i
        cross join lateral (select m.* from holdfast.message m where m.id = i.id offset 0) m
      where m.origin ->> 'queue' = _dead.queue and (m.queue_id = grave.id or not m.origin ?| '{redriven_at,replayed_at}')
        and holdfast._is_sought(m, filter)
      order by m.id limit _dead."limit";
    return;
  end if;
  return query
    select d.* from holdfast.lane l cross join lateral (
      select m.* from holdfast.message m
      where m.id >= greatest(l.id::bigint << 40, after + 1) and m.id < (l.id + 1)::bigint << 40 and m.origin ->> 'queue' = _dead.queue
        and holdfast._is_sought(m, filter)
      order by m.id limit _dead."limit") d
    where l.queue_id = grave.id
    order by d.id limit _dead."limit";
end $$;
comment on function holdfast._dead is 'Dead letters of a queue, oldest first: those in its dead-letter queue, or these ids, wherever they lie';

create or replace function holdfast._is_sought(letter holdfast.message, filter jsonb) returns boolean language sql stable
  return (filter ->> 'error' is null or position(filter ->> 'error' in (letter).last_error) > 0)
    and (filter ->> 'tag' is null or (letter).tag = filter ->> 'tag')
    and (filter ->> 'dead_before' is null or (letter).enqueued_at < (filter ->> 'dead_before')::timestamptz)
    and (filter ->> 'dead_after' is null or (letter).enqueued_at > (filter ->> 'dead_after')::timestamptz);
comment on function holdfast._is_sought is 'Whether a dead letter is what a filter of redrive is about';

create or replace function holdfast._line_in(target holdfast.queue, origin jsonb) returns text language sql immutable
  return case (target).ordering when 'strict' then '' when 'key' then origin ->> 'ordering_key' end;
comment on function holdfast._line_in is 'The line in which a dead letter will stand in a queue; null: in none';

create or replace function holdfast._has_rival(target holdfast.queue, origin jsonb) returns boolean language plpgsql stable
as $$
begin
  return _has_rival.origin ? 'key' and exists (
    select from holdfast.message m where m.queue_id = target.id and m.key = _has_rival.origin ->> 'key'
      and m.ordering_key is not distinct from holdfast._line_in(target, _has_rival.origin));
end $$;
comment on function holdfast._has_rival is 'Does a message of the key of this dead letter live in a queue, in the same line?';

create or replace function holdfast._movable(target holdfast.queue, grave holdfast.queue, queue text, ids bigint[], filter jsonb, "limit" int)
returns setof holdfast.message language plpgsql stable
as $$
declare
  v_dead holdfast.message;
  v_after bigint := 0;
  v_found int := 0;
  v_seen int;
begin
  -- Those that have to stay must not hide the others behind them.
  loop
    v_seen := 0;
    for v_dead in select d.* from holdfast._dead(grave, _movable.queue, _movable.ids, filter, _movable."limit", v_after) d loop
      v_seen := v_seen + 1;
      v_after := v_dead.id;
      continue when holdfast._has_rival(target, v_dead.origin);
      return next v_dead;
      v_found := v_found + 1;
      exit when v_found = "limit";
    end loop;
    exit when v_seen < "limit" or v_found = "limit";
  end loop;
end $$;
comment on function holdfast._movable is 'As _dead, without those whose key a living message of the target has';

create or replace function holdfast._without_rivals(target holdfast.queue, ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_origins jsonb[];
begin
  -- The error may be long, and has no say in this.
  select array_agg(m.id), array_agg(m.origin - 'error') into _without_rivals.ids, v_origins
  from holdfast.message m where m.id = any (_without_rivals.ids);
  return holdfast._first_of_keys(target, _without_rivals.ids, v_origins);
end $$;
comment on function holdfast._without_rivals is
  'Under the lane locks: of these dead letters those that may be sent back, as far as their keys are concerned';

create or replace function holdfast._first_of_keys(target holdfast.queue, ids bigint[], origins jsonb[]) returns bigint[] language plpgsql volatile
as $$
begin
  -- One that was buried since the keys were locked has its key locked only now.
  perform holdfast._lock_keys(holdfast._key_lock(), target.id, array(select o ->> 'key' from unnest(origins) o));
  return array(
    select f.id from (
      select l.id, l.origin, row_number() over (partition by l.origin ->> 'key', holdfast._line_in(target, l.origin) order by l.id) as nth
      from unnest(_first_of_keys.ids, origins) l(id, origin)) f
    where not f.origin ? 'key' or (f.nth = 1 and not holdfast._has_rival(target, f.origin))
    order by f.id);
end $$;
comment on function holdfast._first_of_keys is
  'Under the lane locks: lock the keys of these dead letters, whose origins are as they will be; returns those without a living message of their key in the target, and of several of one key the first';

create or replace function holdfast._move_back(target holdfast.queue, ids bigint[], at timestamptz)
returns table (id bigint, new_id bigint) language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_xid xid8;
  v_keys text[];
  v_free jsonb;
begin
  select jsonb_object_agg(p.priority, holdfast._ids(target, p.priority)) into v_lanes
  from (select distinct case when target.ordering = 'strict' then target.priority_default
                             else coalesce((m.origin ->> 'priority')::smallint, target.priority_default) end as priority
        from holdfast.message m where m.id = any (_move_back.ids)) p;
  if target.ordering is not null then
    v_keys := array(select holdfast._line_in(target, m.origin) from holdfast.message m where m.id = any (_move_back.ids));
    perform holdfast._lock_keys(holdfast._line_lock(), target.id, v_keys);
  end if;
  v_free := holdfast._free_idempotency_keys(target, _move_back.ids);
  v_xid := pg_current_xact_id();
  return query
    with gone as (
      delete from holdfast.message m where m.id = any (_move_back.ids) returning m.*
    ), numbered as (
      select g.*, nextval((v_lanes ->> case when target.ordering = 'strict' then target.priority_default::text
                                            else coalesce(g.origin ->> 'priority', target.priority_default::text) end)::regclass) as moved_id,
             holdfast._line_in(target, g.origin) as line
      from (select * from gone order by gone.id) g
    ), moved as (
      insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, body, content_type, headers, tag, correlation_id,
                                    max_deliveries, ordering_key, order_no, key, due_at, idempotency_key, payload_hash, last_error, row_of,
                                    origin)
      select n.moved_id, target.id, at, at + target.ttl, n.payload, n.body, n.content_type, n.headers, n.tag, n.correlation_id,
             (n.origin ->> 'max_deliveries')::int, n.line, case when n.line is not null then nextval('holdfast.order_no') end,
             n.origin ->> 'key', case when n.origin ? 'key' then at end, f.key,
             case when f.key is not null then holdfast._payload_hash(n.payload, n.body) end, n.last_error, target.row_of,
             n.origin || jsonb_build_object('redrives', coalesce((n.origin ->> 'redrives')::int, 0) + 1, 'redriven_at', at)
      from numbered n left join lateral (select n.origin ->> 'idempotency_key' as key where v_free -> (n.origin ->> 'idempotency_key') = to_jsonb(n.id)) f on true
      order by n.id
    )
    select n.id, n.moved_id from numbered n order by n.id;
end $$;
comment on function holdfast._move_back is
  'Move dead letters into a queue, under new ids, with their deliveries at zero; ordered ones to the end of their lines';

create or replace function holdfast.discard(queue text, ids bigint[]) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(discard.queue);
  v_grave holdfast.queue;
  v_ids bigint[];
  v_dead bigint[];
  v_lease record;
  v_gone bigint[];
begin
  select q.* into v_grave from holdfast.queue q where q.name = v_queue.dead_letter;
  select coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.id) filter (where m.queue_id = v_grave.id), '{}') into v_ids, v_dead
  from holdfast.message m
  where m.id = any (discard.ids)
    and (m.queue_id = v_queue.id or (m.queue_id = v_grave.id and m.origin ->> 'queue' = v_queue.name));
  -- Whoever holds one learns that it is gone: its id leaves the lease. (A claim that takes it at this moment keeps the id
  -- in its lease; it settles nothing.)
  for v_lease in select distinct h.token, h.part from holdfast._holders(v_ids) h order by 1, 2 loop
    update holdfast.lease l set ids = array(select i from unnest(l.ids) i where i not in (select unnest(v_ids))), lo = null
    where l.token = v_lease.token and l.part = v_lease.part;
  end loop;
  v_gone := holdfast._end(v_queue.id, array(select i from unnest(v_ids) i where i not in (select unnest(v_dead))), 'discarded', holdfast.now());
  -- A dead letter ends in the queue it lies in.
  if v_dead <> '{}' then
    v_dead := holdfast._end(v_grave.id, v_dead, 'discarded', holdfast.now());
    v_gone := v_gone || v_dead;
    if v_grave.kind = 'log' then
      perform holdfast._entomb_in(v_grave, v_dead);
    end if;
  end if;
  return array(select i from unnest(v_gone) i order by i);
end $$;
comment on function holdfast.discard is
  'End messages of this queue, or dead letters that came from it, in whatever state they are; returns those that were there';
