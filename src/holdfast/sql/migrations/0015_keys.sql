-- API keys: who may use the HTTP server, and for what.
--
-- holdfast.api_key     one row a key; of the secret only a hash. Rows are never deleted: once there was a key, there is one.
-- holdfast.api_login   one row a login; of the token only a hash

create table holdfast.api_key (
  id bigint generated always as identity primary key,
  name text not null,
  prefix text not null,
  hash bytea not null unique,
  old_hash bytea unique,
  old_until timestamptz,
  scopes text[] not null,
  queues text[] not null,
  rate float8,
  burst int,
  created_at timestamptz not null,
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
);
comment on table holdfast.api_key is 'A key to the HTTP server';
comment on column holdfast.api_key.prefix is 'how the secret begins, for people to tell keys apart';
comment on column holdfast.api_key.hash is 'SHA-256 of the secret';
comment on column holdfast.api_key.old_hash is 'that of the secret before the last rotation, which counts until old_until';
comment on column holdfast.api_key.queues is 'patterns of queue names, in which * stands for anything';
comment on column holdfast.api_key.rate is 'requests a second; null: no limit';

create table holdfast.api_login (
  hash bytea primary key,
  key_id bigint not null references holdfast.api_key,
  expires_at timestamptz not null
);
create index api_login_by_key on holdfast.api_login (key_id, expires_at);
create index api_login_by_end on holdfast.api_login (expires_at);
comment on table holdfast.api_login is 'A token that stands for a key for some minutes';
comment on column holdfast.api_login.hash is 'SHA-256 of the token';

create type holdfast.api_key_info as (
  id bigint, name text, prefix text, scopes text[], queues text[], rate float8, burst int,
  created_at timestamptz, expires_at timestamptz, last_used_at timestamptz, revoked_at timestamptz
);
comment on type holdfast.api_key_info is 'What may be known of a key';
