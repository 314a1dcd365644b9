-- The engine's state: types, tables and roles.
--
-- holdfast.queue      configuration, one row a queue; the effective values lie beside the overrides
-- holdfast.lane       one (priority, shard) stream of a queue, and the names of its registers
-- holdfast.message    the durable log; the id carries the lane: id >> 40
-- holdfast.lease      volatile: who holds which messages until when
-- holdfast.gap        volatile: ids that the cursor stepped over because their rows were not there
-- holdfast.boot       volatile: "this lane was set up in this database since the last crash"
-- holdfast.tally      volatile: figures too large to count on request, written by maintain()
-- holdfast.inbox      the door for COPY
--
-- A register is an unlogged sequence: no dead versions, no WAL, and gone after a crash together with the
-- leases. It is not transactional, so it carries speed, never correctness.

create schema if not exists holdfast;
comment on schema holdfast is 'Holdfast: a durable message queue';

do $$
declare
  v_role text;
begin
  foreach v_role in array array['holdfast_admin', 'holdfast_producer', 'holdfast_consumer', 'holdfast_monitor'] loop
    begin
      if not exists (select from pg_roles r where r.rolname = v_role) then
        execute format('create role %I nologin', v_role);
      end if;
    exception
      -- Roles belong to the cluster: an install into another database may make them at the same moment.
      when duplicate_object or unique_violation then null;
      when insufficient_privilege then
        raise warning 'role % was not created: this user may not create roles', v_role
          using hint = 'Let an administrator create it, then call holdfast._grant_rights() as the owner of the schema.';
    end;
  end loop;
end $$;

create type holdfast.delivery as (
  token bigint, id bigint, queue text, payload jsonb, body bytea, content_type text, headers jsonb, priority int,
  key text, ordering_key text, correlation_id uuid, tag text, deliveries int, max_deliveries int,
  enqueued_at timestamptz, deadline timestamptz, last_error text, origin jsonb
);
create type holdfast.settlement as (settled bigint[], skipped bigint[]);
create type holdfast.entry as (
  id bigint, queue text, state text, payload jsonb, body bytea, content_type text, headers jsonb, priority int,
  key text, ordering_key text, correlation_id uuid, tag text, deliveries int, failures int, max_deliveries int,
  enqueued_at timestamptz, due_at timestamptz, expires_at timestamptz, last_error text, origin jsonb
);
create type holdfast.draft as (
  payload jsonb, body bytea, content_type text, headers jsonb, priority int, due_at timestamptz,
  expires_at timestamptz, correlation_id uuid, tag text, max_deliveries int
);
create type holdfast.stats as (
  queue text, kind text, ready bigint, scheduled bigint, blocked bigint, in_flight bigint, dead bigint, blocked_lines bigint,
  depth bigint, oldest_age interval, exact boolean, paused boolean, counters jsonb
);
create type holdfast._figures as (
  fresh bigint, due bigint, scheduled bigint, blocked bigint, in_flight bigint, drawn bigint, oldest timestamptz, exact boolean
);
create type holdfast._fresh as (ids bigint[], upto bigint);
comment on type holdfast.delivery is 'A message as claim hands it out';
comment on type holdfast.settlement is 'What ack, nack, release and extend did: ids that counted, ids that did not';
comment on type holdfast.entry is 'A message as browse and message show it';
comment on type holdfast.draft is 'A message on its way in';
comment on type holdfast.stats is 'The figures of one queue';
comment on type holdfast._figures is 'The messages of one lane, counted';
comment on type holdfast._fresh is 'What a claim takes by the cursor: ids, and where the cursor stands afterwards';

