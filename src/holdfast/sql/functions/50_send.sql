-- Sending: one message, a batch with one set of options, many with their own, and the inbox for COPY.
--
-- A send takes its transaction id BEFORE it draws message ids, and holds its lock on holdfast.message while it
-- draws them: claim's horizons rest on both. It takes no lock that another send waits for, except when it makes
-- a lane (the first use of a priority).

create or replace function holdfast._wake(queue holdfast.queue) returns void language plpgsql volatile
as $$
declare
  v_until bigint;
begin
  if queue.notify then
    v_until := coalesce(pg_sequence_last_value(queue.asleep), 0);
    -- NOTIFY takes a lock that all committing notifiers share: only while somebody sleeps.
    if v_until > 0 and v_until between holdfast._us(holdfast.now()) and holdfast._us(holdfast.now()) + 3600000000 then
      perform pg_notify('holdfast', queue.name);
    end if;
  end if;
end $$;
comment on function holdfast._wake is 'Notify the sleepers of a queue, if there are any';

create or replace function holdfast.listen(queue text, patience interval default '30 s') returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue holdfast.queue := holdfast._queue(listen.queue);
  v_until bigint := holdfast._us(holdfast.now() + least(greatest(listen.patience, interval '0'), interval '1 hour'));
begin
  if v_until > coalesce(pg_sequence_last_value(v_queue.asleep), 0) then
    perform setval(v_queue.asleep, v_until);
  end if;
  return 'holdfast';
end $$;
comment on function holdfast.listen is
  'Say that a consumer is about to sleep on this queue for so long. Returns the channel to LISTEN on; claim once more after that, then sleep';

create or replace function holdfast._hurry(wanted boolean) returns void language plpgsql volatile
as $$
begin
  -- Never for a transaction that may hold more than this call: its commit would be weakened as a whole.
  if wanted then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end $$;
comment on function holdfast._hurry is 'Let the commit of this transaction not wait for the disk, if wanted';

create or replace function holdfast.fast_mode() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform holdfast._hurry(true);
end $$;
comment on function holdfast.fast_mode is
  'Let the commit of this transaction, with all that is in it, not wait for the disk: a crash of the server may lose its last moments';

