-- What a log keeps: retention, deletion, and its figures.
--
-- Retention removes a prefix, and log.trimmed says up to where: one number, however much is gone. log_delete removes
-- records from anywhere and leaves tombstones: ranges that are merged wherever no record is between them, and that go
-- when retention has passed them. Neither removes a number that may still come.
-- Lock order: lane lock (maintain only), the log's row, messages.

create or replace function holdfast._top(lane holdfast.lane) returns bigint language plpgsql stable
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_end bigint := (lane.id + 1)::bigint << 40;
begin
  return greatest(
    (select m.id from holdfast.message m where m.id > v_base and m.id < v_end order by m.id desc limit 1),
    (select t.hi + v_base from holdfast.tombstone t where t.lane_id = lane.id order by t.hi desc limit 1));
end $$;
comment on function holdfast._top is 'The highest id of a log that is there, or was deleted; null: none';

create or replace function holdfast._known(lane holdfast.lane, seen bigint) returns bigint language plpgsql volatile
as $$
declare
  v_booted boolean := holdfast._log_booted(lane);
  v_floor bigint := case when v_booted then coalesce(pg_sequence_last_value(lane.gap_floor), 0) else 0 end;
begin
  return case when v_floor > seen then v_floor else holdfast._decide(lane, v_floor, seen, v_booted) end;
end $$;
comment on function holdfast._known is 'The first id of a log of which it is not known whether it comes. seen: an id that was there';

create or replace function holdfast._trim_chunk(log holdfast.log, top bigint, floor bigint, at timestamptz, out cut bigint, out removed int) language plpgsql volatile
as $$
declare
  v_from bigint := (log.lane_id::bigint << 40) + log.trimmed;
begin
  select max(c.id) filter (where c.over or c.id <= top - log.retain_count) into cut
  from (select m.id, coalesce(bool_and(m.enqueued_at <= at - log.retain_age) over (order by m.id), false) as over
        from (select m.id, m.enqueued_at from holdfast.message m where m.id > v_from and m.id < floor order by m.id limit 2000) m) c;
  delete from holdfast.message m where m.id > v_from and m.id <= cut;
  get diagnostics removed = row_count;
end $$;
comment on function holdfast._trim_chunk is 'Remove what is over the retention of a log, 2,000 records at most. cut: the last id removed; null: nothing is over it';

