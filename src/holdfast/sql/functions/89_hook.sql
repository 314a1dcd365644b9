-- Inbound hooks: where others post messages to.
--
--   create_hook       with its queue, if that is not there
--   configure_hook    null takes a field back to its default
--   rotate_hook       another slug, another secret, or both; the old ones count too, for a while
--   drop_hook         with its queue, or without
--   hooks, hook_info
--   hook_calls        the last calls
--   find_hooks        for servers: the hooks that hashes of slugs belong to
--   record_hook_calls for servers: what became of calls
--
-- Tables: hook, hook_slug, hook_secret, hook_call. The slug is all that a caller has to know, so it is kept as an API key is: whoever makes it passes
-- the hash, from which nobody gets back to it. Secrets come sealed or not at all, as those of endpoints. The queue of a hook is strict unless
-- somebody else has made it; how long a claim holds, how long a message lives and how often it is delivered are settings of that queue
-- alone. Every change is announced on the channel holdfast_hook.
-- Lock order: the hook, then its queue, as of 30_queue.sql.

create or replace function holdfast._builtin_hook() returns jsonb language sql immutable
  return '{"enabled": true, "tolerance": 300, "idempotency_header": null, "idempotency_window": 86400, "max_body": 1048576, "content_types": null,
           "drop_headers": [], "plan": null, "rate_limit": null, "burst": null, "keep_calls": 1000}'::jsonb;
comment on function holdfast._builtin_hook is 'The configuration of a hook of which nothing was said';

create or replace function holdfast._plan(plan text) returns jsonb language sql immutable
  return case plan
    when 'free' then '{"rate_limit": 10, "queue": {"ttl": "7 days", "max_deliveries": 3, "rate_limits": {"claim": 5, "settle": 10}}}'
    when 'pro' then '{"rate_limit": 100, "queue": {"ttl": "30 days", "max_deliveries": 10, "rate_limits": {"claim": 50, "settle": 100}}}'
    when 'enterprise' then '{"rate_limit": 1000, "queue": {"ttl": "90 days", "max_deliveries": 25, "rate_limits": {"claim": 500, "settle": 1000}}}'
    else '{"queue": {"ttl": null, "max_deliveries": null, "rate_limits": null}}' end::jsonb;
comment on function holdfast._plan is 'What a plan allows: calls of the hook a second, and what holds for its queue';

create or replace function holdfast._no_hook(hook text) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH880', format('hook %s does not exist', coalesce('"' || left(_no_hook.hook, 200) || '"', 'null')),
    'Hooks are made explicitly.', 'Create it with holdfast.create_hook, or check the spelling.');
end $$;
comment on function holdfast._no_hook is 'Raise: no such hook';

create or replace function holdfast._locked_hook(hook text) returns holdfast.hook language plpgsql volatile
as $$
declare
  v_hook holdfast.hook;
begin
  select h.* into v_hook from holdfast.hook h where h.name = _locked_hook.hook for update;
  if not found then
    perform holdfast._no_hook(_locked_hook.hook);
  end if;
  return v_hook;
end $$;
comment on function holdfast._locked_hook is 'A hook by its name, locked, or an error';

create or replace function holdfast._tell_of_hook(hook text) returns void language plpgsql volatile
as $$
begin
  perform pg_notify('holdfast_hook', _tell_of_hook.hook);
end $$;
comment on function holdfast._tell_of_hook is 'Tell servers that what they know of a hook is out of date';

create or replace function holdfast._room_for(body int) returns int language sql immutable
  return least(body + 65536, 67108864);
comment on function holdfast._room_for is 'How large a payload a queue has to take for such a body, which may be sealed';

create or replace function holdfast._hook_queue_fields(config jsonb) returns jsonb language sql immutable
  return case when config ? 'plan' then holdfast._plan(config ->> 'plan') -> 'queue' else '{}' end
         || case when config ? 'lock_timeout' then jsonb_build_object('lease', coalesce(nullif(config -> 'lock_timeout', 'null'), '300')) else '{}' end
         || case when config ? 'max_body' then jsonb_build_object('max_payload', holdfast._room_for(coalesce((config ->> 'max_body')::int, 1048576))) else '{}' end
         || case when config ? 'ttl' then jsonb_build_object('ttl', config -> 'ttl') else '{}' end
         || case when config ? 'max_deliveries' then jsonb_build_object('max_deliveries', config -> 'max_deliveries') else '{}' end;
