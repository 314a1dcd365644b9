-- Logs: read by sequence, retention, deletion.
--
-- An append is a send to the log's one lane. A sequence number that is missing was drawn by a transaction that is still
-- open, or that rolled back, or its record was removed. read() stops before the first number that may still come, so a
-- reader that passes the last seq on as `after` gets every record once, in order. Which may still come is known
-- (_decide) from the locks of appenders: each holds its transaction id, a lock on holdfast.message and one on the lane's
-- sequence before it draws a number, until it has ended.
--   floor           register gap_floor: of every id below it is known whether it comes
--   mark, horizon   registers gap_turn, gap_walk, always written together: every id up to mark was drawn by a transaction older
--                   than horizon. When all of those have ended, mark is known, and a new pair starts.
-- These hold in snapshots that are younger than the register's value: so read the register first, then the records.
-- Lock order: lane lock, log row, messages. read() takes none of them.

create or replace function holdfast._work_queue(queue text) returns holdfast.queue language plpgsql stable
as $$
declare
  v_queue holdfast.queue := holdfast._queue(_work_queue.queue);
begin
  if v_queue.kind = 'log' then
    perform holdfast._not_a_queue(v_queue.name);
  end if;
  return v_queue;
end $$;
comment on function holdfast._work_queue is 'A queue by its name that is no log, or an error';

create or replace function holdfast._not_a_queue(queue text) returns void language plpgsql volatile
as $$
begin
  perform holdfast._fail('QH602', format('"%s" is a log, not a queue', queue), 'Its records are not claimed and settled.',
    'Read it with holdfast.read, delete from it with holdfast.log_delete.');
end $$;
comment on function holdfast._not_a_queue is 'Raise: this verb is for queues';

create or replace function holdfast._log_lane(queue text, or_queue boolean default false) returns holdfast.lane language plpgsql stable
as $$
declare
  v_lane holdfast.lane;
begin
  -- A queue with one lane has one sequence too.
  select l.* into v_lane from holdfast.queue q join holdfast.lane l on l.queue_id = q.id
  where q.name = _log_lane.queue and (q.kind = 'log' or or_queue)
    and not exists (select from holdfast.lane o where o.queue_id = q.id and o.id <> l.id);
  if not found then
    perform holdfast._queue(_log_lane.queue);
    perform holdfast._fail('QH603', format(case when or_queue then '"%s" has several sequences' else '"%s" is no log' end, _log_lane.queue),
      case when or_queue then 'It is a queue with several lanes, each with its own sequence.' else 'It is a queue: its messages end when they are acked.' end,
      'Look at its messages with holdfast.browse; make a log with {"kind": "log"}.');
  end if;
  return v_lane;
end $$;
comment on function holdfast._log_lane is 'The one lane of a log, or of a queue where that will do; or an error';

create or replace function holdfast._no_append(queue text, options jsonb, nth bigint default null) returns void language plpgsql stable
as $$
declare
  v_order text[] := '{priority,delay,deliver_at,delay or deliver_at,ttl,expires_at,ttl or expires_at,max_deliveries,ordering_key,key,idempotency_key}';
begin
  perform holdfast._fail('QH604', 'a log takes no such option',
    format('"%s" is a log, whose records are not delivered; got %s.', _no_append.queue,
           (select string_agg(k, ', ' order by array_position(v_order, k)) from jsonb_object_keys(jsonb_strip_nulls(options)) k)),
    'Options for a log: payload, body, content_type, headers, correlation_id, tag. Old records go by the log''s retention.', nth);
end $$;
comment on function holdfast._no_append is 'Raise: a send to a log has these options, by name; null: it does not have that one';

create or replace function holdfast._check_kind(config jsonb, was text) returns void language plpgsql stable
as $$
declare
  v_kind text := coalesce(config ->> 'kind', 'queue');
  v_field text;
begin
  if was <> v_kind then
    perform holdfast._fail('QH601', 'the kind of a queue cannot be changed', format('It is a %s.', was),
      'Create another one, and move what is in it.');
  end if;
  select k into v_field from jsonb_object_keys(config) k
  where case v_kind when 'log' then k not in ('kind', 'retention', 'notify', 'max_depth', 'max_payload', 'rate_limits', 'annotations') else k = 'retention' end limit 1;
  if found then
    perform holdfast._fail('QH104', format('%s is no setting of a %s', v_field, v_kind), format('Got %s.', left((config -> v_field)::text, 100)),
      case v_kind when 'log' then 'A log takes kind, retention, notify, max_depth, max_payload, rate_limits, annotations.' else 'retention is for logs.' end);
  end if;
