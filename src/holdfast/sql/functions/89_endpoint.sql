-- Webhook endpoints: where the messages of a queue go.
--
--   create_endpoint      with its queue, if that is not there
--   configure_endpoint   null takes a field back to its default
--   rotate_secret        another signing secret; the old ones sign too, for a while
--   enable_endpoint, disable_endpoint
--   drop_endpoint        with its queue, or without
--   endpoints, endpoint_info
--   dispatch_endpoints   for dispatchers: what it takes to deliver
--
-- Tables: endpoint, endpoint_secret. An endpoint consumes a queue, and no other consumes it too. How many attempts there are, how
-- many deliveries a second, and whether they keep an order are settings of that queue alone (max_deliveries, throughput_limit, ordering):
-- claims see to them, for all dispatchers together.
-- No secret comes here in clear: they are sealed by who passes them, and what is not is refused. Durations are kept in seconds.
-- Every change is announced on the channel holdfast_endpoint.
-- Lock order: the endpoint, then its queue, as of 30_queue.sql; then its breaker.

create or replace function holdfast._builtin_endpoint() returns jsonb language sql immutable
  return '{"method": "POST", "headers": {}, "timeout": 10, "connect_timeout": 5,
           "retry": {"strategy": "exponential", "base": 10, "factor": 2, "increment": 30, "cap": 300, "jitter": 0.1, "retry_after": true},
           "concurrency": 10, "cloudevents": "off", "cloudevents_type": null, "cloudevents_source": "/holdfast",
           "capture_response": false, "capture_limit": 65536, "disable_on_gone": true, "allow": [],
           "breaker": {"threshold": 10, "cooldown": 30}, "keep_attempts": 604800}'::jsonb;
comment on function holdfast._builtin_endpoint is 'The configuration of an endpoint of which nothing was said';

create or replace function holdfast._no_endpoint(endpoint text) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH870', format('endpoint %s does not exist', coalesce('"' || left(_no_endpoint.endpoint, 200) || '"', 'null')),
    'Endpoints are made explicitly.', 'Create it with holdfast.create_endpoint, or check the spelling.');
end $$;
comment on function holdfast._no_endpoint is 'Raise: no such endpoint';

create or replace function holdfast._endpoint(endpoint text) returns holdfast.endpoint language plpgsql stable
as $$
declare
  v_endpoint holdfast.endpoint;
begin
  select e.* into v_endpoint from holdfast.endpoint e where e.name = _endpoint.endpoint;
  if not found then
    perform holdfast._no_endpoint(_endpoint.endpoint);
  end if;
  return v_endpoint;
end $$;
comment on function holdfast._endpoint is 'An endpoint by its name, or an error';

create or replace function holdfast._locked_endpoint(endpoint text) returns holdfast.endpoint language plpgsql volatile
as $$
declare
  v_endpoint holdfast.endpoint;
begin
  select e.* into v_endpoint from holdfast.endpoint e where e.name = _locked_endpoint.endpoint for update;
  if not found then
    perform holdfast._no_endpoint(_locked_endpoint.endpoint);
  end if;
  return v_endpoint;
end $$;
comment on function holdfast._locked_endpoint is 'An endpoint by its name, locked, or an error';

create or replace function holdfast._tell_of_endpoint(endpoint text) returns void language plpgsql volatile
as $$
begin
  perform pg_notify('holdfast_endpoint', _tell_of_endpoint.endpoint);
end $$;
comment on function holdfast._tell_of_endpoint is 'Tell dispatchers that what they know of an endpoint is out of date';

create or replace function holdfast._endpoint_event(endpoint_id int, event text, reason text) returns void language plpgsql volatile
as $$
begin
  insert into holdfast.endpoint_event (endpoint_id, at, event, reason)
  values (_endpoint_event.endpoint_id, holdfast.now(), _endpoint_event.event, left(_endpoint_event.reason, 1000));
end $$;
comment on function holdfast._endpoint_event is 'Write down what has happened to an endpoint';

create or replace function holdfast._seal_secrets(endpoint_id int, sealed text, at timestamptz, overlap interval) returns timestamptz
language plpgsql volatile
as $$
declare
  v_until timestamptz;