comment on function holdfast._hook_queue_fields is 'What of the configuration of a hook is one of its queue';

create or replace function holdfast._merge_hook(base jsonb, change jsonb) returns jsonb language sql immutable
  return jsonb_strip_nulls(base || (change - '{signing_secret,lock_timeout,ttl,max_deliveries}'::text[]));
comment on function holdfast._merge_hook is 'Overrides after a change; null takes a field back';

create or replace function holdfast._called_config(hook holdfast.hook) returns jsonb language sql immutable
  return holdfast._builtin_hook() || (holdfast._plan((hook).config ->> 'plan') - 'queue') || (hook).config;
comment on function holdfast._called_config is 'The configuration of a hook that holds for calls';

create or replace function holdfast._hook_config(hook holdfast.hook, queue holdfast.queue) returns jsonb language sql immutable
  return holdfast._called_config(hook) || jsonb_build_object('lock_timeout', extract(epoch from (queue).lease)::float8, 'ttl', extract(epoch from (queue).ttl)::float8,
    'max_deliveries', (queue).max_deliveries, 'ordering', coalesce((queue).ordering, 'none'));
comment on function holdfast._hook_config is 'The configuration of a hook that holds, with what its queue says';

create or replace function holdfast._add_slug(hook_id int, prefix text, hash bytea, at timestamptz, overlap interval) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.hook_slug s where s.hook_id = _add_slug.hook_id and (overlap = interval '0' or s.expires_at <= at);
  update holdfast.hook_slug s set expires_at = least(s.expires_at, at + overlap) where s.hook_id = _add_slug.hook_id;
  delete from holdfast.hook_slug s where s.hash in (
    select o.hash from holdfast.hook_slug o where o.hook_id = _add_slug.hook_id order by o.created_at desc offset 4);
  insert into holdfast.hook_slug (hash, hook_id, prefix, created_at)
  values (_add_slug.hash, _add_slug.hook_id, _add_slug.prefix, at) on conflict do nothing;
  if not found then
    perform holdfast._fail('QH881', 'this slug is in use', 'A hook is, or was, called by it.', 'Take another, or none: then one is made.');
  end if;
end $$;
comment on function holdfast._add_slug is 'Let a hook be called by this slug from now on, and by the old ones for overlap; five at most';

create or replace function holdfast._add_hook_secret(hook_id int, sealed text, at timestamptz, overlap interval) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.hook_secret s where s.hook_id = _add_hook_secret.hook_id and (overlap = interval '0' or s.expires_at <= at);
  update holdfast.hook_secret s set expires_at = least(s.expires_at, at + overlap) where s.hook_id = _add_hook_secret.hook_id;
  delete from holdfast.hook_secret s where s.id in (
    select o.id from holdfast.hook_secret o where o.hook_id = _add_hook_secret.hook_id order by o.id desc offset 4);
  if _add_hook_secret.sealed is not null then
    insert into holdfast.hook_secret (hook_id, sealed, created_at) values (_add_hook_secret.hook_id, _add_hook_secret.sealed, at);
  end if;
end $$;
comment on function holdfast._add_hook_secret is 'Verify calls by this secret from now on (null: not at all), and by the old ones for overlap; five at most';

create or replace function holdfast._queue_of_hook(queue text, config jsonb) returns int language plpgsql volatile
as $$
declare
  v_fields jsonb := holdfast._hook_queue_fields(config);
