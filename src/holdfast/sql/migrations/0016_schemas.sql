-- Schemas: what the payloads of a queue must look like.
--
-- holdfast.schema_version     one row a version of a queue's schema; the last one is in force, unless it was dropped

create table holdfast.schema_version (
  queue_id int not null,
  version int not null,
  kind text not null,
  definition jsonb not null,
  compatibility text not null,
  created_at timestamptz not null,
  dropped_at timestamptz,
  primary key (queue_id, version)
);
comment on table holdfast.schema_version is 'A version of the schema that the payloads of a queue have';
comment on column holdfast.schema_version.kind is 'json: JSON Schema; avro: Avro';
comment on column holdfast.schema_version.compatibility is 'what the next version has to be: none, backward, forward, full';
comment on column holdfast.schema_version.dropped_at is 'since then the queue has had no schema; null: this version was in force until the next came';

create type holdfast.schema_info as (
  version int, kind text, definition jsonb, compatibility text, created_at timestamptz, dropped_at timestamptz
);
comment on type holdfast.schema_info is 'A version of a queue''s schema';
