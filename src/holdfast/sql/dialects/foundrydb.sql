-- The SQL contract of FoundryDB Queues, over queues with by_row.
-- schema mdb_queue
--
-- mdb_queue.queues          the queues
-- mdb_queue.messages        their messages. SELECT … FOR UPDATE SKIP LOCKED, INSERT, UPDATE and DELETE mean here what they mean
--                           there: to look, to enqueue, to claim, nack or extend, and to ack
-- mdb_queue.dead_messages   what has used up its attempts
--
-- It only translates: each row of a statement becomes a call of holdfast.send, take, nack, extend, ack or discard, and
-- nothing here touches a table of Holdfast. Where a call finds that the row is not to be had any more, the trigger returns null,
-- and the statement neither counts nor returns the row.
--
-- Whoever has the role mdb_queue_user may use all of it, and needs no right on anything of Holdfast's but the function that the view asks.
-- Applied whole by the migrator, again and again: it replaces what is there.

do $$
begin
  if obj_description(to_regnamespace('mdb_queue'), 'pg_namespace') not like 'Holdfast: %'
     or (to_regnamespace('mdb_queue') is not null and obj_description(to_regnamespace('mdb_queue'), 'pg_namespace') is null) then
    raise exception 'the schema mdb_queue is there, and is not Holdfast''s'
      using errcode = 'QH503', detail = 'Nothing was changed in it.', hint = 'Rename or drop it, or do without this dialect.';
  end if;
  create schema if not exists mdb_queue;
  comment on schema mdb_queue is 'Holdfast: queues as FoundryDB has them';
  begin
    if not exists (select from pg_roles r where r.rolname = 'mdb_queue_user') then
      create role mdb_queue_user nologin;
    end if;
  exception
    -- Roles belong to the cluster: an install into another database may make it at the same moment.
    when duplicate_object or unique_violation then null;
    when insufficient_privilege then
      raise warning 'role mdb_queue_user was not created: this user may not create roles'
        using hint = 'Let an administrator create it, then call mdb_queue._grant_rights() as the owner of the schema.';
  end;
end $$;

create or replace view mdb_queue.queues as
  select q.queue as name, extract(epoch from q.lease)::int as visibility_timeout_seconds,
         coalesce(nullif(q.max_deliveries, 0), 2147483647) as max_attempts,
         q.dead_letter is not null as dlq_enabled, q.created_at
  from holdfast.row_queue q;
comment on view mdb_queue.queues is 'The queues whose messages are rows';

-- A condition of the reader's own may be asked about rows before the view has left them out: of messages that are no rows it finds null.
create or replace view mdb_queue.messages as
  select m.id, m.queue as queue_name,
         case when coalesce(m.queue, '') = '' then null
              when m.body is null then m.payload
              else jsonb_build_object('body', translate(encode(m.body, 'base64'), E'\n', ''), 'content_type', m.content_type) end as payload,
         m.deliveries as attempt_count, coalesce(nullif(m.max_deliveries, 0), 2147483647) as max_attempts,
         m.visible_at, m.consumer as claimed_by, case when coalesce(m.queue, '') <> '' then m.last_error end as last_error, m.enqueued_at, m.token as claim_token
  from holdfast.row_message m;
comment on view mdb_queue.messages is 'Messages that are not done: insert to enqueue, update to claim, nack or extend, delete to ack';
comment on column mdb_queue.messages.claim_token is 'which claim has it: another one at each claim, also by the same worker';

