-- Maintenance: what no caller waits for. Safe from any number of processes at once: each call takes lanes and queues in
-- turn, for as long as its budget allows, and skips those that somebody else is working on.
--
-- A step is a function that returns what it did as a JSON object, numbers to be added up, with more = true if it has left
-- work behind. Steps for the whole database are listed in maintain(), those for each queue in _maintain_queue(), those that
-- need the lane lock in _maintain_lane(): one line each.
--
-- maintain_in_turn() is for processes that each call it all the time: of any number of them one works at a time, and all
-- together as often as one would. The election is a lock of the transaction, so it needs no session of its own (PgBouncer),
-- and whoever dies in office has left it.
--
-- The audit turns every defect that could strand a message into a delay: a message behind the cursor that is in
-- no lease and not due is made due.

create or replace function holdfast._audit(lane holdfast.lane, at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_from bigint;
  v_next bigint;
  v_cursor bigint := coalesce(pg_sequence_last_value(lane.cursor), 0);
  v_stranded bigint[];
  v_parked bigint[];
begin
  select greatest(b.audited, lane.id::bigint << 40) into v_from from holdfast.boot b where b.lane_id = lane.id;
  with chunk as (
    select m.id, m.due_at from holdfast.message m where m.id > v_from and m.id < v_cursor order by m.id limit 2000
  ), suspect as (
    select c.id from chunk c where c.due_at is null or c.due_at = '-infinity'
  ), parked as (
    select c.id from chunk c where c.due_at = 'infinity'
  ), leased as (
    select h.id from holdfast._holders(array(select s.id from suspect s)) h
  )
  select (select max(c.id) from chunk c), array(
           select s.id from suspect s where s.id not in (select l.id from leased l) and not exists (
             select from (select g.hi from holdfast.gap g where g.lane_id = lane.id and g.lo <= s.id order by g.lo desc limit 1) g where g.hi >= s.id)),
         array(select p.id from parked p)
  into v_next, v_stranded, v_parked;
  if v_parked <> '{}' then
    -- Parked behind a living head it waits for the baton; behind nobody it would wait for ever.
    v_stranded := v_stranded || holdfast._orphans(lane.queue_id, v_parked);
  end if;
  update holdfast.message m set due_at = at
  where m.id = any (array(select s.id from holdfast.message s where s.id = any (v_stranded)
                          and (s.due_at is null or s.due_at in ('-infinity', 'infinity')) and s.blocks_since is null for update skip locked));
  update holdfast.boot b set audited = coalesce(v_next, 0) where b.lane_id = lane.id and b.audited <> coalesce(v_next, 0);
  return coalesce(cardinality(v_stranded), 0);
end $$;
comment on function holdfast._audit is 'Under the lane lock: look at the next 2,000 messages behind the cursor, and make those due that nobody holds, or that are parked behind nobody';

create or replace function holdfast._tally_chunk(tally holdfast.tally, at timestamptz) returns holdfast.tally language plpgsql stable
as $$
declare
  v_found bigint[];
  v_due_at timestamptz;
  v_id bigint;
begin
  select array[count(*) filter (where w.due_at <= at), count(*) filter (where w.due_at > at and w.due_at < 'infinity'),
               count(*) filter (where w.due_at = 'infinity')], (array_agg(w.due_at))[10000], (array_agg(w.id))[10000]
  into v_found, v_due_at, v_id
  from (select m.due_at, m.id from holdfast.message m
        where m.id >> 40 = tally.lane_id and m.due_at is not null and (m.due_at, m.id) > (tally.due_at, tally.id)
        order by m.due_at, m.id limit 10000) w;
  if v_id is null then
    tally.lane_id := (select l.id from holdfast.lane l where l.queue_id = tally.queue_id and l.id > tally.lane_id order by l.id limit 1);
  end if;
  tally.so_far := array(select f.n + tally.so_far[f.nth] from unnest(v_found) with ordinality f(n, nth) order by f.nth);
  tally.due_at := coalesce(v_due_at, '-infinity');
  tally.id := coalesce(v_id, 9223372036854775807);
  return tally;
end $$;
comment on function holdfast._tally_chunk is 'Count the next 10,000 messages that are not fresh; lane_id is null after the last';

create or replace function holdfast._tally(queue holdfast.queue, at timestamptz, until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_count holdfast.tally;
begin
  select t.* into v_count from holdfast.tally t where t.queue_id = queue.id for update skip locked;
  if not found and exists (select from holdfast.tally t where t.queue_id = queue.id) then
    return '{}';
  end if;
  if v_count.rest_until > v_began and v_count.rest_until < v_began + interval '1 hour' then
    return '{}';
  end if;
  if v_count.lane_id is null then
    v_count.queue_id := queue.id;
    v_count.lane_id := (select min(l.id) from holdfast.lane l where l.queue_id = queue.id);
    v_count.due_at := '-infinity';
    v_count.id := 9223372036854775807;
    v_count.so_far := '{0,0,0}';
    v_count.busy := interval '0';
  end if;
  loop
    v_count := holdfast._tally_chunk(v_count, at);
    exit when v_count.lane_id is null or clock_timestamp() > until;
  end loop;
  v_count.busy := v_count.busy + (clock_timestamp() - v_began);
  if v_count.lane_id is null then
    v_count.counted_at := at;
    v_count.due := v_count.so_far[1];
    v_count.scheduled := v_count.so_far[2];
    v_count.blocked := v_count.so_far[3];
    v_count.in_flight := (select coalesce(sum(cardinality(l.ids)), 0) from holdfast.lane n cross join lateral (
      select l.ids from holdfast.lease l where l.lane_id = n.id order by l.deadline limit 100000) l where n.queue_id = queue.id);
    -- A count that is dear takes a twentieth of the time.
    v_count.rest_until := case when v_count.busy > interval '100 ms' then clock_timestamp() + 20 * v_count.busy end;
  end if;
  insert into holdfast.tally as t
  select queue.id, coalesce(v_count.counted_at, at), coalesce(v_count.in_flight, 0), coalesce(v_count.due, 0), coalesce(v_count.scheduled, 0),
         coalesce(v_count.blocked, 0), v_count.lane_id, v_count.due_at, v_count.id, v_count.so_far, v_count.busy, v_count.rest_until
  on conflict (queue_id) do update set
    counted_at = excluded.counted_at, in_flight = excluded.in_flight, due = excluded.due, scheduled = excluded.scheduled,
    blocked = excluded.blocked, lane_id = excluded.lane_id, due_at = excluded.due_at, id = excluded.id, so_far = excluded.so_far,
    busy = excluded.busy, rest_until = excluded.rest_until;
  return jsonb_build_object('more', v_count.lane_id is not null);
end $$;
comment on function holdfast._tally is 'Go on counting in full what queue_stats counts up to 10,000; in chunks, until it is time';

create or replace function holdfast._lane_holders()
returns table (queue text, priority int, pid int, "user" text, application text, client text, state text, since timestamptz, prepared text)
language plpgsql stable
as $$
begin
  -- The engine takes lane locks for a transaction. One that is held outside a transaction was taken by a stranger, before
  -- its session fell idle: any user of the database can take an advisory lock. Of a prepared transaction there is no process.
  return query
    select l.queue_name, l.priority::int, k.pid, coalesce(a.usename, p.owner)::text, nullif(a.application_name, ''), host(a.client_addr),
           a.state, coalesce(a.xact_start, a.state_change, p.prepared), p.gid
    from pg_locks k join holdfast.lane l on l.id = k.objid::bigint
      left join pg_stat_activity a on a.pid = k.pid
      left join pg_locks x on k.pid is null and x.pid is null and x.virtualtransaction = k.virtualtransaction
        and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock'
      left join pg_prepared_xacts p on p.transaction = x.transactionid
    where k.locktype = 'advisory' and k.classid = holdfast._lane_lock() and k.objsubid = 2 and k.granted
      and k.database = holdfast._database_oid() and k.pid is distinct from pg_backend_pid();
end $$;
comment on function holdfast._lane_holders is
  'Who holds a lane, other than this session, and since when at the latest: the start of the transaction, or when the session fell idle. null: the owner of the schema may not see that';

create or replace function holdfast._end_holder(process int) returns boolean language plpgsql volatile
as $$
begin
  return pg_terminate_backend(process);
exception
  when insufficient_privilege then
    raise warning 'process % has held a lane for over five minutes, and may not be ended by this user', process
      using hint = 'Let a superuser call pg_terminate_backend, or make the owner of the schema a member of pg_signal_backend.';
    return false;
end $$;
comment on function holdfast._end_holder is 'End a session that holds a lane, if the owner of the schema may';

create or replace function holdfast._end_overdue_holders(out ended int, out remaining jsonb) language plpgsql volatile
as $$
declare
  v_overdue jsonb;
  v_ended int[];
begin
  select coalesce(jsonb_agg(jsonb_strip_nulls(to_jsonb(h)) order by h.since, h.pid, h.queue, h.priority desc), '[]') into v_overdue
  from holdfast._lane_holders() h where coalesce(h.since, '-infinity') < clock_timestamp() - interval '5 minutes'
    -- Who drops or repairs a queue may take long; no claim has such a lock.
    and not exists (select from pg_locks k where k.pid = h.pid and k.locktype = 'relation' and k.mode = 'AccessExclusiveLock');
  v_ended := array(select e.pid from (select distinct (o ->> 'pid')::int as pid from jsonb_array_elements(v_overdue) o
                                      where o ? 'pid' and o ? 'since') e where holdfast._end_holder(e.pid));
  ended := cardinality(v_ended);
  remaining := (select coalesce(jsonb_agg(o), '[]') from jsonb_array_elements(v_overdue) o
                where (o ->> 'pid')::int = any (v_ended) is not true);
end $$;
comment on function holdfast._end_overdue_holders is
  'End sessions that have kept a lane for five minutes: in a transaction that claimed, or idle with a lock of their own. remaining: those that cannot be ended';

create or replace function holdfast._add_up(did jsonb, step jsonb) returns jsonb language sql immutable
  return did || coalesce((
    select jsonb_object_agg(s.key, case jsonb_typeof(s.value)
      when 'number' then to_jsonb(coalesce((did ->> s.key)::numeric, 0) + (s.value #>> '{}')::numeric)
      when 'boolean' then to_jsonb(coalesce((did ->> s.key)::boolean, false) or (s.value #>> '{}')::boolean)
      else s.value end) from jsonb_each(step) s), '{}');
comment on function holdfast._add_up is 'What maintain() did so far, and what one more step did: numbers are added, more holds if it holds for one';

create or replace function holdfast._maintain_lane(lane holdfast.lane, at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint;
  v_trimmed int;
  v_expiry record;
  v_did jsonb;
begin
  if holdfast._boot_lane(lane) then
    return '{"booted": 1}';
  end if;
  v_start := holdfast._advance(lane);
  v_did := jsonb_build_object('swept', holdfast._sweep_lane(lane, at, v_clean));
  v_did := holdfast._add_up(v_did, jsonb_build_object('found', holdfast._audit(lane, at)));
  v_trimmed := holdfast._trim_log(lane, at);
  v_did := holdfast._add_up(v_did, jsonb_build_object('trimmed', v_trimmed, 'more', v_trimmed >= 10000));
  v_expiry := holdfast._expire(lane, at, 2147483647);
  v_did := holdfast._add_up(v_did, jsonb_build_object('expired', v_expiry.expired, 'more', v_expiry.more));
  perform holdfast._probe(lane, v_start, at);
  return v_did;
end $$;
comment on function holdfast._maintain_lane is 'Under the lane lock: boot if need be, sweep, audit, trim a log, expire, look';

create or replace function holdfast._maintain_lanes(until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_turn bigint := coalesce(pg_sequence_last_value('holdfast.turn'), 0);
  v_did jsonb := '{"lanes": 0, "busy": 0, "booted": 0, "swept": 0, "found": 0, "trimmed": 0, "expired": 0, "more": false}';
  v_lane holdfast.lane;
begin
  if not exists (select from holdfast.lane l where l.id > v_turn) then
    v_turn := 0;
  end if;
  for v_lane in select l.* from holdfast.lane l where l.id > v_turn order by l.id loop
    if clock_timestamp() > until and v_did ->> 'lanes' <> '0' then
      return v_did || '{"more": true}';
    end if;
    if pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) and holdfast._unchanged(v_lane) then
      v_did := holdfast._add_up(v_did, holdfast._maintain_lane(v_lane, holdfast.now()));
    else
      v_did := holdfast._add_up(v_did, '{"busy": 1}');
    end if;
    v_did := holdfast._add_up(v_did, '{"lanes": 1}');
    perform setval('holdfast.turn', v_lane.id);
  end loop;
  perform setval('holdfast.turn', 0);
  return v_did;
end $$;
comment on function holdfast._maintain_lanes is
  'Go on with the round over all lanes until it is time, or until the round is over; those that are busy are passed over';

create or replace function holdfast._maintain_queue(queue holdfast.queue, until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_did jsonb := '{}';
begin
  v_did := holdfast._add_up(v_did, holdfast._tally(queue, holdfast.now(), until));
  v_did := holdfast._add_up(v_did, holdfast._sample(queue, holdfast.now()));
  return v_did;
end $$;
comment on function holdfast._maintain_queue is 'The steps that maintain() takes for each queue, while nobody else takes them for it';

create or replace function holdfast._maintain_queues(until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_turn bigint := coalesce(pg_sequence_last_value('holdfast.queue_turn'), 0);
  v_did jsonb := '{"queues": 0, "sampled": 0, "more": false}';
  v_queue holdfast.queue;
begin
  if not exists (select from holdfast.queue q where q.id > v_turn) then
    v_turn := 0;
  end if;
  for v_queue in select q.* from holdfast.queue q where q.id > v_turn order by q.id loop
    if clock_timestamp() > until and v_did ->> 'queues' <> '0' then
      return v_did || '{"more": true}';
    end if;
    -- The row lock keeps the queue from being dropped meanwhile, and nobody is waited for.
    if pg_try_advisory_xact_lock(holdfast._upkeep_lock(), v_queue.id) then
      perform from holdfast.queue q where q.id = v_queue.id for key share skip locked;
      if found then
        v_did := holdfast._add_up(v_did, holdfast._maintain_queue(v_queue, until));
      end if;
    end if;
    v_did := holdfast._add_up(v_did, '{"queues": 1}');
    perform setval('holdfast.queue_turn', v_queue.id);
  end loop;
  perform setval('holdfast.queue_turn', 0);
  return v_did;
end $$;
comment on function holdfast._maintain_queues is
  'Go on with the round over all queues until it is time, or until the round is over; those that somebody else is working on are passed over';

create or replace function holdfast.maintain(budget interval default '100 ms') returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_did jsonb := '{}';
  v_archive jsonb;
begin
  if maintain.budget is null or maintain.budget < interval '1 ms' or maintain.budget > interval '10 s' then
    perform holdfast._fail('QH422', 'budget is out of range', format('Got %s.', coalesce(maintain.budget::text, 'null')),
      'One call of maintain takes 1 millisecond to 10 seconds; call it again while done is false.');
  end if;
  perform holdfast._check_isolation('maintain');
  perform holdfast._limit_transaction();
  v_did := holdfast._add_up(v_did, (select jsonb_build_object('holders_ended', h.ended, 'holders', h.remaining) from holdfast._end_overdue_holders() h));
  -- Lanes come first: a floor moves only in a transaction that has written nothing yet.
  v_did := holdfast._add_up(v_did, holdfast._maintain_lanes(v_began + maintain.budget));
  v_did := holdfast._add_up(v_did, holdfast._maintain_queues(greatest(v_began + maintain.budget, clock_timestamp() + maintain.budget / 2)));
  perform holdfast._tidy_limiters(holdfast.now());
  perform holdfast._forget_receipts(holdfast.now());
  v_did := holdfast._add_up(v_did, jsonb_build_object('more', holdfast._forget_attempts(holdfast.now())));
  v_did := holdfast._add_up(v_did, jsonb_build_object('more', holdfast._forget_calls(holdfast.now())));
  perform holdfast._tidy_tasks(holdfast.now());
  v_did := holdfast._add_up(v_did, holdfast._tidy_stages(holdfast.now()));
  -- Last, since it may lock the archive until this transaction ends.
  v_archive := holdfast._tend_archive(holdfast.now());
  v_did := holdfast._add_up(v_did, jsonb_build_object('forgotten', v_archive -> 'forgotten', 'partitions_made', v_archive -> 'made',
                                                      'partitions_dropped', v_archive -> 'dropped', 'more', v_archive -> 'more'));
  perform setval('holdfast.maintained_at', holdfast._us(holdfast.now()));
  return v_did - 'more' || jsonb_build_object('done', not (v_did ->> 'more')::boolean);
end $$;
comment on function holdfast.maintain is
  'Sweep, audit, expire, count and sample, lanes and queues in turn, for about so long; call it every few seconds, and again while done is false. found: messages that were stranded';

create or replace function holdfast._maintain_due_in(every interval) returns interval language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
  v_last timestamptz := holdfast._time(nullif(pg_sequence_last_value('holdfast.maintained_at'), 0));
begin
  -- A time to come was written while the clock was set.
  return case when v_last between v_now - every and v_now then v_last + every - v_now else interval '0' end;
end $$;
comment on function holdfast._maintain_due_in is 'How long until maintain() is to be called again';

create or replace function holdfast.maintain_in_turn(every interval default '10 s', budget interval default '100 ms') returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_due_in interval;
  v_did jsonb;
begin
  if every is null or every < interval '0' or every > interval '1 day' then
    perform holdfast._fail('QH422', 'every is out of range', format('Got %s.', coalesce(every::text, 'null')),
      'maintain() is called every 0 seconds to 1 day.');
  end if;
  -- By a clock that is set, everything might be over: then there is no upkeep.
  if holdfast._clock_is_set() or not pg_try_advisory_xact_lock(holdfast._turn_lock(), 0) then
    return jsonb_build_object('ran', false, 'due_in', extract(epoch from every));
  end if;
  v_due_in := holdfast._maintain_due_in(every);
  if v_due_in > interval '0' then
    return jsonb_build_object('ran', false, 'due_in', extract(epoch from v_due_in));
  end if;
  v_did := holdfast.maintain(budget);
  return v_did || jsonb_build_object('ran', true, 'due_in', case when (v_did ->> 'done')::boolean then extract(epoch from every) else 0 end);
end $$;
comment on function holdfast.maintain_in_turn is
  'maintain(), unless somebody else is at it, or it was called less than every ago, or the clock is set. due_in: when to call again, in seconds';
