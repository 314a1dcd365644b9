-- Tasks: what is to be done on services, by agents.
--
--   enqueue_task    send these messages to a queue on a service
--   stats_task      count its messages
--   service_task    what came of a task
--   take_tasks      for agents: these tasks are mine for a while
--   begin_task      for agents: the service is reached, the work begins
--   hold_tasks      for agents: they still are
--   put_off_task    for agents: it could not be done, try again later
--   end_task        for agents: it is done, or will not be
--
-- Table: service_task. The tasks of a queue are done in the order in which they came, one at a time; stats wait for nobody. A task is
-- leased, and its attempts are the fence: whoever lost it can neither end it nor put it off. So every step on a service has to
-- stand being done twice. Ended tasks are kept for a day. Lock order as in 89_services.sql; ending a task locks its queue first.

create or replace function holdfast._add_task(queue_id uuid, kind text, body jsonb) returns uuid language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
  v_id uuid;
begin
  insert into holdfast.service_task as t (queue_id, kind, body, try_at, created_at, updated_at)
  values (_add_task.queue_id, _add_task.kind, _add_task.body, v_now, v_now, v_now) returning t.id into v_id;
  perform pg_notify('holdfast_service', '');
  return v_id;
end $$;
comment on function holdfast._add_task is 'Something to be done for a queue on a service';

create or replace function holdfast._end_open_tasks(queue_id uuid, error text, status text default null) returns void language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  update holdfast.service_task t
  set status = 'failed', body = null, error_message = _end_open_tasks.error, updated_at = v_now, completed_at = v_now, lease_until = null
  where t.queue_id = _end_open_tasks.queue_id and t.completed_at is null
    and (_end_open_tasks.status is null or (t.status = _end_open_tasks.status and (t.attempts = 0 or t.kind <> 'enqueue')));
end $$;
comment on function holdfast._end_open_tasks is
  'Let the tasks of a queue that have not ended fail; with a status only those that have it, and whose messages nobody can have sent';

create or replace function holdfast._check_task_message(message jsonb, nth bigint) returns void language plpgsql stable
as $$
declare
  v_delay jsonb := message -> 'delay_seconds';
