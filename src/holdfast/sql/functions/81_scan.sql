-- Scanning: all messages of a queue that are in a state, by ranges of ids. For readers that share out the work.
--
-- Unlike browse, which shows a page of what comes next, it looks at every message of a range, and only at what is
-- transactional: in flight is what a lease holds, ready is what nobody holds and nothing holds up. So a scan in a
-- transaction with a fixed snapshot shows one moment, however long it takes.

create or replace function holdfast._check_scan(queue holdfast.queue, state text) returns void language plpgsql stable
as $$
begin
  if state is null or state not in ('ready', 'scheduled', 'blocked', 'in_flight', 'live', 'dead', 'archive', 'log') then
    perform holdfast._fail('QH401', 'unknown state', format('Got %s.', coalesce(quote_literal(left(state, 50)), 'null')),
      'state takes ready, scheduled, blocked, in_flight, live (these four), dead, archive or log.');
  end if;
  if state = 'log' and queue.kind <> 'log' then
    perform holdfast._fail('QH603', format('"%s" is no log', queue.name), 'It is a queue: its messages end when they are acked.',
      'Scan what is live in it; make a log with {"kind": "log"}.');
  end if;
  if state in ('ready', 'scheduled', 'blocked', 'in_flight', 'live') then
    perform holdfast._work_queue(queue.name);
  end if;
end $$;
comment on function holdfast._check_scan is 'Refuse a state that a queue does not have';

create or replace function holdfast._scan_home(queue holdfast.queue, state text) returns holdfast.queue language plpgsql stable
as $$
declare
  v_home holdfast.queue := queue;
begin
  if state = 'dead' then
    select q.* into v_home from holdfast.queue q where q.name = queue.dead_letter;
  end if;
  return v_home;
end $$;
comment on function holdfast._scan_home is 'The queue that holds the messages of a state; of nulls if there is none';

create or replace function holdfast._scan_live(home holdfast.queue, lane holdfast.lane, origin text, state text, lo bigint, hi bigint)
returns setof holdfast.entry language plpgsql stable
as $$
declare
  v_now timestamptz := holdfast.now();
  v_ours boolean := holdfast._is_ours(lane.id);
begin
  return query
    select m.id, home.name, m.state, m.payload, m.body, m.content_type, m.headers, lane.priority::int, m.key, nullif(m.ordering_key, ''),
           m.correlation_id, m.tag, coalesce(m.deliveries, 0), coalesce(m.failures, 0), coalesce(m.max_deliveries, home.max_deliveries),
           m.enqueued_at, case when isfinite(m.due_at) then m.due_at end, m.expires_at, m.last_error, m.origin, null::timestamptz, null::text,
           null::timestamptz
    from (select m.*, case when _scan_live.state in ('dead', 'log') then _scan_live.state
                           -- In an expression it becomes a hash table, however wrong the estimates are.
                           when m.id in (select i.id from holdfast.lease l cross join lateral unnest(l.ids) i(id)
                                         where v_ours and l.lane_id = lane.id and i.id >= _scan_live.lo and i.id < _scan_live.hi) then 'in_flight'
                           when m.due_at = 'infinity' then 'blocked'
                           when m.due_at > v_now then 'scheduled'
                           else 'ready' end as state
          from holdfast.message m
          where m.id >= _scan_live.lo and m.id < _scan_live.hi and m.queue_id = home.id and (_scan_live.origin is null or m.origin ->> 'queue' = _scan_live.origin)
          order by m.id offset 0) m
    where m.state = _scan_live.state or _scan_live.state = 'live';
end $$;
comment on function holdfast._scan_live is 'Messages of a lane, from one id to before another, that are in a state; origin: only dead letters that came from there';

create or replace function holdfast.scan(
  queue text, state text, lo bigint, hi bigint, since timestamptz default null, until timestamptz default null)
returns setof holdfast.entry
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(scan.queue);
  v_home holdfast.queue := holdfast._scan_home(v_queue, scan.state);
  v_lane holdfast.lane;
begin
  perform holdfast._check_scan(v_queue, scan.state);
  select l.* into v_lane from holdfast.lane l where l.id = lo >> 40 and l.queue_id = v_home.id;
  if not found then
    return;
  end if;
  hi := least(hi, (v_lane.id + 1)::bigint << 40);
  if state = 'archive' then
    return query
      select a.id, v_queue.name, a.outcome, a.payload, a.body, a.content_type, a.headers, v_lane.priority::int, a.key, a.ordering_key,
             a.correlation_id, a.tag, coalesce(a.deliveries, 0), coalesce(a.failures, 0), coalesce(a.max_deliveries, v_queue.max_deliveries),
             a.enqueued_at, null::timestamptz, a.expires_at, a.last_error, a.origin, a.ended_at, a.consumer, a.claimed_at
      from holdfast.archive a
      where a.id >= lo and a.id < hi and a.queue_id = v_queue.id
        and a.ended_at >= coalesce(since, '-infinity') and a.ended_at < coalesce(until, 'infinity')
      order by a.id;
    return;
  end if;
  return query select s.* from holdfast._scan_live(v_home, v_lane, case when state = 'dead' then v_queue.name end, state, lo, hi) s;
end $$;
comment on function holdfast.scan is
  'The messages of a queue that are in a state, with ids from lo to before hi, as scan_bounds gives them; of the archive: that ended from since to before until';

create or replace function holdfast.scan_bounds(
  queue text, state text, since timestamptz default null, until timestamptz default null, first bigint default 0)
returns table (lo bigint, hi bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(scan_bounds.queue);
  v_home holdfast.queue := holdfast._scan_home(v_queue, scan_bounds.state);
begin
  perform holdfast._check_scan(v_queue, scan_bounds.state);
  if state = 'archive' then
    return query
      select b.lo, b.hi + 1 from holdfast.lane l cross join lateral (
        select min(a.id) as lo, max(a.id) as hi from holdfast.archive a
        where a.id >= greatest(first, l.id::bigint << 40) and a.id < (l.id + 1)::bigint << 40
          and a.ended_at >= coalesce(since, '-infinity') and a.ended_at < coalesce(until, 'infinity')) b
      where l.queue_id = v_home.id and b.lo is not null;
    return;
  end if;
  return query
    select b.lo, b.hi + 1 from holdfast.lane l cross join lateral (
      select min(m.id) as lo, max(m.id) as hi from holdfast.message m
      where m.id >= greatest(first, l.id::bigint << 40) and m.id < (l.id + 1)::bigint << 40) b
    where l.queue_id = v_home.id and b.lo is not null;
end $$;
comment on function holdfast.scan_bounds is
  'The ids among which scan has to look, one range a lane: from lo to before hi, and not before first';
