-- Services: PostgreSQL databases on which queues are made, and the queues that were asked for there.
--
--   put_service            from now on this is a service; or it is somewhere else now
--   services               all of them, without their secrets
--   drop_service           it is none any more
--   create_service_queue   ask for a queue on a service
--   service_queues         the queues of a service, or one of them
--   delete_service_queue   ask for it to be removed
--   retry_service_queue    try again what has failed
--
-- Tables: service, service_queue; each request makes a service_task, which 89_tasks.sql has. How to connect comes sealed, and what is
-- not sealed is refused: no secret is ever in a statement, a table or a log of this database. Whoever changes the queues of a service
-- locks its row first, then those of queues, then those of tasks. New tasks are announced on the channel holdfast_service.

create or replace function holdfast._service(service text) returns holdfast.service language plpgsql stable
as $$
declare
  v_service holdfast.service;
begin
  select s.* into v_service from holdfast.service s where s.name = _service.service or s.id::text = lower(_service.service);
  if not found then
    perform holdfast._fail('QH851', 'there is no such service', format('Got %s.', coalesce(quote_literal(left(_service.service, 100)), 'null')),
      'Pass the name or the id of a service: holdfast.services() lists them.');
  end if;
  return v_service;
end $$;
comment on function holdfast._service is 'A service by its name or id, or an error';

create or replace function holdfast._lock_service(service text) returns holdfast.service language plpgsql volatile
as $$
declare
  v_service holdfast.service := holdfast._service(_lock_service.service);
begin
  perform from holdfast.service s where s.id = v_service.id for no key update;
  return holdfast._service(v_service.id::text);
end $$;
comment on function holdfast._lock_service is 'A service that stays as it is until the end of the transaction';