begin
  if jsonb_typeof(message) <> 'object' or message - '{payload,delay_seconds}'::text[] <> '{}' then
    perform holdfast._fail('QH866', 'a message is an object with payload and delay_seconds', 'It is none, or has other fields.',
      'Pass {"payload": {…}}, with "delay_seconds" if it is to wait.', nth);
  elsif coalesce(jsonb_typeof(message -> 'payload'), 'null') = 'null' then
    perform holdfast._fail('QH866', 'payload is missing', 'It is null, or not there.', 'Pass a JSON document.', nth);
  elsif octet_length((message -> 'payload')::text) > 262144 then
    perform holdfast._fail('QH866', 'payload is too large', format('It has %s bytes as text.', octet_length((message -> 'payload')::text)),
      'A payload has at most 262,144 bytes (256 KB).', nth);
  elsif v_delay is not null and (jsonb_typeof(v_delay) = 'number' and (v_delay #>> '{}')::numeric between 0 and 43200
                                 and (v_delay #>> '{}')::numeric % 1 = 0) is not true then
    perform holdfast._fail('QH866', 'delay_seconds is out of range', format('Got %s.', left(v_delay::text, 100)), 'It takes a whole number from 0 to 43,200.', nth);
  end if;
end $$;
comment on function holdfast._check_task_message is 'Refuse a message that cannot be sent to a queue on a service';

create or replace function holdfast._active_queue(service text, name text) returns holdfast.service_queue language plpgsql volatile
as $$
declare
  v_queue holdfast.service_queue := holdfast._service_queue(holdfast._service(_active_queue.service), _active_queue.name);
begin
  -- Whoever deletes it meanwhile is waited for.
  select q.* into v_queue from holdfast.service_queue q where q.id = v_queue.id for share;
  if v_queue.deleted_at is not null or v_queue.status <> 'Active' then
    perform holdfast._fail('QH864', format('queue "%s" is not active', v_queue.name),
      format('It is %s%s.', v_queue.status, coalesce(': ' || v_queue.error_message, '')), 'Ask again once it is Active; what has failed can be tried again.');
  end if;
  if exists (select from holdfast.service_task t where t.queue_id = v_queue.id and t.completed_at is null offset 999) then
    perform holdfast._fail('QH867', format('queue "%s" has 1,000 tasks that are not done', v_queue.name), 'No more are taken until some are.', 'Ask again later.');
  end if;
  return v_queue;
end $$;
comment on function holdfast._active_queue is 'A queue on a service that takes another task, or an error';

create or replace function holdfast.enqueue_task(service text, name text, messages jsonb) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  if (jsonb_typeof(enqueue_task.messages) = 'array' and jsonb_array_length(enqueue_task.messages) between 1 and 100) is not true then
    perform holdfast._fail('QH866', 'messages is no array of 1 to 100', format('Got %s.', case when jsonb_typeof(enqueue_task.messages) = 'array'
      then jsonb_array_length(enqueue_task.messages) || ' messages' else coalesce(jsonb_typeof(enqueue_task.messages), 'null') end),
      'A batch has 1 to 100 messages: [{"payload": {…}}].');
  end if;
  perform holdfast._check_task_message(m.message, m.nth) from jsonb_array_elements(enqueue_task.messages) with ordinality m(message, nth);
  return holdfast._add_task((holdfast._active_queue(enqueue_task.service, enqueue_task.name)).id, 'enqueue', enqueue_task.messages);
end $$;
comment on function holdfast.enqueue_task is
  'Let an agent send these messages to a queue on a service, all of them or none; returns the task. Each has payload, and delay_seconds if it is to wait';

create or replace function holdfast.stats_task(service text, name text) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return holdfast._add_task((holdfast._active_queue(stats_task.service, stats_task.name)).id, 'stats', null);
end $$;
comment on function holdfast.stats_task is 'Let an agent count the messages of a queue on a service; returns the task';

create or replace function holdfast.service_task(service text, name text, task uuid) returns holdfast.service_task_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_service holdfast.service := holdfast._service(service_task.service);
  v_task holdfast.service_task_info;
begin
  select t.id, t.kind, t.status, t.result, t.error_message, t.attempts, t.created_at, t.updated_at, t.completed_at into v_task
  from holdfast.service_task t join holdfast.service_queue q on q.id = t.queue_id
  where t.id = service_task.task and q.service_id = v_service.id and q.name = service_task.name;
  if not found then
    perform holdfast._fail('QH868', 'there is no such task', format('Got %s of queue %s.', coalesce(service_task.task::text, 'null'),
      coalesce(quote_literal(left(service_task.name, 200)), 'null')), 'Tasks that have ended are kept for a day.');
  end if;
  return v_task;
end $$;
comment on function holdfast.service_task is 'A task of a queue on a service: pending, running, completed or failed, and what came of it';

create or replace function holdfast._set_back(at timestamptz) returns boolean language sql stable
  return _set_back.at > holdfast.now() + interval '1 min';
comment on function holdfast._set_back is 'Whether the clock was set back after this: what was to come at a time would come too late';

create or replace function holdfast._next_tasks(per_service int) returns bigint[] language plpgsql stable
as $$
begin
  -- Of each queue the first, and its stats; of each service so many, less those that somebody is at.
  return array(
    with head as (
      select q.service_id, h.* from holdfast.service_queue q cross join lateral (
        (select t.n, t.status, t.try_at, t.lease_until, t.updated_at from holdfast.service_task t
         where t.queue_id = q.id and t.completed_at is null and (t.kind = 'stats') = false order by t.n limit 1)
        union all
        (select t.n, t.status, t.try_at, t.lease_until, t.updated_at from holdfast.service_task t
         where t.queue_id = q.id and t.completed_at is null and (t.kind = 'stats') = true order by t.n limit per_service)) h
      where q.deleted_at is null
    ), judged as (
      select h.*, h.status = 'running' and h.lease_until > holdfast.now() and not holdfast._set_back(h.updated_at) as busy,
             h.status = 'running' or h.try_at <= holdfast.now() or holdfast._set_back(h.updated_at) as due from head h
    ), ranked as (
      select j.n, row_number() over (partition by j.service_id order by j.n)
                  + (select count(*) from judged b where b.service_id = j.service_id and b.busy) as rank
      from judged j where j.due and not j.busy
    )
    select r.n from ranked r where r.rank <= per_service order by r.rank, r.n);
end $$;
comment on function holdfast._next_tasks is 'The tasks that may be begun now, so many of each service at most, in turn';

create or replace function holdfast.take_tasks(agent text, "limit" int default 10, lease interval default '30 s', per_service int default 4)
returns setof holdfast.service_grant
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_limit(per_service);
  return query
    with candidate as materialized (
      select t.n from holdfast.service_task t
      where t.n = any (holdfast._next_tasks(per_service)) and t.completed_at is null
        and (case when t.status = 'running' then t.lease_until <= v_now else t.try_at <= v_now end or holdfast._set_back(t.updated_at))
        -- A service remembers for 7 days what was sent: see _tidy_tasks.
        and (t.kind <> 'enqueue' or t.attempts = 0 or t.created_at > v_now - interval '6 days')
      limit take_tasks."limit" for update skip locked
    ), taken as (
      update holdfast.service_task t
      set status = 'running', attempts = t.attempts + 1, agent = left(take_tasks.agent, 200), lease_until = v_now + take_tasks.lease, updated_at = v_now
      where t.n = any (array(select c.n from candidate c)) returning t.*
    )
    select t.id, t.kind, t.body, t.attempts, s.name, s.sealed, q.id, q.name, q.database_name, q.visibility_timeout_seconds, q.max_attempts, q.dlq_enabled
    from taken t join holdfast.service_queue q on q.id = t.queue_id join holdfast.service s on s.id = q.service_id order by t.n;
end $$;
comment on function holdfast.take_tasks is
  'For agents: take tasks that are due, at most limit, and of each service so many as that it has per_service under way; each until its lease ends. attempt is what the other functions ask for';

create or replace function holdfast._taken(id uuid, attempt int) returns holdfast.service_task language plpgsql volatile
as $$
declare
  v_task holdfast.service_task;
begin
  select t.* into v_task from holdfast.service_task t where t.id = _taken.id;
  perform from holdfast.service_queue q where q.id = v_task.queue_id for no key update;
  select t.* into v_task from holdfast.service_task t
  where t.id = _taken.id and t.attempts = _taken.attempt and t.status = 'running' for update;
  return v_task;
end $$;
comment on function holdfast._taken is 'A task that its taker still has, locked, its queue too; else null';

create or replace function holdfast.begin_task(id uuid, attempt int) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_task holdfast.service_task := holdfast._taken(begin_task.id, begin_task.attempt);
begin
  if v_task.kind = 'provision' then
    update holdfast.service_queue q set status = 'Provisioning', updated_at = holdfast.now() where q.id = v_task.queue_id and q.status = 'Pending';
  end if;
  if v_task.kind = 'enqueue' then
    update holdfast.service_task t set begun = true where t.n = v_task.n and not t.begun;
  end if;
  return v_task.id is not null;
end $$;
comment on function holdfast.begin_task is 'For agents: the service is reached, and the work begins: a queue that is to be made is Provisioning; false: somebody else has the task';

create or replace function holdfast.hold_tasks(ids uuid[], attempts int[], lease interval default '30 s') returns uuid[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_held uuid[];
begin
  with mine as (
    select t.n from unnest(hold_tasks.ids, hold_tasks.attempts) h(id, attempt) join holdfast.service_task t on t.id = h.id and t.attempts = h.attempt
    where t.status = 'running' order by t.n for update of t
  ), held as (
    update holdfast.service_task t set lease_until = holdfast.now() + hold_tasks.lease where t.n = any (array(select m.n from mine m)) returning t.id
  )
  select array_agg(h.id) into v_held from held h;
  return coalesce(v_held, '{}');
end $$;
comment on function holdfast.hold_tasks is 'For agents: keep tasks for so long from now on; returns those that are still theirs';

create or replace function holdfast.put_off_task(id uuid, attempt int, error text, delay interval) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_task holdfast.service_task := holdfast._taken(put_off_task.id, put_off_task.attempt);
begin
  if v_task.id is null then
    return false;
  end if;
  if v_task.kind = 'provision' and (select q.leaving from holdfast.service_queue q where q.id = v_task.queue_id) then
    return holdfast.end_task(put_off_task.id, put_off_task.attempt, error => put_off_task.error);
  end if;
  update holdfast.service_task t
  set status = 'pending', error_message = left(put_off_task.error, 2000), lease_until = null, updated_at = v_now,
      try_at = v_now + least(greatest(put_off_task.delay, interval '0'), interval '1 day')
  where t.n = v_task.n;
  if v_task.kind in ('provision', 'deprovision') then
    update holdfast.service_queue q set error_message = left(put_off_task.error, 2000), updated_at = v_now,
                                        status = case when v_task.kind = 'provision' then 'Pending' else q.status end
    where q.id = v_task.queue_id;
  end if;
  return true;
end $$;
comment on function holdfast.put_off_task is 'For agents: a task could not be done; it is tried again after delay. false: somebody else has it';

create or replace function holdfast._end_queue(task holdfast.service_task, error text, at timestamptz) returns void language plpgsql volatile
as $$
begin
  if task.kind = 'provision' then
    update holdfast.service_queue q set error_message = left('could not be made: ' || _end_queue.error, 2000), updated_at = _end_queue.at,
                                        status = case when _end_queue.error is null then 'Active' else 'Failed' end
    where q.id = task.queue_id and not q.leaving;
  elsif task.kind = 'deprovision' then
    update holdfast.service_queue q set error_message = left('could not be removed: ' || _end_queue.error, 2000), updated_at = _end_queue.at,
                                        status = case when _end_queue.error is null then q.status else 'Failed' end,
                                        deleted_at = case when _end_queue.error is null then _end_queue.at end
    where q.id = task.queue_id;
    if _end_queue.error is null then
      perform holdfast._end_open_tasks(task.queue_id, 'the queue was deleted before');
    end if;
  end if;
end $$;
comment on function holdfast._end_queue is 'What the end of a task means for its queue: made, gone, or failed';

create or replace function holdfast.end_task(id uuid, attempt int, result jsonb default null, error text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_task holdfast.service_task := holdfast._taken(end_task.id, end_task.attempt);
begin
  if v_task.id is null then
    return false;
  end if;
  update holdfast.service_task t
  set status = case when end_task.error is null then 'completed' else 'failed' end, body = null, result = end_task.result,
      error_message = case when v_task.begun then rtrim(left(end_task.error, 1900), '.') || '. Whether the messages were sent is not known'
                           else left(end_task.error, 2000) end,
      lease_until = null, updated_at = v_now, completed_at = v_now
  where t.n = v_task.n;
  perform holdfast._end_queue(v_task, end_task.error, v_now);
  -- The next task of this queue has waited for it.
  perform pg_notify('holdfast_service', '');
  return true;
end $$;
comment on function holdfast.end_task is 'For agents: a task is done, with this result; or with an error: it will not be. false: somebody else has it';

create or replace function holdfast._tidy_tasks(at timestamptz) returns void language plpgsql volatile
as $$
begin
  update holdfast.service_task t
  set status = 'failed', body = null, error_message = 'whether the messages were sent is not known', updated_at = at, completed_at = at
  where t.completed_at is null and t.kind = 'enqueue' and t.attempts > 0 and t.created_at <= at - interval '6 days'
    and (t.status = 'pending' or t.lease_until <= at);
  delete from holdfast.service_task t where t.n in (
    select o.n from holdfast.service_task o where o.completed_at <= at - interval '1 day' order by o.completed_at limit 10000 for update skip locked);
  delete from holdfast.service_queue q where q.id in (
    select o.id from holdfast.service_queue o where o.deleted_at <= at - interval '30 days' order by o.deleted_at limit 1000 for update skip locked);
end $$;
comment on function holdfast._tidy_tasks is 'Remove tasks that ended a day ago, and queues that are gone for 30 days; give up messages that may have been sent 6 days ago';
