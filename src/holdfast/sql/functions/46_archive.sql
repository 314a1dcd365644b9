-- The archive's upkeep: partitions made ahead and dropped when nobody needs them, rows that are too old removed.
--
-- A partition is a day (UTC), holdfast.archive_YYYYMMDD. Making one locks the default partition for a moment, dropping
-- one the whole archive: an ack that keeps its message waits for that. So both give up after 50 ms if somebody is at
-- work there, and the next maintain() tries again; both come last in maintain(), which ends right after.
-- Lock order: the archive, then the default partition, then the day's.

create or replace function holdfast._day(at timestamptz) returns date language sql immutable
  return (at at time zone 'UTC')::date;
comment on function holdfast._day is 'The day of the archive that a time belongs to';

create or replace function holdfast._day_begins(day date) returns timestamptz language sql immutable
  return day::timestamp at time zone 'UTC';
comment on function holdfast._day_begins is 'When a day of the archive begins';

create or replace function holdfast._make_partition(day date) returns boolean language plpgsql volatile
set lock_timeout = '50ms' set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
  v_name text := 'archive_' || to_char(day, 'YYYYMMDD');
  v_lo timestamptz := holdfast._day_begins(day);
  v_hi timestamptz := holdfast._day_begins(day + 1);
begin
  lock table holdfast.archive_default in access exclusive mode;
  -- Somebody who is migrating may have been first.
  if to_regclass('holdfast.' || v_name) is not null then
    return false;
  end if;
  -- What has come meanwhile moves over; if that is much, the day stays where it is.
  if (select count(*) from (select from holdfast.archive_default a where a.ended_at >= v_lo and a.ended_at < v_hi limit 10001) a) > 10000 then
    return false;
  end if;
  execute format('create table holdfast.%I (like holdfast.archive including all)', v_name);
  execute format('comment on table holdfast.%I is %L', v_name, format('Messages that ended on %s and are kept', day));
  execute format('with moved as (delete from holdfast.archive_default a where a.ended_at >= %L and a.ended_at < %L returning a.*) '
                 'insert into holdfast.%I select * from moved', v_lo, v_hi, v_name);
  execute format('alter table holdfast.archive attach partition holdfast.%I for values from (%L) to (%L)', v_name, v_lo, v_hi);
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._make_partition is
  'Make the partition of a day, and move to it what lies in the default one. false: not now, somebody writes there, or it holds over 10,000 of that day';

