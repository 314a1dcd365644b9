-- Inbound hooks: where others post messages to, and into which queues they go.
--
-- holdfast.hook          one row a hook; several may fill one queue
-- holdfast.hook_slug     under which slugs it is called, by their hashes
-- holdfast.hook_secret   secrets that callers sign with, sealed
-- holdfast.hook_call     the last calls, and what became of them

create table holdfast.hook (
  id int generated always as identity primary key,
  name text not null unique,
  queue_id int not null references holdfast.queue,
  config jsonb not null,
  created_at timestamptz not null,
  changed_at timestamptz not null
);
create index hook_by_queue on holdfast.hook (queue_id);
comment on table holdfast.hook is 'Where others post messages to';
comment on column holdfast.hook.config is 'what differs from the built-in configuration; durations in seconds. Lock timeout, time to live and deliveries are settings of the queue';

create table holdfast.hook_slug (
  hash bytea primary key,
  hook_id int not null references holdfast.hook on delete cascade,
  prefix text not null,
  created_at timestamptz not null,
  expires_at timestamptz
);
create index hook_slug_by_hook on holdfast.hook_slug (hook_id);
comment on table holdfast.hook_slug is 'The part of a URL under which a hook is called; whoever knows it may post';
comment on column holdfast.hook_slug.hash is 'SHA-256 of the slug, which is stored nowhere';
comment on column holdfast.hook_slug.prefix is 'how it begins, for people';
comment on column holdfast.hook_slug.expires_at is 'until then an old slug counts too; null: the present one';

create table holdfast.hook_secret (
  id bigint generated always as identity primary key,
  hook_id int not null references holdfast.hook on delete cascade,
  sealed text not null,
  created_at timestamptz not null,
  expires_at timestamptz
);
create index hook_secret_by_hook on holdfast.hook_secret (hook_id);
comment on table holdfast.hook_secret is 'A secret by which calls are verified, sealed by a key that the database does not have';
comment on column holdfast.hook_secret.expires_at is 'until then an old secret counts too; null: the present one';

create table holdfast.hook_call (
  hook_id int not null references holdfast.hook on delete cascade,
  id bigint generated always as identity,
  at timestamptz not null,
  outcome text not null,
  status int not null,
  size bigint,
  code text,
  message_id bigint,
  primary key (hook_id, id)
);
create index hook_call_by_time on holdfast.hook_call (at);
comment on table holdfast.hook_call is 'A call of a hook, for a while';
comment on column holdfast.hook_call.outcome is 'accepted; duplicate: of a message that was accepted before; refused';
comment on column holdfast.hook_call.size is 'bytes of the body, as far as it was read';
comment on column holdfast.hook_call.code is 'of the error with which it was refused';

create type holdfast.hook_info as (
  hook text, queue text, enabled boolean, config jsonb, slugs jsonb, secrets jsonb, created_at timestamptz, changed_at timestamptz
);
comment on type holdfast.hook_info is 'What may be known of a hook: all but its slugs and secrets';

create type holdfast.hook_target as (nth bigint, hook text, queue text, config jsonb, secrets text[], expires_in float8);
comment on type holdfast.hook_target is 'What it takes to answer a call; secrets are sealed. nth: of which hash; expires_in: seconds that the slug still counts';

-- It has another argument now.
drop function if exists holdfast.send_once(text, jsonb, text, interval, boolean);
