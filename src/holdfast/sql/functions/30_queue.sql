-- Queues: create, configure, pause, drop.
--
-- A queue's configuration is a set of overrides; _effective() lays them over the global defaults, and the
-- result is kept in typed columns, so that the hot verbs read one row and compute nothing. Fields that are the business of
-- servers alone (claim_window, rate_limits, annotations) have no column: those read them here, remember them, and are told of every change
-- by a NOTIFY on the channel holdfast_config. That takes a lock at commit which all notifiers of the database share: these
-- verbs are rare enough.
-- Lock order: the defaults row, then queue rows by id, then lanes by id.

create or replace function holdfast._duration(field text, value jsonb) returns interval
language plpgsql stable
as $$
begin
  if jsonb_typeof(value) = 'number' then
    return make_interval(secs => value::text::float8);
  elsif jsonb_typeof(value) = 'string' then
    return (value #>> '{}')::interval;
  end if;
  raise exception using errcode = 'invalid_text_representation';
exception
  when data_exception then
    perform holdfast._fail('QH104', format('%s is not a duration', field), format('Got %s.', left(value::text, 100)),
      'Pass a number of seconds, or text such as "30 s" or "2 hours".');
end $$;
comment on function holdfast._duration is 'A duration out of a configuration';

create or replace function holdfast._check_field(field text, good boolean, value jsonb, expected text) returns void
language plpgsql immutable
as $$
begin
  if good is not true then
    perform holdfast._fail('QH104', format('bad value for %s', field), format('Got %s.', left(value::text, 100)),
      format('%s takes %s.', field, expected));
  end if;
end $$;
comment on function holdfast._check_field is 'Refuse a configuration field that is out of range';

create or replace function holdfast._whole(value jsonb, lo bigint, hi bigint) returns boolean language sql immutable
  return case when jsonb_typeof(value) = 'number'
              then (value #>> '{}')::numeric between lo and hi and (value #>> '{}')::numeric % 1 = 0 else false end;
comment on function holdfast._whole is 'Is this JSON value a whole number in the range';

create or replace function holdfast._check_config(config jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
  v_good boolean;
begin
  if jsonb_typeof(config) is distinct from 'object' then
    perform holdfast._fail('QH104', 'the configuration must be a JSON object', format('Got %s.', coalesce(left(config::text, 100), 'null')),
      'Pass for example {"lease": "30 s"}.');
  end if;
  for v_field, v_value in select e.key, e.value from jsonb_each(config) e where e.value <> 'null' loop
    case v_field
      when 'lease' then
        perform holdfast._check_field(v_field, holdfast._duration(v_field, v_value) between interval '100 ms' and interval '24 hours', v_value, '100 milliseconds to 24 hours');
      when 'max_deliveries' then
        perform holdfast._check_field(v_field, holdfast._whole(v_value, 0, 1000), v_value, '1 to 1,000, or 0 for no limit');
      when 'dead_letter' then
        v_good := v_value = 'false' or (jsonb_typeof(v_value) = 'string' and v_value #>> '{}' ~ '^[A-Za-z0-9._:-]{1,200}$');
        perform holdfast._check_field(v_field, v_good, v_value, 'the name of a queue, or false for none');
      when 'backoff' then
        perform holdfast._check_backoff(v_value);
      when 'ttl' then
        perform holdfast._check_field(v_field, holdfast._duration(v_field, v_value) between interval '1 ms' and interval '10 years', v_value, '1 millisecond to 10 years');
      when 'expire_in_flight' then
        perform holdfast._check_field(v_field, jsonb_typeof(v_value) = 'boolean', v_value, 'true or false');
      when 'keep' then
        v_good := jsonb_typeof(v_value) = 'array' and v_value <@ '["done", "expired", "failed", "discarded"]';
        perform holdfast._check_field(v_field, v_good, v_value, 'a list out of done, expired, failed, discarded');
      when 'keep_for' then
        perform holdfast._check_field(v_field, holdfast._duration(v_field, v_value) between interval '1 minute' and interval '366 days', v_value, '1 minute to 366 days');
      when 'max_depth' then
        perform holdfast._check_field(v_field, holdfast._whole(v_value, 1, 1000000000), v_value, '1 to 1,000,000,000');
      when 'kind' then
        perform holdfast._check_field(v_field, v_value in ('"queue"', '"log"'), v_value, '"queue" or "log"');
      when 'retention' then
        perform holdfast._check_retention(v_value);
      when 'throughput_limit' then
        v_good := jsonb_typeof(v_value) = 'number' and v_value between '0.001' and '1000000';
        perform holdfast._check_field(v_field, v_good, v_value, '0.001 to 1,000,000 messages a second');
      when 'priority_default' then
        perform holdfast._check_field(v_field, holdfast._whole(v_value, 0, 10), v_value, '0 to 10');
      when 'priorities' then
        v_good := jsonb_typeof(v_value) = 'array';
        if v_good then
          select coalesce(bool_and(holdfast._whole(p, 0, 10)), false) into v_good from jsonb_array_elements(v_value) p;
        end if;
        perform holdfast._check_field(v_field, v_good, v_value, 'a list of priorities from 0 to 10');
      when 'shards' then
        perform holdfast._check_field(v_field, holdfast._whole(v_value, 1, 16), v_value, '1 to 16');
      when 'notify' then
        perform holdfast._check_field(v_field, jsonb_typeof(v_value) = 'boolean', v_value, 'true or false');
      when 'max_payload' then
        perform holdfast._check_field(v_field, holdfast._whole(v_value, 1, 67108864), v_value, '1 to 67,108,864 bytes');
      when 'ordering' then
        perform holdfast._check_field(v_field, v_value in ('"none"', '"key"', '"strict"'), v_value, 'none, key or strict');
      when 'on_dead' then
        perform holdfast._check_field(v_field, v_value in ('"continue"', '"block"'), v_value, 'continue or block');
      when 'replaces' then
        perform holdfast._check_field(v_field, v_value in ('"unclaimed"', '"waiting"'), v_value, '"unclaimed" or "waiting"');
      when 'by_row' then
        perform holdfast._check_field(v_field, jsonb_typeof(v_value) = 'boolean', v_value, 'true or false');
      when 'budget' then
        perform holdfast._check_field(v_field, v_value in ('"deliveries"', '"failures"'), v_value, '"deliveries" or "failures"');
      when 'lapse_is_failure' then
        perform holdfast._check_field(v_field, jsonb_typeof(v_value) = 'boolean', v_value, 'true or false');
      when 'durability' then
        perform holdfast._check_field(v_field, v_value in ('"durable"', '"fast"'), v_value, '"durable" or "fast"');
      when 'claim_window' then
        perform holdfast._check_field(v_field, holdfast._duration(v_field, v_value) between interval '0' and interval '5 s', v_value, '0 to 5 seconds');
      when 'rate_limits' then
        perform holdfast._check_rate_limits(v_value);
      when 'annotations' then
        v_good := jsonb_typeof(v_value) = 'object' and octet_length(v_value::text) <= 16384;
        perform holdfast._check_field(v_field, v_good, v_value, 'an object of at most 16,384 bytes as text');
      else
        perform holdfast._fail('QH104', format('unknown field "%s" in the configuration', left(v_field, 100)), format('Got %s.', left(v_value::text, 100)),
          'Fields: kind, lease, max_deliveries, budget, lapse_is_failure, dead_letter, backoff, ttl, expire_in_flight, keep, keep_for, max_depth, throughput_limit, priority_default, priorities, shards, notify, max_payload, ordering, on_dead, replaces, by_row, durability, retention, claim_window, rate_limits, annotations.');
    end case;
  end loop;
end $$;
comment on function holdfast._check_config is 'Refuse a bad configuration';

create or replace function holdfast._check_backoff(backoff jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_field('backoff', jsonb_typeof(backoff) = 'object', backoff, 'an object {base, factor, cap, jitter}');
  for v_field, v_value in select e.key, e.value from jsonb_each(backoff) e loop
    case v_field
      when 'base', 'cap' then
        perform holdfast._check_field('backoff.' || v_field, holdfast._duration('backoff.' || v_field, v_value) between interval '0' and interval '1 year', v_value, '0 seconds to 1 year');
      when 'factor' then
        perform holdfast._check_field('backoff.factor', jsonb_typeof(v_value) = 'number' and v_value between '1' and '10', v_value, '1 to 10');
      when 'jitter' then
        perform holdfast._check_field('backoff.jitter', jsonb_typeof(v_value) = 'number' and v_value between '0' and '1', v_value, '0 to 1, a share of the delay');
      else
        perform holdfast._fail('QH104', format('unknown field "backoff.%s" in the configuration', left(v_field, 100)), format('Got %s.', left(v_value::text, 100)),
          'backoff takes base, factor, cap, jitter.');
    end case;
  end loop;
end $$;
comment on function holdfast._check_backoff is 'Refuse a bad backoff';

create or replace function holdfast._check_rate_limits(limits jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_field('rate_limits', jsonb_typeof(limits) = 'object', limits, 'an object {send, claim, settle}');
  for v_field, v_value in select e.key, e.value from jsonb_each(limits) e loop
    if v_field not in ('send', 'claim', 'settle') then
      perform holdfast._fail('QH104', format('unknown field "rate_limits.%s" in the configuration', left(v_field, 100)), format('Got %s.', left(v_value::text, 100)),
        'rate_limits takes send, claim, settle.');
    end if;
    perform holdfast._check_field('rate_limits.' || v_field,
      v_value = 'null' or (jsonb_typeof(v_value) = 'number' and v_value between '0.001' and '1000000'), v_value,
      '0.001 to 1,000,000 requests a second, or null for no limit');
  end loop;
end $$;
comment on function holdfast._check_rate_limits is 'Refuse bad rate limits';

create or replace function holdfast._builtin() returns jsonb language sql immutable
  return '{"kind": "queue", "lease": "30 s", "max_deliveries": 5, "dead_letter": null, "ttl": null, "expire_in_flight": false, "keep": [],
           "keep_for": "7 days", "max_depth": null, "throughput_limit": null,
           "backoff": {"base": "0 s", "factor": 2, "cap": "300 s", "jitter": 0},
           "priority_default": 0, "priorities": [0], "shards": 1, "notify": true, "max_payload": 1048576,
           "budget": "deliveries", "lapse_is_failure": false, "durability": "durable",
           "ordering": "none", "on_dead": "continue", "replaces": "unclaimed", "by_row": false, "retention": null,
           "claim_window": "0 s", "rate_limits": {"send": null, "claim": null, "settle": null},
           "annotations": {}}'::jsonb;
comment on function holdfast._builtin is 'The configuration of a queue of which nothing was said';

create or replace function holdfast._merge(base jsonb, change jsonb) returns jsonb language sql immutable
  return coalesce((select jsonb_object_agg(e.key, case when e.key in ('backoff', 'rate_limits', 'annotations') and base -> e.key <> 'null'
                                                       then (base -> e.key) || e.value else e.value end)
                   from jsonb_each(base || change) e where e.value <> 'null'), '{}');
comment on function holdfast._merge is 'Overrides after a change: null takes a field back, backoff, rate_limits and annotations merge field by field';

create or replace function holdfast._filled(merged jsonb) returns jsonb language sql immutable
  return holdfast._builtin() || merged
         || jsonb_build_object('backoff', (holdfast._builtin() -> 'backoff') || coalesce(merged -> 'backoff', '{}'),
                               'rate_limits', (holdfast._builtin() -> 'rate_limits') || coalesce(merged -> 'rate_limits', '{}'));
comment on function holdfast._filled is 'Overrides laid over the built-in configuration';

create or replace function holdfast._of_kind(effective jsonb) returns jsonb language sql immutable
  return case effective ->> 'kind' when 'log'
    then effective || (holdfast._builtin() - '{kind,retention,notify,max_depth,max_payload,rate_limits,annotations}'::text[]) || '{"dead_letter": false}'
    else effective || '{"retention": null}'
         || case when effective ->> 'ordering' = 'strict' or (effective ->> 'by_row')::boolean
              then jsonb_build_object('shards', 1, 'priorities', jsonb_build_array(effective -> 'priority_default')) else '{}' end end;
comment on function holdfast._of_kind is 'An effective configuration without what its kind of queue does not have: whatever the defaults say, a log has few settings, and a strict queue, or one with rows, has one lane';

create or replace function holdfast._effective(queue text, config jsonb) returns jsonb language sql stable
  return (select holdfast._of_kind(holdfast._filled(e.merged)
                 || jsonb_build_object('dead_letter', coalesce(e.merged -> 'dead_letter', to_jsonb(_effective.queue || '.dlq'))))
          from (select holdfast._merge(d.config, _effective.config) as merged from holdfast.defaults d) e);
comment on function holdfast._effective is 'The configuration that holds: built-in, then defaults, then the queue''s own';

create or replace function holdfast._apply(queue text, effective jsonb) returns void language plpgsql volatile
as $$
begin
  perform holdfast._check_field('dead_letter', effective -> 'dead_letter' <> to_jsonb(_apply.queue), effective -> 'dead_letter',
                                'another queue than this one');
  perform holdfast._check_grave(_apply.queue, effective);
  perform holdfast._check_ordering(_apply.queue, effective);
  update holdfast.queue q set
    kind = effective ->> 'kind',
    lease = holdfast._duration('lease', effective -> 'lease'),
    max_deliveries = (effective ->> 'max_deliveries')::numeric::int,
    dead_letter = case when effective -> 'dead_letter' <> 'false' then effective ->> 'dead_letter' end,
    backoff_base = extract(epoch from holdfast._duration('base', effective #> '{backoff,base}')),
    backoff_factor = (effective #>> '{backoff,factor}')::float8,
    backoff_cap = extract(epoch from holdfast._duration('cap', effective #> '{backoff,cap}')),
    backoff_jitter = (effective #>> '{backoff,jitter}')::float8,
    ttl = case when effective -> 'ttl' <> 'null' then holdfast._duration('ttl', effective -> 'ttl') end,
    expire_in_flight = (effective ->> 'expire_in_flight')::boolean,
    keep = array(select jsonb_array_elements_text(effective -> 'keep')),
    keep_for = holdfast._duration('keep_for', effective -> 'keep_for'),
    max_depth = (effective ->> 'max_depth')::numeric::bigint,
    throughput_limit = (effective ->> 'throughput_limit')::float8,
    priority_default = (effective ->> 'priority_default')::numeric::smallint,
    priorities = array(select p::text::numeric::smallint from jsonb_array_elements(effective -> 'priorities') p),
    shards = (effective ->> 'shards')::numeric::smallint,
    notify = (effective ->> 'notify')::boolean,
    max_payload = (effective ->> 'max_payload')::numeric::int,
    budget = effective ->> 'budget',
    lapse_is_failure = (effective ->> 'lapse_is_failure')::boolean,
    fast = case when effective ->> 'durability' = 'fast' then true end,
    ordering = nullif(effective ->> 'ordering', 'none'),
    on_dead = effective ->> 'on_dead',
    replaces = effective ->> 'replaces',
    row_of = case when (effective ->> 'by_row')::boolean then q.name end,
    ordered = q.ordered or effective ->> 'ordering' <> 'none',
    plain = not (q.ordered or effective ->> 'ordering' <> 'none'),
    lean = not effective -> 'keep' ? 'done' and not (effective ->> 'expire_in_flight')::boolean
  where q.name = _apply.queue;
  perform holdfast._apply_limit(_apply.queue);
  perform holdfast._make_lanes(_apply.queue);
  perform holdfast._copy_to_lanes(_apply.queue);
  perform holdfast._apply_kind(_apply.queue, effective);
end $$;
comment on function holdfast._apply is 'Write an effective configuration into the typed columns, and make the lanes it names';

create or replace function holdfast._check_grave(queue text, effective jsonb) returns void language plpgsql volatile
as $$
declare
  v_queue holdfast.queue := holdfast._queue(_check_grave.queue);
  v_grave text := case when effective -> 'dead_letter' <> 'false' then effective ->> 'dead_letter' end;
  v_strict boolean := effective ->> 'ordering' = 'strict';
  v_other text;
begin
  -- A burial waits for nobody, so it cannot queue up for its place in a line. Whoever makes that queue strict at this
  -- moment, or names this one, is waited for; neither queue need be there yet, so the lock is on the name.
  if v_grave is not null and v_grave is distinct from v_queue.dead_letter then
    perform holdfast._check_isolation('naming a dead-letter queue');
    perform pg_advisory_xact_lock_shared(holdfast._grave_lock(), hashtext(v_grave));
  end if;
  if v_strict and v_queue.ordering is distinct from 'strict' then
    perform holdfast._check_isolation('making a queue strict');
    perform pg_advisory_xact_lock(holdfast._grave_lock(), hashtext(v_queue.name));
  end if;
  if exists (select from holdfast.queue q where q.name = v_grave and q.ordering = 'strict') then
    perform holdfast._fail('QH104', 'bad value for dead_letter', format('The queue "%s" is strict: it takes no dead letters.', v_grave),
      format('Let dead_letter of "%s" name a queue that is not strict, or be false.', v_queue.name));
  end if;
  select q.name into v_other from holdfast.queue q where v_strict and q.dead_letter = v_queue.name order by q.id limit 1;
  if found then
    perform holdfast._fail('QH104', 'bad value for ordering', format('The queue "%s" buries its dead in it, and a strict queue takes no dead letters.', v_other),
      format('Give "%s" another dead_letter first, or false.', v_other));
  end if;
end $$;
comment on function holdfast._check_grave is 'Refuse a strict queue as a dead-letter queue, from either side';

create or replace function holdfast._check_ordering(queue text, effective jsonb) returns void language plpgsql volatile
as $$
declare
  v_queue holdfast.queue := holdfast._queue(_check_ordering.queue);
begin
  if 'strict' in (effective ->> 'ordering', v_queue.ordering) and effective ->> 'ordering' is distinct from coalesce(v_queue.ordering, 'none') then
    perform holdfast._check_isolation('a change of ordering');
    if holdfast._count_upto(v_queue, 1) > 0 then
      perform holdfast._fail('QH310', 'the ordering of a queue with messages in it cannot be changed to or from strict',
        'What is in it was sent in another order.', 'Empty the queue first, or create another one.');
    end if;
  end if;
  if effective ->> 'ordering' <> 'none' and not v_queue.ordered then
    -- Nobody is in the middle of a plain claim when the first ordered message comes.
    perform pg_advisory_xact_lock(holdfast._lane_lock(), l.id) from (select l.id from holdfast.lane l where l.queue_id = v_queue.id order by l.id) l;
  end if;
end $$;
comment on function holdfast._check_ordering is 'Refuse an ordering that does not go with the messages of a queue';

create or replace function holdfast._check_one_lane(config jsonb) returns void language plpgsql stable
as $$
declare
  v_why text := case when config ->> 'ordering' = 'strict' then 'ordering is strict' when (config ->> 'by_row')::boolean then 'by_row is true' end;
begin
  -- What the queue itself says: defaults that ask for more lanes are for the others.
  if v_why is not null then
    perform holdfast._check_field('shards', coalesce((config ->> 'shards')::numeric, 1) = 1, config -> 'shards', format('1 where %s: one lane', v_why));
    perform holdfast._check_field('priorities',
      coalesce(config -> 'priorities', '[]') <@ jsonb_build_array(holdfast._effective('', config) -> 'priority_default', 0),
      config -> 'priorities', format('nothing but priority_default where %s: one lane', v_why));
  end if;
end $$;
comment on function holdfast._check_one_lane is 'Refuse settings of a strict queue, or one with rows, that would give it several lanes';

create or replace function holdfast._check_by_row(config jsonb, was boolean default null) returns void language plpgsql stable
as $$
declare
  v_by_row boolean := coalesce((config ->> 'by_row')::boolean, false);
begin
  -- A send that is open has read what the queue said before: its messages would be no rows.
  perform holdfast._check_field('by_row', v_by_row is not distinct from coalesce(was, v_by_row), coalesce(config -> 'by_row', 'false'),
                                'what the queue was made with; make another one, and move what is in it');
  perform holdfast._check_field('by_row', not v_by_row or coalesce(config ->> 'ordering', 'none') = 'none', 'true',
                                'true only where ordering is none: whoever takes rows knows of no lines');
end $$;
comment on function holdfast._check_by_row is 'Refuse rows where messages have an order, and a change of by_row; was: what it is now, null in a new queue';

create or replace function holdfast._copy_to_lanes(queue text) returns void language plpgsql volatile
as $$
begin
  update holdfast.lane l set
    queue_name = case q.kind when 'queue' then q.name end, paused = q.paused, lease = q.lease, max_deliveries = q.max_deliveries,
    shards = greatest(q.shards, (select max(o.shard) + 1 from holdfast.lane o where o.queue_id = q.id)),
    plain = q.plain, fence = case when q.lean then l.booted else 'holdfast.no_boot' end,
    ordering = case when q.ordered then coalesce(q.ordering, 'key') end,
    throughput_limit = q.throughput_limit, throttle = case when q.throughput_limit is not null then q.throttle end
  from holdfast.queue q
  where q.name = _copy_to_lanes.queue and l.queue_id = q.id;
end $$;
comment on function holdfast._copy_to_lanes is 'Copy what the hot verbs need of a queue to its lanes';

create or replace function holdfast._make_lanes(queue text) returns void language plpgsql volatile
as $$
declare
  v_missing record;
begin
  for v_missing in
    select q.id, p.priority, s.shard from holdfast.queue q
      cross join lateral (select unnest(q.priorities || q.priority_default) as priority) p
      cross join lateral generate_series(0, q.shards - 1) s(shard)
    where q.name = _make_lanes.queue
    group by 1, 2, 3 order by 1, 2, 3
  loop
    perform holdfast._make_lane(v_missing.id, v_missing.priority, v_missing.shard::smallint);
  end loop;
end $$;
comment on function holdfast._make_lanes is 'Make the lanes that a queue''s configuration names';

create or replace function holdfast._announce(queue text, wanted boolean) returns void language plpgsql volatile
as $$
begin
  if wanted then
    perform pg_notify('holdfast_config', _announce.queue);
  end if;
end $$;
comment on function holdfast._announce is 'Tell servers that what they know of a queue is out of date, or with an empty name: of all. wanted: what notify says';

create or replace function holdfast._create_queue(queue text, config jsonb) returns boolean language plpgsql volatile
as $$
declare
  v_id int;
begin
  -- Look first: an insert that meets a queue uses up an id all the same. Whoever is dropping it is waited for.
  perform from holdfast.queue q where q.name = _create_queue.queue for key share;
  if found then
    return false;
  end if;
  perform from holdfast.defaults d for share;
  insert into holdfast.queue (name, created_at, config, lease, max_deliveries, backoff_base, backoff_factor, backoff_cap,
                              backoff_jitter, priority_default, priorities, shards, notify, max_payload, plain)
  values (_create_queue.queue, holdfast.now(), _create_queue.config, '30 s', 0, 0, 1, 0, 0, 0, '{}', 1, true, 1, true)
  on conflict (name) do nothing
  returning id into v_id;
  if v_id is null then
    return false;
  end if;
  update holdfast.queue q set
    asleep = holdfast._register('asleep_' || v_id),
    depth = holdfast._register('depth_' || v_id),
    counted_at = holdfast._register('counted_at_' || v_id),
    counters = holdfast._make_counters(v_id)
  where q.id = v_id;
  perform holdfast._apply(_create_queue.queue, holdfast._effective(_create_queue.queue, _create_queue.config));
  return true;
end $$;
comment on function holdfast._create_queue is 'Make a queue whose name and configuration were checked; false: it is there';

create or replace function holdfast._config_difference(there jsonb, wanted jsonb) returns text language sql immutable
as $$
  select string_agg(format('%s is %s, not %s.', f, coalesce(left((there -> f)::text, 100), 'the default'), coalesce(left((wanted -> f)::text, 100), 'the default')), ' ' order by f)
  from (select jsonb_object_keys(there || wanted) as f) fields
  where there -> f is distinct from wanted -> f
$$;
comment on function holdfast._config_difference is 'Which fields of a configuration are others than was thought';

create or replace function holdfast.create_queue(queue text, config jsonb default '{}') returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_config jsonb;
  v_there jsonb;
begin
  perform holdfast._check_name(create_queue.queue);
  perform holdfast._check_config(create_queue.config);
  v_config := holdfast._merge('{}', create_queue.config);
  perform holdfast._check_kind(v_config, v_config ->> 'kind');
  perform holdfast._check_by_row(v_config);
  perform holdfast._check_one_lane(v_config);
  if holdfast._create_queue(create_queue.queue, v_config) then
    -- Not where dead letters make their queue: that happens in claims and settlements.
    perform holdfast._announce(create_queue.queue, (holdfast._queue(create_queue.queue)).notify);
    return true;
  end if;
  select q.config into v_there from holdfast.queue q where q.name = create_queue.queue;
  if v_config <> '{}' and v_there is distinct from v_config then
    perform holdfast._fail('QH102', format('queue "%s" exists with another configuration', create_queue.queue),
      holdfast._config_difference(v_there, v_config), 'Change it with holdfast.configure_queue.');
  end if;
  return false;
end $$;
comment on function holdfast.create_queue is 'Make a queue. true: made; false: it was there, with this configuration';

create or replace function holdfast.configure_queue(queue text, config jsonb) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue holdfast.queue;
  v_effective jsonb;
begin
  perform holdfast._check_config(configure_queue.config);
  select q.* into v_queue from holdfast.queue q where q.name = configure_queue.queue for update;
  if not found then
    perform holdfast._no_queue(configure_queue.queue);
  end if;
  v_queue.config := holdfast._merge(v_queue.config, configure_queue.config);
  perform holdfast._check_kind(v_queue.config, v_queue.kind);
  perform holdfast._check_by_row(v_queue.config, v_queue.row_of is not null);
  perform holdfast._check_one_lane(v_queue.config);
  v_effective := holdfast._effective(v_queue.name, v_queue.config);
  update holdfast.queue q set config = v_queue.config where q.id = v_queue.id;
  perform holdfast._apply(v_queue.name, v_effective);
  perform holdfast._announce(v_queue.name, v_queue.notify or (v_effective ->> 'notify')::boolean);
  return v_effective;
end $$;
comment on function holdfast.configure_queue is 'Change a queue''s configuration; null takes a field back to its default. Returns what holds now';

create or replace function holdfast.configure_defaults(config jsonb) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue record;
  v_defaults jsonb;
begin
  perform holdfast._check_config(configure_defaults.config);
  if configure_defaults.config -> 'dead_letter' not in ('null', 'false') then
    perform holdfast._fail('QH104', 'dead_letter has no global default but false', format('Got %s.', left((configure_defaults.config -> 'dead_letter')::text, 100)), 'Name dead-letter queues queue by queue.');
  end if;
  if configure_defaults.config ?| '{kind,retention}' then
    perform holdfast._fail('QH104', 'kind and retention have no global default', format('Got %s.', left(configure_defaults.config::text, 100)), 'Name them queue by queue.');
  end if;
  if configure_defaults.config -> 'ordering' not in ('null', '"none"') then
    perform holdfast._fail('QH104', 'ordering has no global default but none', format('Got %s.', left((configure_defaults.config -> 'ordering')::text, 100)), 'Set it queue by queue.');
  end if;
  if configure_defaults.config -> 'by_row' not in ('null', 'false') then
    perform holdfast._fail('QH104', 'by_row has no global default but false', format('Got %s.', left((configure_defaults.config -> 'by_row')::text, 100)), 'Say it queue by queue, when they are made.');
  end if;
  update holdfast.defaults d set config = holdfast._merge(d.config, configure_defaults.config) returning holdfast._filled(d.config) into v_defaults;
  for v_queue in select q.name, q.config from holdfast.queue q order by q.id for update loop
    perform holdfast._apply(v_queue.name, holdfast._effective(v_queue.name, v_queue.config));
  end loop;
  perform holdfast._announce('', (v_defaults ->> 'notify')::boolean);
  return v_defaults;
end $$;
comment on function holdfast.configure_defaults is 'Change the defaults of all queues; null takes a field back to the built-in one. Returns what holds now';

create or replace function holdfast._set_paused(queue text, paused boolean) returns boolean language plpgsql volatile
as $$
begin
  perform holdfast._work_queue(_set_paused.queue);
  -- Waits for whoever is making a lane of this queue: it would be paused, or not, for good.
  perform from holdfast.queue q where q.name = _set_paused.queue for update;
  if not found then
    perform holdfast._no_queue(_set_paused.queue);
  end if;
  update holdfast.queue q set paused = _set_paused.paused
  where q.name = _set_paused.queue and q.paused <> _set_paused.paused;
  if not found then
    return false;
  end if;
  perform holdfast._copy_to_lanes(_set_paused.queue);
  perform holdfast._announce(_set_paused.queue, (holdfast._queue(_set_paused.queue)).notify);
  return true;
end $$;
comment on function holdfast._set_paused is 'Pause or resume; true: that changed something';

create or replace function holdfast.pause_queue(queue text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return holdfast._set_paused(pause_queue.queue, true);
end $$;
comment on function holdfast.pause_queue is 'Hand out nothing more from this queue; sends and settlements go on. false: it was paused';

create or replace function holdfast.resume_queue(queue text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_changed boolean := holdfast._set_paused(resume_queue.queue, false);
begin
  perform holdfast._wake(holdfast._queue(resume_queue.queue));
  return v_changed;
end $$;
comment on function holdfast.resume_queue is 'Hand out messages again. false: it was not paused';

create or replace function holdfast._check_empty(queue text) returns void language plpgsql volatile
as $$
declare
  v_id bigint;
begin
  select f.id into v_id
  from holdfast.queue q
    join holdfast.lane l on l.queue_id = q.id
    cross join lateral (select m.id from holdfast.message m
                        where m.id >= l.id::bigint << 40 and m.id < (l.id + 1)::bigint << 40 limit 1) f
  where q.name = _check_empty.queue limit 1;
  if found then
    perform holdfast._fail('QH109', format('queue "%s" is not empty', _check_empty.queue), format('Message %s is in it.', v_id),
      'Wait until its messages have ended, or drop it with them, without if_empty.');
  end if;
end $$;
comment on function holdfast._check_empty is 'Refuse a queue that has a message, whatever its state, or a log that has a record';

create or replace function holdfast._drop_queue(queue text, if_empty boolean) returns boolean language plpgsql volatile
as $$
declare
  v_queue holdfast.queue;
  v_lane holdfast.lane;
begin
  select q.* into v_queue from holdfast.queue q where q.name = _drop_queue.queue for update;
  if not found then
    return false;
  end if;
  perform holdfast._check_unconsumed(v_queue);
  perform holdfast._check_unfed(v_queue);
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id order by l.id loop
    perform pg_advisory_xact_lock(holdfast._lane_lock(), v_lane.id);
    -- Dropping the sequence waits for every transaction that has drawn an id from it: no send comes later.
    execute format('drop sequence %s', v_lane.ids);
    perform holdfast._drop_registers(v_lane);
  end loop;
  execute format('drop sequence %s, %s, %s', v_queue.asleep, v_queue.depth, v_queue.counted_at);
  execute format('drop sequence %s', array_to_string(v_queue.counters, ', '));
  if _drop_queue.if_empty then
    -- Only now: what was sent before has been committed and is seen, and nothing is sent any more.
    perform holdfast._check_empty(v_queue.name);
  end if;
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id order by l.id loop
    delete from holdfast.message m where m.id >= v_lane.id::bigint << 40 and m.id < (v_lane.id + 1)::bigint << 40;
    delete from holdfast.lease l where l.lane_id = v_lane.id;
    delete from holdfast.gap g where g.lane_id = v_lane.id;
    delete from holdfast.boot b where b.lane_id = v_lane.id;
    delete from holdfast.probe p where p.lane_id = v_lane.id;
  end loop;
  if v_queue.throttle is not null then
    execute format('drop sequence %s', v_queue.throttle);
  end if;
  delete from holdfast.tally t where t.queue_id = v_queue.id;
  delete from holdfast.schema_version s where s.queue_id = v_queue.id;
  delete from holdfast.queue q where q.id = v_queue.id;
  perform holdfast._announce(v_queue.name, v_queue.notify);
  return true;
end $$;
comment on function holdfast._drop_queue is 'Remove a queue; waits for whoever uses it';

create or replace function holdfast.drop_queue(queue text, if_empty boolean default false) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_patience text := current_setting('lock_timeout');
  v_dropped boolean;
begin
  perform holdfast._check_isolation('drop_queue');
  if drop_queue.if_empty then
    -- A first look, so that a queue in use is refused without holding anybody up.
    perform holdfast._check_empty(drop_queue.queue);
  end if;
  -- Others take the locks that a drop needs in any order. So that nobody else is told of a deadlock, the drop lets go of
  -- all it has before a deadlock would be looked for, and begins again; after ten seconds, or its caller's lock_timeout,
  -- it stays.
  for v_try in 1 .. holdfast._tries(v_patience) loop
    begin
      perform set_config('lock_timeout', '400ms', true);
      v_dropped := holdfast._drop_queue(drop_queue.queue, drop_queue.if_empty);
      perform set_config('lock_timeout', v_patience, true);
      return v_dropped;
    exception
      when lock_not_available or deadlock_detected then null;
    end;
  end loop;
  return holdfast._drop_queue(drop_queue.queue, drop_queue.if_empty);
end $$;
comment on function holdfast.drop_queue is 'Remove a queue and all its messages; its dead letters stay in their queue. if_empty: refuse while it has any. false: no such queue';