begin
  if not exists (select from holdfast.queue q where q.name = _queue_of_hook.queue) then
    perform holdfast.create_queue(_queue_of_hook.queue, jsonb_build_object('ordering', 'strict', 'lease', 300, 'max_payload', holdfast._room_for(1048576)) || jsonb_strip_nulls(v_fields));
  elsif v_fields <> '{}' then
    perform holdfast._work_queue(_queue_of_hook.queue);
    perform holdfast.configure_queue(_queue_of_hook.queue, v_fields);
  end if;
  return (holdfast._work_queue(_queue_of_hook.queue)).id;
end $$;
comment on function holdfast._queue_of_hook is 'The queue that a hook is to fill, made or configured as it says';

create or replace function holdfast.create_hook(hook text, prefix text, hash bytea, config jsonb default '{}', queue text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_queue text := coalesce(create_hook.queue, create_hook.hook);
  v_config jsonb;
  v_id int;
begin
  perform holdfast._check_hook_name(create_hook.hook);
  perform holdfast._check_slug(create_hook.prefix, create_hook.hash);
  perform holdfast._check_hook_config(create_hook.config);
  perform holdfast._check_name(v_queue);
  v_config := holdfast._normal_hook(create_hook.config);
  if not exists (select from holdfast.hook h where h.name = create_hook.hook) then
    insert into holdfast.hook (name, queue_id, config, created_at, changed_at)
    values (create_hook.hook, holdfast._queue_of_hook(v_queue, v_config), holdfast._merge_hook('{}', v_config), v_now, v_now)
    on conflict (name) do nothing returning id into v_id;
  end if;
  if v_id is null then
    perform holdfast._fail('QH881', format('hook "%s" exists', create_hook.hook), 'Its slug is not told again.',
      'Change it with holdfast.configure_hook, and its slug with holdfast.rotate_hook.');
  end if;
  perform holdfast._add_slug(v_id, create_hook.prefix, create_hook.hash, v_now, '0');
  perform holdfast._add_hook_secret(v_id, v_config ->> 'signing_secret', v_now, '0');
  perform holdfast._tell_of_hook(create_hook.hook);
  return v_queue;
end $$;
comment on function holdfast.create_hook is
  'Let others post messages to a queue (null: one of the hook''s name, made if it is not there); returns its name. prefix: how the slug begins; hash: its SHA-256';

create or replace function holdfast.configure_hook(hook text, config jsonb) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_hook holdfast.hook;
  v_queue holdfast.queue;
  v_config jsonb;
begin
  perform holdfast._check_hook_config(configure_hook.config);
  v_config := holdfast._normal_hook(configure_hook.config);
  v_hook := holdfast._locked_hook(configure_hook.hook);
  if holdfast._hook_queue_fields(v_config) <> '{}' then
    perform holdfast.configure_queue(q.name, holdfast._hook_queue_fields(v_config)) from holdfast.queue q where q.id = v_hook.queue_id;
  end if;
  if v_config ? 'signing_secret' then
    perform holdfast._add_hook_secret(v_hook.id, v_config ->> 'signing_secret', v_now, '0');
  end if;
  update holdfast.hook h set config = holdfast._merge_hook(h.config, v_config), changed_at = v_now where h.id = v_hook.id returning h.* into v_hook;
  perform holdfast._tell_of_hook(v_hook.name);
  select q.* into v_queue from holdfast.queue q where q.id = v_hook.queue_id;
  return holdfast._hook_config(v_hook, v_queue);
end $$;
comment on function holdfast.configure_hook is 'Change the configuration of a hook; null takes a field back to its default. Returns what holds now, without secrets';

create or replace function holdfast.rotate_hook(
  hook text, prefix text default null, hash bytea default null, sealed text default null, overlap interval default '24 hours') returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_hook holdfast.hook;
begin
  if num_nonnulls(rotate_hook.prefix, rotate_hook.hash, rotate_hook.sealed) = 0 then
    perform holdfast._fail('QH882', 'there is nothing to rotate', 'Neither a slug nor a secret was passed.', 'Pass one of them, or both.');
  elsif num_nonnulls(rotate_hook.prefix, rotate_hook.hash) > 0 then
    perform holdfast._check_slug(rotate_hook.prefix, rotate_hook.hash);
  end if;
  if rotate_hook.sealed is not null then
    perform holdfast._check_sealed_field('sealed', to_jsonb(rotate_hook.sealed));
  end if;
  if (overlap between interval '0' and interval '90 days') is not true then
    perform holdfast._fail('QH882', 'overlap is out of range', format('Got %s.', coalesce(overlap::text, 'null')), 'What was before counts too for 0 seconds to 90 days.');
  end if;
  v_hook := holdfast._locked_hook(rotate_hook.hook);
  if rotate_hook.hash is not null then
    perform holdfast._add_slug(v_hook.id, rotate_hook.prefix, rotate_hook.hash, v_now, overlap);
  end if;
  if rotate_hook.sealed is not null then
    perform holdfast._add_hook_secret(v_hook.id, rotate_hook.sealed, v_now, overlap);
  end if;
  update holdfast.hook h set changed_at = v_now where h.id = v_hook.id;
  perform holdfast._tell_of_hook(v_hook.name);
  return (select max(e.expires_at) from (
    select s.expires_at from holdfast.hook_slug s where s.hook_id = v_hook.id and rotate_hook.hash is not null
    union all select s.expires_at from holdfast.hook_secret s where s.hook_id = v_hook.id and rotate_hook.sealed is not null) e);
end $$;
comment on function holdfast.rotate_hook is
  'Let a hook have another slug (prefix and hash), another secret, or both; those before count too for overlap. Returns until when, null if none does. Five of each at most';

create or replace function holdfast.drop_hook(hook text, with_queue boolean default false) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue int;
begin
  delete from holdfast.hook h where h.name = drop_hook.hook returning h.queue_id into v_queue;
  if not found then
    return false;
  end if;
  if with_queue then
    perform holdfast.drop_queue(q.name) from holdfast.queue q where q.id = v_queue;
  end if;
  perform holdfast._tell_of_hook(drop_hook.hook);
  return true;
end $$;
comment on function holdfast.drop_hook is
  'Remove a hook, its slugs, secrets and calls; its queue stays with its messages, unless with_queue. false: no such hook';

create or replace function holdfast._check_unfed(queue holdfast.queue) returns void language plpgsql stable
as $$
declare
  v_hook text;
begin
  select h.name into v_hook from holdfast.hook h where h.queue_id = queue.id order by h.id limit 1;
  if found then
    perform holdfast._fail('QH885', format('the hook "%s" fills the queue "%s"', v_hook, queue.name),
      'A queue cannot be dropped while a hook fills it.', 'Drop the hook first: holdfast.drop_hook, with_queue => true drops both.');
  end if;
end $$;
comment on function holdfast._check_unfed is 'Refuse to drop a queue that a hook fills';

create or replace function holdfast._hook_info(hook holdfast.hook, queue holdfast.queue, at timestamptz) returns holdfast.hook_info language sql stable
  return ((hook).name, (queue).name, (holdfast._called_config(hook) -> 'enabled')::boolean, holdfast._hook_config(hook, queue),
          (select coalesce(jsonb_agg(jsonb_build_object('prefix', s.prefix, 'created_at', s.created_at, 'expires_at', s.expires_at) order by s.created_at desc), '[]')
           from holdfast.hook_slug s where s.hook_id = (hook).id and coalesce(s.expires_at > at, true)),
          (select coalesce(jsonb_agg(jsonb_build_object('id', s.id::text, 'created_at', s.created_at, 'expires_at', s.expires_at) order by s.id desc), '[]')
           from holdfast.hook_secret s where s.hook_id = (hook).id and coalesce(s.expires_at > at, true)),
          (hook).created_at, (hook).changed_at)::holdfast.hook_info;
comment on function holdfast._hook_info is 'A hook without its slugs and secrets';

create or replace function holdfast.hooks() returns setof holdfast.hook_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._hook_info(h, q, holdfast.now())).*
    from holdfast.hook h join holdfast.queue q on q.id = h.queue_id order by h.name collate "C";
