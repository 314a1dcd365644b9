-- Repairs: dead letters that were read in bulk, mended elsewhere, and are sent back as they should have been.
--
--   open_stage       a place for rows, as in a write (52_stage.sql)
--   (insert)         into holdfast.staged, by COPY: n is the id of a dead letter, the columns are what it is to have
--   check_redrive    takes out the rows whose changes a send would refuse, and says why
--   gather_staged    brings the rows of several stages into one
--   redrive_staged   sends the next of them back, in the order of their ids
--
-- A dead letter is mended and moved in one transaction, if it is still dead and in nobody's hands: so it goes once, however
-- often and by however many it is asked for. All that redrive keeps and leaves, this keeps and leaves. What a row changes
-- must be what a send takes; what it leaves alone passes, as in redrive. columns says which columns of the rows count; payload
-- and body are one of them, and so are key and idempotency_key: to name one is to name both.
-- Lock order: the stage; then as in redrive: ordering keys, keys, idempotency keys, each by bucket; the lanes of the dead letters; rows.

create or replace function holdfast._check_repair(columns text[]) returns void language plpgsql immutable
as $$
declare
  v_unknown text;
begin
  select coalesce(c, 'null') into v_unknown from unnest(columns) c
  where (c <> all ('{payload,body,content_type,headers,priority,correlation_id,tag,max_deliveries,ordering_key,key,idempotency_key}')) is not false;
  if found or columns is null then
    perform holdfast._fail('QH232', 'a repair cannot replace this column', format('Got %s.', left(coalesce(v_unknown, 'null'), 100)),
      'columns takes some of payload, body, content_type, headers, priority, correlation_id, tag, max_deliveries, ordering_key, key, idempotency_key.');
  end if;
end $$;
comment on function holdfast._check_repair is 'Refuse bad names of columns to replace';

create or replace function holdfast._repaired(letter holdfast.message, mended holdfast.staged, columns text[]) returns text[] language sql stable
  return array_remove(array[
    case when columns && '{payload,body}' and (mended).payload is distinct from (letter).payload then 'payload' end,
    case when columns && '{payload,body}' and (mended).body is distinct from (letter).body then 'body' end,
    case when 'content_type' = any (columns) and (mended).content_type is distinct from (letter).content_type then 'content_type' end,
    case when 'headers' = any (columns) and (mended).headers is distinct from (letter).headers then 'headers' end,
    case when 'tag' = any (columns) and (mended).tag is distinct from (letter).tag then 'tag' end,
    case when 'correlation_id' = any (columns) and lower((mended).correlation_id) is distinct from (letter).correlation_id::text then 'correlation_id' end,
    case when 'priority' = any (columns) and (mended).priority is distinct from ((letter).origin ->> 'priority')::int then 'priority' end,
    case when 'max_deliveries' = any (columns) and (mended).max_deliveries is distinct from ((letter).origin ->> 'max_deliveries')::int then 'max_deliveries' end,
    case when 'ordering_key' = any (columns) and (mended).ordering_key is distinct from (letter).origin ->> 'ordering_key' then 'ordering_key' end,
    case when columns && '{key,idempotency_key}' and (mended).key is distinct from (letter).origin ->> 'key' then 'key' end,
    case when columns && '{key,idempotency_key}' and (mended).idempotency_key is distinct from (letter).origin ->> 'idempotency_key' then 'idempotency_key' end],
    null);
comment on function holdfast._repaired is 'Which columns of a dead letter a row changes';

create or replace function holdfast._changes(mended holdfast.staged, repaired text[]) returns holdfast.staged language sql stable
  return (
    (mended).stage, (mended).n,
    case when repaired && '{payload,body}' then (mended).payload end, case when repaired && '{payload,body}' then (mended).body end,
    case when 'content_type' = any (repaired) then (mended).content_type end, case when 'headers' = any (repaired) then (mended).headers end,
    case when 'priority' = any (repaired) then (mended).priority end, null, null, null, null,
    case when 'correlation_id' = any (repaired) then (mended).correlation_id end, case when 'tag' = any (repaired) then (mended).tag end,
    case when 'max_deliveries' = any (repaired) then (mended).max_deliveries end,
    case when 'ordering_key' = any (repaired) then (mended).ordering_key end,
    case when repaired && '{key,idempotency_key}' then (mended).key end,
    case when repaired && '{key,idempotency_key}' then (mended).idempotency_key end, null)::holdfast.staged;
