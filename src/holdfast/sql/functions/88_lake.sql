-- The lake: messages of the archive become files outside, batch by batch, and then leave the database.
--
--   register_lake   a lake of this database
--   archive_days    what the archive holds, by queue and day
--   open_batch      the next stretch of a queue's archive, within a day: what is in it goes to one file
--   open_batches    batches whose rows may be here and in a file: those that a run finishes first
--   read_batch      its messages, each with a checksum
--   close_batch     the file has these, by id and checksum: they are removed, or kept on purpose
--   archived        what has left the database so, by queue and lake: for those who would miss it
--
-- The file decides. What is removed is what was read back from it, and is here with the same content; what retention
-- removed meanwhile is not missed, and what turned up late stays for another batch. No message is in two open batches.
-- Lock order: lake_batch, the table by who opens and the row by who closes; then rows of the archive.

create or replace function holdfast._check_lake(lake uuid) returns void language plpgsql stable
as $$
begin
  if not exists (select from holdfast.lake l where l.id = _check_lake.lake) then
    perform holdfast._fail('QH810', 'this lake is not of this database', format('Got %s.', coalesce(quote_literal(_check_lake.lake), 'null')),
      'A lake holds messages of one database. Name another place, or the database that it belongs to.');
  end if;
end $$;
comment on function holdfast._check_lake is 'Refuse a lake that was not registered here';

create or replace function holdfast._batch(batch bigint) returns holdfast.lake_batch language plpgsql stable
as $$
declare
  v_batch holdfast.lake_batch;
begin
  select b.* into v_batch from holdfast.lake_batch b where b.id = _batch.batch;
  if not found then
    perform holdfast._fail('QH810', 'there is no such batch', format('Got %s.', coalesce(_batch.batch::text, 'null')),
      'Pass the id of a batch that open_batch or open_batches returned.');
  end if;
  return v_batch;
end $$;
comment on function holdfast._batch is 'A batch by its id, or an error';

create or replace function holdfast._shown_batch(batch holdfast.lake_batch) returns holdfast.batch language sql immutable
  return ((batch).id, (batch).queue, (batch).day, (batch).state, (batch).first_at, (batch).first_id, (batch).last_at, (batch).last_id,
          (batch).messages)::holdfast.batch;
comment on function holdfast._shown_batch is 'A batch as callers see it';

create or replace function holdfast._field("value" text) returns text language sql immutable
  return coalesce(length("value")::text || ':' || "value", '');
comment on function holdfast._field is 'A text with its length before it, so that fields joined to one text cannot be taken for others';

create or replace function holdfast._micros(at timestamptz) returns text language sql stable
  return coalesce(((extract(epoch from at) * 1000000)::bigint)::text, '');
comment on function holdfast._micros is 'A time as text: microseconds since 1970, exactly';

create or replace view holdfast.ended as
  -- The first 60 bits of SHA-256 over all columns as text: whoever reads a file of the lake can compute the same.
  select m.*, ('x0' || left(encode(sha256(convert_to(
    concat_ws(',', m.id::text, m.root_id::text, coalesce(m.priority::text, ''), holdfast._micros(m.enqueued_at), holdfast._micros(m.claimed_at),
              holdfast._micros(m.ended_at), holdfast._micros(m.expires_at), m.deliveries::text, m.failures::text,
              coalesce(m.max_deliveries::text, ''), coalesce(m.order_no::text, ''),
              holdfast._field(m.outcome), holdfast._field(m.consumer), holdfast._field(m.tag), holdfast._field(m.correlation_id),
              holdfast._field(m.key), holdfast._field(m.idempotency_key), holdfast._field(m.ordering_key), holdfast._field(m.content_type),
              holdfast._field(m.headers), holdfast._field(m.payload), coalesce(encode(sha256(m.body), 'hex'), ''),
              holdfast._field(m.last_error), holdfast._field(m.origin)), 'UTF8')), 'hex'), 15))::bit(64)::bigint as checksum
  from (
    select a.id, holdfast._root_id(a.id, a.origin) as root_id, a.outcome,
           (select l.priority::int from holdfast.lane l where l.id = a.id >> 40) as priority, a.enqueued_at, a.claimed_at, a.ended_at,
           a.expires_at, a.consumer, coalesce(a.deliveries, 0) as deliveries, coalesce(a.failures, 0) as failures, a.max_deliveries, a.tag,
           a.correlation_id::text, a.key, a.idempotency_key, a.ordering_key, a.order_no, a.content_type, a.headers::text, a.payload::text,
           a.body, a.last_error, a.origin::text, a.queue_id
    from holdfast.archive a) m;