begin
  delete from holdfast.endpoint_secret s
  where s.endpoint_id = _seal_secrets.endpoint_id and (overlap = interval '0' or s.expires_at <= at);
  update holdfast.endpoint_secret s set expires_at = least(s.expires_at, at + overlap) where s.endpoint_id = _seal_secrets.endpoint_id;
  -- Five sign at a time: what a receiver has to try is bounded, too.
  delete from holdfast.endpoint_secret s where s.id in (
    select o.id from holdfast.endpoint_secret o where o.endpoint_id = _seal_secrets.endpoint_id order by o.id desc offset 4);
  if _seal_secrets.sealed is not null then
    insert into holdfast.endpoint_secret (endpoint_id, sealed, created_at) values (_seal_secrets.endpoint_id, _seal_secrets.sealed, at);
  end if;
  select max(s.expires_at) into v_until from holdfast.endpoint_secret s where s.endpoint_id = _seal_secrets.endpoint_id;
  return v_until;
end $$;
comment on function holdfast._seal_secrets is 'Let this secret sign from now on (null: none), and the old ones for overlap; returns until when';

create or replace function holdfast._queue_fields(config jsonb) returns jsonb language sql immutable
  return case when config ? 'rate_limit' then jsonb_build_object('throughput_limit', config -> 'rate_limit') else '{}' end
         || case when config ? 'ordering' then jsonb_build_object('ordering', config -> 'ordering') else '{}' end
         || case when config -> 'retry' ? 'max_attempts' then jsonb_build_object('max_deliveries', coalesce(nullif(config #> '{retry,max_attempts}', 'null'), '10')) else '{}' end;
comment on function holdfast._queue_fields is 'What of the configuration of an endpoint is one of its queue';

create or replace function holdfast._merge_endpoint(base jsonb, change jsonb) returns jsonb language sql immutable
  return coalesce((select jsonb_object_agg(e.key, e.value) from (
    select m.key, case when m.key in ('retry', 'breaker') and m.value <> 'null'
                       then jsonb_strip_nulls(coalesce(nullif(base -> m.key, 'null'), '{}') || m.value) else m.value end as value
    from jsonb_each(base || (change - '{url,signing_secret,auth,rate_limit,ordering}'::text[])) m
  ) e where e.value not in ('null', '{}')), '{}') #- '{retry,max_attempts}';
comment on function holdfast._merge_endpoint is 'Overrides after a change: null takes a field back, retry and breaker merge field by field';

create or replace function holdfast._filled_endpoint(config jsonb) returns jsonb language sql immutable
  return holdfast._builtin_endpoint() || config
         || jsonb_build_object('retry', (holdfast._builtin_endpoint() -> 'retry') || coalesce(config -> 'retry', '{}'),
                               'breaker', (holdfast._builtin_endpoint() -> 'breaker') || coalesce(config -> 'breaker', '{}'));
comment on function holdfast._filled_endpoint is 'Overrides laid over the built-in configuration of an endpoint';

create or replace function holdfast._allowed(config jsonb) returns text[] language sql immutable
  return array(select jsonb_array_elements_text(coalesce(config -> 'allow', '[]')));
comment on function holdfast._allowed is 'What an endpoint may connect to beside public addresses';

create or replace function holdfast._endpoint_config(endpoint holdfast.endpoint, queue holdfast.queue) returns jsonb language sql immutable
  return (select jsonb_set(f.config, '{retry,max_attempts}', to_jsonb((queue).max_deliveries))
                 || jsonb_build_object('connect_timeout', least(f.config -> 'connect_timeout', f.config -> 'timeout'), 'rate_limit', (queue).throughput_limit, 'ordering', coalesce((queue).ordering, 'none'))
          from (select holdfast._filled_endpoint((endpoint).config) as config) f);
comment on function holdfast._endpoint_config is 'The configuration of an endpoint that holds, with what its queue says';

create or replace function holdfast._same_endpoint(endpoint holdfast.endpoint, config jsonb, queue text) returns void language plpgsql stable
as $$
declare
  v_queue holdfast.queue;
  v_differs text;
begin
  select q.* into v_queue from holdfast.queue q where q.id = endpoint.queue_id;
  v_differs := case
    when v_queue.name <> _same_endpoint.queue then format('It consumes the queue "%s".', v_queue.name)
    when endpoint.url <> config ->> 'url' then 'It has another url.'
    when config ?| '{signing_secret,auth}' then 'What is sealed cannot be compared.'
    when endpoint.config <> holdfast._merge_endpoint('{}', holdfast._normal_endpoint(config))
      then holdfast._config_difference(endpoint.config, holdfast._merge_endpoint('{}', holdfast._normal_endpoint(config)))
    when not v_queue.config @> jsonb_strip_nulls(holdfast._queue_fields(config)) then holdfast._config_difference(v_queue.config, v_queue.config || holdfast._queue_fields(config)) end;
  if v_differs is not null then
    perform holdfast._fail('QH871', format('endpoint "%s" exists with another configuration', endpoint.name), v_differs,
      'Change it with holdfast.configure_endpoint, and its secret with holdfast.rotate_secret.');
  end if;
end $$;
comment on function holdfast._same_endpoint is 'Refuse to make an endpoint that is there and another one';

create or replace function holdfast._endpoint_queue(queue text, config jsonb) returns int language plpgsql volatile
as $$
declare
  v_queue holdfast.queue;
  v_other text;
begin
  if not exists (select from holdfast.queue q where q.name = _endpoint_queue.queue) then
    perform holdfast.create_queue(_endpoint_queue.queue, '{"max_deliveries": 10}' || holdfast._queue_fields(config));
  elsif holdfast._queue_fields(config) <> '{}' then
    perform holdfast._work_queue(_endpoint_queue.queue);
    perform holdfast.configure_queue(_endpoint_queue.queue, holdfast._queue_fields(config));
  end if;
  v_queue := holdfast._work_queue(_endpoint_queue.queue);
  select e.name into v_other from holdfast.endpoint e where e.queue_id = v_queue.id;
  if found then
    perform holdfast._fail('QH875', format('the endpoint "%s" consumes the queue "%s"', v_other, v_queue.name),
      'A queue has one endpoint at most.', 'Name another queue; holdfast.publish sends a message to the queues of several endpoints.');
  end if;
  return v_queue.id;
end $$;
comment on function holdfast._endpoint_queue is 'The queue that an endpoint is to consume, made or configured as it says';

create or replace function holdfast.create_endpoint(endpoint text, config jsonb, queue text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_queue text := coalesce(create_endpoint.queue, create_endpoint.endpoint);
  v_there holdfast.endpoint;
  v_config jsonb;
  v_id int;
begin
  perform holdfast._check_endpoint_name(create_endpoint.endpoint);
  perform holdfast._check_endpoint_config(create_endpoint.config);
  perform holdfast._check_name(v_queue);
  v_config := holdfast._merge_endpoint('{}', holdfast._normal_endpoint(create_endpoint.config));
  perform holdfast._check_url(create_endpoint.config ->> 'url', holdfast._allowed(v_config));
  select e.* into v_there from holdfast.endpoint e where e.name = create_endpoint.endpoint;
  if found then
    perform holdfast._same_endpoint(v_there, create_endpoint.config, v_queue);
    return false;
  end if;
  insert into holdfast.endpoint (name, queue_id, url, config, auth, created_at, changed_at)
  values (create_endpoint.endpoint, holdfast._endpoint_queue(v_queue, create_endpoint.config), create_endpoint.config ->> 'url', v_config,
          nullif(create_endpoint.config -> 'auth', 'null'), v_now, v_now)
  on conflict (name) do nothing returning id into v_id;
  if v_id is null then
    -- Somebody was faster, and has committed by now.
    perform holdfast._same_endpoint(holdfast._locked_endpoint(create_endpoint.endpoint), create_endpoint.config, v_queue);
    return false;
  end if;
  insert into holdfast.endpoint_breaker (endpoint_id) values (v_id);
  perform holdfast._seal_secrets(v_id, create_endpoint.config ->> 'signing_secret', v_now, '0');
  perform holdfast._tell_of_endpoint(create_endpoint.endpoint);
  return true;
end $$;
comment on function holdfast.create_endpoint is
  'Deliver the messages of a queue (null: one of the endpoint''s name) to a URL; the queue is made if it is not there. true: made; false: it was there, with this configuration';

create or replace function holdfast.configure_endpoint(endpoint text, config jsonb) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_endpoint holdfast.endpoint;
  v_queue holdfast.queue;
begin
  perform holdfast._check_endpoint_config(configure_endpoint.config);
  v_endpoint := holdfast._locked_endpoint(configure_endpoint.endpoint);
  v_endpoint.config := holdfast._merge_endpoint(v_endpoint.config, holdfast._normal_endpoint(configure_endpoint.config));
  v_endpoint.url := case when configure_endpoint.config ? 'url' then configure_endpoint.config ->> 'url' else v_endpoint.url end;
  perform holdfast._check_url(v_endpoint.url, holdfast._allowed(v_endpoint.config));
  if holdfast._queue_fields(configure_endpoint.config) <> '{}' then
    perform holdfast.configure_queue(q.name, holdfast._queue_fields(configure_endpoint.config)) from holdfast.queue q where q.id = v_endpoint.queue_id;
  end if;
  if configure_endpoint.config ? 'signing_secret' then
    perform holdfast._seal_secrets(v_endpoint.id, configure_endpoint.config ->> 'signing_secret', v_now, '0');
  end if;
  update holdfast.endpoint e set
    url = v_endpoint.url, config = v_endpoint.config, version = e.version + 1, changed_at = v_now,
    auth = case when configure_endpoint.config ? 'auth' then nullif(configure_endpoint.config -> 'auth', 'null') else e.auth end
  where e.id = v_endpoint.id returning e.* into v_endpoint;
  perform holdfast._tell_of_endpoint(v_endpoint.name);
  select q.* into v_queue from holdfast.queue q where q.id = v_endpoint.queue_id;
  return (holdfast._endpoint_info(v_endpoint, v_queue, v_now)).config;
end $$;
comment on function holdfast.configure_endpoint is
  'Change the configuration of an endpoint; null takes a field back to its default, retry and breaker field by field. Returns what holds now, without secrets';

create or replace function holdfast.rotate_secret(endpoint text, sealed text, overlap interval default '24 hours') returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_endpoint holdfast.endpoint;
  v_until timestamptz;
begin
  perform holdfast._check_sealed_field('sealed', to_jsonb(rotate_secret.sealed));
  if (overlap between interval '0' and interval '90 days') is not true then
    perform holdfast._fail('QH872', 'overlap is out of range', format('Got %s.', coalesce(overlap::text, 'null')), 'The old secrets sign too for 0 seconds to 90 days.');
  end if;
  v_endpoint := holdfast._locked_endpoint(rotate_secret.endpoint);
  v_until := holdfast._seal_secrets(v_endpoint.id, rotate_secret.sealed, holdfast.now(), overlap);
  update holdfast.endpoint e set version = e.version + 1, changed_at = holdfast.now() where e.id = v_endpoint.id;
  perform holdfast._tell_of_endpoint(v_endpoint.name);
  return v_until;
end $$;
comment on function holdfast.rotate_secret is
  'Sign deliveries with this secret from now on, and with the old ones too for overlap; returns until when, null if there was none. Five sign at most';

create or replace function holdfast._switch_endpoint(endpoint holdfast.endpoint, "on" boolean, reason text) returns boolean language plpgsql volatile
as $$
begin
  update holdfast.endpoint e set
    enabled = "on", disabled_reason = case when not "on" then left(_switch_endpoint.reason, 1000) end,
    disabled_at = case when not "on" then holdfast.now() end, version = e.version + 1, changed_at = holdfast.now()
  where e.id = endpoint.id and e.enabled <> "on";
  if found then
    perform holdfast._endpoint_event(endpoint.id, case when "on" then 'enabled' else 'disabled' end, _switch_endpoint.reason);
    perform holdfast._tell_of_endpoint(endpoint.name);
  end if;
  return found;
end $$;
comment on function holdfast._switch_endpoint is 'Enable or disable an endpoint; false: it was so';

create or replace function holdfast.enable_endpoint(endpoint text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return holdfast._switch_endpoint(holdfast._locked_endpoint(enable_endpoint.endpoint), true, null);
end $$;
comment on function holdfast.enable_endpoint is 'Deliver to this endpoint again; false: it was enabled';

create or replace function holdfast.disable_endpoint(endpoint text, reason text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return holdfast._switch_endpoint(holdfast._locked_endpoint(disable_endpoint.endpoint), false, disable_endpoint.reason);
end $$;
comment on function holdfast.disable_endpoint is 'Deliver nothing more to this endpoint; its messages wait, and events are not published to it. false: it was disabled';

create or replace function holdfast.drop_endpoint(endpoint text, with_queue boolean default false) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue int;
begin
  delete from holdfast.endpoint e where e.name = drop_endpoint.endpoint returning e.queue_id into v_queue;
  if not found then
    return false;
  end if;
  if with_queue then
    perform holdfast.drop_queue(q.name) from holdfast.queue q where q.id = v_queue;
  end if;
  perform holdfast._tell_of_endpoint(drop_endpoint.endpoint);
  return true;
end $$;
comment on function holdfast.drop_endpoint is
  'Remove an endpoint, its secrets and subscriptions; its queue stays with its messages, unless with_queue. false: no such endpoint';

create or replace function holdfast._check_unconsumed(queue holdfast.queue) returns void language plpgsql stable
as $$
declare
  v_endpoint text;
begin
  select e.name into v_endpoint from holdfast.endpoint e where e.queue_id = queue.id;
  if found then
    perform holdfast._fail('QH875', format('the endpoint "%s" consumes the queue "%s"', v_endpoint, queue.name),
      'A queue cannot be dropped while an endpoint consumes it.', 'Drop the endpoint first, with holdfast.drop_endpoint; it can take the queue along.');
  end if;
end $$;
comment on function holdfast._check_unconsumed is 'Refuse to drop a queue that an endpoint consumes';

create or replace function holdfast._endpoint_info(endpoint holdfast.endpoint, queue holdfast.queue, at timestamptz) returns holdfast.endpoint_info
language sql stable
  return ((endpoint).name, (queue).name, (endpoint).url, (endpoint).enabled, (endpoint).disabled_reason, (endpoint).disabled_at,
          holdfast._endpoint_config(endpoint, queue) || jsonb_build_object('auth', (endpoint).auth - '{password,token}'::text[]),
          (select coalesce(jsonb_agg(jsonb_build_object('id', s.id::text, 'created_at', s.created_at, 'expires_at', s.expires_at) order by s.id desc), '[]')
           from holdfast.endpoint_secret s where s.endpoint_id = (endpoint).id and coalesce(s.expires_at > at, true)),
          (endpoint).created_at, (endpoint).changed_at)::holdfast.endpoint_info;
comment on function holdfast._endpoint_info is 'An endpoint without its secrets';

create or replace function holdfast.endpoints() returns setof holdfast.endpoint_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._endpoint_info(e, q, holdfast.now())).*
    from holdfast.endpoint e join holdfast.queue q on q.id = e.queue_id order by e.name collate "C";
end $$;
comment on function holdfast.endpoints is 'All endpoints, with the configuration that holds, without their secrets';

create or replace function holdfast.endpoint_info(endpoint text) returns setof holdfast.endpoint_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._endpoint_info(e, q, holdfast.now())).*
    from holdfast.endpoint e join holdfast.queue q on q.id = e.queue_id where e.name = endpoint_info.endpoint;
end $$;
comment on function holdfast.endpoint_info is 'One endpoint, as endpoints() has it; no row: there is none';

create or replace function holdfast.dispatch_endpoints(endpoints text[] default null) returns setof holdfast.endpoint_target
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  return query
    select e.name, q.name, e.enabled, e.url, e.version, holdfast._endpoint_config(e, q),
           array(select s.sealed from holdfast.endpoint_secret s
                 where s.endpoint_id = e.id and coalesce(s.expires_at > v_now, true) order by s.id desc),
           e.auth
    from holdfast.endpoint e join holdfast.queue q on q.id = e.queue_id
    where dispatch_endpoints.endpoints is null or e.name = any (dispatch_endpoints.endpoints)
    order by e.name collate "C";
end $$;
comment on function holdfast.dispatch_endpoints is 'For dispatchers: what it takes to deliver to endpoints (null: to all), the disabled ones too; secrets are sealed, the newest first';

create or replace function holdfast.endpoint_events(endpoint text, "limit" int default 100)
returns table (at timestamptz, event text, reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_endpoint holdfast.endpoint := holdfast._endpoint(endpoint_events.endpoint);
begin
  perform holdfast._check_limit("limit");
  return query select n.at, n.event, n.reason from holdfast.endpoint_event n where n.endpoint_id = v_endpoint.id order by n.endpoint_id desc, n.id desc limit "limit";
end $$;
comment on function holdfast.endpoint_events is 'How the breaker of an endpoint moved, and when it was enabled or disabled, and why; the last first';
