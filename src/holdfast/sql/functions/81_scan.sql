-- Scanning: all messages of a queue that are in a state, by ranges of ids. For readers that share out the work.
--
-- Unlike browse, which shows a page of what comes next, it looks at every message of a range, and only at what is
-- transactional: in flight is what a lease holds, ready is what nobody holds and nothing holds up. So a scan in a
-- transaction with a fixed snapshot shows one moment, however long it takes.
--
-- A function keeps all its rows before it hands out the first one. So whoever reads much asks scan_source for a statement,
-- and runs that: over views, which have the rights of the owner of the schema, and with all values in it as constants, so
-- that COPY streams from the index, and computes no column that nobody wants. scan runs the same statement.

create or replace view holdfast.scan_message as
  select m.id, m.queue_id, m.deliveries, m.enqueued_at, m.due_at, m.expires_at, m.payload, m.body, m.content_type, m.headers, m.tag,
         m.correlation_id, m.key, m.ordering_key, m.failures, m.max_deliveries, m.last_error, m.origin
  from holdfast.message m;
comment on view holdfast.scan_message is 'Live messages, for the statements of scan_source';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.scan_message for each row execute function holdfast._refuse_write();

create or replace view holdfast.scan_archive as
  select a.id, a.queue_id, a.outcome, a.ended_at, a.deliveries, a.enqueued_at, a.expires_at, a.payload, a.body, a.content_type, a.headers, a.tag,
         a.correlation_id, a.key, a.ordering_key, a.failures, a.max_deliveries, a.last_error, a.origin, a.consumer, a.claimed_at
  from holdfast.archive a;
comment on view holdfast.scan_archive is 'Messages of the archive, for the statements of scan_source';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.scan_archive for each row execute function holdfast._refuse_write();

create or replace view holdfast.scan_lease as
  select l.lane_id, i.id from holdfast.lease l cross join lateral unnest(l.ids) i(id);
comment on view holdfast.scan_lease is 'The ids that leases hold, for the statements of scan_source';

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

create or replace function holdfast._live_source(home holdfast.queue, lane holdfast.lane, origin text, state text, lo bigint, hi bigint)
returns text language plpgsql stable
as $$
declare
  -- In an expression it becomes a hash table, however wrong the estimates are.
  v_held text := case when holdfast._is_ours(lane.id) then format(
    'when m.id in (select l.id from holdfast.scan_lease l where l.lane_id = %s and l.id >= %s and l.id < %s) then ''in_flight'' ', lane.id, lo, hi) else '' end;
  v_state text := case when state in ('dead', 'log') then quote_literal(state) else format(
    'case %swhen m.due_at = ''infinity'' then ''blocked'' when m.due_at > %L::timestamptz then ''scheduled'' else ''ready'' end', v_held, holdfast.now()) end;
