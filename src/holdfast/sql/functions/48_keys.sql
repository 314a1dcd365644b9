-- Keys: sending with an ordering key, a replaceable key or an idempotency key.
--
-- ordering_key      its place in a line; see 47_order.sql
-- key               at most one waiting message of a key: sending again replaces its content and keeps its id. Such
--                   messages are stored as due rows, which claim locks: while somebody replaces one in an open
--                   transaction it is skipped, not handed out as it was. One that is being claimed is not waited for:
--                   a new message is sent. One that came back from a delivery (nack, lease ran out) stays as it is, unless
--                   the queue's replaces is waiting: then it is the same message with another content, and what its
--                   deliveries have left stays; origin.sent_at is when it was sent first.
-- idempotency_key   at most one live message of a key: the same payload again answers with the first id, another is an
--                   error. A unique index stands behind the lock. One that is past its time to live and in nobody's
--                   hands ends at this moment, if nobody has removed it yet: else its key would swallow a message.
--                   For that, claims that have begun are waited for, and whoever is ending it.
--
-- A replaceable key has no unique index: a message that is given back, or found after a crash, may meet a newer one,
-- and both must stay. So the lock on the key decides, held to the end of the transaction.
-- Lock order: ordering keys, keys, idempotency keys, each by bucket; a lane, for a moment; then rows.

create or replace function holdfast._check_keys(ordering_key text, key text, idempotency_key text) returns void
language plpgsql stable
as $$
begin
  perform holdfast._check_text('ordering_key', ordering_key), holdfast._check_text('key', key),
          holdfast._check_text('idempotency_key', idempotency_key);
  if '' in (ordering_key, key, idempotency_key) then
    perform holdfast._fail('QH220', 'a key is empty', 'An empty text names nothing.', 'Keys have 1 to 200 characters; leave the option out for none.');
  end if;
  if key is not null and idempotency_key is not null then
    perform holdfast._fail('QH220', 'key and idempotency_key exclude each other',
      'The one replaces a message that waits, the other refuses to.', 'Pass one of them.');
  end if;
end $$;
comment on function holdfast._check_keys is 'Refuse bad keys of a message';

create or replace function holdfast._check_order(queue holdfast.queue, drafts holdfast.draft[]) returns void language plpgsql stable
as $$
declare
  v_several boolean := cardinality(drafts) > 1;
  v_nth bigint;
begin
  if queue.ordering is distinct from 'key' then
    v_nth := (select min(d.ordinality) from unnest(drafts) with ordinality d where d.ordering_key is not null);
  end if;
  if v_nth is not null then
    perform holdfast._fail('QH221', format('queue "%s" takes no ordering_key', queue.name),
      format('Its ordering is %s.', coalesce(queue.ordering, 'none')),
      'Set ordering to key in its configuration; a strict queue is one line without keys.', case when v_several then v_nth end);
  end if;
  if queue.ordering = 'strict' then
    v_nth := (select min(d.ordinality) from unnest(drafts) with ordinality d where d.priority <> queue.priority_default);
  end if;
  if v_nth is not null then
    perform holdfast._fail('QH221', format('queue "%s" takes no priority', queue.name), 'Its ordering is strict: one line.',
      'Leave priority out, or set ordering to key.', case when v_several then v_nth end);
  end if;
end $$;
comment on function holdfast._check_order is 'Refuse an ordering key or a priority that does not go with the ordering of the queue';

create or replace function holdfast._payload_hash(payload jsonb, body bytea) returns bytea language sql immutable
  return sha256(case when body is not null then coalesce('\x03'::bytea || holdfast._digest(body), '\x01'::bytea || body) when payload is not null then '\x02'::bytea || convert_to(payload::text, 'UTF8') else '\x' end);
comment on function holdfast._payload_hash is 'Tells whether two messages say the same; of a sealed one, by the keyed hash of its plaintext';