create table holdfast.queue (
  id int generated always as identity primary key,
  name text not null unique,
  created_at timestamptz not null,
  paused boolean not null default false,
  config jsonb not null,
  lease interval not null,
  max_deliveries int not null,
  dead_letter text,
  backoff_base float8 not null,
  backoff_factor float8 not null,
  backoff_cap float8 not null,
  backoff_jitter float8 not null,
  ttl interval,
  max_depth bigint,
  priority_default smallint not null,
  priorities smallint[] not null,
  shards smallint not null,
  notify boolean not null,
  max_payload int not null,
  plain boolean not null,
  asleep regclass,
  depth regclass,
  counted_at regclass
);
comment on table holdfast.queue is 'Queues: the overrides (config) and the effective configuration';
comment on column holdfast.queue.plain is 'nothing is asked of claims but messages: no order, no limit, nothing kept';
comment on column holdfast.queue.asleep is 'register: until when some consumer sleeps on this queue, in microseconds';
comment on column holdfast.queue.depth is 'register: the depth last measured for max_depth';
comment on column holdfast.queue.counted_at is 'register: when it was measured, in microseconds';

create table holdfast.defaults (
  only_row boolean primary key default true check (only_row),
  config jsonb not null
);
comment on table holdfast.defaults is 'Global defaults of the queue configuration: what configure_defaults set';
insert into holdfast.defaults (config) values ('{}');

create table holdfast.lane (
  id int generated always as identity (maxvalue 8388606) primary key,
  queue_id int not null references holdfast.queue on delete cascade,
  priority smallint not null check (priority between 0 and 10),
  shard smallint not null,
  queue_name text,
  paused boolean,
  lease interval,
  max_deliveries int,
  shards smallint,
  plain boolean,
  booted regclass,
  ids regclass,
  cursor regclass,
  care_at regclass,
  sweep_at regclass,
  due_floor regclass,
  due_walk regclass,
  lease_floor regclass,
  lease_walk regclass,
  lease_tidy regclass,
  gap_floor regclass,
  gap_look regclass,
  gap_walk regclass,
  gap_turn regclass
);
create unique index lane_of_queue on holdfast.lane (queue_id, priority desc, shard);
create index lane_by_name on holdfast.lane (queue_name, priority desc, shard);
comment on table holdfast.lane is 'Lanes: a queue''s (priority, shard) streams with their registers';
comment on column holdfast.lane.queue_name is 'this and the next five: copies of the queue''s, so that claim reads one row';
comment on column holdfast.lane.booted is 'register: the mark of the boot row that was last seen committed';
comment on column holdfast.lane.ids is 'logged sequence: draws the ids, lane * 2^40 + 1 and up';
comment on column holdfast.lane.cursor is 'register: the first id that no committed claim has passed';
comment on column holdfast.lane.care_at is 'register: until when claims may do without a look at the next registers, in microseconds of the real clock';
comment on column holdfast.lane.sweep_at is 'register: when to sweep next, in microseconds';
comment on column holdfast.lane.due_floor is 'register: no due row lies below this time, in microseconds';
comment on column holdfast.lane.due_walk is 'register: when to walk the due rows from the bottom again';
comment on column holdfast.lane.lease_floor is 'register: no live lease ends before this time, in microseconds';
comment on column holdfast.lane.lease_walk is 'register: when to walk the leases from the bottom again';
comment on column holdfast.lane.lease_tidy is 'register: the cursor up to which emptied leases were removed';
comment on column holdfast.lane.gap_floor is 'register: no gap starts below this id';
comment on column holdfast.lane.gap_walk is 'register: when to walk all gaps again; until then only the newest are looked at';
comment on column holdfast.lane.gap_turn is 'register: the id up to which the last walk over all gaps came; 0: it came to the end';
comment on column holdfast.lane.gap_look is 'register: when to look at gaps next, in microseconds * 10 + patience; 0: no gaps';