comment on view holdfast.ended is 'Messages of the archive as a lake keeps them, each with a checksum over all of it';

create or replace function holdfast.register_lake(place text) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lake uuid;
begin
  if register_lake.place is null or length(register_lake.place) not between 1 and 2000 then
    perform holdfast._fail('QH810', 'a lake is somewhere',
      case when register_lake.place is null then 'Got null.' else format('Got %s characters.', length(register_lake.place)) end,
      'place takes 1 to 2,000 characters.');
  end if;
  insert into holdfast.lake (place, made_at) values (register_lake.place, holdfast.now()) returning id into v_lake;
  return v_lake;
end $$;
comment on function holdfast.register_lake is 'A new lake for messages of this database; returns what it is known by. The place is for people';

create or replace function holdfast.archive_days(queues text[] default null, until timestamptz default null)
returns table (queue text, day date, messages bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  perform holdfast._queue(n) from unnest(queues) n;
  return query
    select q.name, d.day, d.messages from holdfast.queue q cross join lateral (
      select holdfast._day(a.ended_at) as day, count(*) as messages from holdfast.archive a
      where a.queue_id = q.id and a.ended_at < coalesce(archive_days.until, 'infinity') group by 1) d
    where queues is null or q.name = any (queues) order by 1, 2;
end $$;
comment on function holdfast.archive_days is 'How many messages the archive holds that ended before a time, by queue and day (UTC)';

create or replace function holdfast._cut_batch(
  queue_id int, after timestamptz, after_id bigint, until timestamptz, "limit" int, bytes bigint,
  out first_at timestamptz, out first_id bigint, out last_at timestamptz, out last_id bigint, out messages bigint)
language plpgsql stable
as $$
begin
  select a.ended_at, a.id into first_at, first_id from holdfast.archive a
  where a.queue_id = _cut_batch.queue_id and a.ended_at >= after and a.ended_at < until and (a.ended_at, a.id) > (after, after_id)
  order by a.ended_at, a.id limit 1;
  if first_at is null then
    return;
  end if;
  until := least(until, holdfast._day_begins(holdfast._day(first_at) + 1));
  -- Bytes as the database stores them; a single larger message goes alone.
  select f.ended_at, f.id, f.n into last_at, last_id, messages from (
    select a.ended_at, a.id, row_number() over w as n, sum(a.bytes) over w - a.bytes as before from (
      select a.ended_at, a.id, coalesce(pg_column_size(a.payload), 0)::bigint + coalesce(pg_column_size(a.body), 0) as bytes
      from holdfast.archive a
      where a.queue_id = _cut_batch.queue_id and a.ended_at >= first_at and a.ended_at < until
        and (a.ended_at, a.id) >= (first_at, first_id)
      order by a.ended_at, a.id limit _cut_batch."limit") a
    window w as (order by a.ended_at, a.id)) f
  where f.before < _cut_batch.bytes order by f.n desc limit 1;
end $$;
comment on function holdfast._cut_batch is 'The first messages of a queue''s archive behind a place: so many, or so many bytes, all of one day';

create or replace function holdfast._lake_place(queue_id int, lake uuid, "keep" boolean, inout after timestamptz, inout after_id bigint)
language plpgsql stable
as $$
declare
  v_last record;
begin
  after := coalesce(after, '-infinity');
  after_id := coalesce(after_id, 0);
  select b.last_at, b.last_id into v_last from holdfast.lake_batch b
  where b.queue_id = _lake_place.queue_id and (b.state = 'open' or (b.state = 'kept' and "keep" and b.lake = _lake_place.lake))
  order by b.last_at desc, b.last_id desc limit 1;
  if (v_last.last_at, v_last.last_id) > (after, after_id) then
    after := v_last.last_at;
    after_id := v_last.last_id;
  end if;
end $$;
comment on function holdfast._lake_place is 'Where the next batch of a queue begins: behind all that are open, and if rows are kept, behind what the lake has';

create or replace function holdfast.open_batch(
  lake uuid, queue text, until timestamptz default null, "limit" int default 100000, after timestamptz default null, after_id bigint default null,
  "keep" boolean default false)
returns setof holdfast.batch
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(open_batch.queue);
  v_until timestamptz := coalesce(open_batch.until, 'infinity');
  v_other record;
  v_place record;
  v_cut record;
  v_batch holdfast.lake_batch;
begin
  perform holdfast._check_isolation('open_batch'), holdfast._check_lake(open_batch.lake);
  if open_batch."limit" is null or open_batch."limit" not between 1 and 1000000 then
    perform holdfast._fail('QH402', 'limit is out of range', format('Got %s.', coalesce(open_batch."limit"::text, 'null')),
      'limit takes 1 to 1,000,000.');
  end if;
  if "keep" then
    -- Rows stay, so the place is all that tells what is left: none may turn up behind it.
    v_until := least(v_until, holdfast._archive_settled('500 ms'));
  end if;
  lock table holdfast.lake_batch in share row exclusive mode;
  select b.id, l.place into v_other from holdfast.lake_batch b join holdfast.lake l on l.id = b.lake
  where b.queue_id = v_queue.id and b.state = 'open' and b.lake <> open_batch.lake order by b.last_at limit 1;
  if found then
    perform holdfast._fail('QH811', 'messages of this queue are on their way to another lake',
      format('Batch %s of %s is not closed: it goes to %s.', v_other.id, open_batch.queue, v_other.place), 'Finish it there first.');
  end if;
  delete from holdfast.lake_batch b where b.id in (
    select b.id from holdfast.lake_batch b where b.state = 'done' and b.closed_at < holdfast.now() - interval '90 days' order by b.closed_at limit 1000);
  v_place := holdfast._lake_place(v_queue.id, open_batch.lake, "keep", open_batch.after, open_batch.after_id);
  v_cut := holdfast._cut_batch(v_queue.id, v_place.after, v_place.after_id, v_until, open_batch."limit", 268435456);
  if v_cut.first_at is null then
    return;
  end if;
  insert into holdfast.lake_batch (lake, queue_id, queue, day, first_at, first_id, last_at, last_id, messages, opened_at)
  values (open_batch.lake, v_queue.id, v_queue.name, holdfast._day(v_cut.first_at), v_cut.first_at, v_cut.first_id, v_cut.last_at, v_cut.last_id,
          v_cut.messages, holdfast.now())
  returning * into v_batch;
  return next holdfast._shown_batch(v_batch);
end $$;
comment on function holdfast.open_batch is
  'The next messages of a queue''s archive that are to be a file of a lake; nothing if there are none. keep: they will stay, so go on behind those that the lake has';

create or replace function holdfast.open_batches(lake uuid) returns setof holdfast.batch
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  perform holdfast._check_lake(open_batches.lake);
  return query
    select (holdfast._shown_batch(b)).* from holdfast.lake_batch b
    where b.lake = open_batches.lake and b.state <> 'done' order by b.id;
end $$;
comment on function holdfast.open_batches is 'The batches of a lake whose messages may be in the database too: open ones, and those that were kept';

create or replace function holdfast.read_batch(
  batch bigint, "limit" int default 10000, after timestamptz default null, after_id bigint default null)
returns setof holdfast.ended
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_batch holdfast.lake_batch := holdfast._batch(read_batch.batch);
  v_page record;
begin
  perform holdfast._check_limit("limit");
  v_page := holdfast._cut_batch(v_batch.queue_id, coalesce(read_batch.after, v_batch.first_at), coalesce(read_batch.after_id, v_batch.first_id - 1),
                                v_batch.last_at + interval '1 microsecond', read_batch."limit", holdfast._answer_bytes());
  return query
    select m.* from holdfast.ended m
    where m.queue_id = v_batch.queue_id and m.ended_at >= v_page.first_at and m.ended_at <= v_page.last_at
      and (m.ended_at, m.id) >= (v_page.first_at, v_page.first_id) and (m.ended_at, m.id) <= (v_page.last_at, v_page.last_id)
      and (m.ended_at, m.id) <= (v_batch.last_at, v_batch.last_id)
    order by m.ended_at, m.id;
end $$;
comment on function holdfast.read_batch is
  'The messages of a batch, the first to end first, at most limit rows and about 16 MiB. To go on, pass the last ended_at and id as after and after_id';

create or replace function holdfast._refuse_different(batch holdfast.lake_batch, ids bigint[], checksums bigint[]) returns void
language plpgsql stable
as $$
declare
  v_different bigint[];
begin
  v_different := array(
    select f.id from unnest(_refuse_different.ids, _refuse_different.checksums) f(id, checksum) cross join lateral (
      select m.checksum from holdfast.ended m
      where m.id = f.id and m.ended_at >= (batch).first_at and m.ended_at <= (batch).last_at and m.queue_id = (batch).queue_id offset 0) h
    where h.checksum is distinct from f.checksum limit 3);
  if v_different <> '{}' then
    perform holdfast._fail('QH811', 'a file differs from the database',
      format('Batch %s of %s: the checksums of messages %s are others.', (batch).id, (batch).queue, array_to_string(v_different, ', ')),
      'Nothing was removed. Was the file changed, or the database restored from a backup that is older than the file?');
  end if;
end $$;
comment on function holdfast._refuse_different is 'Refuse a file if a message in it has another content than in the archive';

create or replace function holdfast.close_batch(batch bigint, ids bigint[], checksums bigint[], "keep" boolean default false) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_batch holdfast.lake_batch := holdfast._batch(close_batch.batch);
  v_removed bigint := 0;
begin
  perform holdfast._check_isolation('close_batch');
  if cardinality(ids) is distinct from cardinality(checksums) or array_position(ids, null) is not null then
    perform holdfast._fail('QH810', 'a file has an id and a checksum for each message',
      format('Got %s ids and %s checksums.', coalesce(cardinality(ids)::text, 'no'), coalesce(cardinality(checksums)::text, 'no')),
      'Pass what was read back from the file.');
  end if;
  perform from holdfast.lake_batch b where b.id = v_batch.id for update;
  perform holdfast._refuse_different(v_batch, ids, checksums);
  if not "keep" then
    delete from holdfast.archive a using unnest(close_batch.ids) f(id)
    where a.id = f.id and a.ended_at >= v_batch.first_at and a.ended_at <= v_batch.last_at and a.queue_id = v_batch.queue_id;
    get diagnostics v_removed = row_count;
  end if;
  update holdfast.lake_batch b
  set state = case when close_batch."keep" then 'kept' else 'done' end, messages = cardinality(close_batch.ids),
      checksum = (select coalesce(sum(c), 0) from unnest(close_batch.checksums) c), closed_at = holdfast.now()
  where b.id = v_batch.id and b.state <> 'done';
  return v_removed;
end $$;
comment on function holdfast.close_batch is
  'A file holds these messages of a batch, by id and checksum: remove them, or keep them on purpose; returns how many were removed. Refused if one has another content here';

create or replace function holdfast.archived(queues text[] default null, since timestamptz default null, until timestamptz default null)
returns table (queue text, lake uuid, place text, messages bigint, first_at timestamptz, last_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_since timestamptz := coalesce(archived.since, '-infinity');
  v_until timestamptz := coalesce(archived.until, 'infinity');
begin
  if v_since > v_until then
    perform holdfast._fail('QH421', 'since is later than until', format('Got %s and %s.', v_since, v_until),
      'since and until take times; without since it is from the beginning, without until all up to now.');
  end if;
  -- A batch is closed after its messages ended: what was closed before cannot be in the range.
  return query
    select b.queue, b.lake, l.place, sum(b.messages)::bigint, min(b.first_at), max(b.last_at)
    from holdfast.lake_batch b join holdfast.lake l on l.id = b.lake
    where b.state = 'done' and b.closed_at >= v_since and b.last_at >= v_since and b.first_at < v_until and b.messages > 0
      and (archived.queues is null or b.queue = any (archived.queues))
    group by b.queue, b.lake, l.place order by b.queue, l.place, b.lake;
end $$;
comment on function holdfast.archived is
  'How many messages have left the database for which lake, in the last 90 days: of the batches in which some ended from since to before until, by queue and lake';
