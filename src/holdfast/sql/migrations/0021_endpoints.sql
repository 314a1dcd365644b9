-- Webhook endpoints: where the messages of a queue are delivered to, and how it goes.
--
-- holdfast.endpoint           one row an endpoint; an endpoint consumes one queue, and a queue has one endpoint at most
-- holdfast.endpoint_secret    signing secrets, sealed
-- holdfast.endpoint_breaker   one row an endpoint: its circuit breaker, for all processes that deliver
-- holdfast.endpoint_event     how breakers moved, and who was enabled or disabled, and why
-- holdfast.attempt            every attempt to deliver a message, for a while
-- holdfast.event_type         what can be published
-- holdfast.subscription       which endpoints get it

create table holdfast.endpoint (
  id int generated always as identity primary key,
  name text not null unique,
  queue_id int not null unique references holdfast.queue,
  url text not null,
  config jsonb not null,
  auth jsonb,
  enabled boolean not null default true,
  disabled_reason text,
  disabled_at timestamptz,
  version bigint not null default 1,
  created_at timestamptz not null,
  changed_at timestamptz not null
);
comment on table holdfast.endpoint is 'Where the messages of a queue are delivered to';
comment on column holdfast.endpoint.config is 'what differs from the built-in configuration; durations in seconds. Rate limit, ordering and attempts are settings of the queue';
comment on column holdfast.endpoint.auth is 'how to log in there; secrets in it are sealed';
comment on column holdfast.endpoint.version is 'grows with every change';

create table holdfast.endpoint_secret (
  id bigint generated always as identity primary key,
  endpoint_id int not null references holdfast.endpoint on delete cascade,
  sealed text not null,
  created_at timestamptz not null,
  expires_at timestamptz
);
create index endpoint_secret_by_endpoint on holdfast.endpoint_secret (endpoint_id);
comment on table holdfast.endpoint_secret is 'A secret with which deliveries are signed, sealed by a key that the database does not have';
comment on column holdfast.endpoint_secret.expires_at is 'until then an old secret signs too; null: the present one';

create table holdfast.endpoint_breaker (
  endpoint_id int primary key references holdfast.endpoint on delete cascade,
  state text not null default 'closed',
  failures int not null default 0,
  retry_at timestamptz,
  probe bigint,
  opened_at timestamptz,
  last_success_at timestamptz,
  last_failure_at timestamptz
) with (fillfactor = 50);
comment on table holdfast.endpoint_breaker is 'The circuit breaker of an endpoint';
comment on column holdfast.endpoint_breaker.state is 'closed: deliver; open: don''t; half_open: one delivery finds out';
comment on column holdfast.endpoint_breaker.failures is 'how many have failed in a row';
comment on column holdfast.endpoint_breaker.retry_at is 'open: from then on one may find out; half_open: from then on another may, for the first has not told';
comment on column holdfast.endpoint_breaker.probe is 'who finds out shows this number';

create table holdfast.endpoint_event (
  id bigint generated always as identity,
  endpoint_id int not null references holdfast.endpoint on delete cascade,
  at timestamptz not null,
  event text not null,
  reason text,
  primary key (endpoint_id, id)
);
create index endpoint_event_by_time on holdfast.endpoint_event (at);
comment on table holdfast.endpoint_event is 'What has happened to an endpoint';
comment on column holdfast.endpoint_event.event is 'opened, half_opened, closed: its breaker; enabled, disabled';

create table holdfast.attempt (
  endpoint_id int not null,
  queue_id int not null,
  root_id bigint not null,
  message_id bigint not null,
  at timestamptz not null,
  keep_until timestamptz not null,
  delivery int,
  outcome text not null,
  status int,
  latency float8,
  error text,
  response text
);
create index attempt_by_endpoint on holdfast.attempt (endpoint_id, at);
create index attempt_by_root on holdfast.attempt (root_id, at);
create index attempt_by_end on holdfast.attempt (keep_until);
comment on table holdfast.attempt is 'An attempt to deliver a message to an endpoint';
comment on column holdfast.attempt.root_id is 'the first id of the message, which stays when it moves';
comment on column holdfast.attempt.outcome is 'done; retry: it may work later; dead: it will not; gone: the endpoint is not there any more (410)';
comment on column holdfast.attempt.status is 'of HTTP; null: there was no answer';
comment on column holdfast.attempt.latency is 'seconds';

create table holdfast.event_type (
  id int generated always as identity primary key,
  name text not null unique,
  description text,
  schema jsonb,
  created_at timestamptz not null
);
comment on table holdfast.event_type is 'A kind of event that can be published';
comment on column holdfast.event_type.schema is 'JSON Schema of its payloads, for readers: nothing checks it';

create table holdfast.subscription (
  id bigint generated always as identity primary key,
  event_type_id int not null references holdfast.event_type on delete cascade,
  endpoint_id int not null references holdfast.endpoint on delete cascade,
  filter jsonb,
  created_at timestamptz not null
);
create index subscription_by_type on holdfast.subscription (event_type_id, endpoint_id);
create index subscription_by_endpoint on holdfast.subscription (endpoint_id);
comment on table holdfast.subscription is 'An endpoint gets the events of a type';
comment on column holdfast.subscription.filter is 'only those whose payload contains this; null: all';

create type holdfast.endpoint_info as (
  endpoint text, queue text, url text, enabled boolean, disabled_reason text, disabled_at timestamptz, config jsonb, secrets jsonb,
  created_at timestamptz, changed_at timestamptz
);
comment on type holdfast.endpoint_info is 'What may be known of an endpoint: all but its secrets';

create type holdfast.endpoint_target as (
  endpoint text, queue text, enabled boolean, url text, version bigint, config jsonb, secrets text[], auth jsonb
);
comment on type holdfast.endpoint_target is 'What it takes to deliver to an endpoint; secrets are sealed';

create type holdfast.endpoint_state as (
  state text, enabled boolean, retry_in interval, version bigint, settled bigint[], skipped bigint[]
);
comment on type holdfast.endpoint_state is 'How an endpoint stands after attempts were recorded, and which messages counted';

create type holdfast.endpoint_health as (
  endpoint text, queue text, enabled boolean, disabled_reason text, breaker text, failures int, opened_at timestamptz, retry_at timestamptz,
  last_success_at timestamptz, last_failure_at timestamptz, attempts bigint, success_rate float8, latency_p50 float8, latency_p95 float8,
  latency_p99 float8, pending bigint, in_flight bigint, dead bigint, oldest_pending interval, exact boolean, last_errors jsonb
);
comment on type holdfast.endpoint_health is 'How an endpoint does; latencies in seconds';

create type holdfast.attempt_info as (
  endpoint text, queue text, id bigint, root_id bigint, at timestamptz, delivery int, outcome text, status int, latency float8, error text,
  response text
);
comment on type holdfast.attempt_info is 'An attempt to deliver a message';

create type holdfast.attempt_report as (
  message bigint, root bigint, delivery int, outcome text, status int, latency float8, error text, response text, probe bigint, at timestamptz,
  token bigint, delay float8
);
comment on type holdfast.attempt_report is 'An attempt, as whoever made it tells of it';

create type holdfast.published as (nth int, endpoint text, queue text, id bigint);
comment on type holdfast.published is 'A message that an event became; nth: which event of the call, from 0';

create type holdfast.subscription_info as (id bigint, event_type text, endpoint text, filter jsonb, created_at timestamptz);
comment on type holdfast.subscription_info is 'An endpoint that gets the events of a type';