create or replace function holdfast._store_with_keys(queue holdfast.queue, drafts holdfast.draft[], at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_stored bigint[] := '{}';
  v_xid xid8;
  v_draft holdfast.draft;
  v_nth bigint := 0;
  v_singly boolean;
begin
  perform holdfast._check_order(queue, drafts);
  select bool_or(d.key is not null or d.idempotency_key is not null) into v_singly from unnest(drafts) d;
  -- Before ids and numbers are drawn: whoever sent with one of these keys before has committed then.
  if queue.ordering is not null then
    perform holdfast._lock_keys(holdfast._line_lock(), queue.id,
      case when queue.ordering = 'strict' then '{""}'::text[] else array(select d.ordering_key from unnest(drafts) d) end);
  end if;
  if v_singly then
    perform holdfast._lock_keys(holdfast._key_lock(), queue.id, array(select d.key from unnest(drafts) d));
    perform holdfast._lock_keys(holdfast._idempotency_lock(), queue.id, array(select d.idempotency_key from unnest(drafts) d));
  end if;
  select jsonb_object_agg(p.priority, holdfast._ids(queue, p.priority)) into v_lanes
  from (select distinct coalesce(d.priority, queue.priority_default)::smallint as priority from unnest(drafts) d) p;
  v_xid := pg_current_xact_id();
  if v_singly then
    foreach v_draft in array drafts loop
      v_nth := v_nth + 1;
      v_stored := v_stored || holdfast._store_one(queue, v_draft, (v_lanes ->> coalesce(v_draft.priority, queue.priority_default)::text)::regclass, at,
                                                  case when cardinality(drafts) > 1 then v_nth end);
    end loop;
  else
    if queue.max_depth is not null then
      perform holdfast._check_depth(queue, cardinality(drafts), case when cardinality(drafts) > 1 then 1 end);
    end if;
    with stored as (
      insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                    correlation_id, max_deliveries, ordering_key, order_no, row_of)
      select nextval((v_lanes ->> coalesce(d.priority, queue.priority_default)::text)::regclass), queue.id, at, d.due_at,
             d.expires_at, d.payload, d.body, d.content_type, d.headers, d.tag, d.correlation_id, d.max_deliveries,
             case when queue.ordering = 'strict' then '' else d.ordering_key end,
             case when queue.ordering = 'strict' or d.ordering_key is not null then nextval('holdfast.order_no') end, queue.row_of
      from unnest(drafts) d
      returning id
    )
    select array_agg(s.id) into v_stored from stored s;
  end if;
  perform holdfast._wake(queue);
  return v_stored;
end $$;
comment on function holdfast._store_with_keys is 'Store checked messages of which some have keys; returns the ids in order';

create or replace function holdfast._store_one(queue holdfast.queue, draft holdfast.draft, sequence regclass, at timestamptz, nth bigint) returns bigint
language plpgsql volatile
as $$
declare
  v_line text := case when queue.ordering = 'strict' then '' else draft.ordering_key end;
  v_id bigint;
begin
  if draft.key is not null then
    v_id := holdfast._replace(queue, draft, v_line, at);
  elsif draft.idempotency_key is not null then
    v_id := holdfast._sent_before(queue, draft, nth);
  end if;
  if v_id is not null then
    return v_id;
  end if;
  -- Only now: what replaces a message, or was sent before, adds nothing.
  if queue.max_depth is not null then
    perform holdfast._check_depth(queue, 1, nth);
  end if;
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                correlation_id, max_deliveries, ordering_key, order_no, key, idempotency_key, payload_hash, row_of)
  values (nextval(sequence), queue.id, at, case when draft.key is not null then coalesce(draft.due_at, at) else draft.due_at end,
          draft.expires_at, draft.payload, draft.body, draft.content_type, draft.headers, draft.tag, draft.correlation_id,
          draft.max_deliveries, v_line, case when v_line is not null then nextval('holdfast.order_no') end, draft.key,
          draft.idempotency_key, case when draft.idempotency_key is not null then holdfast._payload_hash(draft.payload, draft.body) end,
          queue.row_of)
  -- Under the lock nobody has it; but a transaction with a fixed snapshot may not see who has: PostgreSQL tells it to try again.
  on conflict (queue_id, idempotency_key) where idempotency_key is not null do nothing
  returning id into v_id;
  return v_id;
end $$;
comment on function holdfast._store_one is 'Under the locks of its keys: store one message, or replace the one that waits, or find the one sent before. nth: which message of the call it is; null: the only one';