comment on function holdfast._changes is 'A row with what it changes, and nothing else';

create or replace function holdfast._dubious_repairs(
  queue holdfast.queue, target holdfast.queue, stage bigint, after bigint, upto bigint, columns text[], at timestamptz)
returns table (change holdfast.staged, emptied boolean) language plpgsql stable
as $$
declare
  v_grave int := (select q.id from holdfast.queue q where q.name = queue.dead_letter);
begin
  return query
    select c.change, c.emptied from (
      select holdfast._changes(s, r.repaired) as change,
             r.repaired && '{payload,body}' and s.payload is null and s.body is null as emptied
      from holdfast.staged s
        cross join lateral (select m.* from holdfast.message m
                            where m.id = s.n and m.queue_id = v_grave and m.origin ->> 'queue' = queue.name offset 0) m
        cross join lateral (select holdfast._repaired(m, s, columns) as repaired offset 0) r
      where s.stage = _dubious_repairs.stage and s.n > _dubious_repairs.after and s.n <= _dubious_repairs.upto and r.repaired <> '{}'
      offset 0) c
    where c.emptied or holdfast._suspect(c.change, target.max_payload, false, target.ordering, target.priority_default, at,
      target.seal_key is not null and num_nonnulls((c.change).payload, (c.change).body) > 0);
end $$;
comment on function holdfast._dubious_repairs is
  'Rows of a stage, as what they change of dead letters, that a send may refuse. emptied: what had a payload or a body has none';

create or replace function holdfast._repair_refusal(
  change holdfast.staged, emptied boolean, target holdfast.queue, at timestamptz, out code text, out reason text)
language plpgsql stable
as $$
begin
  if emptied then
    code := 'QH203';
    reason := 'the repair leaves neither payload nor body: A message that had one has to keep one; JSON''s null is one.';
  else
    -- What it leaves alone may be there in clear: it was sent before the queue had a key.
    if num_nonnulls(change.payload, change.body) = 0 then
      target.seal_key := null;
    end if;
    select r.code, r.reason into _repair_refusal.code, _repair_refusal.reason from holdfast._refusal(change, target, at) r;
  end if;
end $$;
comment on function holdfast._repair_refusal is 'Why a change of a dead letter is refused; nulls: it is not';

create or replace function holdfast.check_redrive(
  queue text, stage bigint, columns text[], target text default null, after bigint default 0)