begin
  return format(
    'select m.id, %L::text as queue, (%s)::text as state, m.payload, m.body, m.content_type, m.headers, %s::int as priority, m.key, '
    'nullif(m.ordering_key, '''') as ordering_key, m.correlation_id, m.tag, coalesce(m.deliveries, 0) as deliveries, coalesce(m.failures, 0) as failures, '
    'coalesce(m.max_deliveries, %L) as max_deliveries, m.enqueued_at, case when isfinite(m.due_at) then m.due_at end as due_at, m.expires_at, '
    'm.last_error, m.origin, null::timestamptz as ended_at, null::text as consumer, null::timestamptz as claimed_at '
    'from holdfast.scan_message m where m.id >= %s and m.id < %s and m.queue_id = %s%s%s',
    home.name, case when state = 'live' then v_state else quote_literal(state) end, lane.priority, home.max_deliveries, lo, hi, home.id,
    ' and m.origin ->> ''queue'' = ' || quote_literal(origin),
    case when state not in ('dead', 'log', 'live') then format(' and %s = %L', v_state, state) end);
end $$;
comment on function holdfast._live_source is
  'The statement for messages of a lane, from one id to before another, that are in a state; origin: only dead letters that came from there';

create or replace function holdfast._archive_source(queue holdfast.queue, lane holdfast.lane, lo bigint, hi bigint, since timestamptz, until timestamptz)
returns text language plpgsql stable
as $$
begin
  return format(
    'select m.id, %L::text as queue, m.outcome as state, m.payload, m.body, m.content_type, m.headers, %s::int as priority, m.key, m.ordering_key, '
    'm.correlation_id, m.tag, coalesce(m.deliveries, 0) as deliveries, coalesce(m.failures, 0) as failures, '
    'coalesce(m.max_deliveries, %L) as max_deliveries, m.enqueued_at, null::timestamptz as due_at, m.expires_at, m.last_error, m.origin, '
    'm.ended_at, m.consumer, m.claimed_at '
    'from holdfast.scan_archive m where m.id >= %s and m.id < %s and m.queue_id = %s%s%s',
    queue.name, lane.priority, queue.max_deliveries, lo, hi, queue.id,
    ' and m.ended_at >= ' || quote_literal(since) || '::timestamptz', ' and m.ended_at < ' || quote_literal(until) || '::timestamptz');
end $$;
comment on function holdfast._archive_source is 'The statement for archived messages of a lane, from one id to before another, that ended from since to before until';

create or replace function holdfast._unused(source text, columns text[]) returns jsonb language plpgsql stable
as $$
declare
  v_columns text[] := array(select c from unnest(columns) c where c in ('body', 'content_type', 'headers', 'key', 'ordering_key', 'correlation_id', 'tag',
                                                                        'due_at', 'expires_at', 'last_error', 'origin', 'consumer', 'claimed_at'));
  v_is_so boolean;
begin
  if cardinality(v_columns) < 4 then
    return '{}';
  end if;
  -- The first rows say which to look for. A look at all rows is only worth it for several, and at all of them at once.
  execute format('select array_remove(array[%s]::text[], null) from (select * from (%s) m limit 1000) m',
    (select string_agg(format('case when count(m.%I) = 0 then %L end', c, c), ', ') from unnest(v_columns) c), source) into v_columns;
  if cardinality(v_columns) < 4 then
    return '{}';
  end if;
  execute format('select not exists (select from (%s) m where num_nonnulls(%s) > 0)',
    source, (select string_agg(format('m.%I', c), ', ') from unnest(v_columns) c)) into v_is_so;
  return case when v_is_so then (select jsonb_object_agg(c, null) from unnest(v_columns) c) else '{}' end;
end $$;
comment on function holdfast._unused is 'Of these columns, such as are null in all rows of a statement; none if that is not clear at little cost';

create or replace function holdfast.scan_source(
  queue text, state text, lo bigint, hi bigint, since timestamptz default null, until timestamptz default null, columns text[] default null)
returns table (source text, fixed jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(scan_source.queue);
  v_home holdfast.queue := holdfast._scan_home(v_queue, scan_source.state);
  v_lane holdfast.lane;
begin
  perform holdfast._check_scan(v_queue, scan_source.state);
  select l.* into v_lane from holdfast.lane l where l.id = lo >> 40 and l.queue_id = v_home.id;
  if not found or hi is null then
    return;
  end if;
  hi := least(hi, (v_lane.id + 1)::bigint << 40);
  fixed := jsonb_build_object('queue', v_home.name, 'priority', v_lane.priority);
  if state = 'archive' then
    source := holdfast._archive_source(v_queue, v_lane, lo, hi, since, until);
    fixed := fixed || '{"due_at": null}';
  else
    source := holdfast._live_source(v_home, v_lane, case when state = 'dead' then v_queue.name end, state, lo, hi);
    fixed := fixed || '{"ended_at": null, "consumer": null, "claimed_at": null}' || case when state = 'live' then '{}' else jsonb_build_object('state', state) end;
  end if;
  fixed := fixed || holdfast._unused(source, scan_source.columns);
  return next;
end $$;
comment on function holdfast.scan_source is
  'The statement that shows what scan shows, for those who may scan, in this transaction, and columns that have one value in all of its rows. columns: look for such among these';

create or replace function holdfast.scan(
  queue text, state text, lo bigint, hi bigint, since timestamptz default null, until timestamptz default null)
returns setof holdfast.entry
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_source text := (select s.source from holdfast.scan_source(scan.queue, scan.state, scan.lo, scan.hi, scan.since, scan.until) s);
begin
  if v_source is not null then
    return query execute v_source || ' order by m.id';
  end if;
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
