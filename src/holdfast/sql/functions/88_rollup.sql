-- Rollups: figures of queues by bucket of time, as the pipeline insights finds them, for charts over weeks and years.
--
--   put_rollups   writes those of a queue and a stretch of time, in place of what was there
--   rollups       shows them
--
-- A bucket is a minute, five minutes, an hour or a day, counted from 1970 in UTC. Of each size a queue keeps the last
-- 20,000: two weeks of minutes, two years of hours. Whoever writes removes what is older, so that nothing else has to.

create or replace function holdfast._check_bucket(bucket interval) returns void language plpgsql immutable
as $$
begin
  if bucket is null or bucket not in (interval '1 minute', interval '5 minutes', interval '1 hour', interval '1 day') then
    perform holdfast._fail('QH803', 'there is no bucket of this size', format('Got %s.', coalesce(bucket::text, 'null')),
      'bucket takes 1 minute, 5 minutes, 1 hour or 1 day.');
  end if;
end $$;
comment on function holdfast._check_bucket is 'Refuse a size that buckets do not have';

create or replace function holdfast._check_stretch(bucket interval, since timestamptz, until timestamptz) returns void language plpgsql stable
as $$
declare
  v_size bigint := extract(epoch from bucket) * 1000000;
begin
  if since is null or until is null or since >= until or not isfinite(since) or not isfinite(until)
     or holdfast._us(since) % v_size <> 0 or holdfast._us(until) % v_size <> 0 then
    perform holdfast._fail('QH803', 'this is no stretch of whole buckets', format('Got %s to %s.', coalesce(since::text, 'null'), coalesce(until::text, 'null')),
      'since and until are times at which buckets begin, counted from 1970 in UTC; since is the earlier one.');
  end if;
end $$;
comment on function holdfast._check_stretch is 'Refuse a stretch of time that does not consist of whole buckets';

create or replace function holdfast._check_rollups(rollups jsonb) returns void language plpgsql immutable
as $$
begin
  if jsonb_typeof(rollups) is distinct from 'array' or jsonb_array_length(rollups) > 1000 or octet_length(rollups::text) > 16777216 then
    perform holdfast._fail('QH803', 'these are no rollups',
      case when jsonb_typeof(rollups) = 'array' then format('Got %s of them, with %s bytes.', jsonb_array_length(rollups), octet_length(rollups::text))
           else format('Got %s.', coalesce(jsonb_typeof(rollups), 'null')) end,
      'rollups takes a JSON array of at most 1,000 objects and 16 MiB.');
  end if;
end $$;
comment on function holdfast._check_rollups is 'Refuse what is no array of rollups, or too much at once';

create or replace function holdfast._read_rollups(queue_id int, bucket interval, rollups jsonb, at timestamptz) returns setof holdfast.rollup
language plpgsql stable
as $$
begin
  return query
    select _read_rollups.queue_id, _read_rollups.bucket, r.start, coalesce(r.sent, 0), coalesce(r.done, 0), coalesce(r.failed, 0), coalesce(r.dead, 0),
           coalesce(r.expired, 0), coalesce(r.discarded, 0), coalesce(r.retries, 0), coalesce(r.waiting_count, 0), r.waiting_p50, r.waiting_p95,
           r.waiting_p99, coalesce(r.processing_count, 0), r.processing_p50, r.processing_p95, r.processing_p99, coalesce(r.estimated, '{}'),
           coalesce(r.details, '{}'), at
    from jsonb_to_recordset(rollups) r(
      start timestamptz, sent bigint, done bigint, failed bigint, dead bigint, expired bigint, discarded bigint, retries bigint,
      waiting_count bigint, waiting_p50 float8, waiting_p95 float8, waiting_p99 float8,
      processing_count bigint, processing_p50 float8, processing_p95 float8, processing_p99 float8, estimated text[], details jsonb)
    order by r.start;
exception
  when data_exception then
    perform holdfast._fail('QH803', 'a rollup cannot be read', sqlerrm, 'A rollup has the columns of rollups(), as JSON.');
end $$;
comment on function holdfast._read_rollups is 'Rollups as rows of the table; what is missing is nothing';

create or replace function holdfast._trim_rollups(queue_id int, bucket interval, at timestamptz) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.rollup r where r.queue_id = _trim_rollups.queue_id and r.bucket = _trim_rollups.bucket and r.start = any (array(
    select o.start from holdfast.rollup o
    where o.queue_id = _trim_rollups.queue_id and o.bucket = _trim_rollups.bucket and o.start < at - 20000 * _trim_rollups.bucket
    order by o.start limit 2000));