create or replace function holdfast.send(
  queue text, payload jsonb default null, body bytea default null, content_type text default null, headers jsonb default null,
  priority int default null, delay interval default null, deliver_at timestamptz default null, ttl interval default null,
  expires_at timestamptz default null, correlation_id uuid default null, tag text default null, max_deliveries int default null,
  ordering_key text default null, key text default null, idempotency_key text default null, alone boolean default false
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue record;
  v_now timestamptz := holdfast.now();
  v_due timestamptz;
  v_expires timestamptz;
  v_xid xid8;
  v_id bigint;
begin
  select q.id, q.kind, q.max_payload, q.ttl, q.max_depth, q.notify, q.asleep, q.ordering, q.fast, q.row_of, q.seal_key, l.ids into v_queue
  from holdfast.queue q left join holdfast.lane l on l.queue_id = q.id and l.priority = coalesce(send.priority, q.priority_default)
    and l.shard = pg_backend_pid() % q.shards
  where q.name = send.queue;
  if v_queue.ids is null or pg_column_size(payload) > v_queue.max_payload / 256 or num_nonnulls(body, content_type, headers, priority,
       delay, deliver_at, ttl, expires_at, tag, max_deliveries, ordering_key, key, idempotency_key, v_queue.ttl, v_queue.max_depth,
       v_queue.ordering, v_queue.fast, v_queue.seal_key, pg_column_compression(payload)) > 0 then
    -- Whatever is not a small payload and nothing else, to a lane that is there.
    if v_queue.id is null then
      perform holdfast._no_queue(send.queue);
    end if;
    perform holdfast._check_draft((payload, body, content_type, headers, priority, null, null, correlation_id, tag, max_deliveries,
                                   ordering_key, key, idempotency_key)::holdfast.draft, (holdfast._queue(send.queue)).max_payload);
    if v_queue.kind = 'log' and num_nonnulls(priority, delay, deliver_at, ttl, expires_at, max_deliveries, ordering_key, key, idempotency_key) > 0 then
      perform holdfast._no_append(send.queue, jsonb_build_object('priority', priority, 'delay', delay, 'deliver_at', deliver_at, 'ttl', ttl, 'expires_at', expires_at,
        'max_deliveries', max_deliveries, 'ordering_key', ordering_key, 'key', key, 'idempotency_key', idempotency_key));
    end if;
    v_due := holdfast._due_at(delay, deliver_at, v_now);
    v_expires := holdfast._expires_at(ttl, expires_at, v_now, v_queue.ttl);
    perform holdfast._hurry(v_queue.fast and alone);
    if num_nonnulls(ordering_key, key, idempotency_key, v_queue.ordering) > 0 then
      return (holdfast._store(holdfast._queue(send.queue),
        array[(payload, body, content_type, headers, priority, v_due, v_expires, correlation_id, tag, max_deliveries,
               ordering_key, key, idempotency_key)::holdfast.draft], v_now))[1];
    end if;
    if v_queue.seal_key is not null then
      perform holdfast._check_sealed(holdfast._queue(send.queue), body);
    end if;
    if v_queue.max_depth is not null then
      perform holdfast._check_depth(holdfast._queue(send.queue), 1);
    end if;
    v_queue.ids := coalesce(v_queue.ids, holdfast._ids(holdfast._queue(send.queue), priority));
  end if;

  v_xid := pg_current_xact_id();
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                correlation_id, max_deliveries, row_of)
  values (nextval(v_queue.ids), v_queue.id, v_now, v_due, v_expires, send.payload, send.body, send.content_type, send.headers,
          send.tag, send.correlation_id, send.max_deliveries, v_queue.row_of)
  returning id into v_id;
  if v_queue.notify and pg_sequence_last_value(v_queue.asleep) >= holdfast._us(v_now) then
    perform holdfast._wake(holdfast._queue(send.queue));
  end if;
  return v_id;
end $$;
comment on function holdfast.send is 'Send one message; returns its id. Part of the caller''s transaction: nothing is delivered before it commits';

create or replace function holdfast._ids(queue holdfast.queue, priority int) returns regclass
language plpgsql volatile
as $$
declare
  v_priority smallint := coalesce(_ids.priority, queue.priority_default);
  v_shard smallint := pg_backend_pid() % queue.shards;
  v_ids regclass;
begin
  select l.ids into v_ids from holdfast.lane l
  where l.queue_id = queue.id and l.priority = v_priority and l.shard = v_shard;
  if v_ids is null then
    v_ids := (holdfast._make_lane(queue.id, v_priority, v_shard)).ids;
  end if;
  return v_ids;
end $$;
comment on function holdfast._ids is 'The sequence that draws ids for a queue and priority (null: its default); makes the lane on first use';