create table holdfast.message (
  id bigint primary key,
  queue_id int not null,
  deliveries int,
  enqueued_at timestamptz not null,
  due_at timestamptz,
  expires_at timestamptz,
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  tag text,
  correlation_id uuid,
  key text,
  idempotency_key text,
  payload_hash bytea,
  ordering_key text,
  order_no bigint,
  failures int,
  max_deliveries int,
  last_error text,
  origin jsonb
) with (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0.2);
create index message_due on holdfast.message ((id >> 40), due_at, id) where due_at is not null;
comment on table holdfast.message is 'The log: every live message. A plain one is inserted once and deleted once';
comment on column holdfast.message.due_at is
  'null: fresh, handed out by the cursor. A time: claimable from then on. infinity: parked. -infinity: held, came by the due path';

create unlogged table holdfast.lease (
  token bigint not null,
  part int not null,
  queue_id int not null,
  lane_id int not null,
  queue_name text not null,
  booted regclass not null,
  cursor regclass not null,
  consumer text,
  deadline timestamptz not null,
  ids bigint[] not null,
  scattered bigint[],
  lo bigint,
  upto bigint not null,
  handed int not null default 0,
  made_by xid8 not null,
  primary key (token, part)
) with (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index lease_upto on holdfast.lease (lane_id, upto) where upto > 0;
create index lease_deadline on holdfast.lease (lane_id, deadline);
create index lease_scattered on holdfast.lease using gin (scattered) with (fastupdate = off) where upto = 0;
comment on table holdfast.lease is
  'Leases. upto > 0: ids from the cursor, which stood at upto afterwards. upto = 0: ids from anywhere else';
comment on column holdfast.lease.queue_name is 'this and the next two: copies of the lane''s, so that ack reads one row';
comment on column holdfast.lease.scattered is 'for upto = 0: the ids as they were at first. No index is on ids, so that settling changes none';
comment on column holdfast.lease.lo is 'not null: the only lease of its token, over all ids from lo to upto - 1: what ack asks first';
comment on column holdfast.lease.handed is
  'how many messages the claim handed out under this token, in all its leases, less those that its holder has settled: what strict compares with';
comment on column holdfast.lease.part is 'tells the leases of one token apart: the lane id, its negative for upto = 0, a random number for a part split off';

create unlogged table holdfast.gap (
  lane_id int not null,
  lo bigint not null,
  hi bigint not null,
  horizon xid8 not null,
  primary key (lane_id, lo)
) with (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
comment on table holdfast.gap is 'Ids that the cursor passed while their senders were still open, or gone';
comment on column holdfast.gap.horizon is 'all transactions that may own these ids are older than this one';

create unlogged table holdfast.boot (
  lane_id int primary key,
  started_at timestamptz not null,
  database_oid oid not null,
  lease_oid oid not null,
  system_identifier bigint not null,
  made_by xid8 not null,
  audited bigint not null default 0
);
comment on table holdfast.boot is 'Lanes whose volatile state belongs to this database; the fingerprint that says so';

create unlogged table holdfast.tally (
  queue_id int primary key,
  counted_at timestamptz not null,
  in_flight bigint not null,
  due bigint not null,
  scheduled bigint not null,
  blocked bigint not null
);
comment on table holdfast.tally is 'Figures over 10,000, counted in full by maintain()';

create sequence holdfast.inbox_n;
comment on sequence holdfast.inbox_n is 'numbers the rows of the inbox';
create unlogged table holdfast.inbox (
  n bigint primary key default nextval('holdfast.inbox_n'),
  queue text,  -- a null is refused when it is received, as by send_many
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  priority int,
  deliver_at timestamptz,
  expires_at timestamptz,
  correlation_id uuid,
  tag text,
  max_deliveries int
) with (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
comment on table holdfast.inbox is 'COPY messages into this table: each statement sends what it brought and leaves the table empty';

-- These two are logged: an unlogged sequence can be unreadable after a failover until repair() has made it anew.
create sequence holdfast.turn minvalue 0 start 0;
comment on sequence holdfast.turn is 'the lane that maintain() looked at last';
create sequence holdfast.clock minvalue 0 start 0;
comment on sequence holdfast.clock is 'the virtual clock, in microseconds; see set_clock()';
