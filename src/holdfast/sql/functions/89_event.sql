-- Publish and subscribe: one event, a message for each endpoint that asked for it.
--
--   create_event_type, drop_event_type, event_types
--   subscribe, unsubscribe, subscriptions
--   publish, publish_batch
--
-- Tables: event_type, subscription. A publication is part of the caller's transaction, and so are all the messages it becomes: sends to
-- the queues of the enabled endpoints, in the order of their queues. An endpoint gets an event once, whatever number of its
-- subscriptions fits. What it costs grows with the subscriptions of that type, and with nothing else.

create or replace function holdfast._event_type(name text) returns holdfast.event_type language plpgsql stable
as $$
declare
  v_type holdfast.event_type;
begin
  select t.* into v_type from holdfast.event_type t where t.name = _event_type.name;
  if not found then
    perform holdfast._fail('QH876', format('there is no event type %s', coalesce('"' || left(_event_type.name, 200) || '"', 'null')),
      'Event types are made explicitly.', 'Create it with holdfast.create_event_type, or check the spelling.');
  end if;
  return v_type;
end $$;
comment on function holdfast._event_type is 'An event type by its name, or an error';

create or replace function holdfast._check_event_type(name text, description text, schema jsonb) returns void language plpgsql stable
as $$
begin
  if (_check_event_type.name ~ '^[A-Za-z0-9._:-]{1,200}$') is not true then
    perform holdfast._fail('QH878', 'invalid name of an event type', format('Got %s.', coalesce(quote_literal(left(_check_event_type.name, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  elsif length(description) > 2000 then
    perform holdfast._fail('QH878', 'the description is too long', format('It has %s characters.', length(description)), 'description takes up to 2,000 characters.');
  elsif schema is not null then
    perform holdfast._check_schema(schema, 'json', null);
  end if;
end $$;
comment on function holdfast._check_event_type is 'Refuse a bad event type';

create or replace function holdfast.create_event_type(name text, description text default null, schema jsonb default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_there holdfast.event_type;
begin
  perform holdfast._check_event_type(create_event_type.name, create_event_type.description, create_event_type.schema);
  insert into holdfast.event_type as t (name, description, schema, created_at)
  values (create_event_type.name, create_event_type.description, create_event_type.schema, holdfast.now()) on conflict on constraint event_type_name_key do nothing;
  if found then
    return true;
  end if;
  v_there := holdfast._event_type(create_event_type.name);
  if (v_there.description, v_there.schema) is distinct from (create_event_type.description, create_event_type.schema) then
    perform holdfast._fail('QH877', format('the event type "%s" exists with another description or schema', v_there.name), 'Nothing was changed.',
      'Drop it and make it anew; subscriptions to it go with it.');
  end if;
  return false;
end $$;
comment on function holdfast.create_event_type is 'Make an event type. schema: JSON Schema of its payloads, for who writes and reads them; nothing is checked. true: made; false: it was there, the same';

create or replace function holdfast.drop_event_type(name text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  delete from holdfast.event_type t where t.name = drop_event_type.name;
  return found;
end $$;
comment on function holdfast.drop_event_type is 'Remove an event type, and all subscriptions to it; what was published is sent. false: there was none';

create or replace function holdfast.event_types()
returns table (name text, description text, schema jsonb, subscriptions bigint, created_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query
    select t.name, t.description, t.schema, (select count(*) from holdfast.subscription s where s.event_type_id = t.id), t.created_at
    from holdfast.event_type t order by t.name collate "C";
end $$;
comment on function holdfast.event_types is 'All event types';

create or replace function holdfast.subscribe(event_type text, endpoint text, filter jsonb default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_type holdfast.event_type := holdfast._event_type(subscribe.event_type);
  v_endpoint holdfast.endpoint;
  v_filter jsonb := nullif(nullif(subscribe.filter, 'null'), '{}');
  v_id bigint;
begin
  if jsonb_typeof(v_filter) <> 'object' or octet_length(v_filter::text) > 16384 then
    perform holdfast._fail('QH878', 'bad value for filter', format('Got %s.', left(v_filter::text, 100)),
      'filter takes a JSON object of up to 16,384 bytes: events whose payload contains it are sent.');
  end if;
  -- The lock makes the same subscription, at the same moment, one.
  v_endpoint := holdfast._locked_endpoint(subscribe.endpoint);
  select s.id into v_id from holdfast.subscription s
  where s.event_type_id = v_type.id and s.endpoint_id = v_endpoint.id and s.filter is not distinct from v_filter;
  if v_id is null then
    insert into holdfast.subscription (event_type_id, endpoint_id, filter, created_at)
    values (v_type.id, v_endpoint.id, v_filter, holdfast.now()) returning id into v_id;
  end if;
  return v_id;
end $$;
comment on function holdfast.subscribe is
  'Let an endpoint have the events of a type, or those whose payload contains filter; returns the number of the subscription, the old one if it is there';

create or replace function holdfast.unsubscribe(id bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  delete from holdfast.subscription s where s.id = unsubscribe.id;
  return found;
end $$;
comment on function holdfast.unsubscribe is 'End a subscription; false: there is none of this number';

create or replace function holdfast.subscriptions(event_type text default null, endpoint text default null) returns setof holdfast.subscription_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_type int := case when subscriptions.event_type is not null then (holdfast._event_type(subscriptions.event_type)).id end;
  v_endpoint int := case when subscriptions.endpoint is not null then (holdfast._endpoint(subscriptions.endpoint)).id end;
begin
  return query
    select s.id, t.name, e.name, s.filter, s.created_at
    from holdfast.subscription s join holdfast.event_type t on t.id = s.event_type_id join holdfast.endpoint e on e.id = s.endpoint_id
    where (v_type is null or s.event_type_id = v_type) and (v_endpoint is null or s.endpoint_id = v_endpoint) order by s.id;
end $$;
comment on function holdfast.subscriptions is 'The subscriptions: all, to a type, or of an endpoint';

create or replace function holdfast._receivers(event_type int, payload jsonb) returns table (endpoint text, queue_id int, queue text, ordering text)
language plpgsql stable
as $$
begin
  return query
    select e.name, q.id, q.name, q.ordering
    from (select distinct s.endpoint_id from holdfast.subscription s
          where s.event_type_id = _receivers.event_type and (s.filter is null or _receivers.payload @> s.filter)) f
      join holdfast.endpoint e on e.id = f.endpoint_id and e.enabled join holdfast.queue q on q.id = e.queue_id
    order by q.id;
end $$;
comment on function holdfast._receivers is 'The enabled endpoints that get an event of a type, and their queues';

create or replace function holdfast._as_sent(event jsonb, ordering text) returns jsonb language sql immutable
  return event - 'event_type'::text
         - case when ordering is distinct from 'key' then '{ordering_key}'::text[] else '{}' end
         - case when ordering = 'strict' then '{priority}'::text[] else '{}' end
         || jsonb_build_object('headers', coalesce(nullif(event -> 'headers', 'null'), '{}') || jsonb_build_object('event-type', event ->> 'event_type'));
comment on function holdfast._as_sent is 'An event as a message of a queue: with its type in a header, and without a line or a priority where the queue has none';

create or replace function holdfast._check_event(event jsonb, nth bigint) returns void language plpgsql stable
as $$
begin
  if jsonb_typeof(event) <> 'object' or jsonb_typeof(event -> 'event_type') is distinct from 'string' or event ? 'body' or not event ? 'payload' then
    perform holdfast._fail('QH203', 'this is no event', format('Got %s.', left(event::text, 100)),
      'Pass {"event_type": …, "payload": …}, and the options of a message.', nth);
  elsif jsonb_typeof(event -> 'headers') not in ('object', 'null') then
    perform holdfast._fail('QH203', 'headers must be a JSON object', format('Got a JSON %s.', jsonb_typeof(event -> 'headers')), 'Pass headers as {"name": "value"}.', nth);
  end if;
end $$;
comment on function holdfast._check_event is 'Refuse what is no event';

create or replace function holdfast._send_events(queue text, messages jsonb, places int[], one boolean) returns bigint[] language plpgsql volatile
as $$
declare
  v_place text;
  v_detail text;
  v_hint text;
begin
  return holdfast.send_many(queue, messages);
exception
  -- Which event is to blame, where several were published and only some of them were for this queue.
  when sqlstate 'QH000' then
    get stacked diagnostics v_place = column_name, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    if one then
      perform holdfast._fail(sqlstate, regexp_replace(sqlerrm, ' \[QH\d+\]$', ''), v_detail, v_hint);
    end if;
    perform holdfast._blame(places[coalesce(substring(v_place from '\d+')::int, 0) + 1] + 1, sqlstate, sqlerrm,
      regexp_replace(v_detail, '^messages\[\d+\]: ', ''), v_hint);
end $$;
comment on function holdfast._send_events is 'Send events to one queue; places: their numbers in the call, for errors';

create or replace function holdfast._publish(events jsonb) returns setof holdfast.published language plpgsql volatile
as $$
declare
  v_queue record;
  v_ids bigint[];
  v_one boolean := jsonb_array_length(events) = 1;
begin
  perform holdfast._check_event(n.value, case when not v_one then n.n end) from jsonb_array_elements(events) with ordinality n(value, n);
  for v_queue in
    select r.endpoint, r.queue, array_agg(e.n::int - 1 order by e.n) as places, jsonb_agg(holdfast._as_sent(e.value, r.ordering) order by e.n) as messages
    from jsonb_array_elements(events) with ordinality e(value, n)
      join (select t.name, (holdfast._event_type(t.name)).id from (select distinct d ->> 'event_type' as name from jsonb_array_elements(events) d) t) t
        on t.name = e.value ->> 'event_type'
      cross join lateral holdfast._receivers(t.id, e.value -> 'payload') r
    group by r.queue_id, r.queue, r.endpoint order by r.queue_id
  loop
    v_ids := holdfast._send_events(v_queue.queue, v_queue.messages, v_queue.places, v_one);
    return query select p.nth, v_queue.endpoint, v_queue.queue, p.id from unnest(v_queue.places, v_ids) p(nth, id);
  end loop;
end $$;
comment on function holdfast._publish is 'Send events to the queues of all who asked for them';

create or replace function holdfast.publish(
  event_type text, payload jsonb, headers jsonb default null, priority int default null, delay interval default null,
  deliver_at timestamptz default null, ttl interval default null, expires_at timestamptz default null, correlation_id uuid default null,
  tag text default null, max_deliveries int default null, ordering_key text default null, key text default null, idempotency_key text default null)
returns setof holdfast.published
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_type holdfast.event_type := holdfast._event_type(publish.event_type);
begin
  return query select p.* from holdfast._publish(jsonb_build_array(
    jsonb_build_object('event_type', v_type.name, 'payload', coalesce(publish.payload, 'null'))
    || jsonb_strip_nulls(jsonb_build_object('priority', publish.priority, 'delay', publish.delay::text, 'deliver_at', publish.deliver_at, 'ttl', publish.ttl::text,
         'expires_at', publish.expires_at, 'correlation_id', publish.correlation_id, 'tag', publish.tag, 'max_deliveries', publish.max_deliveries,
         'ordering_key', publish.ordering_key, 'key', publish.key, 'idempotency_key', publish.idempotency_key))
    || case when publish.headers is null then '{}' else jsonb_build_object('headers', publish.headers) end)) p;
end $$;
comment on function holdfast.publish is
  'Send an event to the queue of each enabled endpoint that subscribes to its type, with the options of send; returns the messages. The header event-type says what it is';

create or replace function holdfast.publish_batch(events jsonb) returns setof holdfast.published
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  if jsonb_typeof(events) is distinct from 'array' then
    perform holdfast._fail('QH203', 'events must be a JSON array', format('Got %s.', coalesce(jsonb_typeof(events), 'null')),
      'Pass [{"event_type": …, "payload": …}, …].');
  end if;
  perform holdfast._check_batch(jsonb_array_length(events));
  return query select p.* from holdfast._publish(events) p;
end $$;
comment on function holdfast.publish_batch is 'Publish many events, each with its type and its own options; returns the messages, and of which event each is';