create or replace function holdfast._store(queue holdfast.queue, drafts holdfast.draft[], at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_stored bigint[];
  v_xid xid8;
begin
  if queue.kind = 'log' then
    perform holdfast._no_append(queue.name, jsonb_build_object(
        'priority', d.priority, 'delay or deliver_at', d.due_at, 'ttl or expires_at', d.expires_at, 'max_deliveries', d.max_deliveries,
        'ordering_key', d.ordering_key, 'key', d.key, 'idempotency_key', d.idempotency_key),
      case when cardinality(drafts) > 1 then d.ordinality end)
    from unnest(drafts) with ordinality d
    where num_nonnulls(d.priority, d.due_at, d.expires_at, d.max_deliveries, d.ordering_key, d.key, d.idempotency_key) > 0;
  end if;
  if queue.seal_key is not null then
    perform holdfast._check_sealed(queue, d.body, case when cardinality(drafts) > 1 then d.ordinality end) from unnest(drafts) with ordinality d;
  end if;
  if queue.ordering is not null
     or exists (select from unnest(drafts) d where num_nonnulls(d.ordering_key, d.key, d.idempotency_key) > 0) then
    return holdfast._store_with_keys(queue, drafts, at);
  end if;
  if queue.max_depth is not null then
    perform holdfast._check_depth(queue, cardinality(drafts), case when cardinality(drafts) > 1 then 1 end);
  end if;
  select jsonb_object_agg(p.priority, holdfast._ids(queue, p.priority)) into v_lanes
  from (select distinct coalesce(d.priority, queue.priority_default)::smallint as priority from unnest(drafts) d) p;
  v_xid := pg_current_xact_id();
  with stored as (
    insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                  correlation_id, max_deliveries, row_of)
    select nextval((v_lanes ->> coalesce(d.priority, queue.priority_default)::text)::regclass), queue.id, at, d.due_at,
           d.expires_at, d.payload, d.body, d.content_type, d.headers, d.tag, d.correlation_id, d.max_deliveries, queue.row_of
    from unnest(drafts) d
    returning id
  )
  select array_agg(s.id) into v_stored from stored s;
  perform holdfast._wake(queue);
  return v_stored;
end $$;
comment on function holdfast._store is 'Store checked messages of one queue, each with its own options; returns the ids in order';

create or replace function holdfast._check_batch(messages bigint) returns void language plpgsql immutable
as $$
begin
  if messages > 100000 then
    perform holdfast._fail('QH208', 'too many messages in one call', format('Got %s.', messages),
      'One call takes at most 100,000 messages; send them in several calls, in one transaction if need be.');
  end if;
end $$;
comment on function holdfast._check_batch is 'Refuse an over-large batch';

create or replace function holdfast.send_batch(
  queue text, payloads jsonb[], content_type text default null, headers jsonb default null, priority int default null,
  delay interval default null, deliver_at timestamptz default null, ttl interval default null, expires_at timestamptz default null,
  correlation_id uuid default null, tag text default null, max_deliveries int default null,
  ordering_key text default null, key text default null, idempotency_key text default null, alone boolean default false
) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_batch.queue);
  v_ids regclass;
  v_stored bigint[];
  v_now timestamptz := holdfast.now();
  v_due timestamptz := holdfast._due_at(delay, deliver_at, v_now);
  v_expires timestamptz := holdfast._expires_at(ttl, expires_at, v_now, v_queue.ttl);
  v_xid xid8;