create or replace function holdfast._replace(queue holdfast.queue, draft holdfast.draft, line text, at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_id bigint;
  v_any boolean := queue.replaces = 'waiting';
begin
  -- An older snapshot would not show what the sender before this one has committed.
  perform holdfast._check_isolation('send with a key');
  select m.id into v_id from holdfast.message m
  where m.queue_id = queue.id and m.key = draft.key and m.due_at > '-infinity' and (v_any or coalesce(m.deliveries, 0) = 0)
    and m.ordering_key is not distinct from line and m.blocks_since is null
  order by m.id desc limit 1 for update skip locked;
  update holdfast.message m set
    enqueued_at = at, expires_at = draft.expires_at, payload = draft.payload, body = draft.body, content_type = draft.content_type,
    headers = draft.headers, tag = draft.tag, correlation_id = draft.correlation_id, max_deliveries = draft.max_deliveries,
    last_error = case when v_any then m.last_error end,
    -- The same message: it was sent when it was sent first.
    origin = case when v_any then coalesce(m.origin, '{}') || jsonb_build_object('sent_at', holdfast._sent_at(m.origin, m.enqueued_at)) end,
    -- A parked one waits for its time first, then a claim parks it again if it still stands behind a head.
    due_at = coalesce(draft.due_at, case when m.due_at = 'infinity' then m.due_at else least(m.due_at, at) end)
  where m.id = v_id;
  return v_id;
end $$;
comment on function holdfast._replace is 'Under the lock of its key: replace the message that waits; null: none does, or it is being claimed';

create or replace function holdfast._await_claims(lane_id int) returns void language plpgsql volatile
as $$
begin
  -- Undone on purpose, which lets go of the lock at once.
  perform pg_advisory_xact_lock(holdfast._lane_lock(), lane_id);
  raise exception using errcode = 'HF000';
exception
  when sqlstate 'HF000' then null;
end $$;
comment on function holdfast._await_claims is 'Wait until the claims of this lane that have begun are over: what they took can be seen then';

create or replace function holdfast._end_overdue(queue_id int, id bigint, at timestamptz) returns boolean language plpgsql volatile
as $$
begin
  perform holdfast._check_isolation('send with an idempotency_key');
  -- In this order: a claim that began before may have it, one that begins later sees that it is over and ends it, and whoever
  -- is ending it is waited for.
  perform holdfast._await_claims((_end_overdue.id >> 40)::int);
  perform from holdfast.message m where m.id = _end_overdue.id for update;
  if not found then
    return true;
  end if;
  if exists (select from holdfast.message m where m.id = _end_overdue.id and m.blocks_since is not null)
     or exists (select from holdfast._holders(array[_end_overdue.id])) then
    return false;
  end if;
  perform holdfast._end(_end_overdue.queue_id, array[_end_overdue.id], 'expired', at);
  return true;
end $$;
comment on function holdfast._end_overdue is
  'End a message that is past its time to live, unless somebody has done so. false: somebody holds it, or it blocks its line';

create or replace function holdfast._sent_before(queue holdfast.queue, draft holdfast.draft, nth bigint) returns bigint language plpgsql volatile
as $$
declare
  v_id bigint;
  v_hash bytea;
  v_over boolean;
begin
  select m.id, m.payload_hash, m.expires_at <= holdfast.now() into v_id, v_hash, v_over from holdfast.message m
  where m.queue_id = queue.id and m.idempotency_key = draft.idempotency_key;
  if v_over then
    v_over := holdfast._end_overdue(queue.id, v_id, holdfast.now());
  end if;
  if v_over then
    return null;
  end if;
  if v_hash <> holdfast._payload_hash(draft.payload, draft.body) then
    perform holdfast._fail('QH222', 'a message with this idempotency_key and another payload is there',
      format('Message %s of queue "%s" has the key %s.', v_id, queue.name, quote_literal(draft.idempotency_key)),
      'Use a key of its own for every message, and send a message again as it was.', nth);
  end if;
  return v_id;
end $$;
comment on function holdfast._sent_before is 'Under the lock of its idempotency key: the live message that has it; another payload is an error';

create or replace function holdfast._free_idempotency_keys(queue holdfast.queue, ids bigint[]) returns jsonb language plpgsql volatile
as $$
declare
  v_keys text[] := array(select m.origin ->> 'idempotency_key' from holdfast.message m where m.id = any (_free_idempotency_keys.ids) and m.origin ? 'idempotency_key');
begin
  if v_keys = '{}' then
    return '{}';
  end if;
  perform holdfast._lock_keys(holdfast._idempotency_lock(), queue.id, v_keys);
  return (select coalesce(jsonb_object_agg(f.key, f.id), '{}') from (
    select m.origin ->> 'idempotency_key' as key, min(m.id) as id from holdfast.message m
    where m.id = any (_free_idempotency_keys.ids) and m.origin ? 'idempotency_key' group by 1) f
    where not exists (select from holdfast.message m where m.queue_id = queue.id and m.idempotency_key = f.key));
end $$;
comment on function holdfast._free_idempotency_keys is
  'Which of these dead letters may have their idempotency key back: no live message of the queue has it, and no other of them';

create or replace function holdfast.discard_key(queue text, key text) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(discard_key.queue);
begin
  perform holdfast._check_isolation('discard_key');
  -- Whoever is sending with this key is waited for: what it sent goes too.
  perform holdfast._lock_keys(holdfast._key_lock(), v_queue.id, array[discard_key.key]);
  return holdfast.discard(discard_key.queue, array(
    select m.id from holdfast.message m where m.queue_id = v_queue.id and m.key = discard_key.key order by m.id limit 10000));
end $$;
comment on function holdfast.discard_key is
  'End the messages of this queue that have this key, in whatever state they are; returns their ids';