create or replace function holdfast._check_service(name text, address text, sealed text) returns void language plpgsql immutable
as $$
begin
  if (_check_service.name ~ '^[a-z0-9][a-z0-9_-]{0,62}$' and _check_service.name <> 'local'
      and _check_service.name !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$') is not true then
    perform holdfast._fail('QH850', 'a service cannot have this name', format('Got %s.', coalesce(quote_literal(left(_check_service.name, 100)), 'null')),
      'A name has 1 to 63 characters out of a-z 0-9 _ -, begins with a letter or a digit, and is neither an id nor local, which is this database.');
  elsif (length(_check_service.address) between 1 and 2000 and _check_service.address !~ '[[:cntrl:]]' and _check_service.address !~ '://[^/@]*:[^/@]+@') is not true then
    -- Not shown: there may be a password in it.
    perform holdfast._fail('QH850', 'the address of a service is for people', format('Got %s characters.', coalesce(length(_check_service.address)::text, 'no')),
      'An address has 1 to 2,000 characters, and no password.');
  elsif (length(_check_service.sealed) <= 10000 and _check_service.sealed ~ '^hfs1\.[0-9a-f]{8}\.[A-Za-z0-9_-]+={0,2}$') is not true then
    perform holdfast._fail('QH850', 'how to connect to a service comes sealed', 'What came is not: it was not stored. It may be in logs, if it was a secret.',
      'Let the client do it, put_service, or the command line: holdfast service add.');
  end if;
end $$;
comment on function holdfast._check_service is 'Refuse a bad name or address of a service, and a secret that is not sealed';

create or replace function holdfast.put_service(name text, address text, sealed text) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
  v_id uuid;
begin
  perform holdfast._check_service(put_service.name, put_service.address, put_service.sealed);
  insert into holdfast.service as s (name, address, sealed, created_at, updated_at)
  values (put_service.name, put_service.address, put_service.sealed, v_now, v_now)
  on conflict on constraint service_name_key do update set address = excluded.address, sealed = excluded.sealed, updated_at = excluded.updated_at
  returning s.id into v_id;
  -- What waits for a service that was not to be reached may be tried at once.
  update holdfast.service_task t set try_at = v_now
  from holdfast.service_queue q where q.service_id = v_id and t.queue_id = q.id and t.completed_at is null and t.status = 'pending' and t.try_at > v_now;
  perform pg_notify('holdfast_service', '');
  return v_id;
end $$;
comment on function holdfast.put_service is
  'Make a service on which queues can be made, or say anew where it is; returns its id. sealed: how to connect, as the vault of the client seals it; address: the same for people, without the password';

create or replace function holdfast.services() returns setof holdfast.service_info
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select s.id, s.name, s.address,
         (select count(*)::int from holdfast.service_queue q where q.service_id = s.id and q.deleted_at is null), s.created_at, s.updated_at
  from holdfast.service s order by s.sealed is not null, s.name collate "C"
$$;
comment on function holdfast.services is 'All services, without their secrets; local, this database itself, is the first';

create or replace function holdfast.drop_service(name text, forget boolean default false) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_id uuid;
  v_queues text[];
begin
  if drop_service.name = 'local' then
    perform holdfast._fail('QH850', 'local is no service that can go', 'It is this database itself.', 'Delete its queues instead.');
  end if;
  select s.id into v_id from holdfast.service s where s.name = drop_service.name for update;
  if not found then
    return false;
  end if;
  v_queues := array(select q.name from holdfast.service_queue q where q.service_id = v_id and q.deleted_at is null order by q.name);
  if v_queues <> '{}' and drop_service.forget is not true then
    perform holdfast._fail('QH852', format('service "%s" has queues', drop_service.name),
      format('There are %s: %s.', cardinality(v_queues), left(array_to_string(v_queues, ', '), 500)),
      format('Delete them first. If it is gone for good, holdfast.drop_service(%L, forget => true) removes what is known of them, and leaves the service '
             'itself as it is.', drop_service.name));
  end if;
  delete from holdfast.service s where s.id = v_id;
  return true;
end $$;
comment on function holdfast.drop_service is
  'Take a service off the list; false: there is none of this name. One with queues is refused, unless forget: then what is known of them goes, and nothing is done on the service';

create or replace function holdfast._check_service_queue(
  name text, database_name text, visibility_timeout_seconds int, max_attempts int, dlq_enabled boolean) returns void language plpgsql immutable
as $$
begin
  if (_check_service_queue.name ~ '^[a-z0-9_-]{1,128}$') is not true then
    perform holdfast._fail('QH860', 'name: a queue on a service cannot have this one',
      format('Got %s.', coalesce(quote_literal(left(_check_service_queue.name, 200)), 'null')), 'A name has 1 to 128 characters out of a-z 0-9 _ -.');
  elsif (_check_service_queue.database_name ~ '^[A-Za-z0-9_-]{1,63}$') is not true then
    perform holdfast._fail('QH860', 'database_name: this is none', format('Got %s.', quote_literal(left(_check_service_queue.database_name, 100))),
      'A name has 1 to 63 characters out of A-Z a-z 0-9 _ -; defaultdb, or none, is the database that the service names itself.');
  elsif (_check_service_queue.visibility_timeout_seconds between 1 and 43200) is not true then
    perform holdfast._fail('QH860', 'visibility_timeout_seconds is out of range',
      format('Got %s.', coalesce(_check_service_queue.visibility_timeout_seconds::text, 'null')), 'It takes 1 to 43,200.');
  elsif (_check_service_queue.max_attempts between 1 and 100) is not true then
    perform holdfast._fail('QH860', 'max_attempts is out of range', format('Got %s.', coalesce(_check_service_queue.max_attempts::text, 'null')), 'It takes 1 to 100.');
  elsif _check_service_queue.dlq_enabled is null then
    perform holdfast._fail('QH860', 'dlq_enabled is null', 'It says whether messages that have used up their attempts are kept.', 'It takes true or false.');
  end if;
end $$;
comment on function holdfast._check_service_queue is 'Refuse what cannot be asked of a queue on a service; the message begins with the field';

create or replace function holdfast._show_queue(queue holdfast.service_queue) returns holdfast.service_queue_info language sql stable
as $$
  select row(queue.id, queue.service_id, s.name, queue.name, queue.database_name, queue.visibility_timeout_seconds, queue.max_attempts,
             queue.dlq_enabled, queue.status, queue.error_message, queue.created_at, queue.updated_at)::holdfast.service_queue_info
  from holdfast.service s where s.id = queue.service_id
$$;
comment on function holdfast._show_queue is 'A queue on a service, as callers see it';

create or replace function holdfast._service_queue(service holdfast.service, name text) returns holdfast.service_queue language plpgsql stable
as $$
declare
  v_queue holdfast.service_queue;
begin
  select q.* into v_queue from holdfast.service_queue q
  where q.service_id = service.id and q.name = _service_queue.name and q.deleted_at is null;
  if not found then
    perform holdfast._fail('QH861', format('service "%s" has no such queue', service.name),
      format('Got %s.', coalesce(quote_literal(left(_service_queue.name, 200)), 'null')), 'holdfast.service_queues lists those that it has.');
  end if;
  return v_queue;
end $$;
comment on function holdfast._service_queue is 'A queue on a service by its name, or an error';

create or replace function holdfast._begin_queue(queue holdfast.service_queue) returns holdfast.service_queue language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  queue.status := case when queue.leaving then 'Deprovisioning' else 'Pending' end;
  queue.updated_at := v_now;
  queue.created_at := coalesce(queue.created_at, v_now);
  insert into holdfast.service_queue as q select queue.*
  on conflict on constraint service_queue_pkey do update
    set visibility_timeout_seconds = excluded.visibility_timeout_seconds, max_attempts = excluded.max_attempts, dlq_enabled = excluded.dlq_enabled,
        status = excluded.status, leaving = excluded.leaving, error_message = null, updated_at = excluded.updated_at;
  queue.error_message := null;
  perform holdfast._add_task(queue.id, case when queue.leaving then 'deprovision' else 'provision' end, null);
  return queue;
end $$;
comment on function holdfast._begin_queue is 'Store a queue, and let an agent make it, or remove it';

create or replace function holdfast.create_service_queue(
  service text, name text, database_name text default null, visibility_timeout_seconds int default 30, max_attempts int default 5,
  dlq_enabled boolean default true) returns holdfast.service_queue_info
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_database text := coalesce(create_service_queue.database_name, 'defaultdb');
  v_service holdfast.service;
  v_queue holdfast.service_queue;
begin
  perform holdfast._check_service_queue(create_service_queue.name, v_database, create_service_queue.visibility_timeout_seconds,
                                        create_service_queue.max_attempts, create_service_queue.dlq_enabled);
  v_service := holdfast._lock_service(create_service_queue.service);
  select q.* into v_queue from holdfast.service_queue q
  where q.service_id = v_service.id and q.name = create_service_queue.name and q.deleted_at is null;
  if not found then
    if (select count(*) from holdfast.service_queue q where q.service_id = v_service.id and q.deleted_at is null) >= 50 then
      perform holdfast._fail('QH863', format('service "%s" has 50 queues', v_service.name), 'A service has no more than that.', 'Delete one first.');
    end if;
    v_queue.id := gen_random_uuid();
    v_queue.service_id := v_service.id;
    v_queue.name := create_service_queue.name;
    v_queue.database_name := v_database;
    v_queue.leaving := false;
  elsif v_queue.status <> 'Failed' or v_queue.leaving or v_queue.database_name <> v_database then
    perform holdfast._fail('QH862', format('service "%s" has this queue', v_service.name), format('"%s" is there, and %s, in the database %s.', v_queue.name,
      v_queue.status, v_queue.database_name),
      case when v_queue.status = 'Failed' and v_queue.leaving
             then 'Its removal has failed: error_message says why. Once that is mended, let it be tried again; when the queue is gone, its name is free.'
           when v_queue.leaving then 'It is being removed: when it is gone, its name is free.'
           when v_queue.status = 'Failed' then 'Ask for it in the same database, where it can be tried again; or delete it first.'
           else 'Use it as it is, or another name; or delete it first.' end);
  end if;
  v_queue.visibility_timeout_seconds := create_service_queue.visibility_timeout_seconds;
  v_queue.max_attempts := create_service_queue.max_attempts;
  v_queue.dlq_enabled := create_service_queue.dlq_enabled;
  return holdfast._show_queue(holdfast._begin_queue(v_queue));
end $$;
comment on function holdfast.create_service_queue is
  'Ask for a queue on a service, which an agent will make; asking again for one that could not be made tries again, with these settings. database_name: null, as defaultdb, is the service''s own';

create or replace function holdfast.service_queues(service text, name text default null) returns setof holdfast.service_queue_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_service holdfast.service := holdfast._service(service_queues.service);
begin
  if service_queues.name is not null then
    return next holdfast._show_queue(holdfast._service_queue(v_service, service_queues.name));
    return;
  end if;
  return query
    select (holdfast._show_queue(q)).* from holdfast.service_queue q
    where q.service_id = v_service.id and q.deleted_at is null order by q.name collate "C";
end $$;
comment on function holdfast.service_queues is 'The queues of a service that are not gone; with a name that one, or an error';

create or replace function holdfast.delete_service_queue(service text, name text) returns holdfast.service_queue_info
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_service holdfast.service := holdfast._lock_service(delete_service_queue.service);
  v_queue holdfast.service_queue := holdfast._service_queue(v_service, delete_service_queue.name);
begin
  if v_queue.status <> 'Deprovisioning' then
    -- What is still to be sent goes with the queue. What an agent is at is waited for: it may have begun.
    perform from holdfast.service_queue q where q.id = v_queue.id for no key update;
    perform holdfast._end_open_tasks(v_queue.id, 'the queue was deleted before', 'pending');
    v_queue.leaving := true;
    v_queue := holdfast._begin_queue(v_queue);
  end if;
  return holdfast._show_queue(v_queue);
end $$;
comment on function holdfast.delete_service_queue is 'Ask for a queue on a service to be removed, with all its messages; an agent will do it. Its name is free again afterwards';

create or replace function holdfast.retry_service_queue(service text, name text) returns holdfast.service_queue_info
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_service holdfast.service := holdfast._lock_service(retry_service_queue.service);
  v_queue holdfast.service_queue := holdfast._service_queue(v_service, retry_service_queue.name);
begin
  if v_queue.status <> 'Failed' then
    perform holdfast._fail('QH865', format('queue "%s" has not failed', v_queue.name), format('It is %s.', v_queue.status),
      'Only what has failed is tried again by hand; an agent tries everything else.');
  end if;
  return holdfast._show_queue(holdfast._begin_queue(v_queue));
end $$;
comment on function holdfast.retry_service_queue is 'Try again to make, or to remove, a queue on a service for which that has failed';