returns table (n bigint, code text, message text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(check_redrive.queue);
  v_target holdfast.queue := holdfast._redrive_target(v_queue, check_redrive.target);
  v_now timestamptz := holdfast.now();
  v_dubious record;
begin
  perform holdfast._check_buries(v_queue);
  perform holdfast._check_repair(columns);
  if holdfast._hold_stages(array[check_redrive.stage]) = '{}' then
    return;
  end if;
  for v_dubious in
    select d.change, d.emptied from holdfast._dubious_repairs(v_queue, v_target, check_redrive.stage, check_redrive.after, 9223372036854775807, columns, v_now) d
  loop
    select r.code, r.reason into check_redrive.code, check_redrive.message
    from holdfast._repair_refusal(v_dubious.change, v_dubious.emptied, v_target, v_now) r;
    continue when check_redrive.code is null;
    n := (v_dubious.change).n;
    return next;
    delete from holdfast.staged s where s.stage = check_redrive.stage and s.n = (v_dubious.change).n;
  end loop;
end $$;
comment on function holdfast.check_redrive is
  'Takes those rows out of a stage, from the one after an id on, whose changes of dead letters a send to the queue, or to target, would refuse; returns them with the reason';

create or replace function holdfast.gather_staged(stages bigint[], messages bigint) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_found bigint;
  v_twice bigint;
begin
  stages := holdfast._hold_stages(stages);
  v_found := (select count(*) from holdfast.staged s where s.stage = any (stages));
  if v_found is distinct from messages then
    perform holdfast._fail('QH231', 'staged messages are missing', format('%s of %s are there.', v_found, coalesce(messages::text, 'null')),
      'The server was restarted, or the write took over a day: run it again. Nothing was sent.');
  end if;
  if cardinality(stages) > 1 then
    select s.n into v_twice from holdfast.staged s where s.stage = any (stages) group by s.n having count(*) > 1 limit 1;
    if found then
      perform holdfast._fail('QH232', 'a dead letter is repaired in two ways', format('Message %s is there more than once.', v_twice),
        'Each dead letter may have one row.');
    end if;
    update holdfast.staged s set stage = stages[1] where s.stage = any (stages[2:]);
  end if;
  return stages[1];
end $$;
comment on function holdfast.gather_staged is
  'Bring the rows of several stages into the first of them, whose number it returns. messages: how many there must be. No two may have the same number';

create or replace function holdfast._mended(grave holdfast.queue, queue text, stage bigint, ids bigint[], columns text[])
returns table (id bigint, origin jsonb) language plpgsql stable
as $$
declare
  v_routing text[] := array(select r from unnest('{priority,max_deliveries,ordering_key,key,idempotency_key}'::text[]) r
    where r = any (columns) or (columns && '{key,idempotency_key}' and r in ('key', 'idempotency_key')));
begin
  return query
    select m.id, m.origin - v_routing || jsonb_strip_nulls(jsonb_build_object(
      'priority', case when 'priority' = any (v_routing) then s.priority end,
      'max_deliveries', case when 'max_deliveries' = any (v_routing) then s.max_deliveries end,
      'ordering_key', case when 'ordering_key' = any (v_routing) then s.ordering_key end,
      'key', case when 'key' = any (v_routing) then s.key end,
      'idempotency_key', case when 'idempotency_key' = any (v_routing) then s.idempotency_key end))
    from unnest(_mended.ids) i(id)
      cross join lateral (select m.id, m.origin from holdfast.message m
                          where m.id = i.id and m.queue_id = grave.id and m.origin ->> 'queue' = _mended.queue offset 0) m
      cross join lateral (select s.* from holdfast.staged s where s.stage = _mended.stage and s.n = i.id offset 0) s;
end $$;
comment on function holdfast._mended is 'Those of these messages that are dead letters of a queue, with their origins as they will be: where they go, and in which line';

create or replace function holdfast._mend(grave holdfast.queue, queue text, stage bigint, ids bigint[], columns text[]) returns void
language plpgsql volatile
as $$
begin
  update holdfast.message m set
    payload = case when columns && '{payload,body}' then s.payload else m.payload end,
    body = case when columns && '{payload,body}' then s.body else m.body end,
    content_type = case when 'content_type' = any (columns) then s.content_type else m.content_type end,
    headers = case when 'headers' = any (columns) then s.headers else m.headers end,
    tag = case when 'tag' = any (columns) then s.tag else m.tag end,
    correlation_id = case when 'correlation_id' = any (columns) then s.correlation_id::uuid else m.correlation_id end,
    origin = e.origin || jsonb_build_object('repaired', holdfast._repaired(m, s, columns))
  from holdfast.staged s, holdfast._mended(grave, _mend.queue, _mend.stage, _mend.ids, columns) e
  where s.stage = _mend.stage and s.n = e.id and m.id = e.id and holdfast._repaired(m, s, columns) <> '{}';
end $$;
comment on function holdfast._mend is 'Give locked dead letters what the rows of a stage say; origin.repaired names what has changed';

create or replace function holdfast._next_staged(stage bigint, after bigint, "limit" int, at timestamptz) returns bigint[] language plpgsql volatile
as $$
begin
  -- What is sent back slowly may take days; maintain() takes stages for abandoned that nobody has touched for one.
  update holdfast.stage t set opened_at = at where t.id = _next_staged.stage and t.opened_at < at - interval '1 hour';
  if holdfast._hold_stages(array[_next_staged.stage]) = '{}' then
    perform holdfast._fail('QH231', 'staged messages are missing', format('There is no stage %s.', coalesce(_next_staged.stage::text, 'null')),
      'The server was restarted, or nobody asked for a day: stage them anew. What was sent back is sent back.');
  end if;
  return array(select s.n from holdfast.staged s where s.stage = _next_staged.stage and s.n > _next_staged.after order by s.n limit _next_staged."limit");
end $$;
comment on function holdfast._next_staged is 'The numbers of the next rows of a stage, which is kept alive by this';

create or replace function holdfast.redrive_staged(
  queue text, stage bigint, columns text[] default '{}', target text default null, after bigint default 0, "limit" int default 1000)
returns table (id bigint, new_id bigint, stays text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(redrive_staged.queue);
  v_target holdfast.queue := holdfast._redrive_target(v_queue, redrive_staged.target);
  v_now timestamptz := holdfast.now();
  v_grave holdfast.queue;
  v_lanes int[];
  v_ids bigint[];
  v_dead bigint[];
  v_free bigint[];
  v_go bigint[];
begin
  perform holdfast._check_buries(v_queue);
  perform holdfast._check_limit("limit");
  perform holdfast._check_repair(columns);
  perform holdfast._check_isolation('redrive_staged');
  v_ids := holdfast._next_staged(redrive_staged.stage, redrive_staged.after, "limit", v_now);
  select q.* into v_grave from holdfast.queue q where q.name = v_queue.dead_letter;
  -- Before the lane locks: whoever has sent with one of these keys and is still open is waited for.
  perform holdfast._lock_keys(holdfast._line_lock(), v_target.id, array_agg(holdfast._line_in(v_target, e.origin))),
          holdfast._lock_keys(holdfast._key_lock(), v_target.id, array_agg(e.origin ->> 'key')),
          holdfast._lock_keys(holdfast._idempotency_lock(), v_target.id, array_agg(e.origin ->> 'idempotency_key'))
  from holdfast._mended(v_grave, v_queue.name, redrive_staged.stage, v_ids, columns) e;
  v_lanes := holdfast._await_graves(v_grave);
  v_dead := array(select e.id from holdfast._mended(v_grave, v_queue.name, redrive_staged.stage, v_ids, columns) e);
  v_free := holdfast._unheld(array(select i from unnest(v_dead) i where i >> 40 = any (v_lanes)));
  select holdfast._first_of_keys(v_target, array_agg(e.id), array_agg(e.origin - 'error')) into v_go
  from holdfast._mended(v_grave, v_queue.name, redrive_staged.stage, v_free, columns) e;
  if v_go <> '{}' and columns <> '{}' then
    perform holdfast._check_repairs(v_queue, v_target, redrive_staged.stage, redrive_staged.after, v_ids[cardinality(v_ids)], columns, v_now);
    perform holdfast._mend(v_grave, v_queue.name, redrive_staged.stage, v_go, columns);
  end if;
  if v_go <> '{}' then
    return query select b.id, b.new_id, null::text from holdfast._send_back(v_target, v_grave, v_go) b;
  end if;
  return query
    select i, null::bigint, case when i not in (select unnest(v_dead)) then 'gone' when i not in (select unnest(v_free)) then 'held' else 'key' end
    from unnest(v_ids) i where i not in (select unnest(v_go)) order by i;
end $$;
comment on function holdfast.redrive_staged is
  'Send the next dead letters of a stage back, or to target, with what its rows say of columns: those with the lowest ids above after. stays: why one was not: gone, held or key';

create or replace function holdfast._check_repairs(
  queue holdfast.queue, target holdfast.queue, stage bigint, after bigint, upto bigint, columns text[], at timestamptz) returns void
language plpgsql stable
as $$
declare
  v_bad record;
begin
  select (d.change).n as id, r.code, r.reason into v_bad
  from holdfast._dubious_repairs(queue, target, _check_repairs.stage, after, upto, columns, at) d
    cross join lateral holdfast._repair_refusal(d.change, d.emptied, target, at) r
  where r.code is not null limit 1;
  if found then
    perform holdfast._fail(v_bad.code, 'a repair is refused', format('Dead letter %s: %s', v_bad.id, v_bad.reason), 'Let check_redrive take out such rows first.');
  end if;
end $$;
comment on function holdfast._check_repairs is 'Refuse changes of dead letters that a send would refuse';