end $$;
comment on function holdfast._check_kind is 'Refuse settings that the kind of queue does not have, and another kind than it was';

create or replace function holdfast._check_retention(retention jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_field('retention', jsonb_typeof(retention) = 'object', retention, 'an object {age, count}');
  for v_field, v_value in select e.key, e.value from jsonb_each(retention) e loop
    case v_field
      when 'age' then
        perform holdfast._check_field('retention.age', holdfast._duration('retention.age', v_value) between interval '1 ms' and interval '100 years', v_value, '1 millisecond to 100 years');
      when 'count' then
        perform holdfast._check_field('retention.count', holdfast._whole(v_value, 1, 1000000000000), v_value, '1 to 1,000,000,000,000');
      else
        perform holdfast._fail('QH104', format('unknown field "retention.%s" in the configuration', left(v_field, 100)), format('Got %s.', left(v_value::text, 100)),
          'retention takes age, count.');
    end case;
  end loop;
end $$;
comment on function holdfast._check_retention is 'Refuse a bad retention';

create or replace function holdfast._apply_kind(queue text, effective jsonb) returns void language plpgsql volatile
as $$
begin
  insert into holdfast.log (lane_id, queue_id, retain_age, retain_count)
  select l.id, q.id, case when effective #> '{retention,age}' is not null then holdfast._duration('age', effective #> '{retention,age}') end,
         (effective #>> '{retention,count}')::numeric::bigint
  from holdfast.queue q join holdfast.lane l on l.queue_id = q.id
  where q.name = _apply_kind.queue and q.kind = 'log'
  on conflict (lane_id) do update set retain_age = excluded.retain_age, retain_count = excluded.retain_count
  where (log.retain_age, log.retain_count) is distinct from (excluded.retain_age, excluded.retain_count);
end $$;
comment on function holdfast._apply_kind is 'Write what the configuration says of a log';

create or replace function holdfast._appenders(lane holdfast.lane, out others bigint, out everybody bigint) language plpgsql volatile
as $$
declare
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  -- Lock entries show the lower 32 bits of a transaction id: the upper ones follow from how far it lies from the next one.
  with appender as (
    select min(k.pid) as pid, min(v_next - ((v_next - k.transactionid::text::bigint + 2147483648 & 4294967295) - 2147483648)) as xid
    from pg_locks k
    where k.granted and (k.locktype = 'transactionid' and k.mode = 'ExclusiveLock'
      or k.locktype = 'relation' and k.mode = 'RowExclusiveLock' and k.relation in (lane.ids, 'holdfast.message'::regclass)
         and k.database = holdfast._database_oid())
    group by k.virtualtransaction having count(distinct k.relation) = 2
  )
  select min(a.xid) filter (where a.pid is distinct from pg_backend_pid()), min(a.xid) into others, everybody from appender a;
end $$;
comment on function holdfast._appenders is
  'The oldest open transaction that may have drawn a sequence number of this log: other than this one, and with it. null: none';

create or replace function holdfast._log_pair(lane holdfast.lane, old_mark bigint, new_mark bigint, new_horizon bigint, out mark bigint, out horizon bigint)
language plpgsql volatile
as $$
begin
  -- Undone on purpose, which lets go of the lock at once; registers keep what was written.
  perform pg_advisory_xact_lock(holdfast._mark_lock(), lane.id);
  mark := coalesce(pg_sequence_last_value(lane.gap_turn), 0);
  horizon := coalesce(pg_sequence_last_value(lane.gap_walk), 0);
  if mark = old_mark and new_mark > mark then
    perform setval(lane.gap_turn, new_mark), setval(lane.gap_walk, new_horizon);
  end if;
  raise exception using errcode = 'HF000';
exception
  when sqlstate 'HF000' then null;
end $$;
comment on function holdfast._log_pair is 'Mark and horizon of a log, read together; replaced by a new pair if it is still the old one';

create or replace function holdfast._decide(lane holdfast.lane, floor bigint, seen bigint, booted boolean) returns bigint language plpgsql volatile
as $$
declare
  -- First the pair, then the locks: what is found ended must be about what the pair says.
  v_pair record := holdfast._log_pair(lane, 0, 0, 0);
  v_open record := holdfast._appenders(lane);
  v_floor bigint := floor;
  v_sure boolean := false;
begin
  -- A transaction that may not write finds out for itself alone.
  booted := booted and current_setting('transaction_read_only') = 'off';
  -- seen was drawn, hence all before it. An appender that is not found has ended: the next snapshot shows what it left.
  -- This transaction's own numbers are known to itself, not to others: no register moves past them.
  if v_open.others is null then
    v_floor := greatest(floor, seen + 1);
    v_sure := v_open.everybody is null;
  elsif booted and v_pair.mark >= floor and v_open.others >= v_pair.horizon then
    v_floor := v_pair.mark + 1;
    v_sure := v_open.everybody >= v_pair.horizon;
  end if;
  if booted and v_sure and v_floor > floor then
    perform setval(lane.gap_floor, v_floor);
  end if;
  if booted and seen >= v_floor and v_pair.mark < v_floor then
    perform holdfast._log_pair(lane, v_pair.mark, seen, holdfast._horizon(false)::text::bigint);
  end if;
  return v_floor;
end $$;
comment on function holdfast._decide is
  'Of which ids of a log is it known whether they come? All below the answer. floor: what was known before; seen: an id that was there';

create or replace function holdfast._log_booted(lane holdfast.lane) returns boolean language plpgsql volatile
as $$
begin
  if pg_sequence_last_value(lane.booted) = holdfast._boot_mark() then
    return true;
  end if;
  -- After a crash or a restore: what the registers say counts once the lane has started over, and that is committed.
  return current_setting('transaction_read_only') = 'off' and pg_try_advisory_xact_lock(holdfast._lane_lock(), lane.id) and holdfast._unchanged(lane) and not holdfast._boot_lane(lane);
end $$;
comment on function holdfast._log_booted is 'Are the registers of this log''s lane to be believed? If not, start it over';

create or replace function holdfast._records(lane holdfast.lane, floor bigint, after bigint, start bigint, "limit" int) returns setof holdfast.record
language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_from bigint := v_base + start;
  v_end bigint := (lane.id + 1)::bigint << 40;
begin
  -- One snapshot for the records and for what was removed: a record is there, or the answer says that it is gone.
  return query
    with log as materialized (
      select g.trimmed from holdfast.log g where g.lane_id = lane.id
    ), item as (
      select 'gap' as kind, after + 1 as lo, g.trimmed as hi, null::bigint as id, null::jsonb as payload, null::bytea as body,
             null::text as content_type, null::jsonb as headers, null::uuid as correlation_id, null::text as tag,
             null::timestamptz as enqueued_at, null::text as last_error, null::jsonb as origin
      from log g where g.trimmed > after
      union all
      select 'deleted', greatest(t.lo, t.start + 1), t.hi, null, null, null, null, null, null, null, null, null, null
      from (select t.lo, t.hi, greatest(start, (select g.trimmed from log g)) as start
            from holdfast.tombstone t where t.lane_id = lane.id and t.hi > start order by t.hi limit _records."limit") t where t.hi > t.start
      union all
      select 'record', m.id - v_base, m.id - v_base, m.id, m.payload, m.body, m.content_type, m.headers, m.correlation_id, m.tag, m.enqueued_at,
             m.last_error, m.origin
      from (select m.* from holdfast.message m where m.id > v_from and m.id < v_end order by m.id limit _records."limit") m
      where m.id - v_base > coalesce((select g.trimmed from log g), 0)
    ), placed as (
      select i.*, row_number() over along as nth,
             coalesce(sum(pg_column_size(i.payload)) over before, 0) + coalesce(sum(pg_column_size(i.body)) over before, 0) as bytes,
             i.lo - 1 + v_base >= greatest(coalesce(lag(i.hi) over along, after) + v_base + 1, floor) as open
      from item i
      window along as (order by i.lo), before as (order by i.lo rows between unbounded preceding and 1 preceding)
    ), shown as (
      select p.*, bool_or(p.open) over (order by p.lo) as stopped from placed p where p.nth <= _records."limit" and p.bytes < holdfast._answer_bytes()
    )
    select s.kind, s.hi, s.lo, s.hi, s.id, s.payload, s.body, s.content_type, s.headers, s.correlation_id, s.tag, s.enqueued_at, s.last_error, s.origin
    from shown s where not s.stopped order by s.lo;
end $$;
comment on function holdfast._records is
  'What comes after a sequence number, up to the first of which it is not known whether it comes. start: up to there retention has removed all';

create or replace function holdfast._passed(lane holdfast.lane) returns bigint language plpgsql stable
as $$
declare
  v_floor bigint := coalesce(pg_sequence_last_value(lane.gap_floor), 0);
begin
  -- What claims have passed without finding it is in a gap while it may still come.
  return least(holdfast._start(lane), (select g.lo from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_floor
                                         and holdfast._is_ours(lane.id) order by g.lo limit 1));
end $$;
comment on function holdfast._passed is 'Of a queue''s lane: the first id of which claims do not know whether it comes';

create or replace function holdfast._check_read(after bigint, "limit" int) returns void language plpgsql stable
as $$
begin
  if after is null or after not between 0 and 1099511627775 then
    perform holdfast._fail('QH605', 'after is out of range', format('Got %s.', coalesce(after::text, 'null')),
      'after takes the seq of the last row that was read, or 0.');
  end if;
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('read');
end $$;
comment on function holdfast._check_read is 'Refuse bad arguments of read, and a transaction it cannot work in';

create or replace function holdfast.read(queue text, after bigint default 0, "limit" int default 100) returns setof holdfast.record
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_log record;
  v_base bigint;
  v_from bigint;
  v_end bigint;
  v_ahead record;
begin
  if after is null or after not between 0 and 1099511627775 or "limit" is null or "limit" not between 1 and 10000
     or current_setting('transaction_isolation') <> 'read committed' then
    perform holdfast._check_read(after, "limit");
  end if;
  select l as lane, g.lane_id is not null as logged, coalesce(pg_sequence_last_value(l.gap_floor), 0) as floor,
         g.lane_id is not null and coalesce(pg_sequence_last_value(l.booted) = holdfast._boot_mark(), false) as booted,
         greatest(after, g.trimmed) as start into v_log
  from holdfast.queue q join holdfast.lane l on l.queue_id = q.id left join holdfast.log g on g.lane_id = l.id where q.name = read.queue;
  if v_log.booted is not true then
    v_log.lane := holdfast._log_lane(read.queue, true);
    v_log.booted := v_log.logged and holdfast._log_booted(v_log.lane);
    v_log.floor := case when v_log.booted then v_log.floor when v_log.logged then 0 else holdfast._passed(v_log.lane) end;
  end if;
  v_base := (v_log.lane).id::bigint << 40;
  v_from := v_base + v_log.start;
  v_end := v_base + (1::bigint << 40);
  select count(*) as records, max(m.id) as last, max(m.id) >= v_log.floor and count(*) < max(m.id) - v_from as holed,
         min(m.id) = v_from + 1 and max(m.enqueued_at) >= holdfast.now() - interval '10 ms' as young,
         coalesce(sum(m.bytes), 0) <= holdfast._answer_bytes() and v_log.start = after
           and not exists (select from holdfast.tombstone t where t.lane_id = (v_log.lane).id and t.hi > v_log.start) as plain into v_ahead
  from (select m.id, m.enqueued_at, coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) as bytes
        from holdfast.message m where m.id > v_from and m.id < v_end order by m.id limit read."limit") m;
  -- Something to show before a hole that will be filled in a moment is good enough.
  if v_ahead.holed and not v_ahead.young then
    v_log.floor := holdfast._decide(v_log.lane, v_log.floor, v_ahead.last, v_log.booted);
  end if;
  if v_ahead.plain and (v_ahead.records = 0 or not v_ahead.holed or v_ahead.last < v_log.floor) then
    -- The plain case, unless something was removed since that look: then nothing, and the long way.
    return query
      select 'record', m.id - v_base, m.id - v_base, m.id - v_base, m.id, m.payload, m.body, m.content_type, m.headers, m.correlation_id, m.tag,
             m.enqueued_at, m.last_error, m.origin
      from holdfast.message m where m.id > v_from and m.id <= v_ahead.last
        and not exists (select from holdfast.tombstone t where t.lane_id = (v_log.lane).id and t.hi > v_log.start)
        and not exists (select from holdfast.log g where g.lane_id = (v_log.lane).id and g.trimmed > v_log.start)
      order by m.id limit read."limit";
    if found or v_ahead.records = 0 then
      return;
    end if;
  end if;
  return query select * from holdfast._records(v_log.lane, v_log.floor, after, v_log.start, "limit");
end $$;
comment on function holdfast.read is
  'The records of a log after a sequence number, in order, up to the first that may still come. kind gap: retention has removed that range; deleted: log_delete has';