end $$;
comment on function holdfast.hooks is 'All hooks, with the configuration that holds, without their slugs and secrets';

create or replace function holdfast.hook_info(hook text) returns setof holdfast.hook_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._hook_info(h, q, holdfast.now())).*
    from holdfast.hook h join holdfast.queue q on q.id = h.queue_id where h.name = hook_info.hook;
end $$;
comment on function holdfast.hook_info is 'One hook, as hooks() has it; no row: there is none';

create or replace function holdfast.find_hooks(hashes bytea[]) returns setof holdfast.hook_target
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  return query
    select a.nth, h.name, q.name, holdfast._called_config(h),
           array(select s.sealed from holdfast.hook_secret s where s.hook_id = h.id and coalesce(s.expires_at > v_now, true) order by s.id desc),
           extract(epoch from l.expires_at - v_now)::float8
    from unnest(find_hooks.hashes) with ordinality a(hash, nth)
      join holdfast.hook_slug l on l.hash = a.hash and coalesce(l.expires_at > v_now, true)
      join holdfast.hook h on h.id = l.hook_id join holdfast.queue q on q.id = h.queue_id;
end $$;
comment on function holdfast.find_hooks is 'For servers: the hooks that slugs belong to, by their SHA-256, with what it takes to answer a call; no row: none';

