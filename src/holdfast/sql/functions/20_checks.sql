-- Checks: what a caller may pass, and how it is told.
--
-- Every error has a stable code (SQLSTATE QHnnn), a message that says what is wrong, a detail that says what
-- was found, and a hint that says what to do. The code stands at the end of the message too: psql does not show a
-- SQLSTATE unless told to. A check raises or returns nothing; it changes nothing.
--
-- Of several messages in one call the error also names the one that is refused, as messages[17], counted from 0: at the head
-- of the detail, and for programs as the column of the error. nth is that number, counted from 1; null: there is but one.

create or replace function holdfast._fail(code text, message text, detail text default '', hint text default '', nth bigint default null)
returns void language plpgsql volatile
as $$
begin
  if nth is not null then
    perform holdfast._blame(nth, _fail.code, format('%s [%s]', _fail.message, _fail.code), _fail.detail, _fail.hint);
  end if;
  raise exception using errcode = _fail.code, message = format('%s [%s]', _fail.message, _fail.code), detail = _fail.detail, hint = _fail.hint;
end $$;
comment on function holdfast._fail is 'Raise a Holdfast error; the message ends with its code. nth: of the message that is to blame, if there are several';

create or replace function holdfast._blame(nth bigint, code text, message text, detail text, hint text) returns void language plpgsql volatile
as $$
declare
  v_place text := format('messages[%s]', nth - 1);
begin
  raise exception using errcode = _blame.code, message = _blame.message, detail = format('%s: %s', v_place, _blame.detail),
    hint = _blame.hint, column = v_place;
end $$;
comment on function holdfast._blame is 'Raise an error that names the message which is to blame';

create or replace function holdfast._no_queue(queue text) returns void language plpgsql volatile
as $$
begin
  if _no_queue.queue is null then
    perform holdfast._fail('QH101', 'the name of the queue is null', 'Every call but queues() and maintain() is about a queue.',
      'Pass the name of a queue first; for a send, payload (JSON) or body (bytes) after it: holdfast.send(''orders'', ''{"n": 1}'').');
  elsif exists (select from holdfast.queue q where q.name = _no_queue.queue and q.kind = 'log') then
    perform holdfast._not_a_queue(_no_queue.queue);
  end if;
  perform holdfast._fail('QH101', format('queue "%s" does not exist', left(_no_queue.queue, 200)),
    'Queues are made explicitly.', 'Create it with holdfast.create_queue, or check the spelling.');
end $$;
comment on function holdfast._no_queue is 'Raise: no such queue';

create or replace function holdfast._queue(queue text) returns holdfast.queue language plpgsql stable
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = _queue.queue;
  if not found then
    perform holdfast._no_queue(_queue.queue);
  end if;
  return v_queue;
end $$;
comment on function holdfast._queue is 'A queue by its name, or an error';

create or replace function holdfast._check_there(queue holdfast.queue) returns void language plpgsql volatile
as $$
begin
  -- This function is volatile: it sees what was committed since its stable caller began. Where the transaction's snapshot
  -- is fixed it does not, but sequences are looked up as of now.
  if not exists (select from holdfast.queue q where q.id = queue.id)
     or exists (select from holdfast.lane l where l.queue_id = queue.id and has_sequence_privilege(l.ids, 'usage') is null) then
    perform holdfast._no_queue(queue.name);
  end if;
end $$;
comment on function holdfast._check_there is 'After an internal error: raise another one if the reason is that the queue was dropped meanwhile';

