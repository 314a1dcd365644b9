-- Staging: many processes bring messages, one transaction sends them all.
--
--   open_stage     a place for one attempt at one part of a write
--   (insert)       into holdfast.staged, by COPY: rows of that stage, numbered from 1
--   check_staged   takes out the rows that a send would refuse, and says why
--   send_staged    sends the stages that are named, in their order, and removes all rows of the write
--   drop_staged    gives up
--
-- replay_staged (79_replay.sql) does what send_staged does, for messages of an archive.
--
-- The name of a write is taken in the transaction that sends it: whoever comes second, even at the same moment, finds it
-- taken and sends nothing. Rows of attempts that nobody names are never sent. What killed processes left behind goes with
-- its stage after a day, by maintain().
--
-- The number of a stage is a secret of whoever opened it, as a token is: all senders may insert, and nobody can tell the
-- numbers of others. Whoever counts, changes, sends or drops the rows of a stage holds it, so that they do not change on the way.
-- Lock order: the name, stages by number, ordering keys, keys, idempotency keys, each by bucket and for the whole write at once; then rows.

create or replace function holdfast.open_stage(queue text, write_id text, run text, part int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(open_stage.queue);
  v_stage bigint;
begin
  perform holdfast._check_write(open_stage.write_id), holdfast._check_write(open_stage.run);
  if exists (select from holdfast.write w where w.queue_id = v_queue.id and w.id = open_stage.write_id) then
    return null;
  end if;
  if open_stage.part is null then
    perform holdfast._fail('QH230', 'a part has no number', 'Got null.', 'part takes the number of a part of the write.');
  end if;
  insert into holdfast.stage (id, queue_id, write_id, run, part, opened_at, opened_by)
  values (holdfast._token(), v_queue.id, open_stage.write_id, open_stage.run, open_stage.part, holdfast.now(), session_user)
  returning id into v_stage;
  return v_stage;
end $$;
comment on function holdfast.open_stage is
  'A new stage for one part of a write; null: this write was sent already. run: whoever does the write this time, for drop_staged';

create or replace function holdfast._check_write(write_id text) returns void language plpgsql immutable
as $$
begin
  if _check_write.write_id is null or length(_check_write.write_id) not between 1 and 200 then
    perform holdfast._fail('QH230', 'invalid name of a write', format('Got %s.', coalesce(quote_literal(left(_check_write.write_id, 250)), 'null')),
      'write_id and run have 1 to 200 characters.');
  end if;
end $$;
comment on function holdfast._check_write is 'Refuse a bad name of a write';

create or replace function holdfast._hold_stages(stages bigint[], queue_id int default null, write_id text default null) returns bigint[]
language plpgsql volatile
as $$
declare
  v_held bigint[] := array(
    select t.id from holdfast.stage t where t.id = any (stages) and t.opened_by = session_user
      and (_hold_stages.queue_id is null or t.queue_id = _hold_stages.queue_id)
      and (_hold_stages.write_id is null or t.write_id = _hold_stages.write_id) order by t.id for update);
begin
  return array(select s from unnest(stages) s where s = any (v_held));
end $$;
comment on function holdfast._hold_stages is
  'Lock those of these stages that this user opened, for this queue and write if they are named; returns them, in the order given';

create or replace function holdfast._has_options(message holdfast.staged) returns boolean language sql immutable
  return num_nonnulls((message).body, (message).content_type, (message).headers, (message).priority, (message).delay, (message).deliver_at,
                      (message).ttl, (message).expires_at, (message).correlation_id, (message).tag, (message).max_deliveries,
                      (message).ordering_key, (message).key, (message).idempotency_key) > 0;
comment on function holdfast._has_options is 'Whether a staged message has anything beside a payload';

create or replace function holdfast._suspect(
  message holdfast.staged, max_payload int, log boolean, ordering text, priority_default int, at timestamptz, sealed boolean)
returns boolean language sql stable
  return sealed or coalesce(pg_column_size((message).payload) > max_payload / 256 or pg_column_compression((message).payload) is not null, false)
    or case when holdfast._has_options(message) then coalesce(
    ((message).payload is not null and (message).body is not null)
    or octet_length((message).body) > max_payload
    or length((message).content_type) > 200 or length((message).tag) > 200
    or jsonb_typeof((message).headers) <> 'object' or pg_column_size((message).headers) > 4096 or pg_column_compression((message).headers) is not null
    or (message).priority not between 0 and 10 or (message).max_deliveries not between 0 and 1000
    or (message).delay not between 0 and 3e8 or (message).ttl not between 1e-6 and 3e8
    or (message).deliver_at not between '1900-01-01Z' and at + interval '9 years'
    or (message).expires_at not between '1900-01-01Z' and at + interval '9 years'
    or ((message).delay is not null and (message).deliver_at is not null) or ((message).ttl is not null and (message).expires_at is not null)
    or (message).correlation_id !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
    or length((message).ordering_key) not between 1 and 200 or length((message).key) not between 1 and 200
    or length((message).idempotency_key) not between 1 and 200
    or ((message).key is not null and (message).idempotency_key is not null)
    or (log and num_nonnulls((message).priority, (message).delay, (message).deliver_at, (message).ttl, (message).expires_at,
                             (message).max_deliveries, (message).ordering_key, (message).key, (message).idempotency_key) > 0)
    or (ordering is distinct from 'key' and (message).ordering_key is not null)
    or (ordering = 'strict' and (message).priority <> priority_default), false) else false end;
comment on function holdfast._suspect is
  'Whether a staged message may be one that a send refuses: a quick look at all rows, so that the exact one is for few';

create or replace function holdfast._staged_draft(message holdfast.staged, queue holdfast.queue, at timestamptz) returns holdfast.draft
language plpgsql stable
as $$
declare
  v_draft holdfast.draft;
begin
  v_draft := (message.payload, message.body, message.content_type, message.headers, message.priority,
    holdfast._due_at(make_interval(secs => message.delay), message.deliver_at, at),
    holdfast._expires_at(make_interval(secs => message.ttl), message.expires_at, at, queue.ttl),
    message.correlation_id::uuid, message.tag, message.max_deliveries, message.ordering_key, message.key, message.idempotency_key);
  perform holdfast._check_draft(v_draft, queue.max_payload);
  if queue.kind = 'log' and num_nonnulls(message.priority, message.delay, message.deliver_at, message.ttl, message.expires_at,
                                         message.max_deliveries, message.ordering_key, message.key, message.idempotency_key) > 0 then
    perform holdfast._no_append(queue.name, jsonb_build_object('priority', message.priority, 'delay', message.delay,
      'deliver_at', message.deliver_at, 'ttl', message.ttl, 'expires_at', message.expires_at, 'max_deliveries', message.max_deliveries,
      'ordering_key', message.ordering_key, 'key', message.key, 'idempotency_key', message.idempotency_key));
  end if;
  perform holdfast._check_order(queue, array[v_draft]);
  if queue.seal_key is not null then
    perform holdfast._check_sealed(queue, v_draft.body);
  end if;
  return v_draft;
exception
  when invalid_text_representation or datetime_field_overflow or interval_field_overflow or numeric_value_out_of_range then
    perform holdfast._fail('QH203', 'a message has a field of the wrong type', sqlerrm,
      'correlation_id: a UUID; delay, ttl: a number of seconds.');
end $$;
comment on function holdfast._staged_draft is 'A staged message as a draft, with all checks of a send';

create or replace function holdfast._staged_fits(message holdfast.staged, queue holdfast.queue, at timestamptz) returns boolean
language plpgsql stable
as $$
begin
  perform holdfast._staged_draft(message, queue, at);
  return true;
end $$;
comment on function holdfast._staged_fits is 'true, or the error that says why a send would refuse this message';

create or replace function holdfast._refusal(message holdfast.staged, queue holdfast.queue, at timestamptz, out code text, out reason text)
language plpgsql stable
as $$
begin
  perform holdfast._staged_draft(message, queue, at);
exception
  when sqlstate 'QH201' or sqlstate 'QH202' or sqlstate 'QH203' or sqlstate 'QH204' or sqlstate 'QH205' or sqlstate 'QH206'
    or sqlstate 'QH207' or sqlstate 'QH210' or sqlstate 'QH220' or sqlstate 'QH221' or sqlstate 'QH241' or sqlstate 'QH604' then
    code := sqlstate;
    get stacked diagnostics reason = pg_exception_detail;
    reason := concat_ws(': ', replace(sqlerrm, format(' [%s]', sqlstate), ''), nullif(reason, ''));
end $$;
comment on function holdfast._refusal is 'Why a send would refuse this message; nulls: it would not';

create or replace function holdfast.check_staged(queue text, stage bigint, after bigint default 0)
returns table (n bigint, code text, message text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(check_staged.queue);
  v_now timestamptz := holdfast.now();
  v_suspect holdfast.staged;
begin
  if holdfast._hold_stages(array[check_staged.stage]) = '{}' then
    return;
  end if;
  for v_suspect in
    select s.* from holdfast.staged s where s.stage = check_staged.stage and s.n > check_staged.after
      and holdfast._suspect(s, v_queue.max_payload, v_queue.kind = 'log', v_queue.ordering, v_queue.priority_default, v_now,
                            v_queue.seal_key is not null) order by s.n
  loop
    select r.code, r.reason into check_staged.code, check_staged.message from holdfast._refusal(v_suspect, v_queue, v_now) r;
    continue when check_staged.code is null;
    n := v_suspect.n;
    return next;
    delete from holdfast.staged s where s.stage = v_suspect.stage and s.n = v_suspect.n;
  end loop;
end $$;
comment on function holdfast.check_staged is
  'Takes those rows out of a stage, from the one after a number on, that a send to this queue would refuse; returns them with the reason';

create or replace function holdfast.json_errors(texts text[]) returns table (n bigint, message text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_text text;
begin
  for n, v_text in select t.n, t.value from unnest(json_errors.texts) with ordinality t(value, n) loop
    begin
      perform v_text::jsonb;
    exception
      when data_exception or program_limit_exceeded or statement_too_complex then
        get stacked diagnostics message = pg_exception_detail;
        message := concat_ws(': ', sqlerrm, nullif(message, ''));
        return next;
    end;
  end loop;
end $$;
comment on function holdfast.json_errors is 'Which of these texts are no JSON that can be stored, by their place in the array, and why';

create or replace function holdfast._store_staged(queue holdfast.queue, stage bigint, lanes regclass[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_stored bigint;
begin
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                correlation_id, max_deliveries, ordering_key, order_no, row_of)
  select nextval(lanes[coalesce(s.priority, queue.priority_default) + 1]), queue.id, at,
         case when coalesce(at + make_interval(secs => s.delay), s.deliver_at) > at then coalesce(at + make_interval(secs => s.delay), s.deliver_at) end,
         coalesce(s.expires_at, at + make_interval(secs => s.ttl), at + queue.ttl), s.payload, s.body, s.content_type, s.headers, s.tag, s.correlation_id::uuid, s.max_deliveries,
         case when queue.ordering = 'strict' then '' else s.ordering_key end,
         case when queue.ordering = 'strict' or s.ordering_key is not null then nextval('holdfast.order_no') end, queue.row_of
  from (select s.* from holdfast.staged s where s.stage = _store_staged.stage order by s.n offset 0) s
  where not holdfast._suspect(s, queue.max_payload, queue.kind = 'log', queue.ordering, queue.priority_default, at, queue.seal_key is not null)
    or holdfast._staged_fits(s, queue, at);
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
comment on function holdfast._store_staged is 'Store the messages of a stage that have neither key nor idempotency_key, in their order; returns how many';

create or replace function holdfast._store_payloads(queue holdfast.queue, stage bigint, at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_ids regclass := holdfast._ids(queue, queue.priority_default);
  v_queue_id int := queue.id;
  v_expires_at timestamptz := at + queue.ttl;
  v_most int := queue.max_payload / 256;
  v_row_of text := queue.row_of;
  v_stored bigint;
begin
  insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, row_of)
  select nextval(v_ids), v_queue_id, at, v_expires_at, s.payload, v_row_of
  from (select s.* from holdfast.staged s where s.stage = _store_payloads.stage order by s.n offset 0) s
  -- Who knows the stage can still add to it. What is added now is not counted, so that the write fails.
  where not holdfast._has_options(s)
    and (coalesce(pg_column_size(s.payload) <= v_most and pg_column_compression(s.payload) is null, true) or holdfast._staged_fits(s, queue, at));
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
comment on function holdfast._store_payloads is 'Store the messages of a stage that have nothing but payloads, in their order; returns how many';

create or replace function holdfast._store_staged_keys(queue holdfast.queue, stage bigint, at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_drafts holdfast.draft[];
  v_last bigint := 0;
  v_stored bigint := 0;
begin
  loop
    select array_agg(holdfast._staged_draft(s, queue, at) order by s.n), max(s.n) into v_drafts, v_last
    from (select s.* from holdfast.staged s where s.stage = _store_staged_keys.stage and s.n > v_last order by s.n limit 2000) s;
    exit when v_drafts is null;
    perform holdfast._store_with_keys(queue, v_drafts, at);
    v_stored := v_stored + cardinality(v_drafts);
  end loop;
  return v_stored;
end $$;
comment on function holdfast._store_staged_keys is 'Store the messages of a stage of which some have keys, in their order; returns how many';

create or replace function holdfast._lock_staged(queue holdfast.queue, stages bigint[]) returns boolean language plpgsql volatile
as $$
declare
  v_keys text[];
  v_idempotency_keys text[];
begin
  -- All at once: part by part, two writes could wait for one another.
  if queue.ordering is not null then
    perform holdfast._lock_keys(holdfast._line_lock(), queue.id, case when queue.ordering = 'strict' then '{""}'::text[] else array(
      select distinct s.ordering_key from holdfast.staged s where s.stage = any (stages) and s.ordering_key is not null) end);
  end if;
  select array_agg(distinct s.key) filter (where s.key is not null), array_agg(distinct s.idempotency_key) filter (where s.idempotency_key is not null)
  into v_keys, v_idempotency_keys
  from holdfast.staged s where s.stage = any (stages) and (s.key is not null or s.idempotency_key is not null);
  perform holdfast._lock_keys(holdfast._key_lock(), queue.id, v_keys);
  perform holdfast._lock_keys(holdfast._idempotency_lock(), queue.id, v_idempotency_keys);
  return coalesce(v_keys, v_idempotency_keys) is not null;
end $$;
comment on function holdfast._lock_staged is 'Take the locks of all keys of a write; returns whether there are keys other than ordering keys';

create or replace function holdfast._staged_lanes(queue holdfast.queue, stages bigint[]) returns regclass[] language plpgsql volatile
as $$
declare
  v_lanes regclass[];
  v_priority int;
begin
  for v_priority in
    select distinct case when queue.ordering = 'strict' then queue.priority_default else coalesce(s.priority, queue.priority_default) end
    from holdfast.staged s where s.stage = any (stages)
  loop
    perform holdfast._check_priority(v_priority);
    v_lanes[v_priority + 1] := holdfast._ids(queue, v_priority);
  end loop;
  return v_lanes;
end $$;
comment on function holdfast._staged_lanes is 'The sequences that number the messages of a write, by priority + 1';

create or replace function holdfast._forget_staged(stages bigint[]) returns bigint language plpgsql volatile
as $$
declare
  v_gone bigint;
begin
  -- The stages themselves stay for a day: an attempt that nobody waits for may still bring rows.
  delete from holdfast.staged s where s.stage = any (stages);
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
comment on function holdfast._forget_staged is 'Remove the rows of these stages; returns how many';

create or replace function holdfast._send_once(queue holdfast.queue, write_id text, stages bigint[], messages bigint, replayed boolean)
returns table (sent bigint, repeated boolean) language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
  v_all bigint[];
  v_taken holdfast.write;
  v_lanes regclass[];
  v_singly boolean := false;
  v_bare boolean;
  v_stage bigint;
  v_stored bigint := 0;
  v_xid xid8;
begin
  if _send_once.messages is null then
    perform holdfast._fail('QH231', 'staged messages are missing', 'Got null for their number.', 'messages takes how many there must be.');
  end if;
  insert into holdfast.write (queue_id, id, messages, sent_at) values (queue.id, _send_once.write_id, _send_once.messages, v_now)
  on conflict do nothing;
  if not found then
    select w.* into v_taken from holdfast.write w where w.queue_id = queue.id and w.id = _send_once.write_id;
  end if;
  v_all := array(select t.id from holdfast.stage t where t.queue_id = queue.id and t.write_id = _send_once.write_id and t.opened_by = session_user);
  if v_taken.id is null then
    stages := holdfast._hold_stages(stages, queue.id, _send_once.write_id);
    -- Payloads and nothing else are most writes, and there is nothing to lock or to choose for them.
    v_bare := not replayed and queue.ordering is distinct from 'strict' and queue.seal_key is null
      and not exists (select from holdfast.staged s where s.stage = any (stages) and holdfast._has_options(s));
    if not v_bare then
      v_singly := holdfast._lock_staged(queue, stages);
      v_lanes := holdfast._staged_lanes(queue, stages);
    end if;
    -- Of messages with keys each that adds one asks for itself. A replay passes, as in SQL.
    if queue.max_depth is not null and not v_singly and not replayed and _send_once.messages > 0 then
      perform holdfast._check_depth(queue, _send_once.messages);
    end if;
    v_xid := pg_current_xact_id();
    lock table holdfast.message in row exclusive mode;
    foreach v_stage in array stages loop
      v_stored := v_stored + case when v_bare then holdfast._store_payloads(queue, v_stage, v_now)
                                  when replayed then holdfast._store_replayed(queue, v_stage, v_lanes, v_now)
                                  when v_singly then holdfast._store_staged_keys(queue, v_stage, v_now)
                                  else holdfast._store_staged(queue, v_stage, v_lanes, v_now) end;
    end loop;
    if v_stored is distinct from _send_once.messages then
      perform holdfast._fail('QH231', 'staged messages are missing', format('%s of %s are there.', v_stored, _send_once.messages),
        'The server was restarted, or the write took over a day: run it again. Nothing was sent.');
    end if;
    perform holdfast._wake(queue);
  end if;
  perform holdfast._forget_staged(v_all);
  return query select coalesce(v_taken.messages, v_stored), v_taken.id is not null;
end $$;
comment on function holdfast._send_once is
  'Send what lies in these stages, unless a write of this name was sent before, and remove all rows of the write. replayed: they are messages of an archive';

create or replace function holdfast.send_staged(queue text, write_id text, stages bigint[], messages bigint)
returns table (sent bigint, repeated boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_staged.queue);
begin
  perform holdfast._check_write(send_staged.write_id);
  perform holdfast._check_isolation('send_staged');
  return query select o.sent, o.repeated from holdfast._send_once(v_queue, send_staged.write_id, stages, send_staged.messages, false) o;
end $$;
comment on function holdfast.send_staged is
  'Send what lies in these stages, in their order, if no write of this name was sent before, and remove all rows of the write. messages: how many there must be';

create or replace function holdfast.writes(queue text, prefix text, "limit" int default 1000, after text default '')
returns table (write_id text, messages bigint, sent_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(writes.queue);
begin
  perform holdfast._check_limit("limit");
  return query
    select w.id, w.messages, w.sent_at from holdfast.write w
    where w.queue_id = v_queue.id and w.id > writes.after and starts_with(w.id, writes.prefix) order by w.id limit writes."limit";
end $$;
comment on function holdfast.writes is 'The writes to a queue whose names begin so, in the order of their names, from the one after a name on';

create or replace function holdfast.drop_staged(run text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  return holdfast._forget_staged(holdfast._hold_stages(array(select t.id from holdfast.stage t where t.run = drop_staged.run)));
end $$;
comment on function holdfast.drop_staged is 'Remove all rows that this user has staged by this run of a write; returns how many';

create or replace function holdfast._tidy_stages(at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_old bigint[];
  v_gone int;
begin
  -- One at a time; whoever comes second has nothing to do.
  if not pg_try_advisory_xact_lock(holdfast._stage_lock(), 0) then
    return '{"unstaged": 0, "more": false}';
  end if;
  v_old := array(select t.id from holdfast.stage t where t.opened_at < at - interval '1 day' order by t.opened_at limit 1000 for update skip locked);
  delete from holdfast.staged s where (s.stage, s.n) in (
    select s.stage, s.n from unnest(v_old) o(stage) cross join lateral (
      select s.stage, s.n from holdfast.staged s where s.stage = o.stage order by s.n limit 10000) s limit 10000);
  get diagnostics v_gone = row_count;
  if v_gone < 10000 then
    delete from holdfast.stage t where t.id = any (v_old);
  end if;
  delete from holdfast.write w where (w.queue_id, w.id) in (
    select w.queue_id, w.id from holdfast.write w where w.sent_at < at - interval '30 days' order by w.sent_at limit 1000);
  return jsonb_build_object('unstaged', v_gone, 'more', v_gone >= 10000 or cardinality(v_old) >= 1000);
end $$;
comment on function holdfast._tidy_stages is
  'Remove stages that are a day old, with at most 10,000 of their rows, and the names of writes that are 30 days old; unstaged: how many rows';
