-- Services: PostgreSQL databases on which queues are made, and what agents have to do there.
--
-- holdfast.service         one row a service. `local` is this database itself: it is always there, and has no secret
-- holdfast.service_queue   one row a queue that was asked for on a service. A deleted one stays for a while, its name is free
-- holdfast.service_task    one row for each thing to be done on a service: what it is, who is at it, and what came of it

create table holdfast.service (
  id uuid primary key default gen_random_uuid(),
  name text not null unique,
  address text not null,
  sealed text,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
comment on table holdfast.service is 'A PostgreSQL service on which queues can be made';
comment on column holdfast.service.address is 'where it is, for people: without a password';
comment on column holdfast.service.sealed is 'how to connect to it, sealed with a key that is not in this database; null: it is this database';

insert into holdfast.service (name, address, created_at, updated_at)
values ('local', 'this database', clock_timestamp(), clock_timestamp());

create table holdfast.service_queue (
  id uuid primary key default gen_random_uuid(),
  service_id uuid not null references holdfast.service on delete cascade,
  name text not null,
  database_name text not null,
  visibility_timeout_seconds int not null,
  max_attempts int not null,
  dlq_enabled boolean not null,
  status text not null,
  leaving boolean not null default false,
  error_message text,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  deleted_at timestamptz
);
create unique index service_queue_name on holdfast.service_queue (service_id, name) where deleted_at is null;
create index service_queue_deleted on holdfast.service_queue (deleted_at) where deleted_at is not null;
comment on table holdfast.service_queue is 'A queue that was asked for on a service';
comment on column holdfast.service_queue.status is 'Pending, Provisioning, Active, Deprovisioning or Failed';
comment on column holdfast.service_queue.leaving is 'whether it is to be removed, which may have failed';

create table holdfast.service_task (
  n bigint generated always as identity primary key,
  id uuid not null unique default gen_random_uuid(),
  queue_id uuid not null references holdfast.service_queue on delete cascade,
  kind text not null,
  body jsonb,
  status text not null default 'pending',
  result jsonb,
  error_message text,
  attempts int not null default 0,
  agent text,
  lease_until timestamptz,
  try_at timestamptz not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  completed_at timestamptz
);
create index service_task_open on holdfast.service_task (queue_id, (kind = 'stats'), n) where completed_at is null;
create index service_task_ended on holdfast.service_task (completed_at) where completed_at is not null;
create index service_task_queue on holdfast.service_task (queue_id);
comment on table holdfast.service_task is 'Something to be done on a service';
comment on column holdfast.service_task.n is 'the order in which the tasks of a queue are done';
comment on column holdfast.service_task.kind is 'provision, deprovision, enqueue or stats';
comment on column holdfast.service_task.body is 'what it takes; null once it has ended';
comment on column holdfast.service_task.attempts is 'how often an agent has taken it, and the fence: whoever took it earlier cannot end it';

create type holdfast.service_info as (
  id uuid, name text, address text, queues int, created_at timestamptz, updated_at timestamptz
);
comment on type holdfast.service_info is 'A service, without its secret';
create type holdfast.service_queue_info as (
  id uuid, service_id uuid, service text, name text, database_name text, visibility_timeout_seconds int, max_attempts int,
  dlq_enabled boolean, status text, error_message text, created_at timestamptz, updated_at timestamptz
);
comment on type holdfast.service_queue_info is 'A queue on a service';
create type holdfast.service_task_info as (
  id uuid, kind text, status text, result jsonb, error_message text, attempts int,
  created_at timestamptz, updated_at timestamptz, completed_at timestamptz
);
comment on type holdfast.service_task_info is 'What came of a task so far';
create type holdfast.service_grant as (
  id uuid, kind text, body jsonb, attempt int, service text, sealed text, queue_id uuid, queue text, database_name text,
  visibility_timeout_seconds int, max_attempts int, dlq_enabled boolean
);
comment on type holdfast.service_grant is 'A task as an agent takes it';