create or replace function holdfast._check_name(queue text) returns void language plpgsql immutable
as $$
begin
  if _check_name.queue is null or _check_name.queue !~ '^[A-Za-z0-9._:-]{1,200}$' then
    perform holdfast._fail('QH103', 'invalid queue name',
      format('Got %s.', coalesce(quote_literal(left(_check_name.queue, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  end if;
end $$;
comment on function holdfast._check_name is 'Refuse a bad queue name';

create or replace function holdfast._check_text(field text, value text) returns void language plpgsql immutable
as $$
begin
  if length(_check_text.value) > 200 then
    perform holdfast._fail('QH207', format('%s is too long', _check_text.field),
      format('It has %s characters.', length(_check_text.value)), format('%s takes at most 200 characters.', _check_text.field));
  end if;
end $$;
comment on function holdfast._check_text is 'Refuse an over-long tag, content type or consumer name';

create or replace function holdfast._check_lease(lease interval) returns void language plpgsql immutable
as $$
begin
  if _check_lease.lease < interval '100 ms' or _check_lease.lease > interval '24 hours' then
    perform holdfast._fail('QH302', 'lease is out of range', format('Got %s.', _check_lease.lease),
      'A lease lasts from 100 milliseconds to 24 hours.');
  end if;
end $$;
comment on function holdfast._check_lease is 'Refuse a bad lease duration';

create or replace function holdfast._check_isolation(verb text) returns void language plpgsql stable
as $$
begin
  -- What these verbs decide under a lane lock, they must see as it is now, not as it was when the transaction began.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform holdfast._fail('QH303', format('%s works in READ COMMITTED only', verb),
      format('This transaction is %s: its snapshot may be older than the last claim.', upper(current_setting('transaction_isolation'))),
      format('Call %s in a READ COMMITTED transaction.', verb));
  end if;
end $$;
comment on function holdfast._check_isolation is 'Refuse a transaction whose snapshot may be old';

create or replace function holdfast._check_limit("limit" int) returns void language plpgsql immutable
as $$
begin
  if _check_limit."limit" is null or _check_limit."limit" not between 1 and 10000 then
    perform holdfast._fail('QH402', 'limit is out of range', format('Got %s.', coalesce(_check_limit."limit"::text, 'null')),
      'limit takes 1 to 10,000.');
  end if;
end $$;
comment on function holdfast._check_limit is 'Refuse a bad page size';

create or replace function holdfast._check_priority(priority int) returns void language plpgsql immutable
as $$
begin
  if _check_priority.priority not between 0 and 10 then
    perform holdfast._fail('QH204', 'priority is out of range', format('Got %s.', _check_priority.priority),
      'priority takes 0 (last) to 10 (first).');
  end if;
end $$;
comment on function holdfast._check_priority is 'Refuse a bad priority';

create or replace function holdfast._too_large(detail text, max_payload int, nth bigint) returns void language plpgsql volatile
as $$
begin
  perform holdfast._fail('QH201', 'payload is too large', detail,
    format('This queue takes at most %s bytes (max_payload in its configuration).', max_payload), nth);
end $$;
comment on function holdfast._too_large is 'Raise: the payload is over the limit';

create or replace function holdfast._check_size(payload jsonb, body bytea, max_payload int, nth bigint default null) returns void
language plpgsql immutable
as $$
declare
  v_size bigint := 0;
begin
  if payload is not null and body is not null then
    perform holdfast._fail('QH203', 'a message has a payload or a body, not both', 'Both were given.',
      'Put JSON into payload, or bytes into body.');
  end if;
  v_size := coalesce(octet_length(body), 0);
  -- A small value is small as text too, but for compression and for numbers such as 1e131071, which few bytes can hold
  -- few of: 4 kB of them are still no danger.
  if pg_column_size(payload) > max_payload / 256 or pg_column_compression(payload) is not null then
    v_size := octet_length(payload::text);
  end if;
  if v_size > max_payload then
    perform holdfast._too_large(format('It has %s bytes.', v_size), max_payload, nth);
  end if;
exception
  when program_limit_exceeded or out_of_memory then
    perform holdfast._too_large('It is too long to be written as text at all.', max_payload, nth);
end $$;
comment on function holdfast._check_size is 'Refuse a payload over the limit, or a payload with a body';

create or replace function holdfast._fits(payload jsonb, max_payload int, nth bigint) returns boolean language plpgsql immutable
as $$
begin
  perform holdfast._check_size(payload, null, max_payload, nth);
  return true;
end $$;
comment on function holdfast._fits is 'true, or the error that says that the payload is over the limit';

create or replace function holdfast._check_options(
  content_type text, headers jsonb, correlation_id uuid, tag text, max_deliveries int) returns void
language plpgsql immutable
as $$
begin
  perform holdfast._check_text('content_type', content_type);
  perform holdfast._check_text('tag', tag);
  if jsonb_typeof(headers) <> 'object' then
    perform holdfast._fail('QH203', 'headers must be a JSON object', format('Got a JSON %s.', jsonb_typeof(headers)),
      'Pass headers as {"name": "value"}.');
  end if;
  if octet_length(headers::text) > 65536 then
    perform holdfast._fail('QH202', 'headers are too large', format('They have %s bytes.', octet_length(headers::text)),
      'headers take at most 65,536 bytes.');
  end if;
  if max_deliveries not between 0 and 1000 then
    perform holdfast._fail('QH210', 'max_deliveries is out of range', format('Got %s.', max_deliveries),
      'max_deliveries takes 1 to 1,000, or 0 for no limit.');
  end if;
end $$;
comment on function holdfast._check_options is 'Refuse bad options of a message';

create or replace function holdfast._due_at(delay interval, deliver_at timestamptz, at timestamptz) returns timestamptz
language plpgsql stable
as $$
declare
  v_due timestamptz := deliver_at;
begin
  if delay between interval '0' and interval '10 years' then
    v_due := coalesce(deliver_at, at + delay);
  end if;
  if delay is not null and deliver_at is not null then
    perform holdfast._fail('QH205', 'delay and deliver_at exclude each other', 'Both were given.', 'Pass one of them.');
  end if;
  if delay not between interval '0' and interval '10 years' or v_due > at + interval '10 years' or not isfinite(v_due) then
    perform holdfast._fail('QH205', 'the time of delivery is out of range', format('Got %s.', coalesce(delay::text, deliver_at::text)),
      'A message can be delayed by 0 seconds to 10 years; a deliver_at in the past means now.');
  end if;
  return case when v_due > at then v_due end;
end $$;
comment on function holdfast._due_at is 'When a message becomes claimable; null: at once';

create or replace function holdfast._expires_at(ttl interval, expires_at timestamptz, at timestamptz, default_ttl interval)
returns timestamptz language plpgsql stable
as $$
begin
  if ttl is not null and expires_at is not null then
    perform holdfast._fail('QH206', 'ttl and expires_at exclude each other', 'Both were given.', 'Pass one of them.');
  end if;
  if ttl <= interval '0' or ttl > interval '10 years' or not isfinite(expires_at) or expires_at > at + interval '10 years' then
    perform holdfast._fail('QH206', 'the time to live is out of range', format('Got %s.', coalesce(ttl::text, expires_at::text)),
      'A message can live from a moment to 10 years.');
  end if;
  -- Past is past; but not every client can read a year before the first.
  return coalesce(case when expires_at is not null then greatest(expires_at, at - interval '10 years') end, at + ttl, at + default_ttl);
end $$;
comment on function holdfast._expires_at is 'When a message expires; null: never';

create or replace function holdfast._refuse_write() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception '%.% is there to be read', tg_table_schema, tg_table_name using errcode = 'feature_not_supported',
    detail = 'Nothing was changed.', hint = 'Call the functions of the schema holdfast: what belongs together changes together.';
end $$;
comment on function holdfast._refuse_write is
  'For views: refuse what would go through to the table and leave the rest behind, also for the owner';
