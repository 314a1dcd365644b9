-- Maintenance: what no caller waits for. Safe from any number of processes at once; each call takes a bounded
-- number of lanes in turn, and skips those that are busy.
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

create or replace function holdfast._tally(counted int, at timestamptz) returns void language plpgsql volatile
as $$
begin
  insert into holdfast.tally (queue_id, counted_at, in_flight, due, scheduled, blocked)
  select _tally.counted, at,
    (select coalesce(sum(cardinality(l.ids)), 0) from holdfast.lane n join holdfast.lease l on l.lane_id = n.id where n.queue_id = _tally.counted),
    d.due, d.scheduled, d.blocked
  from (select count(*) filter (where m.due_at <= at) as due, count(*) filter (where m.due_at > at and m.due_at < 'infinity') as scheduled,
               count(*) filter (where m.due_at = 'infinity') as blocked
        from holdfast.lane n join holdfast.message m on m.id >> 40 = n.id and m.due_at > '-infinity'
        where n.queue_id = _tally.counted) d
  on conflict (queue_id) do update set counted_at = excluded.counted_at, in_flight = excluded.in_flight, due = excluded.due,
    scheduled = excluded.scheduled, blocked = excluded.blocked;
end $$;
comment on function holdfast._tally is 'Count in full what queue_stats counts up to 10,000';

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

create or replace function holdfast._maintain_lane(lane holdfast.lane, at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_swept int;
  v_audited int;
  v_trimmed int;
  v_expiry record;
begin
  if holdfast._boot_lane(lane) then
    return '{"booted": 1}';
  end if;
  perform holdfast._advance(lane);
  v_swept := holdfast._sweep_lane(lane, at, v_clean);
  v_audited := holdfast._audit(lane, at);
  v_trimmed := holdfast._trim_log(lane, at);
  v_expiry := holdfast._expire(lane, at);
  -- Somebody else may be counting this queue, by another of its lanes.
  if pg_try_advisory_xact_lock(holdfast._lane_lock() + 1, lane.queue_id) then
    perform holdfast._tally(lane.queue_id, at);
  end if;
  return jsonb_build_object('swept', v_swept, 'found', v_audited, 'expired', v_expiry.expired, 'trimmed', v_trimmed,
                            'more', v_expiry.more or v_trimmed >= 10000);
end $$;
comment on function holdfast._maintain_lane is 'Under the lane lock: boot if need be, sweep, audit, expire, count';

create or replace function holdfast.maintain() returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_turn bigint := coalesce(pg_sequence_last_value('holdfast.turn'), 0);
  v_lane holdfast.lane;
  v_did jsonb;
  v_lanes int := 0;
  v_booted int := 0;
  v_swept int := 0;
  v_found int := 0;
  v_trimmed int := 0;
  v_expired int := 0;
  v_more boolean := false;
  v_busy int := 0;
  v_overdue record;
  v_archive jsonb;
begin
  perform holdfast._check_isolation('maintain');
  perform holdfast._limit_transaction();
  v_overdue := holdfast._end_overdue_holders();
  perform holdfast._tidy_limiters(holdfast.now());
  for v_lane in select l.* from holdfast.lane l order by (l.id <= v_turn), l.id loop
    if pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) and holdfast._unchanged(v_lane) then
      v_did := holdfast._maintain_lane(v_lane, holdfast.now());
      v_booted := v_booted + coalesce((v_did ->> 'booted')::int, 0);
      v_swept := v_swept + coalesce((v_did ->> 'swept')::int, 0);
      v_found := v_found + coalesce((v_did ->> 'found')::int, 0);
      v_trimmed := v_trimmed + coalesce((v_did ->> 'trimmed')::int, 0);
      v_expired := v_expired + coalesce((v_did ->> 'expired')::int, 0);
      v_more := v_more or coalesce((v_did ->> 'more')::boolean, false);
    else
      v_busy := v_busy + 1;
    end if;
    v_lanes := v_lanes + 1;
    perform setval('holdfast.turn', v_lane.id);
    exit when clock_timestamp() > v_began + interval '100 ms';
  end loop;
  -- Last, since it may lock the archive until this transaction ends.
  v_archive := holdfast._tend_archive(holdfast.now());
  return jsonb_build_object('lanes', v_lanes, 'busy', v_busy, 'booted', v_booted, 'swept', v_swept, 'found', v_found, 'expired', v_expired,
                            'trimmed', v_trimmed, 'forgotten', v_archive -> 'forgotten', 'partitions_made', v_archive -> 'made',
                            'partitions_dropped', v_archive -> 'dropped', 'holders_ended', v_overdue.ended, 'holders', v_overdue.remaining,
                            'done', v_lanes >= (select count(*) from holdfast.lane) and not v_more and not (v_archive -> 'more')::boolean);
end $$;
comment on function holdfast.maintain is
  'Sweep, audit, expire and count, some lanes a call, in turn; call it every few seconds, and again while done is false. found: messages that were stranded';