create or replace function mdb_queue._dead(queue text)
returns table (id bigint, payload jsonb, attempt_count int, last_error text, enqueued_at timestamptz, died_at timestamptz, dead_letter_id bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select (d.origin ->> 'id')::bigint,
         case when d.body is null then d.payload
              else jsonb_build_object('body', translate(encode(d.body, 'base64'), E'\n', ''), 'content_type', d.content_type) end,
         (d.origin ->> 'deliveries')::int, d.last_error, (d.origin ->> 'enqueued_at')::timestamptz, (d.origin ->> 'died_at')::timestamptz, d.id
  from mdb_queue.queues q cross join lateral holdfast.scan_bounds(q.name, 'dead') b cross join lateral holdfast.scan(q.name, 'dead', b.lo, b.hi) d
  -- Whoever reads the view may ask this for any name: dead letters of other queues are none of theirs.
  where q.name = _dead.queue
$$;
comment on function mdb_queue._dead is 'The dead letters of a queue, for the view';

create or replace view mdb_queue.dead_messages as
  select d.id, q.name as queue_name, d.payload, d.attempt_count, d.last_error, d.enqueued_at, d.died_at, d.dead_letter_id
  from mdb_queue.queues q cross join lateral mdb_queue._dead(q.name) d;
comment on view mdb_queue.dead_messages is 'Messages that have used up their attempts; delete to forget them';

create or replace function mdb_queue._unsupported(what text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'mdb_queue.messages: %', what using errcode = 'feature_not_supported',
    detail = 'Nothing was changed.',
    hint = 'INSERT takes queue_name, payload, max_attempts, visible_at. UPDATE claims (attempt_count = attempt_count + 1, visible_at, claimed_by), '
           'and of a message that is claimed sets visible_at (extend), or visible_at and last_error (nack). DELETE acks what is claimed, and removes what is not.';
end $$;
comment on function mdb_queue._unsupported is 'Refuse what is not in the contract, and say what is';

create or replace function mdb_queue._check_message(message mdb_queue.messages, at timestamptz) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
declare
  v_most int := (select q.max_attempts from mdb_queue.queues q where q.name = message.queue_name);
begin
  if num_nonnulls(message.id, nullif(message.attempt_count, 0), message.claimed_by, message.last_error, message.enqueued_at, message.claim_token) > 0 then
    perform mdb_queue._unsupported('a new message has no id, attempt_count, claimed_by, last_error, enqueued_at or claim_token yet');
  elsif v_most is null then
    raise exception 'queue "%" does not exist', left(message.queue_name, 200) using errcode = 'foreign_key_violation',
      hint = 'mdb_queue.queues lists those that do.';
  elsif message.payload is null then
    raise exception 'payload is null' using errcode = 'not_null_violation', hint = 'Pass a JSON document.';
  elsif octet_length(message.payload::text) > 262144 then
    raise exception 'payload is too large' using errcode = 'check_violation',
      detail = format('It has %s bytes as text.', octet_length(message.payload::text)), hint = 'A payload has at most 262,144 bytes (256 KB).';
  elsif message.max_attempts not between 1 and 100 and message.max_attempts <> v_most then
    raise exception 'max_attempts is out of range' using errcode = 'check_violation',
      detail = format('Got %s.', message.max_attempts), hint = 'max_attempts takes 1 to 100, or what the queue says, as null does.';
  elsif message.visible_at > at + interval '43200 s' then
    raise exception 'visible_at is too far ahead' using errcode = 'check_violation',
      detail = format('Got %s.', message.visible_at), hint = 'A message can be put off by 43,200 seconds at most.';
  end if;
end $$;
comment on function mdb_queue._check_message is 'Refuse a bad message';

create or replace function mdb_queue._enqueue() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform mdb_queue._check_message(new, v_now);
  new.visible_at := case when new.visible_at > v_now then new.visible_at end;
  new.id := holdfast.send(new.queue_name, new.payload, deliver_at => new.visible_at, max_deliveries => nullif(new.max_attempts, 2147483647));
  new.attempt_count := 0;
  new.max_attempts := coalesce(new.max_attempts, (select q.max_attempts from mdb_queue.queues q where q.name = new.queue_name));
  new.enqueued_at := v_now;
  new.visible_at := coalesce(new.visible_at, v_now);
  return new;
end $$;
comment on function mdb_queue._enqueue is 'INSERT into messages: send';

create or replace function mdb_queue._begin_update() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  -- Only what the statement cannot claim any more: what it is about to claim must not change before it has locked it.
  if current_setting('transaction_isolation') = 'read committed' then
    perform holdfast.bury_spent();
  end if;
  perform set_config('mdb_queue.waited', '', true);
  return null;
end $$;
comment on function mdb_queue._begin_update is 'Before an UPDATE of messages: bury what has used up its attempts';

create or replace function mdb_queue._claim(was mdb_queue.messages, wanted mdb_queue.messages) returns mdb_queue.messages
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  v_got holdfast.delivery;
begin
  if wanted.claimed_by is null or wanted.visible_at is null then
    perform mdb_queue._unsupported('a claim needs claimed_by and visible_at');
  end if;
  -- One wait for whoever else is claiming is enough for a statement: not one for each row.
  select t.* into v_got
  from holdfast.take(was.queue_name, array[was.id], wanted.visible_at - holdfast.now(), wanted.claimed_by,
                     coalesce(current_setting('mdb_queue.waited', true), '') = '') t;
  if v_got.id is null then
    perform set_config('mdb_queue.waited', 'yes', true);
    return null;
  end if;
  wanted.attempt_count := v_got.deliveries;
  wanted.claim_token := v_got.token;
  wanted.last_error := v_got.last_error;
  return wanted;
end $$;
comment on function mdb_queue._claim is 'Take a message, if it can still be had; else null';

create or replace function mdb_queue._settle(was mdb_queue.messages, wanted mdb_queue.messages) returns mdb_queue.messages
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
  v_settled bigint[];
begin
  if wanted.last_error is not distinct from was.last_error and wanted.claimed_by is not null and wanted.visible_at > v_now then
    v_settled := (holdfast.extend(was.queue_name, was.claim_token, wanted.visible_at - v_now, array[was.id])).settled;
  else
    v_settled := (holdfast.nack(was.queue_name, was.claim_token, array[was.id], greatest(wanted.visible_at - v_now, interval '0'),
                                wanted.last_error)).settled;
    wanted.claimed_by := null;
    wanted.claim_token := null;
  end if;
  return case when v_settled <> '{}' then wanted end;
end $$;
comment on function mdb_queue._settle is 'Extend a claim or end it, if it still has the message; else null';

create or replace function mdb_queue._update() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.id, new.queue_name, new.payload, new.max_attempts, new.enqueued_at, new.claim_token)
     is distinct from (old.id, old.queue_name, old.payload, old.max_attempts, old.enqueued_at, old.claim_token) then
    perform mdb_queue._unsupported('this column of a message does not change');
  elsif new.attempt_count = old.attempt_count + 1 and new.last_error is not distinct from old.last_error then
    return mdb_queue._claim(old, new);
  elsif old.claim_token is null then
    perform mdb_queue._unsupported('a message that nobody has claimed can be claimed, and not changed otherwise');
  elsif new.attempt_count = old.attempt_count and new.visible_at is not null and coalesce(new.claimed_by, old.claimed_by) is not distinct from old.claimed_by then
    return mdb_queue._settle(old, new);
  end if;
  perform mdb_queue._unsupported('this update is none of claim, nack and extend');
  return null;
end $$;
comment on function mdb_queue._update is 'UPDATE of messages: take, nack or extend';

create or replace function mdb_queue._delete() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_gone bigint[];
begin
  if old.claim_token is not null then
    v_gone := (holdfast.ack(old.queue_name, old.claim_token, array[old.id])).settled;
  else
    v_gone := holdfast.discard(old.queue_name, array[old.id]);
  end if;
  return case when v_gone <> '{}' then old end;
end $$;
comment on function mdb_queue._delete is 'DELETE from messages: ack, or discard what nobody has claimed';

create or replace function mdb_queue._forget() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return case when holdfast.discard(old.queue_name, array[old.dead_letter_id]) <> '{}' then old end;
end $$;
comment on function mdb_queue._forget is 'DELETE from dead_messages: discard';

create or replace function mdb_queue._keep_queues() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'mdb_queue.queues: a queue is not made, changed or removed here' using errcode = 'feature_not_supported',
    detail = 'Nothing was changed.',
    hint = 'mdb_queue.create_queue makes one, mdb_queue.drop_queue removes it with its messages and dead letters.';
end $$;
comment on function mdb_queue._keep_queues is 'INSERT, UPDATE and DELETE of queues: refuse it, and say what is to be called';

create or replace trigger keep_queues instead of insert or update or delete on mdb_queue.queues for each row execute function mdb_queue._keep_queues();
create or replace trigger enqueue instead of insert on mdb_queue.messages for each row execute function mdb_queue._enqueue();
create or replace trigger begin_update before update on mdb_queue.messages for each statement execute function mdb_queue._begin_update();
create or replace trigger "update" instead of update on mdb_queue.messages for each row execute function mdb_queue._update();
create or replace trigger "delete" instead of delete on mdb_queue.messages for each row execute function mdb_queue._delete();
create or replace trigger forget instead of delete on mdb_queue.dead_messages for each row execute function mdb_queue._forget();

create or replace function mdb_queue.create_queue(
  name text, visibility_timeout_seconds int default 30, max_attempts int default 5, dlq_enabled boolean default true)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
  if name is null or name !~ '^[a-z0-9_-]{1,128}$' then
    raise exception 'invalid queue name' using errcode = 'check_violation',
      detail = format('Got %s.', coalesce(quote_literal(left(name, 200)), 'null')), hint = 'A name has 1 to 128 characters out of a-z 0-9 _ -.';
  elsif visibility_timeout_seconds is null or visibility_timeout_seconds not between 1 and 43200 then
    raise exception 'visibility_timeout_seconds is out of range' using errcode = 'check_violation',
      detail = format('Got %s.', coalesce(visibility_timeout_seconds::text, 'null')), hint = 'It takes 1 to 43,200.';
  elsif max_attempts is null or max_attempts not between 1 and 100 then
    raise exception 'max_attempts is out of range' using errcode = 'check_violation',
      detail = format('Got %s.', coalesce(max_attempts::text, 'null')), hint = 'It takes 1 to 100.';
  end if;
  if not holdfast.create_queue(name, jsonb_build_object(
    'by_row', true, 'lease', visibility_timeout_seconds, 'max_deliveries', max_attempts, 'budget', 'deliveries', 'max_payload', 262144,
    'dead_letter', case when dlq_enabled is not false then to_jsonb(name || '.dlq') else 'false' end)) then
    raise exception 'queue "%" exists', name using errcode = 'duplicate_object';
  end if;
end $$;
comment on function mdb_queue.create_queue is 'Make a queue whose messages are rows, with the settings of the contract';

create or replace function mdb_queue.drop_queue(name text)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  v_dead text := (select q.dead_letter from holdfast.row_queue q where q.queue = drop_queue.name);
begin
  if not exists (select from holdfast.row_queue q where q.queue = drop_queue.name) or not holdfast.drop_queue(drop_queue.name) then
    return false;
  end if;
  -- Where they go elsewhere, somebody else has made that queue.
  if v_dead = drop_queue.name || '.dlq' then
    perform holdfast.drop_queue(v_dead);
  end if;
  return true;
end $$;
comment on function mdb_queue.drop_queue is 'Remove a queue, its messages and its dead letters; false: there is none of this name';

create or replace function mdb_queue._grant_rights() returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
  revoke all on all functions in schema mdb_queue from public;
  revoke all on all tables in schema mdb_queue from public;
  if exists (select from pg_roles r where r.rolname = 'mdb_queue_user') then
    grant usage on schema mdb_queue to mdb_queue_user;
    grant select on mdb_queue.queues, mdb_queue.messages, mdb_queue.dead_messages to mdb_queue_user;
    grant insert, update, delete on mdb_queue.messages to mdb_queue_user;
    grant delete on mdb_queue.dead_messages to mdb_queue_user;
    -- A view asks its functions with the rights of whoever reads it.
    grant execute on function mdb_queue._dead(text), holdfast.hold(bigint, timestamptz) to mdb_queue_user;
  end if;
  if exists (select from pg_roles r where r.rolname = 'holdfast_admin') then
    grant usage on schema mdb_queue to holdfast_admin;
    grant execute on function mdb_queue.create_queue(text, int, int, boolean), mdb_queue.drop_queue(text) to holdfast_admin;
  end if;
end $$;
comment on function mdb_queue._grant_rights is 'Give each role that exists its rights; the owner may call it again after a role was created';

do $$
begin
  perform mdb_queue._grant_rights();
end $$;
