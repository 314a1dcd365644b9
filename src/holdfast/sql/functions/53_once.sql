-- Sending a batch once: an idempotency key for all of it, which counts for a time and not for as long as a message lives.
--
-- The row of holdfast.receipt is the lock: who sends under a key that somebody else is sending under waits for that
-- transaction, and then finds what it left. It is taken before all that a send takes, and by nobody else.

create or replace function holdfast._check_once(key text, "window" interval) returns void language plpgsql stable
as $$
begin
  perform holdfast._check_isolation('send_once');
  if key is null then
    perform holdfast._fail('QH220', 'the idempotency key is null', 'Without one it cannot be known whether this was sent before.',
      'Pass a key of 1 to 200 characters, or call send_many.');
  end if;
  perform holdfast._check_keys(null, null, key);
  if "window" is null or "window" not between interval '1 ms' and interval '7 days' then
    perform holdfast._fail('QH220', 'the window is out of range', format('Got %s.', coalesce("window"::text, 'null')),
      'A key counts for 1 millisecond to 7 days.');
  end if;
end $$;
comment on function holdfast._check_once is 'Refuse a bad key or window of send_once, and a transaction whose snapshot may be old';

create or replace function holdfast._without(messages jsonb, fields text[]) returns jsonb language sql immutable
  return case when fields = '{}' or jsonb_typeof(messages) <> 'array' then messages
    else (select jsonb_agg(case jsonb_typeof(m.value) when 'object' then m.value - fields else m.value end order by m.n)
          from jsonb_array_elements(messages) with ordinality m(value, n)) end;
comment on function holdfast._without is 'Messages without these of their fields';

create or replace function holdfast._messages_hash(queue holdfast.queue, messages jsonb) returns bytea language sql stable
  return sha256(convert_to(coalesce(case when (queue).seal_key is null or jsonb_typeof(messages) <> 'array' then messages else holdfast._digests(messages) end::text, ''), 'UTF8'));
comment on function holdfast._messages_hash is 'Tells whether two batches say the same';

create or replace function holdfast._sent_once(queue holdfast.queue, key text, hash bytea, at timestamptz, until timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_receipt holdfast.receipt;
begin
  loop
    insert into holdfast.receipt as r (queue_id, key, hash, ids, until)
    values (_sent_once.queue.id, _sent_once.key, _sent_once.hash, '{}', _sent_once.until)
    on conflict on constraint receipt_pkey do nothing;
    if found then
      return null;
    end if;
    select r.* into v_receipt from holdfast.receipt r where r.queue_id = _sent_once.queue.id and r.key = _sent_once.key for update;
    -- maintain() may have removed it in this moment: then once more.
    exit when found;
  end loop;
  if v_receipt.until <= at then
    update holdfast.receipt r set hash = _sent_once.hash, until = _sent_once.until
    where r.queue_id = _sent_once.queue.id and r.key = _sent_once.key;
    return null;
  end if;
  if v_receipt.hash <> _sent_once.hash then
    perform holdfast._fail('QH222', 'the idempotency key was used for other messages',
      format('Under %s other messages were sent to queue "%s".', quote_literal(_sent_once.key), _sent_once.queue.name),
      'Use a key of its own for every batch, and send a batch again as it was.');
  end if;
  return v_receipt.ids;
end $$;
comment on function holdfast._sent_once is 'The ids that were sent under a key before; null: it is this transaction''s to send, and the key is locked';

create or replace function holdfast.send_once(
  queue text, messages jsonb, idempotency_key text, "window" interval default '2 minutes', alone boolean default false, ignoring text[] default '{}')
returns table (ids bigint[], deduped boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_once.queue);
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_once(send_once.idempotency_key, "window");
  ids := holdfast._sent_once(v_queue, send_once.idempotency_key, holdfast._messages_hash(v_queue, holdfast._without(messages, ignoring)), v_now, v_now + "window");
  deduped := ids is not null;
  if not deduped then
    ids := holdfast.send_many(send_once.queue, messages, alone);
    update holdfast.receipt r set ids = send_once.ids where r.queue_id = v_queue.id and r.key = send_once.idempotency_key;
  end if;
  return next;
end $$;
comment on function holdfast.send_once is
  'Send a batch as send_many does, unless it was sent under this key within the window: then return the ids it got. ignoring: fields of messages in which the two may differ';

create or replace function holdfast._forget_receipts(at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_forgotten int;
begin
  delete from holdfast.receipt r where (r.queue_id, r.key) in (
    select o.queue_id, o.key from holdfast.receipt o where o.until <= at order by o.until limit 10000 for update skip locked);
  get diagnostics v_forgotten = row_count;
  return v_forgotten;
end $$;
comment on function holdfast._forget_receipts is 'Remove receipts whose time is over, 10,000 at most; returns how many';