create or replace function holdfast._trim_log(lane holdfast.lane, at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_log holdfast.log;
  v_top bigint;
  v_floor bigint;
  v_chunk record;
  v_chunks int := 0;
  v_removed int := 0;
begin
  select g.* into v_log from holdfast.log g
  where g.lane_id = lane.id and num_nonnulls(g.retain_age, g.retain_count) > 0 for update skip locked;
  if not found then
    return 0;
  end if;
  v_top := holdfast._top(lane);
  v_floor := holdfast._known(lane, v_top);
  while v_chunks < 5 loop
    v_chunk := holdfast._trim_chunk(v_log, v_top, v_floor, at);
    exit when v_chunk.cut is null;
    v_log.trimmed := v_chunk.cut - (lane.id::bigint << 40);
    v_removed := v_removed + v_chunk.removed;
    v_chunks := v_chunks + 1;
  end loop;
  if v_chunks > 0 then
    update holdfast.log g set trimmed = v_log.trimmed where g.lane_id = lane.id;
    delete from holdfast.tombstone t where t.lane_id = lane.id and t.hi <= v_log.trimmed;
  end if;
  return v_removed;
end $$;
comment on function holdfast._trim_log is 'Under the lane lock: enforce the retention of a log, 10,000 records at most; returns how many it removed';

create or replace function holdfast._bridged(lane holdfast.lane, lo bigint, hi bigint, floor bigint) returns boolean language plpgsql stable
as $$
declare
  v_lo bigint := (lane.id::bigint << 40) + lo;
  v_hi bigint := (lane.id::bigint << 40) + hi;
begin
  return hi = lo + 1 or (v_hi <= floor and not exists (select from holdfast.message m where m.id > v_lo and m.id < v_hi));
end $$;
comment on function holdfast._bridged is 'Is there no record between these two sequence numbers of a log, and will there be none?';

create or replace function holdfast._entomb(lane holdfast.lane, ids bigint[]) returns void language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_floor bigint := holdfast._known(lane, greatest(holdfast._top(lane), (select max(i) from unnest(ids) i)));
  v_range record;
  v_beside record;
begin
  for v_range in
    select min(r.seq) as lo, max(r.seq) as hi
    from (select s.seq, sum(s.starts) over (order by s.seq) as n
          from (select i - v_base as seq,
                       (not coalesce(holdfast._bridged(lane, lag(i) over (order by i) - v_base, i - v_base, v_floor), false))::int as starts
                from unnest(ids) i) s) r
    group by r.n order by 1
  loop
    delete from holdfast.tombstone t where t.lane_id = lane.id and t.hi > v_range.lo and t.hi < v_range.hi;
    select t.lo, t.hi into v_beside from holdfast.tombstone t where t.lane_id = lane.id and t.hi < v_range.lo order by t.hi desc limit 1;
    if found and holdfast._bridged(lane, v_beside.hi, v_range.lo, v_floor) then
      delete from holdfast.tombstone t where t.lane_id = lane.id and t.hi = v_beside.hi;
      v_range.lo := v_beside.lo;
    end if;
    select t.lo, t.hi into v_beside from holdfast.tombstone t where t.lane_id = lane.id and t.hi > v_range.hi order by t.hi limit 1;
    if found and holdfast._bridged(lane, v_range.hi, v_beside.lo, v_floor) then
      update holdfast.tombstone t set lo = v_range.lo where t.lane_id = lane.id and t.hi = v_beside.hi;
    else
      insert into holdfast.tombstone (lane_id, lo, hi) values (lane.id, v_range.lo, v_range.hi);
    end if;
  end loop;
end $$;
comment on function holdfast._entomb is 'Under the lock of the log''s row: leave tombstones for records that were deleted, merged with those beside them';

create or replace function holdfast._entomb_in(queue holdfast.queue, ids bigint[]) returns void language plpgsql volatile
as $$
declare
  v_lane holdfast.lane;
begin
  if queue.kind = 'log' and cardinality(ids) > 0 then
    v_lane := holdfast._log_lane(queue.name);
    perform from holdfast.log g where g.lane_id = v_lane.id for update;
    perform holdfast._entomb(v_lane, ids);
  end if;
end $$;
comment on function holdfast._entomb_in is 'Leave tombstones for records that were moved or discarded, if this is a log';

create or replace function holdfast._to_delete(lane holdfast.lane, seqs bigint[], tag text, before bigint, trimmed bigint, "limit" int) returns bigint[]
language plpgsql stable
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_from bigint := v_base + trimmed;
  v_end bigint := v_base + least(before, 1::bigint << 40);
begin
  if seqs is not null then
    return array(select m.id from holdfast.message m where m.id = any (array(select v_base + s from unnest(seqs) s where s between 1 and 1099511627775)));
  elsif tag is not null then
    return array(select m.id from holdfast.message m where m.id >> 40 = lane.id and m.tag = _to_delete.tag and m.id > v_from and m.id < v_end
                 order by m.id limit _to_delete."limit");
  end if;
  return array(select m.id from holdfast.message m where m.id > v_from and m.id < v_end order by m.id limit _to_delete."limit");
end $$;
comment on function holdfast._to_delete is 'The ids that log_delete is about';

create or replace function holdfast.log_delete(
  queue text, seqs bigint[] default null, tag text default null, before bigint default null, "limit" int default 10000) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lane holdfast.lane;
  v_trimmed bigint;
  v_ids bigint[];
  v_gone bigint[];
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('log_delete');
  if num_nonnulls(seqs, tag, before) = 0 or (seqs is not null and num_nonnulls(tag, before) > 0) or cardinality(seqs) > 10000 then
    perform holdfast._fail('QH605', 'what is to be deleted is not clear',
      case when cardinality(seqs) > 10000 then format('Got %s sequence numbers.', cardinality(seqs)) else format('Got %s of seqs, tag, before.', num_nonnulls(seqs, tag, before)) end,
      'Pass up to 10,000 seqs; or a tag; or before, the first sequence number to keep; or tag and before.');
  end if;
  v_lane := holdfast._log_lane(log_delete.queue);
  select g.trimmed into v_trimmed from holdfast.log g where g.lane_id = v_lane.id for update;
  v_ids := holdfast._to_delete(v_lane, seqs, tag, before, v_trimmed, "limit");
  with gone as (delete from holdfast.message m where m.id = any (v_ids) returning m.id)
  select array_agg(g.id) into v_gone from gone g;
  perform holdfast._entomb(v_lane, v_gone);
  return coalesce(cardinality(v_gone), 0);
end $$;
comment on function holdfast.log_delete is
  'Delete records of a log: by sequence number, by tag, or all before one; at most limit, the oldest first. Returns how many; readers are told';

create or replace function holdfast._run_end(first bigint, top bigint) returns bigint language plpgsql stable
as $$
begin
  -- Somebody is appending: what follows without a hole is known too.
  return (select coalesce(max(d.id) filter (where d.id = first + d.nth - 1), first - 1)
          from (select m.id, row_number() over (order by m.id) as nth
                from (select m.id from holdfast.message m where m.id >= first and m.id <= top order by m.id limit 10000) m) d);
end $$;
comment on function holdfast._run_end is 'The last id of those that follow on a first one without a hole, up to 10,000; the one before the first: it is not there';

create or replace function holdfast._last_known(lane holdfast.lane, trimmed bigint) returns bigint language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_top bigint := holdfast._top(lane);
  v_from bigint := greatest(holdfast._known(lane, v_top), v_base + trimmed + 1);
begin
  if v_top is null or v_from > v_top then
    return coalesce(v_top - v_base, trimmed);
  end if;
  return holdfast._run_end(v_from, v_top) - v_base;
end $$;
comment on function holdfast._last_known is 'The last sequence number of a log up to which all is known; looks at 10,000 records';

create or replace function holdfast.log_stats(queue text)
returns table (first_seq bigint, last_seq bigint, records bigint, trimmed bigint, oldest_age interval, exact boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lane holdfast.lane := holdfast._log_lane(log_stats.queue);
  v_base bigint := v_lane.id::bigint << 40;
  v_from bigint;
  v_upto bigint;
begin
  perform holdfast._check_isolation('log_stats');
  select g.trimmed into log_stats.trimmed from holdfast.log g where g.lane_id = v_lane.id;
  last_seq := holdfast._last_known(v_lane, log_stats.trimmed);
  -- What was deleted right behind retention need not be walked over.
  select t.hi into v_from from holdfast.tombstone t
  where t.lane_id = v_lane.id and t.hi > log_stats.trimmed and t.lo <= log_stats.trimmed + 1 order by t.hi limit 1;
  v_from := v_base + coalesce(v_from, log_stats.trimmed);
  v_upto := v_base + last_seq;
  select m.id - v_base, holdfast.now() - m.enqueued_at into first_seq, oldest_age
  from holdfast.message m where m.id > v_from and m.id <= v_upto order by m.id limit 1;
  select count(*), count(*) <= 10000 into records, exact
  from (select from holdfast.message m where m.id > v_from and m.id <= v_upto order by m.id limit 10001) m;
  if not exact then
    records := greatest(v_upto - v_from - (select coalesce(sum(t.hi - t.lo + 1), 0)
                                           from (select t.lo, t.hi from holdfast.tombstone t
                                                 where t.lane_id = v_lane.id and t.hi > v_from - v_base order by t.hi limit 10000) t), 10001);
  end if;
  return next;
end $$;
comment on function holdfast.log_stats is
  'Figures of a log: its first record, the last number up to which all is known, how many records (above 10,000 an estimate), what retention has removed';