begin
  perform holdfast._check_batch(cardinality(payloads));
  perform holdfast._check_options(content_type, headers, correlation_id, tag, max_deliveries);
  perform holdfast._check_priority(priority);
  if v_queue.kind = 'log' and num_nonnulls(priority, delay, deliver_at, ttl, expires_at, max_deliveries, ordering_key, key, idempotency_key) > 0 then
    perform holdfast._no_append(send_batch.queue, jsonb_build_object('priority', priority, 'delay', delay, 'deliver_at', deliver_at, 'ttl', ttl, 'expires_at', expires_at,
      'max_deliveries', max_deliveries, 'ordering_key', ordering_key, 'key', key, 'idempotency_key', idempotency_key));
  end if;
  if num_nonnulls(ordering_key, key, idempotency_key) > 0 then
    perform holdfast._check_keys(ordering_key, key, idempotency_key);
  end if;
  if coalesce(cardinality(payloads), 0) = 0 then
    return '{}';
  end if;
  if v_queue.seal_key is not null then
    perform holdfast._check_sealed(v_queue, null, case when cardinality(payloads) > 1 then 1 end);
  end if;
  if v_queue.fast then
    perform holdfast._hurry(alone);
  end if;
  if num_nonnulls(ordering_key, key, idempotency_key, v_queue.ordering) > 0 then
    return holdfast._store(v_queue, (
      select array_agg((p.payload, null, send_batch.content_type, send_batch.headers, send_batch.priority, v_due, v_expires,
                        send_batch.correlation_id, send_batch.tag, send_batch.max_deliveries, send_batch.ordering_key,
                        send_batch.key, send_batch.idempotency_key)::holdfast.draft order by p.n)
      from unnest(payloads) with ordinality p(payload, n)
      where holdfast._fits(p.payload, v_queue.max_payload, case when cardinality(payloads) > 1 then p.n end)), v_now);
  end if;
  if v_queue.max_depth is not null then
    perform holdfast._check_depth(v_queue, cardinality(payloads), case when cardinality(payloads) > 1 then 1 end);
  end if;

  v_ids := holdfast._ids(v_queue, priority);
  v_xid := pg_current_xact_id();
  lock table holdfast.message in row exclusive mode;
  v_stored := array(select nextval(v_ids) from generate_series(1, cardinality(payloads)));
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, content_type, headers, tag,
                                correlation_id, max_deliveries, row_of)
  select v_stored[p.n], v_queue.id, v_now, v_due, v_expires, p.payload, send_batch.content_type, send_batch.headers,
         send_batch.tag, send_batch.correlation_id, send_batch.max_deliveries, v_queue.row_of
  from unnest(payloads) with ordinality p(payload, n)
  where pg_column_size(p.payload) <= v_queue.max_payload / 256
     or holdfast._fits(p.payload, v_queue.max_payload, case when cardinality(payloads) > 1 then p.n end);
  perform holdfast._wake(v_queue);
  return v_stored;
end $$;
comment on function holdfast.send_batch is 'Send many payloads with one set of options; returns the ids in order';

create or replace function holdfast._draft(message jsonb, queue holdfast.queue, at timestamptz, nth bigint) returns holdfast.draft
language plpgsql stable
as $$
declare
  v_draft holdfast.draft;
  v_unknown text;
  v_wrong text;
  v_detail text;
  v_hint text;
begin
  if jsonb_typeof(message) <> 'object' then
    perform holdfast._fail('QH203', 'each message must be a JSON object', format('Got %s.', left(message::text, 100)),
      'Pass [{"payload": …, "priority": …}, …].');
  end if;
  select k into v_unknown from jsonb_object_keys(message) k
  where k <> all ('{payload,body,content_type,headers,priority,delay,deliver_at,ttl,expires_at,correlation_id,tag,max_deliveries,ordering_key,key,idempotency_key}');
  if found then
    perform holdfast._fail('QH203', format('unknown field "%s" in a message', left(v_unknown, 100)), format('Got %s.', left((message -> v_unknown)::text, 100)),
      'Fields: payload, body (base64), content_type, headers, priority, delay, deliver_at, ttl, expires_at, correlation_id, tag, max_deliveries, ordering_key, key, idempotency_key.');
  end if;
  v_draft.payload := message -> 'payload';
  v_draft.body := decode(message ->> 'body', 'base64');
  v_draft.content_type := message ->> 'content_type';
  v_draft.headers := nullif(message -> 'headers', 'null');
  v_draft.priority := (message ->> 'priority')::int;
  v_draft.due_at := holdfast._due_at(holdfast._span(message -> 'delay'), (message ->> 'deliver_at')::timestamptz, at);
  v_draft.expires_at := holdfast._expires_at(holdfast._span(message -> 'ttl'), (message ->> 'expires_at')::timestamptz, at, queue.ttl);
  v_draft.correlation_id := (message ->> 'correlation_id')::uuid;
  v_draft.tag := message ->> 'tag';
  v_draft.max_deliveries := (message ->> 'max_deliveries')::int;
  v_draft.ordering_key := message ->> 'ordering_key';
  v_draft.key := message ->> 'key';
  v_draft.idempotency_key := message ->> 'idempotency_key';
  -- Whatever is not text has become some by now; most messages have none of these.
  if message ?| '{body,content_type,deliver_at,expires_at,tag,ordering_key,key,idempotency_key}' then
    v_wrong := case when jsonb_typeof(message -> 'tag') not in ('string', 'null') then 'tag'
                    when jsonb_typeof(message -> 'key') not in ('string', 'null') then 'key'
                    when jsonb_typeof(message -> 'ordering_key') not in ('string', 'null') then 'ordering_key'
                    when jsonb_typeof(message -> 'idempotency_key') not in ('string', 'null') then 'idempotency_key'
                    when jsonb_typeof(message -> 'content_type') not in ('string', 'null') then 'content_type'
                    when jsonb_typeof(message -> 'deliver_at') not in ('string', 'null') then 'deliver_at'
                    when jsonb_typeof(message -> 'expires_at') not in ('string', 'null') then 'expires_at'
                    when jsonb_typeof(message -> 'body') not in ('string', 'null') then 'body' end;
    if v_wrong is not null then
      raise data_exception using message = format('%s must be text, not %s', v_wrong, left((message -> v_wrong)::text, 100));
    end if;
  end if;
  perform holdfast._check_draft(v_draft, queue.max_payload);
  return v_draft;
