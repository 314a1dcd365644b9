-- Schemas of queues: what their payloads must look like, JSON Schema or Avro, by versions.
--
--   set_schema        the next version; the same once more is no new one
--   drop_schema       payloads may be anything again; the versions stay
--   queue_schema      the one in force
--   schema_versions   all that are kept
--
-- Table: schema_version. Nothing here reads a definition: servers and clients do, and check what they send; so they are told
-- of a change as of one of the configuration, by a NOTIFY on the channel holdfast_config. Whether a change is compatible, they
-- judge too, against the version they have read: expected_version refuses the change if that is not the one in force any more.
-- A queue keeps its last 100 versions. No number comes twice, dropped or not, until the queue itself is dropped.
-- Lock order: the queue row, then its versions.

create or replace function holdfast._check_schema(definition jsonb, kind text, compatibility text) returns void language plpgsql immutable
as $$
declare
  v_types text[] := case kind when 'json' then '{object,boolean}' when 'avro' then '{object,array,string}' end;
begin
  if v_types is null then
    perform holdfast._fail('QH106', 'there is no such kind of schema', format('Got %s.', coalesce(quote_literal(left(kind, 100)), 'null')),
      'kind is json (JSON Schema) or avro.');
  elsif (jsonb_typeof(definition) = any (v_types)) is not true then
    perform holdfast._fail('QH106', 'this is no schema', format('Got %s.', coalesce(left(definition::text, 100), 'null')),
      'A JSON Schema is an object, true or false; an Avro schema is an object, an array or the name of a type.');
  elsif octet_length(definition::text) > 262144 then
    perform holdfast._fail('QH106', 'the schema is too large', format('It has %s bytes.', octet_length(definition::text)), 'A schema has up to 256 KiB.');
  elsif compatibility not in ('none', 'backward', 'forward', 'full') then
    perform holdfast._fail('QH106', 'there is no such compatibility', format('Got %s.', quote_literal(left(compatibility, 100))),
      'compatibility is none, backward, forward or full.');
  end if;
end $$;
comment on function holdfast._check_schema is 'Refuse what is no schema, whatever it says';

create or replace function holdfast._check_version(wanted int, there int) returns void language plpgsql immutable
as $$
begin
  if wanted is distinct from there then
    perform holdfast._fail('QH107', 'the schema has changed', format('Version %s was expected to be in force, and it is %s.', wanted, there),
      'Look at it anew, and change it then; 0 stands for no schema.');
  end if;
end $$;
comment on function holdfast._check_version is 'Refuse to change a schema that is not the one the caller knows';

create or replace function holdfast.set_schema(
  queue text, definition jsonb, kind text default 'json', compatibility text default null, expected_version int default null) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue holdfast.queue;
  v_last holdfast.schema_version;
  v_in_force boolean;
begin
  perform holdfast._check_schema(set_schema.definition, set_schema.kind, set_schema.compatibility);
  select q.* into v_queue from holdfast.queue q where q.name = set_schema.queue for no key update;
  if not found then
    perform holdfast._no_queue(set_schema.queue);
  end if;
  select s.* into v_last from holdfast.schema_version s where s.queue_id = v_queue.id order by s.version desc limit 1;
  v_in_force := found and v_last.dropped_at is null;
  if v_in_force and v_last.kind = set_schema.kind and v_last.definition = set_schema.definition then
    -- A second try after a lost answer finds its own work done.
    update holdfast.schema_version s set compatibility = set_schema.compatibility
    where s.queue_id = v_queue.id and s.version = v_last.version and s.compatibility <> set_schema.compatibility;
    return v_last.version;
  end if;
  if set_schema.expected_version is not null then
    perform holdfast._check_version(set_schema.expected_version, case when v_in_force then v_last.version else 0 end);
  end if;
  v_last.version := coalesce(v_last.version, 0) + 1;
  insert into holdfast.schema_version (queue_id, version, kind, definition, compatibility, created_at)
  values (v_queue.id, v_last.version, set_schema.kind, set_schema.definition,
          coalesce(set_schema.compatibility, v_last.compatibility, 'backward'), holdfast.now());
  delete from holdfast.schema_version s where s.queue_id = v_queue.id and s.version <= v_last.version - 100;
  perform holdfast._announce(v_queue.name, v_queue.notify);
  return v_last.version;
end $$;
comment on function holdfast.set_schema is
  'Say what the payloads of a queue must look like; returns the version. expected_version: the one that is to be in force until then, 0 for none';

create or replace function holdfast.drop_schema(queue text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = drop_schema.queue for no key update;
  if not found then
    perform holdfast._no_queue(drop_schema.queue);
  end if;
  update holdfast.schema_version s set dropped_at = holdfast.now()
  where s.queue_id = v_queue.id and s.dropped_at is null
    and s.version = (select max(l.version) from holdfast.schema_version l where l.queue_id = v_queue.id);
  if not found then
    return false;
  end if;
  perform holdfast._announce(v_queue.name, v_queue.notify);
  return true;
end $$;
comment on function holdfast.drop_schema is 'Let the payloads of a queue be anything; its versions stay. false: it had no schema';

create or replace function holdfast._schema_versions(queue text, "limit" int) returns setof holdfast.schema_info language plpgsql stable
as $$
declare
  v_id int;
begin
  select q.id into v_id from holdfast.queue q where q.name = _schema_versions.queue;
  if not found then
    perform holdfast._no_queue(_schema_versions.queue);
  end if;
  return query
    select s.version, s.kind, s.definition, s.compatibility, s.created_at, s.dropped_at
    from holdfast.schema_version s where s.queue_id = v_id order by s.version desc limit "limit";
end $$;
comment on function holdfast._schema_versions is 'The last versions of a queue''s schema, the newest first';

create or replace function holdfast.queue_schema(queue text) returns setof holdfast.schema_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select s.* from holdfast._schema_versions(queue_schema.queue, 1) s where s.dropped_at is null;
end $$;
comment on function holdfast.queue_schema is 'The schema that is in force for a queue; no row: payloads may be anything';

create or replace function holdfast.schema_versions(queue text) returns setof holdfast.schema_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select s.* from holdfast._schema_versions(schema_versions.queue, 100) s;
end $$;
comment on function holdfast.schema_versions is 'The versions that a queue''s schema had, the newest first';