create or replace function holdfast._make_partitions(at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_day date;
  v_made int := 0;
begin
  for v_day in select holdfast._day(at) + n from generate_series(0, 3) n loop
    if to_regclass('holdfast.archive_' || to_char(v_day, 'YYYYMMDD')) is null and holdfast._make_partition(v_day) then
      v_made := v_made + 1;
    end if;
  end loop;
  return v_made;
end $$;
comment on function holdfast._make_partitions is 'Make the partitions of today and the three days to come; returns how many were missing and are there now';

create or replace function holdfast._drop_partitions(at timestamptz) returns int language plpgsql volatile set lock_timeout = '50ms'
as $$
declare
  v_before timestamptz := at - coalesce((select max(q.keep_for) from holdfast.queue q where q.kind = 'queue'), '0');
  v_old text[];
begin
  v_old := array(
    select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'holdfast.archive'::regclass and c.relname ~ '^archive_[0-9]{8}$'
      and holdfast._day_begins(to_date(right(c.relname, 8), 'YYYYMMDD') + 1) <= v_before);
  if v_old <> '{}' then
    lock table only holdfast.archive in access exclusive mode;
    execute (select 'drop table ' || string_agg(format('holdfast.%I', o), ', ') from unnest(v_old) o);
  end if;
  return cardinality(v_old);
exception
  when lock_not_available or deadlock_detected then return 0;
end $$;
comment on function holdfast._drop_partitions is 'Drop the partitions that no queue''s retention reaches back to; returns how many. 0 also if the archive is in use';

create or replace function holdfast._forget(before timestamptz, queue_id int, "limit" int, outcome text default null) returns int
language plpgsql volatile
as $$
declare
  v_old record;
  v_gone int;
begin
  if _forget.queue_id is null then
    select array_agg(o.id) as ids, min(o.ended_at) as first, max(o.ended_at) as last into v_old from (
      select a.id, a.ended_at from holdfast.archive_default a where a.ended_at < before order by a.ended_at, a.id limit _forget."limit"
      for update skip locked) o;
  elsif _forget.outcome <> 'done' then
    -- Those have an index.
    select array_agg(o.id) as ids, min(o.ended_at) as first, max(o.ended_at) as last into v_old from (
      select a.id, a.ended_at from holdfast.archive a
      where a.queue_id = _forget.queue_id and a.outcome = _forget.outcome and a.outcome <> 'done' and a.ended_at < before
      order by a.ended_at, a.id limit _forget."limit" for update skip locked) o;
  else
    select array_agg(o.id) as ids, min(o.ended_at) as first, max(o.ended_at) as last into v_old from (
      select a.id, a.ended_at from holdfast.archive a
      where a.queue_id = _forget.queue_id and a.ended_at < before and (_forget.outcome is null or a.outcome = 'done')
      order by a.ended_at, a.id limit _forget."limit" for update skip locked) o;
  end if;
  -- An id is there once; the times say in which partitions to look.
  delete from holdfast.archive a where a.id = any (v_old.ids) and a.ended_at >= v_old.first and a.ended_at <= v_old.last;
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
comment on function holdfast._forget is 'Delete the oldest messages of a queue from the archive, or those with one outcome; queue_id null: of all queues, from the default partition';

create or replace function holdfast._forget_old(at timestamptz, "limit" int) returns int language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_longest interval := coalesce((select max(q.keep_for) from holdfast.queue q where q.kind = 'queue'), '0');
  v_turn bigint := coalesce(pg_sequence_last_value('holdfast.archive_turn'), 0);
  v_queue record;
  v_gone int;
begin
  if pg_sequence_last_value('holdfast.archive_walk') between holdfast._us(v_began) and holdfast._us(v_began) + 600000000 then
    return 0;
  end if;
  -- No partition is dropped for the queues with the shorter retention, nor is the default one for anybody.
  v_gone := holdfast._forget(at - v_longest, null, "limit");
  for v_queue in select q.id, q.keep_for from holdfast.queue q where q.keep_for < v_longest order by (q.id <= v_turn), q.id loop
    exit when v_gone >= "limit" or clock_timestamp() > v_began + interval '50 ms';
    v_gone := v_gone + holdfast._forget(at - v_queue.keep_for, v_queue.id, "limit" - v_gone);
    perform setval('holdfast.archive_turn', v_queue.id);
  end loop;
  -- A walk over nothing but dead rows is not worth repeating at once.
  if v_gone = 0 and clock_timestamp() > v_began + interval '100 ms' then
    perform setval('holdfast.archive_walk', holdfast._us(clock_timestamp() + 20 * (clock_timestamp() - v_began)));
  end if;
  return v_gone;
end $$;
comment on function holdfast._forget_old is 'Delete messages from the archive that are older than their queue''s retention, at most so many; returns how many';

create or replace function holdfast._tend_archive(at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_dropped int;
  v_made int;
  v_gone int;
begin
  -- One at a time; whoever comes second has nothing to do.
  if not pg_try_advisory_xact_lock(holdfast._archive_lock(), 0) then
    return '{"dropped": 0, "made": 0, "forgotten": 0, "more": false}';
  end if;
  v_gone := holdfast._forget_old(at, 5000);
  v_dropped := holdfast._drop_partitions(at);
  v_made := holdfast._make_partitions(at);
  return jsonb_build_object('dropped', v_dropped, 'made', v_made, 'forgotten', v_gone, 'more', v_gone >= 5000);
end $$;
comment on function holdfast._tend_archive is 'The archive''s part of maintain(): drop, make, forget';

create or replace function holdfast._archived(message holdfast.archive, queue text) returns holdfast.entry language sql stable
  return ((message).id, queue, (message).outcome, (message).payload, (message).body, (message).content_type, (message).headers,
          (select l.priority::int from holdfast.lane l where l.id = (message).id >> 40), (message).key, (message).ordering_key,
          (message).correlation_id, (message).tag, coalesce((message).deliveries, 0), coalesce((message).failures, 0),
          coalesce((message).max_deliveries, (select q.max_deliveries from holdfast.queue q where q.id = (message).queue_id)),
          (message).enqueued_at, null, (message).expires_at, (message).last_error, (message).origin, (message).ended_at,
          (message).consumer, (message).claimed_at)::holdfast.entry;
comment on function holdfast._archived is 'A message of the archive as a report shows it: its state is how it ended';

create or replace function holdfast._archived_of(lane holdfast.lane, after bigint, "limit" int) returns setof holdfast.archive
language plpgsql stable
as $$
begin
  return query
    select a.* from holdfast.archive a
    where a.id > greatest(after, lane.id::bigint << 40) and a.id < (lane.id + 1)::bigint << 40
    order by a.id limit _archived_of."limit";
end $$;
comment on function holdfast._archived_of is 'What the archive holds of a lane, by id';

do $$
begin
  perform holdfast._make_partitions(holdfast.now());
end $$;