end $$;
comment on function holdfast._trim_rollups is 'Remove rollups that are more than 20,000 buckets old, at most 2,000';

create or replace function holdfast.put_rollups(queue text, bucket interval, since timestamptz, until timestamptz, rollups jsonb) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(put_rollups.queue);
  v_rows holdfast.rollup[];
begin
  perform holdfast._check_bucket(put_rollups.bucket);
  perform holdfast._check_stretch(put_rollups.bucket, put_rollups.since, put_rollups.until);
  perform holdfast._check_rollups(put_rollups.rollups);
  v_rows := array(select r from holdfast._read_rollups(v_queue.id, put_rollups.bucket, put_rollups.rollups, holdfast.now()) r);
  if exists (select from unnest(v_rows) r where r.start is null or r.start < put_rollups.since or r.start >= put_rollups.until
             or holdfast._us(r.start) % (extract(epoch from put_rollups.bucket) * 1000000)::bigint <> 0)
     or (select count(distinct r.start) from unnest(v_rows) r) < cardinality(v_rows) then
    perform holdfast._fail('QH803', 'a rollup is not in its place', 'There is a start that is not in the stretch, not where a bucket begins, or there twice.',
      'start is when a bucket begins, from since to before until, each once.');
  end if;
  delete from holdfast.rollup o
  where o.queue_id = v_queue.id and o.bucket = put_rollups.bucket and o.start >= put_rollups.since and o.start < put_rollups.until;
  -- Another run may have put the same ones in meanwhile.
  insert into holdfast.rollup as o select r.* from unnest(v_rows) r
  on conflict on constraint rollup_pkey do update set
    sent = excluded.sent, done = excluded.done, failed = excluded.failed, dead = excluded.dead, expired = excluded.expired,
    discarded = excluded.discarded, retries = excluded.retries, waiting_count = excluded.waiting_count, waiting_p50 = excluded.waiting_p50,
    waiting_p95 = excluded.waiting_p95, waiting_p99 = excluded.waiting_p99, processing_count = excluded.processing_count,
    processing_p50 = excluded.processing_p50, processing_p95 = excluded.processing_p95, processing_p99 = excluded.processing_p99,
    estimated = excluded.estimated, details = excluded.details, made_at = excluded.made_at;
  perform holdfast._trim_rollups(v_queue.id, put_rollups.bucket, holdfast.now());
  return cardinality(v_rows);
end $$;
comment on function holdfast.put_rollups is
  'Write the rollups of a queue and a stretch of time, in place of those that are there; returns how many. Removes what is over 20,000 buckets old';

create or replace function holdfast.rollups(
  queue text, since timestamptz default null, until timestamptz default null, bucket interval default '1 hour', "limit" int default 1000)
returns table (start timestamptz, sent bigint, done bigint, failed bigint, dead bigint, expired bigint, discarded bigint, retries bigint,
               waiting_count bigint, waiting_p50 float8, waiting_p95 float8, waiting_p99 float8,
               processing_count bigint, processing_p50 float8, processing_p95 float8, processing_p99 float8,
               estimated text[], details jsonb, made_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(rollups.queue);
  v_since timestamptz := coalesce(rollups.since, '-infinity');
  v_until timestamptz := coalesce(rollups.until, 'infinity');
begin
  perform holdfast._check_bucket(rollups.bucket);
  perform holdfast._check_limit(rollups."limit");
  if v_since > v_until then
    perform holdfast._fail('QH421', 'since is later than until', format('Got %s and %s.', v_since, v_until),
      'since and until take times; without since it is from the beginning, without until all up to now.');
  end if;
  return query
    select r.start, r.sent, r.done, r.failed, r.dead, r.expired, r.discarded, r.retries, r.waiting_count, r.waiting_p50, r.waiting_p95, r.waiting_p99,
           r.processing_count, r.processing_p50, r.processing_p95, r.processing_p99, r.estimated, r.details, r.made_at
    from holdfast.rollup r
    where r.queue_id = v_queue.id and r.bucket = rollups.bucket and r.start >= v_since and r.start < v_until
    order by r.start limit rollups."limit";
end $$;
comment on function holdfast.rollups is
  'The rollups of a queue whose buckets begin from since to before until, the oldest first; only of buckets of one size';