exception
  when data_exception then
    perform holdfast._fail('QH203', 'a message has a field of the wrong type', sqlerrm,
      'delay, ttl: seconds or text such as "5 min"; deliver_at, expires_at: ISO times; priority, max_deliveries: whole numbers; correlation_id: a UUID; body: base64; all others but payload and headers: text.',
      nth);
  -- Stands for all codes of Holdfast: a check has refused it, and does not know which one it is.
  when sqlstate 'QH000' then
    if nth is null then
      raise;
    end if;
    get stacked diagnostics v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    perform holdfast._blame(nth, sqlstate, sqlerrm, v_detail, v_hint);
end $$;
comment on function holdfast._draft is 'Read and check one message of send_many. nth: which one; null: the only one';

create or replace function holdfast._span(value jsonb) returns interval language sql immutable
  return case jsonb_typeof(value) when 'number' then make_interval(secs => (value #>> '{}')::float8)
                                  when 'null' then null else (value #>> '{}')::interval end;
comment on function holdfast._span is 'A duration in a message: seconds or interval text';

create or replace function holdfast._check_draft(draft holdfast.draft, max_payload int) returns void
language plpgsql immutable
as $$
begin
  perform holdfast._check_size(draft.payload, draft.body, max_payload);
  perform holdfast._check_options(draft.content_type, draft.headers, draft.correlation_id, draft.tag, draft.max_deliveries);
  perform holdfast._check_priority(draft.priority);
  perform holdfast._check_keys(draft.ordering_key, draft.key, draft.idempotency_key);
end $$;
comment on function holdfast._check_draft is 'Refuse a bad message';

create or replace function holdfast.send_many(queue text, messages jsonb, alone boolean default false) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_many.queue);
  v_now timestamptz := holdfast.now();
  v_drafts holdfast.draft[];
  v_one boolean;
begin
  if jsonb_typeof(messages) is distinct from 'array' then
    perform holdfast._fail('QH203', 'messages must be a JSON array', format('Got %s.', coalesce(jsonb_typeof(messages), 'null')),
      'Pass [{"payload": …, "priority": …}, …].');
  end if;
  perform holdfast._check_batch(jsonb_array_length(messages));
  if jsonb_array_length(messages) = 0 then
    return '{}';
  end if;
  v_one := jsonb_array_length(messages) = 1;
  select array_agg(holdfast._draft(m.value, v_queue, v_now, case when not v_one then m.n end) order by m.n) into v_drafts
  from jsonb_array_elements(messages) with ordinality m(value, n);
  perform holdfast._hurry(v_queue.fast and alone);
  return holdfast._store(v_queue, v_drafts, v_now);
end $$;
comment on function holdfast.send_many is 'Send many messages, each with its own options; returns the ids in order';

create or replace function holdfast._receive() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_batch record;
  v_queue holdfast.queue;
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_batch((select count(*) from arrived a));
  for v_batch in
    select a.queue, min(a.n) as first, max(a.n) as last,
           array_agg((a.payload, a.body, a.content_type, a.headers, a.priority, holdfast._due_at(null, a.deliver_at, v_now),
                      a.expires_at, a.correlation_id, a.tag, a.max_deliveries, a.ordering_key, a.key, a.idempotency_key)::holdfast.draft order by a.n) as drafts
    from arrived a group by a.queue order by a.queue
  loop
    v_queue := holdfast._queue(v_batch.queue);
    perform holdfast._check_draft(d, v_queue.max_payload),
            holdfast._expires_at(null, d.expires_at, v_now, null) from unnest(v_batch.drafts) d;
    if v_queue.ttl is not null then
      select array_agg((d.payload, d.body, d.content_type, d.headers, d.priority, d.due_at, coalesce(d.expires_at, v_now + v_queue.ttl),
                        d.correlation_id, d.tag, d.max_deliveries, d.ordering_key, d.key, d.idempotency_key)::holdfast.draft) into v_batch.drafts
      from unnest(v_batch.drafts) d;
    end if;
    perform holdfast._store(v_queue, v_batch.drafts, v_now);
    delete from holdfast.inbox i where i.queue = v_batch.queue and i.n between v_batch.first and v_batch.last;
  end loop;
  return null;
end $$;
comment on function holdfast._receive is 'Turns what a statement put into the inbox into messages';

create or replace trigger receive after insert on holdfast.inbox
referencing new table as arrived for each statement execute function holdfast._receive();

create or replace function holdfast._check_depth(queue holdfast.queue, messages bigint, nth bigint default null) returns void
language plpgsql volatile
as $$
declare
  v_now bigint := holdfast._us(holdfast.now());
  v_counted bigint := coalesce(pg_sequence_last_value(queue.counted_at), 0);
  v_depth bigint := coalesce(pg_sequence_last_value(queue.depth), 0);
  v_stale boolean := v_counted not between v_now - 250000 and v_now;
begin
  if v_stale then
    v_depth := holdfast._depth_at_most(queue);
    perform setval(queue.counted_at, v_now);
  end if;
  if v_depth + messages > queue.max_depth then
    -- The estimate counts holes, and sends that were rolled back: count before refusing, but not for ever.
    if v_stale or queue.max_depth <= 10000 then
      v_depth := holdfast._count_upto(queue, queue.max_depth + 1);
      perform setval(queue.depth, v_depth);
    end if;
    if v_depth + messages > queue.max_depth then
      perform holdfast._fail('QH209', format('queue "%s" is full', queue.name),
        format('It holds %s of at most %s messages (max_depth); %s more do not fit.', v_depth, queue.max_depth, messages),
        'Send again later, or raise max_depth.', nth + greatest(queue.max_depth - v_depth, 0));
    end if;
  end if;
  perform setval(queue.depth, v_depth + messages);
end $$;
comment on function holdfast._check_depth is
  'Refuse messages that would go over max_depth. nth: which message of the call is the first of them, so that the first that does not fit is named; null: the only one';

create or replace function holdfast._count_upto(queue holdfast.queue, enough bigint) returns bigint language sql stable
  return (select count(*) from (
    select from holdfast.lane l cross join lateral (
      select from holdfast.message m where m.id >= l.id::bigint << 40 and m.id < (l.id + 1)::bigint << 40 order by m.id limit enough) m
    where l.queue_id = (queue).id limit enough) counted);
comment on function holdfast._count_upto is 'How many messages a queue holds; stops counting when it is enough';