create or replace function holdfast.record_hook_calls(calls jsonb) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_recorded int;
begin
  insert into holdfast.hook_call (hook_id, at, outcome, status, size, code, message_id)
  select h.id, c.at, c.outcome, c.status, c.size, c.code, c.id
  from jsonb_to_recordset(record_hook_calls.calls) c(hook text, at timestamptz, outcome text, status int, size bigint, code text, id bigint)
    join holdfast.hook h on h.name = c.hook order by c.at;
  get diagnostics v_recorded = row_count;
  return v_recorded;
end $$;
comment on function holdfast.record_hook_calls is 'For servers: write down what became of calls, a list of {hook, at, outcome, status, size, code, id}; those of hooks that are gone are left out. Returns how many';

create or replace function holdfast.hook_calls(hook text, "limit" int default 100, before bigint default null)
returns table (id bigint, at timestamptz, outcome text, status int, size bigint, code text, message_id bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_hook int;
begin
  perform holdfast._check_limit("limit");
  select h.id into v_hook from holdfast.hook h where h.name = hook_calls.hook;
  if not found then
    perform holdfast._no_hook(hook_calls.hook);
  end if;
  return query
    select c.id, c.at, c.outcome, c.status, c.size, c.code, c.message_id from holdfast.hook_call c
    where c.hook_id = v_hook and c.id < coalesce(hook_calls.before, 9223372036854775807) order by c.hook_id desc, c.id desc limit "limit";
end $$;
comment on function holdfast.hook_calls is 'The last calls of a hook, the last first; before: only those with a lower id';

create or replace function holdfast._forget_calls(at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  v_old int;
  v_over int;
begin
  delete from holdfast.hook_slug s where s.expires_at <= _forget_calls.at;
  delete from holdfast.hook_secret s where s.expires_at <= _forget_calls.at;
  delete from holdfast.hook_call c where c.ctid = any (array(
    select o.ctid from holdfast.hook_call o where o.at < _forget_calls.at - interval '30 days' order by o.at limit 10000 for update skip locked));
  get diagnostics v_old = row_count;
  delete from holdfast.hook_call c where c.ctid = any (array(
    select o.ctid from holdfast.hook h
      cross join lateral (select n.id from holdfast.hook_call n where n.hook_id = h.id order by n.hook_id desc, n.id desc
                          offset (holdfast._called_config(h) ->> 'keep_calls')::int limit 1) e
      join holdfast.hook_call o on o.hook_id = h.id and o.id <= e.id
    limit 10000 for update of o skip locked));
  get diagnostics v_over = row_count;
  return v_old >= 10000 or v_over >= 10000;
end $$;
comment on function holdfast._forget_calls is 'Remove calls of 30 days ago and those beyond keep_calls, 10,000 of each at most, and slugs and secrets whose time is over; true: there are more';
