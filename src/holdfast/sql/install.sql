-- Generated from sql/migrations and sql/functions by `make generate/install-sql`. Do not edit.
--
-- Installs Holdfast with nothing but psql:  psql -f install.sql
-- It is one transaction: all of it or nothing. Where this very version is installed, nothing is done; where
-- another one is, it is refused: `holdfast migrate` upgrades. Where it is included with \i,
-- ON_ERROR_STOP and QUIET are afterwards as they were; after an error they are on, and a rollback is due.
\set holdfast_stop :ON_ERROR_STOP
\set holdfast_quiet :QUIET
\set ON_ERROR_STOP on
\set QUIET on
begin;
set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
set local check_function_bodies = on;
do $encoding$
begin
    if current_setting('server_encoding') <> 'UTF8' then
        raise exception 'Holdfast needs a database with the encoding UTF8'
            using errcode = 'QH503', detail = format('This one has %s.', current_setting('server_encoding')),
                  hint = 'Create one: create database NAME encoding ''UTF8'' template template0;';
    end if;
end
$encoding$;
do $lock$ begin perform pg_catalog.pg_advisory_xact_lock(1213156420); end $lock$;
select to_regclass('holdfast.migration') is null as holdfast_absent \gset
\if :holdfast_absent

create schema if not exists holdfast;
create table if not exists holdfast.migration (
    version    int primary key,
    name       text not null,
    checksum   text not null,
    breaking   boolean not null,
    applied_at timestamptz not null default clock_timestamp()
);
comment on table holdfast.migration is
    'What the migrator ran. Row 0 stands for the functions, which are replaced whole.';

-- ==================== 0001 core ====================

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

insert into holdfast.migration (version, name, checksum, breaking)
values (1, 'core', '621d655256ad21eeedc61bca35533d3c6a2ea035497df4b869c8ee28c7517795', false);

-- ==================== 0002 limits ====================

-- Limits: the throughput limit of a queue, and named rate limiters.
--
-- holdfast.limiter    the names of rate limiters, and their registers; what is left of a bucket is in the register
-- queue.throttle      the register of a queue's throughput limit, made with the first limit
--
-- A bucket's register holds one moment, in nanoseconds: when the bucket would be full again if nothing were taken.

create type holdfast.allowance as (granted int, remaining int, retry_after interval);
comment on type holdfast.allowance is 'What a rate limiter granted, what it has left, and when to ask again';

alter table holdfast.queue add throughput_limit float8, add throttle regclass;
comment on column holdfast.queue.throughput_limit is 'messages a second that claims hand out; null: no limit';
comment on column holdfast.queue.throttle is 'register: when the bucket of the throughput limit is full again, in nanoseconds';
alter table holdfast.lane add throughput_limit float8, add throttle regclass;
comment on column holdfast.lane.throughput_limit is 'this and the next: copies of the queue''s';

create table holdfast.limiter (
  id int generated always as identity primary key,
  name text unique,
  register regclass,
  freed_at timestamptz
);
create index limiter_free on holdfast.limiter (id) where name is null;
comment on table holdfast.limiter is 'Rate limiters by name. One without a name is free: the next new name takes over its register';
comment on column holdfast.limiter.register is 'register: when the bucket is full again, in nanoseconds';

insert into holdfast.migration (version, name, checksum, breaking)
values (2, 'limits', 'ef95fee59b6cf25abea36f335abbe3e7e3ea1d8a30bd23630360956e3df67cbb', false);

-- ==================== 0003 logs ====================

-- Logs: queues that are read by sequence instead of being claimed.
--
-- holdfast.log         one row a log: its lane, its retention, and up to where retention has removed records
-- holdfast.tombstone   ranges of sequence numbers that log_delete has removed, coalesced
-- message_tag          finds the records of a tag; a message without a tag is not in it
--
-- A log's sequence number is id - lane * 2^40. Its lane has no queue_name, so no claim finds it. Three registers of the
-- lane hold something else in a log: gap_floor the first id of which it is not known whether it will ever come,
-- gap_turn and gap_walk an id and a transaction id: when no writer older than the latter is left, the former is known.

alter table holdfast.queue add kind text not null default 'queue' check (kind in ('queue', 'log'));
comment on column holdfast.queue.kind is 'queue: claimed and settled. log: appended to and read by sequence';

create table holdfast.log (
  lane_id int primary key references holdfast.lane on delete cascade,
  queue_id int not null unique references holdfast.queue on delete cascade,
  retain_age interval,
  retain_count bigint,
  trimmed bigint not null default 0
);
comment on table holdfast.log is 'Logs: how long records are kept, and which prefix is gone';
comment on column holdfast.log.trimmed is 'retention has removed all records up to this sequence number';

create table holdfast.tombstone (
  lane_id int not null references holdfast.log on delete cascade,
  hi bigint not null,
  lo bigint not null,
  primary key (lane_id, hi)
);
comment on table holdfast.tombstone is 'Sequence numbers that were deleted from a log; ranges that do not overlap';

create index message_tag on holdfast.message ((id >> 40), tag, id) where tag is not null;

create type holdfast.record as (
  kind text, seq bigint, from_seq bigint, to_seq bigint, id bigint, payload jsonb, body bytea, content_type text, headers jsonb,
  correlation_id uuid, tag text, enqueued_at timestamptz, last_error text, origin jsonb
);
comment on type holdfast.record is 'A record of a log as read shows it, or a range of sequence numbers that are gone';

insert into holdfast.migration (version, name, checksum, breaking)
values (3, 'logs', 'aaabdea6fd27b5a76fc56bf842bc8bc6cb5f4c8d0f1d6e76d79d1ca0fdfcad16', false);

-- ==================== 0004 archive ====================

-- The archive, and expiry without claims.
--
-- holdfast.archive    what ended and is kept, partitioned by the day it ended on (UTC). Partitions are made ahead by
--                     maintain(); what finds none lies in the default one, so an ack never fails for want of one.
-- message_expiry      messages with a time to live, by lane and time: what maintain() walks. Others are not in it.

alter table holdfast.queue
  add column expire_in_flight boolean not null default false,
  add column keep text[] not null default '{}',
  add column keep_for interval not null default '7 days',
  add column lean boolean not null default true;
comment on column holdfast.queue.lean is 'an ack has nothing to do but delete: nothing done is kept, and nothing expires in flight';
comment on column holdfast.queue.keep is 'the outcomes whose messages go to the archive: done, expired, failed, discarded';

create sequence holdfast.no_boot minvalue 0 start 0;
comment on sequence holdfast.no_boot is 'in place of a lane''s booted register, where acks may not take their short way: it never holds a mark';

alter table holdfast.lane
  add column fence regclass,
  add column expiry_at regclass,
  add column expiry_id regclass,
  add column expiry_walk regclass;
update holdfast.lane set fence = booted;
comment on column holdfast.lane.fence is 'what claim writes into a lease as booted: that register, or no_boot where the queue is not lean';
comment on column holdfast.lane.expiry_at is 'register: the walk over expired messages goes on from this time, in microseconds; 0: from the bottom';
comment on column holdfast.lane.expiry_id is 'register: and from this id';
comment on column holdfast.lane.expiry_walk is 'register: when that walk starts from the bottom again; 0: whenever it has come to the end';

do $$
declare
  v_lane record;
  v_register text;
begin
  for v_lane in select l.id from holdfast.lane l order by l.id loop
    foreach v_register in array array['expiry_at', 'expiry_id', 'expiry_walk'] loop
      execute format('create unlogged sequence holdfast.%I minvalue 0 start 0', v_register || '_' || v_lane.id);
      perform setval(format('holdfast.%I', v_register || '_' || v_lane.id)::regclass, 0);
      execute format('update holdfast.lane set %I = %L::regclass where id = %s', v_register,
                     format('holdfast.%I', v_register || '_' || v_lane.id), v_lane.id);
    end loop;
  end loop;
end $$;

create index message_expiry on holdfast.message ((id >> 40), expires_at, id) where expires_at is not null;

alter type holdfast.entry add attribute ended_at timestamptz;

create table holdfast.archive (
  id bigint not null,
  queue_id int not null,
  outcome text not null,
  ended_at timestamptz not null,
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
) partition by range (ended_at);
-- No primary key: pg_restore --clean cannot drop the constraint that a partition has from its table, and says so.
create unique index archive_by_id on holdfast.archive (id, ended_at);
create index archive_by_queue on holdfast.archive (queue_id, ended_at, id);
comment on table holdfast.archive is 'Messages that ended and are kept, by the day they ended on';
comment on column holdfast.archive.outcome is 'done, expired, failed or discarded';
comment on column holdfast.archive.deliveries is 'how often it was delivered, the last time included if it was acked';

create table holdfast.archive_default partition of holdfast.archive default;
create index archive_default_ended on holdfast.archive_default (ended_at, id);
comment on table holdfast.archive_default is 'Messages that ended on a day that had no partition at that time';

-- Logged, as holdfast.turn is.
create sequence holdfast.archive_turn minvalue 0 start 0;
comment on sequence holdfast.archive_turn is 'the queue whose old archive maintain() removed last';
create sequence holdfast.archive_walk minvalue 0 start 0;
comment on sequence holdfast.archive_walk is 'when maintain() looks for old rows in the archive again, in microseconds of the real clock';

insert into holdfast.migration (version, name, checksum, breaking)
values (4, 'archive', '0025768d79614e27e99ac9bf26692b128c83f5ea50462a2abaefa3d389d855ea', false);

-- ==================== 0005 order ====================

-- Order and keys: columns, indexes, and the sequence that numbers ordered messages.
--
-- ordering_key + order_no    its place in its key's line; a strict queue is one line, under the key ''
-- head                       known to be the first of its line: nobody needs to search for one before it
-- blocks_since               dead, and its line waits behind it until unblock() (on_dead = block)
-- key                        replaceable: found by (queue_id, key) under a lock on the key
-- idempotency_key            unique among the live messages of a queue

create sequence holdfast.order_no;
comment on sequence holdfast.order_no is 'numbers ordered messages; drawn under the lock of their key, so that order is commit order';

alter table holdfast.message add column head boolean, add column blocks_since timestamptz;
comment on column holdfast.message.head is 'true: no live message of its queue and ordering key comes before it';
comment on column holdfast.message.blocks_since is 'not null: dead since then, parked, and blocking its ordering key';
create index message_order on holdfast.message (queue_id, ordering_key, order_no) where ordering_key is not null;
create index message_blocks on holdfast.message (queue_id, ordering_key) where blocks_since is not null;
create index message_key on holdfast.message (queue_id, key, id) where key is not null;
create unique index message_idempotency on holdfast.message (queue_id, idempotency_key) where idempotency_key is not null;

alter table holdfast.queue add column ordering text, add column on_dead text not null default 'continue', add column ordered boolean not null default false;
comment on column holdfast.queue.ordering is 'null: none, key, strict';
comment on column holdfast.queue.ordered is 'it has had an ordering once: there may be ordered messages in it';
alter table holdfast.lane add column ordering text;
comment on column holdfast.lane.ordering is 'null: no ordered message was ever in it. key, strict: how claim judges what it meets';

alter type holdfast.draft add attribute ordering_key text, add attribute key text, add attribute idempotency_key text;
alter table holdfast.inbox add column ordering_key text, add column key text, add column idempotency_key text;

drop function if exists holdfast.send(text, jsonb, bytea, text, jsonb, int, interval, timestamptz, interval, timestamptz, uuid, text, int);
drop function if exists holdfast.send_batch(text, jsonb[], text, jsonb, int, interval, timestamptz, interval, timestamptz, uuid, text, int);

insert into holdfast.migration (version, name, checksum, breaking)
values (5, 'order', 'f31818a9d12522779b03c861a36a92310cd555ba46dd3e22826385b2d1abb74f', false);

-- ==================== 0006 samples ====================

-- Figures over time, counters, and the settings budget, lapse_is_failure and durability.
--
-- holdfast.sample   one row a queue and minute, written by maintain(), kept 14 days
-- holdfast.probe    volatile: what maintain() saw of a lane, summed up; samples are differences of it
-- holdfast.finding  what why() returns
--
-- The counters of a queue are logged sequences, one for each thing that is not the plain way of a message: drawn
-- from by those who do it, so that nobody waits for anybody, and nothing piles up.

alter table holdfast.queue
  add column budget text not null default 'deliveries',
  add column lapse_is_failure boolean not null default false,
  add column fast boolean,
  add column counters regclass[];
comment on column holdfast.queue.budget is 'what max_deliveries limits: deliveries or failures';
comment on column holdfast.queue.lapse_is_failure is 'a lease that ran out counts as a failure too';
comment on column holdfast.queue.fast is 'true: sends that are a transaction of their own do not wait for the disk; null: they do';
comment on column holdfast.queue.counters is 'sequences, in the order of _counted(): how often each has happened since the queue was made';

create type holdfast.finding as (finding text, severity text, message text, details jsonb, remedy text);
comment on type holdfast.finding is 'One answer to the question why nothing is moving';

create table holdfast.sample (
  queue_id int not null references holdfast.queue on delete cascade,
  minute timestamptz not null,
  began timestamptz not null,
  ended timestamptz not null,
  figures bigint[] not null,
  ready bigint not null,
  scheduled bigint not null,
  blocked bigint not null,
  in_flight bigint not null,
  oldest_age interval,
  exact boolean not null,
  waiting bigint[] not null,
  processing bigint[] not null,
  totals bigint[] not null,
  primary key (queue_id, minute)
);
comment on table holdfast.sample is 'What happened in a queue between two looks of maintain(), a minute apart or more';
comment on column holdfast.sample.figures is 'how many were sent and done, and then the counters in the order of _counted()';
comment on column holdfast.sample.waiting is 'how many had waited how long when they were handed out, by the classes of _class(): an estimate';
comment on column holdfast.sample.processing is 'how many took how long, by the same classes: an estimate';
comment on column holdfast.sample.totals is 'what the next sample starts from: figures since the queue was made, then the sums over its probes';

create unlogged table holdfast.probe (
  lane_id int primary key,
  start bigint not null,
  looks bigint not null,
  in_flight bigint not null,
  waiting bigint[] not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table holdfast.probe is 'What maintain() has seen of a lane since the last crash, summed up';
comment on column holdfast.probe.in_flight is 'the sum, over all looks, of how many were in flight';

alter table holdfast.tally
  add column lane_id int,
  add column due_at timestamptz,
  add column id bigint,
  add column so_far bigint[],
  add column busy interval,
  add column rest_until timestamptz;
comment on column holdfast.tally.lane_id is 'this and the next three: how far the count that is under way has come, and what it has found; null: none is';
comment on column holdfast.tally.busy is 'how long the count under way has taken so far';
comment on column holdfast.tally.rest_until is 'when the next count may begin, in real time';

create sequence holdfast.queue_turn minvalue 0 start 0;
comment on sequence holdfast.queue_turn is 'the queue that maintain() looked at last';
create sequence holdfast.maintained_at minvalue 0 start 0;
comment on sequence holdfast.maintained_at is 'when maintain() was last called, in microseconds';

-- These have got an argument more.
drop function if exists holdfast.maintain();
drop function if exists holdfast._tally(int, timestamptz);
drop function if exists holdfast.send(text, jsonb, bytea, text, jsonb, int, interval, timestamptz, interval, timestamptz, uuid, text, int);
drop function if exists holdfast.send_batch(text, jsonb[], text, jsonb, int, interval, timestamptz, interval, timestamptz, uuid, text, int);
drop function if exists holdfast.send_many(text, jsonb);

insert into holdfast.migration (version, name, checksum, breaking)
values (6, 'samples', '8cfe087836f81971135c136a01c65c554fd266b60f9a08f64458f15b84477d9b', false);

-- ==================== 0007 staging ====================

-- Staging: messages that many processes bring together, to be sent in one transaction.
--
-- holdfast.stage    volatile: who brings rows. One row for each attempt of each part of a write; kept for a day
-- holdfast.staged   volatile: the rows, by stage, numbered in the order in which they are to be sent
-- holdfast.write    writes that were sent to a queue, by the name that the sender gave: so that none is sent twice
--
-- Both volatile tables are unlogged: they are empty together after a crash, and send_staged then refuses.

create sequence holdfast.stage_n;
comment on sequence holdfast.stage_n is 'numbers the stages; logged, so that no number comes back after a crash';

create unlogged table holdfast.stage (
  id bigint primary key default nextval('holdfast.stage_n'),
  queue_id int not null,
  write_id text not null,
  run text not null,
  part int not null,
  opened_at timestamptz not null
);
create index stage_opened on holdfast.stage (opened_at);
create index stage_run on holdfast.stage (run);
create index stage_write on holdfast.stage (queue_id, write_id);
comment on table holdfast.stage is 'Stages: where one attempt of one part of a write puts its rows';

create unlogged table holdfast.staged (
  stage bigint not null,
  n bigint not null,
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  priority int,
  delay float8,
  deliver_at timestamptz,
  ttl float8,
  expires_at timestamptz,
  correlation_id text,
  tag text,
  max_deliveries int,
  ordering_key text,
  key text,
  idempotency_key text,
  primary key (stage, n)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
comment on table holdfast.staged is 'Messages that wait to be sent together; delay and ttl in seconds';

create table holdfast.write (
  queue_id int not null references holdfast.queue on delete cascade,
  id text not null,
  messages bigint not null,
  sent_at timestamptz not null,
  primary key (queue_id, id)
);
create index write_sent on holdfast.write (sent_at);
comment on table holdfast.write is 'Writes that were sent; kept for 30 days';

insert into holdfast.migration (version, name, checksum, breaking)
values (7, 'staging', '09a60c0ff6493617033222a8d6b19bb93d01bceee01ea31884678ee17089afe6', false);

-- ==================== 0008 claimed ====================

-- Who did it, and how long it took: a kept message tells which consumer ended it, and since when that one had it.
--
-- lease.claimed_at                     when the claim took the lane; an extend does not change it. null: an older lease
-- archive.consumer, archive.claimed_at of the delivery that ended a message as done; null for other ends

alter table holdfast.lease add column claimed_at timestamptz;
comment on column holdfast.lease.claimed_at is 'when its messages were claimed';

alter table holdfast.archive add column consumer text, add column claimed_at timestamptz;
comment on column holdfast.archive.consumer is 'of a message that is done: who acked it, as the claim named itself';
comment on column holdfast.archive.claimed_at is 'of a message that is done: when it was claimed for the last time';

alter type holdfast.entry add attribute consumer text, add attribute claimed_at timestamptz;

drop function if exists holdfast._end(int, bigint[], text, timestamptz);

insert into holdfast.migration (version, name, checksum, breaking)
values (8, 'claimed', '61d7ac39bc06745d8cd305df101595b4ab4177f4ad71037af060fdbc5bf5f3de', false);

-- ==================== 0009 pipelines ====================

-- Pipelines: the history of their runs.
--
-- holdfast.pipeline_run   one row a run: what it was told, how far it is, how it ended; kept bounded by begin_run
-- holdfast.run            what runs() returns

create table holdfast.pipeline_run (
  id bigint generated always as identity primary key,
  pipeline text not null,
  parameters jsonb not null,
  exclusive text,
  state text not null default 'running',
  step text,
  done bigint,
  total bigint,
  figures jsonb,
  error text,
  started_by text not null,
  backend int not null,
  started_at timestamptz not null,
  seen_at timestamptz not null,
  ended_at timestamptz
) with (fillfactor = 70);
create index pipeline_run_pipeline on holdfast.pipeline_run (pipeline, id);
create index pipeline_run_seen on holdfast.pipeline_run (seen_at);
create unique index pipeline_run_exclusive on holdfast.pipeline_run (exclusive) where state = 'running' and exclusive is not null;
comment on table holdfast.pipeline_run is 'Runs of pipelines';
comment on column holdfast.pipeline_run.exclusive is 'of the runs that have this in common, one runs at a time; null: it may run beside any other';
comment on column holdfast.pipeline_run.state is 'running, done, failed, interrupted, or lost: nobody heard of it any more, and another run took its place';
comment on column holdfast.pipeline_run.backend is 'the process of the server that it last reported by';
comment on column holdfast.pipeline_run.seen_at is 'when it last reported';

create type holdfast.run as (
  id bigint, pipeline text, state text, step text, done bigint, total bigint, parameters jsonb, figures jsonb, error text,
  started_by text, started_at timestamptz, seen_at timestamptz, ended_at timestamptz
);
comment on type holdfast.run is 'A run of a pipeline, as the history shows it';

insert into holdfast.migration (version, name, checksum, breaking)
values (9, 'pipelines', '332976f9a9f93c9f7ce5289337f73c5f0b63ad892af214821e5ac1d7100496b7', false);

-- ==================== 0010 lake ====================

-- The lake: which files outside hold messages of the archive.
--
-- holdfast.lake         lakes that this database has put messages into
-- holdfast.lake_batch   batches: a stretch of a queue's archive that becomes one file of a lake; kept for 90 days once done
-- holdfast.batch        what open_batch() and open_batches() return

create table holdfast.lake (
  id uuid primary key default gen_random_uuid(),
  place text not null,
  made_at timestamptz not null
);
comment on table holdfast.lake is 'Lakes that hold messages of this database';
comment on column holdfast.lake.place is 'where it was when it was made, for people';

create table holdfast.lake_batch (
  id bigint generated always as identity primary key,
  lake uuid not null references holdfast.lake,
  queue_id int not null,
  queue text not null,
  day date not null,
  first_at timestamptz not null,
  first_id bigint not null,
  last_at timestamptz not null,
  last_id bigint not null,
  state text not null default 'open',
  messages bigint not null,
  checksum numeric,
  opened_at timestamptz not null,
  closed_at timestamptz
);
create index lake_batch_open on holdfast.lake_batch (lake, id) where state <> 'done';
create index lake_batch_queue on holdfast.lake_batch (queue_id, last_at, last_id) where state <> 'done';
create index lake_batch_done on holdfast.lake_batch (closed_at) where state = 'done';
comment on table holdfast.lake_batch is 'Stretches of the archive that are files of a lake, or are becoming so';
comment on column holdfast.lake_batch.queue is 'its name, for a queue that is dropped meanwhile';
comment on column holdfast.lake_batch.state is 'open: the file may be there or not; kept: it is, and so are the rows; done: the rows that it has are removed';
comment on column holdfast.lake_batch.messages is 'open: how many were there when it was opened; else how many the file has';
comment on column holdfast.lake_batch.checksum is 'the sum of the checksums of what the file has';

create type holdfast.batch as (
  id bigint, queue text, day date, state text, first_at timestamptz, first_id bigint, last_at timestamptz, last_id bigint, messages bigint
);
comment on type holdfast.batch is 'A batch of messages on their way to a lake';

insert into holdfast.migration (version, name, checksum, breaking)
values (10, 'lake', '0036a314be45982e884a1a53b527f077b6b395f19bf6cc6a88f280f166a78929', false);

-- ==================== 0011 replays ====================

-- Replays: messages of an archive that are staged bring along where they came from.

alter table holdfast.staged add column origin jsonb;
comment on column holdfast.staged.origin is 'of a message of an archive: what its origin is to say; read by replay_staged alone';

insert into holdfast.migration (version, name, checksum, breaking)
values (11, 'replays', '004fd1f028fde78745be9726081258fcdf1f9173cf2c848028c98140cc686e72', false);

-- ==================== 0012 stages ====================

-- Stages have an owner, and numbers that nobody can guess: all senders may insert rows, and only into stages of their own.

alter table holdfast.stage add column opened_by text not null default session_user;
alter table holdfast.stage alter column opened_by drop default;
alter table holdfast.stage alter column id drop default;
drop sequence holdfast.stage_n;
comment on column holdfast.stage.opened_by is 'the user whose it is; others can neither send nor drop what lies in it';

-- These have other arguments now.
drop function if exists holdfast._dubious_repairs(holdfast.queue, bigint, bigint, bigint, text[], timestamptz);
drop function if exists holdfast._check_repairs(holdfast.queue, bigint, bigint, bigint, text[], timestamptz);

insert into holdfast.migration (version, name, checksum, breaking)
values (12, 'stages', '8294239b6efe8786d1a522a1b69126e35113393d085f2ef5f0dd6a95c2baac93', false);

-- ==================== 0013 rollups ====================

-- Rollups: figures of queues by bucket of time, for longer than samples are kept.
--
-- holdfast.rollup   one row a queue, size of bucket and bucket; written by put_rollups, which keeps it bounded

create table holdfast.rollup (
  queue_id int not null references holdfast.queue on delete cascade,
  bucket interval not null,
  start timestamptz not null,
  sent bigint not null,
  done bigint not null,
  failed bigint not null,
  dead bigint not null,
  expired bigint not null,
  discarded bigint not null,
  retries bigint not null,
  waiting_count bigint not null,
  waiting_p50 float8,
  waiting_p95 float8,
  waiting_p99 float8,
  processing_count bigint not null,
  processing_p50 float8,
  processing_p95 float8,
  processing_p99 float8,
  estimated text[] not null,
  details jsonb not null,
  made_at timestamptz not null,
  primary key (queue_id, bucket, start)
);
comment on table holdfast.rollup is 'What happened in a queue in a bucket of time';
comment on column holdfast.rollup.bucket is 'how long the bucket is: 1 minute, 5 minutes, 1 hour or 1 day';
comment on column holdfast.rollup.waiting_count is 'how many messages the percentiles are about, which are in seconds';
comment on column holdfast.rollup.estimated is 'which of the figures come from the samples of each minute';
comment on column holdfast.rollup.details is 'errors, keys, consumers, objectives: the first few of each';

insert into holdfast.migration (version, name, checksum, breaking)
values (13, 'rollups', '6fd8556a28c639a5d8ca0170da78ad03c97a848b47cfa50c7359db59f6c001b3', false);

-- ==================== 0014 cohorts ====================

-- Cohorts: several claimers that one call serves.
--
-- holdfast.cohort_delivery   a delivery, and whose it is

create type holdfast.cohort_delivery as (
  claimer int,
  token bigint, id bigint, queue text, payload jsonb, body bytea, content_type text, headers jsonb, priority int,
  key text, ordering_key text, correlation_id uuid, tag text, deliveries int, max_deliveries int,
  enqueued_at timestamptz, deadline timestamptz, last_error text, origin jsonb
);
comment on type holdfast.cohort_delivery is 'A message as claim_cohort hands it out: to which claimer, counted from 1, and as claim does';

-- These have other arguments now: what is refused is named by its place among others.
drop function if exists holdfast._fail(text, text, text, text);
drop function if exists holdfast._too_large(text, int);
drop function if exists holdfast._check_size(jsonb, bytea, int);
drop function if exists holdfast._fits(jsonb, int);
drop function if exists holdfast._draft(jsonb, holdfast.queue, timestamptz);
drop function if exists holdfast._check_depth(holdfast.queue, bigint);
drop function if exists holdfast._store_one(holdfast.queue, holdfast.draft, regclass, timestamptz);
drop function if exists holdfast._sent_before(holdfast.queue, holdfast.draft);
drop function if exists holdfast._no_append(text, jsonb);

insert into holdfast.migration (version, name, checksum, breaking)
values (14, 'cohorts', '57bffc9382292cbe79447f720280e7a698964e6229f762b318611fd52ee78984', false);

-- ==================== 0015 keys ====================

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

insert into holdfast.migration (version, name, checksum, breaking)
values (15, 'keys', 'fe56e6e2bae0fc1aeb4d6087bc723d295e0d5c13e2e9576128fae84c8b63abe5', false);

-- ==================== 0016 schemas ====================

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

insert into holdfast.migration (version, name, checksum, breaking)
values (16, 'schemas', '0c7f711442b3598385b0e6cdd922e03dfb5af341ccb0649e4a9f8c46eba1e211', false);

-- ==================== 0017 receipts ====================

-- Receipts: what was sent under an idempotency key that counts for a time, also when the messages have ended since.
--
-- holdfast.receipt   one row a queue and key; maintain() removes those whose time is over

create table holdfast.receipt (
  queue_id int not null references holdfast.queue on delete cascade,
  key text not null,
  hash bytea not null,
  ids bigint[] not null,
  until timestamptz not null,
  primary key (queue_id, key)
);
create index receipt_by_end on holdfast.receipt (until);
comment on table holdfast.receipt is 'Batches that were sent once, and are not sent again under their key until a time';
comment on column holdfast.receipt.hash is 'SHA-256 of the messages as text: the same key with others is an error';

-- These have another argument now: a queue may be dropped on the condition that it is empty.
drop function if exists holdfast.drop_queue(text);
drop function if exists holdfast._drop_queue(text);

insert into holdfast.migration (version, name, checksum, breaking)
values (17, 'receipts', 'e260fab7d2a73a168a02eed2f50f3f1fb93eedf8b3388036cf25923dfcd20ae6', false);

-- ==================== 0018 lookups ====================

-- Lookups: where a message is now, what a queue holds, and how what it keeps has ended.
--
-- message_root, archive_by_root   by the first id, which stays in origin when a message moves. As text: whoever stages a
--                                 message of an archive says what its origin is, and that need not be a number. Only who
--                                 asks for a root_id may walk them, so their condition is one that nothing else implies
-- archive_by_outcome              what ended otherwise than done: of that there is most, and it pays for no index more
-- holdfast.content                a message as contents shows it
-- queue.replaces                  which messages a send with their key replaces

create index message_root on holdfast.message ((origin ->> 'root_id')) where origin ? 'root_id';
create index archive_by_root on holdfast.archive ((origin ->> 'root_id')) where origin ? 'root_id';
create index archive_by_outcome on holdfast.archive (queue_id, outcome, ended_at, id) where outcome <> 'done';

create type holdfast.content as (
  id bigint, root_id bigint, queue text, state text, payload jsonb, body bytea, content_type text, headers jsonb, priority int,
  key text, ordering_key text, correlation_id uuid, tag text, deliveries int, failures int, max_deliveries int,
  enqueued_at timestamptz, due_at timestamptz, expires_at timestamptz, deadline timestamptz, last_error text, origin jsonb,
  ended_at timestamptz, consumer text, claimed_at timestamptz
);
comment on type holdfast.content is 'A message as contents shows it';

alter table holdfast.queue add column replaces text not null default 'unclaimed';
comment on column holdfast.queue.replaces is 'which messages a send with their key replaces: unclaimed, that were never handed out, or all that are waiting';

-- These have other arguments now.
drop function if exists holdfast._forget(timestamptz, int, int);
drop function if exists holdfast._expire(holdfast.lane, timestamptz);
drop function if exists holdfast._expire_chunk(holdfast.lane, holdfast.queue, bigint, timestamptz, timestamptz, bigint);
drop function if exists holdfast._replace(int, holdfast.draft, text, timestamptz);

insert into holdfast.migration (version, name, checksum, breaking)
values (18, 'lookups', '6fc7de9033e787267cdf7aa89d0f3518e8154b7aa590880ff50b3395aa772940', false);

-- ==================== 0019 schedules ====================

-- Schedules: when the jobs of servers run.
--
-- holdfast.schedule   one row a job that has a schedule

create table holdfast.schedule (
  name text primary key,
  cron text not null,
  next_at timestamptz not null,
  last_at timestamptz
);
comment on table holdfast.schedule is 'When the jobs of servers run';
comment on column holdfast.schedule.cron is 'five fields, in UTC, or @every and a number of seconds: servers read it';
comment on column holdfast.schedule.next_at is 'the next tick: one server takes it, and moves this on';
comment on column holdfast.schedule.last_at is 'when a server last took a tick';

insert into holdfast.migration (version, name, checksum, breaking)
values (19, 'schedules', 'e28c384f80a951b59f733e9c7487c09031c6350771a4129d2242fb5074ff90dd', false);

-- ==================== 0020 rows ====================

-- Rows: messages that statements of others can select, lock and take.
--
-- queue.row_of     the queue's own name where its messages are to be had as rows, else null
-- message.row_of   the same: in all other queues it is null, and costs a message nothing
-- message_row      in the order in which they are taken. Only where row_of is not null, so the others pay for no index
-- holdfast.hold    in whose lease a message is

alter table holdfast.queue add column row_of text;
comment on column holdfast.queue.row_of is 'the name of the queue, if its messages can be taken as rows (by_row)';
alter table holdfast.message add column row_of text;
comment on column holdfast.message.row_of is 'the name of the queue, if its messages can be taken as rows (by_row)';
create index message_row on holdfast.message (row_of, id) where row_of is not null;

create type holdfast.hold as (token bigint, consumer text, deadline timestamptz);
comment on type holdfast.hold is 'In whose lease a message is, and until when';

-- It has other arguments now.
drop function if exists holdfast._end_leases(holdfast.lane, tid[], timestamptz);

insert into holdfast.migration (version, name, checksum, breaking)
values (20, 'rows', '6ebdb59d50bac18e6f6fc2fd9661ba0a16555668e522cd4a1806c04b46805dbb', false);

-- ==================== 0021 endpoints ====================

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

insert into holdfast.migration (version, name, checksum, breaking)
values (21, 'endpoints', 'de6e5583ce9910af7100d92838fb9960f47491cc8482c66fd825ef02f1f8ec60', false);

-- ==================== 0022 services ====================

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

insert into holdfast.migration (version, name, checksum, breaking)
values (22, 'services', '954d21b8304085e64881f76495b356065f9b8b77ad4361c17aef5386919bca12', false);

-- ==================== 0023 seals ====================

-- Seals: with which public keys the bodies of a queue are encrypted before they are stored.
--
-- queue.seal_key          the id of the key in force; null: messages are stored as they come
-- holdfast.seal_key       one row a key that a queue has, or had
-- holdfast.seal_secret    one row a queue that had a key: what plaintexts are hashed with, to tell repeated sends

alter table holdfast.queue add column seal_key text;
comment on column holdfast.queue.seal_key is 'the id of the public key that messages are sealed with; null: they are not sealed';

create table holdfast.seal_key (
  queue_id int not null references holdfast.queue on delete cascade,
  id text not null,
  kind text not null,
  public_key text not null,
  n int not null,
  set_at timestamptz not null,
  dropped_at timestamptz,
  primary key (queue_id, id)
);
comment on table holdfast.seal_key is 'A public key of a queue; the private one is with its consumers alone';
comment on column holdfast.seal_key.id is 'SHA-256 of the key (SubjectPublicKeyInfo, DER), in hex';
comment on column holdfast.seal_key.kind is 'rsa or x25519';
comment on column holdfast.seal_key.public_key is 'the key as PEM';
comment on column holdfast.seal_key.n is 'the highest of those that are not dropped is in force';
comment on column holdfast.seal_key.dropped_at is 'since then nothing sealed with it is taken';

create table holdfast.seal_secret (
  queue_id int primary key references holdfast.queue on delete cascade,
  secret bytea not null
);
comment on table holdfast.seal_secret is 'The key of the hash by which a sealed message that is sent again is known';

create type holdfast.seal_key_info as (
  id text, kind text, public_key text, set_at timestamptz, dropped_at timestamptz
);
comment on type holdfast.seal_key_info is 'A public key of a queue';

-- It has another argument now.
drop function if exists holdfast._suspect(holdfast.staged, int, boolean, text, int, timestamptz);

insert into holdfast.migration (version, name, checksum, breaking)
values (23, 'seals', 'c2592bf3b2fd34c8347743344f9e59f3a5c741ae7155abb08e3024b3af120496', false);

-- ==================== 0024 hooks ====================

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

insert into holdfast.migration (version, name, checksum, breaking)
values (24, 'hooks', 'e886b19ee8b5042be976f5c6eea4123871412ed93f37e9d928ae379ba24bc663', false);

-- ==================== 0025 begun ====================

-- A batch whose agent was about to commit on the service: what became of it is not known until it is tried again.

alter table holdfast.service_task add column begun boolean not null default false;
comment on column holdfast.service_task.begun is 'whether an attempt got so far that it may have been done on the service';

insert into holdfast.migration (version, name, checksum, breaking)
values (25, 'begun', 'e478617c19c768ad1bc356bdfa2ac74497c95532765ccd5bb0c0dab8493703a5', false);

-- ==================== 0000 functions ====================

-- 10_clock.sql
-- The clock. Every time the engine uses comes from holdfast.now(), so that a test can set it.
--
-- In production now() is clock_timestamp() and nothing else. set_clock() replaces it by a version that reads
-- a register, for the whole database; set_clock(null) puts the plain one back.

create or replace function holdfast._check_clock(at timestamptz) returns void language plpgsql stable
as $$
begin
  -- Registers hold microseconds since 1970. Up to 2255 a double counts them exactly; leases and delays reach ten years further.
  if not isfinite(_check_clock.at) or _check_clock.at < timestamptz 'epoch' or _check_clock.at >= timestamptz '2200-01-01Z' then
    perform holdfast._fail('QH205', 'the time of the clock is out of range', format('Got %s.', _check_clock.at),
      'The clock can be set from 1970 to the end of 2199 (UTC); null lets it run.');
  end if;
end $$;
comment on function holdfast._check_clock is 'Refuse a time that the clock cannot be set to';

create or replace function holdfast._clock_is_set() returns boolean language plpgsql stable
as $$
begin
  return coalesce(pg_get_function_sqlbody(to_regprocedure('holdfast.now()')) like '%pg_sequence_last_value%', false);
end $$;
comment on function holdfast._clock_is_set is 'Has set_clock() stopped the clock?';

create or replace function holdfast.set_clock(at timestamptz) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform holdfast._check_clock(set_clock.at);
  if set_clock.at is null then
    create or replace function holdfast.now() returns timestamptz language sql volatile
      return clock_timestamp();
  else
    perform setval('holdfast.clock', (extract(epoch from set_clock.at) * 1000000)::bigint);
    if not holdfast._clock_is_set() then
      -- Runs as the owner: nobody else may read the register.
      create or replace function holdfast.now() returns timestamptz language sql volatile
        security definer set search_path = pg_catalog, pg_temp
        return coalesce(timestamptz 'epoch' + pg_sequence_last_value('holdfast.clock'::regclass) * interval '1 microsecond',
                        clock_timestamp());
    end if;
  end if;
  -- A queue that is dropped meanwhile takes the registers of its lanes along.
  perform setval(l.care_at, 0) from (select care_at from holdfast.lane for key share) l;
end $$;
comment on function holdfast.set_clock is 'Stop the clock of this database at a time; null lets it run again. For tests';

do $$
begin
  -- Re-applying the functions must not start a clock that a test has stopped.
  if to_regprocedure('holdfast.now()') is null then
    perform holdfast.set_clock(null);
  end if;
end $$;
comment on function holdfast.now is 'The time, as the engine sees it';

create or replace function holdfast._us(at timestamptz) returns bigint language sql stable
  return (date_part('epoch', at) * 1000000)::bigint;
comment on function holdfast._us is 'Microseconds since 1970: how registers hold a time';

create or replace function holdfast._time(us bigint) returns timestamptz language sql stable
  return timestamptz 'epoch' + us * interval '1 microsecond';
comment on function holdfast._time is 'The time that a register holds';

-- 15_lock.sql
-- Locks: the classes of all advisory locks, here and nowhere else. Two uses of one class would wait for each other.
--
-- A lock is a pair (class, object). All are held until the transaction ends, unless it says "for a moment": then in a
-- subtransaction that is always undone.
--
--   class              object                                     taken by
--   _lane_lock         lane id                                    whoever moves a lane: claim, sweep, repair, drop
--   _upkeep_lock       queue id                                   maintain, for its steps of a queue; never waited for
--   _line_lock         a queue's bucket of ordering keys          sends and redrives to an ordered queue, replays to a strict one
--   _key_lock          a queue's bucket of keys                   sends with a key, discard_key
--   _idempotency_lock  a queue's bucket of idempotency keys       sends with one, redrive
--   _bucket_lock       limiter id, or the negative queue id       take_rate and limited claims, for a moment
--   _mark_lock         lane id of a log                           read, for its pair of registers, for a moment
--   _archive_lock      0                                          maintain, for the archive; never waited for
--   _stage_lock        0                                          maintain, for staged messages; never waited for
--   _turn_lock         0                                          maintain_in_turn; never waited for
--   _grave_lock        hash of a queue's name                     who names a dead-letter queue (shared), or makes one strict
--
-- Lock order: lines, keys, idempotency keys, each by bucket; then lanes by id or priority; then the momentary ones,
-- whose holders wait for nobody.

create or replace function holdfast._lane_lock() returns int language sql immutable
  return 1215261796;
comment on function holdfast._lane_lock is 'The class of the advisory locks on lanes; the object is the lane id';

create or replace function holdfast._upkeep_lock() returns int language sql immutable
  return 1215261797;
comment on function holdfast._upkeep_lock is 'The class of the advisory locks on the upkeep of queues; the object is the queue id';

create or replace function holdfast._line_lock() returns int language sql immutable
  return 1215261798;
comment on function holdfast._line_lock is 'The class of the advisory locks on ordering keys; the object is a bucket of a queue''s keys';

create or replace function holdfast._key_lock() returns int language sql immutable
  return 1215261799;
comment on function holdfast._key_lock is 'The class of the advisory locks on replaceable keys; the object is a bucket of a queue''s keys';

create or replace function holdfast._idempotency_lock() returns int language sql immutable
  return 1215261800;
comment on function holdfast._idempotency_lock is 'The class of the advisory locks on idempotency keys; the object is a bucket of a queue''s keys';

create or replace function holdfast._bucket_lock() returns int language sql immutable
  return 1215261801;
comment on function holdfast._bucket_lock is 'The class of the advisory locks on buckets of tokens; the object is the limiter''s id, or the negative of the queue''s';

create or replace function holdfast._mark_lock() returns int language sql immutable
  return 1215261802;
comment on function holdfast._mark_lock is 'The class of the advisory locks on mark and horizon of logs; the object is the lane id';

create or replace function holdfast._archive_lock() returns int language sql immutable
  return 1215261803;
comment on function holdfast._archive_lock is 'The class of the advisory lock on the upkeep of the archive; the object is 0';

create or replace function holdfast._grave_lock() returns int language sql immutable
  return 1215261804;
comment on function holdfast._grave_lock is 'The class of the advisory locks on names of dead-letter queues; the object is a hash of the name';

create or replace function holdfast._stage_lock() returns int language sql immutable
  return 1215261805;
comment on function holdfast._stage_lock is 'The class of the advisory lock on the upkeep of staged messages; the object is 0';

create or replace function holdfast._turn_lock() returns int language sql immutable
  return 1215261806;
comment on function holdfast._turn_lock is 'The class of the advisory lock on the turn to maintain; the object is 0';

-- 20_checks.sql
-- Checks: what a caller may pass, and how it is told.
--
-- Every error has a stable code (SQLSTATE QHnnn), a message that says what is wrong, a detail that says what
-- was found, and a hint that says what to do. The code stands at the end of the message too: psql does not show a
-- SQLSTATE unless told to. A check raises or returns nothing; it changes nothing.
--
-- Of several messages in one call the error also names the one that is refused, as messages[17], counted from 0: at the head
-- of the detail, and for programs as the column of the error. nth is that number, counted from 1; null: there is but one.

create or replace function holdfast._fail(code text, message text, detail text default '', hint text default '', nth bigint default null)
returns void language plpgsql volatile
as $$
begin
  if nth is not null then
    perform holdfast._blame(nth, _fail.code, format('%s [%s]', _fail.message, _fail.code), _fail.detail, _fail.hint);
  end if;
  raise exception using errcode = _fail.code, message = format('%s [%s]', _fail.message, _fail.code), detail = _fail.detail, hint = _fail.hint;
end $$;
comment on function holdfast._fail is 'Raise a Holdfast error; the message ends with its code. nth: of the message that is to blame, if there are several';

create or replace function holdfast._blame(nth bigint, code text, message text, detail text, hint text) returns void language plpgsql volatile
as $$
declare
  v_place text := format('messages[%s]', nth - 1);
begin
  raise exception using errcode = _blame.code, message = _blame.message, detail = format('%s: %s', v_place, _blame.detail),
    hint = _blame.hint, column = v_place;
end $$;
comment on function holdfast._blame is 'Raise an error that names the message which is to blame';

create or replace function holdfast._no_queue(queue text) returns void language plpgsql volatile
as $$
begin
  if _no_queue.queue is null then
    perform holdfast._fail('QH101', 'the name of the queue is null', 'Every call but queues() and maintain() is about a queue.',
      'Pass the name of a queue first; for a send, payload (JSON) or body (bytes) after it: holdfast.send(''orders'', ''{"n": 1}'').');
  elsif exists (select from holdfast.queue q where q.name = _no_queue.queue and q.kind = 'log') then
    perform holdfast._not_a_queue(_no_queue.queue);
  end if;
  perform holdfast._fail('QH101', format('queue "%s" does not exist', left(_no_queue.queue, 200)),
    'Queues are made explicitly.', 'Create it with holdfast.create_queue, or check the spelling.');
end $$;
comment on function holdfast._no_queue is 'Raise: no such queue';

create or replace function holdfast._queue(queue text) returns holdfast.queue language plpgsql stable
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = _queue.queue;
  if not found then
    perform holdfast._no_queue(_queue.queue);
  end if;
  return v_queue;
end $$;
comment on function holdfast._queue is 'A queue by its name, or an error';

create or replace function holdfast._check_there(queue holdfast.queue) returns void language plpgsql volatile
as $$
begin
  -- This function is volatile: it sees what was committed since its stable caller began. Where the transaction's snapshot
  -- is fixed it does not, but sequences are looked up as of now.
  if not exists (select from holdfast.queue q where q.id = queue.id)
     or exists (select from holdfast.lane l where l.queue_id = queue.id and has_sequence_privilege(l.ids, 'usage') is null) then
    perform holdfast._no_queue(queue.name);
  end if;
end $$;
comment on function holdfast._check_there is 'After an internal error: raise another one if the reason is that the queue was dropped meanwhile';

create or replace function holdfast._check_name(queue text) returns void language plpgsql immutable
as $$
begin
  if _check_name.queue is null or _check_name.queue !~ '^[A-Za-z0-9._:-]{1,200}$' then
    perform holdfast._fail('QH103', 'invalid queue name',
      format('Got %s.', coalesce(quote_literal(left(_check_name.queue, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  end if;
end $$;
comment on function holdfast._check_name is 'Refuse a bad queue name';

create or replace function holdfast._check_text(field text, value text) returns void language plpgsql immutable
as $$
begin
  if length(_check_text.value) > 200 then
    perform holdfast._fail('QH207', format('%s is too long', _check_text.field),
      format('It has %s characters.', length(_check_text.value)), format('%s takes at most 200 characters.', _check_text.field));
  end if;
end $$;
comment on function holdfast._check_text is 'Refuse an over-long tag, content type or consumer name';

create or replace function holdfast._check_lease(lease interval) returns void language plpgsql immutable
as $$
begin
  if _check_lease.lease < interval '100 ms' or _check_lease.lease > interval '24 hours' then
    perform holdfast._fail('QH302', 'lease is out of range', format('Got %s.', _check_lease.lease),
      'A lease lasts from 100 milliseconds to 24 hours.');
  end if;
end $$;
comment on function holdfast._check_lease is 'Refuse a bad lease duration';

create or replace function holdfast._check_isolation(verb text) returns void language plpgsql stable
as $$
begin
  -- What these verbs decide under a lane lock, they must see as it is now, not as it was when the transaction began.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform holdfast._fail('QH303', format('%s works in READ COMMITTED only', verb),
      format('This transaction is %s: its snapshot may be older than the last claim.', upper(current_setting('transaction_isolation'))),
      format('Call %s in a READ COMMITTED transaction.', verb));
  end if;
end $$;
comment on function holdfast._check_isolation is 'Refuse a transaction whose snapshot may be old';

create or replace function holdfast._check_limit("limit" int) returns void language plpgsql immutable
as $$
begin
  if _check_limit."limit" is null or _check_limit."limit" not between 1 and 10000 then
    perform holdfast._fail('QH402', 'limit is out of range', format('Got %s.', coalesce(_check_limit."limit"::text, 'null')),
      'limit takes 1 to 10,000.');
  end if;
end $$;
comment on function holdfast._check_limit is 'Refuse a bad page size';

create or replace function holdfast._check_priority(priority int) returns void language plpgsql immutable
as $$
begin
  if _check_priority.priority not between 0 and 10 then
    perform holdfast._fail('QH204', 'priority is out of range', format('Got %s.', _check_priority.priority),
      'priority takes 0 (last) to 10 (first).');
  end if;
end $$;
comment on function holdfast._check_priority is 'Refuse a bad priority';

create or replace function holdfast._too_large(detail text, max_payload int, nth bigint) returns void language plpgsql volatile
as $$
begin
  perform holdfast._fail('QH201', 'payload is too large', detail,
    format('This queue takes at most %s bytes (max_payload in its configuration).', max_payload), nth);
end $$;
comment on function holdfast._too_large is 'Raise: the payload is over the limit';

create or replace function holdfast._check_size(payload jsonb, body bytea, max_payload int, nth bigint default null) returns void
language plpgsql immutable
as $$
declare
  v_size bigint := 0;
begin
  if payload is not null and body is not null then
    perform holdfast._fail('QH203', 'a message has a payload or a body, not both', 'Both were given.',
      'Put JSON into payload, or bytes into body.');
  end if;
  v_size := coalesce(octet_length(body), 0);
  -- A small value is small as text too, but for compression and for numbers such as 1e131071, which few bytes can hold
  -- few of: 4 kB of them are still no danger.
  if pg_column_size(payload) > max_payload / 256 or pg_column_compression(payload) is not null then
    v_size := octet_length(payload::text);
  end if;
  if v_size > max_payload then
    perform holdfast._too_large(format('It has %s bytes.', v_size), max_payload, nth);
  end if;
exception
  when program_limit_exceeded or out_of_memory then
    perform holdfast._too_large('It is too long to be written as text at all.', max_payload, nth);
end $$;
comment on function holdfast._check_size is 'Refuse a payload over the limit, or a payload with a body';

create or replace function holdfast._fits(payload jsonb, max_payload int, nth bigint) returns boolean language plpgsql immutable
as $$
begin
  perform holdfast._check_size(payload, null, max_payload, nth);
  return true;
end $$;
comment on function holdfast._fits is 'true, or the error that says that the payload is over the limit';

create or replace function holdfast._check_options(
  content_type text, headers jsonb, correlation_id uuid, tag text, max_deliveries int) returns void
language plpgsql immutable
as $$
begin
  perform holdfast._check_text('content_type', content_type);
  perform holdfast._check_text('tag', tag);
  if jsonb_typeof(headers) <> 'object' then
    perform holdfast._fail('QH203', 'headers must be a JSON object', format('Got a JSON %s.', jsonb_typeof(headers)),
      'Pass headers as {"name": "value"}.');
  end if;
  if octet_length(headers::text) > 65536 then
    perform holdfast._fail('QH202', 'headers are too large', format('They have %s bytes.', octet_length(headers::text)),
      'headers take at most 65,536 bytes.');
  end if;
  if max_deliveries not between 0 and 1000 then
    perform holdfast._fail('QH210', 'max_deliveries is out of range', format('Got %s.', max_deliveries),
      'max_deliveries takes 1 to 1,000, or 0 for no limit.');
  end if;
end $$;
comment on function holdfast._check_options is 'Refuse bad options of a message';

create or replace function holdfast._due_at(delay interval, deliver_at timestamptz, at timestamptz) returns timestamptz
language plpgsql stable
as $$
declare
  v_due timestamptz := deliver_at;
begin
  if delay between interval '0' and interval '10 years' then
    v_due := coalesce(deliver_at, at + delay);
  end if;
  if delay is not null and deliver_at is not null then
    perform holdfast._fail('QH205', 'delay and deliver_at exclude each other', 'Both were given.', 'Pass one of them.');
  end if;
  if delay not between interval '0' and interval '10 years' or v_due > at + interval '10 years' or not isfinite(v_due) then
    perform holdfast._fail('QH205', 'the time of delivery is out of range', format('Got %s.', coalesce(delay::text, deliver_at::text)),
      'A message can be delayed by 0 seconds to 10 years; a deliver_at in the past means now.');
  end if;
  return case when v_due > at then v_due end;
end $$;
comment on function holdfast._due_at is 'When a message becomes claimable; null: at once';

create or replace function holdfast._expires_at(ttl interval, expires_at timestamptz, at timestamptz, default_ttl interval)
returns timestamptz language plpgsql stable
as $$
begin
  if ttl is not null and expires_at is not null then
    perform holdfast._fail('QH206', 'ttl and expires_at exclude each other', 'Both were given.', 'Pass one of them.');
  end if;
  if ttl <= interval '0' or ttl > interval '10 years' or not isfinite(expires_at) or expires_at > at + interval '10 years' then
    perform holdfast._fail('QH206', 'the time to live is out of range', format('Got %s.', coalesce(ttl::text, expires_at::text)),
      'A message can live from a moment to 10 years.');
  end if;
  -- Past is past; but not every client can read a year before the first.
  return coalesce(case when expires_at is not null then greatest(expires_at, at - interval '10 years') end, at + ttl, at + default_ttl);
end $$;
comment on function holdfast._expires_at is 'When a message expires; null: never';

create or replace function holdfast._refuse_write() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception '%.% is there to be read', tg_table_schema, tg_table_name using errcode = 'feature_not_supported',
    detail = 'Nothing was changed.', hint = 'Call the functions of the schema holdfast: what belongs together changes together.';
end $$;
comment on function holdfast._refuse_write is
  'For views: refuse what would go through to the table and leave the rest behind, also for the owner';

-- 30_queue.sql
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

-- 35_schema.sql
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

-- 36_seal.sql
-- Seals: public keys of queues. What is sent to a queue that has one is encrypted before it is stored.
--
--   set_seal_key     from now on messages are sealed with this key; those of before still count
--   seal_keys        all that a queue has, or had
--   drop_seal_key    nothing that is sealed with this key is taken any more; without keys, messages are stored as they come
--   sealing          for those who send: the key in force, and what plaintexts are hashed with
--
-- Tables: seal_key, seal_secret. Nothing here encrypts: servers and clients do, with the key that they have looked up. So they
-- are told of a change as of one of the configuration; and whatever comes unsealed all the same, or sealed with a key that the
-- queue does not have, is refused, so that nobody who has not heard of a key yet stores a plaintext. Moves are not checked.
-- Lock order: the queue row, then its keys.

create or replace function holdfast._public_key(public_key text, out id text, out kind text, out pem text) language plpgsql immutable
as $$
declare
  v_text text := regexp_replace(substring(_public_key.public_key from '^\s*-----BEGIN PUBLIC KEY-----(.*)-----END PUBLIC KEY-----\s*$'), '\s', '', 'g');
  v_der bytea;
begin
  if length(v_text) between 4 and 4000 and length(v_text) % 4 = 0 and v_text ~ '^[A-Za-z0-9+/]+={0,2}$' then
    v_der := decode(v_text, 'base64');
  end if;
  if length(v_der) = 44 and substr(v_der, 1, 12) = '\x302a300506032b656e032100' then
    kind := 'x25519';
  elsif length(v_der) > 270 and substr(v_der, 1, 2) = '\x3082' and get_byte(v_der, 2) * 256 + get_byte(v_der, 3) = length(v_der) - 4
        and substr(v_der, 5, 17) = '\x300d06092a864886f70d01010105000382' and substr(v_der, 24, 3) = '\x003082' and substr(v_der, 29, 2) = '\x0282'
        -- The modulus, with a zero before it: 2,048 to 8,192 bits.
        and get_byte(v_der, 30) * 256 + get_byte(v_der, 31) between 257 and 1025 and get_byte(v_der, 32) = 0 and get_byte(v_der, 33) >= 128 then
    kind := 'rsa';
  else
    perform holdfast._fail('QH110', 'this is no public key that messages can be sealed with',
      case when _public_key.public_key is null then 'Got null.' when _public_key.public_key ~ 'PRIVATE KEY' then 'It is a private key: keep it with the consumer.'
           else format('Got %s characters.', length(_public_key.public_key)) end,
      'public_key takes PEM (BEGIN PUBLIC KEY) of RSA with 2,048 to 8,192 bits, or of X25519.');
  end if;
  id := encode(sha256(v_der), 'hex');
  pem := E'-----BEGIN PUBLIC KEY-----\n' || rtrim(regexp_replace(translate(encode(v_der, 'base64'), E'\n', ''), '(.{64})', E'\\1\n', 'g'), E'\n')
         || E'\n-----END PUBLIC KEY-----\n';
end $$;
comment on function holdfast._public_key is 'A public key with its id and kind, as PEM that is always written the same way; refuses what is none';

create or replace function holdfast.set_seal_key(queue text, public_key text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_key record;
  v_queue holdfast.queue;
begin
  select k.* into v_key from holdfast._public_key(set_seal_key.public_key) k;
  select q.* into v_queue from holdfast.queue q where q.name = set_seal_key.queue for no key update;
  if not found then
    perform holdfast._no_queue(set_seal_key.queue);
  end if;
  -- Random enough for a key: two UUIDs have 244 bits of it. A restored dump may lack it.
  insert into holdfast.seal_secret (queue_id, secret)
  values (v_queue.id, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))) on conflict on constraint seal_secret_pkey do nothing;
  if v_queue.seal_key = v_key.id then
    return v_key.id;
  end if;
  insert into holdfast.seal_key as k (queue_id, id, kind, public_key, n, set_at)
  values (v_queue.id, v_key.id, v_key.kind, v_key.pem, coalesce((select max(o.n) from holdfast.seal_key o where o.queue_id = v_queue.id), 0) + 1, holdfast.now())
  on conflict on constraint seal_key_pkey do update set n = excluded.n, set_at = excluded.set_at, dropped_at = null;
  update holdfast.queue q set seal_key = v_key.id where q.id = v_queue.id;
  perform holdfast._announce(v_queue.name, v_queue.notify);
  return v_key.id;
end $$;
comment on function holdfast.set_seal_key is
  'Have the messages of a queue sealed with this public key from now on; returns its id. Those before it still count, for whoever has sealed already';

create or replace function holdfast.drop_seal_key(queue text, key_id text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = drop_seal_key.queue for no key update;
  if not found then
    perform holdfast._no_queue(drop_seal_key.queue);
  end if;
  update holdfast.seal_key k set dropped_at = holdfast.now()
  where k.queue_id = v_queue.id and k.id = drop_seal_key.key_id and k.dropped_at is null;
  if not found then
    return false;
  end if;
  update holdfast.queue q
  set seal_key = (select k.id from holdfast.seal_key k where k.queue_id = q.id and k.dropped_at is null order by k.n desc limit 1)
  where q.id = v_queue.id;
  perform holdfast._announce(v_queue.name, v_queue.notify);
  return true;
end $$;
comment on function holdfast.drop_seal_key is
  'Take a public key from a queue: the one set before it is in force then, or none, and messages are stored as they come. false: it has no such key';

create or replace function holdfast.seal_keys(queue text) returns setof holdfast.seal_key_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = seal_keys.queue;
  if not found then
    perform holdfast._no_queue(seal_keys.queue);
  end if;
  return query
    select k.id, k.kind, k.public_key, k.set_at, k.dropped_at from holdfast.seal_key k
    where k.queue_id = v_queue.id order by k.dropped_at is not null, k.n desc;
end $$;
comment on function holdfast.seal_keys is 'The public keys of a queue: the one in force first, then those before it, then those that were dropped';

create or replace function holdfast.sealing(queue text) returns table (key_id text, public_key text, digest_key bytea)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue holdfast.queue;
begin
  select q.* into v_queue from holdfast.queue q where q.name = sealing.queue;
  if not found then
    perform holdfast._no_queue(sealing.queue);
  end if;
  return query
    select k.id, k.public_key, s.secret from holdfast.seal_key k left join holdfast.seal_secret s on s.queue_id = k.queue_id
    where k.queue_id = v_queue.id and k.id = v_queue.seal_key;
end $$;
comment on function holdfast.sealing is
  'For those who send: the key that messages are sealed with, and the one that plaintexts are hashed with under an idempotency_key. No row: they are not sealed';

create or replace function holdfast._envelope(body bytea) returns jsonb language plpgsql immutable
as $$
declare
  v_length int;
begin
  if (length(body) >= 22 and substr(body, 1, 4) = '\x48464531') is not true then
    return null;
  end if;
  v_length := get_byte(body, 4) * 256 + get_byte(body, 5);
  if length(body) < 22 + v_length then
    return null;
  end if;
  return convert_from(substr(body, 7, v_length), 'UTF8')::jsonb;
exception
  when data_exception then
    return null;
end $$;
comment on function holdfast._envelope is 'The header of a sealed body; null: it is none';

create or replace function holdfast._digest(body bytea) returns bytea language plpgsql immutable
as $$
begin
  return decode(holdfast._envelope(body) ->> 'digest', 'base64');
exception
  when data_exception then
    return null;
end $$;
comment on function holdfast._digest is 'The keyed hash of the plaintext that a sealed body carries; null: it carries none';

create or replace function holdfast._digests(messages jsonb) returns jsonb language plpgsql immutable
as $$
begin
  return (
    select jsonb_agg(case when d.digest is null then m.value else m.value || jsonb_build_object('body', encode(d.digest, 'hex')) end order by m.n)
    from jsonb_array_elements(messages) with ordinality m(value, n)
      cross join lateral (select case when m.value ->> 'body' like 'SEZFM%' then holdfast._digest(decode(m.value ->> 'body', 'base64')) end as digest) d);
exception
  when data_exception then
    return messages;
end $$;
comment on function holdfast._digests is 'Messages with the hashes of their plaintexts in place of sealed bodies, which are others each time';

create or replace function holdfast._check_sealed(queue holdfast.queue, body bytea, nth bigint default null) returns void language plpgsql stable
as $$
declare
  v_envelope jsonb := holdfast._envelope(body);
begin
  if v_envelope is null then
    perform holdfast._fail('QH241', format('queue "%s" takes sealed messages only', queue.name), format('They are sealed with the key %s.', queue.seal_key),
      'Send with a client, the command line or a server, which seal them; or send an envelope as the body.', nth);
  elsif not exists (select from holdfast.seal_key k where k.queue_id = queue.id and k.id = v_envelope ->> 'kid' and k.dropped_at is null) then
    perform holdfast._fail('QH241', format('queue "%s" does not have the key that this message is sealed with', queue.name),
      format('It is sealed with %s; the queue has %s.', left(coalesce(v_envelope ->> 'kid', 'none'), 100), queue.seal_key), 'Seal it anew.', nth);
  end if;
end $$;
comment on function holdfast._check_sealed is 'Refuse what is not sealed with a key of this queue, which has some. nth: which of several messages it is';

-- 40_lane.sql
-- Lanes: making one, its registers, the boot check, repair.
--
-- A lane's volatile state (registers, leases, gaps) belongs to one database since its last crash; the row in
-- holdfast.boot says so. Where it is missing or speaks of another database, _boot_lane() starts over: every
-- lease has expired, the cursor goes back to the start.
-- Lock order: lane locks by lane id, before any row.

create or replace function holdfast._make_sequence(kind text, name text, options text) returns regclass language plpgsql volatile
as $$
declare
  v_name text := format('holdfast.%I', _make_sequence.name);
begin
  -- A restore over a newer database can leave one of this name behind; the number in it is new, so nobody uses it.
  if to_regclass(v_name) is not null then
    execute format('drop sequence %s', v_name);
  end if;
  execute format('create %s %s %s', kind, v_name, options);
  return v_name::regclass;
end $$;
comment on function holdfast._make_sequence is 'Make a sequence';

create or replace function holdfast._unchanged(lane holdfast.lane) returns boolean language plpgsql volatile
as $$
begin
  return exists (select from holdfast.lane l where l.id = lane.id and l.cursor = lane.cursor);
end $$;
comment on function holdfast._unchanged is
  'Under the lane lock: is the lane still as it was read before? Whoever held the lock may have dropped it, or made its registers anew';

create or replace function holdfast._register(name text) returns regclass language plpgsql volatile
as $$
begin
  return holdfast._make_sequence('unlogged sequence', name, 'minvalue 0 start 0');
end $$;
comment on function holdfast._register is 'Make a register';

create or replace function holdfast._make_registers(lane_id int) returns void language plpgsql volatile
as $$
begin
  update holdfast.lane l set
    booted = holdfast._register('booted_' || l.id),
    cursor = holdfast._register('cursor_' || l.id),
    care_at = holdfast._register('care_at_' || l.id),
    sweep_at = holdfast._register('sweep_at_' || l.id),
    due_floor = holdfast._register('due_floor_' || l.id),
    due_walk = holdfast._register('due_walk_' || l.id),
    lease_floor = holdfast._register('lease_floor_' || l.id),
    lease_walk = holdfast._register('lease_walk_' || l.id),
    lease_tidy = holdfast._register('lease_tidy_' || l.id),
    gap_floor = holdfast._register('gap_floor_' || l.id),
    gap_look = holdfast._register('gap_look_' || l.id),
    gap_walk = holdfast._register('gap_walk_' || l.id),
    gap_turn = holdfast._register('gap_turn_' || l.id),
    expiry_at = holdfast._register('expiry_at_' || l.id),
    expiry_id = holdfast._register('expiry_id_' || l.id),
    expiry_walk = holdfast._register('expiry_walk_' || l.id)
  where l.id = _make_registers.lane_id;
  update holdfast.lane l set fence = case when q.lean then l.booted else 'holdfast.no_boot' end
  from holdfast.queue q where l.id = _make_registers.lane_id and q.id = l.queue_id;
  perform holdfast._clear_registers(l) from holdfast.lane l where l.id = _make_registers.lane_id;
end $$;
comment on function holdfast._make_registers is 'Make the registers of a lane';

create or replace function holdfast._registers(lane holdfast.lane) returns regclass[] language sql immutable
  return array[(lane).booted, (lane).cursor, (lane).care_at, (lane).sweep_at, (lane).due_floor, (lane).due_walk, (lane).lease_floor,
               (lane).lease_walk, (lane).lease_tidy, (lane).gap_floor, (lane).gap_look, (lane).gap_walk, (lane).gap_turn,
               (lane).expiry_at, (lane).expiry_id, (lane).expiry_walk];
comment on function holdfast._registers is 'All registers of a lane';

create or replace function holdfast._clear_registers(lane holdfast.lane) returns void language plpgsql volatile
as $$
begin
  perform setval(r, 0) from unnest(holdfast._registers(lane)) r;
  perform setval(lane.cursor, (lane.id::bigint << 40) + 1);
end $$;
comment on function holdfast._clear_registers is 'Set the registers of a lane as they are before the first claim';

create or replace function holdfast._drop_registers(lane holdfast.lane) returns void language plpgsql volatile
as $$
begin
  execute format('drop sequence %s', array_to_string(holdfast._registers(lane), ', '));
end $$;
comment on function holdfast._drop_registers is 'Drop the registers of a lane';

create or replace function holdfast._make_lane(queue_id int, priority smallint, shard smallint) returns holdfast.lane
language plpgsql volatile
as $$
declare
  v_lane holdfast.lane;
begin
  -- Look first: an insert that meets a lane uses up a lane id all the same.
  select l.* into v_lane from holdfast.lane l
  where l.queue_id = _make_lane.queue_id and l.priority = _make_lane.priority and l.shard = _make_lane.shard;
  if found then
    return v_lane;
  end if;
  -- Whoever drops the queue is waited for, or has to wait.
  perform from holdfast.queue q where q.id = _make_lane.queue_id for key share;
  if not found then
    perform holdfast._fail('QH101', 'the queue does not exist any more', 'It was dropped while this call waited for it.',
      'Create it with holdfast.create_queue, or stop using it.');
  end if;
  -- Two first users of a priority: the second waits here until the first has committed.
  insert into holdfast.lane (queue_id, priority, shard)
  values (_make_lane.queue_id, _make_lane.priority, _make_lane.shard)
  on conflict do nothing returning * into v_lane;
  if found then
    update holdfast.lane l set ids = holdfast._make_sequence('sequence', 'ids_' || l.id, format('minvalue %s maxvalue %s cache 1',
      (l.id::bigint << 40) + 1, ((l.id + 1)::bigint << 40) - 1)) where l.id = v_lane.id;
    perform holdfast._make_registers(v_lane.id);
    perform holdfast._write_boot(v_lane.id);
    update holdfast.lane l set
      queue_name = case q.kind when 'queue' then q.name end, paused = q.paused, lease = q.lease, max_deliveries = q.max_deliveries,
      shards = greatest(q.shards, (select max(o.shard) + 1 from holdfast.lane o where o.queue_id = q.id)),
      plain = q.plain, fence = case when q.lean then l.booted else 'holdfast.no_boot' end,
      ordering = case when q.ordered then coalesce(q.ordering, 'key') end,
      throughput_limit = q.throughput_limit, throttle = case when q.throughput_limit is not null then q.throttle end
    from holdfast.queue q where l.id = v_lane.id and q.id = l.queue_id;
  end if;
  select l.* into v_lane from holdfast.lane l
  where l.queue_id = _make_lane.queue_id and l.priority = _make_lane.priority and l.shard = _make_lane.shard;
  return v_lane;
end $$;
comment on function holdfast._make_lane is 'A lane, made if it is not there';

create or replace function holdfast._database_oid() returns oid language sql stable
  return split_part(pg_relation_filepath('holdfast.lease'::regclass), '/', -2)::oid;
comment on function holdfast._database_oid is 'The oid of this database, without reading a table';

create or replace function holdfast._system_identifier() returns bigint language plpgsql stable
as $$
begin
  return (select c.system_identifier from pg_control_system() c);
end $$;
comment on function holdfast._system_identifier is 'Which cluster this is; reads the control file';

create or replace function holdfast._boot_mark() returns bigint language sql stable
  return hashtextextended(pg_relation_filepath('holdfast.lease'::regclass), holdfast._us(pg_postmaster_start_time())) & 9223372036854775807;
comment on function holdfast._boot_mark is 'A number that is another one in any other database, and after every start of the server';

create or replace function holdfast._write_boot(lane_id int) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.boot b where b.lane_id = _write_boot.lane_id;
  insert into holdfast.boot (lane_id, started_at, database_oid, lease_oid, system_identifier, made_by)
  values (_write_boot.lane_id, pg_postmaster_start_time(), holdfast._database_oid(), 'holdfast.lease'::regclass, holdfast._system_identifier(),
          pg_current_xact_id());
end $$;
comment on function holdfast._write_boot is 'Say that the volatile state of this lane belongs to this database';

create or replace function holdfast._ours(boot holdfast.boot) returns boolean language sql stable
  return (boot).database_oid = holdfast._database_oid() and (boot).lease_oid = 'holdfast.lease'::regclass::oid
         and ((boot).started_at = pg_postmaster_start_time()
              or (boot).system_identifier = holdfast._system_identifier());
comment on function holdfast._ours is 'Does the volatile state of this lane belong to this database? Reading the control file is left for last';

create or replace function holdfast._boot_lane(lane holdfast.lane) returns boolean language plpgsql volatile
as $$
declare
  v_boot holdfast.boot;
begin
  if pg_sequence_last_value(lane.booted) = holdfast._boot_mark() then
    return false;
  end if;
  select b.* into v_boot from holdfast.boot b where b.lane_id = lane.id;
  if holdfast._ours(v_boot) then
    -- Registers move on what is committed only: not if this very transaction has started the lane over.
    if v_boot.made_by <> coalesce(pg_current_xact_id_if_assigned(), '0') then
      perform setval(lane.booted, holdfast._boot_mark());
    end if;
    -- After a restart: spare the next look the control file.
    update holdfast.boot b set started_at = pg_postmaster_start_time()
    where b.lane_id = lane.id and b.started_at <> pg_postmaster_start_time();
    return false;
  end if;
  perform holdfast._reset_lane(lane);
  perform holdfast._write_boot(lane.id);
  return true;
end $$;
comment on function holdfast._boot_lane is 'Under the lane lock: is the volatile state ours? If not, start over. true: started over, so claim nothing in this transaction';

create or replace function holdfast._reset_lane(lane holdfast.lane) returns void language plpgsql volatile
as $$
declare
  v_last bigint;
begin
  delete from holdfast.lease l where l.lane_id = lane.id;
  delete from holdfast.gap g where g.lane_id = lane.id;
  -- A prepared transaction may have one of them locked: the audit finds those it leaves behind.
  update holdfast.message m set due_at = holdfast.now() where m.id = any (array(
    select h.id from holdfast.message h where h.id >> 40 = lane.id and h.due_at = '-infinity' for update skip locked));
  perform holdfast._clear_registers(lane);
  -- A dump reads sequences outside its snapshot: the log may hold ids that its sequence has not reached.
  select m.id into v_last from holdfast.message m
  where m.id >= lane.id::bigint << 40 and m.id < (lane.id + 1)::bigint << 40 order by m.id desc limit 1;
  if v_last > coalesce(pg_sequence_last_value(lane.ids), 0) then
    perform setval(lane.ids, v_last);
  end if;
  if lane.ordering is not null then
    select max(m.order_no) into v_last from holdfast.message m where m.queue_id = lane.queue_id and m.ordering_key is not null;
    if v_last > coalesce(pg_sequence_last_value('holdfast.order_no'), 0) then
      perform setval('holdfast.order_no', v_last);
    end if;
  end if;
end $$;
comment on function holdfast._reset_lane is 'Under the lane lock: forget leases, gaps and positions, as after a crash';

create or replace function holdfast._is_ours(lane_id int) returns boolean language plpgsql stable
as $$
begin
  return exists (select from holdfast.boot b where b.lane_id = _is_ours.lane_id and holdfast._ours(b));
end $$;
comment on function holdfast._is_ours is 'Has this lane been booted in this database?';

create or replace function holdfast._readable(registers regclass[]) returns boolean language plpgsql volatile
as $$
begin
  perform pg_sequence_last_value(r) from unnest(registers) r;
  return true;
exception
  -- After a failover: a register that was made after the standby's last restartpoint has no page.
  when internal_error or data_corrupted then return false;
end $$;
comment on function holdfast._readable is 'Can these registers be read?';

create or replace function holdfast._renew(register regclass, name text) returns regclass language plpgsql volatile
as $$
begin
  -- Whoever has used it holds a lock on it until his transaction ends: dropping it would wait for that.
  if holdfast._readable(array[register]) then
    perform setval(register, 0);
    return register;
  end if;
  return holdfast._register(_renew.name);
end $$;
comment on function holdfast._renew is 'A register as if new: set to 0, also if this transaction rolls back; made anew only if it cannot be read';

create or replace function holdfast._repair_queue(queue holdfast.queue, unreadable_only boolean) returns int
language plpgsql volatile
as $$
declare
  v_lane holdfast.lane;
  v_lanes int := 0;
begin
  if not (unreadable_only and holdfast._readable(array[queue.asleep, queue.depth, queue.counted_at, queue.throttle])) then
    update holdfast.queue q set
      asleep = holdfast._renew(q.asleep, 'asleep_' || q.id),
      depth = holdfast._renew(q.depth, 'depth_' || q.id),
      counted_at = holdfast._renew(q.counted_at, 'counted_at_' || q.id),
      throttle = case when q.throttle is not null then holdfast._renew(q.throttle, 'throttle_' || q.id) end
    where q.id = queue.id;
    perform holdfast._copy_to_lanes(queue.name);
  end if;
  for v_lane in select l.* from holdfast.lane l where l.queue_id = queue.id order by l.id loop
    perform pg_advisory_xact_lock(holdfast._lane_lock(), v_lane.id);
    continue when unreadable_only and holdfast._readable(holdfast._registers(v_lane));
    perform holdfast._drop_registers(v_lane);
    perform holdfast._make_registers(v_lane.id);
    delete from holdfast.boot b where b.lane_id = v_lane.id;
    select l.* into v_lane from holdfast.lane l where l.id = v_lane.id;
    perform holdfast._boot_lane(v_lane);
    v_lanes := v_lanes + 1;
  end loop;
  return v_lanes;
end $$;
comment on function holdfast._repair_queue is 'Make the registers of a queue anew, all or those that cannot be read; returns the number of lanes that started over';

create or replace function holdfast._tries(patience text) returns int language sql stable
  return case when patience::interval = interval '0' then 25 else least(25, floor(extract(epoch from patience::interval) / 0.4)) end;
comment on function holdfast._tries is 'How often to try for 400 ms: for ten seconds, or as long as this lock_timeout';

create or replace function holdfast._repair_patiently(queue text, unreadable_only boolean) returns int language plpgsql volatile
as $$
declare
  v_patience text := current_setting('lock_timeout');
  v_queue holdfast.queue;
  v_lanes int;
begin
  -- Gives way as drop_queue does, and for the same reason.
  for v_try in 0 .. holdfast._tries(v_patience) loop
    begin
      perform set_config('lock_timeout', case when v_try < holdfast._tries(v_patience) then '400ms' else v_patience end, true);
      -- Whoever comes second waits here, and sees the registers that the first has made.
      select q.* into v_queue from holdfast.queue q where q.name = _repair_patiently.queue for update;
      if not found then
        perform holdfast._no_queue(_repair_patiently.queue);
      end if;
      v_lanes := holdfast._repair_queue(v_queue, unreadable_only);
      perform set_config('lock_timeout', v_patience, true);
      return v_lanes;
    exception
      when lock_not_available or deadlock_detected then
        if v_try = holdfast._tries(v_patience) then
          raise;
        end if;
    end;
  end loop;
end $$;
comment on function holdfast._repair_patiently is 'Repair one queue; lets go of all locks and begins again while others are in the way';

create or replace function holdfast.repair(queue text default null, unreadable_only boolean default false) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue text;
  v_lanes int := 0;
begin
  perform holdfast._check_isolation('repair');
  -- Before any lane is held.
  if repair.queue is null then
    perform holdfast._repair_limiters(unreadable_only);
  end if;
  for v_queue in select q.name from holdfast.queue q where q.name = coalesce(repair.queue, q.name) order by q.id loop
    v_lanes := v_lanes + holdfast._repair_patiently(v_queue, unreadable_only);
  end loop;
  if not found and repair.queue is not null then
    perform holdfast._no_queue(repair.queue);
  end if;
  return v_lanes;
end $$;
comment on function holdfast.repair is
  'Make registers anew and start over as after a crash: every lease has expired. For one queue or all; unreadable_only: only lanes that a failover has left unreadable. Returns the number of lanes';

-- 42_count.sql
-- Counters: what happened to messages besides the plain way of send, claim and ack.
--
-- Each is a logged sequence of the queue. Drawing from one takes no lock that anybody waits for and leaves no dead row.
-- It is not transactional: what was rolled back stays counted, and a crash may add up to 32.
-- Sent and done are not counted at all: the first is how many ids were drawn, the second what is left of it.

create or replace function holdfast._counted() returns text[] language sql immutable
  return '{nacked,lapsed,dead,failed,expired,discarded,moved}'::text[];
comment on function holdfast._counted is 'What is counted, in the order of queue.counters';

create or replace function holdfast._make_counters(queue_id int) returns regclass[] language plpgsql volatile
as $$
begin
  return array(select holdfast._make_sequence('sequence', k.kind || '_' || _make_counters.queue_id, '')
               from unnest(holdfast._counted()) with ordinality k(kind, n) order by k.n);
end $$;
comment on function holdfast._make_counters is 'Make the counters of a queue';

create or replace function holdfast._count(queue_id int, kind text, messages int) returns void language plpgsql volatile
as $$
begin
  if messages > 0 and kind = any (holdfast._counted()) then
    perform nextval(q.counters[array_position(holdfast._counted(), _count.kind)])
    from holdfast.queue q cross join lateral generate_series(1, messages) where q.id = _count.queue_id;
  end if;
end $$;
comment on function holdfast._count is 'Count something that happened to messages of a queue; what is not counted (done) passes';

create or replace function holdfast._counts(queue holdfast.queue) returns bigint[] language plpgsql stable
as $$
begin
  return array(select coalesce(pg_sequence_last_value(c.counter), 0) from unnest(queue.counters) with ordinality c(counter, n) order by c.n);
end $$;
comment on function holdfast._counts is 'The counters of a queue, in the order of _counted()';

do $$
begin
  -- Queues that were made before there were counters.
  update holdfast.queue q set counters = holdfast._make_counters(q.id) where q.counters is null;
end $$;

-- 45_end.sql
-- The end of messages. Outside the short way of ack, a message ends here and nowhere else, or moves to another queue.
--
-- A queue that keeps an outcome has its messages go to the archive in the same statement: what was deleted is what was
-- kept, whoever else is at them. The queue in which a message lies when it ends decides.

create or replace function holdfast._end(
  queue_id int, ids bigint[], outcome text, at timestamptz, consumer text default null, claimed_at timestamptz default null)
returns bigint[] language plpgsql volatile
as $$
declare
  v_kept boolean := exists (select from holdfast.queue q where q.id = _end.queue_id and _end.outcome = any (q.keep));
  v_ended bigint[];
  v_keys text[];
  v_orders bigint[];
  v_heads boolean[];
begin
  if v_kept then
    with ended as (
      delete from holdfast.message m where m.id = any (_end.ids) returning m.*
    ), kept as (
      insert into holdfast.archive (id, queue_id, outcome, ended_at, deliveries, enqueued_at, due_at, expires_at, payload, body,
                                    content_type, headers, tag, correlation_id, key, idempotency_key, payload_hash, ordering_key,
                                    order_no, failures, max_deliveries, last_error, origin, consumer, claimed_at)
      -- The delivery that an ack ends was not counted yet.
      select e.id, e.queue_id, _end.outcome, at, case when _end.outcome = 'done' then coalesce(e.deliveries, 0) + 1 else e.deliveries end,
             e.enqueued_at, e.due_at, e.expires_at, e.payload, e.body, e.content_type, e.headers, e.tag, e.correlation_id, e.key,
             e.idempotency_key, e.payload_hash, e.ordering_key, e.order_no, e.failures, e.max_deliveries, e.last_error, e.origin,
             _end.consumer, _end.claimed_at
      from ended e
    )
    select coalesce(array_agg(e.id order by e.id), '{}'), array_agg(e.ordering_key) filter (where e.ordering_key is not null),
           array_agg(e.order_no) filter (where e.ordering_key is not null),
           array_agg(e.head is true or outcome in ('done', 'failed')) filter (where e.ordering_key is not null)
    into v_ended, v_keys, v_orders, v_heads from ended e;
  else
    with ended as (
      delete from holdfast.message m where m.id = any (_end.ids) returning m.id, m.ordering_key, m.order_no, m.head
    )
    select coalesce(array_agg(e.id order by e.id), '{}'), array_agg(e.ordering_key) filter (where e.ordering_key is not null),
           array_agg(e.order_no) filter (where e.ordering_key is not null),
           array_agg(e.head is true or outcome in ('done', 'failed')) filter (where e.ordering_key is not null)
    into v_ended, v_keys, v_orders, v_heads from ended e;
  end if;
  if v_keys is not null then
    perform holdfast._pass_baton(_end.queue_id, v_keys, v_orders, v_heads, at);
  end if;
  perform holdfast._count(_end.queue_id, _end.outcome, cardinality(v_ended));
  return v_ended;
end $$;
comment on function holdfast._end is 'End messages as done, expired, failed or discarded, and keep them if the queue says so, with who did it and since when; returns those that were there';

create or replace function holdfast._still_alive(queue holdfast.queue, ids bigint[], at timestamptz) returns bigint[] language plpgsql volatile
as $$
declare
  v_over bigint[];
begin
  if not queue.expire_in_flight then
    return _still_alive.ids;
  end if;
  v_over := array(select m.id from holdfast.message m where m.id = any (_still_alive.ids) and m.expires_at <= at);
  if v_over = '{}' then
    return _still_alive.ids;
  end if;
  perform holdfast._end(queue.id, v_over, 'expired', at);
  return array(select i from unnest(_still_alive.ids) i where i not in (select unnest(v_over)));
end $$;
comment on function holdfast._still_alive is
  'Of messages that just left a lease, those that live on: with expire_in_flight, what is past its time to live ends here';

create or replace function holdfast._take_from_leases(ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_lease record;
  v_mine bigint[];
  v_out bigint[] := '{}';
begin
  for v_lease in select distinct h.token, h.part from holdfast._holders(_take_from_leases.ids) h order by 1, 2 loop
    select l.ids into v_mine from holdfast.lease l where l.token = v_lease.token and l.part = v_lease.part for update skip locked;
    continue when not found;
    v_mine := array(select m.id from holdfast.message m
                    where m.id = any (array(select i from unnest(v_mine) i where i in (select unnest(_take_from_leases.ids))))
                    for update skip locked);
    continue when v_mine = '{}';
    update holdfast.lease l set ids = array(select i from unnest(l.ids) i where i not in (select unnest(v_mine))), lo = null
    where l.token = v_lease.token and l.part = v_lease.part;
    v_out := v_out || v_mine;
  end loop;
  return v_out;
end $$;
comment on function holdfast._take_from_leases is
  'Under the lane lock: take messages away from whoever holds them, but for those that somebody is settling at this moment; returns those taken, locked';

create or replace function holdfast._pass_to(lane holdfast.lane, upto bigint, at timestamptz) returns void language plpgsql volatile
as $$
begin
  insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, deadline, ids, upto, made_by)
  values (holdfast._token(), lane.id, lane.queue_id, lane.id, lane.queue_name, lane.booted, lane.cursor, at, '{}', _pass_to.upto,
          pg_current_xact_id());
end $$;
comment on function holdfast._pass_to is
  'Under the lane lock: let the cursor pass to this id once this transaction has committed; a lease without ids says so';

-- 46_archive.sql
-- The archive's upkeep: partitions made ahead and dropped when nobody needs them, rows that are too old removed.
--
-- A partition is a day (UTC), holdfast.archive_YYYYMMDD. Making one locks the default partition for a moment, dropping
-- one the whole archive: an ack that keeps its message waits for that. So both give up after 50 ms if somebody is at
-- work there, and the next maintain() tries again; both come last in maintain(), which ends right after.
-- Lock order: the archive, then the default partition, then the day's.

create or replace function holdfast._day(at timestamptz) returns date language sql immutable
  return (at at time zone 'UTC')::date;
comment on function holdfast._day is 'The day of the archive that a time belongs to';

create or replace function holdfast._day_begins(day date) returns timestamptz language sql immutable
  return day::timestamp at time zone 'UTC';
comment on function holdfast._day_begins is 'When a day of the archive begins';

create or replace function holdfast._make_partition(day date) returns boolean language plpgsql volatile
set lock_timeout = '50ms' set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
  v_name text := 'archive_' || to_char(day, 'YYYYMMDD');
  v_lo timestamptz := holdfast._day_begins(day);
  v_hi timestamptz := holdfast._day_begins(day + 1);
begin
  lock table holdfast.archive_default in access exclusive mode;
  -- Somebody who is migrating may have been first.
  if to_regclass('holdfast.' || v_name) is not null then
    return false;
  end if;
  -- What has come meanwhile moves over; if that is much, the day stays where it is.
  if (select count(*) from (select from holdfast.archive_default a where a.ended_at >= v_lo and a.ended_at < v_hi limit 10001) a) > 10000 then
    return false;
  end if;
  execute format('create table holdfast.%I (like holdfast.archive including all)', v_name);
  execute format('comment on table holdfast.%I is %L', v_name, format('Messages that ended on %s and are kept', day));
  execute format('with moved as (delete from holdfast.archive_default a where a.ended_at >= %L and a.ended_at < %L returning a.*) '
                 'insert into holdfast.%I select * from moved', v_lo, v_hi, v_name);
  execute format('alter table holdfast.archive attach partition holdfast.%I for values from (%L) to (%L)', v_name, v_lo, v_hi);
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._make_partition is
  'Make the partition of a day, and move to it what lies in the default one. false: not now, somebody writes there, or it holds over 10,000 of that day';

create or replace function holdfast._make_partitions(at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_day date;
  v_made int := 0;
begin
  for v_day in select holdfast._day(at) + n from generate_series(0, 3) n loop
    if to_regclass('holdfast.archive_' || to_char(v_day, 'YYYYMMDD')) is null and holdfast._make_partition(v_day) then
      v_made := v_made + 1;
    end if;
  end loop;
  return v_made;
end $$;
comment on function holdfast._make_partitions is 'Make the partitions of today and the three days to come; returns how many were missing and are there now';

create or replace function holdfast._drop_partitions(at timestamptz) returns int language plpgsql volatile set lock_timeout = '50ms'
as $$
declare
  v_before timestamptz := at - coalesce((select max(q.keep_for) from holdfast.queue q where q.kind = 'queue'), '0');
  v_old text[];
begin
  v_old := array(
    select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'holdfast.archive'::regclass and c.relname ~ '^archive_[0-9]{8}$'
      and holdfast._day_begins(to_date(right(c.relname, 8), 'YYYYMMDD') + 1) <= v_before);
  if v_old <> '{}' then
    lock table only holdfast.archive in access exclusive mode;
    execute (select 'drop table ' || string_agg(format('holdfast.%I', o), ', ') from unnest(v_old) o);
  end if;
  return cardinality(v_old);
exception
  when lock_not_available or deadlock_detected then return 0;
end $$;
comment on function holdfast._drop_partitions is 'Drop the partitions that no queue''s retention reaches back to; returns how many. 0 also if the archive is in use';

create or replace function holdfast._forget(before timestamptz, queue_id int, "limit" int, outcome text default null) returns int
language plpgsql volatile
as $$
declare
  v_old record;
  v_gone int;
begin
  if _forget.queue_id is null then
    select array_agg(o.id) as ids, min(o.ended_at) as first, max(o.ended_at) as last into v_old from (
      select a.id, a.ended_at from holdfast.archive_default a where a.ended_at < before order by a.ended_at, a.id limit _forget."limit"
      for update skip locked) o;
  elsif _forget.outcome <> 'done' then
    -- Those have an index.
    select array_agg(o.id) as ids, min(o.ended_at) as first, max(o.ended_at) as last into v_old from (
      select a.id, a.ended_at from holdfast.archive a
      where a.queue_id = _forget.queue_id and a.outcome = _forget.outcome and a.outcome <> 'done' and a.ended_at < before
      order by a.ended_at, a.id limit _forget."limit" for update skip locked) o;
  else
    select array_agg(o.id) as ids, min(o.ended_at) as first, max(o.ended_at) as last into v_old from (
      select a.id, a.ended_at from holdfast.archive a
      where a.queue_id = _forget.queue_id and a.ended_at < before and (_forget.outcome is null or a.outcome = 'done')
      order by a.ended_at, a.id limit _forget."limit" for update skip locked) o;
  end if;
  -- An id is there once; the times say in which partitions to look.
  delete from holdfast.archive a where a.id = any (v_old.ids) and a.ended_at >= v_old.first and a.ended_at <= v_old.last;
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
comment on function holdfast._forget is 'Delete the oldest messages of a queue from the archive, or those with one outcome; queue_id null: of all queues, from the default partition';

create or replace function holdfast._forget_old(at timestamptz, "limit" int) returns int language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_longest interval := coalesce((select max(q.keep_for) from holdfast.queue q where q.kind = 'queue'), '0');
  v_turn bigint := coalesce(pg_sequence_last_value('holdfast.archive_turn'), 0);
  v_queue record;
  v_gone int;
begin
  if pg_sequence_last_value('holdfast.archive_walk') between holdfast._us(v_began) and holdfast._us(v_began) + 600000000 then
    return 0;
  end if;
  -- No partition is dropped for the queues with the shorter retention, nor is the default one for anybody.
  v_gone := holdfast._forget(at - v_longest, null, "limit");
  for v_queue in select q.id, q.keep_for from holdfast.queue q where q.keep_for < v_longest order by (q.id <= v_turn), q.id loop
    exit when v_gone >= "limit" or clock_timestamp() > v_began + interval '50 ms';
    v_gone := v_gone + holdfast._forget(at - v_queue.keep_for, v_queue.id, "limit" - v_gone);
    perform setval('holdfast.archive_turn', v_queue.id);
  end loop;
  -- A walk over nothing but dead rows is not worth repeating at once.
  if v_gone = 0 and clock_timestamp() > v_began + interval '100 ms' then
    perform setval('holdfast.archive_walk', holdfast._us(clock_timestamp() + 20 * (clock_timestamp() - v_began)));
  end if;
  return v_gone;
end $$;
comment on function holdfast._forget_old is 'Delete messages from the archive that are older than their queue''s retention, at most so many; returns how many';

create or replace function holdfast._tend_archive(at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_dropped int;
  v_made int;
  v_gone int;
begin
  -- One at a time; whoever comes second has nothing to do.
  if not pg_try_advisory_xact_lock(holdfast._archive_lock(), 0) then
    return '{"dropped": 0, "made": 0, "forgotten": 0, "more": false}';
  end if;
  v_gone := holdfast._forget_old(at, 5000);
  v_dropped := holdfast._drop_partitions(at);
  v_made := holdfast._make_partitions(at);
  return jsonb_build_object('dropped', v_dropped, 'made', v_made, 'forgotten', v_gone, 'more', v_gone >= 5000);
end $$;
comment on function holdfast._tend_archive is 'The archive''s part of maintain(): drop, make, forget';

create or replace function holdfast._archived(message holdfast.archive, queue text) returns holdfast.entry language sql stable
  return ((message).id, queue, (message).outcome, (message).payload, (message).body, (message).content_type, (message).headers,
          (select l.priority::int from holdfast.lane l where l.id = (message).id >> 40), (message).key, (message).ordering_key,
          (message).correlation_id, (message).tag, coalesce((message).deliveries, 0), coalesce((message).failures, 0),
          coalesce((message).max_deliveries, (select q.max_deliveries from holdfast.queue q where q.id = (message).queue_id)),
          (message).enqueued_at, null, (message).expires_at, (message).last_error, (message).origin, (message).ended_at,
          (message).consumer, (message).claimed_at)::holdfast.entry;
comment on function holdfast._archived is 'A message of the archive as a report shows it: its state is how it ended';

create or replace function holdfast._archived_of(lane holdfast.lane, after bigint, "limit" int) returns setof holdfast.archive
language plpgsql stable
as $$
begin
  return query
    select a.* from holdfast.archive a
    where a.id > greatest(after, lane.id::bigint << 40) and a.id < (lane.id + 1)::bigint << 40
    order by a.id limit _archived_of."limit";
end $$;
comment on function holdfast._archived_of is 'What the archive holds of a lane, by id';

do $$
begin
  perform holdfast._make_partitions(holdfast.now());
end $$;

-- 47_order.sql
-- Order: who comes first in a line, and how the baton passes.
--
-- The live messages of a queue with one ordering key are a line, by order_no. Only its first, the head, may be
-- handed out; so two of a line are never in flight. A strict queue is one line, under the key ''.
--
-- A line's order is the order of its senders' commits: send draws order_no under a lock on the key, held to the
-- end of its transaction. The locks are hashed into 1,024 buckets a queue and taken in order of their numbers, so any
-- number of keys in one transaction takes at most as many locks.
--
-- parked   A message that claim meets behind a head gets due_at = infinity, while claim holds the head's row FOR KEY
--          SHARE: the head can end only after that is committed, and whoever ends it sees the parked row. If claim cannot
--          have that lock, the head is ending: the message is due again in 20 ms.
-- baton    Whoever ends a head makes the next of its line the head, and due if it was parked: in a statement of its
--          own, after the delete, and locking that row, so that one who cancels it at this moment is waited for and
--          passed over. Rows of a line are locked upwards only.
-- head     Once a head, always a head until it ends: order_no only grows. The mark spares claim the search through
--          a line's dead versions.
--
-- Lock order: rows of a line by order_no; under a lane lock everything SKIP LOCKED: what cannot end without waiting
-- for somebody (its successor is locked) ends a little later.

create or replace function holdfast._shortly() returns interval language sql immutable
  return interval '20 ms';
comment on function holdfast._shortly is 'When a message is looked at again that somebody has his hands on';

create or replace function holdfast._bucket(queue_id int, key text) returns int language sql immutable
  return ((_bucket.queue_id::bigint << 10) + (hashtext(_bucket.key) & 1023) & 2147483647)::int;
comment on function holdfast._bucket is 'Which of the 1,024 locks of a queue guards this key';

create or replace function holdfast._lock_keys(class int, queue_id int, keys text[]) returns void language plpgsql volatile
as $$
declare
  v_bucket int;
begin
  for v_bucket in
    select distinct holdfast._bucket(_lock_keys.queue_id, k) as bucket from unnest(keys) k where k is not null order by bucket
  loop
    perform pg_advisory_xact_lock(class, v_bucket);
  end loop;
end $$;
comment on function holdfast._lock_keys is
  'Lock the buckets of these keys until the transaction ends, in order of their numbers; class: which kind of keys (15_lock.sql)';

create or replace function holdfast._pass_baton(queue_id int, keys text[], orders bigint[], heads boolean[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_next bigint[];
  v_parked boolean;
begin
  -- Whoever looks with an old snapshot does not see who was parked since.
  perform holdfast._check_isolation('settling ordered messages');
  -- Of those that were not known to be heads, only lines that nobody is left at the front of.
  select array_agg(e.key order by e.key), array_agg(e.order_no order by e.key) into keys, orders
  from (select e.key, min(e.order_no) as order_no, bool_or(e.head) as head
        from unnest(keys, orders, heads) e(key, order_no, head) group by e.key) e
  where e.head or not exists (
    select from (select from holdfast.message m where m.queue_id = _pass_baton.queue_id and m.ordering_key = e.key
                 and m.order_no < e.order_no order by m.order_no limit 1 offset 0) before);
  -- One that is being cancelled is waited for, and then passed over.
  v_next := array(
    select n.id from unnest(keys, orders) e(key, order_no) cross join lateral (
      select m.id from holdfast.message m
      where m.queue_id = _pass_baton.queue_id and m.ordering_key = e.key and m.order_no > e.order_no
      order by m.order_no limit 1 for update) n);
  with woken as (
    update holdfast.message m set head = true, due_at = case when m.due_at = 'infinity' and m.blocks_since is null then at else m.due_at end
    where m.id = any (v_next) and (m.head is not true or m.due_at = 'infinity')
    returning m.due_at = at as parked
  )
  select bool_or(w.parked) into v_parked from woken w;
  if v_parked then
    perform holdfast._wake(q) from holdfast.queue q where q.id = _pass_baton.queue_id;
  end if;
end $$;
comment on function holdfast._pass_baton is
  'After messages of these ordering keys ended: the next of each line is its head, and due if it was parked. heads: known to have been heads';

create or replace function holdfast._can_end(queue_id int, ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_ids bigint[];
  v_next bigint[];
  v_locked bigint[];
begin
  select array_agg(m.id), array_agg(n.id) into v_ids, v_next
  from holdfast.message m cross join lateral (
    select n.id from holdfast.message n where n.queue_id = _can_end.queue_id and n.ordering_key = m.ordering_key
      and n.order_no > m.order_no order by n.order_no limit 1) n
  where m.id = any (_can_end.ids) and m.ordering_key is not null;
  if v_ids is null then
    return ids;
  end if;
  v_locked := array(select m.id from holdfast.message m where m.id = any (v_next) for update skip locked);
  return array(select i from unnest(ids) i where i not in (
    select s.id from unnest(v_ids, v_next) s(id, next) where s.next not in (select unnest(v_locked))));
end $$;
comment on function holdfast._can_end is
  'Which of these locked messages can end without waiting: those whose successor, if there is one, is locked by this call';

create or replace function holdfast._firsts(queue_id int, ids bigint[]) returns jsonb language plpgsql volatile
as $$
begin
  return (
    select jsonb_object_agg(k.ordering_key, f.id)
    from (select distinct m.ordering_key from holdfast.message m
          where m.id = any (_firsts.ids) and m.ordering_key is not null and m.head is not true) k
      cross join lateral (select m.id from holdfast.message m
                          where m.queue_id = _firsts.queue_id and m.ordering_key = k.ordering_key order by m.order_no limit 1) f);
end $$;
comment on function holdfast._firsts is 'The first of each line that these messages stand in, by ordering key; of heads it need not be asked';

create or replace function holdfast._park(lane holdfast.lane, ids bigint[], behind bigint[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_locked bigint[];
  v_busy bigint[];
  v_firm bigint[];
begin
  v_locked := array(select m.id from holdfast.message m where m.id = any (_park.ids) for update skip locked);
  if cardinality(v_locked) < cardinality(ids) then
    v_busy := array(select i from unnest(ids) i where i not in (select unnest(v_locked)));
    perform holdfast._open_gaps(lane, v_busy, v_busy, false);
  end if;
  v_firm := array(select m.id from holdfast.message m where m.id = any (array(select distinct b from unnest(behind) b))
                  for key share skip locked);
  update holdfast.message m set due_at = 'infinity'
  where m.id = any (array(select p.id from unnest(ids, behind) p(id, behind)
                          where p.id in (select unnest(v_locked)) and p.behind in (select unnest(v_firm))));
  update holdfast.message m set due_at = at + holdfast._shortly()
  where m.id = any (array(select p.id from unnest(ids, behind) p(id, behind)
                          where p.id in (select unnest(v_locked)) and (p.behind in (select unnest(v_firm))) is not true));
end $$;
comment on function holdfast._park is
  'Under the lane lock: park messages behind the heads of their lines, if those are held meanwhile; else look again shortly. A message that somebody has locked becomes a gap';

create or replace function holdfast._line_up(lane holdfast.lane, ids bigint[], at timestamptz) returns bigint[] language plpgsql volatile
as $$
declare
  v_late bigint[] := array(select m.id from holdfast.message m where m.id = any (_line_up.ids) and m.ordering_key is null);
  v_locked bigint[];
begin
  if v_late = '{}' then
    return ids;
  end if;
  v_locked := array(select m.id from holdfast.message m where m.id = any (v_late) for update skip locked);
  -- A sender in the line who has not committed has an earlier number: not before him.
  if pg_try_advisory_xact_lock(holdfast._line_lock(), holdfast._bucket(lane.queue_id, '')) then
    update holdfast.message m set ordering_key = '', order_no = nextval('holdfast.order_no') where m.id = any (v_locked);
  end if;
  update holdfast.message m set due_at = at + holdfast._shortly() where m.id = any (v_locked);
  perform holdfast._remember_passed(lane, v_late);
  return array(select i from unnest(ids) i where i not in (select unnest(v_late)));
end $$;
comment on function holdfast._line_up is
  'Under the lane lock of a strict queue: messages whose sender did not know yet that it is strict go to the end of the line, and are looked at shortly. Returns the others';

create or replace function holdfast._in_order(
  lane holdfast.lane, ids bigint[], want int, room bigint, at timestamptz, out taken bigint[], out bytes bigint, out last bigint)
language plpgsql volatile
as $$
declare
  v_first jsonb;
  v_blocked bigint[];
  v_behind bigint[];
begin
  if lane.ordering = 'strict' then
    ids := holdfast._line_up(lane, ids, at);
  end if;
  v_first := holdfast._firsts(lane.queue_id, ids);
  with candidate as (
    select c.id, c.nth, (v_first ->> m.ordering_key)::bigint as first,
           coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) as bytes,
           (m.ordering_key is null or m.head is true or (v_first ->> m.ordering_key)::bigint is not distinct from c.id)::int as free
    from unnest(ids) with ordinality c(id, nth) cross join lateral (select m.* from holdfast.message m where m.id = c.id offset 0) m
  ), counted as (
    select c.*, sum(c.free) over earlier as frees, sum(c.free * c.bytes) over earlier as total from candidate c
    window earlier as (order by c.nth)
  ), kept as (
    select c.* from counted c where c.frees - c.free < want and (c.frees < want or c.free = 1)
      and (_in_order.room is null or holdfast._has_room(c.total, c.free * c.bytes, _in_order.room))
  )
  select array_agg(k.id order by k.nth) filter (where k.free = 1), array_agg(k.id) filter (where k.free = 0),
         array_agg(k.first) filter (where k.free = 0), coalesce(max(k.total), 0),
         case when count(*) < (select count(*) from counted) then coalesce(max(k.id), ids[1] - 1) end
  into taken, v_blocked, v_behind, bytes, last from kept k;
  if v_blocked is not null then
    perform holdfast._park(lane, v_blocked, v_behind, at);
  end if;
end $$;
comment on function holdfast._in_order is
  'Under the lane lock: the first want of these messages that are heads or stand in no line; those met before that are blocked are parked. room: for how many bytes, null: any. last: where want was reached or the room ended; null: all were looked at';

create or replace function holdfast._take_due_in_order(lane holdfast.lane, first timestamptz, at timestamptz, want int, room bigint) returns bigint[]
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_rows int := want;
  v_ids bigint[];
  v_over bigint[];
  v_good record;
  v_taken bigint[];
  v_full boolean := false;
begin
  loop
    select array_agg(c.id order by c.due_at, c.id) filter (where c.over is not true), array_agg(c.id) filter (where c.over)
    into v_ids, v_over
    from (select m.id, m.due_at, m.expires_at <= at as over from holdfast.message m
          where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= first and m.due_at <= at
          order by m.due_at, m.id limit v_rows for update skip locked) c;
    if v_over is not null then
      perform holdfast._end_expired(lane.queue_id, v_over, at);
    end if;
    exit when v_ids is null and v_over is null;
    if v_ids is not null then
      v_good := holdfast._in_order(lane, v_ids, want, room, at);
      update holdfast.message m set due_at = '-infinity' where m.id = any (v_good.taken);
      v_full := v_good.last is not null;
      v_taken := v_taken || v_good.taken;
      want := want - coalesce(cardinality(v_good.taken), 0);
      room := room - v_good.bytes;
    end if;
    exit when want <= 0 or v_full or clock_timestamp() > v_began + interval '20 ms';
    v_rows := least(500, greatest(v_rows * 4, 50));
  end loop;
  return v_taken;
end $$;
comment on function holdfast._take_due_in_order is
  'Under the lane lock: as _take_due, in a lane with order: what is due and blocked is parked, for about 20 ms';

create or replace function holdfast._take_fresh_in_order(lane holdfast.lane, start bigint, want int, room bigint, taken boolean, at timestamptz)
returns holdfast._fresh language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_fresh holdfast._fresh := (null, start);
  v_end bigint := (lane.id + 1)::bigint << 40;
  v_rows int := want;
  v_scanned bigint := 0;
  v_clean boolean;
  v_scan record;
  v_good record;
  v_full boolean := false;
begin
  if lane.ordering = 'strict' then
    want := 1;
    v_rows := 1;
  end if;
  loop
    v_clean := pg_current_xact_id_if_assigned() is null;
    v_scan := holdfast._scan(v_fresh.upto, v_end - 1, v_rows, v_rows, null, taken, at, interval '10 ms');
    exit when v_scan.next is null;
    if v_scan.expired is not null then
      perform holdfast._end_expired(lane.queue_id, v_scan.expired, at);
    end if;
    if v_scan.ids is not null then
      -- A strict queue waits for its head: what is blocked stays ahead of the cursor, and is not touched.
      exit when lane.ordering = 'strict' and not holdfast._is_first(lane.queue_id, v_scan.ids[1]);
      v_good := holdfast._in_order(lane, v_scan.ids, want, room, at);
      v_fresh.ids := v_fresh.ids || v_good.taken;
      want := want - coalesce(cardinality(v_good.taken), 0);
      room := room - v_good.bytes;
      v_full := v_good.last is not null;
      if v_good.last + 1 < v_scan.next then
        -- Enough before the end of the window: what lies behind is for the next claim.
        v_scan.next := v_good.last + 1;
        v_scan.expired := array(select e from unnest(v_scan.expired) e where e < v_scan.next);
        select array_agg(g.lo), array_agg(g.hi) into v_scan.gap_lo, v_scan.gap_hi
        from unnest(v_scan.gap_lo, v_scan.gap_hi) g(lo, hi) where g.lo < v_scan.next;
      end if;
    end if;
    if v_scan.gap_lo is not null then
      perform holdfast._open_gaps(lane, v_scan.gap_lo, v_scan.gap_hi, v_clean);
    end if;
    if v_scan.expired <> '{}' then
      perform holdfast._remember_passed(lane, v_scan.expired);
    end if;
    v_fresh.upto := v_scan.next;
    v_scanned := v_scanned + v_rows;
    taken := taken or v_fresh.ids is not null;
    exit when want <= 0 or v_full or v_scan.stopped or not v_scan."full" or v_scanned >= 10000 or clock_timestamp() > v_began + interval '20 ms';
    v_rows := case when lane.ordering = 'strict' then 1 else least(500, greatest(v_rows * 4, 50)) end;
  end loop;
  return v_fresh;
end $$;
comment on function holdfast._take_fresh_in_order is
  'Under the lane lock: as _take_fresh, in a lane with order: parks what is blocked, for about 20 ms';

create or replace function holdfast._is_first(queue_id int, id bigint) returns boolean language plpgsql volatile
as $$
declare
  v_first jsonb := holdfast._firsts(_is_first.queue_id, array[_is_first.id]);
begin
  return coalesce((select m.ordering_key is null or m.head is true or (v_first ->> m.ordering_key)::bigint = m.id
                   from holdfast.message m where m.id = _is_first.id), false);
end $$;
comment on function holdfast._is_first is 'Is this message the head of its line, or in none?';

create or replace function holdfast._orphans(queue_id int, ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_first jsonb := holdfast._firsts(_orphans.queue_id, ids);
begin
  -- Whoever was first a moment ago is first still: nobody can have parked it since.
  return array(
    select m.id from unnest(ids) i(id) cross join lateral (
      select m.* from holdfast.message m where m.id = i.id and m.due_at = 'infinity' and m.blocks_since is null offset 0) m
    where m.ordering_key is null or m.head is true or m.id = (v_first ->> m.ordering_key)::bigint);
end $$;
comment on function holdfast._orphans is 'Which of these messages are parked behind nobody';

-- 48_keys.sql
-- Keys: sending with an ordering key, a replaceable key or an idempotency key.
--
-- ordering_key      its place in a line; see 47_order.sql
-- key               at most one waiting message of a key: sending again replaces its content and keeps its id. Such
--                   messages are stored as due rows, which claim locks: while somebody replaces one in an open
--                   transaction it is skipped, not handed out as it was. One that is being claimed is not waited for:
--                   a new message is sent. One that came back from a delivery (nack, lease ran out) stays as it is, unless
--                   the queue's replaces is waiting: then it is the same message with another content, and what its
--                   deliveries have left stays; origin.sent_at is when it was sent first.
-- idempotency_key   at most one live message of a key: the same payload again answers with the first id, another is an
--                   error. A unique index stands behind the lock. One that is past its time to live and in nobody's
--                   hands ends at this moment, if nobody has removed it yet: else its key would swallow a message.
--                   For that, claims that have begun are waited for, and whoever is ending it.
--
-- A replaceable key has no unique index: a message that is given back, or found after a crash, may meet a newer one,
-- and both must stay. So the lock on the key decides, held to the end of the transaction.
-- Lock order: ordering keys, keys, idempotency keys, each by bucket; a lane, for a moment; then rows.

create or replace function holdfast._check_keys(ordering_key text, key text, idempotency_key text) returns void
language plpgsql stable
as $$
begin
  perform holdfast._check_text('ordering_key', ordering_key), holdfast._check_text('key', key),
          holdfast._check_text('idempotency_key', idempotency_key);
  if '' in (ordering_key, key, idempotency_key) then
    perform holdfast._fail('QH220', 'a key is empty', 'An empty text names nothing.', 'Keys have 1 to 200 characters; leave the option out for none.');
  end if;
  if key is not null and idempotency_key is not null then
    perform holdfast._fail('QH220', 'key and idempotency_key exclude each other',
      'The one replaces a message that waits, the other refuses to.', 'Pass one of them.');
  end if;
end $$;
comment on function holdfast._check_keys is 'Refuse bad keys of a message';

create or replace function holdfast._check_order(queue holdfast.queue, drafts holdfast.draft[]) returns void language plpgsql stable
as $$
declare
  v_several boolean := cardinality(drafts) > 1;
  v_nth bigint;
begin
  if queue.ordering is distinct from 'key' then
    v_nth := (select min(d.ordinality) from unnest(drafts) with ordinality d where d.ordering_key is not null);
  end if;
  if v_nth is not null then
    perform holdfast._fail('QH221', format('queue "%s" takes no ordering_key', queue.name),
      format('Its ordering is %s.', coalesce(queue.ordering, 'none')),
      'Set ordering to key in its configuration; a strict queue is one line without keys.', case when v_several then v_nth end);
  end if;
  if queue.ordering = 'strict' then
    v_nth := (select min(d.ordinality) from unnest(drafts) with ordinality d where d.priority <> queue.priority_default);
  end if;
  if v_nth is not null then
    perform holdfast._fail('QH221', format('queue "%s" takes no priority', queue.name), 'Its ordering is strict: one line.',
      'Leave priority out, or set ordering to key.', case when v_several then v_nth end);
  end if;
end $$;
comment on function holdfast._check_order is 'Refuse an ordering key or a priority that does not go with the ordering of the queue';

create or replace function holdfast._payload_hash(payload jsonb, body bytea) returns bytea language sql immutable
  return sha256(case when body is not null then coalesce('\x03'::bytea || holdfast._digest(body), '\x01'::bytea || body) when payload is not null then '\x02'::bytea || convert_to(payload::text, 'UTF8') else '\x' end);
comment on function holdfast._payload_hash is 'Tells whether two messages say the same; of a sealed one, by the keyed hash of its plaintext';

create or replace function holdfast._store_with_keys(queue holdfast.queue, drafts holdfast.draft[], at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_stored bigint[] := '{}';
  v_xid xid8;
  v_draft holdfast.draft;
  v_nth bigint := 0;
  v_singly boolean;
begin
  perform holdfast._check_order(queue, drafts);
  select bool_or(d.key is not null or d.idempotency_key is not null) into v_singly from unnest(drafts) d;
  -- Before ids and numbers are drawn: whoever sent with one of these keys before has committed then.
  if queue.ordering is not null then
    perform holdfast._lock_keys(holdfast._line_lock(), queue.id,
      case when queue.ordering = 'strict' then '{""}'::text[] else array(select d.ordering_key from unnest(drafts) d) end);
  end if;
  if v_singly then
    perform holdfast._lock_keys(holdfast._key_lock(), queue.id, array(select d.key from unnest(drafts) d));
    perform holdfast._lock_keys(holdfast._idempotency_lock(), queue.id, array(select d.idempotency_key from unnest(drafts) d));
  end if;
  select jsonb_object_agg(p.priority, holdfast._ids(queue, p.priority)) into v_lanes
  from (select distinct coalesce(d.priority, queue.priority_default)::smallint as priority from unnest(drafts) d) p;
  v_xid := pg_current_xact_id();
  if v_singly then
    foreach v_draft in array drafts loop
      v_nth := v_nth + 1;
      v_stored := v_stored || holdfast._store_one(queue, v_draft, (v_lanes ->> coalesce(v_draft.priority, queue.priority_default)::text)::regclass, at,
                                                  case when cardinality(drafts) > 1 then v_nth end);
    end loop;
  else
    if queue.max_depth is not null then
      perform holdfast._check_depth(queue, cardinality(drafts), case when cardinality(drafts) > 1 then 1 end);
    end if;
    with stored as (
      insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                    correlation_id, max_deliveries, ordering_key, order_no, row_of)
      select nextval((v_lanes ->> coalesce(d.priority, queue.priority_default)::text)::regclass), queue.id, at, d.due_at,
             d.expires_at, d.payload, d.body, d.content_type, d.headers, d.tag, d.correlation_id, d.max_deliveries,
             case when queue.ordering = 'strict' then '' else d.ordering_key end,
             case when queue.ordering = 'strict' or d.ordering_key is not null then nextval('holdfast.order_no') end, queue.row_of
      from unnest(drafts) d
      returning id
    )
    select array_agg(s.id) into v_stored from stored s;
  end if;
  perform holdfast._wake(queue);
  return v_stored;
end $$;
comment on function holdfast._store_with_keys is 'Store checked messages of which some have keys; returns the ids in order';

create or replace function holdfast._store_one(queue holdfast.queue, draft holdfast.draft, sequence regclass, at timestamptz, nth bigint) returns bigint
language plpgsql volatile
as $$
declare
  v_line text := case when queue.ordering = 'strict' then '' else draft.ordering_key end;
  v_id bigint;
begin
  if draft.key is not null then
    v_id := holdfast._replace(queue, draft, v_line, at);
  elsif draft.idempotency_key is not null then
    v_id := holdfast._sent_before(queue, draft, nth);
  end if;
  if v_id is not null then
    return v_id;
  end if;
  -- Only now: what replaces a message, or was sent before, adds nothing.
  if queue.max_depth is not null then
    perform holdfast._check_depth(queue, 1, nth);
  end if;
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                correlation_id, max_deliveries, ordering_key, order_no, key, idempotency_key, payload_hash, row_of)
  values (nextval(sequence), queue.id, at, case when draft.key is not null then coalesce(draft.due_at, at) else draft.due_at end,
          draft.expires_at, draft.payload, draft.body, draft.content_type, draft.headers, draft.tag, draft.correlation_id,
          draft.max_deliveries, v_line, case when v_line is not null then nextval('holdfast.order_no') end, draft.key,
          draft.idempotency_key, case when draft.idempotency_key is not null then holdfast._payload_hash(draft.payload, draft.body) end,
          queue.row_of)
  -- Under the lock nobody has it; but a transaction with a fixed snapshot may not see who has: PostgreSQL tells it to try again.
  on conflict (queue_id, idempotency_key) where idempotency_key is not null do nothing
  returning id into v_id;
  return v_id;
end $$;
comment on function holdfast._store_one is 'Under the locks of its keys: store one message, or replace the one that waits, or find the one sent before. nth: which message of the call it is; null: the only one';

create or replace function holdfast._replace(queue holdfast.queue, draft holdfast.draft, line text, at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_id bigint;
  v_any boolean := queue.replaces = 'waiting';
begin
  -- An older snapshot would not show what the sender before this one has committed.
  perform holdfast._check_isolation('send with a key');
  select m.id into v_id from holdfast.message m
  where m.queue_id = queue.id and m.key = draft.key and m.due_at > '-infinity' and (v_any or coalesce(m.deliveries, 0) = 0)
    and m.ordering_key is not distinct from line and m.blocks_since is null
  order by m.id desc limit 1 for update skip locked;
  update holdfast.message m set
    enqueued_at = at, expires_at = draft.expires_at, payload = draft.payload, body = draft.body, content_type = draft.content_type,
    headers = draft.headers, tag = draft.tag, correlation_id = draft.correlation_id, max_deliveries = draft.max_deliveries,
    last_error = case when v_any then m.last_error end,
    -- The same message: it was sent when it was sent first.
    origin = case when v_any then coalesce(m.origin, '{}') || jsonb_build_object('sent_at', holdfast._sent_at(m.origin, m.enqueued_at)) end,
    -- A parked one waits for its time first, then a claim parks it again if it still stands behind a head.
    due_at = coalesce(draft.due_at, case when m.due_at = 'infinity' then m.due_at else least(m.due_at, at) end)
  where m.id = v_id;
  return v_id;
end $$;
comment on function holdfast._replace is 'Under the lock of its key: replace the message that waits; null: none does, or it is being claimed';

create or replace function holdfast._await_claims(lane_id int) returns void language plpgsql volatile
as $$
begin
  -- Undone on purpose, which lets go of the lock at once.
  perform pg_advisory_xact_lock(holdfast._lane_lock(), lane_id);
  raise exception using errcode = 'HF000';
exception
  when sqlstate 'HF000' then null;
end $$;
comment on function holdfast._await_claims is 'Wait until the claims of this lane that have begun are over: what they took can be seen then';

create or replace function holdfast._end_overdue(queue_id int, id bigint, at timestamptz) returns boolean language plpgsql volatile
as $$
begin
  perform holdfast._check_isolation('send with an idempotency_key');
  -- In this order: a claim that began before may have it, one that begins later sees that it is over and ends it, and whoever
  -- is ending it is waited for.
  perform holdfast._await_claims((_end_overdue.id >> 40)::int);
  perform from holdfast.message m where m.id = _end_overdue.id for update;
  if not found then
    return true;
  end if;
  if exists (select from holdfast.message m where m.id = _end_overdue.id and m.blocks_since is not null)
     or exists (select from holdfast._holders(array[_end_overdue.id])) then
    return false;
  end if;
  perform holdfast._end(_end_overdue.queue_id, array[_end_overdue.id], 'expired', at);
  return true;
end $$;
comment on function holdfast._end_overdue is
  'End a message that is past its time to live, unless somebody has done so. false: somebody holds it, or it blocks its line';

create or replace function holdfast._sent_before(queue holdfast.queue, draft holdfast.draft, nth bigint) returns bigint language plpgsql volatile
as $$
declare
  v_id bigint;
  v_hash bytea;
  v_over boolean;
begin
  select m.id, m.payload_hash, m.expires_at <= holdfast.now() into v_id, v_hash, v_over from holdfast.message m
  where m.queue_id = queue.id and m.idempotency_key = draft.idempotency_key;
  if v_over then
    v_over := holdfast._end_overdue(queue.id, v_id, holdfast.now());
  end if;
  if v_over then
    return null;
  end if;
  if v_hash <> holdfast._payload_hash(draft.payload, draft.body) then
    perform holdfast._fail('QH222', 'a message with this idempotency_key and another payload is there',
      format('Message %s of queue "%s" has the key %s.', v_id, queue.name, quote_literal(draft.idempotency_key)),
      'Use a key of its own for every message, and send a message again as it was.', nth);
  end if;
  return v_id;
end $$;
comment on function holdfast._sent_before is 'Under the lock of its idempotency key: the live message that has it; another payload is an error';

create or replace function holdfast._free_idempotency_keys(queue holdfast.queue, ids bigint[]) returns jsonb language plpgsql volatile
as $$
declare
  v_keys text[] := array(select m.origin ->> 'idempotency_key' from holdfast.message m where m.id = any (_free_idempotency_keys.ids) and m.origin ? 'idempotency_key');
begin
  if v_keys = '{}' then
    return '{}';
  end if;
  perform holdfast._lock_keys(holdfast._idempotency_lock(), queue.id, v_keys);
  return (select coalesce(jsonb_object_agg(f.key, f.id), '{}') from (
    select m.origin ->> 'idempotency_key' as key, min(m.id) as id from holdfast.message m
    where m.id = any (_free_idempotency_keys.ids) and m.origin ? 'idempotency_key' group by 1) f
    where not exists (select from holdfast.message m where m.queue_id = queue.id and m.idempotency_key = f.key));
end $$;
comment on function holdfast._free_idempotency_keys is
  'Which of these dead letters may have their idempotency key back: no live message of the queue has it, and no other of them';

create or replace function holdfast.discard_key(queue text, key text) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(discard_key.queue);
begin
  perform holdfast._check_isolation('discard_key');
  -- Whoever is sending with this key is waited for: what it sent goes too.
  perform holdfast._lock_keys(holdfast._key_lock(), v_queue.id, array[discard_key.key]);
  return holdfast.discard(discard_key.queue, array(
    select m.id from holdfast.message m where m.queue_id = v_queue.id and m.key = discard_key.key order by m.id limit 10000));
end $$;
comment on function holdfast.discard_key is
  'End the messages of this queue that have this key, in whatever state they are; returns their ids';

-- 50_send.sql
-- Sending: one message, a batch with one set of options, many with their own, and the inbox for COPY.
--
-- A send takes its transaction id BEFORE it draws message ids, and holds its lock on holdfast.message while it
-- draws them: claim's horizons rest on both. It takes no lock that another send waits for, except when it makes
-- a lane (the first use of a priority).

create or replace function holdfast._wake(queue holdfast.queue) returns void language plpgsql volatile
as $$
declare
  v_until bigint;
begin
  if queue.notify then
    v_until := coalesce(pg_sequence_last_value(queue.asleep), 0);
    -- NOTIFY takes a lock that all committing notifiers share: only while somebody sleeps.
    if v_until > 0 and v_until between holdfast._us(holdfast.now()) and holdfast._us(holdfast.now()) + 3600000000 then
      perform pg_notify('holdfast', queue.name);
    end if;
  end if;
end $$;
comment on function holdfast._wake is 'Notify the sleepers of a queue, if there are any';

create or replace function holdfast.listen(queue text, patience interval default '30 s') returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue holdfast.queue := holdfast._queue(listen.queue);
  v_until bigint := holdfast._us(holdfast.now() + least(greatest(listen.patience, interval '0'), interval '1 hour'));
begin
  if v_until > coalesce(pg_sequence_last_value(v_queue.asleep), 0) then
    perform setval(v_queue.asleep, v_until);
  end if;
  return 'holdfast';
end $$;
comment on function holdfast.listen is
  'Say that a consumer is about to sleep on this queue for so long. Returns the channel to LISTEN on; claim once more after that, then sleep';

create or replace function holdfast._hurry(wanted boolean) returns void language plpgsql volatile
as $$
begin
  -- Never for a transaction that may hold more than this call: its commit would be weakened as a whole.
  if wanted then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end $$;
comment on function holdfast._hurry is 'Let the commit of this transaction not wait for the disk, if wanted';

create or replace function holdfast.fast_mode() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform holdfast._hurry(true);
end $$;
comment on function holdfast.fast_mode is
  'Let the commit of this transaction, with all that is in it, not wait for the disk: a crash of the server may lose its last moments';

create or replace function holdfast.send(
  queue text, payload jsonb default null, body bytea default null, content_type text default null, headers jsonb default null,
  priority int default null, delay interval default null, deliver_at timestamptz default null, ttl interval default null,
  expires_at timestamptz default null, correlation_id uuid default null, tag text default null, max_deliveries int default null,
  ordering_key text default null, key text default null, idempotency_key text default null, alone boolean default false
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue record;
  v_now timestamptz := holdfast.now();
  v_due timestamptz;
  v_expires timestamptz;
  v_xid xid8;
  v_id bigint;
begin
  select q.id, q.kind, q.max_payload, q.ttl, q.max_depth, q.notify, q.asleep, q.ordering, q.fast, q.row_of, q.seal_key, l.ids into v_queue
  from holdfast.queue q left join holdfast.lane l on l.queue_id = q.id and l.priority = coalesce(send.priority, q.priority_default)
    and l.shard = pg_backend_pid() % q.shards
  where q.name = send.queue;
  if v_queue.ids is null or pg_column_size(payload) > v_queue.max_payload / 256 or num_nonnulls(body, content_type, headers, priority,
       delay, deliver_at, ttl, expires_at, tag, max_deliveries, ordering_key, key, idempotency_key, v_queue.ttl, v_queue.max_depth,
       v_queue.ordering, v_queue.fast, v_queue.seal_key, pg_column_compression(payload)) > 0 then
    -- Whatever is not a small payload and nothing else, to a lane that is there.
    if v_queue.id is null then
      perform holdfast._no_queue(send.queue);
    end if;
    perform holdfast._check_draft((payload, body, content_type, headers, priority, null, null, correlation_id, tag, max_deliveries,
                                   ordering_key, key, idempotency_key)::holdfast.draft, (holdfast._queue(send.queue)).max_payload);
    if v_queue.kind = 'log' and num_nonnulls(priority, delay, deliver_at, ttl, expires_at, max_deliveries, ordering_key, key, idempotency_key) > 0 then
      perform holdfast._no_append(send.queue, jsonb_build_object('priority', priority, 'delay', delay, 'deliver_at', deliver_at, 'ttl', ttl, 'expires_at', expires_at,
        'max_deliveries', max_deliveries, 'ordering_key', ordering_key, 'key', key, 'idempotency_key', idempotency_key));
    end if;
    v_due := holdfast._due_at(delay, deliver_at, v_now);
    v_expires := holdfast._expires_at(ttl, expires_at, v_now, v_queue.ttl);
    perform holdfast._hurry(v_queue.fast and alone);
    if num_nonnulls(ordering_key, key, idempotency_key, v_queue.ordering) > 0 then
      return (holdfast._store(holdfast._queue(send.queue),
        array[(payload, body, content_type, headers, priority, v_due, v_expires, correlation_id, tag, max_deliveries,
               ordering_key, key, idempotency_key)::holdfast.draft], v_now))[1];
    end if;
    if v_queue.seal_key is not null then
      perform holdfast._check_sealed(holdfast._queue(send.queue), body);
    end if;
    if v_queue.max_depth is not null then
      perform holdfast._check_depth(holdfast._queue(send.queue), 1);
    end if;
    v_queue.ids := coalesce(v_queue.ids, holdfast._ids(holdfast._queue(send.queue), priority));
  end if;

  v_xid := pg_current_xact_id();
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                correlation_id, max_deliveries, row_of)
  values (nextval(v_queue.ids), v_queue.id, v_now, v_due, v_expires, send.payload, send.body, send.content_type, send.headers,
          send.tag, send.correlation_id, send.max_deliveries, v_queue.row_of)
  returning id into v_id;
  if v_queue.notify and pg_sequence_last_value(v_queue.asleep) >= holdfast._us(v_now) then
    perform holdfast._wake(holdfast._queue(send.queue));
  end if;
  return v_id;
end $$;
comment on function holdfast.send is 'Send one message; returns its id. Part of the caller''s transaction: nothing is delivered before it commits';

create or replace function holdfast._ids(queue holdfast.queue, priority int) returns regclass
language plpgsql volatile
as $$
declare
  v_priority smallint := coalesce(_ids.priority, queue.priority_default);
  v_shard smallint := pg_backend_pid() % queue.shards;
  v_ids regclass;
begin
  select l.ids into v_ids from holdfast.lane l
  where l.queue_id = queue.id and l.priority = v_priority and l.shard = v_shard;
  if v_ids is null then
    v_ids := (holdfast._make_lane(queue.id, v_priority, v_shard)).ids;
  end if;
  return v_ids;
end $$;
comment on function holdfast._ids is 'The sequence that draws ids for a queue and priority (null: its default); makes the lane on first use';

create or replace function holdfast._store(queue holdfast.queue, drafts holdfast.draft[], at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_stored bigint[];
  v_xid xid8;
begin
  if queue.kind = 'log' then
    perform holdfast._no_append(queue.name, jsonb_build_object(
        'priority', d.priority, 'delay or deliver_at', d.due_at, 'ttl or expires_at', d.expires_at, 'max_deliveries', d.max_deliveries,
        'ordering_key', d.ordering_key, 'key', d.key, 'idempotency_key', d.idempotency_key),
      case when cardinality(drafts) > 1 then d.ordinality end)
    from unnest(drafts) with ordinality d
    where num_nonnulls(d.priority, d.due_at, d.expires_at, d.max_deliveries, d.ordering_key, d.key, d.idempotency_key) > 0;
  end if;
  if queue.seal_key is not null then
    perform holdfast._check_sealed(queue, d.body, case when cardinality(drafts) > 1 then d.ordinality end) from unnest(drafts) with ordinality d;
  end if;
  if queue.ordering is not null
     or exists (select from unnest(drafts) d where num_nonnulls(d.ordering_key, d.key, d.idempotency_key) > 0) then
    return holdfast._store_with_keys(queue, drafts, at);
  end if;
  if queue.max_depth is not null then
    perform holdfast._check_depth(queue, cardinality(drafts), case when cardinality(drafts) > 1 then 1 end);
  end if;
  select jsonb_object_agg(p.priority, holdfast._ids(queue, p.priority)) into v_lanes
  from (select distinct coalesce(d.priority, queue.priority_default)::smallint as priority from unnest(drafts) d) p;
  v_xid := pg_current_xact_id();
  with stored as (
    insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                  correlation_id, max_deliveries, row_of)
    select nextval((v_lanes ->> coalesce(d.priority, queue.priority_default)::text)::regclass), queue.id, at, d.due_at,
           d.expires_at, d.payload, d.body, d.content_type, d.headers, d.tag, d.correlation_id, d.max_deliveries, queue.row_of
    from unnest(drafts) d
    returning id
  )
  select array_agg(s.id) into v_stored from stored s;
  perform holdfast._wake(queue);
  return v_stored;
end $$;
comment on function holdfast._store is 'Store checked messages of one queue, each with its own options; returns the ids in order';

create or replace function holdfast._check_batch(messages bigint) returns void language plpgsql immutable
as $$
begin
  if messages > 100000 then
    perform holdfast._fail('QH208', 'too many messages in one call', format('Got %s.', messages),
      'One call takes at most 100,000 messages; send them in several calls, in one transaction if need be.');
  end if;
end $$;
comment on function holdfast._check_batch is 'Refuse an over-large batch';

create or replace function holdfast.send_batch(
  queue text, payloads jsonb[], content_type text default null, headers jsonb default null, priority int default null,
  delay interval default null, deliver_at timestamptz default null, ttl interval default null, expires_at timestamptz default null,
  correlation_id uuid default null, tag text default null, max_deliveries int default null,
  ordering_key text default null, key text default null, idempotency_key text default null, alone boolean default false
) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_batch.queue);
  v_ids regclass;
  v_stored bigint[];
  v_now timestamptz := holdfast.now();
  v_due timestamptz := holdfast._due_at(delay, deliver_at, v_now);
  v_expires timestamptz := holdfast._expires_at(ttl, expires_at, v_now, v_queue.ttl);
  v_xid xid8;
begin
  perform holdfast._check_batch(cardinality(payloads));
  perform holdfast._check_options(content_type, headers, correlation_id, tag, max_deliveries);
  perform holdfast._check_priority(priority);
  if v_queue.kind = 'log' and num_nonnulls(priority, delay, deliver_at, ttl, expires_at, max_deliveries, ordering_key, key, idempotency_key) > 0 then
    perform holdfast._no_append(send_batch.queue, jsonb_build_object('priority', priority, 'delay', delay, 'deliver_at', deliver_at, 'ttl', ttl, 'expires_at', expires_at,
      'max_deliveries', max_deliveries, 'ordering_key', ordering_key, 'key', key, 'idempotency_key', idempotency_key));
  end if;
  if num_nonnulls(ordering_key, key, idempotency_key) > 0 then
    perform holdfast._check_keys(ordering_key, key, idempotency_key);
  end if;
  if coalesce(cardinality(payloads), 0) = 0 then
    return '{}';
  end if;
  if v_queue.seal_key is not null then
    perform holdfast._check_sealed(v_queue, null, case when cardinality(payloads) > 1 then 1 end);
  end if;
  if v_queue.fast then
    perform holdfast._hurry(alone);
  end if;
  if num_nonnulls(ordering_key, key, idempotency_key, v_queue.ordering) > 0 then
    return holdfast._store(v_queue, (
      select array_agg((p.payload, null, send_batch.content_type, send_batch.headers, send_batch.priority, v_due, v_expires,
                        send_batch.correlation_id, send_batch.tag, send_batch.max_deliveries, send_batch.ordering_key,
                        send_batch.key, send_batch.idempotency_key)::holdfast.draft order by p.n)
      from unnest(payloads) with ordinality p(payload, n)
      where holdfast._fits(p.payload, v_queue.max_payload, case when cardinality(payloads) > 1 then p.n end)), v_now);
  end if;
  if v_queue.max_depth is not null then
    perform holdfast._check_depth(v_queue, cardinality(payloads), case when cardinality(payloads) > 1 then 1 end);
  end if;

  v_ids := holdfast._ids(v_queue, priority);
  v_xid := pg_current_xact_id();
  lock table holdfast.message in row exclusive mode;
  v_stored := array(select nextval(v_ids) from generate_series(1, cardinality(payloads)));
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, content_type, headers, tag,
                                correlation_id, max_deliveries, row_of)
  select v_stored[p.n], v_queue.id, v_now, v_due, v_expires, p.payload, send_batch.content_type, send_batch.headers,
         send_batch.tag, send_batch.correlation_id, send_batch.max_deliveries, v_queue.row_of
  from unnest(payloads) with ordinality p(payload, n)
  where pg_column_size(p.payload) <= v_queue.max_payload / 256
     or holdfast._fits(p.payload, v_queue.max_payload, case when cardinality(payloads) > 1 then p.n end);
  perform holdfast._wake(v_queue);
  return v_stored;
end $$;
comment on function holdfast.send_batch is 'Send many payloads with one set of options; returns the ids in order';

create or replace function holdfast._draft(message jsonb, queue holdfast.queue, at timestamptz, nth bigint) returns holdfast.draft
language plpgsql stable
as $$
declare
  v_draft holdfast.draft;
  v_unknown text;
  v_wrong text;
  v_detail text;
  v_hint text;
begin
  if jsonb_typeof(message) <> 'object' then
    perform holdfast._fail('QH203', 'each message must be a JSON object', format('Got %s.', left(message::text, 100)),
      'Pass [{"payload": …, "priority": …}, …].');
  end if;
  select k into v_unknown from jsonb_object_keys(message) k
  where k <> all ('{payload,body,content_type,headers,priority,delay,deliver_at,ttl,expires_at,correlation_id,tag,max_deliveries,ordering_key,key,idempotency_key}');
  if found then
    perform holdfast._fail('QH203', format('unknown field "%s" in a message', left(v_unknown, 100)), format('Got %s.', left((message -> v_unknown)::text, 100)),
      'Fields: payload, body (base64), content_type, headers, priority, delay, deliver_at, ttl, expires_at, correlation_id, tag, max_deliveries, ordering_key, key, idempotency_key.');
  end if;
  v_draft.payload := message -> 'payload';
  v_draft.body := decode(message ->> 'body', 'base64');
  v_draft.content_type := message ->> 'content_type';
  v_draft.headers := nullif(message -> 'headers', 'null');
  v_draft.priority := (message ->> 'priority')::int;
  v_draft.due_at := holdfast._due_at(holdfast._span(message -> 'delay'), (message ->> 'deliver_at')::timestamptz, at);
  v_draft.expires_at := holdfast._expires_at(holdfast._span(message -> 'ttl'), (message ->> 'expires_at')::timestamptz, at, queue.ttl);
  v_draft.correlation_id := (message ->> 'correlation_id')::uuid;
  v_draft.tag := message ->> 'tag';
  v_draft.max_deliveries := (message ->> 'max_deliveries')::int;
  v_draft.ordering_key := message ->> 'ordering_key';
  v_draft.key := message ->> 'key';
  v_draft.idempotency_key := message ->> 'idempotency_key';
  -- Whatever is not text has become some by now; most messages have none of these.
  if message ?| '{body,content_type,deliver_at,expires_at,tag,ordering_key,key,idempotency_key}' then
    v_wrong := case when jsonb_typeof(message -> 'tag') not in ('string', 'null') then 'tag'
                    when jsonb_typeof(message -> 'key') not in ('string', 'null') then 'key'
                    when jsonb_typeof(message -> 'ordering_key') not in ('string', 'null') then 'ordering_key'
                    when jsonb_typeof(message -> 'idempotency_key') not in ('string', 'null') then 'idempotency_key'
                    when jsonb_typeof(message -> 'content_type') not in ('string', 'null') then 'content_type'
                    when jsonb_typeof(message -> 'deliver_at') not in ('string', 'null') then 'deliver_at'
                    when jsonb_typeof(message -> 'expires_at') not in ('string', 'null') then 'expires_at'
                    when jsonb_typeof(message -> 'body') not in ('string', 'null') then 'body' end;
    if v_wrong is not null then
      raise data_exception using message = format('%s must be text, not %s', v_wrong, left((message -> v_wrong)::text, 100));
    end if;
  end if;
  perform holdfast._check_draft(v_draft, queue.max_payload);
  return v_draft;
exception
  when data_exception then
    perform holdfast._fail('QH203', 'a message has a field of the wrong type', sqlerrm,
      'delay, ttl: seconds or text such as "5 min"; deliver_at, expires_at: ISO times; priority, max_deliveries: whole numbers; correlation_id: a UUID; body: base64; all others but payload and headers: text.',
      nth);
  -- Stands for all codes of Holdfast: a check has refused it, and does not know which one it is.
  when sqlstate 'QH000' then
    if nth is null then
      raise;
    end if;
    get stacked diagnostics v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    perform holdfast._blame(nth, sqlstate, sqlerrm, v_detail, v_hint);
end $$;
comment on function holdfast._draft is 'Read and check one message of send_many. nth: which one; null: the only one';

create or replace function holdfast._span(value jsonb) returns interval language sql immutable
  return case jsonb_typeof(value) when 'number' then make_interval(secs => (value #>> '{}')::float8)
                                  when 'null' then null else (value #>> '{}')::interval end;
comment on function holdfast._span is 'A duration in a message: seconds or interval text';

create or replace function holdfast._check_draft(draft holdfast.draft, max_payload int) returns void
language plpgsql immutable
as $$
begin
  perform holdfast._check_size(draft.payload, draft.body, max_payload);
  perform holdfast._check_options(draft.content_type, draft.headers, draft.correlation_id, draft.tag, draft.max_deliveries);
  perform holdfast._check_priority(draft.priority);
  perform holdfast._check_keys(draft.ordering_key, draft.key, draft.idempotency_key);
end $$;
comment on function holdfast._check_draft is 'Refuse a bad message';

create or replace function holdfast.send_many(queue text, messages jsonb, alone boolean default false) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_many.queue);
  v_now timestamptz := holdfast.now();
  v_drafts holdfast.draft[];
  v_one boolean;
begin
  if jsonb_typeof(messages) is distinct from 'array' then
    perform holdfast._fail('QH203', 'messages must be a JSON array', format('Got %s.', coalesce(jsonb_typeof(messages), 'null')),
      'Pass [{"payload": …, "priority": …}, …].');
  end if;
  perform holdfast._check_batch(jsonb_array_length(messages));
  if jsonb_array_length(messages) = 0 then
    return '{}';
  end if;
  v_one := jsonb_array_length(messages) = 1;
  select array_agg(holdfast._draft(m.value, v_queue, v_now, case when not v_one then m.n end) order by m.n) into v_drafts
  from jsonb_array_elements(messages) with ordinality m(value, n);
  perform holdfast._hurry(v_queue.fast and alone);
  return holdfast._store(v_queue, v_drafts, v_now);
end $$;
comment on function holdfast.send_many is 'Send many messages, each with its own options; returns the ids in order';

create or replace function holdfast._receive() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_batch record;
  v_queue holdfast.queue;
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_batch((select count(*) from arrived a));
  for v_batch in
    select a.queue, min(a.n) as first, max(a.n) as last,
           array_agg((a.payload, a.body, a.content_type, a.headers, a.priority, holdfast._due_at(null, a.deliver_at, v_now),
                      a.expires_at, a.correlation_id, a.tag, a.max_deliveries, a.ordering_key, a.key, a.idempotency_key)::holdfast.draft order by a.n) as drafts
    from arrived a group by a.queue order by a.queue
  loop
    v_queue := holdfast._queue(v_batch.queue);
    perform holdfast._check_draft(d, v_queue.max_payload),
            holdfast._expires_at(null, d.expires_at, v_now, null) from unnest(v_batch.drafts) d;
    if v_queue.ttl is not null then
      select array_agg((d.payload, d.body, d.content_type, d.headers, d.priority, d.due_at, coalesce(d.expires_at, v_now + v_queue.ttl),
                        d.correlation_id, d.tag, d.max_deliveries, d.ordering_key, d.key, d.idempotency_key)::holdfast.draft) into v_batch.drafts
      from unnest(v_batch.drafts) d;
    end if;
    perform holdfast._store(v_queue, v_batch.drafts, v_now);
    delete from holdfast.inbox i where i.queue = v_batch.queue and i.n between v_batch.first and v_batch.last;
  end loop;
  return null;
end $$;
comment on function holdfast._receive is 'Turns what a statement put into the inbox into messages';

create or replace trigger receive after insert on holdfast.inbox
referencing new table as arrived for each statement execute function holdfast._receive();

create or replace function holdfast._check_depth(queue holdfast.queue, messages bigint, nth bigint default null) returns void
language plpgsql volatile
as $$
declare
  v_now bigint := holdfast._us(holdfast.now());
  v_counted bigint := coalesce(pg_sequence_last_value(queue.counted_at), 0);
  v_depth bigint := coalesce(pg_sequence_last_value(queue.depth), 0);
  v_stale boolean := v_counted not between v_now - 250000 and v_now;
begin
  if v_stale then
    v_depth := holdfast._depth_at_most(queue);
    perform setval(queue.counted_at, v_now);
  end if;
  if v_depth + messages > queue.max_depth then
    -- The estimate counts holes, and sends that were rolled back: count before refusing, but not for ever.
    if v_stale or queue.max_depth <= 10000 then
      v_depth := holdfast._count_upto(queue, queue.max_depth + 1);
      perform setval(queue.depth, v_depth);
    end if;
    if v_depth + messages > queue.max_depth then
      perform holdfast._fail('QH209', format('queue "%s" is full', queue.name),
        format('It holds %s of at most %s messages (max_depth); %s more do not fit.', v_depth, queue.max_depth, messages),
        'Send again later, or raise max_depth.', nth + greatest(queue.max_depth - v_depth, 0));
    end if;
  end if;
  perform setval(queue.depth, v_depth + messages);
end $$;
comment on function holdfast._check_depth is
  'Refuse messages that would go over max_depth. nth: which message of the call is the first of them, so that the first that does not fit is named; null: the only one';

create or replace function holdfast._count_upto(queue holdfast.queue, enough bigint) returns bigint language sql stable
  return (select count(*) from (
    select from holdfast.lane l cross join lateral (
      select from holdfast.message m where m.id >= l.id::bigint << 40 and m.id < (l.id + 1)::bigint << 40 order by m.id limit enough) m
    where l.queue_id = (queue).id limit enough) counted);
comment on function holdfast._count_upto is 'How many messages a queue holds; stops counting when it is enough';

-- 52_stage.sql
-- Staging: many processes bring messages, one transaction sends them all.
--
--   open_stage     a place for one attempt at one part of a write
--   (insert)       into holdfast.staged, by COPY: rows of that stage, numbered from 1
--   check_staged   takes out the rows that a send would refuse, and says why
--   send_staged    sends the stages that are named, in their order, and removes all rows of the write
--   drop_staged    gives up
--
-- replay_staged (79_replay.sql) does what send_staged does, for messages of an archive.
--
-- The name of a write is taken in the transaction that sends it: whoever comes second, even at the same moment, finds it
-- taken and sends nothing. Rows of attempts that nobody names are never sent. What killed processes left behind goes with
-- its stage after a day, by maintain().
--
-- The number of a stage is a secret of whoever opened it, as a token is: all senders may insert, and nobody can tell the
-- numbers of others. Whoever counts, changes, sends or drops the rows of a stage holds it, so that they do not change on the way.
-- Lock order: the name, stages by number, ordering keys, keys, idempotency keys, each by bucket and for the whole write at once; then rows.

create or replace function holdfast.open_stage(queue text, write_id text, run text, part int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(open_stage.queue);
  v_stage bigint;
begin
  perform holdfast._check_write(open_stage.write_id), holdfast._check_write(open_stage.run);
  if exists (select from holdfast.write w where w.queue_id = v_queue.id and w.id = open_stage.write_id) then
    return null;
  end if;
  if open_stage.part is null then
    perform holdfast._fail('QH230', 'a part has no number', 'Got null.', 'part takes the number of a part of the write.');
  end if;
  insert into holdfast.stage (id, queue_id, write_id, run, part, opened_at, opened_by)
  values (holdfast._token(), v_queue.id, open_stage.write_id, open_stage.run, open_stage.part, holdfast.now(), session_user)
  returning id into v_stage;
  return v_stage;
end $$;
comment on function holdfast.open_stage is
  'A new stage for one part of a write; null: this write was sent already. run: whoever does the write this time, for drop_staged';

create or replace function holdfast._check_write(write_id text) returns void language plpgsql immutable
as $$
begin
  if _check_write.write_id is null or length(_check_write.write_id) not between 1 and 200 then
    perform holdfast._fail('QH230', 'invalid name of a write', format('Got %s.', coalesce(quote_literal(left(_check_write.write_id, 250)), 'null')),
      'write_id and run have 1 to 200 characters.');
  end if;
end $$;
comment on function holdfast._check_write is 'Refuse a bad name of a write';

create or replace function holdfast._hold_stages(stages bigint[], queue_id int default null, write_id text default null) returns bigint[]
language plpgsql volatile
as $$
declare
  v_held bigint[] := array(
    select t.id from holdfast.stage t where t.id = any (stages) and t.opened_by = session_user
      and (_hold_stages.queue_id is null or t.queue_id = _hold_stages.queue_id)
      and (_hold_stages.write_id is null or t.write_id = _hold_stages.write_id) order by t.id for update);
begin
  return array(select s from unnest(stages) s where s = any (v_held));
end $$;
comment on function holdfast._hold_stages is
  'Lock those of these stages that this user opened, for this queue and write if they are named; returns them, in the order given';

create or replace function holdfast._has_options(message holdfast.staged) returns boolean language sql immutable
  return num_nonnulls((message).body, (message).content_type, (message).headers, (message).priority, (message).delay, (message).deliver_at,
                      (message).ttl, (message).expires_at, (message).correlation_id, (message).tag, (message).max_deliveries,
                      (message).ordering_key, (message).key, (message).idempotency_key) > 0;
comment on function holdfast._has_options is 'Whether a staged message has anything beside a payload';

create or replace function holdfast._suspect(
  message holdfast.staged, max_payload int, log boolean, ordering text, priority_default int, at timestamptz, sealed boolean)
returns boolean language sql stable
  return sealed or coalesce(pg_column_size((message).payload) > max_payload / 256 or pg_column_compression((message).payload) is not null, false)
    or case when holdfast._has_options(message) then coalesce(
    ((message).payload is not null and (message).body is not null)
    or octet_length((message).body) > max_payload
    or length((message).content_type) > 200 or length((message).tag) > 200
    or jsonb_typeof((message).headers) <> 'object' or pg_column_size((message).headers) > 4096 or pg_column_compression((message).headers) is not null
    or (message).priority not between 0 and 10 or (message).max_deliveries not between 0 and 1000
    or (message).delay not between 0 and 3e8 or (message).ttl not between 1e-6 and 3e8
    or (message).deliver_at not between '1900-01-01Z' and at + interval '9 years'
    or (message).expires_at not between '1900-01-01Z' and at + interval '9 years'
    or ((message).delay is not null and (message).deliver_at is not null) or ((message).ttl is not null and (message).expires_at is not null)
    or (message).correlation_id !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
    or length((message).ordering_key) not between 1 and 200 or length((message).key) not between 1 and 200
    or length((message).idempotency_key) not between 1 and 200
    or ((message).key is not null and (message).idempotency_key is not null)
    or (log and num_nonnulls((message).priority, (message).delay, (message).deliver_at, (message).ttl, (message).expires_at,
                             (message).max_deliveries, (message).ordering_key, (message).key, (message).idempotency_key) > 0)
    or (ordering is distinct from 'key' and (message).ordering_key is not null)
    or (ordering = 'strict' and (message).priority <> priority_default), false) else false end;
comment on function holdfast._suspect is
  'Whether a staged message may be one that a send refuses: a quick look at all rows, so that the exact one is for few';

create or replace function holdfast._staged_draft(message holdfast.staged, queue holdfast.queue, at timestamptz) returns holdfast.draft
language plpgsql stable
as $$
declare
  v_draft holdfast.draft;
begin
  v_draft := (message.payload, message.body, message.content_type, message.headers, message.priority,
    holdfast._due_at(make_interval(secs => message.delay), message.deliver_at, at),
    holdfast._expires_at(make_interval(secs => message.ttl), message.expires_at, at, queue.ttl),
    message.correlation_id::uuid, message.tag, message.max_deliveries, message.ordering_key, message.key, message.idempotency_key);
  perform holdfast._check_draft(v_draft, queue.max_payload);
  if queue.kind = 'log' and num_nonnulls(message.priority, message.delay, message.deliver_at, message.ttl, message.expires_at,
                                         message.max_deliveries, message.ordering_key, message.key, message.idempotency_key) > 0 then
    perform holdfast._no_append(queue.name, jsonb_build_object('priority', message.priority, 'delay', message.delay,
      'deliver_at', message.deliver_at, 'ttl', message.ttl, 'expires_at', message.expires_at, 'max_deliveries', message.max_deliveries,
      'ordering_key', message.ordering_key, 'key', message.key, 'idempotency_key', message.idempotency_key));
  end if;
  perform holdfast._check_order(queue, array[v_draft]);
  if queue.seal_key is not null then
    perform holdfast._check_sealed(queue, v_draft.body);
  end if;
  return v_draft;
exception
  when invalid_text_representation or datetime_field_overflow or interval_field_overflow or numeric_value_out_of_range then
    perform holdfast._fail('QH203', 'a message has a field of the wrong type', sqlerrm,
      'correlation_id: a UUID; delay, ttl: a number of seconds.');
end $$;
comment on function holdfast._staged_draft is 'A staged message as a draft, with all checks of a send';

create or replace function holdfast._staged_fits(message holdfast.staged, queue holdfast.queue, at timestamptz) returns boolean
language plpgsql stable
as $$
begin
  perform holdfast._staged_draft(message, queue, at);
  return true;
end $$;
comment on function holdfast._staged_fits is 'true, or the error that says why a send would refuse this message';

create or replace function holdfast._refusal(message holdfast.staged, queue holdfast.queue, at timestamptz, out code text, out reason text)
language plpgsql stable
as $$
begin
  perform holdfast._staged_draft(message, queue, at);
exception
  when sqlstate 'QH201' or sqlstate 'QH202' or sqlstate 'QH203' or sqlstate 'QH204' or sqlstate 'QH205' or sqlstate 'QH206'
    or sqlstate 'QH207' or sqlstate 'QH210' or sqlstate 'QH220' or sqlstate 'QH221' or sqlstate 'QH241' or sqlstate 'QH604' then
    code := sqlstate;
    get stacked diagnostics reason = pg_exception_detail;
    reason := concat_ws(': ', replace(sqlerrm, format(' [%s]', sqlstate), ''), nullif(reason, ''));
end $$;
comment on function holdfast._refusal is 'Why a send would refuse this message; nulls: it would not';

create or replace function holdfast.check_staged(queue text, stage bigint, after bigint default 0)
returns table (n bigint, code text, message text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(check_staged.queue);
  v_now timestamptz := holdfast.now();
  v_suspect holdfast.staged;
begin
  if holdfast._hold_stages(array[check_staged.stage]) = '{}' then
    return;
  end if;
  for v_suspect in
    select s.* from holdfast.staged s where s.stage = check_staged.stage and s.n > check_staged.after
      and holdfast._suspect(s, v_queue.max_payload, v_queue.kind = 'log', v_queue.ordering, v_queue.priority_default, v_now,
                            v_queue.seal_key is not null) order by s.n
  loop
    select r.code, r.reason into check_staged.code, check_staged.message from holdfast._refusal(v_suspect, v_queue, v_now) r;
    continue when check_staged.code is null;
    n := v_suspect.n;
    return next;
    delete from holdfast.staged s where s.stage = v_suspect.stage and s.n = v_suspect.n;
  end loop;
end $$;
comment on function holdfast.check_staged is
  'Takes those rows out of a stage, from the one after a number on, that a send to this queue would refuse; returns them with the reason';

create or replace function holdfast.json_errors(texts text[]) returns table (n bigint, message text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_text text;
begin
  for n, v_text in select t.n, t.value from unnest(json_errors.texts) with ordinality t(value, n) loop
    begin
      perform v_text::jsonb;
    exception
      when data_exception or program_limit_exceeded or statement_too_complex then
        get stacked diagnostics message = pg_exception_detail;
        message := concat_ws(': ', sqlerrm, nullif(message, ''));
        return next;
    end;
  end loop;
end $$;
comment on function holdfast.json_errors is 'Which of these texts are no JSON that can be stored, by their place in the array, and why';

create or replace function holdfast._store_staged(queue holdfast.queue, stage bigint, lanes regclass[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_stored bigint;
begin
  insert into holdfast.message (id, queue_id, enqueued_at, due_at, expires_at, payload, body, content_type, headers, tag,
                                correlation_id, max_deliveries, ordering_key, order_no, row_of)
  select nextval(lanes[coalesce(s.priority, queue.priority_default) + 1]), queue.id, at,
         case when coalesce(at + make_interval(secs => s.delay), s.deliver_at) > at then coalesce(at + make_interval(secs => s.delay), s.deliver_at) end,
         coalesce(s.expires_at, at + make_interval(secs => s.ttl), at + queue.ttl), s.payload, s.body, s.content_type, s.headers, s.tag, s.correlation_id::uuid, s.max_deliveries,
         case when queue.ordering = 'strict' then '' else s.ordering_key end,
         case when queue.ordering = 'strict' or s.ordering_key is not null then nextval('holdfast.order_no') end, queue.row_of
  from (select s.* from holdfast.staged s where s.stage = _store_staged.stage order by s.n offset 0) s
  where not holdfast._suspect(s, queue.max_payload, queue.kind = 'log', queue.ordering, queue.priority_default, at, queue.seal_key is not null)
    or holdfast._staged_fits(s, queue, at);
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
comment on function holdfast._store_staged is 'Store the messages of a stage that have neither key nor idempotency_key, in their order; returns how many';

create or replace function holdfast._store_payloads(queue holdfast.queue, stage bigint, at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_ids regclass := holdfast._ids(queue, queue.priority_default);
  v_queue_id int := queue.id;
  v_expires_at timestamptz := at + queue.ttl;
  v_most int := queue.max_payload / 256;
  v_row_of text := queue.row_of;
  v_stored bigint;
begin
  insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, row_of)
  select nextval(v_ids), v_queue_id, at, v_expires_at, s.payload, v_row_of
  from (select s.* from holdfast.staged s where s.stage = _store_payloads.stage order by s.n offset 0) s
  -- Who knows the stage can still add to it. What is added now is not counted, so that the write fails.
  where not holdfast._has_options(s)
    and (coalesce(pg_column_size(s.payload) <= v_most and pg_column_compression(s.payload) is null, true) or holdfast._staged_fits(s, queue, at));
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
comment on function holdfast._store_payloads is 'Store the messages of a stage that have nothing but payloads, in their order; returns how many';

create or replace function holdfast._store_staged_keys(queue holdfast.queue, stage bigint, at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_drafts holdfast.draft[];
  v_last bigint := 0;
  v_stored bigint := 0;
begin
  loop
    select array_agg(holdfast._staged_draft(s, queue, at) order by s.n), max(s.n) into v_drafts, v_last
    from (select s.* from holdfast.staged s where s.stage = _store_staged_keys.stage and s.n > v_last order by s.n limit 2000) s;
    exit when v_drafts is null;
    perform holdfast._store_with_keys(queue, v_drafts, at);
    v_stored := v_stored + cardinality(v_drafts);
  end loop;
  return v_stored;
end $$;
comment on function holdfast._store_staged_keys is 'Store the messages of a stage of which some have keys, in their order; returns how many';

create or replace function holdfast._lock_staged(queue holdfast.queue, stages bigint[]) returns boolean language plpgsql volatile
as $$
declare
  v_keys text[];
  v_idempotency_keys text[];
begin
  -- All at once: part by part, two writes could wait for one another.
  if queue.ordering is not null then
    perform holdfast._lock_keys(holdfast._line_lock(), queue.id, case when queue.ordering = 'strict' then '{""}'::text[] else array(
      select distinct s.ordering_key from holdfast.staged s where s.stage = any (stages) and s.ordering_key is not null) end);
  end if;
  select array_agg(distinct s.key) filter (where s.key is not null), array_agg(distinct s.idempotency_key) filter (where s.idempotency_key is not null)
  into v_keys, v_idempotency_keys
  from holdfast.staged s where s.stage = any (stages) and (s.key is not null or s.idempotency_key is not null);
  perform holdfast._lock_keys(holdfast._key_lock(), queue.id, v_keys);
  perform holdfast._lock_keys(holdfast._idempotency_lock(), queue.id, v_idempotency_keys);
  return coalesce(v_keys, v_idempotency_keys) is not null;
end $$;
comment on function holdfast._lock_staged is 'Take the locks of all keys of a write; returns whether there are keys other than ordering keys';

create or replace function holdfast._staged_lanes(queue holdfast.queue, stages bigint[]) returns regclass[] language plpgsql volatile
as $$
declare
  v_lanes regclass[];
  v_priority int;
begin
  for v_priority in
    select distinct case when queue.ordering = 'strict' then queue.priority_default else coalesce(s.priority, queue.priority_default) end
    from holdfast.staged s where s.stage = any (stages)
  loop
    perform holdfast._check_priority(v_priority);
    v_lanes[v_priority + 1] := holdfast._ids(queue, v_priority);
  end loop;
  return v_lanes;
end $$;
comment on function holdfast._staged_lanes is 'The sequences that number the messages of a write, by priority + 1';

create or replace function holdfast._forget_staged(stages bigint[]) returns bigint language plpgsql volatile
as $$
declare
  v_gone bigint;
begin
  -- The stages themselves stay for a day: an attempt that nobody waits for may still bring rows.
  delete from holdfast.staged s where s.stage = any (stages);
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
comment on function holdfast._forget_staged is 'Remove the rows of these stages; returns how many';

create or replace function holdfast._send_once(queue holdfast.queue, write_id text, stages bigint[], messages bigint, replayed boolean)
returns table (sent bigint, repeated boolean) language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
  v_all bigint[];
  v_taken holdfast.write;
  v_lanes regclass[];
  v_singly boolean := false;
  v_bare boolean;
  v_stage bigint;
  v_stored bigint := 0;
  v_xid xid8;
begin
  if _send_once.messages is null then
    perform holdfast._fail('QH231', 'staged messages are missing', 'Got null for their number.', 'messages takes how many there must be.');
  end if;
  insert into holdfast.write (queue_id, id, messages, sent_at) values (queue.id, _send_once.write_id, _send_once.messages, v_now)
  on conflict do nothing;
  if not found then
    select w.* into v_taken from holdfast.write w where w.queue_id = queue.id and w.id = _send_once.write_id;
  end if;
  v_all := array(select t.id from holdfast.stage t where t.queue_id = queue.id and t.write_id = _send_once.write_id and t.opened_by = session_user);
  if v_taken.id is null then
    stages := holdfast._hold_stages(stages, queue.id, _send_once.write_id);
    -- Payloads and nothing else are most writes, and there is nothing to lock or to choose for them.
    v_bare := not replayed and queue.ordering is distinct from 'strict' and queue.seal_key is null
      and not exists (select from holdfast.staged s where s.stage = any (stages) and holdfast._has_options(s));
    if not v_bare then
      v_singly := holdfast._lock_staged(queue, stages);
      v_lanes := holdfast._staged_lanes(queue, stages);
    end if;
    -- Of messages with keys each that adds one asks for itself. A replay passes, as in SQL.
    if queue.max_depth is not null and not v_singly and not replayed and _send_once.messages > 0 then
      perform holdfast._check_depth(queue, _send_once.messages);
    end if;
    v_xid := pg_current_xact_id();
    lock table holdfast.message in row exclusive mode;
    foreach v_stage in array stages loop
      v_stored := v_stored + case when v_bare then holdfast._store_payloads(queue, v_stage, v_now)
                                  when replayed then holdfast._store_replayed(queue, v_stage, v_lanes, v_now)
                                  when v_singly then holdfast._store_staged_keys(queue, v_stage, v_now)
                                  else holdfast._store_staged(queue, v_stage, v_lanes, v_now) end;
    end loop;
    if v_stored is distinct from _send_once.messages then
      perform holdfast._fail('QH231', 'staged messages are missing', format('%s of %s are there.', v_stored, _send_once.messages),
        'The server was restarted, or the write took over a day: run it again. Nothing was sent.');
    end if;
    perform holdfast._wake(queue);
  end if;
  perform holdfast._forget_staged(v_all);
  return query select coalesce(v_taken.messages, v_stored), v_taken.id is not null;
end $$;
comment on function holdfast._send_once is
  'Send what lies in these stages, unless a write of this name was sent before, and remove all rows of the write. replayed: they are messages of an archive';

create or replace function holdfast.send_staged(queue text, write_id text, stages bigint[], messages bigint)
returns table (sent bigint, repeated boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_staged.queue);
begin
  perform holdfast._check_write(send_staged.write_id);
  perform holdfast._check_isolation('send_staged');
  return query select o.sent, o.repeated from holdfast._send_once(v_queue, send_staged.write_id, stages, send_staged.messages, false) o;
end $$;
comment on function holdfast.send_staged is
  'Send what lies in these stages, in their order, if no write of this name was sent before, and remove all rows of the write. messages: how many there must be';

create or replace function holdfast.writes(queue text, prefix text, "limit" int default 1000, after text default '')
returns table (write_id text, messages bigint, sent_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(writes.queue);
begin
  perform holdfast._check_limit("limit");
  return query
    select w.id, w.messages, w.sent_at from holdfast.write w
    where w.queue_id = v_queue.id and w.id > writes.after and starts_with(w.id, writes.prefix) order by w.id limit writes."limit";
end $$;
comment on function holdfast.writes is 'The writes to a queue whose names begin so, in the order of their names, from the one after a name on';

create or replace function holdfast.drop_staged(run text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  return holdfast._forget_staged(holdfast._hold_stages(array(select t.id from holdfast.stage t where t.run = drop_staged.run)));
end $$;
comment on function holdfast.drop_staged is 'Remove all rows that this user has staged by this run of a write; returns how many';

create or replace function holdfast._tidy_stages(at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_old bigint[];
  v_gone int;
begin
  -- One at a time; whoever comes second has nothing to do.
  if not pg_try_advisory_xact_lock(holdfast._stage_lock(), 0) then
    return '{"unstaged": 0, "more": false}';
  end if;
  v_old := array(select t.id from holdfast.stage t where t.opened_at < at - interval '1 day' order by t.opened_at limit 1000 for update skip locked);
  delete from holdfast.staged s where (s.stage, s.n) in (
    select s.stage, s.n from unnest(v_old) o(stage) cross join lateral (
      select s.stage, s.n from holdfast.staged s where s.stage = o.stage order by s.n limit 10000) s limit 10000);
  get diagnostics v_gone = row_count;
  if v_gone < 10000 then
    delete from holdfast.stage t where t.id = any (v_old);
  end if;
  delete from holdfast.write w where (w.queue_id, w.id) in (
    select w.queue_id, w.id from holdfast.write w where w.sent_at < at - interval '30 days' order by w.sent_at limit 1000);
  return jsonb_build_object('unstaged', v_gone, 'more', v_gone >= 10000 or cardinality(v_old) >= 1000);
end $$;
comment on function holdfast._tidy_stages is
  'Remove stages that are a day old, with at most 10,000 of their rows, and the names of writes that are 30 days old; unstaged: how many rows';

-- 53_once.sql
-- Sending a batch once: an idempotency key for all of it, which counts for a time and not for as long as a message lives.
--
-- The row of holdfast.receipt is the lock: who sends under a key that somebody else is sending under waits for that
-- transaction, and then finds what it left. It is taken before all that a send takes, and by nobody else.

create or replace function holdfast._check_once(key text, "window" interval) returns void language plpgsql stable
as $$
begin
  perform holdfast._check_isolation('send_once');
  if key is null then
    perform holdfast._fail('QH220', 'the idempotency key is null', 'Without one it cannot be known whether this was sent before.',
      'Pass a key of 1 to 200 characters, or call send_many.');
  end if;
  perform holdfast._check_keys(null, null, key);
  if "window" is null or "window" not between interval '1 ms' and interval '7 days' then
    perform holdfast._fail('QH220', 'the window is out of range', format('Got %s.', coalesce("window"::text, 'null')),
      'A key counts for 1 millisecond to 7 days.');
  end if;
end $$;
comment on function holdfast._check_once is 'Refuse a bad key or window of send_once, and a transaction whose snapshot may be old';

create or replace function holdfast._without(messages jsonb, fields text[]) returns jsonb language sql immutable
  return case when fields = '{}' or jsonb_typeof(messages) <> 'array' then messages
    else (select jsonb_agg(case jsonb_typeof(m.value) when 'object' then m.value - fields else m.value end order by m.n)
          from jsonb_array_elements(messages) with ordinality m(value, n)) end;
comment on function holdfast._without is 'Messages without these of their fields';

create or replace function holdfast._messages_hash(queue holdfast.queue, messages jsonb) returns bytea language sql stable
  return sha256(convert_to(coalesce(case when (queue).seal_key is null or jsonb_typeof(messages) <> 'array' then messages else holdfast._digests(messages) end::text, ''), 'UTF8'));
comment on function holdfast._messages_hash is 'Tells whether two batches say the same';

create or replace function holdfast._sent_once(queue holdfast.queue, key text, hash bytea, at timestamptz, until timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_receipt holdfast.receipt;
begin
  loop
    insert into holdfast.receipt as r (queue_id, key, hash, ids, until)
    values (_sent_once.queue.id, _sent_once.key, _sent_once.hash, '{}', _sent_once.until)
    on conflict on constraint receipt_pkey do nothing;
    if found then
      return null;
    end if;
    select r.* into v_receipt from holdfast.receipt r where r.queue_id = _sent_once.queue.id and r.key = _sent_once.key for update;
    -- maintain() may have removed it in this moment: then once more.
    exit when found;
  end loop;
  if v_receipt.until <= at then
    update holdfast.receipt r set hash = _sent_once.hash, until = _sent_once.until
    where r.queue_id = _sent_once.queue.id and r.key = _sent_once.key;
    return null;
  end if;
  if v_receipt.hash <> _sent_once.hash then
    perform holdfast._fail('QH222', 'the idempotency key was used for other messages',
      format('Under %s other messages were sent to queue "%s".', quote_literal(_sent_once.key), _sent_once.queue.name),
      'Use a key of its own for every batch, and send a batch again as it was.');
  end if;
  return v_receipt.ids;
end $$;
comment on function holdfast._sent_once is 'The ids that were sent under a key before; null: it is this transaction''s to send, and the key is locked';

create or replace function holdfast.send_once(
  queue text, messages jsonb, idempotency_key text, "window" interval default '2 minutes', alone boolean default false, ignoring text[] default '{}')
returns table (ids bigint[], deduped boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(send_once.queue);
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_once(send_once.idempotency_key, "window");
  ids := holdfast._sent_once(v_queue, send_once.idempotency_key, holdfast._messages_hash(v_queue, holdfast._without(messages, ignoring)), v_now, v_now + "window");
  deduped := ids is not null;
  if not deduped then
    ids := holdfast.send_many(send_once.queue, messages, alone);
    update holdfast.receipt r set ids = send_once.ids where r.queue_id = v_queue.id and r.key = send_once.idempotency_key;
  end if;
  return next;
end $$;
comment on function holdfast.send_once is
  'Send a batch as send_many does, unless it was sent under this key within the window: then return the ids it got. ignoring: fields of messages in which the two may differ';

create or replace function holdfast._forget_receipts(at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_forgotten int;
begin
  delete from holdfast.receipt r where (r.queue_id, r.key) in (
    select o.queue_id, o.key from holdfast.receipt o where o.until <= at order by o.until limit 10000 for update skip locked);
  get diagnostics v_forgotten = row_count;
  return v_forgotten;
end $$;
comment on function holdfast._forget_receipts is 'Remove receipts whose time is over, 10,000 at most; returns how many';

-- 55_gap.sql
-- Gaps: ids that the cursor passed without finding a row.
--
-- A missing id was drawn by a transaction that is still open, or that rolled back. A gap keeps the range until
-- that is settled: rows that turn up are handed out, and once every transaction that may own an id in it has
-- ended, one more look in a newer snapshot decides. Two ways to know that they have ended, both exact:
--   the oldest transaction still running is not older than the gap's horizon, or
--   no transaction older than the horizon has locked holdfast.message for writing (an owner has: send draws ids
--   while it holds that lock). Without the second, any idle open writer would keep every gap alive.
-- All of this happens under the lane lock.

create or replace function holdfast._horizon(clean boolean) returns xid8 language plpgsql volatile
as $$
declare
  v_next bigint;
  v_ahead bigint;
begin
  -- An id that this transaction draws only now is above every other drawn before.
  if clean then
    return pg_current_xact_id();
  end if;
  -- Otherwise: a running transaction holds a lock on its id. (xmax alone will not do: it is only above those that have ended.)
  v_next := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  select max(x.transactionid::text::bigint - v_next & 4294967295) filter (where x.transactionid::text::bigint - v_next & 4294967295 < 2147483648)
  into v_ahead from pg_locks x where x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted;
  return (v_next + coalesce(v_ahead + 1, 0))::text::xid8;
end $$;
comment on function holdfast._horizon is
  'A transaction id above all that were drawn before this call. clean: this transaction had none before it took the lane lock and looked';

create or replace function holdfast._open_gaps(lane holdfast.lane, los bigint[], his bigint[], clean boolean) returns void
language plpgsql volatile
as $$
declare
  v_horizon xid8 := holdfast._horizon(clean);
begin
  insert into holdfast.gap (lane_id, lo, hi, horizon)
  select lane.id, g.lo, g.hi, v_horizon from unnest(los, his) g(lo, hi)
  on conflict (lane_id, lo) do update set hi = greatest(gap.hi, excluded.hi), horizon = excluded.horizon;
  -- Where gaps keep opening, the look at those that are there must not be put off by each.
  perform setval(lane.gap_look, least((holdfast._us(clock_timestamp()) + 5000) * 10, nullif(pg_sequence_last_value(lane.gap_look), 0))),
          setval(lane.care_at, 0);
end $$;
comment on function holdfast._open_gaps is 'Write down ids that a scan missed. clean: this transaction had no id before the scan';

create or replace function holdfast._oldest_writer() returns xid8 language plpgsql volatile
as $$
declare
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  v_behind bigint;
begin
  -- Lock entries show the lower 32 bits of a transaction id: the upper ones follow from how far it lies behind.
  select max(o.behind) into v_behind
  from (select v_next - x.transactionid::text::bigint & 4294967295 as behind
        from pg_locks w join pg_locks x on x.virtualtransaction = w.virtualtransaction
        where w.locktype = 'relation' and w.relation = 'holdfast.message'::regclass and w.mode = 'RowExclusiveLock'
          and w.database = holdfast._database_oid() and w.pid is distinct from pg_backend_pid()
          and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted) o
  where o.behind < 2147483648;
  return (v_next - coalesce(v_behind, 0))::text::xid8;
end $$;
comment on function holdfast._oldest_writer is
  'The oldest transaction that may own ids of messages not yet committed, other than this one; the next to come if there is none';

create or replace function holdfast._first_gap(lane holdfast.lane, everything boolean, clean boolean) returns bigint language plpgsql volatile
as $$
declare
  v_floor bigint := coalesce(pg_sequence_last_value(lane.gap_floor), 0);
  v_turn bigint := coalesce(pg_sequence_last_value(lane.gap_turn), 0);
  v_first bigint;
begin
  if not everything then
    -- Gaps that stay open must not make every look dear, nor hide new ones: between two walks over all, the newest only.
    return (select min(g.lo) from (select g.lo from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_floor order by g.lo desc limit 50) g);
  end if;
  select g.lo into v_first from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_floor order by g.lo limit 1;
  if clean then
    perform setval(lane.gap_floor, coalesce(v_first, v_floor));
    if v_first is null then
      perform setval(lane.gap_look, 0);
    end if;
  end if;
  return greatest(v_first, case when v_first is not null then v_turn end);
end $$;
comment on function holdfast._first_gap is 'Where a look at gaps starts; null: there are none. everything: go on with the walk over all of them';

create or replace function holdfast._look_at_gaps(lane holdfast.lane, want int, room bigint, at timestamptz, clean boolean, thorough boolean)
returns bigint[] language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_walk bigint := coalesce(pg_sequence_last_value(lane.gap_walk), 0);
  v_all boolean := v_walk <= holdfast._us(v_began) or v_walk > holdfast._us(v_began) + 60000000;
  v_first bigint := holdfast._first_gap(lane, v_all, clean);
  v_ended xid8;
  v_found bigint[];
  v_more bigint[];
  v_gap record;
  v_seen int := 0;
begin
  if v_first is null then
    return null;
  end if;
  v_ended := pg_snapshot_xmin(pg_current_snapshot());
  if thorough then
    v_ended := greatest(v_ended, (holdfast._oldest_writer()::text::bigint - 1)::text::xid8);
  end if;
  for v_gap in
    select g.*, g.horizon <= v_ended as ended, exists (select from holdfast.message m where m.id between g.lo and g.hi) as filled
    from (select g.lo, g.hi, g.horizon from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_first order by g.lo limit 20000) g
    order by g.lo
  loop
    v_seen := v_seen + 1;
    continue when not v_gap.ended and not v_gap.filled;
    v_more := holdfast._look_at_gap(lane, v_gap.lo, v_gap.hi, v_gap.horizon, v_gap.ended, want - coalesce(cardinality(v_found), 0), room, at);
    v_found := v_found || v_more;
    exit when cardinality(v_found) >= want;
    if v_more is not null then
      room := room - holdfast._bytes(v_more);
    end if;
  end loop;
  if v_all then
    -- More gaps than one walk takes: the next goes on from here.
    perform setval(lane.gap_turn, case when v_seen = 20000 then v_gap.lo else 0 end);
    perform setval(lane.gap_walk, holdfast._us(clock_timestamp() + 20 * (clock_timestamp() - v_began)));
  end if;
  perform holdfast._pace_gaps(lane, v_found is not null);
  return v_found;
end $$;
comment on function holdfast._look_at_gaps is
  'Look whether messages have turned up in the gaps, at most want, and as many bytes as there is room for; drops gaps that nobody can fill any more. thorough: ask the lock table too';

create or replace function holdfast._look_at_gap(lane holdfast.lane, lo bigint, hi bigint, horizon xid8, ended boolean, want int, room bigint, at timestamptz)
returns bigint[] language plpgsql volatile
as $$
declare
  v_scan record;
begin
  v_scan := holdfast._scan(lo, hi, want + 1000, want, room, false, at, null);
  if v_scan.next is null and v_scan.stopped then
    return null;
  elsif v_scan.next is null then
    delete from holdfast.gap g where ended and g.lane_id = lane.id and g.lo = _look_at_gap.lo;
    return null;
  end if;
  delete from holdfast.gap g where g.lane_id = lane.id and g.lo = _look_at_gap.lo;
  insert into holdfast.gap (lane_id, lo, hi, horizon)
  select lane.id, h.lo, h.hi, horizon from unnest(v_scan.gap_lo, v_scan.gap_hi) h(lo, hi) where not ended
  union all
  select lane.id, v_scan.next, hi, horizon where v_scan.next <= hi and (v_scan.stopped or v_scan.full or not ended);
  if v_scan.expired is not null then
    perform holdfast._end_expired(lane.queue_id, v_scan.expired, at);
    perform holdfast._remember_passed(lane, v_scan.expired);
  end if;
  if lane.ordering is not null and v_scan.ids is not null then
    return (holdfast._in_order(lane, v_scan.ids, want, null, at)).taken;
  end if;
  return v_scan.ids;
end $$;
comment on function holdfast._look_at_gap is 'Look at one gap: take what turned up, keep the ids still missing unless their owners have ended';

create or replace function holdfast._pace_gaps(lane holdfast.lane, found boolean) returns void language plpgsql volatile
as $$
declare
  v_patience int := case when found then 0 else least(8, coalesce(pg_sequence_last_value(lane.gap_look), 0) % 10 + 1) end;
begin
  perform setval(lane.gap_look, (holdfast._us(clock_timestamp()) + least(1000000, 5000 * 2 ^ v_patience)::bigint) * 10 + v_patience);
end $$;
comment on function holdfast._pace_gaps is 'When to look at gaps next: 5 ms, doubling to 1 s while nothing turns up';

-- 57_limit.sql
-- Limits: token buckets in registers, for queues (throughput_limit) and by name (take_rate).
--
-- A bucket is one number: the moment, in nanoseconds, at which it would be full again if nothing more were taken. A
-- token costs 1/rate seconds; taking n moves the moment on by n of them, and it may not lie more than a full bucket
-- ahead of now. So a bucket that nobody uses fills up by itself, and a new one is full.
--
-- Reading and moving it must be one step, and must not make anybody wait for a transaction that stays open. So it
-- happens under an advisory lock in a subtransaction that is always undone: that lets go of the lock at once, also
-- after an error, while the register keeps what was written. A bucket that has too little is seen without the lock.
-- What was taken stays taken when the transaction rolls back.
--
-- A name is a row, and freeing it is a change like any other: uncommitted, nobody sees it. So take_rate locks the row
-- (FOR KEY SHARE) of a limiter that has been full for nine minutes, and maintain() frees, under a row lock, only what has been
-- full for ten: nobody takes tokens from a name that is about to go.
-- Lock order: lane locks, then a limiter's row, then a bucket; a bucket's holder waits for nobody.

create or replace function holdfast._tokens(mark bigint, brim bigint, step float8, burst int) returns int language sql immutable
  return least(floor((brim - mark) / step + 1e-6), burst)::int;
comment on function holdfast._tokens is 'How many tokens are in a bucket with this mark; at the brim it is empty';

create or replace function holdfast._spend(register regclass, bucket int, want int, rate float8, burst int, partial boolean, at timestamptz)
returns holdfast.allowance language plpgsql volatile
as $$
declare
  v_at bigint := holdfast._us(at) * 1000;
  v_step float8 := 1e9 / rate;
  v_brim bigint := v_at + ceil(v_step * burst)::bigint;
  v_least int := case when partial then least(want, 1) else want end;
  v_found bigint := coalesce(pg_sequence_last_value(register), 0);
  -- A mark far beyond the brim (the clock was set back, the rate was raised) is brought back to it. Not a mark just
  -- beyond it: whoever was faster may have read the clock a moment later.
  v_mark bigint := least(greatest(v_found, v_at), v_brim);
  v_tokens int := holdfast._tokens(v_mark, v_brim, v_step, burst);
  v_granted int := 0;
begin
  if (v_tokens >= v_least or v_found > v_brim + 60000000000) and want > 0 then
    begin
      perform pg_advisory_xact_lock(holdfast._bucket_lock(), bucket);
      v_found := coalesce(pg_sequence_last_value(register), 0);
      v_mark := least(greatest(v_found, v_at), v_brim);
      v_tokens := holdfast._tokens(v_mark, v_brim, v_step, burst);
      if v_tokens >= v_least then
        v_granted := least(want, v_tokens);
      end if;
      if v_granted > 0 or v_found > v_brim + 60000000000 then
        perform setval(register, v_mark + ceil(v_granted * v_step)::bigint);
      end if;
      raise exception using errcode = 'HF000';
    exception
      when sqlstate 'HF000' then null;
    end;
  end if;
  return (v_granted, v_tokens - v_granted,
          case when v_granted = 0 and want > 0
               then make_interval(secs => (v_mark - v_brim + ceil(v_least * v_step)) / 1e9) end)::holdfast.allowance;
end $$;
comment on function holdfast._spend is 'Take tokens out of a bucket: want, or as many as there are (partial)';

create or replace function holdfast._allowance(lane holdfast.lane, want int) returns int language plpgsql volatile
as $$
begin
  return (holdfast._spend(lane.throttle, -lane.queue_id, want, lane.throughput_limit, ceil(lane.throughput_limit)::int, true, holdfast.now())).granted;
end $$;
comment on function holdfast._allowance is 'How many of so many messages a claim may hand out now, by the throughput limit of its queue';

create or replace function holdfast._refund(queue text, count int) returns void language plpgsql volatile
as $$
declare
  v_queue holdfast.queue := holdfast._queue(_refund.queue);
begin
  perform pg_advisory_xact_lock(holdfast._bucket_lock(), -v_queue.id);
  perform setval(v_queue.throttle, greatest(coalesce(pg_sequence_last_value(v_queue.throttle), 0)
                                            - floor(count * 1e9 / v_queue.throughput_limit)::bigint, 0));
  raise exception using errcode = 'HF000';
exception
  when sqlstate 'HF000' then null;
end $$;
comment on function holdfast._refund is 'Give back what a claim was allowed and did not hand out';

create or replace function holdfast._apply_limit(queue text) returns void language plpgsql volatile
as $$
begin
  update holdfast.queue q set throttle = holdfast._register('throttle_' || q.id)
  where q.name = _apply_limit.queue and q.throughput_limit is not null and q.throttle is null;
end $$;
comment on function holdfast._apply_limit is 'Make the register of a queue''s first throughput limit';

create or replace function holdfast._check_fill(rate float8, burst int) returns void language plpgsql immutable
as $$
begin
  if rate is null or not (rate >= 0.000001 and rate <= 1000000) then
    perform holdfast._fail('QH701', 'rate is out of range', format('Got %s.', coalesce(rate::text, 'null')), 'rate takes 0.000001 to 1,000,000 a second.');
  end if;
  if burst not between 1 and 1000000 then
    perform holdfast._fail('QH701', 'burst is out of range', format('Got %s.', burst), 'burst takes 1 to 1,000,000; the default is one second''s worth.');
  end if;
  if coalesce(burst, ceil(rate)) / rate > extract(epoch from interval '10 years') then
    perform holdfast._fail('QH701', 'the bucket would take over ten years to fill', format('Got a burst of %s at %s a second.', burst, rate),
      'burst / rate is at most ten years, 315,576,000 seconds.');
  end if;
end $$;
comment on function holdfast._check_fill is 'Refuse a bucket that cannot be: too slow, too fast, too large';

create or replace function holdfast._check_rate(limiter text, rate float8, burst int, want int, partial boolean) returns void
language plpgsql stable
as $$
begin
  if limiter is null or length(limiter) not between 1 and 200 then
    perform holdfast._fail('QH702', 'invalid limiter name', format('Got %s.', coalesce(quote_literal(left(limiter, 250)), 'null')),
      'A name has 1 to 200 characters.');
  end if;
  perform holdfast._check_fill(rate, burst);
  if want is null or want not between 0 and 1000000 or (partial is not true and want > coalesce(burst, ceil(rate))) then
    perform holdfast._fail('QH701', 'want is out of range', format('Got %s.', coalesce(want::text, 'null')),
      'want takes 0 to 1,000,000, and no more than burst unless partial is true.');
  end if;
  perform holdfast._check_isolation('take_rate');
end $$;
comment on function holdfast._check_rate is 'Refuse bad arguments of take_rate';

create or replace function holdfast.take_rate(
  limiter text, rate float8, burst int default null, want int default 1, partial boolean default false)
returns holdfast.allowance
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_limiter record;
begin
  perform holdfast._check_rate(limiter, rate, burst, want, partial);
  select l.id, l.register, coalesce(pg_sequence_last_value(l.register), 0) as mark into v_limiter
  from holdfast.limiter l where l.name = take_rate.limiter;
  if v_limiter.mark < holdfast._us(holdfast.now() - interval '9 minutes') * 1000 and want > 0 then
    -- maintain() may be about to free it: whoever has its row first is waited for, and then the name is another limiter's.
    select l.id, l.register into v_limiter from holdfast.limiter l where l.name = take_rate.limiter for key share;
  end if;
  if v_limiter.id is null then
    v_limiter := holdfast._make_limiter(take_rate.limiter);
  end if;
  return holdfast._spend(v_limiter.register, v_limiter.id, want, rate, coalesce(burst, ceil(rate)::int), partial is true, holdfast.now());
end $$;
comment on function holdfast.take_rate is
  'Take tokens from the named bucket, which gets rate a second and holds burst (null: one second''s worth): all that are wanted or none, or what there is (partial)';

create or replace function holdfast._make_limiter(limiter text) returns holdfast.limiter language plpgsql volatile
as $$
declare
  v_limiter holdfast.limiter;
  v_free int;
  v_mark bigint;
begin
  select l.id into v_free from holdfast.limiter l where l.name is null order by l.id limit 1 for update skip locked;
  if v_free is null and (select count(*) from holdfast.limiter) >= 10000 then
    perform holdfast._fail('QH703', 'too many limiters', 'There are 10,000.',
      'Limit by fewer names: by plan or by key, not by request. maintain() removes those that were not used for ten minutes.');
  end if;
  -- Two first users of a name: the second waits here until the first has committed.
  if v_free is not null then
    begin
      update holdfast.limiter l set name = _make_limiter.limiter, freed_at = null where l.id = v_free returning setval(l.register, 0) into v_mark;
    exception
      when unique_violation then null;
    end;
  else
    insert into holdfast.limiter as l (name) values (_make_limiter.limiter) on conflict (name) do nothing returning l.id into v_free;
    update holdfast.limiter l set register = holdfast._register('limiter_' || l.id) where l.id = v_free;
  end if;
  select l.* into v_limiter from holdfast.limiter l where l.name = _make_limiter.limiter;
  return v_limiter;
end $$;
comment on function holdfast._make_limiter is 'The limiter of a name, made if it is not there: out of a free one, or anew';

create or replace function holdfast._drop_limiter(id int, register regclass) returns boolean
language plpgsql volatile set lock_timeout = '10ms'
as $$
begin
  execute format('drop sequence %s', register);
  delete from holdfast.limiter l where l.id = _drop_limiter.id;
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._drop_limiter is
  'Drop a free limiter. false: a transaction that has used its register is still open, and is not waited for';

create or replace function holdfast._tidy_limiters(at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_from int;
  v_idle bigint := holdfast._us(at - interval '10 minutes') * 1000;
  v_full int[];
  v_freed int;
  v_busy int := 0;
  v_old record;
begin
  -- Somewhere: every limiter's turn comes, and no position is to be kept.
  select floor(random() * max(l.id))::int into v_from from holdfast.limiter l;
  -- A bucket that has been full for ten minutes says no more than a new one.
  v_full := array(
    select s.id from (select l.id, l.register from holdfast.limiter l where l.id >= v_from and l.name is not null order by l.id limit 1000) s
    where coalesce(pg_sequence_last_value(s.register), 0) < v_idle);
  -- Look again when the row is locked: from then on nobody takes from it (take_rate locks the row of one that is idle), but
  -- somebody may have just before.
  update holdfast.limiter l set name = null, freed_at = at
  where l.id = any (array(select f.id from holdfast.limiter f where f.id = any (v_full) and f.name is not null for update skip locked))
    and coalesce(pg_sequence_last_value(l.register), 0) < v_idle;
  get diagnostics v_freed = row_count;
  for v_old in
    select l.id, l.register from holdfast.limiter l
    where l.name is null and l.freed_at < at - interval '1 hour' order by l.id desc limit 100 for update skip locked
  loop
    v_busy := v_busy + case when holdfast._drop_limiter(v_old.id, v_old.register) then 0 else 1 end;
    -- This may be called under lane locks: it waits 50 ms in all.
    exit when v_busy = 5;
  end loop;
  return v_freed;
end $$;
comment on function holdfast._tidy_limiters is
  'Free limiters that were not used for ten minutes, 1,000 a call; drop the registers of some that have been free for an hour';

create or replace function holdfast._repair_limiters(unreadable_only boolean) returns void language plpgsql volatile
as $$
declare
  v_id int;
  v_register regclass;
begin
  -- One that is being dropped, or taken into use, needs no repair.
  for v_id in select l.id from holdfast.limiter l order by l.id for key share skip locked loop
    -- Before the register is read, which locks it until the end: whoever repairs it at this moment could not drop it. He is
    -- waited for: what one has made, the next would drop again, under its users.
    select l.register into v_register from holdfast.limiter l where l.id = v_id for no key update;
    if not holdfast._readable(array[v_register]) then
      update holdfast.limiter l set register = holdfast._register('limiter_' || l.id) where l.id = v_id;
    elsif not unreadable_only then
      perform setval(v_register, 0);
    end if;
  end loop;
end $$;
comment on function holdfast._repair_limiters is 'Fill the buckets of limiters, all or those that cannot be read';

-- 60_claim.sql
-- Claiming: hand out messages under a lease.
--
-- claim() walks the queue's lanes, highest priority first. In each it holds the lane's advisory lock, so claims
-- of a lane are serial; everything it writes for a plain message is one row in the unlogged lease table.
--
-- cursor   where fresh messages start: the register, or upto of a lease above it. The register moves only
--          here and in the sweep, under the lane lock, and only to upto of a lease that another transaction
--          has committed: a claim that rolls back never happened.
-- gap      ids that the cursor passed without a row: their senders were open, or never commit. Looked at
--          again until every transaction that may own them has ended.
-- floor    where the walk over due rows or leases starts: what lies below is dead versions.
--
-- Lock order: lane locks by priority, then rows, SKIP LOCKED throughout: nobody's open transaction can stall a lane,
-- but one that has claimed and stays open.

create or replace function holdfast._await_lane(lane holdfast.lane) returns boolean
language plpgsql volatile set lock_timeout = '500ms'
as $$
begin
  perform pg_advisory_xact_lock(holdfast._lane_lock(), lane.id);
  return holdfast._unchanged(lane);
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._await_lane is 'Wait for a lane lock that somebody else holds, but not for long. false: not got, or the lane has changed';

create or replace function holdfast._advance(lane holdfast.lane) returns bigint language plpgsql volatile
as $$
declare
  v_register bigint := greatest(coalesce(pg_sequence_last_value(lane.cursor), 0), (lane.id::bigint << 40) + 1);
  v_top record;
begin
  select l.upto, l.made_by into v_top
  from holdfast.lease l where l.lane_id = lane.id and l.upto > v_register and l.upto > 0 order by l.upto desc limit 1;
  -- A lease of this transaction is no evidence; what was committed before it, its first claim has seen already.
  if v_top.made_by <> coalesce(pg_current_xact_id_if_assigned(), '0') then
    perform setval(lane.cursor, v_top.upto);
  end if;
  return coalesce(v_top.upto, v_register);
end $$;
comment on function holdfast._advance is 'Under the lane lock: move the cursor register to what is committed; returns where fresh messages start';

create or replace function holdfast._first_due(lane holdfast.lane, at timestamptz, clean boolean) returns timestamptz
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_walk bigint := coalesce(pg_sequence_last_value(lane.due_walk), 0);
  v_bottom boolean := v_walk <= holdfast._us(v_began) or v_walk > holdfast._us(v_began) + 60000000;
  v_floor timestamptz := '-infinity';
  v_first timestamptz;
  v_took float8;
begin
  if not v_bottom then
    v_floor := holdfast._time(coalesce(pg_sequence_last_value(lane.due_floor), 0));
    if v_floor > at then
      v_floor := '-infinity';
    end if;
  end if;
  select m.due_at into v_first from holdfast.message m
  where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= v_floor and m.due_at <= at
  order by m.due_at limit 1;
  v_took := extract(epoch from clock_timestamp() - v_began) * 1000000;
  -- A walk from the bottom that is cheap comes every time, without a floor; a dear one takes a twentieth of the time.
  if v_bottom and v_took > 300 then
    perform setval(lane.due_walk, holdfast._us(clock_timestamp()) + (20 * v_took)::bigint);
  elsif v_bottom and v_walk > 0 then
    perform setval(lane.due_walk, 0), setval(lane.due_floor, 0);
  end if;
  if clean and (v_took > 300 or not v_bottom) then
    perform setval(lane.due_floor, holdfast._us(coalesce(v_first, at)));
  end if;
  return v_first;
end $$;
comment on function holdfast._first_due is
  'Under the lane lock: when the first due message became due; null: none is. clean: this transaction has written nothing yet, so what it sees is committed';

create or replace function holdfast._answer_bytes() returns int language sql immutable
  return 16777216;
comment on function holdfast._answer_bytes is 'How many bytes one claim hands out; a single larger message still goes alone';

create or replace function holdfast._has_room(total bigint, bytes bigint, room bigint) returns boolean language sql immutable
  return total <= room or (total = bytes and room = holdfast._answer_bytes());
comment on function holdfast._has_room is
  'May a message of so many bytes go, as the last of total, where a claim has room for so many? The first of a claim always may';

create or replace function holdfast._bytes(ids bigint[]) returns bigint language sql stable
  return (select coalesce(sum(coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0)), 0)
          from holdfast.message m where m.id = any (ids));
comment on function holdfast._bytes is 'How many bytes these messages take, as stored';

create or replace function holdfast._take_due(lane holdfast.lane, first timestamptz, at timestamptz, want int, room bigint) returns bigint[]
language plpgsql volatile
as $$
declare
  v_taken bigint[];
  v_over bigint[];
begin
  with candidate as (
    select m.id, m.due_at, m.expires_at <= at as over,
           case when m.expires_at <= at then 0
                else coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) end as bytes
    from holdfast.message m
    where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= first and m.due_at <= at
    order by m.due_at, m.id limit want for update skip locked
  ), fitting as (
    select f.* from (select c.*, sum(c.bytes) over (order by c.due_at, c.id) as total from candidate c) f
    where holdfast._has_room(f.total, f.bytes, room)
  ), taken as (
    update holdfast.message m set due_at = '-infinity' from fitting f where m.id = f.id
    returning m.id, f.due_at, f.over
  )
  select array_agg(t.id order by t.due_at, t.id) filter (where t.over is not true), array_agg(t.id) filter (where t.over)
  into v_taken, v_over from taken t;
  if v_over is not null then
    perform holdfast._end(lane.queue_id, v_over, 'expired', at);
  end if;
  return v_taken;
end $$;
comment on function holdfast._take_due is 'Under the lane lock: mark due messages as held and return their ids; those past their time to live end';

create or replace function holdfast._scan(
  lo bigint, hi bigint, rows int, want int, room bigint, taken boolean, at timestamptz, patience interval,
  out ids bigint[], out bytes bigint, out expired bigint[], out next bigint, out stopped boolean, out "full" boolean,
  out gap_lo bigint[], out gap_hi bigint[])
language plpgsql volatile
as $$
begin
  -- One statement, one snapshot: an id missing in it goes to gap_lo..gap_hi, so nothing falls between two looks.
  with present as (
    select m.id, m.enqueued_at, m.due_at is null and m.expires_at <= at as over,
           (m.due_at is null and (m.expires_at is null or m.expires_at > at))::int as good,
           coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) as bytes,
           coalesce(lag(m.id) over (order by m.id), _scan.lo - 1) as before
    from holdfast.message m where m.id >= _scan.lo and m.id <= _scan.hi order by m.id limit _scan.rows
  ), counted as (
    select p.*, sum(p.good) over earlier as nth, sum(p.good * p.bytes) over earlier as total from present p
    window earlier as (order by p.id)
  ), cut as materialized (
    -- A hole right before a young row will be filled in a moment: stop there, if there is something to hand out.
    select min(c.before) as upto from counted c
    where c.id > c.before + 1 and c.enqueued_at > at - patience and (taken or c.nth > c.good)
  ), kept as (
    select c.* from counted c, cut
    where (cut.upto is null or c.id <= cut.upto) and c.nth - c.good < want
      and (_scan.room is null or holdfast._has_room(c.total, c.good * c.bytes, _scan.room))
  )
  select array_agg(k.id) filter (where k.good = 1), max(k.total), array_agg(k.id) filter (where k.over), max(k.id) + 1,
         count(*) < (select count(*) from present), (select count(*) from present) = rows,
         array_agg(k.before + 1) filter (where k.id > k.before + 1), array_agg(k.id - 1) filter (where k.id > k.before + 1)
  into ids, bytes, expired, next, stopped, "full", gap_lo, gap_hi from kept k;
end $$;
comment on function holdfast._scan is
  'Look at an id range with exceptions in it: what can be taken, what has expired, which ids are missing, where to go on';

create or replace function holdfast._end_expired(queue_id int, ids bigint[], at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_locked bigint[] := array(select e.id from holdfast.message e where e.id = any (_end_expired.ids) for update skip locked);
  v_free bigint[] := holdfast._can_end(_end_expired.queue_id, v_locked);
  v_ended int;
begin
  v_ended := cardinality(holdfast._end(_end_expired.queue_id, v_free, 'expired', at));
  if cardinality(v_free) < cardinality(v_locked) then
    update holdfast.message m set due_at = at + holdfast._shortly()
    where m.id = any (v_locked) and m.id not in (select unnest(v_free));
  end if;
  return v_ended;
end $$;
comment on function holdfast._end_expired is
  'Under a lane lock: end messages whose time to live is over; those whose successor somebody has locked, shortly. Returns how many have ended';

create or replace function holdfast._expired_due(lane holdfast.lane, first timestamptz, at timestamptz) returns bigint[]
language plpgsql volatile
as $$
begin
  return array(
    select c.id from (
      select m.id, m.expires_at from holdfast.message m
      where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= first and m.due_at <= at
      order by m.due_at, m.id limit 10000) c
    where c.expires_at <= at);
end $$;
comment on function holdfast._expired_due is 'Of the next 10,000 due messages those whose time to live is over';

create or replace function holdfast._remember_passed(lane holdfast.lane, ids bigint[]) returns void language plpgsql volatile
as $$
declare
  v_busy bigint[] := array(select m.id from holdfast.message m where m.id = any (_remember_passed.ids) and m.due_at is null);
begin
  -- Still fresh: somebody had it locked. The cursor passes it, so a gap must remember it: a line may wait behind it.
  if v_busy <> '{}' then
    perform holdfast._open_gaps(lane, v_busy, v_busy, false);
  end if;
end $$;
comment on function holdfast._remember_passed is 'Under the lane lock: of messages that the cursor passes because they have ended or are due, those that are fresh all the same become gaps';

create or replace function holdfast._take_fresh(lane holdfast.lane, start bigint, want int, room bigint, taken boolean, at timestamptz)
returns holdfast._fresh language plpgsql volatile
as $$
declare
  v_fresh holdfast._fresh := (null, start);
  v_end bigint := (lane.id + 1)::bigint << 40;
  v_rows int := want;
  v_scanned bigint := 0;
  v_clean boolean;
  v_scan record;
begin
  loop
    v_clean := pg_current_xact_id_if_assigned() is null;
    v_scan := holdfast._scan(v_fresh.upto, v_end - 1, v_rows, want, room, taken, at, interval '10 ms');
    exit when v_scan.next is null;
    if v_scan.gap_lo is not null then
      perform holdfast._open_gaps(lane, v_scan.gap_lo, v_scan.gap_hi, v_clean);
    end if;
    if v_scan.expired is not null then
      perform holdfast._end_expired(lane.queue_id, v_scan.expired, at);
      perform holdfast._remember_passed(lane, v_scan.expired);
    end if;
    v_fresh.ids := v_fresh.ids || v_scan.ids;
    v_fresh.upto := v_scan.next;
    v_scanned := v_scanned + v_rows;
    want := want - coalesce(cardinality(v_scan.ids), 0);
    room := room - v_scan.bytes;
    taken := taken or v_scan.ids is not null;
    exit when want = 0 or v_scan.stopped or not v_scan."full" or v_scanned >= 10000;
    v_rows := greatest(want, 1000);
  end loop;
  return v_fresh;
end $$;
comment on function holdfast._take_fresh is
  'Under the lane lock: fresh ids from start on, at most want, and for as many bytes as there is room. Passes delayed messages, ends expired ones, writes holes down as gaps';

create or replace function holdfast._take_with_care(
  lane_id int, token bigint, want int, handed int, room bigint, at timestamptz, deadline timestamptz, consumer text) returns bigint
language plpgsql volatile
as $$
declare
  -- As it is now, under the lock: it may have become ordered since claim read it.
  v_lane holdfast.lane := (select l from holdfast.lane l where l.id = _take_with_care.lane_id);
  -- A plain lane was tended before; in any other, what the sweep frees is to be had by this claim.
  v_calm boolean := v_lane.plain or coalesce(holdfast._is_calm(v_lane.care_at), false) or holdfast._tend(v_lane, at);
  v_start bigint := holdfast._advance(v_lane);
  v_other bigint[] := holdfast._take_exceptions(v_lane, want, room, at);
  v_left int := want - coalesce(cardinality(v_other), 0);
  v_room bigint := case when v_other is null then room when v_left > 0 then room - holdfast._bytes(v_other) end;
  v_fresh holdfast._fresh := (null, v_start);
begin
  if v_left > 0 then
    if v_lane.ordering is null then
      v_fresh := holdfast._take_fresh(v_lane, v_start, v_left, v_room, v_other is not null, at);
    else
      v_fresh := holdfast._take_fresh_in_order(v_lane, v_start, v_left, v_room, v_other is not null, at);
    end if;
    if v_other is null and v_fresh.ids is null and pg_sequence_last_value(v_lane.gap_look) > 0 then
      v_other := holdfast._look_at_gaps(v_lane, want, room, at, pg_current_xact_id_if_assigned() is null, false);
    end if;
  end if;
  -- A cursor that only passed messages which cannot be taken leaves a lease without ids, for the next claim to go on from.
  insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, upto,
                              handed, made_by)
  select _take_with_care.token, p.part, v_lane.queue_id, v_lane.id, v_lane.queue_name, v_lane.booted, v_lane.cursor, _take_with_care.consumer,
         at, _take_with_care.deadline, coalesce(p.ids, '{}'), case when p.upto = 0 then p.ids end, p.upto,
         _take_with_care.handed + coalesce(cardinality(v_fresh.ids || v_other), 0), pg_current_xact_id()
  from (values (v_lane.id, v_fresh.ids, v_fresh.upto), (-v_lane.id, v_other, 0)) p(part, ids, upto)
  where p.ids is not null or p.upto > v_start;
  perform holdfast._set_care(v_lane, at);
  -- Where all that was wanted is there, nobody asks.
  return case when v_fresh.ids is null and v_other is null then 0
              when cardinality(v_fresh.ids || v_other) < want then holdfast._bytes(v_fresh.ids || v_other) end;
end $$;
comment on function holdfast._take_with_care is
  'Under the lane lock: lease what a claim takes where the lane is not plain: due messages, what turned up in gaps, fresh ones between exceptions. handed: what this claim got before, in other lanes. Returns how many bytes it took, if it took less than wanted';

create or replace function holdfast._token() returns bigint language sql volatile
  return hashint8extended((random() * 9e18)::bigint, (holdfast._us(clock_timestamp()) << 8) # pg_backend_pid()) & 9223372036854775807;
comment on function holdfast._token is '63 random bits, different in two sessions even where both set the same random seed';

create or replace function holdfast._check_claim(max int, lease interval, consumer text) returns void language plpgsql stable
as $$
begin
  if max is null or max not between 1 and 10000 then
    perform holdfast._fail('QH301', 'max is out of range', format('Got %s.', coalesce(max::text, 'null')), 'max takes 1 to 10,000.');
  end if;
  perform holdfast._check_lease(lease);
  perform holdfast._check_text('consumer', consumer);
  perform holdfast._check_isolation('claim');
end $$;
comment on function holdfast._check_claim is 'Refuse bad arguments of claim, and a transaction it cannot work in';

create or replace function holdfast._limit_transaction() returns void language plpgsql volatile
as $$
begin
  -- A claim left open blocks its lane: unless the caller has limits of its own, the rest of its transaction gets these.
  if current_setting('idle_in_transaction_session_timeout') = '0' then
    perform set_config('idle_in_transaction_session_timeout', '60s', true);
  end if;
  if current_setting('statement_timeout') = '0' then
    perform set_config('statement_timeout', '60s', true);
  end if;
end $$;
comment on function holdfast._limit_transaction is 'Bound how long the caller''s transaction can hold the lane lock: statements and pauses of 60 s';

create or replace function holdfast._is_calm(care_at regclass) returns boolean language sql volatile
  return pg_sequence_last_value(care_at) between holdfast._us(clock_timestamp()) and holdfast._us(clock_timestamp()) + 10000000;
comment on function holdfast._is_calm is 'May a claim do without a look at what the lane needs: is the time for the next one still ahead?';

create or replace function holdfast._set_care(lane holdfast.lane, at timestamptz) returns void language plpgsql volatile
as $$
begin
  perform setval(lane.care_at, greatest(0, least(
    holdfast._us(clock_timestamp()) + pg_sequence_last_value(lane.sweep_at) - holdfast._us(at),
    nullif(pg_sequence_last_value(lane.gap_look), 0) / 10,
    nullif(pg_sequence_last_value(lane.due_walk), 0))));
end $$;
comment on function holdfast._set_care is 'Under the lane lock: say until when claims need no care';

create or replace function holdfast._tend(lane holdfast.lane, at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  v_sweep bigint := coalesce(pg_sequence_last_value(lane.sweep_at), 0);
begin
  if holdfast._us(at) not between v_sweep - 10000000 and v_sweep then
    perform holdfast._sweep_lane(lane, at, pg_current_xact_id_if_assigned() is null);
  end if;
  perform holdfast._set_care(lane, at);
  return coalesce(holdfast._is_calm(lane.care_at), false);
end $$;
comment on function holdfast._tend is
  'Under the lane lock: sweep if it is time, and say until when claims need no care. false: gaps or due messages below the floor are to be looked at now, or the sweep freed something';

create or replace function holdfast._home(token bigint, shards int) returns int language sql stable
  return case when token % 8 = 0 then token / 8 % shards else pg_backend_pid() % shards end;
comment on function holdfast._home is 'The shard that a claim starts with: the session''s own, where it sends to; one time in eight any';

create or replace function holdfast._lane_order(queue text, home int, but int default 0) returns int[] language plpgsql stable
as $$
declare
  v_lanes int[] := array(select l.id from holdfast.lane l where l.queue_name = _lane_order.queue and l.id <> but
                         order by l.priority desc, (l.shard - home + l.shards) % l.shards);
begin
  if v_lanes = '{}' and but = 0 then
    perform holdfast._no_queue(_lane_order.queue);
  end if;
  return v_lanes;
end $$;
comment on function holdfast._lane_order is
  'The lanes of a queue, but for one, in the order of a claim: by priority, each from the shard home on; no queue: an error';

create or replace function holdfast.claim(
  queue text, max int default 1, lease interval default null, consumer text default null, alone boolean default false
) returns setof holdfast.delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lane holdfast.lane;
  v_home int := 0;
  v_order int[];
  v_turn int := 0;
  v_now timestamptz;
  v_deadline timestamptz;
  v_token bigint := holdfast._token();
  v_left int := max;
  v_handed int := 0;
  v_wait boolean;
  v_waited boolean := false;
  v_relaxed text;
  v_one holdfast.delivery;
  v_start bigint;
  v_above bigint;
  v_made_by xid8;
  v_floor timestamptz;
  v_due timestamptz;
  v_ids bigint[];
  v_taken int;
  v_bytes bigint := 0;
  v_more bigint;
  v_allowed int;
begin
  if max is null or max not between 1 and 10000 or lease is not null or consumer is not null
     or current_setting('transaction_isolation') <> 'read committed' then
    perform holdfast._check_claim(max, lease, consumer);
  end if;
  -- The row as one value: a column each for its many registers would cost a tenth of the whole claim.
  v_lane := (select l from holdfast.lane l where l.queue_name = claim.queue order by l.priority desc, l.shard limit 1);
  if v_lane.shards is distinct from 1 then
    v_home := holdfast._home(v_token, v_lane.shards);
    v_lane := (select l from holdfast.lane l where l.queue_name = claim.queue and l.priority = v_lane.priority and l.shard = v_home);
    if v_lane.id is null then
      v_order := holdfast._lane_order(claim.queue, v_home);
    end if;
  end if;
  if alone is not true then
    perform holdfast._limit_transaction();
  elsif pg_current_xact_id_if_assigned() is null then
    -- A claim has nothing to lose in a crash. It may write a little to the log all the same: reading a page can tidy it up.
    v_relaxed := set_config('synchronous_commit', 'off', true);
  end if;
  loop
    if v_order is not null then
      v_turn := v_turn + 1;
      select l.* into v_lane from holdfast.lane l where l.id = v_order[v_turn];
      exit when not found;
      v_ids := null;
    end if;
    if v_lane.paused or v_lane.throttle is not null then
      exit when v_lane.paused;
      v_allowed := coalesce(v_allowed, holdfast._allowance(v_lane, v_left));
      v_left := least(v_left, v_allowed);
      exit when v_left = 0;
    end if;
    if not pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) then
      -- Another shard may be free; only the last one is worth waiting for, and only once a call.
      v_wait := not v_waited and (v_lane.shard - v_home + v_lane.shards) % v_lane.shards = v_lane.shards - 1;
      v_waited := v_waited or v_wait;
      if not v_wait or not holdfast._await_lane(v_lane) then
        v_order := coalesce(v_order, holdfast._lane_order(claim.queue, v_home, v_lane.id));
        continue;
      end if;
    end if;
    -- Only now: nobody else may have taken the messages, and given them back, since the moment from which the lease counts.
    v_now := holdfast.now();
    if coalesce(pg_sequence_last_value(v_lane.booted) <> holdfast._boot_mark(), true) and holdfast._boot_lane(v_lane) then
      v_order := coalesce(v_order, holdfast._lane_order(claim.queue, v_home, v_lane.id));
      continue;
    end if;

    v_start := pg_sequence_last_value(v_lane.cursor);
    select l.upto, l.made_by into v_above, v_made_by from holdfast.lease l
    where l.lane_id = v_lane.id and l.upto > v_start and l.upto > 0 order by l.upto desc limit 1;
    if v_above is not null then
      v_start := case when v_made_by <> coalesce(pg_current_xact_id_if_assigned(), '0') then setval(v_lane.cursor, v_above) else v_above end;
    end if;
    v_deadline := v_now + coalesce(claim.lease, v_lane.lease);
    -- The plain case: no care is asked for, nothing is due, and the next ids are all there and free to take.
    if v_lane.plain and (holdfast._is_calm(v_lane.care_at) or holdfast._tend(v_lane, v_now)) then
      -- In a variable: a register read within the statement would be no bound for the index.
      v_floor := holdfast._time(pg_sequence_last_value(v_lane.due_floor));
      select m.due_at into v_due from holdfast.message m
      where m.id >> 40 = v_lane.id and m.due_at > '-infinity' and m.due_at <= v_now and m.due_at >= v_floor order by m.due_at limit 1;
      if v_due is null and max = 1 then
        select v_token, m.id, claim.queue, m.payload, m.body, m.content_type, m.headers, v_lane.priority::int, m.key, m.ordering_key,
               m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, v_lane.max_deliveries),
               m.enqueued_at, v_deadline, m.last_error, m.origin
        into v_one
        from holdfast.message m where m.id = v_start and m.due_at is null and (m.expires_at is null or m.expires_at > v_now);
        v_ids := case when found then array[v_start] end;
      elsif v_due is null then
        -- A range no longer than what is wanted: the index scan then stops where the messages do.
        select array_agg(m.id), coalesce(sum(m.payload), 0) + coalesce(sum(m.body), 0) into v_ids, v_more
        from (select m.id, pg_column_size(m.payload) as payload, pg_column_size(m.body) as body from holdfast.message m
              where m.id >= v_start and m.id < v_start + v_left and m.due_at is null and (m.expires_at is null or m.expires_at > v_now)
              order by m.id) m
        having count(*) = max(m.id) - v_start + 1 and coalesce(sum(m.payload), 0) + coalesce(sum(m.body), 0) <= holdfast._answer_bytes() - v_bytes
           and (count(*) = v_left or max(m.id) >= pg_sequence_last_value(v_lane.ids));
      end if;
    end if;

    if v_ids is not null then
      v_taken := cardinality(v_ids);
      insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, lo, upto, handed,
                                  made_by)
      select v_token, v_lane.id, v_lane.queue_id, v_lane.id, claim.queue, v_lane.fence, v_lane.cursor, claim.consumer,
             v_now, v_deadline, v_ids, case when v_taken = claim.max then v_start end, v_start + v_taken, v_handed + v_taken, pg_current_xact_id()
      -- Whoever makes a queue ordered holds its lanes: under the lock it is known whether that happened since the lane was read.
      from holdfast.lane l where l.id = v_lane.id and l.plain;
      v_ids := case when found then v_ids end;
    end if;
    if v_ids is null then
      v_more := holdfast._take_with_care(v_lane.id, v_token, v_left, v_handed, holdfast._answer_bytes() - v_bytes, v_now, v_deadline, claim.consumer);
      return query select h.* from holdfast._held(v_token, v_lane.id) h;
      get diagnostics v_taken = row_count;
    elsif max = 1 then
      return next v_one;
    else
      return query
        select v_token, m.id, claim.queue, m.payload, m.body, m.content_type, m.headers, v_lane.priority::int, m.key, m.ordering_key,
               m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, v_lane.max_deliveries),
               m.enqueued_at, v_deadline, m.last_error, m.origin
        from holdfast.message m where m.id >= v_start and m.id < v_start + v_taken order by m.id;
    end if;
    if v_taken = max then
      return;
    elsif v_taken > 0 and v_handed > 0 then
      update holdfast.lease l set handed = v_handed + v_taken where l.token = v_token;
    end if;
    v_handed := v_handed + v_taken;
    v_left := v_left - v_taken;
    v_bytes := v_bytes + v_more;
    if v_left <= 0 then
      return;
    end if;
    exit when v_bytes >= holdfast._answer_bytes();
    v_order := coalesce(v_order, holdfast._lane_order(claim.queue, v_home, v_lane.id));
  end loop;
  if v_allowed > 0 then
    perform holdfast._refund(claim.queue, v_left);
  end if;
end $$;
comment on function holdfast.claim is
  'Take up to max messages under a lease. alone: the caller promises that this statement is its own transaction';

create or replace function holdfast._take_exceptions(lane holdfast.lane, want int, room bigint, at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_look bigint := coalesce(pg_sequence_last_value(lane.gap_look), 0);
  v_first timestamptz;
  v_ids bigint[];
begin
  v_first := holdfast._first_due(lane, at, v_clean);
  if v_first is not null and lane.ordering is null then
    v_ids := holdfast._take_due(lane, v_first, at, want, room);
    if v_ids is null and holdfast._end_expired(lane.queue_id, holdfast._expired_due(lane, v_first, at), at) > 0 then
      v_ids := holdfast._take_due(lane, v_first, at, want, room);
    end if;
  elsif v_first is not null then
    v_ids := holdfast._take_due_in_order(lane, v_first, at, want, room);
  end if;
  if v_look > 0 and v_look <= holdfast._us(clock_timestamp()) * 10 and coalesce(cardinality(v_ids), 0) < want then
    v_ids := v_ids || holdfast._look_at_gaps(lane, want - coalesce(cardinality(v_ids), 0),
                                             room - case when v_ids is null then 0 else holdfast._bytes(v_ids) end, at, v_clean, true);
  end if;
  return v_ids;
end $$;
comment on function holdfast._take_exceptions is
  'Under the lane lock: what is due, then what turned up in gaps; at most want, and as many bytes as there is room for';

-- 61_cohort.sql
-- Cohorts: one claim for several claimers, each with a token, a lease and a name of its own.
--
-- claim_cohort() claims once for all of them, and then deals what came out: the lease rows of that claim are replaced, in the
-- transaction that made them, by one row for each claimer and part. The rows are those that claims one after the other
-- would have written: tiles without a space between them, of which the last ends where the claim's own row did. So the cursor
-- stands where it stood, nothing that settles or sweeps can tell the difference, and a cohort that rolls back never happened.
--
-- Lock order: that of claim. It holds all lanes in which rows are dealt.

create or replace function holdfast._check_cohort(maxes int[], leases interval[], consumers text[]) returns void language plpgsql stable
as $$
declare
  v_claimers int := coalesce(cardinality(maxes), 0);
begin
  if v_claimers not between 1 and 1000 then
    perform holdfast._fail('QH301', 'the number of claimers is out of range', format('maxes has %s elements.', v_claimers),
      'maxes takes one number for each of 1 to 1,000 claimers.');
  end if;
  if cardinality(leases) <> v_claimers or cardinality(consumers) <> v_claimers then
    perform holdfast._fail('QH301', 'maxes, leases and consumers are of different lengths',
      format('They have %s, %s and %s elements.', v_claimers, coalesce(cardinality(leases)::text, 'no'), coalesce(cardinality(consumers)::text, 'no')),
      'Pass an element for each claimer, null where there is nothing to say, or no array at all.');
  end if;
  -- If the ends of a range are good, all between them are.
  perform holdfast._check_claim(a.least, a.shortest, a.longest_name), holdfast._check_claim(a.most, a.longest, null)
  from (select case when count(c.max) = count(*) then min(c.max) end as least, max(c.max) as most, min(c.lease) as shortest, max(c.lease) as longest,
               (array_agg(c.name order by length(c.name) desc nulls last))[1] as longest_name
        from unnest(maxes, leases, consumers) c(max, lease, name)) a;
end $$;
comment on function holdfast._check_cohort is 'Refuse bad arguments of claim_cohort, and a transaction it cannot work in';

create or replace function holdfast._shares(maxes int[], messages bigint) returns int[] language plpgsql immutable
as $$
begin
  -- One each, to the earlier ones if they are too few: else whoever asks for little would never get anything beside others
  -- who ask for much. So whoever's part is below one gets one, and the rest is divided among those who asked for more.
  if messages <= cardinality(maxes) then
    return array(select (c.nth <= messages)::int from generate_series(1, cardinality(maxes)) c(nth));
  end if;
  return (
    with asked as (
      select m.nth, m.max::bigint as max, row_number() over (order by m.max, m.nth) - 1 as smaller,
             sum(m.max) over (order by m.max desc, m.nth desc) as whole
      from unnest(maxes) with ordinality m(max, nth)
    ), cut as (
      select a.smaller as ones, messages - a.smaller as many, a.whole from asked a
      where a.max * (messages - a.smaller) >= a.whole order by a.smaller limit 1
    ), divided as (
      select a.nth, case when a.smaller < c.ones then 1 else c.many * a.max / c.whole end as share,
             case when a.smaller < c.ones then 0 else c.many * a.max % c.whole end as rest
      from asked a, cut c
    ), ranked as (
      select d.nth, d.share, messages - sum(d.share) over () as more, row_number() over (order by d.rest desc, d.nth) as turn from divided d
    )
    select array_agg((r.share + (r.turn <= r.more)::int)::int order by r.nth) from ranked r);
end $$;
comment on function holdfast._shares is
  'Divide messages, no more than were asked for, among claimers: one each, an earlier one first, and beyond that in proportion to what they asked for, by largest remainder, of equals to the earlier';

create or replace function holdfast._deal(token bigint, lanes int[], maxes int[], leases interval[], consumers text[])
returns setof holdfast.cohort_delivery language plpgsql volatile
as $$
declare
  v_tokens bigint[] := array(select holdfast._token() from generate_series(1, cardinality(maxes)));
  v_shares int[] := holdfast._shares(maxes, (select sum(cardinality(l.ids)) from holdfast.lease l where l.token = _deal.token));
begin
  return query
    with claimed as (
      -- A row without ids carries the cursor past what cannot be taken: it stays.
      delete from holdfast.lease l where l.token = _deal.token and l.ids <> '{}' returning l.*
    ), held as materialized (
      -- Joined with nothing, the ids are unpacked here, once, and not for each slice of them.
      select c.part, c.lane_id, c.upto, c.claimed_at, c.deadline, c.made_by, c.ids || '{}' as ids, cardinality(c.ids) as size,
             sum(cardinality(c.ids)) over (order by array_position(lanes, c.lane_id), c.upto > 0) - cardinality(c.ids) as before
      from claimed c
    ), claimer as (
      select a.nth::int as nth, a.token, a.share, a.lease, a.name, sum(a.share) over (order by a.nth) - a.share as before
      from unnest(v_tokens, v_shares, leases, consumers) with ordinality a(token, share, lease, name, nth)
    ), slice as (
      select h.part, h.lane_id, h.upto, h.claimed_at, h.made_by, c.nth as claimer, c.token, c.share, c.name,
             coalesce(h.claimed_at + c.lease, h.deadline) as deadline, greatest(c.before, h.before) as before,
             h.ids[greatest(c.before - h.before, 0) + 1 : least(c.before + c.share - h.before, h.size)] as ids,
             c.before + c.share >= h.before + h.size as is_last
      from held h join claimer c on c.share > 0 and c.before < h.before + h.size and h.before < c.before + c.share
    ), tile as (
      select s.*, case when s.upto > 0 and not s.is_last then s.ids[cardinality(s.ids)] + 1 else s.upto end as ends from slice s
    ), dealt as (
      insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, lo,
                                  upto, handed, made_by)
      select t.token, t.part, n.queue_id, n.id, n.queue_name, n.fence, n.cursor, t.name, t.claimed_at, t.deadline, t.ids,
             case when t.upto = 0 then t.ids end,
             case when n.plain and cardinality(t.ids) = t.share and t.ids[1] + t.share = t.ends then t.ids[1] end,
             t.ends, t.share, t.made_by
      from tile t join holdfast.lane n on n.id = t.lane_id
    )
    select t.claimer, t.token, m.id, n.queue_name, m.payload, m.body, m.content_type, m.headers, n.priority::int, m.key,
           nullif(m.ordering_key, ''), m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1,
           coalesce(m.max_deliveries, n.max_deliveries), m.enqueued_at, t.deadline, m.last_error, m.origin
    from tile t join holdfast.lane n on n.id = t.lane_id
      cross join lateral unnest(t.ids) with ordinality i(id, nth)
      -- One by one: where the log was drained when it was last vacuumed, a join would walk all of it.
      cross join lateral (select m.* from holdfast.message m where m.id = i.id offset 0) m
    order by t.before + i.nth;
end $$;
comment on function holdfast._deal is
  'Under the lane locks: replace the leases that a claim of this transaction has made by those of several claimers, and return what each got. lanes: in the order in which the claim took them';

create or replace function holdfast.claim_cohort(
  queue text, maxes int[], leases interval[] default null, consumers text[] default null, alone boolean default false
) returns setof holdfast.cohort_delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_token bigint;
  v_lanes int[];
begin
  perform holdfast._check_cohort(maxes, leases, consumers);
  if cardinality(maxes) = 1 then
    return query
      select 1, d.* from unnest(maxes, leases, consumers) c(max, lease, name)
        cross join lateral holdfast.claim(claim_cohort.queue, c.max, c.lease, c.name, alone) d;
    return;
  end if;
  select min(l.token), array_agg(l.id order by l.first) into v_token, v_lanes
  from (select min(d.token) as token, (d.id >> 40)::int as id, min(d.nth) as first
        from holdfast.claim(claim_cohort.queue, least((select sum(m) from unnest(maxes) m), 10000)::int, null, null, alone)
          with ordinality d(token, id, queue, payload, body, content_type, headers, priority, key, ordering_key, correlation_id, tag,
                            deliveries, max_deliveries, enqueued_at, deadline, last_error, origin, nth)
        group by 2) l;
  if v_token is not null then
    return query select d.* from holdfast._deal(v_token, v_lanes, maxes, leases, consumers) d;
  end if;
end $$;
comment on function holdfast.claim_cohort is
  'Claim for several claimers at once: what is there is divided in proportion to maxes, each gets a token of its own, an earlier one earlier messages. alone: as in claim';

-- 65_sweep.sql
-- Sweeping: what leases that ran out leave behind becomes due again, or is buried as a dead letter.
--
-- Runs under the lane lock, for about 20 ms at most; every 250 ms for a lane, or at the next claim if it freed something. Leases and messages that
-- somebody has locked (an ack in an open transaction) are left alone: they stay leased until that is over.

create or replace function holdfast._first_overdue(lane holdfast.lane, at timestamptz, clean boolean) returns timestamptz
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_walk bigint := coalesce(pg_sequence_last_value(lane.lease_walk), 0);
  v_bottom boolean := v_walk not between holdfast._us(v_began) and holdfast._us(v_began) + 60000000;
  v_floor timestamptz := '-infinity';
  v_first timestamptz;
  v_took float8;
begin
  if not v_bottom then
    v_floor := holdfast._time(coalesce(pg_sequence_last_value(lane.lease_floor), 0));
    if v_floor > at then
      v_floor := '-infinity';
    end if;
  end if;
  select l.deadline into v_first from holdfast.lease l
  where l.lane_id = lane.id and l.deadline >= v_floor and l.deadline <= at
  order by l.deadline limit 1;
  v_took := extract(epoch from clock_timestamp() - v_began) * 1000000;
  if v_bottom and v_took > 300 then
    perform setval(lane.lease_walk, holdfast._us(clock_timestamp()) + (20 * v_took)::bigint);
  end if;
  if clean then
    perform setval(lane.lease_floor, holdfast._us(coalesce(v_first, at)));
  end if;
  return v_first;
end $$;
comment on function holdfast._first_overdue is 'Under the lane lock: when the first lease that is over ended; null: none is';

create or replace function holdfast._sweep_lane(lane holdfast.lane, at timestamptz, clean boolean) returns int
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_first timestamptz := holdfast._first_overdue(lane, at, clean);
  v_leases tid[];
  v_end record;
  v_freed int := 0;
  v_kept int := 0;
  v_more boolean := false;
  v_next interval := interval '250 ms';
begin
  perform holdfast._tidy_leases(lane, clean);
  while v_first is not null loop
    -- Locked by this transaction, these rows keep their place: so the place can name them.
    v_leases := array(
      select l.ctid from holdfast.lease l
      where l.lane_id = lane.id and l.deadline >= v_first and l.deadline <= at
      order by l.deadline offset v_kept limit 200 for update skip locked);
    v_end := holdfast._end_leases(lane, v_leases, at);
    v_freed := v_freed + v_end.freed;
    v_kept := v_kept + v_end.kept;
    exit when cardinality(v_leases) < 200;
    v_more := clock_timestamp() > v_began + interval '20 ms';
    exit when v_more;
  end loop;
  if v_more or v_freed > 0 then
    -- The next claim sweeps again: there is more, or what was freed is held once more because this rolled back.
    v_next := interval '-1 microsecond';
  end if;
  perform setval(lane.sweep_at, holdfast._us(at + v_next));
  return v_freed;
end $$;
comment on function holdfast._sweep_lane is 'Under the lane lock: end leases that ran out; returns how many messages that freed';

create or replace function holdfast._tidy_leases(lane holdfast.lane, clean boolean) returns void language plpgsql volatile
as $$
declare
  v_from bigint := coalesce(pg_sequence_last_value(lane.lease_tidy), 0);
  v_cursor bigint := coalesce(pg_sequence_last_value(lane.cursor), 0);
begin
  if v_cursor > v_from then
    delete from holdfast.lease l where l.ctid = any (array(
      select e.ctid from holdfast.lease e
      where e.lane_id = lane.id and e.upto > v_from and e.upto > 0 and e.upto <= v_cursor and e.ids = '{}'
      order by e.upto limit 10000 for update skip locked));
    if clean then
      perform setval(lane.lease_tidy, v_cursor);
    end if;
  end if;
end $$;
comment on function holdfast._tidy_leases is
  'Under the lane lock: remove leases that were settled while the cursor register had not passed them. One that is missed ends with its deadline';

create or replace function holdfast._end_leases(
  lane holdfast.lane, leases tid[], at timestamptz, only_spent boolean default false, out freed int, out kept int)
language plpgsql volatile
as $$
declare
  v_cursor bigint := coalesce(pg_sequence_last_value(lane.cursor), 0);
  v_ids bigint[];
  v_freed bigint[];
  v_spent bigint[];
  v_stay bigint[];
begin
  v_ids := array(select i from holdfast.lease l cross join lateral unnest(l.ids) i where l.ctid = any (leases));
  v_freed := array(select m.id from holdfast.message m where m.id = any (v_ids) for update skip locked);
  v_spent := holdfast._spent(lane.queue_id, v_freed);
  if only_spent then
    v_freed := v_spent;
  end if;
  if v_spent <> '{}' and not holdfast._can_bury(lane.queue_id) then
    v_freed := array(select i from unnest(v_freed) i where i not in (select unnest(v_spent)));
  end if;
  if lane.ordering is not null then
    -- The last delivery of a head passes the baton: not while somebody has its successor locked.
    v_freed := holdfast._can_end(lane.queue_id, v_freed);
  end if;
  v_stay := array(select m.id from holdfast.message m where m.id = any (v_ids) and m.id not in (select unnest(v_freed)));
  perform holdfast._return(lane.queue_id, v_freed, at, interval '0', null, false);
  -- A lease above the cursor register says where fresh messages start: it stays, empty, until the register has passed it.
  delete from holdfast.lease l where l.ctid = any (leases) and l.upto <= v_cursor and not l.ids && v_stay;
  update holdfast.lease l set ids = array(select i from unnest(l.ids) i where i in (select unnest(v_stay))), lo = null
  where l.ctid = any (leases);
  get diagnostics kept = row_count;
  freed := cardinality(v_freed);
end $$;
comment on function holdfast._end_leases is
  'Under the lane lock: give back what these locked leases hold, but for messages that somebody has locked, and dead ones that cannot be buried now. only_spent: nothing but dead ones. kept: leases that stay';

create or replace function holdfast.sweep(queue text) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(sweep.queue);
  v_lane holdfast.lane;
  v_ended int := 0;
begin
  perform holdfast._check_isolation('sweep');
  perform holdfast._limit_transaction();
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id order by l.priority desc, l.shard loop
    continue when not holdfast._await_lane(v_lane);
    continue when holdfast._boot_lane(v_lane);
    perform holdfast._advance(v_lane);
    v_ended := v_ended + holdfast._sweep_lane(v_lane, holdfast.now(), pg_current_xact_id_if_assigned() is null);
  end loop;
  return v_ended;
end $$;
comment on function holdfast.sweep is 'End the leases of a queue that ran out, now; returns how many messages that freed. claim does this by itself';

-- 66_row.sql
-- Rows: messages as rows that a statement of somebody else selects, locks and takes (by_row).
--
-- holdfast.row_message shows them, in the order of their ids by an index of its own, and can be read for update: it has no
-- join, so nothing but messages is locked. What it shows of leases is what the statement's snapshot knows. So a row that
-- is to be had by it may have been claimed since: take() decides, under the lane lock and with a new snapshot. What it takes
-- is held as by the due path (due_at = -infinity), also ahead of the cursor and in gaps: claims pass it by.
--
-- Where nobody claims but by rows, nothing moves the cursor. So take() lets it pass what has been taken, a thousand
-- ids at a time; sends that are open then are written down as gaps.
-- Lock order: as in a claim.

-- Far dearer than it is: where the planner has no figures of a queue, it believes that there is next to nothing in it, and
-- would rather sort that than walk an index that has the order. As it is, it has reason not to look at one row too many.
create or replace function holdfast.hold(id bigint, due_at timestamptz) returns holdfast.hold
language plpgsql stable security definer cost 20000 set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_hold holdfast.hold;
begin
  select h.token, h.consumer, h.deadline into v_hold from holdfast._holders(array[hold.id]) h;
  if v_hold.token is null and hold.due_at = '-infinity' and holdfast._is_ours((hold.id >> 40)::int) then
    -- In somebody's hands all the same. Where the lane has not been booted here, a crash took it out of them.
    v_hold.deadline := 'infinity';
  end if;
  return v_hold;
end $$;
comment on function holdfast.hold is
  'In whose lease a message with this id and due_at is, as far as the snapshot of the statement goes; all null: in nobody''s';

-- Who names a queue has said that row_of is not null. The planner would count that twice, and expect too few, if this said it
-- as plainly.
create or replace view holdfast.row_message as
  select m.id, m.row_of as queue, m.payload, m.body, m.content_type, m.headers, m.correlation_id, m.tag, m.key,
         coalesce(m.deliveries, 0)
           + case when m.due_at is null or m.due_at = '-infinity' then ((holdfast.hold(m.id, m.due_at)).deadline is not null)::int else 0 end as deliveries,
         coalesce(m.max_deliveries, (select q.max_deliveries from holdfast.queue q where q.name = m.row_of)) as max_deliveries,
         case when m.due_at is null or m.due_at = '-infinity' then coalesce((holdfast.hold(m.id, m.due_at)).deadline, least(m.enqueued_at, now()))
              else m.due_at end as visible_at,
         case when m.due_at is null or m.due_at = '-infinity' then (holdfast.hold(m.id, m.due_at)).token end as token,
         case when m.due_at is null or m.due_at = '-infinity' then (holdfast.hold(m.id, m.due_at)).consumer end as consumer,
         m.enqueued_at, m.expires_at, m.last_error, m.origin
  from holdfast.message m where coalesce(m.row_of, '') <> '';
comment on view holdfast.row_message is
  'The messages of queues with by_row. deliveries counts the one under way; visible_at: from when on a message can be taken, of one in flight the deadline';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.row_message for each row execute function holdfast._refuse_write();

create or replace view holdfast.row_queue as
  select q.name as queue, q.created_at, q.paused, q.lease, q.max_deliveries, q.dead_letter, q.max_payload, q.config -> 'annotations' as annotations
  from holdfast.queue q where q.row_of is not null;
comment on view holdfast.row_queue is 'The queues with by_row, and what holds for them';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.row_queue for each row execute function holdfast._refuse_write();

create or replace function holdfast._check_take(queue holdfast.queue, ids bigint[], lease interval, consumer text) returns void language plpgsql stable
as $$
begin
  if queue.row_of is null then
    perform holdfast._fail('QH104', format('the messages of "%s" are no rows', queue.name), 'It was made without by_row.',
      'Claim from it, or make a queue with {"by_row": true}.');
  end if;
  if cardinality(ids) > 10000 then
    perform holdfast._fail('QH301', 'too many ids', format('Got %s.', cardinality(ids)), 'One call takes at most 10,000 messages.');
  end if;
  perform holdfast._check_lease(lease);
  perform holdfast._check_text('consumer', consumer);
  perform holdfast._check_isolation('take');
end $$;
comment on function holdfast._check_take is 'Refuse bad arguments of take, a queue without rows, and a transaction it cannot work in';

create or replace function holdfast._free_lapsed(lane holdfast.lane, ids bigint[], at timestamptz) returns void language plpgsql volatile
as $$
declare
  -- The sum keeps the planner off the index of deadlines, where it would read all leases that are over.
  v_leases tid[] := array(
    select o.place from (select distinct h.token, h.part from holdfast._holders(_free_lapsed.ids) h where h.deadline <= at) h
      cross join lateral (select l.ctid as place from holdfast.lease l
                          where l.token = h.token and l.part = h.part and l.deadline + interval '0' <= at for update skip locked) o);
begin
  if v_leases <> '{}' then
    perform holdfast._end_leases(lane, v_leases, at);
  end if;
end $$;
comment on function holdfast._free_lapsed is 'Under the lane lock: end the leases in which these messages are, if they are over';

create or replace function holdfast._take_ids(lane holdfast.lane, ids bigint[], at timestamptz, want int) returns bigint[] language plpgsql volatile
as $$
declare
  v_held bigint[] := array(select h.id from holdfast._holders(_take_ids.ids) h);
  v_taken bigint[];
  v_over bigint[];
begin
  with candidate as (
    select m.id, m.expires_at <= at as over from holdfast.message m
    where m.id = any (_take_ids.ids) and m.id <> all (v_held) and (m.due_at is null or (m.due_at > '-infinity' and m.due_at <= at))
    order by m.id limit want for update skip locked
  ), taken as (
    update holdfast.message m set due_at = '-infinity' from candidate c where m.id = c.id returning m.id, c.over
  )
  select array_agg(t.id order by t.id) filter (where t.over is not true), array_agg(t.id) filter (where t.over) into v_taken, v_over from taken t;
  if v_over is not null then
    perform holdfast._end(lane.queue_id, v_over, 'expired', at);
  end if;
  return v_taken;
end $$;
comment on function holdfast._take_ids is
  'Under the lane lock: mark those of these messages that can be claimed now as held, and return their ids, at most so many; those past their time to live end';

create or replace function holdfast._pass_taken(lane holdfast.lane, at timestamptz) returns void language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint := holdfast._advance(lane);
  v_last bigint := coalesce(pg_sequence_last_value(lane.ids), 0);
  v_first bigint;
begin
  select coalesce(min(s.id) filter (where s.due_at is null), case when count(*) = 1000 then max(s.id) else v_last end + 1) into v_first
  from (select m.id, m.due_at from holdfast.message m
        where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1000) s;
  if v_first >= v_start + 1000 then
    -- What is there of these ids is held, or due some time: a look at the gap leaves it alone.
    perform holdfast._open_gaps(lane, array[v_start], array[v_first - 1], v_clean);
    perform holdfast._pass_to(lane, v_first, at);
  end if;
end $$;
comment on function holdfast._pass_taken is
  'Under the lane lock: let the cursor pass what was taken by its id, and what lies scheduled between, if that is a thousand ids at least';

create or replace function holdfast.take(
  queue text, ids bigint[], lease interval default null, consumer text default null, patient boolean default true)
returns setof holdfast.delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(take.queue);
  v_lane holdfast.lane;
  v_token bigint := holdfast._token();
  v_now timestamptz;
  v_mine bigint[];
  v_taken bigint[];
  v_allowed int;
  v_handed int := 0;
begin
  perform holdfast._check_take(v_queue, take.ids, take.lease, take.consumer);
  perform holdfast._limit_transaction();
  for v_lane in
    select l.* from holdfast.lane l where l.queue_id = v_queue.id and l.id in (select i >> 40 from unnest(take.ids) i) order by l.priority desc, l.shard
  loop
    continue when v_lane.paused;
    if not pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) then
      continue when patient is not true or not holdfast._await_lane(v_lane);
    end if;
    -- Only now, as in a claim.
    v_now := holdfast.now();
    continue when holdfast._boot_lane(v_lane);
    v_mine := array(select i from unnest(take.ids) i where i >> 40 = v_lane.id);
    if v_lane.throttle is not null then
      v_allowed := holdfast._allowance(v_lane, cardinality(v_mine));
    end if;
    perform holdfast._advance(v_lane);
    perform holdfast._free_lapsed(v_lane, v_mine, v_now);
    v_taken := holdfast._take_ids(v_lane, v_mine, v_now, v_allowed);
    if v_allowed > coalesce(cardinality(v_taken), 0) then
      perform holdfast._refund(v_queue.name, v_allowed - coalesce(cardinality(v_taken), 0));
    end if;
    continue when v_taken is null;
    v_handed := v_handed + cardinality(v_taken);
    insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, upto,
                                handed, made_by)
    values (v_token, -v_lane.id, v_lane.queue_id, v_lane.id, v_lane.queue_name, v_lane.booted, v_lane.cursor, take.consumer, v_now,
            v_now + coalesce(take.lease, v_lane.lease), v_taken, v_taken, 0, v_handed, pg_current_xact_id());
    if v_taken[1] >= pg_sequence_last_value(v_lane.cursor) + 1000 then
      perform holdfast._pass_taken(v_lane, v_now);
    end if;
  end loop;
  update holdfast.lease l set handed = v_handed where l.token = v_token and l.handed <> v_handed;
  return query select h.* from holdfast._held(v_token, null) h;
end $$;
comment on function holdfast.take is
  'Take these messages of a queue with by_row under a lease, as far as they can be claimed now. patient: wait a little for whoever claims at this moment';

create or replace function holdfast._bury_spent(lane holdfast.lane, at timestamptz, want int) returns int language plpgsql volatile
as $$
declare
  v_first timestamptz := holdfast._first_overdue(lane, at, false);
  v_leases tid[] := array(
    select l.ctid from holdfast.lease l
    where l.lane_id = lane.id and l.deadline >= v_first and l.deadline <= at
    order by l.deadline limit want for update skip locked);
begin
  if v_leases = '{}' then
    return 0;
  end if;
  perform holdfast._advance(lane);
  return (holdfast._end_leases(lane, v_leases, at, true)).freed;
end $$;
comment on function holdfast._bury_spent is 'Under the lane lock: of the messages in leases that are over, at most so many leases, end those that have used up their deliveries';

create or replace function holdfast.bury_spent(queue text default null) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_at timestamptz := holdfast.now();
  v_lane holdfast.lane;
  v_buried int := 0;
begin
  perform holdfast._check_isolation('bury_spent');
  if bury_spent.queue is not null then
    perform holdfast._work_queue(bury_spent.queue);
  end if;
  for v_lane in
    select l.* from holdfast.queue q join holdfast.lane l on l.queue_id = q.id
    where q.row_of is not null and (bury_spent.queue is null or q.name = bury_spent.queue)
      and (select e.deadline from holdfast.lease e
           where e.lane_id = l.id and e.deadline <= v_at and e.deadline >= holdfast._time(coalesce(pg_sequence_last_value(l.lease_floor), 0))
           order by e.deadline limit 1) is not null
    order by l.id
  loop
    -- Whoever has the lane is at it, or in a hurry: the next call comes soon.
    continue when not pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) or holdfast._boot_lane(v_lane);
    v_buried := v_buried + holdfast._bury_spent(v_lane, v_at, 200);
  end loop;
  return v_buried;
end $$;
comment on function holdfast.bury_spent is
  'Bury the messages of a queue with by_row (null: of all of them) whose last delivery has run out, and leave those that have another; returns how many. It waits for nobody';

-- 70_settle.sql
-- Settling: ack, nack, reject, release, extend, next.
--
-- The fence is the lease row: an id counts only while it is in a lease with that token. What is not is skipped,
-- or an error if the caller asks for strict. A lease that a restore or a copy brought along is none: its lane's boot
-- row speaks of another database. Lease rows are locked in id order; no lane lock is taken.

create or replace function holdfast._check_token(token bigint) returns void language plpgsql immutable
as $$
begin
  if token is null then
    perform holdfast._fail('QH304', 'the lease is lost', 'The token is null.', 'Pass the token that claim returned. It returns no row, and so no token, when there is nothing to claim.');
  end if;
end $$;
comment on function holdfast._check_token is 'Refuse to settle without a token';

create or replace function holdfast._lost_lease(detail text) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH304', 'the lease is lost', detail,
    'Pass queue and token as claim returned them. If they are right, the lease ran out, or the messages were settled or discarded before: roll back, and claim again.');
end $$;
comment on function holdfast._lost_lease is 'Refuse to settle what the token does not hold';

create or replace function holdfast._check_whole(held int, handed int) returns void language plpgsql stable
as $$
begin
  if held <> handed then
    perform holdfast._lost_lease(format('This token holds %s of the %s messages that it was given and has not settled.', held, handed));
  end if;
end $$;
comment on function holdfast._check_whole is 'For strict without ids: refuse if a part of what the claim handed out is gone';

create or replace function holdfast._unlease(queue text, token bigint, ids bigint[], strict boolean) returns bigint[]
language plpgsql volatile
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(_unlease.queue);
  v_lease record;
  v_mine bigint[];
  v_out bigint[] := '{}';
  v_handed int := 0;
  v_passes int := 0;
begin
  perform holdfast._check_token(_unlease.token);
  -- A lease that is being split shows its new part only to a later statement: so look twice, unless all is found.
  while v_passes < 2 and (_unlease.ids is null or cardinality(v_out) < cardinality(_unlease.ids)) loop
    v_passes := v_passes + 1;
    for v_lease in
      select l.part, l.ids, l.handed from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
      where l.token = _unlease.token and l.queue_id = v_queue.id and l.ids <> '{}' order by l.part for update of l
    loop
      v_mine := case when _unlease.ids is null then v_lease.ids
                     else array(select i from unnest(v_lease.ids) i where i in (select unnest(_unlease.ids))) end;
      continue when v_mine = '{}';
      v_passes := 0;
      v_out := v_out || v_mine;
      v_handed := v_lease.handed;
      update holdfast.lease l set ids = array(select i from unnest(v_lease.ids) i where i not in (select unnest(v_mine))), lo = null
      where l.token = _unlease.token and l.part = v_lease.part;
      delete from holdfast.lease l using holdfast.lane n
      where l.token = _unlease.token and l.part = v_lease.part and l.ids = '{}'
        and n.id = l.lane_id and l.upto <= coalesce(pg_sequence_last_value(n.cursor), 0);
    end loop;
  end loop;
  if _unlease.ids is null and strict then
    perform holdfast._check_whole(cardinality(v_out), v_handed);
  elsif _unlease.ids is not null and v_out <> '{}' then
    update holdfast.lease l set handed = l.handed - cardinality(v_out) where l.token = _unlease.token and l.queue_id = v_queue.id;
  end if;
  return v_out;
end $$;
comment on function holdfast._unlease is 'Take ids (null: all) out of the leases with this token; returns those that were in them. strict, without ids: all that the claim handed out, or an error';

create or replace function holdfast._settlement(ids bigint[], owned bigint[], settled bigint[], strict boolean) returns holdfast.settlement
language plpgsql volatile
as $$
declare
  v_wanted bigint[] := coalesce(ids, owned);
  v_skipped bigint[] := '{}';
begin
  if cardinality(v_wanted) <> cardinality(settled) then
    v_skipped := array(select distinct i from unnest(v_wanted) i where (i = any (settled)) is not true);
  end if;
  if strict and (cardinality(v_skipped) > 0 or cardinality(v_wanted) = 0) then
    perform holdfast._lost_lease(
      case when cardinality(v_wanted) = 0 then 'This token holds no message of this queue.'
           else format('This token does not hold %s of the %s messages: %s%s.', cardinality(v_skipped), cardinality(v_wanted),
                       array_to_string(v_skipped[1:5], ', ', 'null'), case when cardinality(v_skipped) > 5 then ', …' else '' end) end);
  end if;
  return (settled, v_skipped)::holdfast.settlement;
end $$;
comment on function holdfast._settlement is 'The answer of a settling verb; strict turns a skipped id into an error';

create or replace function holdfast.ack(queue text, token bigint, ids bigint[] default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lo bigint;
  v_upto bigint;
  v_rows bigint;
  v_owned bigint[];
  v_done bigint[];
  v_now timestamptz;
  v_queue holdfast.queue;
  v_consumer text;
  v_claimed_at timestamptz;
begin
  -- The plain case: a token with one lease over a range of ids, settled as a whole. Above the cursor register it must
  -- stay, empty; the two conditions on the register exclude each other, and it moves upwards only.
  update holdfast.lease l set ids = '{}'
  where l.token = ack.token and l.lo is not null and l.ids <> '{}' and (ack.ids is null or ack.ids = l.ids) and l.queue_name = ack.queue
    and pg_sequence_last_value(l.booted) = holdfast._boot_mark() and l.upto > coalesce(pg_sequence_last_value(l.cursor), 0)
  returning l.lo, l.upto into v_lo, v_upto;
  if v_lo is null then
    delete from holdfast.lease l
    where l.token = ack.token and l.lo is not null and l.ids <> '{}' and (ack.ids is null or ack.ids = l.ids) and l.queue_name = ack.queue
      and pg_sequence_last_value(l.booted) = holdfast._boot_mark() and l.upto <= coalesce(pg_sequence_last_value(l.cursor), 0)
    returning l.lo, l.upto into v_lo, v_upto;
  end if;
  if v_lo is not null then
    if v_upto = v_lo + 1 then
      delete from holdfast.message m where m.id = v_lo;
    else
      delete from holdfast.message m where m.id >= v_lo and m.id < v_upto;
    end if;
    get diagnostics v_rows = row_count;
    v_owned := coalesce(ack.ids, array(select generate_series(v_lo, v_upto - 1)));
    if v_rows = v_upto - v_lo or (v_rows > 0 and strict is not true) then
      return (v_owned, '{}'::bigint[])::holdfast.settlement;
    end if;
    -- Discarded at the moment of the claim. Of several it is not known which, only that not all are there: enough for strict.
    return holdfast._settlement(v_owned, v_owned, '{}', strict);
  end if;
  v_queue := holdfast._queue(ack.queue);
  if 'done' = any (v_queue.keep) then
    -- Before the lease is gone.
    select max(l.consumer), min(l.claimed_at) into v_consumer, v_claimed_at from holdfast.lease l
    where l.token = ack.token and l.queue_id = v_queue.id;
  end if;
  v_owned := holdfast._unlease(ack.queue, ack.token, ack.ids, strict);
  v_now := holdfast.now();
  v_done := holdfast._end(v_queue.id, holdfast._still_alive(v_queue, v_owned, v_now), 'done', v_now, v_consumer, v_claimed_at);
  return holdfast._settlement(ack.ids, v_owned, v_done, strict);
end $$;
comment on function holdfast.ack is 'These messages (null: all under the token) are done: they end here';

create or replace function holdfast.nack(
  queue text, token bigint, ids bigint[] default null, delay interval default null, error text default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_owned bigint[];
  v_back bigint[];
  v_queue holdfast.queue := holdfast._work_queue(nack.queue);
begin
  if delay < interval '0' or delay > interval '10 years' then
    perform holdfast._fail('QH305', 'delay is out of range', format('Got %s.', delay), 'A retry can be delayed by 0 seconds to 10 years.');
  end if;
  v_owned := holdfast._unlease(nack.queue, nack.token, nack.ids, strict);
  v_back := holdfast._return(v_queue.id, v_owned, holdfast.now(), nack.delay, left(nack.error, 10000), true);
  perform holdfast._wake(v_queue);
  return holdfast._settlement(nack.ids, v_owned, v_back, strict);
end $$;
comment on function holdfast.nack is
  'These messages failed: deliver them again after delay (null: the queue''s backoff), or bury them once max_deliveries is reached';

create or replace function holdfast._give_up(queue holdfast.queue, ids bigint[], at timestamptz, error text) returns bigint[] language plpgsql volatile
as $$
declare
  v_dead bigint[];
begin
  _give_up.ids := holdfast._still_alive(queue, _give_up.ids, at);
  with dead as (
    update holdfast.message m set
      deliveries = coalesce(m.deliveries, 0) + 1, failures = coalesce(m.failures, 0) + 1, last_error = coalesce(_give_up.error, m.last_error),
      head = case when m.ordering_key is not null then true end, due_at = at
    where m.id = any (_give_up.ids) returning m.id
  )
  select coalesce(array_agg(d.id), '{}') into v_dead from dead d;
  perform holdfast._count(queue.id, 'nacked', cardinality(v_dead));
  if v_dead <> '{}' then
    perform holdfast._bury(queue, v_dead, at);
  end if;
  return v_dead;
end $$;
comment on function holdfast._give_up is 'A delivery did not work out, and none will: count it, and bury the messages';

create or replace function holdfast.reject(
  queue text, token bigint, ids bigint[] default null, error text default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(reject.queue);
  v_owned bigint[] := holdfast._unlease(reject.queue, reject.token, reject.ids, strict);
  v_dead bigint[] := holdfast._give_up(v_queue, v_owned, holdfast.now(), left(reject.error, 10000));
begin
  return holdfast._settlement(reject.ids, v_owned, v_dead, strict);
end $$;
comment on function holdfast.reject is
  'These messages failed, and will fail again: they are dead, whatever deliveries they have left. Without a dead-letter queue they end';

create or replace function holdfast.release(queue text, token bigint, ids bigint[] default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_owned bigint[] := holdfast._unlease(release.queue, release.token, release.ids, strict);
  v_queue holdfast.queue := holdfast._queue(release.queue);
  v_back bigint[] := holdfast._still_alive(v_queue, v_owned, holdfast.now());
begin
  with back as (
    update holdfast.message m set due_at = holdfast.now(), head = case when m.ordering_key is not null then true end
    where m.id = any (v_back) returning m.id
  )
  select coalesce(array_agg(b.id), '{}') into v_back from back b;
  perform holdfast._wake(v_queue);
  return holdfast._settlement(release.ids, v_owned, v_back, strict);
end $$;
comment on function holdfast.release is 'Give messages back unworked: claimable at once, and not counted as a delivery';

create or replace function holdfast._used(budget text, deliveries int, failures int) returns int language sql immutable
  return coalesce(case budget when 'failures' then failures else deliveries end, 0);
comment on function holdfast._used is 'What of its max_deliveries a message has used up, by the budget of its queue';

create or replace function holdfast._return(queue_id int, ids bigint[], at timestamptz, delay interval, error text, failed boolean)
returns bigint[] language plpgsql volatile
as $$
declare
  v_queue holdfast.queue;
  v_back bigint[];
  v_spent bigint[];
begin
  select q.* into v_queue from holdfast.queue q where q.id = _return.queue_id;
  _return.ids := holdfast._still_alive(v_queue, _return.ids, at);
  with back as (
    update holdfast.message m set
      deliveries = coalesce(m.deliveries, 0) + 1,
      failures = case when failed or v_queue.lapse_is_failure then coalesce(m.failures, 0) + 1 else m.failures end,
      last_error = coalesce(_return.error, m.last_error),
      -- It was handed out, so it was the first of its line; and it keeps its place.
      head = case when m.ordering_key is not null then true end,
      due_at = at + coalesce(delay, holdfast._backoff(v_queue, coalesce(m.failures, 0)))
    where m.id = any (_return.ids)
    returning m.id, holdfast._used(v_queue.budget, m.deliveries, m.failures)
                    >= nullif(coalesce(m.max_deliveries, v_queue.max_deliveries), 0) as spent
  )
  select coalesce(array_agg(b.id), '{}'), array_agg(b.id) filter (where b.spent) into v_back, v_spent from back b;
  perform holdfast._count(v_queue.id, case when failed then 'nacked' else 'lapsed' end, cardinality(v_back));
  if v_spent is not null then
    perform holdfast._bury(v_queue, v_spent, at);
  end if;
  return v_back;
end $$;
comment on function holdfast._return is 'A delivery did not work out: count it, and make the messages due again or bury them';

create or replace function holdfast._backoff(queue holdfast.queue, failures int) returns interval language sql volatile
  return make_interval(secs => least((queue).backoff_cap, (queue).backoff_base * (queue).backoff_factor ^ least(failures, 100))
                               * (1 + (queue).backoff_jitter * random()));
comment on function holdfast._backoff is 'How long to wait after so many failures';

create or replace function holdfast._split_part() returns int language sql volatile
  return 8388608 + floor(random() * 2139095040)::int;
comment on function holdfast._split_part is 'A part number that is no lane''s';

create or replace function holdfast._extend_lease(lease holdfast.lease, ids bigint[], deadline timestamptz) returns void
language plpgsql volatile
as $$
begin
  if cardinality(_extend_lease.ids) = cardinality(lease.ids) then
    update holdfast.lease l set deadline = _extend_lease.deadline where l.token = lease.token and l.part = lease.part;
    return;
  end if;
  update holdfast.lease l set ids = array(select i from unnest(lease.ids) i where i not in (select unnest(_extend_lease.ids))), lo = null
  where l.token = lease.token and l.part = lease.part;
  loop
    insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, upto,
                                handed, made_by)
    values (lease.token, holdfast._split_part(), lease.queue_id, lease.lane_id, lease.queue_name, lease.booted, lease.cursor, lease.consumer,
            lease.claimed_at, _extend_lease.deadline, _extend_lease.ids, _extend_lease.ids, 0, lease.handed, pg_current_xact_id())
    on conflict do nothing;
    exit when found;
  end loop;
end $$;
comment on function holdfast._extend_lease is 'Set the deadline of a locked lease, or split some ids off into one of their own';

create or replace function holdfast.extend(
  queue text, token bigint, lease interval default null, ids bigint[] default null, strict boolean default false)
returns holdfast.settlement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(extend.queue);
  v_extended bigint[] := '{}';
  v_lease holdfast.lease;
  v_mine bigint[];
  v_handed int := 0;
  v_passes int := 0;
begin
  perform holdfast._check_lease(extend.lease);
  perform holdfast._check_token(extend.token);
  -- Twice, for the same reason as in _unlease.
  while v_passes < 2 and (extend.ids is null or cardinality(v_extended) < cardinality(extend.ids)) loop
    v_passes := v_passes + 1;
    for v_lease in
      select l.* from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
      where l.token = extend.token and l.queue_id = v_queue.id and l.ids <> '{}'
        -- Hashed: the containment operator compares each with each, half a second for 10,000 messages.
        and (v_extended = '{}' or exists (select from unnest(l.ids) i where i not in (select unnest(v_extended))))
      order by l.part for update of l
    loop
      v_mine := case when extend.ids is null then v_lease.ids
                     else array(select i from unnest(v_lease.ids) i where i in (select unnest(extend.ids))) end;
      -- What was discarded is not held any more; nor what is past its time to live, where that counts in flight.
      v_mine := array(select m.id from holdfast.message m where m.id = any (v_mine) and m.id not in (select unnest(v_extended))
                      and (not v_queue.expire_in_flight or m.expires_at is null or m.expires_at > holdfast.now()));
      continue when v_mine = '{}';
      v_passes := 0;
      v_extended := v_extended || v_mine;
      v_handed := v_lease.handed;
      -- From now on, not from before a wait for whoever had the lease locked.
      perform holdfast._extend_lease(v_lease, v_mine, holdfast.now() + coalesce(extend.lease, v_queue.lease));
    end loop;
  end loop;
  if strict and extend.ids is null then
    perform holdfast._check_whole(cardinality(v_extended), v_handed);
  end if;
  return holdfast._settlement(extend.ids, v_extended, v_extended, strict);
end $$;
comment on function holdfast.extend is
  'Hold these messages (null: all under the token) for another lease from now on; some of them get a lease of their own with the same token';

create or replace function holdfast.next(
  queue text, token bigint, max int default 1, lease interval default null, consumer text default null,
  alone boolean default false, strict boolean default false)
returns setof holdfast.delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  if next.token is not null then
    perform holdfast.ack(next.queue, next.token, null, strict);
  end if;
  -- The ack must be durable, so the claim may not lower synchronous_commit.
  return query select * from holdfast.claim(next.queue, next.max, next.lease, next.consumer, false);
end $$;
comment on function holdfast.next is 'Ack everything under the token (null: there is nothing yet) and claim again, in one call';

-- 75_dead.sql
-- Dead letters: messages that used up their deliveries live on in another queue, with where they came from.
--
-- Every move draws a new id; origin.root_id is the first one, and origin.sent_at is when the message was sent under it.
-- A move is one transaction: it deletes and inserts.
-- Moves pass max_depth and the size limit.
--
-- A dead letter with a replaceable key is not sent back beside a living message of that key: it would be delivered after
-- a newer one. It stays until that one has ended; of several dead ones the first goes.

create or replace function holdfast._bury(queue holdfast.queue, ids bigint[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
  v_ids regclass;
  v_xid xid8;
  v_keys text[];
  v_orders bigint[];
begin
  if queue.ordering is not null and queue.on_dead = 'block' then
    ids := holdfast._block(_bury.ids, at);
  end if;
  if queue.dead_letter is null then
    perform holdfast._end(queue.id, _bury.ids, 'failed', at);
    return;
  end if;
  if ids = '{}' then
    return;
  end if;
  if queue.ordered then
    select array_agg(m.ordering_key), array_agg(m.order_no) into v_keys, v_orders
    from holdfast.message m where m.id = any (_bury.ids) and m.ordering_key is not null;
  end if;
  v_grave := holdfast._grave(queue.dead_letter);
  v_ids := holdfast._ids(v_grave, v_grave.priority_default);
  v_xid := pg_current_xact_id();
  with gone as (
    delete from holdfast.message m where m.id = any (_bury.ids) returning m.*
  )
  insert into holdfast.message (id, queue_id, enqueued_at, payload, body, content_type, headers, tag, correlation_id, last_error, row_of, origin)
  select nextval(v_ids), v_grave.id, at, g.payload, g.body, g.content_type, g.headers, g.tag, g.correlation_id, g.last_error, v_grave.row_of,
         jsonb_strip_nulls(jsonb_build_object(
           'queue', queue.name, 'id', g.id, 'root_id', holdfast._root_id(g.id, g.origin),
           'deliveries', g.deliveries, 'failures', coalesce(g.failures, 0), 'error', g.last_error, 'priority', l.priority,
           'key', g.key, 'idempotency_key', g.idempotency_key, 'ordering_key', nullif(g.ordering_key, ''),
           'max_deliveries', g.max_deliveries,
           'redrives', g.origin -> 'redrives', 'sent_at', holdfast._sent_at(g.origin, g.enqueued_at), 'enqueued_at', g.enqueued_at,
           'died_at', at))
  from gone g join holdfast.lane l on l.id = g.id >> 40 order by g.id;
  perform holdfast._count(queue.id, 'dead', cardinality(_bury.ids));
  if v_keys is not null then
    perform holdfast._pass_baton(queue.id, v_keys, v_orders, array_fill(true, array[cardinality(v_keys)]), at);
  end if;
  perform holdfast._wake(v_grave);
end $$;
comment on function holdfast._bury is
  'Move messages that used up their deliveries to the dead-letter queue; without one they end. Where on_dead is block, ordered ones stay';

create or replace function holdfast._sent_at(origin jsonb, enqueued_at timestamptz) returns jsonb language sql stable
  return coalesce(origin -> 'sent_at', origin -> 'enqueued_at', to_jsonb(enqueued_at));
comment on function holdfast._sent_at is 'When a message was sent first, before any move';

create or replace function holdfast._block(ids bigint[], at timestamptz) returns bigint[] language plpgsql volatile
as $$
declare
  v_stay bigint[];
begin
  with blocking as (
    update holdfast.message m set due_at = 'infinity', blocks_since = at
    where m.id = any (_block.ids) and m.ordering_key is not null returning m.id
  )
  select coalesce(array_agg(b.id), '{}') into v_stay from blocking b;
  return array(select i from unnest(ids) i where i not in (select unnest(v_stay)));
end $$;
comment on function holdfast._block is 'Let dead heads stay where they are and block their lines; returns those of the messages that stand in none';

create or replace function holdfast._grave(queue text) returns holdfast.queue language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
begin
  loop
    -- Whoever drops it is waited for, or has to wait until this burial is over.
    select q.* into v_grave from holdfast.queue q where q.name = _grave.queue for key share;
    if found then
      return v_grave;
    end if;
    perform holdfast._create_queue(_grave.queue, '{"dead_letter": false, "max_deliveries": 0}');
  end loop;
end $$;
comment on function holdfast._grave is 'A dead-letter queue, made on first use: it does not bury in turn';

create or replace function holdfast._spent(queue_id int, ids bigint[]) returns bigint[] language plpgsql stable
as $$
begin
  return array(
    select m.id from holdfast.message m join holdfast.queue q on q.id = _spent.queue_id
    where m.id = any (_spent.ids)
      and holdfast._used(q.budget, coalesce(m.deliveries, 0) + 1, coalesce(m.failures, 0) + q.lapse_is_failure::int)
          >= nullif(coalesce(m.max_deliveries, q.max_deliveries), 0));
end $$;
comment on function holdfast._spent is 'Which of these messages in flight are dead when their lease runs out';

create or replace function holdfast._can_bury(queue_id int) returns boolean
language plpgsql volatile set lock_timeout = '100ms'
as $$
declare
  v_grave holdfast.queue;
  v_name text := (select q.dead_letter from holdfast.queue q where q.id = _can_bury.queue_id);
begin
  if v_name is not null then
    v_grave := holdfast._grave(v_name);
    perform holdfast._ids(v_grave, v_grave.priority_default);
  end if;
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._can_bury is
  'Lay hands on the dead-letter queue of this one, without waiting for long: whoever holds a lane may not wait for somebody who makes or changes it';

create or replace function holdfast.redrive(
  queue text, ids bigint[] default null, filter jsonb default null, "limit" int default 1000, target text default null)
returns table (id bigint, new_id bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(redrive.queue);
  v_target holdfast.queue;
  v_grave holdfast.queue;
  v_graves int[];
  v_locked holdfast.queue;
  v_lanes int[] := '{}';
  v_ids bigint[];
  v_free bigint[];
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_filter(filter);
  perform holdfast._check_isolation('redrive');
  v_target := holdfast._redrive_target(v_queue, redrive.target);
  v_graves := array(select q.id from holdfast._graves(v_queue, redrive.ids) q);
  if v_graves = '{}' then
    perform holdfast._check_buries(v_queue);
    return;
  end if;
  select q.* into v_grave from holdfast.queue q where q.name = v_queue.dead_letter;
  -- Before the lane locks: whoever has sent with one of these keys and is still open is waited for.
  perform holdfast._lock_keys(holdfast._line_lock(), v_target.id, array_agg(holdfast._line_in(v_target, d.origin))),
          holdfast._lock_keys(holdfast._key_lock(), v_target.id, array_agg(d.origin ->> 'key')),
          holdfast._lock_keys(holdfast._idempotency_lock(), v_target.id, array_agg(d.origin ->> 'idempotency_key'))
  from holdfast._movable(v_target, v_grave, v_queue.name, redrive.ids, filter, "limit") d;
  for v_locked in select q.* from holdfast.queue q where q.id = any (v_graves) order by q.id loop
    v_lanes := v_lanes || holdfast._await_graves(v_locked);
  end loop;
  v_ids := array(select d.id from holdfast._movable(v_target, v_grave, v_queue.name, redrive.ids, filter, "limit") d where d.id >> 40 = any (v_lanes));
  v_free := holdfast._without_rivals(v_target, holdfast._unheld(v_ids));
  return query select * from holdfast._send_back_all(v_target, v_free);
end $$;
comment on function holdfast.redrive is
  'Send dead letters of this queue back to it, or to target: these ids, wherever they lie, or those that match filter, oldest first. Those in somebody''s lease stay, or behind a claim that is left open, and those whose key a living message has';

create or replace function holdfast._redrive_target(queue holdfast.queue, target text) returns holdfast.queue language plpgsql volatile
as $$
declare
  v_target holdfast.queue;
begin
  -- Nobody drops the target while messages are moved to it.
  select q.* into v_target from holdfast.queue q where q.name = coalesce(_redrive_target.target, queue.name) for key share;
  if not found and target is null then
    perform holdfast._no_queue(queue.name);
  elsif not found then
    perform holdfast._fail('QH105', format('target queue "%s" does not exist', left(target, 200)), 'Nothing was moved.',
      'Create it with holdfast.create_queue, or check the spelling.');
  end if;
  if v_target.kind = 'log' then
    perform holdfast._not_a_queue(v_target.name);
  end if;
  return v_target;
end $$;
comment on function holdfast._redrive_target is 'Where dead letters of a queue go, locked so that it stays; or an error that says why they cannot';

create or replace function holdfast._check_buries(queue holdfast.queue) returns void language plpgsql immutable
as $$
begin
  if queue.dead_letter is null then
    perform holdfast._fail('QH105', format('queue "%s" has no dead-letter queue', queue.name), 'Its dead_letter is off.',
      'Pass the queue that the messages came from, not the one where they lie.');
  end if;
end $$;
comment on function holdfast._check_buries is 'Refuse to redrive where there is no dead-letter queue';

create or replace function holdfast._graves(queue holdfast.queue, ids bigint[]) returns setof holdfast.queue language plpgsql stable
as $$
declare
  v_grave holdfast.queue;
begin
  select q.* into v_grave from holdfast.queue q where q.name = queue.dead_letter;
  if ids is null then
    return query select q.* from holdfast.queue q where q.id = v_grave.id;
  else
    return query select q.* from holdfast.queue q
      where q.id in (select d.queue_id from holdfast._dead(v_grave, queue.name, _graves.ids, null, cardinality(_graves.ids)) d);
  end if;
end $$;
comment on function holdfast._graves is
  'Where the dead letters of a queue lie; of named ones, where those lie: it may have buried elsewhere when they died';

create or replace function holdfast._await_grave(lane_id int) returns boolean
language plpgsql volatile set lock_timeout = '2s'
as $$
begin
  -- Not for ever: whoever sends with the keys of these dead letters waits as long.
  perform pg_advisory_xact_lock(holdfast._lane_lock(), lane_id);
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._await_grave is
  'Lock a lane of a dead-letter queue, so that nobody claims a dead letter while it is being moved. false: a claim that is left open keeps it';

create or replace function holdfast._await_graves(grave holdfast.queue) returns int[] language plpgsql volatile
as $$
declare
  v_lane int;
  v_got int[] := '{}';
begin
  for v_lane in select l.id from holdfast.lane l where l.queue_id = grave.id order by l.id loop
    if holdfast._await_grave(v_lane) then
      v_got := v_got || v_lane;
    end if;
  end loop;
  return v_got;
end $$;
comment on function holdfast._await_graves is 'Lock the lanes of a dead-letter queue; returns those that could be got';

create or replace function holdfast._unheld(ids bigint[]) returns bigint[] language plpgsql volatile
as $$
begin
  return array(select m.id from holdfast.message m where m.id = any (_unheld.ids)
               and m.id not in (select h.id from holdfast._holders(_unheld.ids) h) for update skip locked);
end $$;
comment on function holdfast._unheld is 'Under the lane locks: lock those of these messages that are in nobody''s hands; returns them';

create or replace function holdfast._send_back(target holdfast.queue, grave holdfast.queue, ids bigint[])
returns table (id bigint, new_id bigint) language plpgsql volatile
as $$
begin
  return query select * from holdfast._move_back(target, _send_back.ids, holdfast.now());
  perform holdfast._entomb_in(grave, _send_back.ids);
  perform holdfast._count(grave.id, 'moved', cardinality(_send_back.ids));
  perform holdfast._wake(target);
end $$;
comment on function holdfast._send_back is 'Move locked dead letters into a queue, with all that belongs to it: tombstones, counters, sleepers';

create or replace function holdfast._send_back_all(target holdfast.queue, ids bigint[])
returns table (id bigint, new_id bigint) language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
begin
  for v_grave in select q.* from holdfast.queue q
                 where q.id in (select m.queue_id from holdfast.message m where m.id = any (_send_back_all.ids)) order by q.id loop
    return query select * from holdfast._send_back(target, v_grave, array(
      select m.id from holdfast.message m where m.id = any (_send_back_all.ids) and m.queue_id = v_grave.id order by m.id));
  end loop;
end $$;
comment on function holdfast._send_back_all is 'As _send_back, out of whatever queues they lie in';

create or replace function holdfast._check_filter(filter jsonb) returns void language plpgsql stable
as $$
declare
  v_unknown text;
begin
  if filter is null then
    return;
  end if;
  if jsonb_typeof(filter) <> 'object' then
    perform holdfast._fail('QH403', 'filter must be a JSON object', format('Got %s.', left(filter::text, 100)), 'Fields: error, tag, dead_before, dead_after.');
  end if;
  select k into v_unknown from jsonb_object_keys(filter) k where k not in ('error', 'tag', 'dead_before', 'dead_after');
  if found then
    perform holdfast._fail('QH403', format('unknown field "%s" in filter', left(v_unknown, 100)), format('Got %s.', left((filter -> v_unknown)::text, 100)), 'Fields: error, tag, dead_before, dead_after.');
  end if;
  perform (filter ->> 'dead_before')::timestamptz, (filter ->> 'dead_after')::timestamptz;
exception
  when data_exception then
    perform holdfast._fail('QH403', 'filter has a bad time', sqlerrm, 'dead_before and dead_after take ISO times.');
end $$;
comment on function holdfast._check_filter is 'Refuse a bad filter of redrive';

create or replace function holdfast._dead(grave holdfast.queue, queue text, ids bigint[], filter jsonb, "limit" int, after bigint default 0)
returns setof holdfast.message language plpgsql stable
as $$
begin
  if ids is not null then
    -- Wherever they lie. What was moved on keeps its origin, and is no dead letter any more.
    return query
      select m.* from (select distinct i.id from unnest(_dead.ids) i(id) where i.id > after) i
        cross join lateral (select m.* from holdfast.message m where m.id = i.id offset 0) m
      where m.origin ->> 'queue' = _dead.queue and (m.queue_id = grave.id or not m.origin ?| '{redriven_at,replayed_at}')
        and holdfast._is_sought(m, filter)
      order by m.id limit _dead."limit";
    return;
  end if;
  return query
    select d.* from holdfast.lane l cross join lateral (
      select m.* from holdfast.message m
      where m.id >= greatest(l.id::bigint << 40, after + 1) and m.id < (l.id + 1)::bigint << 40 and m.origin ->> 'queue' = _dead.queue
        and holdfast._is_sought(m, filter)
      order by m.id limit _dead."limit") d
    where l.queue_id = grave.id
    order by d.id limit _dead."limit";
end $$;
comment on function holdfast._dead is 'Dead letters of a queue, oldest first: those in its dead-letter queue, or these ids, wherever they lie';

create or replace function holdfast._is_sought(letter holdfast.message, filter jsonb) returns boolean language sql stable
  return (filter ->> 'error' is null or position(filter ->> 'error' in (letter).last_error) > 0)
    and (filter ->> 'tag' is null or (letter).tag = filter ->> 'tag')
    and (filter ->> 'dead_before' is null or (letter).enqueued_at < (filter ->> 'dead_before')::timestamptz)
    and (filter ->> 'dead_after' is null or (letter).enqueued_at > (filter ->> 'dead_after')::timestamptz);
comment on function holdfast._is_sought is 'Whether a dead letter is what a filter of redrive is about';

create or replace function holdfast._line_in(target holdfast.queue, origin jsonb) returns text language sql immutable
  return case (target).ordering when 'strict' then '' when 'key' then origin ->> 'ordering_key' end;
comment on function holdfast._line_in is 'The line in which a dead letter will stand in a queue; null: in none';

create or replace function holdfast._has_rival(target holdfast.queue, origin jsonb) returns boolean language plpgsql stable
as $$
begin
  return _has_rival.origin ? 'key' and exists (
    select from holdfast.message m where m.queue_id = target.id and m.key = _has_rival.origin ->> 'key'
      and m.ordering_key is not distinct from holdfast._line_in(target, _has_rival.origin));
end $$;
comment on function holdfast._has_rival is 'Does a message of the key of this dead letter live in a queue, in the same line?';

create or replace function holdfast._movable(target holdfast.queue, grave holdfast.queue, queue text, ids bigint[], filter jsonb, "limit" int)
returns setof holdfast.message language plpgsql stable
as $$
declare
  v_dead holdfast.message;
  v_after bigint := 0;
  v_found int := 0;
  v_seen int;
begin
  -- Those that have to stay must not hide the others behind them.
  loop
    v_seen := 0;
    for v_dead in select d.* from holdfast._dead(grave, _movable.queue, _movable.ids, filter, _movable."limit", v_after) d loop
      v_seen := v_seen + 1;
      v_after := v_dead.id;
      continue when holdfast._has_rival(target, v_dead.origin);
      return next v_dead;
      v_found := v_found + 1;
      exit when v_found = "limit";
    end loop;
    exit when v_seen < "limit" or v_found = "limit";
  end loop;
end $$;
comment on function holdfast._movable is 'As _dead, without those whose key a living message of the target has';

create or replace function holdfast._without_rivals(target holdfast.queue, ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_origins jsonb[];
begin
  -- The error may be long, and has no say in this.
  select array_agg(m.id), array_agg(m.origin - 'error') into _without_rivals.ids, v_origins
  from holdfast.message m where m.id = any (_without_rivals.ids);
  return holdfast._first_of_keys(target, _without_rivals.ids, v_origins);
end $$;
comment on function holdfast._without_rivals is
  'Under the lane locks: of these dead letters those that may be sent back, as far as their keys are concerned';

create or replace function holdfast._first_of_keys(target holdfast.queue, ids bigint[], origins jsonb[]) returns bigint[] language plpgsql volatile
as $$
begin
  -- One that was buried since the keys were locked has its key locked only now.
  perform holdfast._lock_keys(holdfast._key_lock(), target.id, array(select o ->> 'key' from unnest(origins) o));
  return array(
    select f.id from (
      select l.id, l.origin, row_number() over (partition by l.origin ->> 'key', holdfast._line_in(target, l.origin) order by l.id) as nth
      from unnest(_first_of_keys.ids, origins) l(id, origin)) f
    where not f.origin ? 'key' or (f.nth = 1 and not holdfast._has_rival(target, f.origin))
    order by f.id);
end $$;
comment on function holdfast._first_of_keys is
  'Under the lane locks: lock the keys of these dead letters, whose origins are as they will be; returns those without a living message of their key in the target, and of several of one key the first';

create or replace function holdfast._move_back(target holdfast.queue, ids bigint[], at timestamptz)
returns table (id bigint, new_id bigint) language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_xid xid8;
  v_keys text[];
  v_free jsonb;
begin
  select jsonb_object_agg(p.priority, holdfast._ids(target, p.priority)) into v_lanes
  from (select distinct case when target.ordering = 'strict' then target.priority_default
                             else coalesce((m.origin ->> 'priority')::smallint, target.priority_default) end as priority
        from holdfast.message m where m.id = any (_move_back.ids)) p;
  if target.ordering is not null then
    v_keys := array(select holdfast._line_in(target, m.origin) from holdfast.message m where m.id = any (_move_back.ids));
    perform holdfast._lock_keys(holdfast._line_lock(), target.id, v_keys);
  end if;
  v_free := holdfast._free_idempotency_keys(target, _move_back.ids);
  v_xid := pg_current_xact_id();
  return query
    with gone as (
      delete from holdfast.message m where m.id = any (_move_back.ids) returning m.*
    ), numbered as (
      select g.*, nextval((v_lanes ->> case when target.ordering = 'strict' then target.priority_default::text
                                            else coalesce(g.origin ->> 'priority', target.priority_default::text) end)::regclass) as moved_id,
             holdfast._line_in(target, g.origin) as line
      from (select * from gone order by gone.id) g
    ), moved as (
      insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, body, content_type, headers, tag, correlation_id,
                                    max_deliveries, ordering_key, order_no, key, due_at, idempotency_key, payload_hash, last_error, row_of,
                                    origin)
      select n.moved_id, target.id, at, at + target.ttl, n.payload, n.body, n.content_type, n.headers, n.tag, n.correlation_id,
             (n.origin ->> 'max_deliveries')::int, n.line, case when n.line is not null then nextval('holdfast.order_no') end,
             n.origin ->> 'key', case when n.origin ? 'key' then at end, f.key,
             case when f.key is not null then holdfast._payload_hash(n.payload, n.body) end, n.last_error, target.row_of,
             n.origin || jsonb_build_object('redrives', coalesce((n.origin ->> 'redrives')::int, 0) + 1, 'redriven_at', at)
      from numbered n left join lateral (select n.origin ->> 'idempotency_key' as key where v_free -> (n.origin ->> 'idempotency_key') = to_jsonb(n.id)) f on true
      order by n.id
    )
    select n.id, n.moved_id from numbered n order by n.id;
end $$;
comment on function holdfast._move_back is
  'Move dead letters into a queue, under new ids, with their deliveries at zero; ordered ones to the end of their lines';

create or replace function holdfast.discard(queue text, ids bigint[]) returns bigint[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(discard.queue);
  v_grave holdfast.queue;
  v_ids bigint[];
  v_dead bigint[];
  v_lease record;
  v_gone bigint[];
begin
  select q.* into v_grave from holdfast.queue q where q.name = v_queue.dead_letter;
  select coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.id) filter (where m.queue_id = v_grave.id), '{}') into v_ids, v_dead
  from holdfast.message m
  where m.id = any (discard.ids)
    and (m.queue_id = v_queue.id or (m.queue_id = v_grave.id and m.origin ->> 'queue' = v_queue.name));
  -- Whoever holds one learns that it is gone: its id leaves the lease. (A claim that takes it at this moment keeps the id
  -- in its lease; it settles nothing.)
  for v_lease in select distinct h.token, h.part from holdfast._holders(v_ids) h order by 1, 2 loop
    update holdfast.lease l set ids = array(select i from unnest(l.ids) i where i not in (select unnest(v_ids))), lo = null
    where l.token = v_lease.token and l.part = v_lease.part;
  end loop;
  v_gone := holdfast._end(v_queue.id, array(select i from unnest(v_ids) i where i not in (select unnest(v_dead))), 'discarded', holdfast.now());
  -- A dead letter ends in the queue it lies in.
  if v_dead <> '{}' then
    v_dead := holdfast._end(v_grave.id, v_dead, 'discarded', holdfast.now());
    v_gone := v_gone || v_dead;
    if v_grave.kind = 'log' then
      perform holdfast._entomb_in(v_grave, v_dead);
    end if;
  end if;
  return array(select i from unnest(v_gone) i order by i);
end $$;
comment on function holdfast.discard is
  'End messages of this queue, or dead letters that came from it, in whatever state they are; returns those that were there';

-- 76_repair.sql
-- Repairs: dead letters that were read in bulk, mended elsewhere, and are sent back as they should have been.
--
--   open_stage       a place for rows, as in a write (52_stage.sql)
--   (insert)         into holdfast.staged, by COPY: n is the id of a dead letter, the columns are what it is to have
--   check_redrive    takes out the rows whose changes a send would refuse, and says why
--   gather_staged    brings the rows of several stages into one
--   redrive_staged   sends the next of them back, in the order of their ids
--
-- A dead letter is mended and moved in one transaction, if it is still dead and in nobody's hands: so it goes once, however
-- often and by however many it is asked for. All that redrive keeps and leaves, this keeps and leaves. What a row changes
-- must be what a send takes; what it leaves alone passes, as in redrive. columns says which columns of the rows count; payload
-- and body are one of them, and so are key and idempotency_key: to name one is to name both.
-- Lock order: the stage; then as in redrive: ordering keys, keys, idempotency keys, each by bucket; the lanes of the dead letters; rows.

create or replace function holdfast._check_repair(columns text[]) returns void language plpgsql immutable
as $$
declare
  v_unknown text;
begin
  select coalesce(c, 'null') into v_unknown from unnest(columns) c
  where (c <> all ('{payload,body,content_type,headers,priority,correlation_id,tag,max_deliveries,ordering_key,key,idempotency_key}')) is not false;
  if found or columns is null then
    perform holdfast._fail('QH232', 'a repair cannot replace this column', format('Got %s.', left(coalesce(v_unknown, 'null'), 100)),
      'columns takes some of payload, body, content_type, headers, priority, correlation_id, tag, max_deliveries, ordering_key, key, idempotency_key.');
  end if;
end $$;
comment on function holdfast._check_repair is 'Refuse bad names of columns to replace';

create or replace function holdfast._repaired(letter holdfast.message, mended holdfast.staged, columns text[]) returns text[] language sql stable
  return array_remove(array[
    case when columns && '{payload,body}' and (mended).payload is distinct from (letter).payload then 'payload' end,
    case when columns && '{payload,body}' and (mended).body is distinct from (letter).body then 'body' end,
    case when 'content_type' = any (columns) and (mended).content_type is distinct from (letter).content_type then 'content_type' end,
    case when 'headers' = any (columns) and (mended).headers is distinct from (letter).headers then 'headers' end,
    case when 'tag' = any (columns) and (mended).tag is distinct from (letter).tag then 'tag' end,
    case when 'correlation_id' = any (columns) and lower((mended).correlation_id) is distinct from (letter).correlation_id::text then 'correlation_id' end,
    case when 'priority' = any (columns) and (mended).priority is distinct from ((letter).origin ->> 'priority')::int then 'priority' end,
    case when 'max_deliveries' = any (columns) and (mended).max_deliveries is distinct from ((letter).origin ->> 'max_deliveries')::int then 'max_deliveries' end,
    case when 'ordering_key' = any (columns) and (mended).ordering_key is distinct from (letter).origin ->> 'ordering_key' then 'ordering_key' end,
    case when columns && '{key,idempotency_key}' and (mended).key is distinct from (letter).origin ->> 'key' then 'key' end,
    case when columns && '{key,idempotency_key}' and (mended).idempotency_key is distinct from (letter).origin ->> 'idempotency_key' then 'idempotency_key' end],
    null);
comment on function holdfast._repaired is 'Which columns of a dead letter a row changes';

create or replace function holdfast._changes(mended holdfast.staged, repaired text[]) returns holdfast.staged language sql stable
  return (
    (mended).stage, (mended).n,
    case when repaired && '{payload,body}' then (mended).payload end, case when repaired && '{payload,body}' then (mended).body end,
    case when 'content_type' = any (repaired) then (mended).content_type end, case when 'headers' = any (repaired) then (mended).headers end,
    case when 'priority' = any (repaired) then (mended).priority end, null, null, null, null,
    case when 'correlation_id' = any (repaired) then (mended).correlation_id end, case when 'tag' = any (repaired) then (mended).tag end,
    case when 'max_deliveries' = any (repaired) then (mended).max_deliveries end,
    case when 'ordering_key' = any (repaired) then (mended).ordering_key end,
    case when repaired && '{key,idempotency_key}' then (mended).key end,
    case when repaired && '{key,idempotency_key}' then (mended).idempotency_key end, null)::holdfast.staged;
comment on function holdfast._changes is 'A row with what it changes, and nothing else';

create or replace function holdfast._dubious_repairs(
  queue holdfast.queue, target holdfast.queue, stage bigint, after bigint, upto bigint, columns text[], at timestamptz)
returns table (change holdfast.staged, emptied boolean) language plpgsql stable
as $$
declare
  v_grave int := (select q.id from holdfast.queue q where q.name = queue.dead_letter);
begin
  return query
    select c.change, c.emptied from (
      select holdfast._changes(s, r.repaired) as change,
             r.repaired && '{payload,body}' and s.payload is null and s.body is null as emptied
      from holdfast.staged s
        cross join lateral (select m.* from holdfast.message m
                            where m.id = s.n and m.queue_id = v_grave and m.origin ->> 'queue' = queue.name offset 0) m
        cross join lateral (select holdfast._repaired(m, s, columns) as repaired offset 0) r
      where s.stage = _dubious_repairs.stage and s.n > _dubious_repairs.after and s.n <= _dubious_repairs.upto and r.repaired <> '{}'
      offset 0) c
    where c.emptied or holdfast._suspect(c.change, target.max_payload, false, target.ordering, target.priority_default, at,
      target.seal_key is not null and num_nonnulls((c.change).payload, (c.change).body) > 0);
end $$;
comment on function holdfast._dubious_repairs is
  'Rows of a stage, as what they change of dead letters, that a send may refuse. emptied: what had a payload or a body has none';

create or replace function holdfast._repair_refusal(
  change holdfast.staged, emptied boolean, target holdfast.queue, at timestamptz, out code text, out reason text)
language plpgsql stable
as $$
begin
  if emptied then
    code := 'QH203';
    reason := 'the repair leaves neither payload nor body: A message that had one has to keep one; JSON''s null is one.';
  else
    -- What it leaves alone may be there in clear: it was sent before the queue had a key.
    if num_nonnulls(change.payload, change.body) = 0 then
      target.seal_key := null;
    end if;
    select r.code, r.reason into _repair_refusal.code, _repair_refusal.reason from holdfast._refusal(change, target, at) r;
  end if;
end $$;
comment on function holdfast._repair_refusal is 'Why a change of a dead letter is refused; nulls: it is not';

create or replace function holdfast.check_redrive(
  queue text, stage bigint, columns text[], target text default null, after bigint default 0)
returns table (n bigint, code text, message text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(check_redrive.queue);
  v_target holdfast.queue := holdfast._redrive_target(v_queue, check_redrive.target);
  v_now timestamptz := holdfast.now();
  v_dubious record;
begin
  perform holdfast._check_buries(v_queue);
  perform holdfast._check_repair(columns);
  if holdfast._hold_stages(array[check_redrive.stage]) = '{}' then
    return;
  end if;
  for v_dubious in
    select d.change, d.emptied from holdfast._dubious_repairs(v_queue, v_target, check_redrive.stage, check_redrive.after, 9223372036854775807, columns, v_now) d
  loop
    select r.code, r.reason into check_redrive.code, check_redrive.message
    from holdfast._repair_refusal(v_dubious.change, v_dubious.emptied, v_target, v_now) r;
    continue when check_redrive.code is null;
    n := (v_dubious.change).n;
    return next;
    delete from holdfast.staged s where s.stage = check_redrive.stage and s.n = (v_dubious.change).n;
  end loop;
end $$;
comment on function holdfast.check_redrive is
  'Takes those rows out of a stage, from the one after an id on, whose changes of dead letters a send to the queue, or to target, would refuse; returns them with the reason';

create or replace function holdfast.gather_staged(stages bigint[], messages bigint) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_found bigint;
  v_twice bigint;
begin
  stages := holdfast._hold_stages(stages);
  v_found := (select count(*) from holdfast.staged s where s.stage = any (stages));
  if v_found is distinct from messages then
    perform holdfast._fail('QH231', 'staged messages are missing', format('%s of %s are there.', v_found, coalesce(messages::text, 'null')),
      'The server was restarted, or the write took over a day: run it again. Nothing was sent.');
  end if;
  if cardinality(stages) > 1 then
    select s.n into v_twice from holdfast.staged s where s.stage = any (stages) group by s.n having count(*) > 1 limit 1;
    if found then
      perform holdfast._fail('QH232', 'a dead letter is repaired in two ways', format('Message %s is there more than once.', v_twice),
        'Each dead letter may have one row.');
    end if;
    update holdfast.staged s set stage = stages[1] where s.stage = any (stages[2:]);
  end if;
  return stages[1];
end $$;
comment on function holdfast.gather_staged is
  'Bring the rows of several stages into the first of them, whose number it returns. messages: how many there must be. No two may have the same number';

create or replace function holdfast._mended(grave holdfast.queue, queue text, stage bigint, ids bigint[], columns text[])
returns table (id bigint, origin jsonb) language plpgsql stable
as $$
declare
  v_routing text[] := array(select r from unnest('{priority,max_deliveries,ordering_key,key,idempotency_key}'::text[]) r
    where r = any (columns) or (columns && '{key,idempotency_key}' and r in ('key', 'idempotency_key')));
begin
  return query
    select m.id, m.origin - v_routing || jsonb_strip_nulls(jsonb_build_object(
      'priority', case when 'priority' = any (v_routing) then s.priority end,
      'max_deliveries', case when 'max_deliveries' = any (v_routing) then s.max_deliveries end,
      'ordering_key', case when 'ordering_key' = any (v_routing) then s.ordering_key end,
      'key', case when 'key' = any (v_routing) then s.key end,
      'idempotency_key', case when 'idempotency_key' = any (v_routing) then s.idempotency_key end))
    from unnest(_mended.ids) i(id)
      cross join lateral (select m.id, m.origin from holdfast.message m
                          where m.id = i.id and m.queue_id = grave.id and m.origin ->> 'queue' = _mended.queue offset 0) m
      cross join lateral (select s.* from holdfast.staged s where s.stage = _mended.stage and s.n = i.id offset 0) s;
end $$;
comment on function holdfast._mended is 'Those of these messages that are dead letters of a queue, with their origins as they will be: where they go, and in which line';

create or replace function holdfast._mend(grave holdfast.queue, queue text, stage bigint, ids bigint[], columns text[]) returns void
language plpgsql volatile
as $$
begin
  update holdfast.message m set
    payload = case when columns && '{payload,body}' then s.payload else m.payload end,
    body = case when columns && '{payload,body}' then s.body else m.body end,
    content_type = case when 'content_type' = any (columns) then s.content_type else m.content_type end,
    headers = case when 'headers' = any (columns) then s.headers else m.headers end,
    tag = case when 'tag' = any (columns) then s.tag else m.tag end,
    correlation_id = case when 'correlation_id' = any (columns) then s.correlation_id::uuid else m.correlation_id end,
    origin = e.origin || jsonb_build_object('repaired', holdfast._repaired(m, s, columns))
  from holdfast.staged s, holdfast._mended(grave, _mend.queue, _mend.stage, _mend.ids, columns) e
  where s.stage = _mend.stage and s.n = e.id and m.id = e.id and holdfast._repaired(m, s, columns) <> '{}';
end $$;
comment on function holdfast._mend is 'Give locked dead letters what the rows of a stage say; origin.repaired names what has changed';

create or replace function holdfast._next_staged(stage bigint, after bigint, "limit" int, at timestamptz) returns bigint[] language plpgsql volatile
as $$
begin
  -- What is sent back slowly may take days; maintain() takes stages for abandoned that nobody has touched for one.
  update holdfast.stage t set opened_at = at where t.id = _next_staged.stage and t.opened_at < at - interval '1 hour';
  if holdfast._hold_stages(array[_next_staged.stage]) = '{}' then
    perform holdfast._fail('QH231', 'staged messages are missing', format('There is no stage %s.', coalesce(_next_staged.stage::text, 'null')),
      'The server was restarted, or nobody asked for a day: stage them anew. What was sent back is sent back.');
  end if;
  return array(select s.n from holdfast.staged s where s.stage = _next_staged.stage and s.n > _next_staged.after order by s.n limit _next_staged."limit");
end $$;
comment on function holdfast._next_staged is 'The numbers of the next rows of a stage, which is kept alive by this';

create or replace function holdfast.redrive_staged(
  queue text, stage bigint, columns text[] default '{}', target text default null, after bigint default 0, "limit" int default 1000)
returns table (id bigint, new_id bigint, stays text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(redrive_staged.queue);
  v_target holdfast.queue := holdfast._redrive_target(v_queue, redrive_staged.target);
  v_now timestamptz := holdfast.now();
  v_grave holdfast.queue;
  v_lanes int[];
  v_ids bigint[];
  v_dead bigint[];
  v_free bigint[];
  v_go bigint[];
begin
  perform holdfast._check_buries(v_queue);
  perform holdfast._check_limit("limit");
  perform holdfast._check_repair(columns);
  perform holdfast._check_isolation('redrive_staged');
  v_ids := holdfast._next_staged(redrive_staged.stage, redrive_staged.after, "limit", v_now);
  select q.* into v_grave from holdfast.queue q where q.name = v_queue.dead_letter;
  -- Before the lane locks: whoever has sent with one of these keys and is still open is waited for.
  perform holdfast._lock_keys(holdfast._line_lock(), v_target.id, array_agg(holdfast._line_in(v_target, e.origin))),
          holdfast._lock_keys(holdfast._key_lock(), v_target.id, array_agg(e.origin ->> 'key')),
          holdfast._lock_keys(holdfast._idempotency_lock(), v_target.id, array_agg(e.origin ->> 'idempotency_key'))
  from holdfast._mended(v_grave, v_queue.name, redrive_staged.stage, v_ids, columns) e;
  v_lanes := holdfast._await_graves(v_grave);
  v_dead := array(select e.id from holdfast._mended(v_grave, v_queue.name, redrive_staged.stage, v_ids, columns) e);
  v_free := holdfast._unheld(array(select i from unnest(v_dead) i where i >> 40 = any (v_lanes)));
  select holdfast._first_of_keys(v_target, array_agg(e.id), array_agg(e.origin - 'error')) into v_go
  from holdfast._mended(v_grave, v_queue.name, redrive_staged.stage, v_free, columns) e;
  if v_go <> '{}' and columns <> '{}' then
    perform holdfast._check_repairs(v_queue, v_target, redrive_staged.stage, redrive_staged.after, v_ids[cardinality(v_ids)], columns, v_now);
    perform holdfast._mend(v_grave, v_queue.name, redrive_staged.stage, v_go, columns);
  end if;
  if v_go <> '{}' then
    return query select b.id, b.new_id, null::text from holdfast._send_back(v_target, v_grave, v_go) b;
  end if;
  return query
    select i, null::bigint, case when i not in (select unnest(v_dead)) then 'gone' when i not in (select unnest(v_free)) then 'held' else 'key' end
    from unnest(v_ids) i where i not in (select unnest(v_go)) order by i;
end $$;
comment on function holdfast.redrive_staged is
  'Send the next dead letters of a stage back, or to target, with what its rows say of columns: those with the lowest ids above after. stays: why one was not: gone, held or key';

create or replace function holdfast._check_repairs(
  queue holdfast.queue, target holdfast.queue, stage bigint, after bigint, upto bigint, columns text[], at timestamptz) returns void
language plpgsql stable
as $$
declare
  v_bad record;
begin
  select (d.change).n as id, r.code, r.reason into v_bad
  from holdfast._dubious_repairs(queue, target, _check_repairs.stage, after, upto, columns, at) d
    cross join lateral holdfast._repair_refusal(d.change, d.emptied, target, at) r
  where r.code is not null limit 1;
  if found then
    perform holdfast._fail(v_bad.code, 'a repair is refused', format('Dead letter %s: %s', v_bad.id, v_bad.reason), 'Let check_redrive take out such rows first.');
  end if;
end $$;
comment on function holdfast._check_repairs is 'Refuse changes of dead letters that a send would refuse';

-- 77_expire.sql
-- Expiry: messages whose time to live is over end, also when nobody claims.
--
-- claim ends what it meets; this is maintain()'s part, and expire() does it for one queue on request. It walks the index of messages with a time to live, lane by
-- lane under the lane lock, so that no claim takes a message while it ends. What somebody has locked is left for later.
-- A message in flight is passed over, unless the queue says expire_in_flight; so is a dead head that blocks its line.
--
-- The walk goes on from where it stopped, by (expires_at, id). Having come to the end it starts from the bottom again:
-- at once while that is cheap; where dead index entries make it dear (a held snapshot), 20 times as long as it took
-- has to pass first. What was passed over, and what a late commit has put below, waits for that.

create or replace function holdfast._pass_missing(lane holdfast.lane, at timestamptz) returns void language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint := holdfast._advance(lane);
  v_last bigint := coalesce(pg_sequence_last_value(lane.ids), 0);
  v_first bigint;
begin
  select m.id into v_first from holdfast.message m where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1;
  v_first := coalesce(v_first, v_last + 1);
  if v_first > v_start then
    -- Some of these ids may belong to sends that are still open.
    perform holdfast._open_gaps(lane, array[v_start], array[v_first - 1], v_clean);
    perform holdfast._pass_to(lane, v_first, at);
  end if;
end $$;
comment on function holdfast._pass_missing is
  'Under the lane lock: let the cursor pass ids at its place that are not there any more, or not yet, and write them down as a gap: no claim walks over their remains';

create or replace function holdfast._expire_chunk(
  lane holdfast.lane, queue holdfast.queue, start bigint, at timestamptz, "limit" int, inout from_at timestamptz, inout from_id bigint,
  out met int, out ended bigint[], out dear boolean)
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_free bigint[];
  v_held bigint[];
begin
  with met as materialized (
    select m.id, m.expires_at, m.blocks_since is not null as dead,
           (m.due_at > '-infinity') is true or (m.due_at is null and (m.id >= start or coalesce((
             select g.hi >= m.id from holdfast.gap g where g.lane_id = lane.id and g.lo <= m.id order by g.lo desc limit 1), false))) as free
    from holdfast.message m
    where m.id >> 40 = lane.id and (m.expires_at, m.id) > (from_at, from_id) and m.expires_at <= at
    order by m.expires_at, m.id limit _expire_chunk."limit"
  )
  select coalesce(array_agg(c.id) filter (where c.free and not c.dead), '{}'),
         coalesce(array_agg(c.id) filter (where not c.free and not c.dead), '{}'), count(*),
         coalesce(max(c.expires_at), from_at), coalesce((array_agg(c.id))[count(*)::int], from_id)
  into v_free, v_held, met, from_at, from_id from met c;
  dear := clock_timestamp() > v_began + (300 + 5 * met) * interval '1 microsecond';
  v_free := array(select m.id from holdfast.message m where m.id = any (v_free) and m.expires_at <= at and m.blocks_since is null
                  for update skip locked);
  if lane.ordering is not null then
    -- The end of a head passes the baton: not while somebody has its successor locked.
    v_free := holdfast._can_end(lane.queue_id, v_free);
    v_held := holdfast._can_end(lane.queue_id, v_held);
  end if;
  if queue.expire_in_flight and v_held <> '{}' then
    v_free := v_free || holdfast._take_from_leases(v_held);
  end if;
  ended := case when v_free = '{}' then v_free else holdfast._end(lane.queue_id, v_free, 'expired', at) end;
end $$;
comment on function holdfast._expire_chunk is
  'Under the lane lock: end the next messages that are past their time to live, at most so many, and say where to go on';

create or replace function holdfast._expire(lane holdfast.lane, at timestamptz, "limit" int, out expired int, out more boolean)
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_queue holdfast.queue;
  v_start bigint := holdfast._advance(lane);
  v_walk bigint := coalesce(pg_sequence_last_value(lane.expiry_walk), 0);
  v_from timestamptz := coalesce(holdfast._time(nullif(pg_sequence_last_value(lane.expiry_at), 0)), '-infinity');
  v_id bigint := coalesce(pg_sequence_last_value(lane.expiry_id), 0);
  v_chunk record;
  v_size int;
  v_ahead boolean := false;
  v_dear boolean := false;
begin
  expired := 0;
  more := false;
  select q.* into v_queue from holdfast.queue q where q.id = lane.queue_id;
  if v_from > at or (v_walk > 0 and v_walk not between holdfast._us(v_began) and holdfast._us(v_began) + 60000000) then
    v_from := '-infinity';
    v_id := 0;
    v_walk := 0;
  end if;
  loop
    v_size := least(1000, "limit" - expired);
    v_chunk := holdfast._expire_chunk(lane, v_queue, v_start, at, v_size, v_from, v_id);
    v_from := v_chunk.from_at;
    v_id := v_chunk.from_id;
    expired := expired + cardinality(v_chunk.ended);
    v_ahead := v_ahead or v_start <= any (v_chunk.ended);
    v_dear := v_dear or v_chunk.dear;
    exit when v_chunk.met < v_size;
    more := expired >= "limit" or clock_timestamp() > v_began + interval '20 ms';
    exit when more;
  end loop;
  if not more then
    -- Come to the end. While the walk is cheap, the next one starts from the bottom; else only what expires from now on is met.
    if v_dear and v_walk = 0 then
      v_walk := holdfast._us(clock_timestamp() + 20 * (clock_timestamp() - v_began));
    end if;
    v_from := case when v_walk > 0 then at else '-infinity' end;
    v_id := case when v_walk > 0 then (lane.id + 1)::bigint << 40 else 0 end;
  end if;
  perform setval(lane.expiry_at, case when v_from > 'epoch' then holdfast._us(v_from) else 0 end), setval(lane.expiry_id, v_id),
          setval(lane.expiry_walk, v_walk);
  if v_ahead then
    perform holdfast._pass_missing(lane, at);
  end if;
end $$;
comment on function holdfast._expire is
  'Under the lane lock: end messages that are past their time to live, at most so many, and for about 20 ms at most. more: not all of them were looked at';

create or replace function holdfast.expire(queue text, "limit" int default 10000) returns table (expired int, more boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(expire.queue);
  v_lane holdfast.lane;
  v_did record;
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('expire');
  perform holdfast._limit_transaction();
  expired := 0;
  more := false;
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id order by l.id loop
    exit when expired >= "limit";
    if not holdfast._await_lane(v_lane) or holdfast._boot_lane(v_lane) then
      more := true;
      continue;
    end if;
    v_did := holdfast._expire(v_lane, holdfast.now(), "limit" - expired);
    expired := expired + v_did.expired;
    more := more or v_did.more;
  end loop;
  more := more or expired >= "limit";
  return next;
end $$;
comment on function holdfast.expire is
  'End messages of a queue that are past their time to live, now; at most limit a call. Call it again while more is true. maintain does this by itself';

-- 77_unblock.sql
-- Blocked keys: lines that wait behind their head, and what to do about a dead one (on_dead = block).
--
-- A dead head that blocks its line stays in the queue, parked, with blocks_since set: so it still has its place, and a
-- retry delivers it before everything that waits behind it. Its time to live stands still from its death to the retry:
-- it would be wrong to let it expire while somebody is to decide about it.

create or replace function holdfast._waiting(queue_id int, ordering_key text, order_no bigint) returns bigint language plpgsql stable
as $$
begin
  return (select count(*) from (select from holdfast.message m where m.queue_id = _waiting.queue_id and m.ordering_key = _waiting.ordering_key
                                and m.order_no > _waiting.order_no order by m.order_no limit 10001) w);
end $$;
comment on function holdfast._waiting is 'How many messages stand behind this one in its line; 10,001 means more';

create or replace function holdfast._heads_of_parked(queue_id int, "limit" int) returns setof holdfast.message language plpgsql stable
as $$
declare
  v_keys text[];
begin
  -- Lines are found by what is parked in them; of that, a bounded number is looked at in each lane.
  v_keys := array(
    select distinct p.ordering_key from holdfast.lane l cross join lateral (
      select m.ordering_key from holdfast.message m where m.id >> 40 = l.id and m.due_at = 'infinity' order by m.due_at, m.id limit 10000) p
    where l.queue_id = _heads_of_parked.queue_id and p.ordering_key is not null limit _heads_of_parked."limit");
  return query
    select f.* from unnest(v_keys) k(key) cross join lateral (
      select m.* from holdfast.message m where m.queue_id = _heads_of_parked.queue_id and m.ordering_key = k.key order by m.order_no limit 1) f
    where f.blocks_since is null;
end $$;
comment on function holdfast._heads_of_parked is 'The living heads of lines in which somebody is parked';

create or replace function holdfast.blocked_keys(queue text, "limit" int default 100)
returns table (key text, head bigint, since timestamptz, waiting bigint, reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(blocked_keys.queue);
begin
  perform holdfast._check_limit("limit");
  return query
    with dead as (
      select m.* from holdfast.message m where m.queue_id = v_queue.id and m.blocks_since is not null
      order by m.ordering_key limit blocked_keys."limit"
    ), blocking as (
      select d.ordering_key, d.id, d.order_no, d.blocks_since as since, 'dead' as reason from dead d
      union all
      (select h.ordering_key, h.id, h.order_no, h.enqueued_at,
              case when exists (select from holdfast._holders(array[h.id])) then 'in_flight'
                   when h.due_at > holdfast.now() then 'scheduled' else 'ready' end
       from holdfast._heads_of_parked(v_queue.id, "limit") h)
      limit blocked_keys."limit"
    )
    select nullif(b.ordering_key, ''), b.id, b.since, holdfast._waiting(v_queue.id, b.ordering_key, b.order_no), b.reason from blocking b;
end $$;
comment on function holdfast.blocked_keys is
  'Lines that wait behind their head: dead ones first, which wait for unblock(), then those whose head is in flight, scheduled or ready';

create or replace function holdfast.unblock(queue text, key text default null, how text default 'retry') returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(unblock.queue);
  v_now timestamptz := holdfast.now();
  v_id bigint;
begin
  if how is null or how not in ('retry', 'skip') then
    perform holdfast._fail('QH311', 'unknown way to unblock a key', format('Got %s.', coalesce(quote_literal(left(how, 50)), 'null')),
      'how takes retry (deliver the dead message again) or skip (move it to the dead letters).');
  end if;
  perform holdfast._check_isolation('unblock');
  select m.id into v_id from holdfast.message m
  where m.queue_id = v_queue.id and m.ordering_key = coalesce(unblock.key, '') and m.blocks_since is not null for update;
  if not found then
    perform holdfast._fail('QH312', 'no dead message blocks this key', format('Queue "%s", key %s.', v_queue.name, coalesce(quote_literal(left(unblock.key, 200)), 'null')),
      'holdfast.blocked_keys lists the keys that are blocked. Somebody may have unblocked it before.');
  end if;
  if how = 'skip' then
    v_queue.on_dead := 'continue';
    perform holdfast._bury(v_queue, array[v_id], v_now);
  else
    update holdfast.message m set
      due_at = v_now, blocks_since = null, deliveries = 0, failures = 0,
      -- One that died after its time gets the queue's, as a dead letter does that is sent back: it is to be delivered.
      expires_at = case when m.expires_at > m.blocks_since then m.expires_at + (v_now - m.blocks_since)
                        when m.expires_at is not null then v_now + v_queue.ttl end
    where m.id = v_id;
  end if;
  perform holdfast._wake(v_queue);
  return v_id;
end $$;
comment on function holdfast.unblock is
  'Let a line go on that a dead message blocks. retry: deliver it again, with its deliveries at zero; skip: move it to the dead letters. A strict queue has one line: key null. Returns its id';

-- 78_purge.sql
-- Purging: end all messages of a queue that are in some state, a bounded number a call.
--
-- What is purged ends as discarded, so a queue that keeps that keeps it. Under the lane lock; what somebody has locked
-- (an ack in an open transaction) is left alone, and so is an ordered message whose successor somebody has locked: its end
-- would wait for that, and the lane with it. The cursor passes fresh messages that were purged: sends that were
-- open then are written down as gaps, never jumped over.
--
-- forget deletes from the archive alone, what has ended in some way before some time.

create or replace function holdfast._check_purge(states text[]) returns void language plpgsql immutable
as $$
declare
  v_known text[] := '{ready,scheduled,blocked,in_flight,dead,archive}';
begin
  if states is null or states = '{}' or not states <@ v_known then
    perform holdfast._fail('QH410', 'purge needs the states to purge', format('Got %s.', coalesce(quote_literal(left(states::text, 100)), 'null')),
      'states takes one or more of ready, scheduled, blocked, in_flight, dead, archive.');
  end if;
end $$;
comment on function holdfast._check_purge is 'Refuse bad states of purge';

create or replace function holdfast._end_purged(lane holdfast.lane, ids bigint[], at timestamptz) returns int language plpgsql volatile
as $$
begin
  if lane.ordering is not null then
    ids := holdfast._can_end(lane.queue_id, ids);
  end if;
  return cardinality(holdfast._end(lane.queue_id, ids, 'discarded', at));
end $$;
comment on function holdfast._end_purged is 'Under the lane lock: end these locked messages, but for those that would wait for somebody; returns how many';

create or replace function holdfast._purge_fresh(lane holdfast.lane, "limit" int, at timestamptz, out gone int, out passed int)
language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint := holdfast._advance(lane);
  v_scan record;
  v_free bigint[];
begin
  -- One statement, one snapshot, as in a claim: what is missing in it is a gap.
  with present as (
    select m.id, m.due_at, coalesce(lag(m.id) over (order by m.id), v_start - 1) as before from holdfast.message m
    where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit _purge_fresh."limit"
  )
  select coalesce(array_agg(p.id) filter (where p.due_at is null), '{}') as fresh, max(p.id) + 1 as next, count(*)::int as seen,
         coalesce(array_agg(p.before + 1) filter (where p.id > p.before + 1), '{}') as gap_lo,
         coalesce(array_agg(p.id - 1) filter (where p.id > p.before + 1), '{}') as gap_hi
  into v_scan from present p;
  gone := 0;
  passed := v_scan.seen;
  if passed = 0 then
    return;
  end if;
  v_free := array(select m.id from holdfast.message m where m.id = any (v_scan.fresh) for update skip locked);
  if lane.ordering is not null then
    v_free := holdfast._can_end(lane.queue_id, v_free);
  end if;
  gone := cardinality(holdfast._end(lane.queue_id, v_free, 'discarded', at));
  -- Locked by somebody who may let go of it: for claims to find again.
  v_free := array(select i from unnest(v_scan.fresh) i where i not in (select unnest(v_free)));
  if v_free <> '{}' or v_scan.gap_lo <> '{}' then
    perform holdfast._open_gaps(lane, v_scan.gap_lo || v_free, v_scan.gap_hi || v_free, v_clean);
  end if;
  perform holdfast._pass_to(lane, v_scan.next, at);
end $$;
comment on function holdfast._purge_fresh is
  'Under the lane lock: end the next fresh messages and let the cursor pass them. passed: how many messages it went by, scheduled ones included';

create or replace function holdfast._purge_due(lane holdfast.lane, lo timestamptz, hi timestamptz, "limit" int, at timestamptz) returns int
language plpgsql volatile
as $$
begin
  return holdfast._end_purged(lane, array(
    select m.id from holdfast.message m where m.id >> 40 = lane.id and m.due_at > lo and m.due_at <= hi
    order by m.due_at, m.id limit _purge_due."limit" for update skip locked), at);
end $$;
comment on function holdfast._purge_due is 'Under the lane lock: end messages that are due between two times';

create or replace function holdfast._seize(ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_held bigint[] := array(select h.id from holdfast._holders(_seize.ids) h);
begin
  return array(select m.id from holdfast.message m where m.id = any (_seize.ids) and m.id <> all (v_held) for update skip locked)
         || holdfast._take_from_leases(v_held);
end $$;
comment on function holdfast._seize is 'Under the lane lock: lock messages, and take those that are held out of their leases; returns those got';

create or replace function holdfast._purge_in_flight(lane holdfast.lane, "limit" int, at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_ids bigint[];
begin
  v_ids := array(
    select i from (select l.ids from holdfast.lease l where l.lane_id = lane.id and l.ids <> '{}'
                   order by l.deadline limit _purge_in_flight."limit" for update skip locked) l
      cross join lateral unnest(l.ids) i
    limit _purge_in_flight."limit");
  if lane.ordering is not null then
    -- First: what was taken out of a lease has to end.
    v_ids := holdfast._can_end(lane.queue_id, v_ids);
  end if;
  return cardinality(holdfast._end(lane.queue_id, holdfast._take_from_leases(v_ids), 'discarded', at));
end $$;
comment on function holdfast._purge_in_flight is 'Under the lane lock: end messages that are in flight; their ids leave the leases';

create or replace function holdfast._is_left(lane holdfast.lane, states text[], at timestamptz) returns boolean language plpgsql volatile
as $$
begin
  return ('in_flight' = any (states) and exists (
           select from holdfast.lease l cross join lateral unnest(l.ids) i join holdfast.message m on m.id = i where l.lane_id = lane.id))
      or ('blocked' = any (states) and exists (select from holdfast.message m where m.id >> 40 = lane.id and m.due_at = 'infinity'))
      or ('scheduled' = any (states) and exists (
           select from holdfast.message m where m.id >> 40 = lane.id and m.due_at > at and m.due_at < 'infinity'))
      or ('ready' = any (states) and (exists (
           select from holdfast.message m where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at <= at)
         or exists (select from holdfast._in_gaps(lane))));
end $$;
comment on function holdfast._is_left is 'After a purge of an ordered lane: has it left a message in these states, since its end would have waited for somebody?';

create or replace function holdfast._purge_lane(lane holdfast.lane, states text[], "limit" int, at timestamptz, out gone int, out more boolean)
language plpgsql volatile
as $$
declare
  v_fresh record;
begin
  gone := 0;
  more := false;
  if 'in_flight' = any (states) then
    gone := holdfast._purge_in_flight(lane, "limit", at);
  end if;
  if 'blocked' = any (states) and gone < "limit" then
    gone := gone + holdfast._purge_due(lane, '294276-12-31 23:59:59.999999 UTC', 'infinity', "limit" - gone, at);
  end if;
  if 'scheduled' = any (states) and gone < "limit" then
    gone := gone + holdfast._purge_due(lane, at, '294276-12-31 23:59:59.999999 UTC', "limit" - gone, at);
  end if;
  if 'ready' = any (states) and gone < "limit" then
    gone := gone + holdfast._purge_due(lane, '-infinity', at, "limit" - gone, at);
    gone := gone + holdfast._end_purged(lane, array(
      select m.id from holdfast.message m where m.id = any (array(select g.id from holdfast._in_gaps(lane) g limit greatest("limit" - gone, 0)))
      for update skip locked), at);
    if gone < "limit" then
      v_fresh := holdfast._purge_fresh(lane, "limit" - gone, at);
      more := v_fresh.passed = "limit" - gone;
      gone := gone + v_fresh.gone;
    end if;
  end if;
  more := more or gone >= "limit" or (lane.ordering is not null and holdfast._is_left(lane, states, at));
end $$;
comment on function holdfast._purge_lane is 'Under the lane lock: end messages in these states. more: there may be others';

create or replace function holdfast._purge_dead(queue holdfast.queue, "limit" int, at timestamptz, out gone int, out more boolean)
language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
  v_ids bigint[];
begin
  gone := 0;
  more := false;
  select q.* into v_grave from holdfast.queue q where q.name = queue.dead_letter;
  if not found then
    return;
  end if;
  select coalesce(bool_or(not holdfast._await_lane(l) or holdfast._boot_lane(l)), false) into more
  from (select l.* from holdfast.lane l where l.queue_id = v_grave.id order by l.id) l;
  if not more then
    v_ids := array(select d.id from holdfast._dead(v_grave, queue.name, null, null, "limit") d);
    gone := cardinality(holdfast._end(v_grave.id, holdfast._seize(v_ids), 'discarded', at));
    more := gone >= "limit";
  end if;
end $$;
comment on function holdfast._purge_dead is 'End dead letters that came from this queue';

create or replace function holdfast.purge(queue text, states text[], "limit" int default 10000) returns table (purged int, more boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(purge.queue);
  v_now timestamptz := holdfast.now();
  v_lane holdfast.lane;
  v_did record;
begin
  perform holdfast._check_purge(states);
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('purge');
  purged := 0;
  more := false;
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id and states && '{ready,scheduled,blocked,in_flight}' order by l.id loop
    exit when purged >= "limit";
    if not holdfast._await_lane(v_lane) or holdfast._boot_lane(v_lane) then
      more := true;
      continue;
    end if;
    v_did := holdfast._purge_lane(v_lane, states, "limit" - purged, v_now);
    purged := purged + v_did.gone;
    more := more or v_did.more;
  end loop;
  if 'dead' = any (states) and purged < "limit" then
    v_did := holdfast._purge_dead(v_queue, "limit" - purged, v_now);
    purged := purged + v_did.gone;
    more := more or v_did.more;
  end if;
  if 'archive' = any (states) and purged < "limit" then
    purged := purged + holdfast._forget('infinity', v_queue.id, "limit" - purged);
  end if;
  more := more or purged >= "limit";
  return next;
end $$;
comment on function holdfast.purge is
  'End messages of a queue that are in these states, as discarded, and delete what the archive holds of it; at most limit a call. Call it again while more is true';

create or replace function holdfast._check_forget(outcomes text[], "limit" int) returns void language plpgsql immutable
as $$
begin
  if not outcomes <@ '{done,expired,failed,discarded}' or outcomes = '{}' then
    perform holdfast._fail('QH410', 'unknown outcome', format('Got %s.', quote_literal(left(outcomes::text, 100))),
      'outcomes takes one or more of done, expired, failed, discarded; null for all.');
  end if;
  perform holdfast._check_limit("limit");
end $$;
comment on function holdfast._check_forget is 'Refuse bad arguments of forget';

create or replace function holdfast.forget(queue text, outcomes text[] default null, before timestamptz default null, "limit" int default 10000)
returns table (forgotten int, more boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(forget.queue);
  v_before timestamptz := coalesce(forget.before, 'infinity');
  v_outcome text;
begin
  perform holdfast._check_forget(outcomes, "limit");
  perform holdfast._check_isolation('forget');
  forgotten := 0;
  -- One null: all that the archive holds of the queue.
  for v_outcome in select distinct o from unnest(coalesce(outcomes, '{null}')) o loop
    exit when forgotten >= "limit";
    forgotten := forgotten + holdfast._forget(v_before, v_queue.id, "limit" - forgotten, v_outcome);
  end loop;
  more := forgotten >= "limit";
  return next;
end $$;
comment on function holdfast.forget is
  'Delete from the archive what has ended in these ways (null: all) before a time (null: any), the first to end first; at most limit a call. Call it again while more is true';

-- 79_replay.sql
-- Replaying: messages of the archive sent once more, as new messages. The archive stays as it is.
--
--   replay          out of the archive, a page at a time
--   replay_staged   out of a stage (52_stage.sql): rows that were in an archive, in the database or elsewhere, each with its origin
--
-- Lock order: the target's row, then the line of a strict target, as a send does; replay_staged as send_staged.

create or replace function holdfast._check_replay("from" timestamptz, "to" timestamptz, outcomes text[]) returns void
language plpgsql immutable
as $$
begin
  if not outcomes <@ '{done,expired,failed,discarded}' or outcomes = '{}' then
    perform holdfast._fail('QH411', 'unknown outcome', format('Got %s.', quote_literal(left(outcomes::text, 100))),
      'outcomes takes one or more of done, expired, failed, discarded; null for all.');
  end if;
  if "from" > "to" then
    perform holdfast._fail('QH411', 'the period ends before it begins', format('Got %s to %s.', "from", "to"),
      'Messages are replayed that ended at from or later, and before to.');
  end if;
end $$;
comment on function holdfast._check_replay is 'Refuse bad arguments of replay';

create or replace function holdfast.replay(
  queue text, "from" timestamptz default null, "to" timestamptz default null, outcomes text[] default null, "limit" int default 1000,
  target text default null, after bigint default null)
returns table (id bigint, new_id bigint, ended_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(replay.queue);
  v_target holdfast.queue;
  v_found record;
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_replay("from", "to", outcomes);
  -- Nobody drops the target while messages are sent to it.
  select q.* into v_target from holdfast.queue q where q.name = coalesce(replay.target, replay.queue) for key share;
  if not found and replay.target is null then
    perform holdfast._no_queue(replay.queue);
  elsif not found then
    perform holdfast._fail('QH411', format('target queue "%s" does not exist', left(replay.target, 200)), 'Nothing was sent.',
      'Create it with holdfast.create_queue, or check the spelling.');
  end if;
  -- A log has one lane, and its numbers are drawn by appends alone.
  if v_target.kind = 'log' then
    perform holdfast._not_a_queue(v_target.name);
  end if;
  select array_agg(f.id) as ids, min(f.ended_at) as first, max(f.ended_at) as last into v_found from (
    select a.id, a.ended_at from holdfast.archive a
    where a.queue_id = v_queue.id and a.ended_at >= coalesce("from", '-infinity') and a.ended_at < coalesce("to", 'infinity')
      and (a.ended_at, a.id) > (coalesce("from", '-infinity'), coalesce(replay.after, 0))
      and (outcomes is null or a.outcome = any (outcomes))
    order by a.ended_at, a.id limit replay."limit") f;
  if v_found.ids is null then
    return;
  end if;
  -- Before ids and numbers are drawn, as in a send.
  if v_target.ordering = 'strict' then
    perform holdfast._lock_keys(holdfast._line_lock(), v_target.id, '{""}');
  end if;
  return query select r.* from holdfast._resend(v_queue, v_target, v_found.ids, v_found.first, v_found.last, holdfast.now()) r;
  perform holdfast._wake(v_target);
end $$;
comment on function holdfast.replay is
  'Send messages once more that ended in a period and were kept, the first to end first, under new ids, to the queue or to target. To go on, pass the last ended_at as from and the last id as after';

create or replace function holdfast._resend(queue holdfast.queue, target holdfast.queue, ids bigint[], first timestamptz, last timestamptz, at timestamptz)
returns table (id bigint, new_id bigint, ended_at timestamptz) language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_xid xid8;
begin
  -- A strict queue is one line, in one lane.
  select jsonb_object_agg(l.priority, holdfast._ids(target, case when target.ordering = 'strict' then target.priority_default else l.priority end))
  into v_lanes
  from (select distinct l.priority from unnest(_resend.ids) i(id) join holdfast.lane l on l.id = i.id >> 40) l;
  v_xid := pg_current_xact_id();
  return query
    with numbered as materialized (
      select a.*, l.priority, nextval((v_lanes ->> l.priority::text)::regclass) as resent_id,
             case when target.ordering = 'strict' then nextval('holdfast.order_no') end as resent_no
      from unnest(_resend.ids) with ordinality i(id, nth)
        cross join lateral (select a.* from holdfast.archive a where a.id = i.id and a.ended_at >= first and a.ended_at <= last offset 0) a
        cross join lateral (select l.priority from holdfast.lane l where l.id = i.id >> 40 offset 0) l
    ), resent as (
      insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, body, content_type, headers, tag, correlation_id,
                                    max_deliveries, ordering_key, order_no, row_of, origin)
      select n.resent_id, target.id, at, at + target.ttl, n.payload, n.body, n.content_type, n.headers, n.tag, n.correlation_id,
             n.max_deliveries, case when target.ordering = 'strict' then '' end, n.resent_no, target.row_of,
             coalesce(n.origin, '{}') || jsonb_strip_nulls(jsonb_build_object(
               'queue', queue.name, 'id', n.id, 'root_id', holdfast._root_id(n.id, n.origin), 'outcome', n.outcome,
               'ended_at', n.ended_at, 'sent_at', holdfast._sent_at(n.origin, n.enqueued_at), 'enqueued_at', n.enqueued_at,
               'deliveries', n.deliveries, 'priority', n.priority, 'key', n.key,
               'ordering_key', nullif(n.ordering_key, ''), 'replays', coalesce((n.origin ->> 'replays')::int, 0) + 1, 'replayed_at', at))
      from numbered n
    )
    select n.id, n.resent_id, n.ended_at from numbered n;
end $$;
comment on function holdfast._resend is 'Send messages of the archive as new ones, at the priority they had; into a strict queue at the end of its line';

create or replace function holdfast._store_replayed(queue holdfast.queue, stage bigint, lanes regclass[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_stored bigint;
begin
  insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, body, content_type, headers, tag, correlation_id,
                                max_deliveries, ordering_key, order_no, row_of, origin)
  select nextval(lanes[case when queue.ordering = 'strict' then queue.priority_default else coalesce(s.priority, queue.priority_default) end + 1]),
         queue.id, at, at + queue.ttl, s.payload, s.body, s.content_type, s.headers, s.tag, s.correlation_id::uuid,
         s.max_deliveries, case queue.ordering when 'strict' then '' when 'key' then s.ordering_key end,
         case when queue.ordering = 'strict' or queue.ordering = 'key' and s.ordering_key is not null then nextval('holdfast.order_no') end, queue.row_of,
         coalesce(s.origin, '{}') || jsonb_build_object('replays', coalesce((s.origin ->> 'replays')::int, 0) + 1, 'replayed_at', at)
  from (select s.* from holdfast.staged s where s.stage = _store_replayed.stage order by s.n offset 0) s;
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
comment on function holdfast._store_replayed is
  'Store the messages of a stage that were in an archive, in their order; in a line only if the queue has lines. Returns how many';

create or replace function holdfast.replay_staged(queue text, write_id text, stages bigint[], messages bigint)
returns table (sent bigint, repeated boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_target holdfast.queue := holdfast._work_queue(replay_staged.queue);
begin
  perform holdfast._check_write(replay_staged.write_id);
  perform holdfast._check_isolation('replay_staged');
  return query select o.sent, o.repeated from holdfast._send_once(v_target, replay_staged.write_id, stages, replay_staged.messages, true) o;
end $$;
comment on function holdfast.replay_staged is
  'Send once more what lies in these stages, messages of an archive with their origins, if no write of this name was sent before; else as send_staged';

-- 80_report.sql
-- Reports: figures, leases, and the messages themselves. Nothing here changes a message.
--
-- Counting is subtraction: fresh = last id drawn - cursor. What lies behind the cursor is counted from the
-- leases and the due index, at most 10,000 of each; above that a figure is an estimate, and says so.

create or replace function holdfast._start(lane holdfast.lane) returns bigint language plpgsql stable
as $$
declare
  v_register bigint := (lane.id::bigint << 40) + 1;
begin
  -- A lane that has not been booted here starts over with its first claim.
  if not holdfast._is_ours(lane.id) then
    return v_register;
  end if;
  v_register := greatest(coalesce(pg_sequence_last_value(lane.cursor), 0), v_register);
  return coalesce((select l.upto from holdfast.lease l where l.lane_id = lane.id and l.upto > v_register and l.upto > 0
                   order by l.upto desc limit 1), v_register);
end $$;
comment on function holdfast._start is 'Where the fresh messages of a lane start, as far as is committed';

create or replace function holdfast._in_gaps(lane holdfast.lane) returns setof holdfast.message language plpgsql stable
as $$
declare
  v_floor bigint := coalesce(pg_sequence_last_value(lane.gap_floor), 0);
begin
  return query
    select m.* from (select g.lo, g.hi from holdfast.gap g
                     where g.lane_id = lane.id and g.lo >= v_floor order by g.lo limit 5000) g
      cross join lateral (select m.* from holdfast.message m where m.id between g.lo and g.hi and m.due_at is null order by m.id limit 10001) m
    where holdfast._is_ours(lane.id) limit 10001;
end $$;
comment on function holdfast._in_gaps is 'Messages that were committed after the cursor had passed them, and that no claim has found yet';

create or replace function holdfast._count_behind(lane holdfast.lane, at timestamptz, start bigint, out figures holdfast._figures, out ahead bigint, out most bigint)
language plpgsql stable
as $$
declare
  v_floor timestamptz := case when holdfast._is_ours(lane.id) then '-infinity' end;
  v_late bigint;
begin
  -- Held by the due path and then left by a crash (v_floor is null): due as soon as the lane boots.
  select count(*) filter (where w.due_at <= at), count(*) filter (where w.due_at > at and w.due_at < 'infinity'),
         count(*) filter (where w.due_at = 'infinity'), count(*) filter (where w.id >= start), count(*),
         min(w.enqueued_at) filter (where w.due_at <= at)
  into figures.due, figures.scheduled, figures.blocked, ahead, most, figures.oldest
  from (select m.id, m.due_at, m.enqueued_at from holdfast.message m
        where m.id >> 40 = lane.id and m.due_at is not null and (v_floor is null or m.due_at > v_floor) order by m.due_at limit 10001) w;
  select coalesce(sum(cardinality(l.ids)), 0), greatest(most, count(*)) into figures.in_flight, most
  from (select l.ids from holdfast.lease l where l.lane_id = lane.id and v_floor is not null order by l.deadline limit 10001) l;
  select count(*), greatest(most, count(*)), least(figures.oldest, min(m.enqueued_at)) into v_late, most, figures.oldest from holdfast._in_gaps(lane) m;
  figures.due := figures.due + v_late;
end $$;
comment on function holdfast._count_behind is
  'Count what is not simply ahead of the cursor. ahead: how many of it lie there all the same; most: the longest count, 10,001 if one was cut off';

create or replace function holdfast._figures(lane holdfast.lane, at timestamptz) returns holdfast._figures
language plpgsql stable
as $$
declare
  v_start bigint := holdfast._start(lane);
  v_last bigint := coalesce(pg_sequence_last_value(lane.ids), v_start - 1);
  v_behind record := holdfast._count_behind(lane, at, v_start);
  v_out holdfast._figures := v_behind.figures;
begin
  v_out.drawn := v_last - (lane.id::bigint << 40);
  -- Where no message follows, the ids that were drawn are those of sends that rolled back, or are open.
  if v_last - v_start >= 10000
     and not exists (select from holdfast.message m where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1) then
    v_last := v_start - 1;
  end if;
  v_out.fresh := greatest(v_last - v_start + 1 - v_behind.ahead, 0);
  if v_last - v_start < 10000 then
    select count(*), least(min(m.enqueued_at), v_out.oldest) into v_out.fresh, v_out.oldest
    from (select m.enqueued_at, m.due_at from holdfast.message m
          where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 10001) m
    where m.due_at is null;
  else
    select least(min(m.enqueued_at), v_out.oldest) into v_out.oldest
    from (select m.enqueued_at, m.due_at from holdfast.message m
          where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1000) m
    where m.due_at is null;
  end if;
  v_out.exact := v_behind.most <= 10000 and v_last - v_start < 10000;
  return v_out;
end $$;
comment on function holdfast._figures is 'Count a lane';

create or replace function holdfast._depth_at_most(queue holdfast.queue) returns bigint language sql stable
  return (select coalesce(sum((f).fresh + (f).due + (f).scheduled + (f).blocked + (f).in_flight), 0)::bigint
          from (select holdfast._figures(l, holdfast.now()) as f from holdfast.lane l where l.queue_id = (queue).id) counted);
comment on function holdfast._depth_at_most is 'The depth of a queue, holes included';

create or replace function holdfast._count_dead(queue holdfast.queue) returns bigint language sql stable
  return (select count(*) from (
    select from holdfast.queue q join holdfast.lane l on l.queue_id = q.id cross join lateral (
      select m.origin from holdfast.message m where m.id >= l.id::bigint << 40 and m.id < (l.id + 1)::bigint << 40 order by m.id limit 10001) m
    where q.name = (queue).dead_letter and m.origin ->> 'queue' = (queue).name limit 10001) counted);
comment on function holdfast._count_dead is 'How many dead letters came from this queue; 10,001 means more';

create or replace function holdfast._blocked_lines(queue holdfast.queue) returns bigint language sql stable
  return (select count(*) from (
    select from holdfast.message m where m.queue_id = (queue).id and m.blocks_since is not null order by m.ordering_key limit 10001) dead);
comment on function holdfast._blocked_lines is 'How many lines stand at a dead message and wait for unblock(); 10,001 means more';

create or replace function holdfast._counters(queue holdfast.queue, drawn bigint, ended bigint) returns jsonb language plpgsql stable
as $$
declare
  v_counts bigint[] := holdfast._counts(queue);
  v_counters jsonb;
  v_otherwise bigint;
begin
  select jsonb_object_agg(k.kind, v_counts[k.n]), sum(v_counts[k.n]) filter (where k.kind not in ('nacked', 'lapsed'))
  into v_counters, v_otherwise from unnest(holdfast._counted()) with ordinality k(kind, n);
  return v_counters || jsonb_build_object('sent', drawn, 'ended', greatest(ended, 0), 'done', greatest(ended - v_otherwise, 0));
end $$;
comment on function holdfast._counters is 'What has happened in a queue since it was made: done is what has ended and is not counted otherwise';

create or replace function holdfast.queue_stats(queue text) returns setof holdfast.stats
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(queue_stats.queue);
  v_now timestamptz := holdfast.now();
  v_dead bigint := holdfast._count_dead(v_queue);
begin
  return query
    with counted as (
      select holdfast._figures(l, v_now) as f from holdfast.lane l where l.queue_id = v_queue.id
    ), summed as (
      select sum((c.f).fresh)::bigint as fresh, sum((c.f).due)::bigint as due, sum((c.f).scheduled)::bigint as scheduled,
             sum((c.f).blocked)::bigint as blocked, sum((c.f).in_flight)::bigint as in_flight,
             sum((c.f).drawn)::bigint as drawn, min((c.f).oldest) as oldest, bool_and((c.f).exact) as exact
      from counted c
    ), best as (
      -- A figure that reached the limit of counting is replaced by what maintain() counted in full.
      select s.fresh + case when s.due > 10000 then greatest(s.due, t.due) else s.due end as ready,
             case when s.scheduled > 10000 then greatest(s.scheduled, t.scheduled) else s.scheduled end as scheduled,
             case when s.blocked > 10000 then greatest(s.blocked, t.blocked) else s.blocked end as blocked,
             case when s.exact then s.in_flight else greatest(s.in_flight, t.in_flight) end as in_flight,
             s.drawn, s.oldest, s.exact
      from summed s left join holdfast.tally t on t.queue_id = v_queue.id
    )
    select v_queue.name, v_queue.kind, b.ready, b.scheduled, b.blocked, b.in_flight, v_dead, holdfast._blocked_lines(v_queue),
           b.ready + b.scheduled + b.blocked + b.in_flight,
           v_now - b.oldest, b.exact and v_dead <= 10000, v_queue.paused,
           holdfast._counters(v_queue, b.drawn, b.drawn - (b.ready + b.scheduled + b.blocked + b.in_flight))
    from best b;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.queue_stats is
  'Figures of a queue. exact: false means that some are estimates (above 10,000). counters: since it was made; sent and done count the ids of rolled-back sends too';

create or replace function holdfast.queues()
returns table (queue text, paused boolean, created_at timestamptz, config jsonb, effective jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select q.name, q.paused, q.created_at, q.config, holdfast._effective(q.name, q.config) from holdfast.queue q order by q.name;
end $$;
comment on function holdfast.queues is 'All queues: their own configuration, and what holds';

create or replace function holdfast.queue_info(queue text)
returns table (paused boolean, created_at timestamptz, config jsonb, effective jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select q.paused, q.created_at, q.config, holdfast._effective(q.name, q.config) from holdfast.queue q where q.name = queue_info.queue;
end $$;
comment on function holdfast.queue_info is 'One queue, as queues() has it, without a look at the others; no row: there is none';

create or replace function holdfast.leases(queue text, "limit" int default 100)
returns table (consumer text, priority int, messages int, deadline timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(leases.queue);
begin
  perform holdfast._check_limit("limit");
  return query
    select s.consumer, n.priority::int, cardinality(s.ids), s.deadline
    from holdfast.lane n cross join lateral (
      select l.consumer, l.ids, l.deadline from holdfast.lease l
      where l.lane_id = n.id and l.ids <> '{}' order by l.deadline limit leases."limit") s
    where n.queue_id = v_queue.id
    order by s.deadline limit leases."limit";
end $$;
comment on function holdfast.leases is 'Who holds how many messages until when, the first to run out first';

create or replace function holdfast._holders(ids bigint[])
returns table (id bigint, token bigint, part int, consumer text, deadline timestamptz) language plpgsql stable
as $$
begin
  -- An id that came by the cursor is in the lease with the next upto; any other in a lease with upto = 0.
  return query
    select i.id, h.token, h.part, h.consumer, h.deadline
    from unnest(_holders.ids) i(id) cross join lateral (
      (select l.token, l.part, l.consumer, l.deadline from holdfast.lease l where l.upto = 0 and l.scattered @> array[i.id] and i.id = any (l.ids) limit 1)
      union all
      (select l.token, l.part, l.consumer, l.deadline from holdfast.lease l
       where l.lane_id = (i.id >> 40)::int and l.upto > 0 and i.id = any (l.ids)
         and l.upto = (select f.upto from holdfast.lease f where f.lane_id = (i.id >> 40)::int and f.upto > i.id and f.upto > 0
                       order by f.upto limit 1)
       limit 1)
      limit 1) h
    where holdfast._is_ours((i.id >> 40)::int) and exists (select from holdfast.message m where m.id = i.id);
end $$;
comment on function holdfast._holders is 'In whose lease these ids are';

create or replace function holdfast.holders(queue text, ids bigint[])
returns table (id bigint, token bigint, consumer text, deadline timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(holders.queue);
begin
  return query
    select h.id, h.token, h.consumer, h.deadline from holdfast._holders(array(
      select distinct i from unnest(holders.ids) i join holdfast.lane l on l.id = i >> 40 where l.queue_id = v_queue.id)) h
    order by h.id;
end $$;
comment on function holdfast.holders is 'The token, consumer and deadline under which these messages are held; those that nobody holds are left out';

create or replace function holdfast._held(token bigint, lane_id int) returns setof holdfast.delivery language plpgsql stable
as $$
begin
  if _held.lane_id is null then
    -- The only lease of its token, over a range of ids: one walk along the primary key. A claim has seen that it is not.
    return query
      select l.token, m.id, l.queue_name, m.payload, m.body, m.content_type, m.headers, l.priority, m.key, nullif(m.ordering_key, ''),
             m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, l.max_deliveries),
             m.enqueued_at, l.deadline, m.last_error, m.origin
      from (select l.token, l.queue_name, n.priority::int, q.max_deliveries, l.deadline, l.lo, l.upto
            from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
              join holdfast.lane n on n.id = l.lane_id join holdfast.queue q on q.id = l.queue_id
            where l.token = _held.token and l.lo is not null and l.ids <> '{}' offset 0) l
        cross join lateral (select m.* from holdfast.message m where m.id >= l.lo and m.id < l.upto order by m.id offset 0) m;
    if found then
      return;
    end if;
  end if;
  return query
    select l.token, m.id, q.name, m.payload, m.body, m.content_type, m.headers, n.priority::int, m.key, nullif(m.ordering_key, ''),
           m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, q.max_deliveries),
           m.enqueued_at, l.deadline, m.last_error, m.origin
    from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
      join holdfast.lane n on n.id = l.lane_id join holdfast.queue q on q.id = l.queue_id
      cross join lateral unnest(l.ids) with ordinality i(id, nth) join holdfast.message m on m.id = i.id
    where l.token = _held.token and (_held.lane_id is null or l.lane_id = _held.lane_id)
    order by n.priority desc, l.upto > 0, i.nth;
end $$;
comment on function holdfast._held is 'The messages under a token, in one lane or all: by priority, then those that waited before';

create or replace function holdfast.held(queue text, token bigint) returns setof holdfast.delivery
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  perform holdfast._work_queue(held.queue);
  return query select h.* from holdfast._held(held.token, null) h where h.queue = held.queue;
end $$;
comment on function holdfast.held is 'The messages that are held under this token now';

create or replace function holdfast._entry(message holdfast.message, queue text, state text) returns holdfast.entry language sql stable
  return ((message).id, queue, state, (message).payload, (message).body, (message).content_type, (message).headers,
          (select l.priority::int from holdfast.lane l where l.id = (message).id >> 40), (message).key, nullif((message).ordering_key, ''),
          (message).correlation_id, (message).tag, coalesce((message).deliveries, 0), coalesce((message).failures, 0),
          coalesce((message).max_deliveries, (select q.max_deliveries from holdfast.queue q where q.id = (message).queue_id)),
          (message).enqueued_at, case when isfinite((message).due_at) then (message).due_at end, (message).expires_at,
          (message).last_error, (message).origin, null, null, null)::holdfast.entry;
comment on function holdfast._entry is 'A message as a report shows it';

create or replace function holdfast._of_state(lane holdfast.lane, state text, after bigint, "limit" int, at timestamptz)
returns setof holdfast.message language plpgsql stable
as $$
declare
  v_ids bigint[];
begin
  if state = 'in_flight' then
    -- The ids first, then their messages: never a walk along the log.
    v_ids := array(
      select i.id from (select l.ids from holdfast.lease l where l.lane_id = lane.id and l.ids <> '{}' and holdfast._is_ours(lane.id)
                        order by l.deadline limit 10000) l
        cross join lateral unnest(l.ids) i(id)
      where i.id > after order by i.id limit _of_state."limit");
    return query select m.* from unnest(v_ids) i(id) cross join lateral (select m.* from holdfast.message m where m.id = i.id offset 0) m;
  elsif state = 'blocked' then
    return query
      select m.* from holdfast.message m where m.id >> 40 = lane.id and m.due_at = 'infinity' and m.id > after
      order by m.due_at, m.id limit _of_state."limit";
  elsif state = 'scheduled' then
    return query
      select w.* from (select m.* from holdfast.message m where m.id >> 40 = lane.id and m.due_at > at and m.due_at < 'infinity'
                       order by m.due_at limit 10000) w
      where w.id > after order by w.id limit _of_state."limit";
  else
    return query
      select w.* from (
        (select d.* from (select m.* from holdfast.message m where m.id >> 40 = lane.id and m.due_at <= at
                            and (m.due_at > '-infinity' or not holdfast._is_ours(lane.id)) order by m.due_at limit 10000) d where d.id > after order by d.id limit _of_state."limit")
        union all
        (select g.* from holdfast._in_gaps(lane) g where g.id > after order by g.id limit _of_state."limit")
        union all
        (select m.* from holdfast.message m where m.id >= greatest(holdfast._start(lane), after + 1) and m.id < (lane.id + 1)::bigint << 40
           and m.due_at is null order by m.id limit _of_state."limit")) w
      order by w.id limit _of_state."limit";
  end if;
end $$;
comment on function holdfast._of_state is 'Messages of a lane in a state, by id; of those behind the cursor it looks at 10,000';

create or replace function holdfast.browse(queue text, state text default 'ready', "limit" int default 100, after bigint default null)
returns setof holdfast.entry
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(browse.queue);
  v_lane holdfast.lane;
  v_after_priority smallint;
  v_left int := "limit";
  v_shown int;
begin
  perform holdfast._check_limit("limit");
  if state is null or state not in ('ready', 'scheduled', 'blocked', 'in_flight', 'dead', 'archive') then
    perform holdfast._fail('QH401', 'unknown state', format('Got %s.', coalesce(quote_literal(left(state, 50)), 'null')),
      'state takes ready, scheduled, blocked, in_flight, dead or archive.');
  end if;
  if state = 'dead' then
    return query select (holdfast._entry(d, q.name, 'dead')).* from holdfast.queue q
      cross join lateral holdfast._dead(q, v_queue.name, null, null, "limit", coalesce(after, 0)) d
    where q.name = v_queue.dead_letter;
    return;
  end if;
  select l.priority into v_after_priority from holdfast.lane l where l.id = after >> 40;
  for v_lane in
    select l.* from holdfast.lane l where l.queue_id = v_queue.id
      and (v_after_priority is null or (l.priority, -l.id) <= (v_after_priority, -(after >> 40)))
    order by l.priority desc, l.id
  loop
    if state = 'archive' then
      return query select (holdfast._archived(a, v_queue.name)).*
        from holdfast._archived_of(v_lane, case when v_lane.id = after >> 40 then after else 0 end, v_left) a;
    else
      return query select (holdfast._entry(m, v_queue.name, state)).*
        from holdfast._of_state(v_lane, state, case when v_lane.id = after >> 40 then after else 0 end, v_left, holdfast.now()) m;
    end if;
    get diagnostics v_shown = row_count;
    v_left := v_left - v_shown;
    exit when v_left <= 0;
  end loop;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.browse is
  'Look at messages without taking them: a page by priority and id; pass the last id as after for the next one';

create or replace function holdfast._state_of(due_at timestamptz, held boolean, at timestamptz) returns text language sql immutable
  return case when held then 'in_flight' when due_at = 'infinity' then 'blocked' when due_at > at then 'scheduled' else 'ready' end;
comment on function holdfast._state_of is 'The state of a living message in its queue';

create or replace function holdfast.message(queue text, id bigint) returns setof holdfast.entry
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(message.queue);
  v_message holdfast.message;
  v_home holdfast.queue;
  v_state text;
begin
  select m.* into v_message from holdfast.message m where m.id = message.id;
  if not found then
    return query select (holdfast._archived(a, q.name)).* from holdfast.archive a join holdfast.queue q on q.id = a.queue_id
    where a.id = message.id and (a.queue_id = v_queue.id or (q.name = v_queue.dead_letter and a.origin ->> 'queue' = v_queue.name));
    return;
  end if;
  select q.* into v_home from holdfast.queue q where q.id = v_message.queue_id;
  if v_home.id = v_queue.id then
    v_state := holdfast._state_of(v_message.due_at, exists (select from holdfast._holders(array[v_message.id])), holdfast.now());
  elsif v_home.name = v_queue.dead_letter and v_message.origin ->> 'queue' = v_queue.name then
    v_state := 'dead';
  else
    return;
  end if;
  return next holdfast._entry(v_message, v_home.name, v_state);
end $$;
comment on function holdfast.message is 'One message of this queue, one dead letter that came from it, or how such a one ended if it was kept';

-- 81_contents.sql
-- Contents: where a message is now, for those who know its first id, and what is in a queue, for those who list it. Nothing here
-- changes a message.
--
--   whereabouts   by first ids, in all queues
--   contents      a page of a queue: what lives by priority and id, then its archive by the end
--   outcomes      how many messages of the archive have ended how
--
-- A page has an offset, so ids are looked up first, from an index where one has what is asked for, and messages only for the page:
-- a lane's ids from its primary key, or those of a state as _of_state finds them; the archive's by the time of the end.
--
-- A message that moves (dead letter, redrive, replay) gets a new id. The first one stays: origin.root_id, or its own id
-- where it never moved.

create or replace function holdfast._root_id(id bigint, origin jsonb) returns bigint language sql immutable
  -- Whoever stages a message of an archive says what its origin is: that need not be a number.
  return case when origin ->> 'root_id' ~ '^[1-9][0-9]{0,18}$'
              then case when (origin ->> 'root_id')::numeric <= 9223372036854775807 then (origin ->> 'root_id')::bigint else id end
              else id end;
comment on function holdfast._root_id is 'The first id of a message: that of its origin, or its own';

create or replace function holdfast._living_copies(roots bigint[])
returns table (root_id bigint, id bigint, queue_id int, enqueued_at timestamptz, due_at timestamptz, came_from text) language plpgsql stable
as $$
begin
  return query
    select r.id, m.id, m.queue_id, m.enqueued_at, m.due_at, m.came_from
    from unnest(_living_copies.roots) r(id) cross join lateral (
      select m.id, m.queue_id, m.enqueued_at, m.due_at, m.came_from from (
        (select o.id, o.queue_id, o.due_at, o.enqueued_at, o.origin ->> 'queue' as came_from
         from holdfast.message o where o.id = r.id and holdfast._root_id(o.id, o.origin) = r.id)
        union all
        (select c.id, c.queue_id, c.due_at, c.enqueued_at, c.origin ->> 'queue'
         from holdfast.message c where c.origin ? 'root_id' and c.origin ->> 'root_id' = r.id::text)) m
      order by m.enqueued_at desc, m.id desc limit 100) m;
end $$;
comment on function holdfast._living_copies is 'The living messages with these first ids; of many with one the latest';

create or replace function holdfast._ended(roots bigint[])
returns table (root_id bigint, id bigint, queue text, outcome text) language plpgsql stable
as $$
begin
  return query
    select r.id, a.id, a.name, a.outcome
    from unnest(_ended.roots) r(id) cross join lateral (
      select a.id, q.name, a.outcome from (
        (select o.id, o.queue_id, o.outcome, o.ended_at
         from holdfast.archive o where o.id = r.id and holdfast._root_id(o.id, o.origin) = r.id)
        union all
        (select c.id, c.queue_id, c.outcome, c.ended_at
         from holdfast.archive c where c.origin ? 'root_id' and c.origin ->> 'root_id' = r.id::text)) a
        join holdfast.queue q on q.id = a.queue_id
      order by a.ended_at desc, a.id desc limit 1) a;
end $$;
comment on function holdfast._ended is 'The archived messages with these first ids; of several with one the last that ended';

create or replace function holdfast.whereabouts(ids bigint[])
returns table (root_id bigint, queue text, id bigint, state text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_roots bigint[] := array(select distinct i from unnest(whereabouts.ids) i where i is not null);
begin
  return query
    with copies as materialized (
      select l.* from holdfast._living_copies(v_roots) l
    ), held as materialized (
      select h.id from holdfast._holders(array(select c.id from copies c)) h
    ), living as materialized (
      -- Whoever holds one has to be able to settle it, also where another was sent after it.
      select distinct on (c.root_id) c.* from copies c order by c.root_id, c.id in (select h.id from held h) desc, c.enqueued_at desc, c.id desc
    )
    select l.root_id, q.name, l.id,
           case when l.id not in (select h.id from held h)
                     and exists (select from holdfast.queue o where o.name = l.came_from and o.dead_letter = q.name) then 'dead'
                else holdfast._state_of(l.due_at, l.id in (select h.id from held h), v_now) end
    from living l join holdfast.queue q on q.id = l.queue_id
    union all
    select e.root_id, e.queue, e.id, e.outcome
    from holdfast._ended(array(select r from unnest(v_roots) r where r not in (select l.root_id from living l))) e
    order by 1;
end $$;
comment on function holdfast.whereabouts is
  'Where messages are now that are known by their first ids: the queue, the id they have there, and their state, or how they ended. A living one wins, of several one that is in flight, else the latest';

create or replace function holdfast._most_offset() returns int language sql immutable
  return 1000000;
comment on function holdfast._most_offset is 'How far contents pages';

create or replace function holdfast._check_page("limit" int, "offset" int) returns void language plpgsql immutable
as $$
begin
  if "limit" is null or "limit" not between 1 and 1000 then
    perform holdfast._fail('QH402', 'limit is out of range', format('Got %s.', coalesce("limit"::text, 'null')), 'A page has 1 to 1,000 messages.');
  end if;
  if "offset" is null or "offset" not between 0 and holdfast._most_offset() then
    perform holdfast._fail('QH402', 'offset is out of range', format('Got %s.', coalesce("offset"::text, 'null')),
      'offset takes 0 to 1,000,000; ask for fewer states, or scan the queue.');
  end if;
end $$;
comment on function holdfast._check_page is 'Refuse a page that is too long or too far';

create or replace function holdfast._check_contents(states text[]) returns void language plpgsql immutable
as $$
begin
  if not states <@ '{ready,scheduled,blocked,in_flight,done,expired,failed,discarded}' or states = '{}' then
    perform holdfast._fail('QH401', 'unknown state', format('Got %s.', quote_literal(left(states::text, 100))),
      'states takes one or more of ready, scheduled, blocked, in_flight, done, expired, failed, discarded; null for all.');
  end if;
end $$;
comment on function holdfast._check_contents is 'Refuse bad states of contents';

create or replace function holdfast._ids_in_states(lane holdfast.lane, states text[], at timestamptz, most int) returns setof bigint
language plpgsql stable
as $$
declare
  v_ours boolean := holdfast._is_ours(lane.id);
  v_start bigint := holdfast._start(lane);
begin
  return query
    select w.id from (
      (select i.id from (
         select l.ids from holdfast.lease l where 'in_flight' = any (states) and v_ours and l.lane_id = lane.id and l.ids <> '{}'
         order by l.deadline limit 2 * holdfast._most_offset()) l cross join lateral unnest(l.ids) i(id) limit 2 * holdfast._most_offset())
      union all
      (select m.id from holdfast.message m
       where 'blocked' = any (states) and m.id >> 40 = lane.id and m.due_at = 'infinity' order by m.due_at, m.id limit most)
      union all
      (select m.id from holdfast.message m
       where 'scheduled' = any (states) and m.id >> 40 = lane.id and m.due_at > at and m.due_at < 'infinity'
       order by m.due_at, m.id limit 2 * holdfast._most_offset())
      union all
      (select m.id from holdfast.message m
       where 'ready' = any (states) and m.id >> 40 = lane.id and m.due_at <= at and (m.due_at > '-infinity' or not v_ours)
       order by m.due_at, m.id limit 2 * holdfast._most_offset())
      union all
      (select g.id from holdfast._in_gaps(lane) g where 'ready' = any (states))
      union all
      (select m.id from holdfast.message m
       where 'ready' = any (states) and m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 and m.due_at is null
       order by m.id limit most)) w(id)
    order by w.id limit most;
end $$;
comment on function holdfast._ids_in_states is 'The first ids of a lane that are in some states, but not in all of them';

create or replace function holdfast._living_page(lane holdfast.lane, states text[], at timestamptz, skip int, "limit" int, out ids bigint[], out passed int)
language plpgsql stable
as $$
begin
  if states @> '{ready,scheduled,blocked,in_flight}' then
    select array_agg(w.id order by w.id) filter (where w.n > skip), least(count(*), skip) into ids, passed from (
      select m.id, row_number() over (order by m.id) as n from holdfast.message m
      where m.id >= lane.id::bigint << 40 and m.id < (lane.id + 1)::bigint << 40 order by m.id limit skip + _living_page."limit") w;
  else
    select array_agg(w.id order by w.n) filter (where w.n > skip), least(count(*), skip) into ids, passed
    from holdfast._ids_in_states(lane, states, at, skip + _living_page."limit") with ordinality w(id, n);
  end if;
end $$;
comment on function holdfast._living_page is 'Ids of a lane that are in some states, behind the first so many. passed: how many of those there are';

create or replace function holdfast._ended_page(queue_id int, outcomes text[], skip int, "limit" int, out ids bigint[], out ends timestamptz[])
language plpgsql stable
as $$
declare
  v_most int := skip + _ended_page."limit";
begin
  -- Between a queue and itself: so only the index that has the queue first is in the order that is asked for.
  if outcomes @> '{done,expired,failed,discarded}' then
    select array_agg(w.id order by w.n), array_agg(w.ended_at order by w.n) into ids, ends from (
      select a.id, a.ended_at, row_number() over (order by a.queue_id, a.ended_at, a.id) as n from holdfast.archive a
      where a.queue_id between _ended_page.queue_id and _ended_page.queue_id order by a.queue_id, a.ended_at, a.id limit v_most) w
    where w.n > skip;
    return;
  end if;
  select array_agg(w.id order by w.ended_at, w.id), array_agg(w.ended_at order by w.ended_at, w.id) into ids, ends from (
    select e.id, e.ended_at from (
      select o.id, o.ended_at from unnest(outcomes) k(outcome) cross join lateral (
        select a.id, a.ended_at from holdfast.archive a
        where a.queue_id = _ended_page.queue_id and a.outcome = k.outcome and a.outcome <> 'done' order by a.ended_at, a.id limit v_most) o
      union all
      -- No index has these alone: they are most of what is kept.
      (select d.id, d.ended_at from (
         select a.id, a.ended_at, a.outcome from holdfast.archive a
         where a.queue_id between _ended_page.queue_id and _ended_page.queue_id and 'done' = any (outcomes)
         order by a.queue_id, a.ended_at, a.id limit 2 * holdfast._most_offset()) d
       where d.outcome = 'done' limit v_most)) e
    order by e.ended_at, e.id offset skip limit _ended_page."limit") w;
end $$;
comment on function holdfast._ended_page is 'Ids of the archive of a queue with some outcomes, behind the first so many, and when they ended';

create or replace function holdfast._contents_living(queue holdfast.queue, ids bigint[], at timestamptz) returns setof holdfast.content
language plpgsql stable
as $$
begin
  return query
    with held as materialized (
      select h.id, h.consumer, h.deadline, l.claimed_at
      from holdfast._holders(_contents_living.ids) h
        cross join lateral (select l.claimed_at from holdfast.lease l where l.token = h.token and l.part = h.part offset 0) l
    )
    select e.id, holdfast._root_id(e.id, e.origin), e.queue, e.state, e.payload, e.body, e.content_type, e.headers, e.priority, e.key,
           e.ordering_key, e.correlation_id, e.tag, e.deliveries, e.failures, e.max_deliveries, e.enqueued_at, e.due_at, e.expires_at,
           h.deadline, e.last_error, e.origin, e.ended_at, h.consumer, h.claimed_at
    from unnest(_contents_living.ids) with ordinality i(id, n)
      cross join lateral (select m from holdfast.message m where m.id = i.id offset 0) m(message)
      left join held h on h.id = i.id
      cross join lateral holdfast._entry(m.message, queue.name, holdfast._state_of((m.message).due_at, h.id is not null, at)) e
    order by i.n;
end $$;
comment on function holdfast._contents_living is 'Living messages of a queue as contents shows them, with who holds them';

create or replace function holdfast._contents_ended(queue holdfast.queue, ids bigint[], ends timestamptz[]) returns setof holdfast.content
language plpgsql stable
as $$
begin
  return query
    select e.id, holdfast._root_id(e.id, e.origin), e.queue, e.state, e.payload, e.body, e.content_type, e.headers, e.priority, e.key,
           nullif(e.ordering_key, ''), e.correlation_id, e.tag, e.deliveries, e.failures, e.max_deliveries, e.enqueued_at, e.due_at, e.expires_at,
           null::timestamptz, e.last_error, e.origin, e.ended_at, e.consumer, e.claimed_at
    from unnest(_contents_ended.ids, _contents_ended.ends) with ordinality i(id, ended_at, n)
      cross join lateral (select a from holdfast.archive a where a.id = i.id and a.ended_at = i.ended_at offset 0) a(message)
      cross join lateral holdfast._archived(a.message, queue.name) e
    order by i.n;
end $$;
comment on function holdfast._contents_ended is 'Archived messages of a queue as contents shows them';

create or replace function holdfast.contents(queue text, states text[] default null, "limit" int default 100, "offset" int default 0)
returns setof holdfast.content
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(contents.queue);
  v_now timestamptz := holdfast.now();
  v_states text[] := coalesce(states, '{ready,scheduled,blocked,in_flight,done,expired,failed,discarded}');
  v_skip int := "offset";
  v_left int := "limit";
  v_lane holdfast.lane;
  v_page record;
begin
  perform holdfast._check_contents(states);
  perform holdfast._check_page("limit", "offset");
  for v_lane in
    select l.* from holdfast.lane l where l.queue_id = v_queue.id and v_states && '{ready,scheduled,blocked,in_flight}' order by l.priority desc, l.id
  loop
    v_page := holdfast._living_page(v_lane, v_states, v_now, v_skip, v_left);
    v_skip := v_skip - v_page.passed;
    return query select * from holdfast._contents_living(v_queue, v_page.ids, v_now);
    v_left := v_left - coalesce(cardinality(v_page.ids), 0);
    exit when v_left = 0;
  end loop;
  if v_left > 0 and v_states && '{done,expired,failed,discarded}' then
    v_page := holdfast._ended_page(v_queue.id, v_states, v_skip, v_left);
    return query select * from holdfast._contents_ended(v_queue, v_page.ids, v_page.ends);
  end if;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.contents is
  'A page of what is in a queue, in these states (null: all): what lives by priority and id, then what has ended and is kept, the first to end first';

create or replace function holdfast.outcomes(queue text) returns table (outcome text, messages bigint, exact boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(outcomes.queue);
  v_most int := 10001;
  v_seen bigint;
begin
  foreach outcome in array '{expired,failed,discarded}'::text[] loop
    select count(*) into messages from (
      select from holdfast.archive a where a.queue_id = v_queue.id and a.outcome = outcomes.outcome and a.outcome <> 'done' limit 10001) counted;
    v_most := v_most + messages;
    exact := messages <= 10000;
    messages := least(messages, 10000);
    return next;
  end loop;
  -- The others are passed on the way, as many as there are: 10,001 of these are found if there are so many.
  outcome := 'done';
  select count(*) filter (where a.outcome = 'done'), count(*) into messages, v_seen from (
    select a.outcome from holdfast.archive a
    where a.queue_id between v_queue.id and v_queue.id order by a.queue_id, a.ended_at, a.id limit v_most) a;
  exact := v_seen < v_most;
  messages := least(messages, 10000);
  return next;
end $$;
comment on function holdfast.outcomes is
  'How many messages of the archive have ended how. exact: false means that there may be more: it counts to 10,000';

-- 81_scan.sql
-- Scanning: all messages of a queue that are in a state, by ranges of ids. For readers that share out the work.
--
-- Unlike browse, which shows a page of what comes next, it looks at every message of a range, and only at what is
-- transactional: in flight is what a lease holds, ready is what nobody holds and nothing holds up. So a scan in a
-- transaction with a fixed snapshot shows one moment, however long it takes.
--
-- A function keeps all its rows before it hands out the first one. So whoever reads much asks scan_source for a statement,
-- and runs that: over views, which have the rights of the owner of the schema, and with all values in it as constants, so
-- that COPY streams from the index, and computes no column that nobody wants. scan runs the same statement.

create or replace view holdfast.scan_message as
  select m.id, m.queue_id, m.deliveries, m.enqueued_at, m.due_at, m.expires_at, m.payload, m.body, m.content_type, m.headers, m.tag,
         m.correlation_id, m.key, m.ordering_key, m.failures, m.max_deliveries, m.last_error, m.origin
  from holdfast.message m;
comment on view holdfast.scan_message is 'Live messages, for the statements of scan_source';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.scan_message for each row execute function holdfast._refuse_write();

create or replace view holdfast.scan_archive as
  select a.id, a.queue_id, a.outcome, a.ended_at, a.deliveries, a.enqueued_at, a.expires_at, a.payload, a.body, a.content_type, a.headers, a.tag,
         a.correlation_id, a.key, a.ordering_key, a.failures, a.max_deliveries, a.last_error, a.origin, a.consumer, a.claimed_at
  from holdfast.archive a;
comment on view holdfast.scan_archive is 'Messages of the archive, for the statements of scan_source';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.scan_archive for each row execute function holdfast._refuse_write();

create or replace view holdfast.scan_lease as
  select l.lane_id, i.id from holdfast.lease l cross join lateral unnest(l.ids) i(id);
comment on view holdfast.scan_lease is 'The ids that leases hold, for the statements of scan_source';

create or replace function holdfast._check_scan(queue holdfast.queue, state text) returns void language plpgsql stable
as $$
begin
  if state is null or state not in ('ready', 'scheduled', 'blocked', 'in_flight', 'live', 'dead', 'archive', 'log') then
    perform holdfast._fail('QH401', 'unknown state', format('Got %s.', coalesce(quote_literal(left(state, 50)), 'null')),
      'state takes ready, scheduled, blocked, in_flight, live (these four), dead, archive or log.');
  end if;
  if state = 'log' and queue.kind <> 'log' then
    perform holdfast._fail('QH603', format('"%s" is no log', queue.name), 'It is a queue: its messages end when they are acked.',
      'Scan what is live in it; make a log with {"kind": "log"}.');
  end if;
  if state in ('ready', 'scheduled', 'blocked', 'in_flight', 'live') then
    perform holdfast._work_queue(queue.name);
  end if;
end $$;
comment on function holdfast._check_scan is 'Refuse a state that a queue does not have';

create or replace function holdfast._scan_home(queue holdfast.queue, state text) returns holdfast.queue language plpgsql stable
as $$
declare
  v_home holdfast.queue := queue;
begin
  if state = 'dead' then
    select q.* into v_home from holdfast.queue q where q.name = queue.dead_letter;
  end if;
  return v_home;
end $$;
comment on function holdfast._scan_home is 'The queue that holds the messages of a state; of nulls if there is none';

create or replace function holdfast._live_source(home holdfast.queue, lane holdfast.lane, origin text, state text, lo bigint, hi bigint)
returns text language plpgsql stable
as $$
declare
  -- In an expression it becomes a hash table, however wrong the estimates are.
  v_held text := case when holdfast._is_ours(lane.id) then format(
    'when m.id in (select l.id from holdfast.scan_lease l where l.lane_id = %s and l.id >= %s and l.id < %s) then ''in_flight'' ', lane.id, lo, hi) else '' end;
  v_state text := case when state in ('dead', 'log') then quote_literal(state) else format(
    'case %swhen m.due_at = ''infinity'' then ''blocked'' when m.due_at > %L::timestamptz then ''scheduled'' else ''ready'' end', v_held, holdfast.now()) end;
begin
  return format(
    'select m.id, %L::text as queue, (%s)::text as state, m.payload, m.body, m.content_type, m.headers, %s::int as priority, m.key, '
    'nullif(m.ordering_key, '''') as ordering_key, m.correlation_id, m.tag, coalesce(m.deliveries, 0) as deliveries, coalesce(m.failures, 0) as failures, '
    'coalesce(m.max_deliveries, %L) as max_deliveries, m.enqueued_at, case when isfinite(m.due_at) then m.due_at end as due_at, m.expires_at, '
    'm.last_error, m.origin, null::timestamptz as ended_at, null::text as consumer, null::timestamptz as claimed_at '
    'from holdfast.scan_message m where m.id >= %s and m.id < %s and m.queue_id = %s%s%s',
    home.name, case when state = 'live' then v_state else quote_literal(state) end, lane.priority, home.max_deliveries, lo, hi, home.id,
    ' and m.origin ->> ''queue'' = ' || quote_literal(origin),
    case when state not in ('dead', 'log', 'live') then format(' and %s = %L', v_state, state) end);
end $$;
comment on function holdfast._live_source is
  'The statement for messages of a lane, from one id to before another, that are in a state; origin: only dead letters that came from there';

create or replace function holdfast._archive_source(queue holdfast.queue, lane holdfast.lane, lo bigint, hi bigint, since timestamptz, until timestamptz)
returns text language plpgsql stable
as $$
begin
  return format(
    'select m.id, %L::text as queue, m.outcome as state, m.payload, m.body, m.content_type, m.headers, %s::int as priority, m.key, m.ordering_key, '
    'm.correlation_id, m.tag, coalesce(m.deliveries, 0) as deliveries, coalesce(m.failures, 0) as failures, '
    'coalesce(m.max_deliveries, %L) as max_deliveries, m.enqueued_at, null::timestamptz as due_at, m.expires_at, m.last_error, m.origin, '
    'm.ended_at, m.consumer, m.claimed_at '
    'from holdfast.scan_archive m where m.id >= %s and m.id < %s and m.queue_id = %s%s%s',
    queue.name, lane.priority, queue.max_deliveries, lo, hi, queue.id,
    ' and m.ended_at >= ' || quote_literal(since) || '::timestamptz', ' and m.ended_at < ' || quote_literal(until) || '::timestamptz');
end $$;
comment on function holdfast._archive_source is 'The statement for archived messages of a lane, from one id to before another, that ended from since to before until';

create or replace function holdfast._unused(source text, columns text[]) returns jsonb language plpgsql stable
as $$
declare
  v_columns text[] := array(select c from unnest(columns) c where c in ('body', 'content_type', 'headers', 'key', 'ordering_key', 'correlation_id', 'tag',
                                                                        'due_at', 'expires_at', 'last_error', 'origin', 'consumer', 'claimed_at'));
  v_is_so boolean;
begin
  if cardinality(v_columns) < 4 then
    return '{}';
  end if;
  -- The first rows say which to look for. A look at all rows is only worth it for several, and at all of them at once.
  execute format('select array_remove(array[%s]::text[], null) from (select * from (%s) m limit 1000) m',
    (select string_agg(format('case when count(m.%I) = 0 then %L end', c, c), ', ') from unnest(v_columns) c), source) into v_columns;
  if cardinality(v_columns) < 4 then
    return '{}';
  end if;
  execute format('select not exists (select from (%s) m where num_nonnulls(%s) > 0)',
    source, (select string_agg(format('m.%I', c), ', ') from unnest(v_columns) c)) into v_is_so;
  return case when v_is_so then (select jsonb_object_agg(c, null) from unnest(v_columns) c) else '{}' end;
end $$;
comment on function holdfast._unused is 'Of these columns, such as are null in all rows of a statement; none if that is not clear at little cost';

create or replace function holdfast.scan_source(
  queue text, state text, lo bigint, hi bigint, since timestamptz default null, until timestamptz default null, columns text[] default null)
returns table (source text, fixed jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(scan_source.queue);
  v_home holdfast.queue := holdfast._scan_home(v_queue, scan_source.state);
  v_lane holdfast.lane;
begin
  perform holdfast._check_scan(v_queue, scan_source.state);
  select l.* into v_lane from holdfast.lane l where l.id = lo >> 40 and l.queue_id = v_home.id;
  if not found or hi is null then
    return;
  end if;
  hi := least(hi, (v_lane.id + 1)::bigint << 40);
  fixed := jsonb_build_object('queue', v_home.name, 'priority', v_lane.priority);
  if state = 'archive' then
    source := holdfast._archive_source(v_queue, v_lane, lo, hi, since, until);
    fixed := fixed || '{"due_at": null}';
  else
    source := holdfast._live_source(v_home, v_lane, case when state = 'dead' then v_queue.name end, state, lo, hi);
    fixed := fixed || '{"ended_at": null, "consumer": null, "claimed_at": null}' || case when state = 'live' then '{}' else jsonb_build_object('state', state) end;
  end if;
  fixed := fixed || holdfast._unused(source, scan_source.columns);
  return next;
end $$;
comment on function holdfast.scan_source is
  'The statement that shows what scan shows, for those who may scan, in this transaction, and columns that have one value in all of its rows. columns: look for such among these';

create or replace function holdfast.scan(
  queue text, state text, lo bigint, hi bigint, since timestamptz default null, until timestamptz default null)
returns setof holdfast.entry
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_source text := (select s.source from holdfast.scan_source(scan.queue, scan.state, scan.lo, scan.hi, scan.since, scan.until) s);
begin
  if v_source is not null then
    return query execute v_source || ' order by m.id';
  end if;
end $$;
comment on function holdfast.scan is
  'The messages of a queue that are in a state, with ids from lo to before hi, as scan_bounds gives them; of the archive: that ended from since to before until';

create or replace function holdfast.scan_bounds(
  queue text, state text, since timestamptz default null, until timestamptz default null, first bigint default 0)
returns table (lo bigint, hi bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(scan_bounds.queue);
  v_home holdfast.queue := holdfast._scan_home(v_queue, scan_bounds.state);
begin
  perform holdfast._check_scan(v_queue, scan_bounds.state);
  if state = 'archive' then
    return query
      select b.lo, b.hi + 1 from holdfast.lane l cross join lateral (
        select min(a.id) as lo, max(a.id) as hi from holdfast.archive a
        where a.id >= greatest(first, l.id::bigint << 40) and a.id < (l.id + 1)::bigint << 40
          and a.ended_at >= coalesce(since, '-infinity') and a.ended_at < coalesce(until, 'infinity')) b
      where l.queue_id = v_home.id and b.lo is not null;
    return;
  end if;
  return query
    select b.lo, b.hi + 1 from holdfast.lane l cross join lateral (
      select min(m.id) as lo, max(m.id) as hi from holdfast.message m
      where m.id >= greatest(first, l.id::bigint << 40) and m.id < (l.id + 1)::bigint << 40) b
    where l.queue_id = v_home.id and b.lo is not null;
end $$;
comment on function holdfast.scan_bounds is
  'The ids among which scan has to look, one range a lane: from lo to before hi, and not before first';

-- 82_log.sql
-- Logs: read by sequence, retention, deletion.
--
-- An append is a send to the log's one lane. A sequence number that is missing was drawn by a transaction that is still
-- open, or that rolled back, or its record was removed. read() stops before the first number that may still come, so a
-- reader that passes the last seq on as `after` gets every record once, in order. Which may still come is known
-- (_decide) from the locks of appenders: each holds its transaction id, a lock on holdfast.message and one on the lane's
-- sequence before it draws a number, until it has ended.
--   floor           register gap_floor: of every id below it is known whether it comes
--   mark, horizon   registers gap_turn, gap_walk, always written together: every id up to mark was drawn by a transaction older
--                   than horizon. When all of those have ended, mark is known, and a new pair starts.
-- These hold in snapshots that are younger than the register's value: so read the register first, then the records.
-- Lock order: lane lock, log row, messages. read() takes none of them.

create or replace function holdfast._work_queue(queue text) returns holdfast.queue language plpgsql stable
as $$
declare
  v_queue holdfast.queue := holdfast._queue(_work_queue.queue);
begin
  if v_queue.kind = 'log' then
    perform holdfast._not_a_queue(v_queue.name);
  end if;
  return v_queue;
end $$;
comment on function holdfast._work_queue is 'A queue by its name that is no log, or an error';

create or replace function holdfast._not_a_queue(queue text) returns void language plpgsql volatile
as $$
begin
  perform holdfast._fail('QH602', format('"%s" is a log, not a queue', queue), 'Its records are not claimed and settled.',
    'Read it with holdfast.read, delete from it with holdfast.log_delete.');
end $$;
comment on function holdfast._not_a_queue is 'Raise: this verb is for queues';

create or replace function holdfast._log_lane(queue text, or_queue boolean default false) returns holdfast.lane language plpgsql stable
as $$
declare
  v_lane holdfast.lane;
begin
  -- A queue with one lane has one sequence too.
  select l.* into v_lane from holdfast.queue q join holdfast.lane l on l.queue_id = q.id
  where q.name = _log_lane.queue and (q.kind = 'log' or or_queue)
    and not exists (select from holdfast.lane o where o.queue_id = q.id and o.id <> l.id);
  if not found then
    perform holdfast._queue(_log_lane.queue);
    perform holdfast._fail('QH603', format(case when or_queue then '"%s" has several sequences' else '"%s" is no log' end, _log_lane.queue),
      case when or_queue then 'It is a queue with several lanes, each with its own sequence.' else 'It is a queue: its messages end when they are acked.' end,
      'Look at its messages with holdfast.browse; make a log with {"kind": "log"}.');
  end if;
  return v_lane;
end $$;
comment on function holdfast._log_lane is 'The one lane of a log, or of a queue where that will do; or an error';

create or replace function holdfast._no_append(queue text, options jsonb, nth bigint default null) returns void language plpgsql stable
as $$
declare
  v_order text[] := '{priority,delay,deliver_at,delay or deliver_at,ttl,expires_at,ttl or expires_at,max_deliveries,ordering_key,key,idempotency_key}';
begin
  perform holdfast._fail('QH604', 'a log takes no such option',
    format('"%s" is a log, whose records are not delivered; got %s.', _no_append.queue,
           (select string_agg(k, ', ' order by array_position(v_order, k)) from jsonb_object_keys(jsonb_strip_nulls(options)) k)),
    'Options for a log: payload, body, content_type, headers, correlation_id, tag. Old records go by the log''s retention.', nth);
end $$;
comment on function holdfast._no_append is 'Raise: a send to a log has these options, by name; null: it does not have that one';

create or replace function holdfast._check_kind(config jsonb, was text) returns void language plpgsql stable
as $$
declare
  v_kind text := coalesce(config ->> 'kind', 'queue');
  v_field text;
begin
  if was <> v_kind then
    perform holdfast._fail('QH601', 'the kind of a queue cannot be changed', format('It is a %s.', was),
      'Create another one, and move what is in it.');
  end if;
  select k into v_field from jsonb_object_keys(config) k
  where case v_kind when 'log' then k not in ('kind', 'retention', 'notify', 'max_depth', 'max_payload', 'rate_limits', 'annotations') else k = 'retention' end limit 1;
  if found then
    perform holdfast._fail('QH104', format('%s is no setting of a %s', v_field, v_kind), format('Got %s.', left((config -> v_field)::text, 100)),
      case v_kind when 'log' then 'A log takes kind, retention, notify, max_depth, max_payload, rate_limits, annotations.' else 'retention is for logs.' end);
  end if;
end $$;
comment on function holdfast._check_kind is 'Refuse settings that the kind of queue does not have, and another kind than it was';

create or replace function holdfast._check_retention(retention jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_field('retention', jsonb_typeof(retention) = 'object', retention, 'an object {age, count}');
  for v_field, v_value in select e.key, e.value from jsonb_each(retention) e loop
    case v_field
      when 'age' then
        perform holdfast._check_field('retention.age', holdfast._duration('retention.age', v_value) between interval '1 ms' and interval '100 years', v_value, '1 millisecond to 100 years');
      when 'count' then
        perform holdfast._check_field('retention.count', holdfast._whole(v_value, 1, 1000000000000), v_value, '1 to 1,000,000,000,000');
      else
        perform holdfast._fail('QH104', format('unknown field "retention.%s" in the configuration', left(v_field, 100)), format('Got %s.', left(v_value::text, 100)),
          'retention takes age, count.');
    end case;
  end loop;
end $$;
comment on function holdfast._check_retention is 'Refuse a bad retention';

create or replace function holdfast._apply_kind(queue text, effective jsonb) returns void language plpgsql volatile
as $$
begin
  insert into holdfast.log (lane_id, queue_id, retain_age, retain_count)
  select l.id, q.id, case when effective #> '{retention,age}' is not null then holdfast._duration('age', effective #> '{retention,age}') end,
         (effective #>> '{retention,count}')::numeric::bigint
  from holdfast.queue q join holdfast.lane l on l.queue_id = q.id
  where q.name = _apply_kind.queue and q.kind = 'log'
  on conflict (lane_id) do update set retain_age = excluded.retain_age, retain_count = excluded.retain_count
  where (log.retain_age, log.retain_count) is distinct from (excluded.retain_age, excluded.retain_count);
end $$;
comment on function holdfast._apply_kind is 'Write what the configuration says of a log';

create or replace function holdfast._appenders(lane holdfast.lane, out others bigint, out everybody bigint) language plpgsql volatile
as $$
declare
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  -- Lock entries show the lower 32 bits of a transaction id: the upper ones follow from how far it lies from the next one.
  with appender as (
    select min(k.pid) as pid, min(v_next - ((v_next - k.transactionid::text::bigint + 2147483648 & 4294967295) - 2147483648)) as xid
    from pg_locks k
    where k.granted and (k.locktype = 'transactionid' and k.mode = 'ExclusiveLock'
      or k.locktype = 'relation' and k.mode = 'RowExclusiveLock' and k.relation in (lane.ids, 'holdfast.message'::regclass)
         and k.database = holdfast._database_oid())
    group by k.virtualtransaction having count(distinct k.relation) = 2
  )
  select min(a.xid) filter (where a.pid is distinct from pg_backend_pid()), min(a.xid) into others, everybody from appender a;
end $$;
comment on function holdfast._appenders is
  'The oldest open transaction that may have drawn a sequence number of this log: other than this one, and with it. null: none';

create or replace function holdfast._log_pair(lane holdfast.lane, old_mark bigint, new_mark bigint, new_horizon bigint, out mark bigint, out horizon bigint)
language plpgsql volatile
as $$
begin
  -- Undone on purpose, which lets go of the lock at once; registers keep what was written.
  perform pg_advisory_xact_lock(holdfast._mark_lock(), lane.id);
  mark := coalesce(pg_sequence_last_value(lane.gap_turn), 0);
  horizon := coalesce(pg_sequence_last_value(lane.gap_walk), 0);
  if mark = old_mark and new_mark > mark then
    perform setval(lane.gap_turn, new_mark), setval(lane.gap_walk, new_horizon);
  end if;
  raise exception using errcode = 'HF000';
exception
  when sqlstate 'HF000' then null;
end $$;
comment on function holdfast._log_pair is 'Mark and horizon of a log, read together; replaced by a new pair if it is still the old one';

create or replace function holdfast._decide(lane holdfast.lane, floor bigint, seen bigint, booted boolean) returns bigint language plpgsql volatile
as $$
declare
  -- First the pair, then the locks: what is found ended must be about what the pair says.
  v_pair record := holdfast._log_pair(lane, 0, 0, 0);
  v_open record := holdfast._appenders(lane);
  v_floor bigint := floor;
  v_sure boolean := false;
begin
  -- A transaction that may not write finds out for itself alone.
  booted := booted and current_setting('transaction_read_only') = 'off';
  -- seen was drawn, hence all before it. An appender that is not found has ended: the next snapshot shows what it left.
  -- This transaction's own numbers are known to itself, not to others: no register moves past them.
  if v_open.others is null then
    v_floor := greatest(floor, seen + 1);
    v_sure := v_open.everybody is null;
  elsif booted and v_pair.mark >= floor and v_open.others >= v_pair.horizon then
    v_floor := v_pair.mark + 1;
    v_sure := v_open.everybody >= v_pair.horizon;
  end if;
  if booted and v_sure and v_floor > floor then
    perform setval(lane.gap_floor, v_floor);
  end if;
  if booted and seen >= v_floor and v_pair.mark < v_floor then
    perform holdfast._log_pair(lane, v_pair.mark, seen, holdfast._horizon(false)::text::bigint);
  end if;
  return v_floor;
end $$;
comment on function holdfast._decide is
  'Of which ids of a log is it known whether they come? All below the answer. floor: what was known before; seen: an id that was there';

create or replace function holdfast._log_booted(lane holdfast.lane) returns boolean language plpgsql volatile
as $$
begin
  if pg_sequence_last_value(lane.booted) = holdfast._boot_mark() then
    return true;
  end if;
  -- After a crash or a restore: what the registers say counts once the lane has started over, and that is committed.
  return current_setting('transaction_read_only') = 'off' and pg_try_advisory_xact_lock(holdfast._lane_lock(), lane.id) and holdfast._unchanged(lane) and not holdfast._boot_lane(lane);
end $$;
comment on function holdfast._log_booted is 'Are the registers of this log''s lane to be believed? If not, start it over';

create or replace function holdfast._records(lane holdfast.lane, floor bigint, after bigint, start bigint, "limit" int) returns setof holdfast.record
language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_from bigint := v_base + start;
  v_end bigint := (lane.id + 1)::bigint << 40;
begin
  -- One snapshot for the records and for what was removed: a record is there, or the answer says that it is gone.
  return query
    with log as materialized (
      select g.trimmed from holdfast.log g where g.lane_id = lane.id
    ), item as (
      select 'gap' as kind, after + 1 as lo, g.trimmed as hi, null::bigint as id, null::jsonb as payload, null::bytea as body,
             null::text as content_type, null::jsonb as headers, null::uuid as correlation_id, null::text as tag,
             null::timestamptz as enqueued_at, null::text as last_error, null::jsonb as origin
      from log g where g.trimmed > after
      union all
      select 'deleted', greatest(t.lo, t.start + 1), t.hi, null, null, null, null, null, null, null, null, null, null
      from (select t.lo, t.hi, greatest(start, (select g.trimmed from log g)) as start
            from holdfast.tombstone t where t.lane_id = lane.id and t.hi > start order by t.hi limit _records."limit") t where t.hi > t.start
      union all
      select 'record', m.id - v_base, m.id - v_base, m.id, m.payload, m.body, m.content_type, m.headers, m.correlation_id, m.tag, m.enqueued_at,
             m.last_error, m.origin
      from (select m.* from holdfast.message m where m.id > v_from and m.id < v_end order by m.id limit _records."limit") m
      where m.id - v_base > coalesce((select g.trimmed from log g), 0)
    ), placed as (
      select i.*, row_number() over along as nth,
             coalesce(sum(pg_column_size(i.payload)) over before, 0) + coalesce(sum(pg_column_size(i.body)) over before, 0) as bytes,
             i.lo - 1 + v_base >= greatest(coalesce(lag(i.hi) over along, after) + v_base + 1, floor) as open
      from item i
      window along as (order by i.lo), before as (order by i.lo rows between unbounded preceding and 1 preceding)
    ), shown as (
      select p.*, bool_or(p.open) over (order by p.lo) as stopped from placed p where p.nth <= _records."limit" and p.bytes < holdfast._answer_bytes()
    )
    select s.kind, s.hi, s.lo, s.hi, s.id, s.payload, s.body, s.content_type, s.headers, s.correlation_id, s.tag, s.enqueued_at, s.last_error, s.origin
    from shown s where not s.stopped order by s.lo;
end $$;
comment on function holdfast._records is
  'What comes after a sequence number, up to the first of which it is not known whether it comes. start: up to there retention has removed all';

create or replace function holdfast._passed(lane holdfast.lane) returns bigint language plpgsql stable
as $$
declare
  v_floor bigint := coalesce(pg_sequence_last_value(lane.gap_floor), 0);
begin
  -- What claims have passed without finding it is in a gap while it may still come.
  return least(holdfast._start(lane), (select g.lo from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_floor
                                         and holdfast._is_ours(lane.id) order by g.lo limit 1));
end $$;
comment on function holdfast._passed is 'Of a queue''s lane: the first id of which claims do not know whether it comes';

create or replace function holdfast._check_read(after bigint, "limit" int) returns void language plpgsql stable
as $$
begin
  if after is null or after not between 0 and 1099511627775 then
    perform holdfast._fail('QH605', 'after is out of range', format('Got %s.', coalesce(after::text, 'null')),
      'after takes the seq of the last row that was read, or 0.');
  end if;
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('read');
end $$;
comment on function holdfast._check_read is 'Refuse bad arguments of read, and a transaction it cannot work in';

create or replace function holdfast.read(queue text, after bigint default 0, "limit" int default 100) returns setof holdfast.record
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_log record;
  v_base bigint;
  v_from bigint;
  v_end bigint;
  v_ahead record;
begin
  if after is null or after not between 0 and 1099511627775 or "limit" is null or "limit" not between 1 and 10000
     or current_setting('transaction_isolation') <> 'read committed' then
    perform holdfast._check_read(after, "limit");
  end if;
  select l as lane, g.lane_id is not null as logged, coalesce(pg_sequence_last_value(l.gap_floor), 0) as floor,
         g.lane_id is not null and coalesce(pg_sequence_last_value(l.booted) = holdfast._boot_mark(), false) as booted,
         greatest(after, g.trimmed) as start into v_log
  from holdfast.queue q join holdfast.lane l on l.queue_id = q.id left join holdfast.log g on g.lane_id = l.id where q.name = read.queue;
  if v_log.booted is not true then
    v_log.lane := holdfast._log_lane(read.queue, true);
    v_log.booted := v_log.logged and holdfast._log_booted(v_log.lane);
    v_log.floor := case when v_log.booted then v_log.floor when v_log.logged then 0 else holdfast._passed(v_log.lane) end;
  end if;
  v_base := (v_log.lane).id::bigint << 40;
  v_from := v_base + v_log.start;
  v_end := v_base + (1::bigint << 40);
  select count(*) as records, max(m.id) as last, max(m.id) >= v_log.floor and count(*) < max(m.id) - v_from as holed,
         min(m.id) = v_from + 1 and max(m.enqueued_at) >= holdfast.now() - interval '10 ms' as young,
         coalesce(sum(m.bytes), 0) <= holdfast._answer_bytes() and v_log.start = after
           and not exists (select from holdfast.tombstone t where t.lane_id = (v_log.lane).id and t.hi > v_log.start) as plain into v_ahead
  from (select m.id, m.enqueued_at, coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) as bytes
        from holdfast.message m where m.id > v_from and m.id < v_end order by m.id limit read."limit") m;
  -- Something to show before a hole that will be filled in a moment is good enough.
  if v_ahead.holed and not v_ahead.young then
    v_log.floor := holdfast._decide(v_log.lane, v_log.floor, v_ahead.last, v_log.booted);
  end if;
  if v_ahead.plain and (v_ahead.records = 0 or not v_ahead.holed or v_ahead.last < v_log.floor) then
    -- The plain case, unless something was removed since that look: then nothing, and the long way.
    return query
      select 'record', m.id - v_base, m.id - v_base, m.id - v_base, m.id, m.payload, m.body, m.content_type, m.headers, m.correlation_id, m.tag,
             m.enqueued_at, m.last_error, m.origin
      from holdfast.message m where m.id > v_from and m.id <= v_ahead.last
        and not exists (select from holdfast.tombstone t where t.lane_id = (v_log.lane).id and t.hi > v_log.start)
        and not exists (select from holdfast.log g where g.lane_id = (v_log.lane).id and g.trimmed > v_log.start)
      order by m.id limit read."limit";
    if found or v_ahead.records = 0 then
      return;
    end if;
  end if;
  return query select * from holdfast._records(v_log.lane, v_log.floor, after, v_log.start, "limit");
end $$;
comment on function holdfast.read is
  'The records of a log after a sequence number, in order, up to the first that may still come. kind gap: retention has removed that range; deleted: log_delete has';

-- 82_numbering.sql
-- Numbering: sequence numbers for queues and logs alike, and finding messages by them.
--
-- A sequence number is the distance of an id from the base of its queue, which is the base of its lowest lane: so the
-- records of a log, and the messages of a queue with one lane, count from 1, as read() counts. Those of further lanes
-- have numbers far above. A queue that is dropped and made again has another base, and counts from 1 again.

create or replace function holdfast.base_id(queue text) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(base_id.queue);
begin
  return (select min(l.id)::bigint << 40 from holdfast.lane l where l.queue_id = v_queue.id);
end $$;
comment on function holdfast.base_id is 'The number that sequence numbers of a queue or log count from: id - base_id is the sequence number';

create or replace function holdfast._last_drawn(lane holdfast.lane) returns bigint language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_drawn bigint := coalesce(pg_sequence_last_value(lane.ids), v_base);
  v_floor bigint := holdfast._decide(lane, greatest(holdfast._passed(lane), v_base + 1), v_drawn, false);
begin
  return case when v_floor > v_drawn then v_drawn else holdfast._run_end(v_floor, v_drawn) end;
end $$;
comment on function holdfast._last_drawn is 'Of a queue''s lane: the last id up to which it is known of each whether it comes';

create or replace function holdfast._place(lane holdfast.lane, after bigint, last bigint) returns bigint language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
begin
  -- One snapshot, younger than what is known of the last: what retention removed meanwhile is for read to tell.
  return (select case when g.trimmed > after then after else greatest(after, coalesce(f.id - 1 - v_base, last)) end
          from (select max(g.trimmed) as trimmed from holdfast.log g where g.lane_id = lane.id) g
            left join (select m.id from holdfast.message m where m.id > v_base + after and m.id <= v_base + last order by m.id limit 1) f on true);
end $$;
comment on function holdfast._place is 'Where a reader who was shown nothing behind its place goes on: before the next message, else behind the last number of which all is known';

create or replace function holdfast.extent(queue text, after bigint default null)
returns table (kind text, base bigint, first_seq bigint, last_seq bigint, place bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(extent.queue);
  v_lanes holdfast.lane[] := array(select l from holdfast.lane l where l.queue_id = v_queue.id order by l.id);
  v_trimmed bigint;
begin
  if after not between 0 and 1099511627775 then
    perform holdfast._check_read(after, 1);
  end if;
  perform holdfast._check_isolation('extent');
  kind := v_queue.kind;
  base := (v_lanes[1]).id::bigint << 40;
  if kind = 'log' then
    select g.trimmed into v_trimmed from holdfast.log g where g.lane_id = (v_lanes[1]).id;
    last_seq := holdfast._last_known(v_lanes[1], v_trimmed);
  elsif cardinality(v_lanes) = 1 then
    last_seq := holdfast._last_drawn(v_lanes[1]) - base;
  else
    last_seq := (select coalesce(max(pg_sequence_last_value(l.ids)), base) - base from unnest(v_lanes) l);
  end if;
  if cardinality(v_lanes) = 1 and after is not null then
    -- Further than any number was drawn: it was a reader of another queue of this name. What was drawn may still come.
    place := case when base + after > coalesce(pg_sequence_last_value((v_lanes[1]).ids), base) then 0
                  else holdfast._place(v_lanes[1], after, last_seq) end;
  end if;
  first_seq := (
    select min(f.id) - base from unnest(v_lanes) l cross join lateral (
      select m.id from holdfast.message m
      where m.id > (l.id::bigint << 40) + coalesce(v_trimmed, 0) and m.id < (l.id + 1)::bigint << 40 order by m.id limit 1) f);
  return next;
end $$;
comment on function holdfast.extent is
  'From where to where a queue or log reaches: its first message (null: nothing is in it), and the last number up to which it is known of each whether it comes. place: where a reader goes on who was shown nothing behind after; 0 if no message has ever had that number';

create or replace function holdfast.find_tagged(
  queue text, tag text default null, prefix text default null, before bigint default null, "limit" int default 10000) returns bigint[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(find_tagged.queue);
  v_base bigint := holdfast.base_id(find_tagged.queue);
  v_end bigint := v_base + least(greatest(before, 0), (1::bigint << 53));
begin
  perform holdfast._check_limit("limit");
  if tag is null and prefix is null then
    return array(
      select f.id from holdfast.lane l cross join lateral (
        select m.id from holdfast.message m
        where m.id > l.id::bigint << 40 and m.id < least((l.id + 1)::bigint << 40, v_end) order by m.id limit find_tagged."limit") f
      where l.queue_id = v_queue.id order by f.id limit find_tagged."limit");
  end if;
  -- No range of texts is all that begin with a prefix, but in one collation: so all tags of a lane are looked at.
  return array(
    select f.id from holdfast.lane l cross join lateral (
      (select m.id from holdfast.message m
       where m.id >> 40 = l.id and m.tag = find_tagged.tag and (before is null or m.id < v_end) order by m.id limit find_tagged."limit")
      union all
      (select m.id from holdfast.message m
       where m.id >> 40 = l.id and m.tag is not null and find_tagged.tag is null and starts_with(m.tag, find_tagged.prefix) and (before is null or m.id < v_end)
       limit find_tagged."limit")) f
    where l.queue_id = v_queue.id order by f.id limit find_tagged."limit");
end $$;
comment on function holdfast.find_tagged is
  'Ids of messages or records that have a tag, or one that begins with a prefix, before a sequence number (null: all); or, without a tag, all before it';

-- 83_keep.sql
-- What a log keeps: retention, deletion, and its figures.
--
-- Retention removes a prefix, and log.trimmed says up to where: one number, however much is gone. log_delete removes
-- records from anywhere and leaves tombstones: ranges that are merged wherever no record is between them, and that go
-- when retention has passed them. Neither removes a number that may still come.
-- Lock order: lane lock (maintain only), the log's row, messages.

create or replace function holdfast._top(lane holdfast.lane) returns bigint language plpgsql stable
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_end bigint := (lane.id + 1)::bigint << 40;
begin
  return greatest(
    (select m.id from holdfast.message m where m.id > v_base and m.id < v_end order by m.id desc limit 1),
    (select t.hi + v_base from holdfast.tombstone t where t.lane_id = lane.id order by t.hi desc limit 1));
end $$;
comment on function holdfast._top is 'The highest id of a log that is there, or was deleted; null: none';

create or replace function holdfast._known(lane holdfast.lane, seen bigint) returns bigint language plpgsql volatile
as $$
declare
  v_booted boolean := holdfast._log_booted(lane);
  v_floor bigint := case when v_booted then coalesce(pg_sequence_last_value(lane.gap_floor), 0) else 0 end;
begin
  return case when v_floor > seen then v_floor else holdfast._decide(lane, v_floor, seen, v_booted) end;
end $$;
comment on function holdfast._known is 'The first id of a log of which it is not known whether it comes. seen: an id that was there';

create or replace function holdfast._trim_chunk(log holdfast.log, top bigint, floor bigint, at timestamptz, out cut bigint, out removed int) language plpgsql volatile
as $$
declare
  v_from bigint := (log.lane_id::bigint << 40) + log.trimmed;
begin
  select max(c.id) filter (where c.over or c.id <= top - log.retain_count) into cut
  from (select m.id, coalesce(bool_and(m.enqueued_at <= at - log.retain_age) over (order by m.id), false) as over
        from (select m.id, m.enqueued_at from holdfast.message m where m.id > v_from and m.id < floor order by m.id limit 2000) m) c;
  delete from holdfast.message m where m.id > v_from and m.id <= cut;
  get diagnostics removed = row_count;
end $$;
comment on function holdfast._trim_chunk is 'Remove what is over the retention of a log, 2,000 records at most. cut: the last id removed; null: nothing is over it';

create or replace function holdfast._trim_log(lane holdfast.lane, at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_log holdfast.log;
  v_top bigint;
  v_floor bigint;
  v_chunk record;
  v_chunks int := 0;
  v_removed int := 0;
begin
  select g.* into v_log from holdfast.log g
  where g.lane_id = lane.id and num_nonnulls(g.retain_age, g.retain_count) > 0 for update skip locked;
  if not found then
    return 0;
  end if;
  v_top := holdfast._top(lane);
  v_floor := holdfast._known(lane, v_top);
  while v_chunks < 5 loop
    v_chunk := holdfast._trim_chunk(v_log, v_top, v_floor, at);
    exit when v_chunk.cut is null;
    v_log.trimmed := v_chunk.cut - (lane.id::bigint << 40);
    v_removed := v_removed + v_chunk.removed;
    v_chunks := v_chunks + 1;
  end loop;
  if v_chunks > 0 then
    update holdfast.log g set trimmed = v_log.trimmed where g.lane_id = lane.id;
    delete from holdfast.tombstone t where t.lane_id = lane.id and t.hi <= v_log.trimmed;
  end if;
  return v_removed;
end $$;
comment on function holdfast._trim_log is 'Under the lane lock: enforce the retention of a log, 10,000 records at most; returns how many it removed';

create or replace function holdfast._bridged(lane holdfast.lane, lo bigint, hi bigint, floor bigint) returns boolean language plpgsql stable
as $$
declare
  v_lo bigint := (lane.id::bigint << 40) + lo;
  v_hi bigint := (lane.id::bigint << 40) + hi;
begin
  return hi = lo + 1 or (v_hi <= floor and not exists (select from holdfast.message m where m.id > v_lo and m.id < v_hi));
end $$;
comment on function holdfast._bridged is 'Is there no record between these two sequence numbers of a log, and will there be none?';

create or replace function holdfast._entomb(lane holdfast.lane, ids bigint[]) returns void language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_floor bigint := holdfast._known(lane, greatest(holdfast._top(lane), (select max(i) from unnest(ids) i)));
  v_range record;
  v_beside record;
begin
  for v_range in
    select min(r.seq) as lo, max(r.seq) as hi
    from (select s.seq, sum(s.starts) over (order by s.seq) as n
          from (select i - v_base as seq,
                       (not coalesce(holdfast._bridged(lane, lag(i) over (order by i) - v_base, i - v_base, v_floor), false))::int as starts
                from unnest(ids) i) s) r
    group by r.n order by 1
  loop
    delete from holdfast.tombstone t where t.lane_id = lane.id and t.hi > v_range.lo and t.hi < v_range.hi;
    select t.lo, t.hi into v_beside from holdfast.tombstone t where t.lane_id = lane.id and t.hi < v_range.lo order by t.hi desc limit 1;
    if found and holdfast._bridged(lane, v_beside.hi, v_range.lo, v_floor) then
      delete from holdfast.tombstone t where t.lane_id = lane.id and t.hi = v_beside.hi;
      v_range.lo := v_beside.lo;
    end if;
    select t.lo, t.hi into v_beside from holdfast.tombstone t where t.lane_id = lane.id and t.hi > v_range.hi order by t.hi limit 1;
    if found and holdfast._bridged(lane, v_range.hi, v_beside.lo, v_floor) then
      update holdfast.tombstone t set lo = v_range.lo where t.lane_id = lane.id and t.hi = v_beside.hi;
    else
      insert into holdfast.tombstone (lane_id, lo, hi) values (lane.id, v_range.lo, v_range.hi);
    end if;
  end loop;
end $$;
comment on function holdfast._entomb is 'Under the lock of the log''s row: leave tombstones for records that were deleted, merged with those beside them';

create or replace function holdfast._entomb_in(queue holdfast.queue, ids bigint[]) returns void language plpgsql volatile
as $$
declare
  v_lane holdfast.lane;
begin
  if queue.kind = 'log' and cardinality(ids) > 0 then
    v_lane := holdfast._log_lane(queue.name);
    perform from holdfast.log g where g.lane_id = v_lane.id for update;
    perform holdfast._entomb(v_lane, ids);
  end if;
end $$;
comment on function holdfast._entomb_in is 'Leave tombstones for records that were moved or discarded, if this is a log';

create or replace function holdfast._to_delete(lane holdfast.lane, seqs bigint[], tag text, before bigint, trimmed bigint, "limit" int) returns bigint[]
language plpgsql stable
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_from bigint := v_base + trimmed;
  v_end bigint := v_base + least(before, 1::bigint << 40);
begin
  if seqs is not null then
    return array(select m.id from holdfast.message m where m.id = any (array(select v_base + s from unnest(seqs) s where s between 1 and 1099511627775)));
  elsif tag is not null then
    return array(select m.id from holdfast.message m where m.id >> 40 = lane.id and m.tag = _to_delete.tag and m.id > v_from and m.id < v_end
                 order by m.id limit _to_delete."limit");
  end if;
  return array(select m.id from holdfast.message m where m.id > v_from and m.id < v_end order by m.id limit _to_delete."limit");
end $$;
comment on function holdfast._to_delete is 'The ids that log_delete is about';

create or replace function holdfast.log_delete(
  queue text, seqs bigint[] default null, tag text default null, before bigint default null, "limit" int default 10000) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lane holdfast.lane;
  v_trimmed bigint;
  v_ids bigint[];
  v_gone bigint[];
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('log_delete');
  if num_nonnulls(seqs, tag, before) = 0 or (seqs is not null and num_nonnulls(tag, before) > 0) or cardinality(seqs) > 10000 then
    perform holdfast._fail('QH605', 'what is to be deleted is not clear',
      case when cardinality(seqs) > 10000 then format('Got %s sequence numbers.', cardinality(seqs)) else format('Got %s of seqs, tag, before.', num_nonnulls(seqs, tag, before)) end,
      'Pass up to 10,000 seqs; or a tag; or before, the first sequence number to keep; or tag and before.');
  end if;
  v_lane := holdfast._log_lane(log_delete.queue);
  select g.trimmed into v_trimmed from holdfast.log g where g.lane_id = v_lane.id for update;
  v_ids := holdfast._to_delete(v_lane, seqs, tag, before, v_trimmed, "limit");
  with gone as (delete from holdfast.message m where m.id = any (v_ids) returning m.id)
  select array_agg(g.id) into v_gone from gone g;
  perform holdfast._entomb(v_lane, v_gone);
  return coalesce(cardinality(v_gone), 0);
end $$;
comment on function holdfast.log_delete is
  'Delete records of a log: by sequence number, by tag, or all before one; at most limit, the oldest first. Returns how many; readers are told';

create or replace function holdfast._run_end(first bigint, top bigint) returns bigint language plpgsql stable
as $$
begin
  -- Somebody is appending: what follows without a hole is known too.
  return (select coalesce(max(d.id) filter (where d.id = first + d.nth - 1), first - 1)
          from (select m.id, row_number() over (order by m.id) as nth
                from (select m.id from holdfast.message m where m.id >= first and m.id <= top order by m.id limit 10000) m) d);
end $$;
comment on function holdfast._run_end is 'The last id of those that follow on a first one without a hole, up to 10,000; the one before the first: it is not there';

create or replace function holdfast._last_known(lane holdfast.lane, trimmed bigint) returns bigint language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_top bigint := holdfast._top(lane);
  v_from bigint := greatest(holdfast._known(lane, v_top), v_base + trimmed + 1);
begin
  if v_top is null or v_from > v_top then
    return coalesce(v_top - v_base, trimmed);
  end if;
  return holdfast._run_end(v_from, v_top) - v_base;
end $$;
comment on function holdfast._last_known is 'The last sequence number of a log up to which all is known; looks at 10,000 records';

create or replace function holdfast.log_stats(queue text)
returns table (first_seq bigint, last_seq bigint, records bigint, trimmed bigint, oldest_age interval, exact boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lane holdfast.lane := holdfast._log_lane(log_stats.queue);
  v_base bigint := v_lane.id::bigint << 40;
  v_from bigint;
  v_upto bigint;
begin
  perform holdfast._check_isolation('log_stats');
  select g.trimmed into log_stats.trimmed from holdfast.log g where g.lane_id = v_lane.id;
  last_seq := holdfast._last_known(v_lane, log_stats.trimmed);
  -- What was deleted right behind retention need not be walked over.
  select t.hi into v_from from holdfast.tombstone t
  where t.lane_id = v_lane.id and t.hi > log_stats.trimmed and t.lo <= log_stats.trimmed + 1 order by t.hi limit 1;
  v_from := v_base + coalesce(v_from, log_stats.trimmed);
  v_upto := v_base + last_seq;
  select m.id - v_base, holdfast.now() - m.enqueued_at into first_seq, oldest_age
  from holdfast.message m where m.id > v_from and m.id <= v_upto order by m.id limit 1;
  select count(*), count(*) <= 10000 into records, exact
  from (select from holdfast.message m where m.id > v_from and m.id <= v_upto order by m.id limit 10001) m;
  if not exact then
    records := greatest(v_upto - v_from - (select coalesce(sum(t.hi - t.lo + 1), 0)
                                           from (select t.lo, t.hi from holdfast.tombstone t
                                                 where t.lane_id = v_lane.id and t.hi > v_from - v_base order by t.hi limit 10000) t), 10001);
  end if;
  return next;
end $$;
comment on function holdfast.log_stats is
  'Figures of a log: its first record, the last number up to which all is known, how many records (above 10,000 an estimate), what retention has removed';

-- 83_sample.sql
-- Samples: what happened in a queue, minute by minute, kept for 14 days.
--
-- maintain() looks at every lane in passing (_probe) and writes a sample of each queue in the first call of a minute.
-- A sample is the difference between two looks at figures that only grow: ids drawn, counters, sums over the probes.
-- No message pays for it. While nothing happens and as much waits as before, the last sample grows instead: a queue at
-- rest takes one row, not one a minute, and the next one still begins where something happened.
--
-- waiting     how long messages had waited when they were handed out: those that the cursor passed between two looks
--             are booked with the age of the message that was next in line at the second
-- processing  how long messages were in flight: by Little's law, the average number in flight * time / number done

create or replace function holdfast._class(seconds float8) returns int language sql immutable
  return width_bucket(seconds, array[0.01, 0.1, 1, 10, 60, 600, 3600]::float8[]) + 1;
comment on function holdfast._class is 'Which of the eight classes of the histograms a duration falls into';

create or replace function holdfast._histogram(classes bigint[]) returns jsonb language sql immutable
  return jsonb_build_object('under_10ms', classes[1], 'under_100ms', classes[2], 'under_1s', classes[3], 'under_10s', classes[4],
                            'under_1min', classes[5], 'under_10min', classes[6], 'under_1h', classes[7], 'longer', classes[8]);
comment on function holdfast._histogram is 'A histogram as samples() shows it';

create or replace function holdfast._one_class(seconds float8, messages bigint) returns bigint[] language sql immutable
  return (select array_agg(case when n = holdfast._class(seconds) then messages else 0 end order by n) from generate_series(1, 8) n);
comment on function holdfast._one_class is 'A histogram with all messages in the class of one duration';

create or replace function holdfast._probe(lane holdfast.lane, start bigint, at timestamptz) returns void language plpgsql volatile
as $$
declare
  v_floor timestamptz := holdfast._time(coalesce(pg_sequence_last_value(lane.lease_floor), 0));
  v_first bigint := (lane.id::bigint << 40) + 1;
  v_waiting float8;
  v_held bigint;
begin
  select greatest(extract(epoch from at - m.enqueued_at), 0) into v_waiting
  from (select m.enqueued_at, m.due_at from holdfast.message m
        where m.id >= _probe.start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 100) m
  where m.due_at is null limit 1;
  select coalesce(sum(cardinality(l.ids)), 0) into v_held
  from (select l.ids from holdfast.lease l where l.lane_id = lane.id and l.deadline >= v_floor order by l.deadline limit 1000) l;
  insert into holdfast.probe as p (lane_id, start, looks, in_flight, waiting)
  values (lane.id, _probe.start, 1, v_held, holdfast._one_class(coalesce(v_waiting, 0), _probe.start - v_first))
  on conflict (lane_id) do update set
    start = excluded.start, looks = p.looks + 1, in_flight = p.in_flight + v_held,
    waiting = array(select a + b from unnest(p.waiting, holdfast._one_class(coalesce(v_waiting, 0), greatest(excluded.start - p.start, 0))) s(a, b));
end $$;
comment on function holdfast._probe is 'Under the lane lock: note how long the next message has waited, how many went past since the last look, and how many are in flight';

create or replace function holdfast._growth(before bigint[], after bigint[]) returns bigint[] language sql immutable
  return (select array_agg(case when a.value >= coalesce(before[a.n], 0) then a.value - coalesce(before[a.n], 0) else a.value end order by a.n)
          from unnest(after) with ordinality a(value, n));
comment on function holdfast._growth is 'By how much each sum has grown; one that was lost in a crash has started over';

create or replace function holdfast._totals(queue holdfast.queue, stats holdfast.stats) returns bigint[] language plpgsql stable
as $$
declare
  v_probed bigint[];
begin
  select array[sum(p.looks), sum(p.in_flight), sum(p.waiting[1]), sum(p.waiting[2]), sum(p.waiting[3]), sum(p.waiting[4]),
               sum(p.waiting[5]), sum(p.waiting[6]), sum(p.waiting[7]), sum(p.waiting[8])]::bigint[]
  into v_probed from holdfast.lane l join holdfast.probe p on p.lane_id = l.id where l.queue_id = queue.id;
  return array[(stats.counters ->> 'sent')::bigint, (stats.counters ->> 'done')::bigint]
         || array(select (stats.counters ->> k.kind)::bigint from unnest(holdfast._counted()) with ordinality k(kind, n) order by k.n)
         || array(select coalesce(s, 0) from unnest(v_probed) s);
end $$;
comment on function holdfast._totals is 'What a sample is a difference of: sent, done, the counters; looks, in flight, and the eight classes of waiting';

create or replace function holdfast._goes_on(last holdfast.sample, growth bigint[], stats holdfast.stats) returns boolean language plpgsql volatile
as $$
begin
  -- Looks and what they saw in flight (10 and 11) grow with time alone.
  if last.figures || last.waiting || growth[1:9] || growth[12:19] <> array_fill(0::bigint, array[34]) or last.exact <> stats.exact
     or (last.ready, last.scheduled, last.blocked, last.in_flight) <> (stats.ready, stats.scheduled, stats.blocked, stats.in_flight) then
    return false;
  end if;
  -- Whoever keeps the row is not waited for: a new one is written.
  perform from holdfast.sample s where s.queue_id = last.queue_id and s.minute = last.minute for update skip locked;
  return found;
end $$;
comment on function holdfast._goes_on is
  'Whether nothing has happened, in the last sample and since, and as much waits as then: it is locked, to be made longer';

create or replace function holdfast._sample(queue holdfast.queue, at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_minute timestamptz := date_trunc('minute', at, 'UTC');
  v_last holdfast.sample;
  v_stats holdfast.stats;
  v_totals bigint[];
  v_growth bigint[];
  v_began timestamptz;
  v_lanes bigint;
  v_seconds float8;
begin
  -- Not those of a time to come, which a clock that was set ahead has left.
  select s.* into v_last from holdfast.sample s where s.queue_id = queue.id and s.minute <= v_minute order by s.minute desc limit 1;
  if v_last.minute = v_minute then
    return '{}';
  end if;
  select s.* into v_stats from holdfast.queue_stats(queue.name) s;
  v_totals := holdfast._totals(queue, v_stats);
  -- An estimate of the depth may make it look as if less were done than before.
  v_totals[2] := greatest(v_totals[2], v_last.totals[2]);
  v_growth := holdfast._growth(v_last.totals, v_totals);
  v_began := coalesce(v_last.ended, least(queue.created_at, at));
  v_lanes := (select count(*) from holdfast.lane l where l.queue_id = queue.id);
  v_seconds := v_growth[11]::float8 * v_lanes / greatest(v_growth[10], 1) * extract(epoch from at - v_began) / greatest(v_growth[2], 1);
  if not holdfast._goes_on(v_last, v_growth, v_stats) then
    insert into holdfast.sample (queue_id, minute, began, ended, figures, ready, scheduled, blocked, in_flight, oldest_age, exact,
                                 waiting, processing, totals)
    values (queue.id, v_minute, v_began, at, v_growth[1:9], v_stats.ready, v_stats.scheduled, v_stats.blocked, v_stats.in_flight,
            v_stats.oldest_age, v_stats.exact, v_growth[12:19], holdfast._one_class(v_seconds, v_growth[2]), v_totals);
  else
    update holdfast.sample s set minute = v_minute, ended = at, oldest_age = v_stats.oldest_age, totals = v_totals
    where s.queue_id = queue.id and s.minute = v_last.minute;
  end if;
  delete from holdfast.sample s where s.queue_id = queue.id and s.minute = any (array(
    select o.minute from holdfast.sample o where o.queue_id = queue.id and o.minute < at - interval '14 days' order by o.minute limit 100
    for update skip locked));
  return '{"sampled": 1}';
end $$;
comment on function holdfast._sample is
  'Write the sample of this minute, unless it is there, or let the last one go on to it; and remove up to 100 that are older than 14 days';

create or replace function holdfast.samples(queue text, since timestamptz default null, until timestamptz default null)
returns table (began timestamptz, ended timestamptz, sent bigint, done bigint, failed bigint, dead bigint, expired bigint, discarded bigint,
               nacked bigint, lapsed bigint, moved bigint, depth bigint, ready bigint, scheduled bigint, blocked bigint, in_flight bigint,
               oldest_age interval, exact boolean, waiting jsonb, processing jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(samples.queue);
  v_until timestamptz := coalesce(samples.until, 'infinity');
  v_since timestamptz := coalesce(samples.since, least(v_until, holdfast.now()) - interval '1 hour');
begin
  if v_since > v_until then
    perform holdfast._fail('QH421', 'since is later than until', format('Got %s and %s.', v_since, v_until),
      'since and until take times; without since it is the last hour before until, without until all up to now.');
  end if;
  return query
    select s.began, s.ended, s.figures[1], s.figures[2], s.figures[6], s.figures[5], s.figures[7], s.figures[8], s.figures[3], s.figures[4],
           s.figures[9], s.ready + s.scheduled + s.blocked + s.in_flight, s.ready, s.scheduled, s.blocked, s.in_flight,
           s.oldest_age, s.exact, holdfast._histogram(s.waiting), holdfast._histogram(s.processing)
    from holdfast.sample s
    where s.queue_id = v_queue.id and s.minute >= v_since - interval '1 minute' and s.minute <= v_until
      and s.ended > v_since and s.ended <= v_until
    order by s.minute;
end $$;
comment on function holdfast.samples is 'What happened in a queue, minute by minute: the samples that ended between two times, by default in the last hour';

-- 84_schedule.sql
-- Schedules: when the jobs of servers run.
--
--   set_schedule    from now on a job runs by this
--   schedules       all of them
--   drop_schedule   the job runs no more
--   take_tick       for servers: this tick is mine
--
-- Table: schedule. What a cron expression means is for servers to know: they tell when the next tick is, by the clock of the
-- database, which is the same for all. A tick is taken by moving its row on from what the server saw: only one can do so, and
-- whoever dies later leaves the next tick to the others. Changes are announced on the channel holdfast_schedule. One row lock, and no other.

create or replace function holdfast._check_job(name text) returns void language plpgsql stable
as $$
begin
  if (_check_job.name ~ '^[A-Za-z0-9._:-]{1,200}$') is not true then
    perform holdfast._fail('QH830', 'invalid name of a job', format('Got %s.', coalesce(quote_literal(left(_check_job.name, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  end if;
end $$;
comment on function holdfast._check_job is 'Refuse a bad name of a job';

create or replace function holdfast._check_tick(next_at timestamptz, after timestamptz) returns void language plpgsql stable
as $$
begin
  if (isfinite(_check_tick.next_at) and _check_tick.next_at > _check_tick.after) is not true then
    perform holdfast._fail('QH831', 'the time of the next tick is out of range', format('Got %s.', coalesce(_check_tick.next_at::text, 'null')),
      format('next_at is a time after %s.', coalesce(_check_tick.after::text, 'the tick that is taken, which is null')));
  end if;
end $$;
comment on function holdfast._check_tick is 'Refuse a next tick that is none';

create or replace function holdfast.set_schedule(name text, cron text, next_at timestamptz) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_job(set_schedule.name);
  if (length(set_schedule.cron) <= 100 and set_schedule.cron ~ '^([-0-9A-Za-z*,/#]+( [-0-9A-Za-z*,/#]+){4}|@every [0-9]+(\.[0-9]+)? s)$') is not true then
    perform holdfast._fail('QH831', 'this is no schedule', format('Got %s.', coalesce(quote_literal(left(set_schedule.cron, 120)), 'null')),
      'cron takes five fields with single spaces between them, as in ''30 4 * * *'': minute, hour, day of month, month, day of week; or ''@every 60 s''.');
  end if;
  perform holdfast._check_tick(set_schedule.next_at, timestamptz 'epoch');
  -- The same again leaves a tick that is due to be taken. But where one was taken in the future, the clock has been set back since:
  -- the tick after it may be years ahead.
  insert into holdfast.schedule as s (name, cron, next_at)
  values (set_schedule.name, set_schedule.cron, set_schedule.next_at)
  on conflict on constraint schedule_pkey do update
    set cron = excluded.cron, next_at = excluded.next_at, last_at = case when s.last_at <= v_now then s.last_at end
    where s.cron <> excluded.cron or s.last_at > v_now;
  if found then
    perform pg_notify('holdfast_schedule', set_schedule.name);
  end if;
  return found;
end $$;
comment on function holdfast.set_schedule is
  'Run a job of servers by a schedule, first at next_at; false: it has this schedule already, and its next tick stays. cron: five fields, in UTC, or @every and seconds';

create or replace function holdfast.schedules() returns table (name text, cron text, next_at timestamptz, last_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select s.name, s.cron, s.next_at, s.last_at from holdfast.schedule s order by s.name collate "C"
$$;
comment on function holdfast.schedules is 'The schedules of the jobs of servers';

create or replace function holdfast.drop_schedule(name text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform holdfast._check_job(drop_schedule.name);
  delete from holdfast.schedule s where s.name = drop_schedule.name;
  if found then
    perform pg_notify('holdfast_schedule', drop_schedule.name);
  end if;
  return found;
end $$;
comment on function holdfast.drop_schedule is 'Let a job of servers run no more; false: it had no schedule';

create or replace function holdfast.take_tick(name text, cron text, at timestamptz, next_at timestamptz) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_job(take_tick.name);
  perform holdfast._check_tick(take_tick.next_at, take_tick.at);
  update holdfast.schedule s set next_at = take_tick.next_at, last_at = v_now
  where s.name = take_tick.name and s.cron = take_tick.cron and s.next_at = take_tick.at and s.next_at <= v_now;
  return found;
end $$;
comment on function holdfast.take_tick is
  'For servers: take the tick that is due at a time, and set the next; true for one of all who ask. cron and at: as the caller saw them, else it is false';

-- 84_stream.sql
-- For readers that keep a place: claims found again by their consumer's name, and the archive read in order.
--
-- claims         what a consumer of this name holds, for one that was restarted and has lost the tokens.
-- read_archive   what ended, by (ended_at, id). ended_at is taken before the commit, so rows turn up behind others
--                that are there already. What is shown by itself therefore stops at a time of which it is known that every
--                transaction that may have taken an earlier one has ended (_archive_settled). Whoever ends a message
--                has locked holdfast.queue, lane, lease or message before it looks at the clock, until it has ended.
-- Nothing here locks a row.

create or replace function holdfast.claims(queue text, consumer text)
returns table (token bigint, messages int, first_id bigint, last_id bigint, deadline timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(claims.queue);
begin
  return query
    select s.token, sum(cardinality(s.ids))::int, min(i.lo), max(i.hi), min(s.deadline)
    from holdfast.lane n
      cross join lateral (select l.token, l.ids, l.deadline from holdfast.lease l
                          where l.lane_id = n.id and l.consumer = claims.consumer and l.ids <> '{}' and holdfast._is_ours(n.id)) s
      cross join lateral (select min(u) as lo, max(u) as hi from unnest(s.ids) u) i
    where n.queue_id = v_queue.id
    group by s.token order by 3, 1;
end $$;
comment on function holdfast.claims is 'The claims of a consumer with this name: tokens, how many messages each holds, between which ids, and until when';

create or replace function holdfast._enders() returns text[] language plpgsql volatile
as $$
begin
  return array(
    select distinct k.virtualtransaction from pg_locks k
    where k.granted and k.locktype = 'relation' and k.database = holdfast._database_oid() and k.pid is distinct from pg_backend_pid()
      and (k.relation in ('holdfast.queue'::regclass, 'holdfast.lane'::regclass)
           or k.relation in ('holdfast.lease'::regclass, 'holdfast.message'::regclass) and k.mode = 'RowExclusiveLock'));
end $$;
comment on function holdfast._enders is 'Other transactions that are open and may have ended messages';

create or replace function holdfast._archive_settled(patience interval) returns timestamptz language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_at timestamptz := holdfast.now();
  v_open text[] := holdfast._enders();
begin
  -- One that was prepared meanwhile goes by another name, so each of those counts.
  while exists (select from unnest(holdfast._enders()) e where e = any (v_open) or e like '-1/%') loop
    if clock_timestamp() > v_began + patience then
      return '-infinity';
    end if;
    perform pg_sleep(0.002);
  end loop;
  return v_at;
end $$;
comment on function holdfast._archive_settled is
  'A time before which no message can turn up any more as ended, for statements that come next; -infinity: somebody stays open';

create or replace function holdfast.read_archive(
  queue text, "from" timestamptz default null, "to" timestamptz default null, "limit" int default 100, after bigint default null)
returns setof holdfast.entry
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(read_archive.queue);
  v_from timestamptz := coalesce("from", '-infinity');
  v_to timestamptz;
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_replay("from", "to", null);
  perform holdfast._check_isolation('read_archive');
  v_to := coalesce("to", holdfast._archive_settled('500 ms'));
  return query
    with ahead as (
      select f.message, sum(f.bytes) over (order by (f.message).ended_at, (f.message).id rows between unbounded preceding and 1 preceding) as bytes
      from (select a as message, coalesce(pg_column_size(a.payload), 0) + coalesce(pg_column_size(a.body), 0) as bytes
            from holdfast.archive a
            where a.queue_id = v_queue.id and a.ended_at >= v_from and a.ended_at < v_to
              and (a.ended_at, a.id) > (v_from, coalesce(read_archive.after, 0))
            order by a.ended_at, a.id limit read_archive."limit") f
    )
    select e.* from ahead h cross join lateral holdfast._archived(h.message, v_queue.name) e
    where coalesce(h.bytes, 0) < holdfast._answer_bytes() order by e.ended_at, e.id;
end $$;
comment on function holdfast.read_archive is
  'What ended in a period and is kept, the first to end first. Without to: up to a time before which no more can turn up. To go on, pass the last ended_at as from and the last id as after';

-- 85_maintain.sql
-- Maintenance: what no caller waits for. Safe from any number of processes at once: each call takes lanes and queues in
-- turn, for as long as its budget allows, and skips those that somebody else is working on.
--
-- A step is a function that returns what it did as a JSON object, numbers to be added up, with more = true if it has left
-- work behind. Steps for the whole database are listed in maintain(), those for each queue in _maintain_queue(), those that
-- need the lane lock in _maintain_lane(): one line each.
--
-- maintain_in_turn() is for processes that each call it all the time: of any number of them one works at a time, and all
-- together as often as one would. The election is a lock of the transaction, so it needs no session of its own (PgBouncer),
-- and whoever dies in office has left it.
--
-- The audit turns every defect that could strand a message into a delay: a message behind the cursor that is in
-- no lease and not due is made due.

create or replace function holdfast._audit(lane holdfast.lane, at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_from bigint;
  v_next bigint;
  v_cursor bigint := coalesce(pg_sequence_last_value(lane.cursor), 0);
  v_stranded bigint[];
  v_parked bigint[];
begin
  select greatest(b.audited, lane.id::bigint << 40) into v_from from holdfast.boot b where b.lane_id = lane.id;
  with chunk as (
    select m.id, m.due_at from holdfast.message m where m.id > v_from and m.id < v_cursor order by m.id limit 2000
  ), suspect as (
    select c.id from chunk c where c.due_at is null or c.due_at = '-infinity'
  ), parked as (
    select c.id from chunk c where c.due_at = 'infinity'
  ), leased as (
    select h.id from holdfast._holders(array(select s.id from suspect s)) h
  )
  select (select max(c.id) from chunk c), array(
           select s.id from suspect s where s.id not in (select l.id from leased l) and not exists (
             select from (select g.hi from holdfast.gap g where g.lane_id = lane.id and g.lo <= s.id order by g.lo desc limit 1) g where g.hi >= s.id)),
         array(select p.id from parked p)
  into v_next, v_stranded, v_parked;
  if v_parked <> '{}' then
    -- Parked behind a living head it waits for the baton; behind nobody it would wait for ever.
    v_stranded := v_stranded || holdfast._orphans(lane.queue_id, v_parked);
  end if;
  update holdfast.message m set due_at = at
  where m.id = any (array(select s.id from holdfast.message s where s.id = any (v_stranded)
                          and (s.due_at is null or s.due_at in ('-infinity', 'infinity')) and s.blocks_since is null for update skip locked));
  update holdfast.boot b set audited = coalesce(v_next, 0) where b.lane_id = lane.id and b.audited <> coalesce(v_next, 0);
  return coalesce(cardinality(v_stranded), 0);
end $$;
comment on function holdfast._audit is 'Under the lane lock: look at the next 2,000 messages behind the cursor, and make those due that nobody holds, or that are parked behind nobody';

create or replace function holdfast._tally_chunk(tally holdfast.tally, at timestamptz) returns holdfast.tally language plpgsql stable
as $$
declare
  v_found bigint[];
  v_due_at timestamptz;
  v_id bigint;
begin
  select array[count(*) filter (where w.due_at <= at), count(*) filter (where w.due_at > at and w.due_at < 'infinity'),
               count(*) filter (where w.due_at = 'infinity')], (array_agg(w.due_at))[10000], (array_agg(w.id))[10000]
  into v_found, v_due_at, v_id
  from (select m.due_at, m.id from holdfast.message m
        where m.id >> 40 = tally.lane_id and m.due_at is not null and (m.due_at, m.id) > (tally.due_at, tally.id)
        order by m.due_at, m.id limit 10000) w;
  if v_id is null then
    tally.lane_id := (select l.id from holdfast.lane l where l.queue_id = tally.queue_id and l.id > tally.lane_id order by l.id limit 1);
  end if;
  tally.so_far := array(select f.n + tally.so_far[f.nth] from unnest(v_found) with ordinality f(n, nth) order by f.nth);
  tally.due_at := coalesce(v_due_at, '-infinity');
  tally.id := coalesce(v_id, 9223372036854775807);
  return tally;
end $$;
comment on function holdfast._tally_chunk is 'Count the next 10,000 messages that are not fresh; lane_id is null after the last';

create or replace function holdfast._tally(queue holdfast.queue, at timestamptz, until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_count holdfast.tally;
begin
  select t.* into v_count from holdfast.tally t where t.queue_id = queue.id for update skip locked;
  if not found and exists (select from holdfast.tally t where t.queue_id = queue.id) then
    return '{}';
  end if;
  if v_count.rest_until > v_began and v_count.rest_until < v_began + interval '1 hour' then
    return '{}';
  end if;
  if v_count.lane_id is null then
    v_count.queue_id := queue.id;
    v_count.lane_id := (select min(l.id) from holdfast.lane l where l.queue_id = queue.id);
    v_count.due_at := '-infinity';
    v_count.id := 9223372036854775807;
    v_count.so_far := '{0,0,0}';
    v_count.busy := interval '0';
  end if;
  loop
    v_count := holdfast._tally_chunk(v_count, at);
    exit when v_count.lane_id is null or clock_timestamp() > until;
  end loop;
  v_count.busy := v_count.busy + (clock_timestamp() - v_began);
  if v_count.lane_id is null then
    v_count.counted_at := at;
    v_count.due := v_count.so_far[1];
    v_count.scheduled := v_count.so_far[2];
    v_count.blocked := v_count.so_far[3];
    v_count.in_flight := (select coalesce(sum(cardinality(l.ids)), 0) from holdfast.lane n cross join lateral (
      select l.ids from holdfast.lease l where l.lane_id = n.id order by l.deadline limit 100000) l where n.queue_id = queue.id);
    -- A count that is dear takes a twentieth of the time.
    v_count.rest_until := case when v_count.busy > interval '100 ms' then clock_timestamp() + 20 * v_count.busy end;
  end if;
  insert into holdfast.tally as t
  select queue.id, coalesce(v_count.counted_at, at), coalesce(v_count.in_flight, 0), coalesce(v_count.due, 0), coalesce(v_count.scheduled, 0),
         coalesce(v_count.blocked, 0), v_count.lane_id, v_count.due_at, v_count.id, v_count.so_far, v_count.busy, v_count.rest_until
  on conflict (queue_id) do update set
    counted_at = excluded.counted_at, in_flight = excluded.in_flight, due = excluded.due, scheduled = excluded.scheduled,
    blocked = excluded.blocked, lane_id = excluded.lane_id, due_at = excluded.due_at, id = excluded.id, so_far = excluded.so_far,
    busy = excluded.busy, rest_until = excluded.rest_until;
  return jsonb_build_object('more', v_count.lane_id is not null);
end $$;
comment on function holdfast._tally is 'Go on counting in full what queue_stats counts up to 10,000; in chunks, until it is time';

create or replace function holdfast._lane_holders()
returns table (queue text, priority int, pid int, "user" text, application text, client text, state text, since timestamptz, prepared text)
language plpgsql stable
as $$
begin
  -- The engine takes lane locks for a transaction. One that is held outside a transaction was taken by a stranger, before
  -- its session fell idle: any user of the database can take an advisory lock. Of a prepared transaction there is no process.
  return query
    select l.queue_name, l.priority::int, k.pid, coalesce(a.usename, p.owner)::text, nullif(a.application_name, ''), host(a.client_addr),
           a.state, coalesce(a.xact_start, a.state_change, p.prepared), p.gid
    from pg_locks k join holdfast.lane l on l.id = k.objid::bigint
      left join pg_stat_activity a on a.pid = k.pid
      left join pg_locks x on k.pid is null and x.pid is null and x.virtualtransaction = k.virtualtransaction
        and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock'
      left join pg_prepared_xacts p on p.transaction = x.transactionid
    where k.locktype = 'advisory' and k.classid = holdfast._lane_lock() and k.objsubid = 2 and k.granted
      and k.database = holdfast._database_oid() and k.pid is distinct from pg_backend_pid();
end $$;
comment on function holdfast._lane_holders is
  'Who holds a lane, other than this session, and since when at the latest: the start of the transaction, or when the session fell idle. null: the owner of the schema may not see that';

create or replace function holdfast._end_holder(process int) returns boolean language plpgsql volatile
as $$
begin
  return pg_terminate_backend(process);
exception
  when insufficient_privilege then
    raise warning 'process % has held a lane for over five minutes, and may not be ended by this user', process
      using hint = 'Let a superuser call pg_terminate_backend, or make the owner of the schema a member of pg_signal_backend.';
    return false;
end $$;
comment on function holdfast._end_holder is 'End a session that holds a lane, if the owner of the schema may';

create or replace function holdfast._end_overdue_holders(out ended int, out remaining jsonb) language plpgsql volatile
as $$
declare
  v_overdue jsonb;
  v_ended int[];
begin
  select coalesce(jsonb_agg(jsonb_strip_nulls(to_jsonb(h)) order by h.since, h.pid, h.queue, h.priority desc), '[]') into v_overdue
  from holdfast._lane_holders() h where coalesce(h.since, '-infinity') < clock_timestamp() - interval '5 minutes'
    -- Who drops or repairs a queue may take long; no claim has such a lock.
    and not exists (select from pg_locks k where k.pid = h.pid and k.locktype = 'relation' and k.mode = 'AccessExclusiveLock');
  v_ended := array(select e.pid from (select distinct (o ->> 'pid')::int as pid from jsonb_array_elements(v_overdue) o
                                      where o ? 'pid' and o ? 'since') e where holdfast._end_holder(e.pid));
  ended := cardinality(v_ended);
  remaining := (select coalesce(jsonb_agg(o), '[]') from jsonb_array_elements(v_overdue) o
                where (o ->> 'pid')::int = any (v_ended) is not true);
end $$;
comment on function holdfast._end_overdue_holders is
  'End sessions that have kept a lane for five minutes: in a transaction that claimed, or idle with a lock of their own. remaining: those that cannot be ended';

create or replace function holdfast._add_up(did jsonb, step jsonb) returns jsonb language sql immutable
  return did || coalesce((
    select jsonb_object_agg(s.key, case jsonb_typeof(s.value)
      when 'number' then to_jsonb(coalesce((did ->> s.key)::numeric, 0) + (s.value #>> '{}')::numeric)
      when 'boolean' then to_jsonb(coalesce((did ->> s.key)::boolean, false) or (s.value #>> '{}')::boolean)
      else s.value end) from jsonb_each(step) s), '{}');
comment on function holdfast._add_up is 'What maintain() did so far, and what one more step did: numbers are added, more holds if it holds for one';

create or replace function holdfast._maintain_lane(lane holdfast.lane, at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint;
  v_trimmed int;
  v_expiry record;
  v_did jsonb;
begin
  if holdfast._boot_lane(lane) then
    return '{"booted": 1}';
  end if;
  v_start := holdfast._advance(lane);
  v_did := jsonb_build_object('swept', holdfast._sweep_lane(lane, at, v_clean));
  v_did := holdfast._add_up(v_did, jsonb_build_object('found', holdfast._audit(lane, at)));
  v_trimmed := holdfast._trim_log(lane, at);
  v_did := holdfast._add_up(v_did, jsonb_build_object('trimmed', v_trimmed, 'more', v_trimmed >= 10000));
  v_expiry := holdfast._expire(lane, at, 2147483647);
  v_did := holdfast._add_up(v_did, jsonb_build_object('expired', v_expiry.expired, 'more', v_expiry.more));
  perform holdfast._probe(lane, v_start, at);
  return v_did;
end $$;
comment on function holdfast._maintain_lane is 'Under the lane lock: boot if need be, sweep, audit, trim a log, expire, look';

create or replace function holdfast._maintain_lanes(until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_turn bigint := coalesce(pg_sequence_last_value('holdfast.turn'), 0);
  v_did jsonb := '{"lanes": 0, "busy": 0, "booted": 0, "swept": 0, "found": 0, "trimmed": 0, "expired": 0, "more": false}';
  v_lane holdfast.lane;
begin
  if not exists (select from holdfast.lane l where l.id > v_turn) then
    v_turn := 0;
  end if;
  for v_lane in select l.* from holdfast.lane l where l.id > v_turn order by l.id loop
    if clock_timestamp() > until and v_did ->> 'lanes' <> '0' then
      return v_did || '{"more": true}';
    end if;
    if pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) and holdfast._unchanged(v_lane) then
      v_did := holdfast._add_up(v_did, holdfast._maintain_lane(v_lane, holdfast.now()));
    else
      v_did := holdfast._add_up(v_did, '{"busy": 1}');
    end if;
    v_did := holdfast._add_up(v_did, '{"lanes": 1}');
    perform setval('holdfast.turn', v_lane.id);
  end loop;
  perform setval('holdfast.turn', 0);
  return v_did;
end $$;
comment on function holdfast._maintain_lanes is
  'Go on with the round over all lanes until it is time, or until the round is over; those that are busy are passed over';

create or replace function holdfast._maintain_queue(queue holdfast.queue, until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_did jsonb := '{}';
begin
  v_did := holdfast._add_up(v_did, holdfast._tally(queue, holdfast.now(), until));
  v_did := holdfast._add_up(v_did, holdfast._sample(queue, holdfast.now()));
  return v_did;
end $$;
comment on function holdfast._maintain_queue is 'The steps that maintain() takes for each queue, while nobody else takes them for it';

create or replace function holdfast._maintain_queues(until timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_turn bigint := coalesce(pg_sequence_last_value('holdfast.queue_turn'), 0);
  v_did jsonb := '{"queues": 0, "sampled": 0, "more": false}';
  v_queue holdfast.queue;
begin
  if not exists (select from holdfast.queue q where q.id > v_turn) then
    v_turn := 0;
  end if;
  for v_queue in select q.* from holdfast.queue q where q.id > v_turn order by q.id loop
    if clock_timestamp() > until and v_did ->> 'queues' <> '0' then
      return v_did || '{"more": true}';
    end if;
    -- The row lock keeps the queue from being dropped meanwhile, and nobody is waited for.
    if pg_try_advisory_xact_lock(holdfast._upkeep_lock(), v_queue.id) then
      perform from holdfast.queue q where q.id = v_queue.id for key share skip locked;
      if found then
        v_did := holdfast._add_up(v_did, holdfast._maintain_queue(v_queue, until));
      end if;
    end if;
    v_did := holdfast._add_up(v_did, '{"queues": 1}');
    perform setval('holdfast.queue_turn', v_queue.id);
  end loop;
  perform setval('holdfast.queue_turn', 0);
  return v_did;
end $$;
comment on function holdfast._maintain_queues is
  'Go on with the round over all queues until it is time, or until the round is over; those that somebody else is working on are passed over';

create or replace function holdfast.maintain(budget interval default '100 ms') returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_did jsonb := '{}';
  v_archive jsonb;
begin
  if maintain.budget is null or maintain.budget < interval '1 ms' or maintain.budget > interval '10 s' then
    perform holdfast._fail('QH422', 'budget is out of range', format('Got %s.', coalesce(maintain.budget::text, 'null')),
      'One call of maintain takes 1 millisecond to 10 seconds; call it again while done is false.');
  end if;
  perform holdfast._check_isolation('maintain');
  perform holdfast._limit_transaction();
  v_did := holdfast._add_up(v_did, (select jsonb_build_object('holders_ended', h.ended, 'holders', h.remaining) from holdfast._end_overdue_holders() h));
  -- Lanes come first: a floor moves only in a transaction that has written nothing yet.
  v_did := holdfast._add_up(v_did, holdfast._maintain_lanes(v_began + maintain.budget));
  v_did := holdfast._add_up(v_did, holdfast._maintain_queues(greatest(v_began + maintain.budget, clock_timestamp() + maintain.budget / 2)));
  perform holdfast._tidy_limiters(holdfast.now());
  perform holdfast._forget_receipts(holdfast.now());
  v_did := holdfast._add_up(v_did, jsonb_build_object('more', holdfast._forget_attempts(holdfast.now())));
  v_did := holdfast._add_up(v_did, jsonb_build_object('more', holdfast._forget_calls(holdfast.now())));
  perform holdfast._tidy_tasks(holdfast.now());
  v_did := holdfast._add_up(v_did, holdfast._tidy_stages(holdfast.now()));
  -- Last, since it may lock the archive until this transaction ends.
  v_archive := holdfast._tend_archive(holdfast.now());
  v_did := holdfast._add_up(v_did, jsonb_build_object('forgotten', v_archive -> 'forgotten', 'partitions_made', v_archive -> 'made',
                                                      'partitions_dropped', v_archive -> 'dropped', 'more', v_archive -> 'more'));
  perform setval('holdfast.maintained_at', holdfast._us(holdfast.now()));
  return v_did - 'more' || jsonb_build_object('done', not (v_did ->> 'more')::boolean);
end $$;
comment on function holdfast.maintain is
  'Sweep, audit, expire, count and sample, lanes and queues in turn, for about so long; call it every few seconds, and again while done is false. found: messages that were stranded';

create or replace function holdfast._maintain_due_in(every interval) returns interval language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
  v_last timestamptz := holdfast._time(nullif(pg_sequence_last_value('holdfast.maintained_at'), 0));
begin
  -- A time to come was written while the clock was set.
  return case when v_last between v_now - every and v_now then v_last + every - v_now else interval '0' end;
end $$;
comment on function holdfast._maintain_due_in is 'How long until maintain() is to be called again';

create or replace function holdfast.maintain_in_turn(every interval default '10 s', budget interval default '100 ms') returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_due_in interval;
  v_did jsonb;
begin
  if every is null or every < interval '0' or every > interval '1 day' then
    perform holdfast._fail('QH422', 'every is out of range', format('Got %s.', coalesce(every::text, 'null')),
      'maintain() is called every 0 seconds to 1 day.');
  end if;
  -- By a clock that is set, everything might be over: then there is no upkeep.
  if holdfast._clock_is_set() or not pg_try_advisory_xact_lock(holdfast._turn_lock(), 0) then
    return jsonb_build_object('ran', false, 'due_in', extract(epoch from every));
  end if;
  v_due_in := holdfast._maintain_due_in(every);
  if v_due_in > interval '0' then
    return jsonb_build_object('ran', false, 'due_in', extract(epoch from v_due_in));
  end if;
  v_did := holdfast.maintain(budget);
  return v_did || jsonb_build_object('ran', true, 'due_in', case when (v_did ->> 'done')::boolean then extract(epoch from every) else 0 end);
end $$;
comment on function holdfast.maintain_in_turn is
  'maintain(), unless somebody else is at it, or it was called less than every ago, or the clock is set. due_in: when to call again, in seconds';

-- 86_pipeline.sql
-- Pipelines: who runs, how far it is, how it ended.
--
--   begin_run    a run begins; refused while another with the same exclusive key runs
--   report_run   how far it is, and that it lives
--   end_run      how it ended, with figures or an error
--   runs         the history, newest first
--
-- A run reports every few seconds. One that is not heard of for a minute is lost, or for ten seconds if its connection
-- is closed too. That is not written down: a run that was only slow shows as running again. Only a run that another one
-- took the place of is lost for good, and learns so by its next report.

create or replace function holdfast._is_lost(run holdfast.pipeline_run, at timestamptz) returns boolean language sql stable
  return run.state = 'running' and (run.seen_at < at - interval '1 minute' or (run.seen_at < at - interval '10 seconds'
    and not exists (select from pg_catalog.pg_stat_activity a where a.pid = run.backend)));
comment on function holdfast._is_lost is 'Has nobody heard of this run for so long that it must be gone?';

create or replace function holdfast._check_run(name text, "value" text) returns void language plpgsql immutable
as $$
begin
  if "value" is null or length("value") not between 1 and 200 then
    perform holdfast._fail('QH802', format('%s is not right for a run', name),
      case when "value" is null then 'Got null.' else format('Got %s characters.', length("value")) end, format('%s takes 1 to 200 characters.', name));
  end if;
end $$;
comment on function holdfast._check_run is 'Refuse a name that a run cannot have';

create or replace function holdfast._check_run_json(name text, "value" jsonb) returns void language plpgsql immutable
as $$
begin
  if jsonb_typeof("value") is distinct from 'object' or octet_length("value"::text) > 1048576 then
    perform holdfast._fail('QH802', format('%s is not right for a run', name),
      case when jsonb_typeof("value") = 'object' then format('Got %s bytes.', octet_length("value"::text))
           else format('Got %s.', coalesce(jsonb_typeof("value"), 'null')) end, format('%s takes a JSON object of at most 1 MiB.', name));
  end if;
end $$;
comment on function holdfast._check_run_json is 'Refuse parameters or figures that a run cannot have';

create or replace function holdfast._trim_runs(pipeline text, at timestamptz) returns void language plpgsql volatile
as $$
begin
  -- A run under way is kept, however old; one that nobody heard of for a day is not under way. What somebody else is
  -- removing at the moment is not waited for.
  delete from holdfast.pipeline_run r where r.id in (
    select r.id from holdfast.pipeline_run r where r.pipeline = _trim_runs.pipeline
      and (r.state <> 'running' or r.seen_at < at - interval '1 day') order by r.id desc offset 1000 limit 1000 for update skip locked);
  delete from holdfast.pipeline_run r where r.id in (
    select r.id from holdfast.pipeline_run r where r.seen_at < at - interval '90 days' order by r.seen_at limit 1000 for update skip locked);
end $$;
comment on function holdfast._trim_runs is 'Keep the last 1,000 runs of a pipeline, and those of the last 90 days of all';

create or replace function holdfast.begin_run(pipeline text, parameters jsonb default '{}', exclusive text default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_id bigint;
  v_other holdfast.pipeline_run;
begin
  perform holdfast._check_run('pipeline', begin_run.pipeline);
  perform holdfast._check_run_json('parameters', begin_run.parameters);
  perform holdfast._check_isolation('begin_run');
  perform holdfast._trim_runs(begin_run.pipeline, v_now);
  if begin_run.exclusive is not null then
    perform holdfast._check_run('exclusive', begin_run.exclusive);
    update holdfast.pipeline_run r set state = 'lost', ended_at = v_now
    where r.exclusive = begin_run.exclusive and r.state = 'running' and holdfast._is_lost(r, v_now);
  end if;
  insert into holdfast.pipeline_run (pipeline, parameters, exclusive, started_by, backend, started_at, seen_at)
  values (begin_run.pipeline, begin_run.parameters, begin_run.exclusive, session_user, pg_backend_pid(), v_now, v_now)
  on conflict do nothing returning id into v_id;
  if v_id is null then
    select r.* into v_other from holdfast.pipeline_run r where r.exclusive = begin_run.exclusive and r.state = 'running';
    perform holdfast._fail('QH801', 'another run is at work on the same',
      format('Run %s of %s began at %s, and was last heard of at %s. Both are about: %s.',
             v_other.id, v_other.pipeline, v_other.started_at, v_other.seen_at, begin_run.exclusive),
      'Wait until it has ended. A run whose process is gone counts as lost after a minute at most.');
  end if;
  return v_id;
end $$;
comment on function holdfast.begin_run is
  'A run of a pipeline begins; returns its id. Of runs with the same exclusive key, one runs at a time. Keeps the history short';

create or replace function holdfast.report_run(run_id bigint, step text default null, done bigint default null, total bigint default null)
returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  update holdfast.pipeline_run r
  set seen_at = holdfast.now(), backend = pg_backend_pid(), step = left(report_run.step, 1000), done = report_run.done, total = report_run.total
  where r.id = report_run.run_id and r.state = 'running' and r.started_by = session_user;
  return found;
end $$;
comment on function holdfast.report_run is 'A run lives, and is so far; false: it is over, another took its place, or it is somebody else''s';

create or replace function holdfast.end_run(run_id bigint, state text, figures jsonb default null, error text default null)
returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  if end_run.state is null or end_run.state not in ('done', 'failed', 'interrupted') then
    perform holdfast._fail('QH802', 'a run does not end so', format('Got %s.', coalesce(quote_literal(left(end_run.state, 200)), 'null')),
      'state takes done, failed or interrupted.');
  end if;
  if end_run.figures is not null then
    perform holdfast._check_run_json('figures', end_run.figures);
  end if;
  update holdfast.pipeline_run r
  set state = end_run.state, figures = end_run.figures, error = left(end_run.error, 10000), seen_at = holdfast.now(), ended_at = holdfast.now()
  where r.id = end_run.run_id and r.state = 'running' and r.started_by = session_user;
  return found;
end $$;
comment on function holdfast.end_run is 'A run is over: done, failed or interrupted; false: it was over, another took its place, or it is somebody else''s';

create or replace function holdfast.runs(pipeline text default null, "limit" int default 100)
returns setof holdfast.run
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_limit("limit");
  return query
    select r.id, r.pipeline, case when holdfast._is_lost(r, v_now) then 'lost' else r.state end, r.step, r.done, r.total, r.parameters,
           r.figures, r.error, r.started_by, r.started_at, r.seen_at, r.ended_at
    from holdfast.pipeline_run r where runs.pipeline is null or r.pipeline = runs.pipeline order by r.id desc limit runs."limit";
end $$;
comment on function holdfast.runs is 'The runs of a pipeline, or of all, the newest first';

-- 87_why.sql
-- why(): why is nothing moving?
--
-- One row for each thing that keeps messages from moving, or soon will, with what to do about it. A check is a function
-- that returns findings, none if there is nothing to say; they are listed in _findings(), one line each. All look at a
-- bounded number of rows, whatever lies in the queue; nothing is changed and nobody is waited for.
--
-- severity: blocking (nothing moves because of it), warning (somebody should act), info (so it is meant to be), ok

create or replace function holdfast._several(n bigint, what text) returns text language sql immutable
  return case when n = 1 then '1 ' || what else n || ' ' || what || 's' end;
comment on function holdfast._several is 'A number of things, in words';

create or replace function holdfast._why_state(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_next timestamptz;
begin
  if queue.paused then
    return next ('paused', 'blocking', 'The queue is paused: claims get nothing.', jsonb_build_object('ready', stats.ready),
      'Resume it: select holdfast.resume_queue(''' || queue.name || ''').')::holdfast.finding;
  end if;
  if stats.depth = 0 then
    return next ('empty', 'info', format('The %s is empty: there is nothing to hand out.', queue.kind), jsonb_build_object('counters', stats.counters),
      format('Look whether producers send to this %s, and whether their transactions commit.', queue.kind))::holdfast.finding;
  end if;
  if stats.ready = 0 and stats.scheduled > 0 then
    v_next := (select min(d.due_at) from holdfast.lane l cross join lateral (
      select m.due_at from holdfast.message m where m.id >> 40 = l.id and m.due_at > at and m.due_at < 'infinity' order by m.due_at limit 1) d
      where l.queue_id = queue.id);
    return next ('scheduled', 'info', format(case when stats.scheduled = 1 then '%s waits for its time; it is due at %s.' else '%s wait for their time; the next one is due at %s.' end,
             holdfast._several(stats.scheduled, 'message'), v_next),
      jsonb_build_object('scheduled', stats.scheduled, 'next_due_at', v_next),
      'Wait, or look at delay, deliver_at and backoff: they decide when.')::holdfast.finding;
  end if;
  if stats.depth >= queue.max_depth then
    return next ('full', 'warning', format('The queue holds %s messages of at most %s: sends are refused.', stats.depth, queue.max_depth),
      jsonb_build_object('depth', stats.depth, 'max_depth', queue.max_depth),
      'Consume faster, or raise max_depth with holdfast.configure_queue.')::holdfast.finding;
  end if;
  if stats.dead > 0 then
    return query select * from holdfast._why_dead(queue, stats.dead);
  end if;
end $$;
comment on function holdfast._why_state is 'Findings: paused, empty, scheduled, full, dead';

create or replace function holdfast._why_dead(queue holdfast.queue, dead bigint) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_last record;
begin
  -- The newest dead letters of all lanes of the dead-letter queue; those of other queues may lie between them.
  select d.id, d.enqueued_at, d.last_error into v_last from holdfast.queue g join holdfast.lane l on l.queue_id = g.id cross join lateral (
    select m.* from (select m.id, m.enqueued_at, m.last_error, m.origin from holdfast.message m
                     where m.id >= l.id::bigint << 40 and m.id < (l.id + 1)::bigint << 40 order by m.id desc limit 100) m
    where m.origin ->> 'queue' = queue.name limit 1) d
  where g.name = queue.dead_letter order by d.enqueued_at desc limit 1;
  return next ('dead', case when dead < 100 then 'info' else 'warning' end,
    format('%s of this queue in %s%s.', holdfast._several(dead, 'dead letter'), queue.dead_letter,
           ', the last one with: ' || coalesce(left(v_last.last_error, 200), 'no error text')),
    jsonb_strip_nulls(jsonb_build_object('dead', dead, 'dead_letter', queue.dead_letter, 'last_id', v_last.id::text, 'last_error', left(v_last.last_error, 1000),
                                         'last_died_at', v_last.enqueued_at)),
    format('Look at holdfast.browse(''%1$s'', ''dead''), mend the cause, then holdfast.redrive(''%1$s'') or holdfast.discard.', queue.name))::holdfast.finding;
end $$;
comment on function holdfast._why_dead is 'Finding: dead letters lie about';

create or replace function holdfast._why_leases(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_held record;
begin
  if stats.in_flight = 0 then
    return;
  end if;
  with held as materialized (
    select s.consumer, cardinality(s.ids) as messages, s.deadline from holdfast.lane l cross join lateral (
      select e.consumer, e.ids, e.deadline from holdfast.lease e where e.lane_id = l.id and e.ids <> '{}' order by e.deadline limit 1000) s
    where l.queue_id = queue.id
  ), by_consumer as (
    select h.consumer, sum(h.messages) as messages, min(h.deadline) as first_deadline, max(h.deadline) as last_deadline
    from held h group by h.consumer order by sum(h.messages) desc limit 5
  )
  select (select min(h.deadline) filter (where h.deadline > at) from held h) as next, (select max(h.deadline) from held h) as last,
         (select coalesce(sum(h.messages) filter (where h.deadline <= at), 0) from held h) as lapsed,
         (select coalesce(jsonb_agg(to_jsonb(c)), '[]') from by_consumer c) as consumers
  into v_held;
  if v_held.lapsed > 0 then
    return next ('leases_expired', 'warning',
      format('%s %s in leases that have run out%s: the consumers are gone, or too slow.', holdfast._several(v_held.lapsed, 'message'),
             case when v_held.lapsed = 1 then 'is' else 'are' end, case when v_held.next is null then ', and no lease still runs' else '' end),
      jsonb_build_object('expired', v_held.lapsed, 'in_flight', stats.in_flight, 'all', v_held.next is null, 'consumers', v_held.consumers),
      format('They come back with the next claim, or now: select holdfast.sweep(''%s''). If it happens often, make lease longer or call holdfast.extend.', queue.name))::holdfast.finding;
  end if;
  -- In a strict queue the others wait for the one that is in flight, though they are counted as ready.
  if (stats.ready = 0 or queue.ordering = 'strict') and v_held.next is not null then
    return next ('in_flight', 'info', format('%s in flight and none can be claimed; the next lease ends at %s.', holdfast._several(stats.in_flight, 'message'), v_held.next),
      jsonb_build_object('in_flight', stats.in_flight, 'next_deadline', v_held.next, 'last_deadline', v_held.last, 'consumers', v_held.consumers),
      'Wait for the consumers, or look at them: in SQL, holdfast.leases says who holds what.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_leases is 'Findings: all in flight, by whom and until when; leases that ran out';

create or replace function holdfast._why_lines(queue holdfast.queue, stats holdfast.stats) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_dead record;
begin
  for v_dead in
    select m.id, m.ordering_key, m.blocks_since, m.last_error, holdfast._waiting(queue.id, m.ordering_key, m.order_no) as waiting
    from holdfast.message m where m.queue_id = queue.id and m.blocks_since is not null order by m.ordering_key limit 5
  loop
    return next ('line_blocked', case when stats.ready = 0 or queue.ordering = 'strict' then 'blocking' else 'warning' end,
      format('%s stands at message %s, which is dead since %s: %s. %s behind it.',
             coalesce('The line of ' || nullif(v_dead.ordering_key, ''), 'The queue'), v_dead.id, v_dead.blocks_since,
             coalesce(left(v_dead.last_error, 200), 'no error text'), holdfast._several(v_dead.waiting, 'message')),
      jsonb_build_object('key', nullif(v_dead.ordering_key, ''), 'head', v_dead.id::text, 'since', v_dead.blocks_since, 'waiting', v_dead.waiting,
                         'error', left(v_dead.last_error, 1000)),
      format('Mend the cause, then deliver it again: select holdfast.unblock(%1$s). Or move it to the dead letters: select holdfast.unblock(%1$s, how => ''skip'').',
             quote_literal(queue.name) || coalesce(', ' || quote_literal(nullif(v_dead.ordering_key, '')), '')))::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_lines is 'Findings: lines that a dead message blocks; the first five';

create or replace function holdfast._why_keys(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_parked record;
  v_heads jsonb;
begin
  if stats.blocked = 0 then
    return;
  end if;
  -- Lines at which a dead message stands have a finding of their own: what is parked there waits for unblock().
  with parked as (
    select p.ordering_key, count(*) as messages, min(p.id) as first from holdfast.lane l cross join lateral (
      select m.id, m.ordering_key from holdfast.message m where m.id >> 40 = l.id and m.due_at = 'infinity' order by m.due_at, m.id limit 10000) p
    where l.queue_id = queue.id group by p.ordering_key
  ), told as (
    select p.*, exists (select from holdfast.message d where d.queue_id = queue.id and d.ordering_key = p.ordering_key and d.blocks_since is not null) as dead
    from parked p
  )
  select (array_agg(t.ordering_key order by t.first) filter (where not t.dead))[1:5] as keys,
         stats.blocked - coalesce(sum(t.messages) filter (where t.dead), 0) as messages
  into v_parked from told t;
  if v_parked.keys is null then
    return;
  end if;
  v_heads := holdfast._heads(queue, v_parked.keys, at);
  return next ('keys_parked',
    case when stats.ready = 0 and exists (select from jsonb_array_elements(v_heads) h where h ->> 'reason' in ('ready', 'lapsed')) then 'warning' else 'info' end,
    format('%s parked behind an earlier one of the same line%s.', holdfast._several(v_parked.messages::bigint, 'message'),
           coalesce(', such as ' || nullif(array_to_string(v_parked.keys, ', '), ''), '')),
    jsonb_build_object('blocked', v_parked.messages, 'keys', to_jsonb(v_parked.keys), 'heads', v_heads),
    'Settle or end the messages that go first: the rest of their lines follows. holdfast.blocked_keys lists them.')::holdfast.finding;
end $$;
comment on function holdfast._why_keys is
  'Finding: messages are parked behind an earlier one of their line that is not dead; names a few of the keys. A warning if such a one could go on and does not';

create or replace function holdfast._heads(queue holdfast.queue, keys text[], at timestamptz) returns jsonb language plpgsql stable
as $$
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('key', nullif(k.key, ''), 'id', h.id::text, 'reason',
                   coalesce((select case when o.deadline > at then 'in_flight' else 'lapsed' end from holdfast._holders(array[h.id]) o),
                            case when h.due_at > at and h.due_at < 'infinity' then 'scheduled' else 'ready' end)) order by k.n), '[]')
          from unnest(keys) with ordinality k(key, n) cross join lateral (
            select m.id, m.due_at from holdfast.message m where m.queue_id = queue.id and m.ordering_key = k.key order by m.order_no limit 1) h);
end $$;
comment on function holdfast._heads is
  'The messages at which these ordering keys stand, as a JSON list. reason: in_flight, lapsed (its lease has run out), scheduled or ready';

create or replace function holdfast._why_limits(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_full bigint := coalesce(pg_sequence_last_value(queue.throttle), 0);
  v_step float8 := 1e9 / queue.throughput_limit;
begin
  -- The bucket is empty while less than one message is missing to its brim.
  if queue.throughput_limit is not null and stats.ready > 0
     and holdfast._us(at) * 1000 + ceil(v_step * ceil(queue.throughput_limit)) - v_full < v_step then
    return next ('limited', 'info', format('The throughput limit is reached: %s messages a second.', queue.throughput_limit),
      jsonb_build_object('throughput_limit', queue.throughput_limit, 'ready', stats.ready),
      'Claims go on getting messages at that rate. Raise throughput_limit with configure_queue if it is too low.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_limits is 'Finding: the throughput limit holds messages back';

create or replace function holdfast._why_budget(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_spent bigint[];
begin
  v_spent := array(
    select d.id from holdfast.lane l cross join lateral (
      select m.id, m.deliveries, m.failures, m.max_deliveries from holdfast.message m
      where m.id >> 40 = l.id and m.due_at > '-infinity' and m.due_at < 'infinity' order by m.due_at limit 1000) d
    where l.queue_id = queue.id
      and holdfast._used(queue.budget, d.deliveries, d.failures) >= nullif(coalesce(d.max_deliveries, queue.max_deliveries), 0)
    limit 1000);
  if v_spent <> '{}' then
    return next ('budget_spent', 'warning',
      format('%s used up max_deliveries and still here: the limit was lowered after the last delivery.', holdfast._several(cardinality(v_spent), 'message')),
      jsonb_build_object('messages', cardinality(v_spent), 'ids', to_jsonb(v_spent[1:5]::text[]), 'budget', queue.budget),
      'Each is handed out once more, and is dead if that fails too. Raise max_deliveries if that is not meant.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_budget is 'Finding: messages that have used up their deliveries and wait for one more; looks at the first 1,000 due of each lane';

create or replace function holdfast._why_lanes(queue holdfast.queue) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_holder record;
begin
  for v_holder in
    select h.* from holdfast._lane_holders() h
    where h.queue = queue.name and coalesce(h.since, '-infinity') < clock_timestamp() - interval '1 second' order by h.since, h.priority desc limit 20
  loop
    return next ('lane_held', case when v_holder.since is null then 'warning' else 'blocking' end,
      format('%s holds the lane of priority %s%s: other claims of it get nothing.',
             coalesce('Process ' || v_holder.pid, 'The prepared transaction ' || v_holder.prepared), v_holder.priority, ' since ' || v_holder.since),
      jsonb_strip_nulls(to_jsonb(v_holder) - 'queue'),
      case when v_holder.prepared is not null then format('End it: commit prepared or rollback prepared ''%s''.', v_holder.prepared)
           else format('Let it commit or roll back, or end it: select pg_terminate_backend(%s). holdfast.maintain() does so after five minutes.', v_holder.pid) end)::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_lanes is 'Findings: sessions that have kept a lane to themselves for over a second';

create or replace function holdfast._open_writers() returns table (pid int, "user" text, application text, state text, since timestamptz, prepared text)
language plpgsql stable
as $$
begin
  return query
    select distinct w.pid, coalesce(a.usename, p.owner)::text, nullif(a.application_name, ''), a.state, coalesce(a.xact_start, p.prepared), p.gid
    from pg_locks w left join pg_stat_activity a on a.pid = w.pid
      left join pg_locks x on w.pid is null and x.pid is null and x.virtualtransaction = w.virtualtransaction
        and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock'
      left join pg_prepared_xacts p on p.transaction = x.transactionid
    where w.locktype = 'relation' and w.relation = 'holdfast.message'::regclass and w.mode = 'RowExclusiveLock' and w.granted
      and w.database = holdfast._database_oid() and w.pid is distinct from pg_backend_pid();
end $$;
comment on function holdfast._open_writers is 'Transactions, other than this one, that have written messages of whatever queue and are still open';

create or replace function holdfast._missing(queue holdfast.queue) returns bigint language plpgsql stable
as $$
declare
  v_missing bigint := 0;
  v_lane holdfast.lane;
  v_start bigint;
  v_last bigint;
  v_floor bigint;
begin
  for v_lane in select l.* from holdfast.lane l where l.queue_id = queue.id order by l.id loop
    v_floor := coalesce(pg_sequence_last_value(v_lane.gap_floor), 0);
    v_start := holdfast._start(v_lane);
    v_last := coalesce(pg_sequence_last_value(v_lane.ids), v_start - 1);
    v_missing := v_missing
      + (select coalesce(sum(g.hi - g.lo + 1), 0) from (
           select g.lo, g.hi from holdfast.gap g where g.lane_id = v_lane.id and g.lo >= v_floor order by g.lo limit 1000) g)
      + greatest(least(v_last - v_start + 1, 1000) - (select count(*) from (
           select from holdfast.message m where m.id >= v_start and m.id <= least(v_last, v_start + 999) order by m.id limit 1000) m), 0);
  end loop;
  return v_missing;
end $$;
comment on function holdfast._missing is 'How many ids of a queue were drawn and have no message: in up to 1,000 gaps, and in the next 1,000 ids of each lane';

create or replace function holdfast._why_senders(queue holdfast.queue) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_missing bigint := holdfast._missing(queue);
  v_writer record;
begin
  if v_missing = 0 then
    return;
  end if;
  for v_writer in
    select w.* from holdfast._open_writers() w where coalesce(w.since, '-infinity') < clock_timestamp() - interval '1 second' order by w.since limit 20
  loop
    return next ('open_transaction', 'warning',
      format('%s has a transaction open%s that has written messages; %s of this queue %s drawn and not committed.',
             coalesce('Process ' || v_writer.pid, 'The prepared transaction ' || v_writer.prepared), ' since ' || v_writer.since,
             holdfast._several(v_missing, 'id'), case when v_missing = 1 then 'is' else 'are' end),
      jsonb_strip_nulls(to_jsonb(v_writer)) || jsonb_build_object('missing', v_missing),
      case when v_writer.prepared is not null then format('End it: commit prepared or rollback prepared ''%s''.', v_writer.prepared)
           else format('If messages were sent in it, they are delivered once it commits. If it is stuck, end it: select pg_terminate_backend(%s).', v_writer.pid) end)::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_senders is 'Findings: open transactions that may own ids of this queue which are not there';

create or replace function holdfast._old_snapshots() returns table (what text, pid int, "user" text, application text, state text, since timestamptz, name text)
language plpgsql stable
as $$
begin
  -- Of a replication slot or a standby there is no time, only how many transactions it lies behind.
  return query
    select 'session', a.pid, a.usename::text, nullif(a.application_name, ''), a.state, a.xact_start, null::text
    from pg_stat_activity a where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
      and a.backend_type <> 'autovacuum worker'
      and a.xact_start < clock_timestamp() - interval '5 minutes'
    union all
    select 'prepared transaction', null, p.owner::text, null, null, p.prepared, p.gid from pg_prepared_xacts p
    where p.database = current_database() and p.prepared < clock_timestamp() - interval '5 minutes'
    union all
    select 'replication slot', s.active_pid, null, null, case when s.active then 'active' else 'inactive' end, null, s.slot_name::text
    from pg_replication_slots s where age(s.xmin) > 1000000
    union all
    select 'standby', r.pid, r.usename::text, nullif(r.application_name, ''), r.state, null, null
    from pg_stat_replication r where age(r.backend_xmin) > 1000000
    order by 6 nulls last limit 20;
end $$;
comment on function holdfast._old_snapshots is 'What keeps dead rows from being removed: for over five minutes, or a million transactions';

create or replace function holdfast._why_snapshots() returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_old record;
begin
  for v_old in select o.* from holdfast._old_snapshots() o loop
    return next ('old_snapshot', 'warning',
      format('A %s%s holds an old snapshot%s: vacuum cannot remove what is settled, and the tables grow.', v_old.what,
             coalesce(' (' || coalesce(v_old.name, 'process ' || v_old.pid) || ')', ''), coalesce(' since ' || v_old.since, '')),
      jsonb_strip_nulls(to_jsonb(v_old)),
      case v_old.what when 'session' then format('Let its transaction end, or end it: select pg_terminate_backend(%s).', v_old.pid)
        when 'prepared transaction' then format('End it: commit prepared or rollback prepared ''%s''.', v_old.name)
        when 'replication slot' then format('Let its consumer catch up, or drop it: select pg_drop_replication_slot(''%s'').', v_old.name)
        else 'End the long query on the standby, or switch hot_standby_feedback off there.' end)::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_snapshots is 'Findings: old snapshots, and who holds them';

create or replace function holdfast._why_upkeep(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_last timestamptz := holdfast._time(nullif(pg_sequence_last_value('holdfast.maintained_at'), 0));
begin
  if coalesce(v_last, queue.created_at) < at - interval '5 minutes' then
    return next ('not_maintained', 'warning', format('holdfast.maintain() was %s.', coalesce('last called at ' || v_last, 'never called')),
      jsonb_build_object('last', v_last),
      'Have a process call it every ten seconds: holdfast maintain --every 10s.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_upkeep is 'Finding: maintain() has not been called for over five minutes';

create or replace function holdfast._why_registers(queue holdfast.queue) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_lanes int[];
begin
  v_lanes := array(select l.priority from holdfast.lane l where l.queue_id = queue.id and not holdfast._readable(holdfast._registers(l)) order by l.id);
  if v_lanes <> '{}' or not holdfast._readable(array[queue.asleep, queue.depth, queue.counted_at]) then
    return next ('unreadable', 'blocking', 'Registers of this queue cannot be read: a failover has left them behind.',
      jsonb_build_object('priorities', to_jsonb(v_lanes)),
      'Make them anew: select holdfast.repair(unreadable_only => true). Leases end by that, no message is lost.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_registers is 'Finding: registers that a failover has left unreadable';

create or replace function holdfast._why_endpoint(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_endpoint record;
begin
  select e.name, e.enabled, e.disabled_reason, e.disabled_at, b.state, b.failures, b.opened_at, b.retry_at into v_endpoint
  from holdfast.endpoint e join holdfast.endpoint_breaker b on b.endpoint_id = e.id where e.queue_id = queue.id;
  if v_endpoint.enabled = false then
    return next ('endpoint_disabled', 'blocking', format('The endpoint %s is disabled since %s: %s.', v_endpoint.name, v_endpoint.disabled_at,
             rtrim(coalesce(left(v_endpoint.disabled_reason, 200), 'nobody said why'), '.')),
      jsonb_build_object('endpoint', v_endpoint.name, 'since', v_endpoint.disabled_at, 'reason', v_endpoint.disabled_reason),
      format('Mend the cause, then enable it: select holdfast.enable_endpoint(%L).', v_endpoint.name))::holdfast.finding;
  elsif v_endpoint.state <> 'closed' then
    return next ('breaker_open', 'blocking',
      format('The breaker of the endpoint %s is %s after %s: nothing is delivered%s.', v_endpoint.name, replace(v_endpoint.state, '_', '-'),
             holdfast._several(v_endpoint.failures, 'failure'), case when v_endpoint.state = 'open' then format(' until %s', v_endpoint.retry_at) else ' but one message that finds out' end),
      jsonb_build_object('endpoint', v_endpoint.name, 'state', v_endpoint.state, 'failures', v_endpoint.failures, 'opened_at', v_endpoint.opened_at, 'retry_at', v_endpoint.retry_at),
      format('Look at holdfast.endpoint_health(%1$L) and mend the receiver; it is tried again by itself, or now: select holdfast.reset_breaker(%1$L).', v_endpoint.name))::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_endpoint is 'Findings: the endpoint of the queue is disabled, or its breaker is open';

create or replace function holdfast._findings(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_stats holdfast.stats;
begin
  return query select * from holdfast._why_registers(queue);
  if found then
    -- Nothing else can be said: figures come from the registers.
    return;
  end if;
  select s.* into v_stats from holdfast.queue_stats(queue.name) s;
  return query
    select * from holdfast._why_state(queue, v_stats, at)
    union all select * from holdfast._why_endpoint(queue, at)
    union all select * from holdfast._why_leases(queue, v_stats, at)
    union all select * from holdfast._why_lines(queue, v_stats)
    union all select * from holdfast._why_keys(queue, v_stats, at)
    union all select * from holdfast._why_limits(queue, v_stats, at)
    union all select * from holdfast._why_budget(queue, at)
    union all select * from holdfast._why_lanes(queue)
    union all select * from holdfast._why_senders(queue)
    union all select * from holdfast._why_snapshots()
    union all select * from holdfast._why_upkeep(queue, at);
  if not found then
    return next ('ok', 'ok', format('Nothing is in the way: %s.', case queue.kind when 'log' then 'records are there to be read' else 'messages are ready to be claimed' end),
      jsonb_build_object('ready', v_stats.ready, 'in_flight', v_stats.in_flight, 'oldest_age', v_stats.oldest_age),
      case queue.kind when 'log' then 'If nobody sees them, look at the readers: do they pass the last seq that they have seen?'
                      else 'If none of them moves, nobody is claiming: look at the consumers.' end)::holdfast.finding;
  end if;
end $$;
comment on function holdfast._findings is 'All findings about a queue, one check after the other; ok if there are none';

create or replace function holdfast.why(queue text) returns setof holdfast.finding
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(why.queue);
begin
  return query
    select f.finding, f.severity, f.message, f.details, f.remedy
    from holdfast._findings(v_queue, holdfast.now()) with ordinality f(finding, severity, message, details, remedy, n)
    order by array_position('{blocking,warning,info}', f.severity), f.n;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.why is 'Why is nothing moving? One row for each reason, the gravest first, with what to do; ok: there is none';

-- 88_endpoint_fields.sql
-- What the configuration of an endpoint takes, and which addresses it may name.
--
-- A URL is read as RFC 3986 has it, and no other way: what a client of HTTP might read otherwise is refused. Addresses that are not
-- everybody's (private, loopback, link-local, metadata services) are refused where they are named literally, unless the endpoint allows
-- them; a name is looked up by whoever connects, and checked there again.
-- No message shows what may be a secret.

create or replace function holdfast._check_endpoint_name(endpoint text) returns void language plpgsql stable
as $$
begin
  if (_check_endpoint_name.endpoint ~ '^[A-Za-z0-9._:-]{1,200}$') is not true then
    perform holdfast._fail('QH872', 'invalid name of an endpoint', format('Got %s.', coalesce(quote_literal(left(_check_endpoint_name.endpoint, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  end if;
end $$;
comment on function holdfast._check_endpoint_name is 'Refuse a bad name of an endpoint';

create or replace function holdfast._check_endpoint_field(field text, good boolean, value jsonb, expected text) returns void language plpgsql immutable
as $$
begin
  if good is not true then
    perform holdfast._fail('QH872', format('bad value for %s', field), coalesce(format('Got %s.', left(value::text, 100)), 'It is not shown here.'),
      format('%s takes %s.', field, expected));
  end if;
end $$;
comment on function holdfast._check_endpoint_field is 'Refuse a field of an endpoint; a value that is null is not shown';

create or replace function holdfast._unknown_endpoint_field(field text, fields text) returns void language plpgsql immutable
as $$
begin
  perform holdfast._fail('QH872', format('unknown field "%s" in the configuration of an endpoint', left(field, 100)), 'It means nothing.', format('Fields: %s.', fields));
end $$;
comment on function holdfast._unknown_endpoint_field is 'Refuse a field that an endpoint does not have';

create or replace function holdfast._seconds(field text, value jsonb) returns float8 language plpgsql stable
as $$
begin
  if jsonb_typeof(value) = 'number' then
    return (value #>> '{}')::float8;
  elsif jsonb_typeof(value) = 'string' then
    return extract(epoch from (value #>> '{}')::interval);
  end if;
  raise exception using errcode = 'invalid_text_representation';
exception
  when data_exception then
    perform holdfast._check_endpoint_field(field, false, value, 'a duration: a number of seconds, or text such as "30 s"');
end $$;
comment on function holdfast._seconds is 'A duration in the configuration of an endpoint, in seconds';

create or replace function holdfast._check_seconds(field text, value jsonb, lo float8, hi float8, expected text) returns void language plpgsql stable
as $$
begin
  perform holdfast._check_endpoint_field(field, holdfast._seconds(field, value) between lo and hi, value, expected);
end $$;
comment on function holdfast._check_seconds is 'Refuse a duration of an endpoint that is out of range';

create or replace function holdfast._check_sealed_field(field text, value jsonb) returns void language plpgsql stable
as $$
begin
  if (jsonb_typeof(value) = 'string' and length(value #>> '{}') <= 8192 and value #>> '{}' ~ '^hfs1\.[0-9a-f]{8}\.[A-Za-z0-9_-]+={0,2}$') is not true then
    perform holdfast._fail('QH874', format('%s is not sealed', field), 'It is not shown here.',
      'SQL takes secrets that were sealed only (hfs1.…). Clients, servers and the command line seal what they are given: pass it to one of them.');
  end if;
end $$;
comment on function holdfast._check_sealed_field is 'Refuse a secret that is not sealed, without showing it';

create or replace function holdfast._check_auth(auth jsonb) returns void language plpgsql stable
as $$
declare
  v_type text := case when jsonb_typeof(auth) = 'object' then auth ->> 'type' end;
  v_unknown text;
begin
  perform holdfast._check_endpoint_field('auth', v_type in ('basic', 'bearer'), null,
    '{"type": "basic", "username": …, "password": …} or {"type": "bearer", "token": …}');
  select k into v_unknown from jsonb_object_keys(auth) k
  where k <> all (case v_type when 'basic' then '{type,username,password}'::text[] else '{type,token}' end);
  if found then
    perform holdfast._unknown_endpoint_field('auth.' || v_unknown, case v_type when 'basic' then 'type, username, password' else 'type, token' end);
  end if;
  if v_type = 'basic' then
    perform holdfast._check_endpoint_field('auth.username', jsonb_typeof(auth -> 'username') = 'string' and auth ->> 'username' ~ '^[^:[:cntrl:]]{1,200}$',
      auth -> 'username', '1 to 200 characters without a colon');
    perform holdfast._check_sealed_field('auth.password', auth -> 'password');
  else
    perform holdfast._check_sealed_field('auth.token', auth -> 'token');
  end if;
end $$;
comment on function holdfast._check_auth is 'Refuse a bad auth of an endpoint';

create or replace function holdfast._check_endpoint_headers(headers jsonb) returns void language plpgsql stable
as $$
declare
  v_name text;
  v_value jsonb;
begin
  perform holdfast._check_endpoint_field('headers', jsonb_typeof(headers) = 'object', headers, 'an object of texts');
  perform holdfast._check_endpoint_field('headers', (select count(*) from jsonb_object_keys(headers)) <= 50 and octet_length(headers::text) <= 16384, null,
    'up to 50 headers, of 16,384 bytes together');
  for v_name, v_value in select h.key, h.value from jsonb_each(headers) h loop
    perform holdfast._check_endpoint_field('headers', v_name ~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]{1,100}$', to_jsonb(v_name), 'names of headers, of up to 100 characters');
    if lower(v_name) in ('authorization', 'proxy-authorization', 'cookie') then
      perform holdfast._fail('QH872', format('headers cannot have %s', v_name), 'Headers are not sealed.', 'Pass auth.');
    end if;
    perform holdfast._check_endpoint_field('headers', lower(v_name) !~ '^(host|content-length|transfer-encoding|connection|keep-alive|upgrade|te|trailer|expect|webhook-.*)$',
      to_jsonb(v_name), 'no headers that a delivery sets by itself');
    perform holdfast._check_endpoint_field('headers.' || v_name, jsonb_typeof(v_value) = 'string' and v_value #>> '{}' ~ '^[ -~]*$' and v_value #>> '{}' !~ '^ | $',
      v_value, 'printable ASCII, without spaces around it');
  end loop;
end $$;
comment on function holdfast._check_endpoint_headers is 'Refuse bad headers of an endpoint';

create or replace function holdfast._check_retry(retry jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_endpoint_field('retry', jsonb_typeof(retry) = 'object', retry, 'an object {strategy, base, factor, increment, cap, jitter, max_attempts, retry_after}');
  for v_field, v_value in select e.key, e.value from jsonb_each(retry) e loop
    if v_field not in ('strategy', 'base', 'factor', 'increment', 'cap', 'jitter', 'max_attempts', 'retry_after') then
      perform holdfast._unknown_endpoint_field('retry.' || v_field, 'strategy, base, factor, increment, cap, jitter, max_attempts, retry_after');
    end if;
    continue when v_value = 'null';
    case v_field
      when 'strategy' then
        perform holdfast._check_endpoint_field('retry.strategy', v_value in ('"exponential"', '"linear"', '"fixed"'), v_value, 'exponential, linear or fixed');
      when 'factor' then
        perform holdfast._check_endpoint_field('retry.factor', jsonb_typeof(v_value) = 'number' and v_value between '1' and '10', v_value, '1 to 10');
      when 'jitter' then
        perform holdfast._check_endpoint_field('retry.jitter', jsonb_typeof(v_value) = 'number' and v_value between '0' and '1', v_value, '0 to 1, a share of the delay');
      when 'max_attempts' then
        perform holdfast._check_endpoint_field('retry.max_attempts', holdfast._whole(v_value, 0, 1000), v_value, '1 to 1,000, or 0 for no limit');
      when 'retry_after' then
        perform holdfast._check_endpoint_field('retry.retry_after', jsonb_typeof(v_value) = 'boolean', v_value, 'true or false');
      else
        perform holdfast._check_seconds('retry.' || v_field, v_value, 0, 2592000, '0 seconds to 30 days');
    end case;
  end loop;
end $$;
comment on function holdfast._check_retry is 'Refuse a bad retry policy';

create or replace function holdfast._check_breaker(breaker jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  perform holdfast._check_endpoint_field('breaker', jsonb_typeof(breaker) = 'object', breaker, 'an object {threshold, cooldown}');
  for v_field, v_value in select e.key, e.value from jsonb_each(breaker) e loop
    if v_field not in ('threshold', 'cooldown') then
      perform holdfast._unknown_endpoint_field('breaker.' || v_field, 'threshold, cooldown');
    end if;
    continue when v_value = 'null';
    if v_field = 'threshold' then
      perform holdfast._check_endpoint_field('breaker.threshold', holdfast._whole(v_value, 1, 10000), v_value, '1 to 10,000 failures in a row');
    else
      perform holdfast._check_seconds('breaker.cooldown', v_value, 0.1, 86400, '100 milliseconds to 24 hours');
    end if;
  end loop;
end $$;
comment on function holdfast._check_breaker is 'Refuse bad settings of a breaker';

create or replace function holdfast._check_allow(allow jsonb) returns void language plpgsql stable
as $$
declare
  v_entry jsonb;
begin
  perform holdfast._check_endpoint_field('allow', jsonb_typeof(allow) = 'array' and jsonb_array_length(allow) <= 50, allow, 'a list of up to 50 addresses, networks and host names');
  for v_entry in select e.value from jsonb_array_elements(allow) e loop
    perform holdfast._check_endpoint_field('allow', jsonb_typeof(v_entry) = 'string'
      and (holdfast._inet(v_entry #>> '{}') is not null or (holdfast._is_host(v_entry #>> '{}') and v_entry #>> '{}' !~ '(^|\.)[0-9]+\.?$')), v_entry,
      'addresses (10.0.0.7), networks (10.0.0.0/8, fd00::/8) and names of hosts');
  end loop;
end $$;
comment on function holdfast._check_allow is 'Refuse a bad list of addresses that an endpoint may have';

create or replace function holdfast._check_endpoint_config(config jsonb) returns void language plpgsql stable
as $$
declare
  v_field text;
  v_value jsonb;
begin
  if jsonb_typeof(config) is distinct from 'object' then
    perform holdfast._fail('QH872', 'the configuration of an endpoint must be a JSON object', format('Got %s.', coalesce(jsonb_typeof(config), 'null')),
      'Pass for example {"url": "https://example.com/hooks"}.');
  end if;
  for v_field, v_value in select e.key, e.value from jsonb_each(config) e loop
    if v_field not in ('url', 'method', 'headers', 'timeout', 'connect_timeout', 'retry', 'signing_secret', 'auth', 'rate_limit', 'concurrency', 'ordering', 'cloudevents',
                       'cloudevents_type', 'cloudevents_source', 'capture_response', 'capture_limit', 'disable_on_gone', 'allow', 'breaker', 'keep_attempts') then
      perform holdfast._unknown_endpoint_field(v_field, 'url, method, headers, timeout, connect_timeout, retry, signing_secret, auth, rate_limit, concurrency, ordering, cloudevents, '
        'cloudevents_type, cloudevents_source, capture_response, capture_limit, disable_on_gone, allow, breaker, keep_attempts');
    end if;
    continue when v_value = 'null' and v_field <> 'url';
    case
      when v_field = 'url' then
        perform holdfast._check_endpoint_field('url', jsonb_typeof(v_value) = 'string', v_value, 'a URL, and is needed');
      when v_field = 'headers' then perform holdfast._check_endpoint_headers(v_value);
      when v_field = 'retry' then perform holdfast._check_retry(v_value);
      when v_field = 'breaker' then perform holdfast._check_breaker(v_value);
      when v_field = 'auth' then perform holdfast._check_auth(v_value);
      when v_field = 'allow' then perform holdfast._check_allow(v_value);
      when v_field = 'signing_secret' then perform holdfast._check_sealed_field(v_field, v_value);
      when v_field = 'timeout' then perform holdfast._check_seconds(v_field, v_value, 0.1, 300, '100 milliseconds to 5 minutes');
      when v_field = 'connect_timeout' then perform holdfast._check_seconds(v_field, v_value, 0.1, 60, '100 milliseconds to 1 minute');
      when v_field = 'keep_attempts' then perform holdfast._check_seconds(v_field, v_value, 60, 31622400, '1 minute to 366 days');
      else perform holdfast._check_endpoint_value(v_field, v_value);
    end case;
  end loop;
end $$;
comment on function holdfast._check_endpoint_config is 'Refuse a bad configuration of an endpoint';

create or replace function holdfast._check_endpoint_value(field text, value jsonb) returns void language plpgsql stable
as $$
declare
  v_text text := case when jsonb_typeof(value) = 'string' then value #>> '{}' end;
begin
  case field
    when 'method' then
      perform holdfast._check_endpoint_field(field, v_text in ('POST', 'PUT', 'PATCH', 'DELETE', 'GET'), value, 'POST, PUT, PATCH, DELETE or GET');
    when 'rate_limit' then
      perform holdfast._check_endpoint_field(field, jsonb_typeof(value) = 'number' and value between '0.001' and '1000000', value, '0.001 to 1,000,000 deliveries a second');
    when 'concurrency' then
      perform holdfast._check_endpoint_field(field, holdfast._whole(value, 1, 1000), value, '1 to 1,000 deliveries at once');
    when 'ordering' then
      perform holdfast._check_endpoint_field(field, v_text in ('none', 'key', 'strict'), value, 'none, key or strict');
    when 'cloudevents' then
      perform holdfast._check_endpoint_field(field, v_text in ('off', 'binary', 'structured'), value, 'off, binary or structured');
    when 'cloudevents_type' then
      perform holdfast._check_endpoint_field(field, v_text ~ '^[!-~]([ -~]{0,198}[!-~])?$', value, '1 to 200 characters of ASCII');
    when 'cloudevents_source' then
      perform holdfast._check_endpoint_field(field, v_text ~ '^[!-~]+$' and length(v_text) <= 2000, value, 'a URI reference of up to 2,000 characters, such as /holdfast');
    when 'capture_limit' then
      perform holdfast._check_endpoint_field(field, holdfast._whole(value, 0, 65536), value, '0 to 65,536 bytes');
    else
      perform holdfast._check_endpoint_field(field, jsonb_typeof(value) = 'boolean', value, 'true or false');
  end case;
end $$;
comment on function holdfast._check_endpoint_value is 'Refuse a bad value of a plain field of an endpoint';

create or replace function holdfast._in_seconds(config jsonb, fields text[], prefix text default '') returns jsonb language sql stable
  return config || coalesce((select jsonb_object_agg(f, holdfast._seconds(prefix || f, config -> f)) from unnest(fields) f
                             where jsonb_typeof(config -> f) in ('number', 'string')), '{}');
comment on function holdfast._in_seconds is 'A configuration with these durations in seconds';

create or replace function holdfast._normal_endpoint(config jsonb) returns jsonb language sql stable
  return holdfast._in_seconds(config, '{timeout,connect_timeout,keep_attempts}')
         || case when jsonb_typeof(config -> 'retry') = 'object'
              then jsonb_build_object('retry', holdfast._in_seconds(config -> 'retry', '{base,increment,cap}', 'retry.')) else '{}' end
         || case when jsonb_typeof(config -> 'breaker') = 'object'
              then jsonb_build_object('breaker', holdfast._in_seconds(config -> 'breaker', '{cooldown}', 'breaker.')) else '{}' end;
comment on function holdfast._normal_endpoint is 'A checked configuration of an endpoint with all durations in seconds';

create or replace function holdfast._inet(address text) returns inet language plpgsql immutable
as $$
begin
  -- inet takes 10/8 and 10.1 for networks; connecting to such would mean something else.
  if address ~ '^[0-9.]+(/[0-9]+)?$' and address !~ '^[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?$' then
    return null;
  elsif address !~ '^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$' or address ~ '(^|[.])0[0-9]' then
    return null;
  end if;
  return address::inet;
exception
  when data_exception then return null;
end $$;
comment on function holdfast._inet is 'An address or a network, as text has it in full; null: it is none';

create or replace function holdfast._is_host(host text) returns boolean language sql immutable
  return length(host) <= 253 and host ~ '^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$';
comment on function holdfast._is_host is 'Is this the name of a host';

create or replace function holdfast._is_public(address inet) returns boolean language sql immutable
  return case family(address)
    when 4 then not address <<= any ('{0.0.0.0/8,10.0.0.0/8,100.64.0.0/10,127.0.0.0/8,169.254.0.0/16,172.16.0.0/12,192.0.0.0/24,192.0.2.0/24,192.88.99.0/24,192.168.0.0/16,198.18.0.0/15,198.51.100.0/24,203.0.113.0/24,224.0.0.0/3}'::inet[])
    else address <<= inet '2000::/3' and not address <<= any ('{2001::/23,2001:db8::/32,2002::/16,3fff::/20}'::inet[]) end;
comment on function holdfast._is_public is 'Is this an address on the internet, and of nothing special';

create or replace function holdfast._may_connect(host text, allow text[]) returns boolean language plpgsql immutable
as $$
declare
  v_address inet := holdfast._inet(host);
begin
  if v_address is not null then
    return holdfast._is_public(v_address) or exists (select from unnest(allow) a where v_address <<= holdfast._inet(a));
  end if;
  return lower(rtrim(host, '.')) in (select lower(rtrim(a, '.')) from unnest(allow) a)
         or lower(rtrim(host, '.')) !~ '^((.*\.)?localhost|metadata|metadata\.google\.internal|instance-data(\..*)?)$';
end $$;
comment on function holdfast._may_connect is 'May an endpoint have this host, as far as can be told without looking it up';

create or replace function holdfast._check_url(url text, allow text[]) returns void language plpgsql stable
as $$
declare
  v_parts text[] := regexp_match(url, '^(https?)://([^/?#]*)([/?].*)?$', 'i');
  v_host text;
  v_port text;
begin
  perform holdfast._check_endpoint_field('url', url is not null, 'null', 'a URL, and is needed');
  perform holdfast._check_endpoint_field('url', length(url) <= 2048 and url ~ '^[A-Za-z0-9._~:/?\[\]@!$&''()*+,;=%-]+$', to_jsonb(left(url, 2)::text || '…'),
    'up to 2,048 characters of those that a URL has, without a fragment; others are written as %XX, and names of hosts in ASCII (xn--…)');
  perform holdfast._check_endpoint_field('url', v_parts is not null, to_jsonb(substring(url from '^[^:/?]{0,20}:?')), 'a scheme of http or https, and a host');
  if v_parts[2] ~ '@' then
    perform holdfast._fail('QH872', 'bad value for url', 'It has a user name or a password in it.', 'url takes no credentials; pass auth.');
  end if;
  v_host := (regexp_match(v_parts[2], '^(\[[^\]]*\]|[^:\[\]]*)'))[1];
  v_port := substr(v_parts[2], length(v_host) + 1);
  perform holdfast._check_endpoint_field('url', v_port ~ '^(:[0-9]{1,5})?$' and coalesce(nullif(ltrim(v_port, ':'), '')::int, 80) between 1 and 65535,
    to_jsonb(v_parts[2]), 'a port of 1 to 65535');
  if v_host ~ '^\[' then
    v_host := trim(v_host, '[]');
    perform holdfast._check_endpoint_field('url', family(holdfast._inet(v_host)) = 6 and v_host !~ '/', to_jsonb(v_parts[2]), 'an address of IPv6 in brackets');
  else
    -- 127.1, 0177.0.0.1 and 0x7f000001 are 127.0.0.1 to some.
    perform holdfast._check_endpoint_field('url', holdfast._is_host(v_host) and (v_host !~ '(^|\.)(0[xX][0-9A-Fa-f]*|[0-9]+)\.?$' or holdfast._inet(v_host) is not null),
      to_jsonb(v_parts[2]), 'the name of a host, or an address in full');
  end if;
  if not holdfast._may_connect(v_host, allow) then
    perform holdfast._fail('QH873', 'this address is not allowed', format('The host is %s: private, loopback, link-local, or of a metadata service.', left(v_host, 100)),
      'Deliver to a public address; or, in an intranet, let the endpoint have it: {"allow": ["10.0.0.0/8"]}.');
  end if;
end $$;
comment on function holdfast._check_url is 'Refuse a URL that is none, and one of an address that is not everybody''s';

-- 88_hook_fields.sql
-- What the configuration of an inbound hook takes. No message shows what may be a secret.

create or replace function holdfast._check_hook_name(hook text) returns void language plpgsql stable
as $$
begin
  if (_check_hook_name.hook ~ '^[A-Za-z0-9._:-]{1,200}$') is not true then
    perform holdfast._fail('QH882', 'invalid name of a hook', format('Got %s.', coalesce(quote_literal(left(_check_hook_name.hook, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  end if;
end $$;
comment on function holdfast._check_hook_name is 'Refuse a bad name of a hook';

create or replace function holdfast._check_slug(prefix text, hash bytea) returns void language plpgsql stable
as $$
begin
  if (_check_slug.prefix ~ '^[A-Za-z0-9_-]{1,8}$' and length(_check_slug.hash) = 32) is not true then
    perform holdfast._fail('QH882', 'a slug has a prefix and a hash', format('Got a prefix of %s characters and a hash of %s bytes.',
      coalesce(length(_check_slug.prefix)::text, 'no'), coalesce(length(_check_slug.hash)::text, 'no')),
      'prefix: the first 1 to 8 characters of the slug, out of A-Z a-z 0-9 _ -; hash: its SHA-256.');
  end if;
end $$;
comment on function holdfast._check_slug is 'Refuse a bad prefix or hash of a slug';

create or replace function holdfast._check_hook_field(field text, good boolean, value jsonb, expected text) returns void language plpgsql immutable
as $$
begin
  if good is not true then
    perform holdfast._fail('QH882', format('bad value for %s', field), format('Got %s.', left(value::text, 100)), format('%s takes %s.', field, expected));
  end if;
end $$;
comment on function holdfast._check_hook_field is 'Refuse a field of a hook';

create or replace function holdfast._hook_seconds(field text, value jsonb) returns float8 language plpgsql stable
as $$
begin
  if jsonb_typeof(value) = 'number' then
    return (value #>> '{}')::float8;
  elsif jsonb_typeof(value) = 'string' then
    return extract(epoch from (value #>> '{}')::interval);
  end if;
  raise exception using errcode = 'invalid_text_representation';
exception
  when data_exception then
    perform holdfast._check_hook_field(field, false, value, 'a duration: a number of seconds, or text such as "30 s"');
end $$;
comment on function holdfast._hook_seconds is 'A duration in the configuration of a hook, in seconds';

create or replace function holdfast._check_hook_seconds(field text, value jsonb, lo float8, hi float8, expected text) returns void language plpgsql stable
as $$
begin
  perform holdfast._check_hook_field(field, holdfast._hook_seconds(field, value) between lo and hi, value, expected);
end $$;
comment on function holdfast._check_hook_seconds is 'Refuse a duration of a hook that is out of range';

create or replace function holdfast._check_hook_texts(field text, value jsonb, pattern text, expected text) returns void language plpgsql stable
as $$
declare
  v_text jsonb;
begin
  perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'array' and jsonb_array_length(value) <= 50, value, format('a list of up to 50 %s', expected));
  for v_text in select e.value from jsonb_array_elements(value) e loop
    perform holdfast._check_hook_field(field, jsonb_typeof(v_text) = 'string' and v_text #>> '{}' ~ pattern, v_text, expected);
  end loop;
end $$;
comment on function holdfast._check_hook_texts is 'Refuse a bad list of a hook';

create or replace function holdfast._check_hook_value(field text, value jsonb) returns void language plpgsql stable
as $$
declare
  v_token text := '[!#$%&''*+.^_`|~0-9A-Za-z-]{1,100}';
begin
  case field
    when 'enabled' then
      perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'boolean', value, 'true or false');
    when 'plan' then
      perform holdfast._check_hook_field(field, value in ('"free"', '"pro"', '"enterprise"'), value, 'free, pro or enterprise');
    when 'rate_limit' then
      perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'number' and value between '0.001' and '1000000', value, '0.001 to 1,000,000 calls a second');
    when 'burst' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 1, 1000000), value, '1 to 1,000,000 calls at once after a pause');
    when 'max_body' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 0, 67108864), value, '0 to 67,108,864 bytes');
    when 'max_deliveries' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 0, 1000), value, '1 to 1,000, or 0 for no limit');
    when 'keep_calls' then
      perform holdfast._check_hook_field(field, holdfast._whole(value, 0, 10000), value, '0 to 10,000 calls');
    when 'content_types' then
      perform holdfast._check_hook_texts(field, value, format('^(\*/\*|%1$s/(\*|%1$s))$', replace(v_token, '*', '')), 'media types such as application/json or text/*');
    when 'drop_headers' then
      perform holdfast._check_hook_texts(field, value, format('^%s$', v_token), 'names of headers, of up to 100 characters');
    else  -- idempotency_header
      perform holdfast._check_hook_field(field, jsonb_typeof(value) = 'string' and value #>> '{}' ~ format('^%s$', v_token), value, 'the name of a header, of up to 100 characters');
  end case;
end $$;
comment on function holdfast._check_hook_value is 'Refuse a bad value of a plain field of a hook';

create or replace function holdfast._check_hook_config(config jsonb) returns void language plpgsql stable
as $$
declare
  v_known text := 'enabled, signing_secret, tolerance, idempotency_header, idempotency_window, max_body, content_types, drop_headers, plan, rate_limit, burst, '
                  'lock_timeout, ttl, max_deliveries, keep_calls';
  v_field text;
  v_value jsonb;
begin
  if jsonb_typeof(config) is distinct from 'object' then
    perform holdfast._fail('QH882', 'the configuration of a hook must be a JSON object', format('Got %s.', coalesce(jsonb_typeof(config), 'null')),
      'Pass for example {"rate_limit": 10}.');
  end if;
  for v_field, v_value in select e.key, e.value from jsonb_each(config) e loop
    if v_field <> all (string_to_array(v_known, ', ')) then
      perform holdfast._fail('QH882', format('unknown field "%s" in the configuration of a hook', left(v_field, 100)), 'It means nothing.', format('Fields: %s.', v_known));
    end if;
    continue when v_value = 'null';
    case v_field
      when 'signing_secret' then perform holdfast._check_sealed_field(v_field, v_value);
      when 'tolerance' then perform holdfast._check_hook_seconds(v_field, v_value, 1, 86400, '1 second to 24 hours');
      when 'idempotency_window' then perform holdfast._check_hook_seconds(v_field, v_value, 1, 604800, '1 second to 7 days');
      when 'lock_timeout' then perform holdfast._check_hook_seconds(v_field, v_value, 0.1, 86400, '100 milliseconds to 24 hours');
      when 'ttl' then perform holdfast._check_hook_seconds(v_field, v_value, 1, 315360000, '1 second to 3,650 days');
      else perform holdfast._check_hook_value(v_field, v_value);
    end case;
  end loop;
end $$;
comment on function holdfast._check_hook_config is 'Refuse a bad configuration of a hook';

create or replace function holdfast._normal_hook(config jsonb) returns jsonb language sql stable
  return config || coalesce((select jsonb_object_agg(f, holdfast._hook_seconds(f, config -> f))
                             from unnest('{tolerance,idempotency_window,lock_timeout,ttl}'::text[]) f
                             where jsonb_typeof(config -> f) in ('number', 'string')), '{}');
comment on function holdfast._normal_hook is 'A checked configuration of a hook with all durations in seconds';

-- 88_lake.sql
-- The lake: messages of the archive become files outside, batch by batch, and then leave the database.
--
--   register_lake   a lake of this database
--   archive_days    what the archive holds, by queue and day
--   open_batch      the next stretch of a queue's archive, within a day: what is in it goes to one file
--   open_batches    batches whose rows may be here and in a file: those that a run finishes first
--   read_batch      its messages, each with a checksum
--   close_batch     the file has these, by id and checksum: they are removed, or kept on purpose
--   archived        what has left the database so, by queue and lake: for those who would miss it
--
-- The file decides. What is removed is what was read back from it, and is here with the same content; what retention
-- removed meanwhile is not missed, and what turned up late stays for another batch. No message is in two open batches.
-- Lock order: lake_batch, the table by who opens and the row by who closes; then rows of the archive.

create or replace function holdfast._check_lake(lake uuid) returns void language plpgsql stable
as $$
begin
  if not exists (select from holdfast.lake l where l.id = _check_lake.lake) then
    perform holdfast._fail('QH810', 'this lake is not of this database', format('Got %s.', coalesce(quote_literal(_check_lake.lake), 'null')),
      'A lake holds messages of one database. Name another place, or the database that it belongs to.');
  end if;
end $$;
comment on function holdfast._check_lake is 'Refuse a lake that was not registered here';

create or replace function holdfast._batch(batch bigint) returns holdfast.lake_batch language plpgsql stable
as $$
declare
  v_batch holdfast.lake_batch;
begin
  select b.* into v_batch from holdfast.lake_batch b where b.id = _batch.batch;
  if not found then
    perform holdfast._fail('QH810', 'there is no such batch', format('Got %s.', coalesce(_batch.batch::text, 'null')),
      'Pass the id of a batch that open_batch or open_batches returned.');
  end if;
  return v_batch;
end $$;
comment on function holdfast._batch is 'A batch by its id, or an error';

create or replace function holdfast._shown_batch(batch holdfast.lake_batch) returns holdfast.batch language sql immutable
  return ((batch).id, (batch).queue, (batch).day, (batch).state, (batch).first_at, (batch).first_id, (batch).last_at, (batch).last_id,
          (batch).messages)::holdfast.batch;
comment on function holdfast._shown_batch is 'A batch as callers see it';

create or replace function holdfast._field("value" text) returns text language sql immutable
  return coalesce(length("value")::text || ':' || "value", '');
comment on function holdfast._field is 'A text with its length before it, so that fields joined to one text cannot be taken for others';

create or replace function holdfast._micros(at timestamptz) returns text language sql stable
  return coalesce(((extract(epoch from at) * 1000000)::bigint)::text, '');
comment on function holdfast._micros is 'A time as text: microseconds since 1970, exactly';

create or replace view holdfast.ended as
  -- The first 60 bits of SHA-256 over all columns as text: whoever reads a file of the lake can compute the same.
  select m.*, ('x0' || left(encode(sha256(convert_to(
    concat_ws(',', m.id::text, m.root_id::text, coalesce(m.priority::text, ''), holdfast._micros(m.enqueued_at), holdfast._micros(m.claimed_at),
              holdfast._micros(m.ended_at), holdfast._micros(m.expires_at), m.deliveries::text, m.failures::text,
              coalesce(m.max_deliveries::text, ''), coalesce(m.order_no::text, ''),
              holdfast._field(m.outcome), holdfast._field(m.consumer), holdfast._field(m.tag), holdfast._field(m.correlation_id),
              holdfast._field(m.key), holdfast._field(m.idempotency_key), holdfast._field(m.ordering_key), holdfast._field(m.content_type),
              holdfast._field(m.headers), holdfast._field(m.payload), coalesce(encode(sha256(m.body), 'hex'), ''),
              holdfast._field(m.last_error), holdfast._field(m.origin)), 'UTF8')), 'hex'), 15))::bit(64)::bigint as checksum
  from (
    select a.id, holdfast._root_id(a.id, a.origin) as root_id, a.outcome,
           (select l.priority::int from holdfast.lane l where l.id = a.id >> 40) as priority, a.enqueued_at, a.claimed_at, a.ended_at,
           a.expires_at, a.consumer, coalesce(a.deliveries, 0) as deliveries, coalesce(a.failures, 0) as failures, a.max_deliveries, a.tag,
           a.correlation_id::text, a.key, a.idempotency_key, a.ordering_key, a.order_no, a.content_type, a.headers::text, a.payload::text,
           a.body, a.last_error, a.origin::text, a.queue_id
    from holdfast.archive a) m;
comment on view holdfast.ended is 'Messages of the archive as a lake keeps them, each with a checksum over all of it';

create or replace function holdfast.register_lake(place text) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lake uuid;
begin
  if register_lake.place is null or length(register_lake.place) not between 1 and 2000 then
    perform holdfast._fail('QH810', 'a lake is somewhere',
      case when register_lake.place is null then 'Got null.' else format('Got %s characters.', length(register_lake.place)) end,
      'place takes 1 to 2,000 characters.');
  end if;
  insert into holdfast.lake (place, made_at) values (register_lake.place, holdfast.now()) returning id into v_lake;
  return v_lake;
end $$;
comment on function holdfast.register_lake is 'A new lake for messages of this database; returns what it is known by. The place is for people';

create or replace function holdfast.archive_days(queues text[] default null, until timestamptz default null)
returns table (queue text, day date, messages bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  perform holdfast._queue(n) from unnest(queues) n;
  return query
    select q.name, d.day, d.messages from holdfast.queue q cross join lateral (
      select holdfast._day(a.ended_at) as day, count(*) as messages from holdfast.archive a
      where a.queue_id = q.id and a.ended_at < coalesce(archive_days.until, 'infinity') group by 1) d
    where queues is null or q.name = any (queues) order by 1, 2;
end $$;
comment on function holdfast.archive_days is 'How many messages the archive holds that ended before a time, by queue and day (UTC)';

create or replace function holdfast._cut_batch(
  queue_id int, after timestamptz, after_id bigint, until timestamptz, "limit" int, bytes bigint,
  out first_at timestamptz, out first_id bigint, out last_at timestamptz, out last_id bigint, out messages bigint)
language plpgsql stable
as $$
begin
  select a.ended_at, a.id into first_at, first_id from holdfast.archive a
  where a.queue_id = _cut_batch.queue_id and a.ended_at >= after and a.ended_at < until and (a.ended_at, a.id) > (after, after_id)
  order by a.ended_at, a.id limit 1;
  if first_at is null then
    return;
  end if;
  until := least(until, holdfast._day_begins(holdfast._day(first_at) + 1));
  -- Bytes as the database stores them; a single larger message goes alone.
  select f.ended_at, f.id, f.n into last_at, last_id, messages from (
    select a.ended_at, a.id, row_number() over w as n, sum(a.bytes) over w - a.bytes as before from (
      select a.ended_at, a.id, coalesce(pg_column_size(a.payload), 0)::bigint + coalesce(pg_column_size(a.body), 0) as bytes
      from holdfast.archive a
      where a.queue_id = _cut_batch.queue_id and a.ended_at >= first_at and a.ended_at < until
        and (a.ended_at, a.id) >= (first_at, first_id)
      order by a.ended_at, a.id limit _cut_batch."limit") a
    window w as (order by a.ended_at, a.id)) f
  where f.before < _cut_batch.bytes order by f.n desc limit 1;
end $$;
comment on function holdfast._cut_batch is 'The first messages of a queue''s archive behind a place: so many, or so many bytes, all of one day';

create or replace function holdfast._lake_place(queue_id int, lake uuid, "keep" boolean, inout after timestamptz, inout after_id bigint)
language plpgsql stable
as $$
declare
  v_last record;
begin
  after := coalesce(after, '-infinity');
  after_id := coalesce(after_id, 0);
  select b.last_at, b.last_id into v_last from holdfast.lake_batch b
  where b.queue_id = _lake_place.queue_id and (b.state = 'open' or (b.state = 'kept' and "keep" and b.lake = _lake_place.lake))
  order by b.last_at desc, b.last_id desc limit 1;
  if (v_last.last_at, v_last.last_id) > (after, after_id) then
    after := v_last.last_at;
    after_id := v_last.last_id;
  end if;
end $$;
comment on function holdfast._lake_place is 'Where the next batch of a queue begins: behind all that are open, and if rows are kept, behind what the lake has';

create or replace function holdfast.open_batch(
  lake uuid, queue text, until timestamptz default null, "limit" int default 100000, after timestamptz default null, after_id bigint default null,
  "keep" boolean default false)
returns setof holdfast.batch
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(open_batch.queue);
  v_until timestamptz := coalesce(open_batch.until, 'infinity');
  v_other record;
  v_place record;
  v_cut record;
  v_batch holdfast.lake_batch;
begin
  perform holdfast._check_isolation('open_batch'), holdfast._check_lake(open_batch.lake);
  if open_batch."limit" is null or open_batch."limit" not between 1 and 1000000 then
    perform holdfast._fail('QH402', 'limit is out of range', format('Got %s.', coalesce(open_batch."limit"::text, 'null')),
      'limit takes 1 to 1,000,000.');
  end if;
  if "keep" then
    -- Rows stay, so the place is all that tells what is left: none may turn up behind it.
    v_until := least(v_until, holdfast._archive_settled('500 ms'));
  end if;
  lock table holdfast.lake_batch in share row exclusive mode;
  select b.id, l.place into v_other from holdfast.lake_batch b join holdfast.lake l on l.id = b.lake
  where b.queue_id = v_queue.id and b.state = 'open' and b.lake <> open_batch.lake order by b.last_at limit 1;
  if found then
    perform holdfast._fail('QH811', 'messages of this queue are on their way to another lake',
      format('Batch %s of %s is not closed: it goes to %s.', v_other.id, open_batch.queue, v_other.place), 'Finish it there first.');
  end if;
  delete from holdfast.lake_batch b where b.id in (
    select b.id from holdfast.lake_batch b where b.state = 'done' and b.closed_at < holdfast.now() - interval '90 days' order by b.closed_at limit 1000);
  v_place := holdfast._lake_place(v_queue.id, open_batch.lake, "keep", open_batch.after, open_batch.after_id);
  v_cut := holdfast._cut_batch(v_queue.id, v_place.after, v_place.after_id, v_until, open_batch."limit", 268435456);
  if v_cut.first_at is null then
    return;
  end if;
  insert into holdfast.lake_batch (lake, queue_id, queue, day, first_at, first_id, last_at, last_id, messages, opened_at)
  values (open_batch.lake, v_queue.id, v_queue.name, holdfast._day(v_cut.first_at), v_cut.first_at, v_cut.first_id, v_cut.last_at, v_cut.last_id,
          v_cut.messages, holdfast.now())
  returning * into v_batch;
  return next holdfast._shown_batch(v_batch);
end $$;
comment on function holdfast.open_batch is
  'The next messages of a queue''s archive that are to be a file of a lake; nothing if there are none. keep: they will stay, so go on behind those that the lake has';

create or replace function holdfast.open_batches(lake uuid) returns setof holdfast.batch
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  perform holdfast._check_lake(open_batches.lake);
  return query
    select (holdfast._shown_batch(b)).* from holdfast.lake_batch b
    where b.lake = open_batches.lake and b.state <> 'done' order by b.id;
end $$;
comment on function holdfast.open_batches is 'The batches of a lake whose messages may be in the database too: open ones, and those that were kept';

create or replace function holdfast.read_batch(
  batch bigint, "limit" int default 10000, after timestamptz default null, after_id bigint default null)
returns setof holdfast.ended
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_batch holdfast.lake_batch := holdfast._batch(read_batch.batch);
  v_page record;
begin
  perform holdfast._check_limit("limit");
  v_page := holdfast._cut_batch(v_batch.queue_id, coalesce(read_batch.after, v_batch.first_at), coalesce(read_batch.after_id, v_batch.first_id - 1),
                                v_batch.last_at + interval '1 microsecond', read_batch."limit", holdfast._answer_bytes());
  return query
    select m.* from holdfast.ended m
    where m.queue_id = v_batch.queue_id and m.ended_at >= v_page.first_at and m.ended_at <= v_page.last_at
      and (m.ended_at, m.id) >= (v_page.first_at, v_page.first_id) and (m.ended_at, m.id) <= (v_page.last_at, v_page.last_id)
      and (m.ended_at, m.id) <= (v_batch.last_at, v_batch.last_id)
    order by m.ended_at, m.id;
end $$;
comment on function holdfast.read_batch is
  'The messages of a batch, the first to end first, at most limit rows and about 16 MiB. To go on, pass the last ended_at and id as after and after_id';

create or replace function holdfast._refuse_different(batch holdfast.lake_batch, ids bigint[], checksums bigint[]) returns void
language plpgsql stable
as $$
declare
  v_different bigint[];
begin
  v_different := array(
    select f.id from unnest(_refuse_different.ids, _refuse_different.checksums) f(id, checksum) cross join lateral (
      select m.checksum from holdfast.ended m
      where m.id = f.id and m.ended_at >= (batch).first_at and m.ended_at <= (batch).last_at and m.queue_id = (batch).queue_id offset 0) h
    where h.checksum is distinct from f.checksum limit 3);
  if v_different <> '{}' then
    perform holdfast._fail('QH811', 'a file differs from the database',
      format('Batch %s of %s: the checksums of messages %s are others.', (batch).id, (batch).queue, array_to_string(v_different, ', ')),
      'Nothing was removed. Was the file changed, or the database restored from a backup that is older than the file?');
  end if;
end $$;
comment on function holdfast._refuse_different is 'Refuse a file if a message in it has another content than in the archive';

create or replace function holdfast.close_batch(batch bigint, ids bigint[], checksums bigint[], "keep" boolean default false) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_batch holdfast.lake_batch := holdfast._batch(close_batch.batch);
  v_removed bigint := 0;
begin
  perform holdfast._check_isolation('close_batch');
  if cardinality(ids) is distinct from cardinality(checksums) or array_position(ids, null) is not null then
    perform holdfast._fail('QH810', 'a file has an id and a checksum for each message',
      format('Got %s ids and %s checksums.', coalesce(cardinality(ids)::text, 'no'), coalesce(cardinality(checksums)::text, 'no')),
      'Pass what was read back from the file.');
  end if;
  perform from holdfast.lake_batch b where b.id = v_batch.id for update;
  perform holdfast._refuse_different(v_batch, ids, checksums);
  if not "keep" then
    delete from holdfast.archive a using unnest(close_batch.ids) f(id)
    where a.id = f.id and a.ended_at >= v_batch.first_at and a.ended_at <= v_batch.last_at and a.queue_id = v_batch.queue_id;
    get diagnostics v_removed = row_count;
  end if;
  update holdfast.lake_batch b
  set state = case when close_batch."keep" then 'kept' else 'done' end, messages = cardinality(close_batch.ids),
      checksum = (select coalesce(sum(c), 0) from unnest(close_batch.checksums) c), closed_at = holdfast.now()
  where b.id = v_batch.id and b.state <> 'done';
  return v_removed;
end $$;
comment on function holdfast.close_batch is
  'A file holds these messages of a batch, by id and checksum: remove them, or keep them on purpose; returns how many were removed. Refused if one has another content here';

create or replace function holdfast.archived(queues text[] default null, since timestamptz default null, until timestamptz default null)
returns table (queue text, lake uuid, place text, messages bigint, first_at timestamptz, last_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_since timestamptz := coalesce(archived.since, '-infinity');
  v_until timestamptz := coalesce(archived.until, 'infinity');
begin
  if v_since > v_until then
    perform holdfast._fail('QH421', 'since is later than until', format('Got %s and %s.', v_since, v_until),
      'since and until take times; without since it is from the beginning, without until all up to now.');
  end if;
  -- A batch is closed after its messages ended: what was closed before cannot be in the range.
  return query
    select b.queue, b.lake, l.place, sum(b.messages)::bigint, min(b.first_at), max(b.last_at)
    from holdfast.lake_batch b join holdfast.lake l on l.id = b.lake
    where b.state = 'done' and b.closed_at >= v_since and b.last_at >= v_since and b.first_at < v_until and b.messages > 0
      and (archived.queues is null or b.queue = any (archived.queues))
    group by b.queue, b.lake, l.place order by b.queue, l.place, b.lake;
end $$;
comment on function holdfast.archived is
  'How many messages have left the database for which lake, in the last 90 days: of the batches in which some ended from since to before until, by queue and lake';

-- 88_rollup.sql
-- Rollups: figures of queues by bucket of time, as the pipeline insights finds them, for charts over weeks and years.
--
--   put_rollups   writes those of a queue and a stretch of time, in place of what was there
--   rollups       shows them
--
-- A bucket is a minute, five minutes, an hour or a day, counted from 1970 in UTC. Of each size a queue keeps the last
-- 20,000: two weeks of minutes, two years of hours. Whoever writes removes what is older, so that nothing else has to.

create or replace function holdfast._check_bucket(bucket interval) returns void language plpgsql immutable
as $$
begin
  if bucket is null or bucket not in (interval '1 minute', interval '5 minutes', interval '1 hour', interval '1 day') then
    perform holdfast._fail('QH803', 'there is no bucket of this size', format('Got %s.', coalesce(bucket::text, 'null')),
      'bucket takes 1 minute, 5 minutes, 1 hour or 1 day.');
  end if;
end $$;
comment on function holdfast._check_bucket is 'Refuse a size that buckets do not have';

create or replace function holdfast._check_stretch(bucket interval, since timestamptz, until timestamptz) returns void language plpgsql stable
as $$
declare
  v_size bigint := extract(epoch from bucket) * 1000000;
begin
  if since is null or until is null or since >= until or not isfinite(since) or not isfinite(until)
     or holdfast._us(since) % v_size <> 0 or holdfast._us(until) % v_size <> 0 then
    perform holdfast._fail('QH803', 'this is no stretch of whole buckets', format('Got %s to %s.', coalesce(since::text, 'null'), coalesce(until::text, 'null')),
      'since and until are times at which buckets begin, counted from 1970 in UTC; since is the earlier one.');
  end if;
end $$;
comment on function holdfast._check_stretch is 'Refuse a stretch of time that does not consist of whole buckets';

create or replace function holdfast._check_rollups(rollups jsonb) returns void language plpgsql immutable
as $$
begin
  if jsonb_typeof(rollups) is distinct from 'array' or jsonb_array_length(rollups) > 1000 or octet_length(rollups::text) > 16777216 then
    perform holdfast._fail('QH803', 'these are no rollups',
      case when jsonb_typeof(rollups) = 'array' then format('Got %s of them, with %s bytes.', jsonb_array_length(rollups), octet_length(rollups::text))
           else format('Got %s.', coalesce(jsonb_typeof(rollups), 'null')) end,
      'rollups takes a JSON array of at most 1,000 objects and 16 MiB.');
  end if;
end $$;
comment on function holdfast._check_rollups is 'Refuse what is no array of rollups, or too much at once';

create or replace function holdfast._read_rollups(queue_id int, bucket interval, rollups jsonb, at timestamptz) returns setof holdfast.rollup
language plpgsql stable
as $$
begin
  return query
    select _read_rollups.queue_id, _read_rollups.bucket, r.start, coalesce(r.sent, 0), coalesce(r.done, 0), coalesce(r.failed, 0), coalesce(r.dead, 0),
           coalesce(r.expired, 0), coalesce(r.discarded, 0), coalesce(r.retries, 0), coalesce(r.waiting_count, 0), r.waiting_p50, r.waiting_p95,
           r.waiting_p99, coalesce(r.processing_count, 0), r.processing_p50, r.processing_p95, r.processing_p99, coalesce(r.estimated, '{}'),
           coalesce(r.details, '{}'), at
    from jsonb_to_recordset(rollups) r(
      start timestamptz, sent bigint, done bigint, failed bigint, dead bigint, expired bigint, discarded bigint, retries bigint,
      waiting_count bigint, waiting_p50 float8, waiting_p95 float8, waiting_p99 float8,
      processing_count bigint, processing_p50 float8, processing_p95 float8, processing_p99 float8, estimated text[], details jsonb)
    order by r.start;
exception
  when data_exception then
    perform holdfast._fail('QH803', 'a rollup cannot be read', sqlerrm, 'A rollup has the columns of rollups(), as JSON.');
end $$;
comment on function holdfast._read_rollups is 'Rollups as rows of the table; what is missing is nothing';

create or replace function holdfast._trim_rollups(queue_id int, bucket interval, at timestamptz) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.rollup r where r.queue_id = _trim_rollups.queue_id and r.bucket = _trim_rollups.bucket and r.start = any (array(
    select o.start from holdfast.rollup o
    where o.queue_id = _trim_rollups.queue_id and o.bucket = _trim_rollups.bucket and o.start < at - 20000 * _trim_rollups.bucket
    order by o.start limit 2000));
end $$;
comment on function holdfast._trim_rollups is 'Remove rollups that are more than 20,000 buckets old, at most 2,000';

create or replace function holdfast.put_rollups(queue text, bucket interval, since timestamptz, until timestamptz, rollups jsonb) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(put_rollups.queue);
  v_rows holdfast.rollup[];
begin
  perform holdfast._check_bucket(put_rollups.bucket);
  perform holdfast._check_stretch(put_rollups.bucket, put_rollups.since, put_rollups.until);
  perform holdfast._check_rollups(put_rollups.rollups);
  v_rows := array(select r from holdfast._read_rollups(v_queue.id, put_rollups.bucket, put_rollups.rollups, holdfast.now()) r);
  if exists (select from unnest(v_rows) r where r.start is null or r.start < put_rollups.since or r.start >= put_rollups.until
             or holdfast._us(r.start) % (extract(epoch from put_rollups.bucket) * 1000000)::bigint <> 0)
     or (select count(distinct r.start) from unnest(v_rows) r) < cardinality(v_rows) then
    perform holdfast._fail('QH803', 'a rollup is not in its place', 'There is a start that is not in the stretch, not where a bucket begins, or there twice.',
      'start is when a bucket begins, from since to before until, each once.');
  end if;
  delete from holdfast.rollup o
  where o.queue_id = v_queue.id and o.bucket = put_rollups.bucket and o.start >= put_rollups.since and o.start < put_rollups.until;
  -- Another run may have put the same ones in meanwhile.
  insert into holdfast.rollup as o select r.* from unnest(v_rows) r
  on conflict on constraint rollup_pkey do update set
    sent = excluded.sent, done = excluded.done, failed = excluded.failed, dead = excluded.dead, expired = excluded.expired,
    discarded = excluded.discarded, retries = excluded.retries, waiting_count = excluded.waiting_count, waiting_p50 = excluded.waiting_p50,
    waiting_p95 = excluded.waiting_p95, waiting_p99 = excluded.waiting_p99, processing_count = excluded.processing_count,
    processing_p50 = excluded.processing_p50, processing_p95 = excluded.processing_p95, processing_p99 = excluded.processing_p99,
    estimated = excluded.estimated, details = excluded.details, made_at = excluded.made_at;
  perform holdfast._trim_rollups(v_queue.id, put_rollups.bucket, holdfast.now());
  return cardinality(v_rows);
end $$;
comment on function holdfast.put_rollups is
  'Write the rollups of a queue and a stretch of time, in place of those that are there; returns how many. Removes what is over 20,000 buckets old';

create or replace function holdfast.rollups(
  queue text, since timestamptz default null, until timestamptz default null, bucket interval default '1 hour', "limit" int default 1000)
returns table (start timestamptz, sent bigint, done bigint, failed bigint, dead bigint, expired bigint, discarded bigint, retries bigint,
               waiting_count bigint, waiting_p50 float8, waiting_p95 float8, waiting_p99 float8,
               processing_count bigint, processing_p50 float8, processing_p95 float8, processing_p99 float8,
               estimated text[], details jsonb, made_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(rollups.queue);
  v_since timestamptz := coalesce(rollups.since, '-infinity');
  v_until timestamptz := coalesce(rollups.until, 'infinity');
begin
  perform holdfast._check_bucket(rollups.bucket);
  perform holdfast._check_limit(rollups."limit");
  if v_since > v_until then
    perform holdfast._fail('QH421', 'since is later than until', format('Got %s and %s.', v_since, v_until),
      'since and until take times; without since it is from the beginning, without until all up to now.');
  end if;
  return query
    select r.start, r.sent, r.done, r.failed, r.dead, r.expired, r.discarded, r.retries, r.waiting_count, r.waiting_p50, r.waiting_p95, r.waiting_p99,
           r.processing_count, r.processing_p50, r.processing_p95, r.processing_p99, r.estimated, r.details, r.made_at
    from holdfast.rollup r
    where r.queue_id = v_queue.id and r.bucket = rollups.bucket and r.start >= v_since and r.start < v_until
    order by r.start limit rollups."limit";
end $$;
comment on function holdfast.rollups is
  'The rollups of a queue whose buckets begin from since to before until, the oldest first; only of buckets of one size';

-- 89_attempt.sql
-- The log of attempts to deliver, and what they tell of an endpoint.
--
--   record_attempts     for dispatchers: what became of deliveries; settles the messages too
--   attempts            of one message, wherever it has moved
--   endpoint_attempts   of an endpoint, the last first
--   endpoint_health     breaker, success rate, latencies, what waits, the last errors
--
-- Table: attempt. Rows stay for as long as their endpoint said when they were written; maintain() removes them then, a bounded
-- number a call. An endpoint that is dropped leaves its rows.
-- Lock order: leases and messages as in 70_settle.sql, then the endpoint, then its breaker.

create or replace function holdfast._bad_attempt(detail text) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH879', 'this is no attempt', detail,
    'An attempt has message, outcome (done, retry, dead, gone), and perhaps root, delivery, status, latency, error, response, probe, at, token, delay.');
end $$;
comment on function holdfast._bad_attempt is 'Refuse a bad attempt';

create or replace function holdfast._attempt_reports(attempts jsonb) returns holdfast.attempt_report[] language plpgsql stable
as $$
declare
  v_reports holdfast.attempt_report[];
  v_wrong text;
begin
  if jsonb_typeof(attempts) is distinct from 'array' or jsonb_array_length(attempts) > 10000 then
    perform holdfast._bad_attempt('Pass an array of up to 10,000 attempts.');
  end if;
  select k into v_wrong from jsonb_array_elements(attempts) a cross join lateral jsonb_object_keys(a) k
  where k <> all ('{message,root,delivery,outcome,status,latency,error,response,probe,at,token,delay}') limit 1;
  if found then
    perform holdfast._bad_attempt(format('Unknown field "%s".', left(v_wrong, 100)));
  end if;
  select array_agg(r order by n.n) into v_reports
  from jsonb_array_elements(attempts) with ordinality n(value, n)
    cross join lateral jsonb_populate_record(null::holdfast.attempt_report, n.value) r;
  select format('Got %s.', left(to_jsonb(r)::text, 300)) into v_wrong from unnest(v_reports) r
  where (r.message > 0 and r.outcome in ('done', 'retry', 'dead', 'gone') and coalesce(r.root > 0, true) and coalesce(r.status between 100 and 999, true)
         and coalesce(r.latency between 0 and 86400, true) and coalesce(r.delay between 0 and 315360000, true) and coalesce(isfinite(r.at), true)) is not true limit 1;
  if found then
    perform holdfast._bad_attempt(v_wrong);
  end if;
  return coalesce(v_reports, '{}');
exception
  when data_exception then
    perform holdfast._bad_attempt(sqlerrm);
  when sqlstate '22023' then
    perform holdfast._bad_attempt('Each attempt is an object.');
end $$;
comment on function holdfast._attempt_reports is 'Read and check attempts';

create or replace function holdfast._log_attempts(endpoint holdfast.endpoint, reports holdfast.attempt_report[], now timestamptz) returns void
language plpgsql volatile
as $$
begin
  insert into holdfast.attempt (endpoint_id, queue_id, root_id, message_id, at, keep_until, delivery, outcome, status, latency, error, response)
  select endpoint.id, endpoint.queue_id, coalesce(r.root, r.message), r.message, coalesce(r.at, now),
         now + make_interval(secs => (holdfast._filled_endpoint(endpoint.config) ->> 'keep_attempts')::float8),
         r.delivery, r.outcome, r.status, r.latency, left(r.error, 1000), convert_from(holdfast._cut(convert_to(r.response, 'UTF8'), 65536), 'UTF8')
  from unnest(reports) r;
end $$;
comment on function holdfast._log_attempts is 'Write attempts down';

create or replace function holdfast._cut(bytes bytea, size int) returns bytea language sql immutable
  -- A character of UTF-8 that does not fit is left out as a whole.
  return case when length(bytes) <= size then bytes
    when get_byte(bytes, size) & 192 <> 128 then substr(bytes, 1, size)
    when get_byte(bytes, size - 1) & 192 <> 128 then substr(bytes, 1, size - 1)
    when get_byte(bytes, size - 2) & 192 <> 128 then substr(bytes, 1, size - 2)
    else substr(bytes, 1, size - 3) end;
comment on function holdfast._cut is 'The beginning of a text of UTF-8, of at most so many bytes';

create or replace function holdfast._settle_attempts(queue text, reports holdfast.attempt_report[], out settled bigint[], out skipped bigint[])
language plpgsql volatile
as $$
declare
  v_part record;
  v_settlement holdfast.settlement;
begin
  settled := '{}';
  skipped := '{}';
  for v_part in
    select r.token, r.outcome, r.delay, case when r.outcome <> 'done' then coalesce(r.error, r.status::text) end as error, array_agg(r.message order by r.message) as ids
    from unnest(reports) r where r.token is not null
    group by 1, 2, 3, 4 order by 1, 2, 3, 4
  loop
    v_settlement := case v_part.outcome
      when 'done' then holdfast.ack(queue, v_part.token, v_part.ids)
      when 'retry' then holdfast.nack(queue, v_part.token, v_part.ids, make_interval(secs => v_part.delay), v_part.error)
      else holdfast.reject(queue, v_part.token, v_part.ids, v_part.error) end;
    settled := settled || v_settlement.settled;
    skipped := skipped || v_settlement.skipped;
  end loop;
end $$;
comment on function holdfast._settle_attempts is 'Ack what was delivered, nack what may be delivered later, reject the rest';

create or replace function holdfast.record_attempts(endpoint text, attempts jsonb) returns holdfast.endpoint_state
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_reports holdfast.attempt_report[] := holdfast._attempt_reports(record_attempts.attempts);
  v_endpoint holdfast.endpoint := holdfast._endpoint(record_attempts.endpoint);
  v_settled record;
  v_breaker holdfast.endpoint_breaker;
begin
  perform holdfast._log_attempts(v_endpoint, v_reports, v_now);
  v_settled := holdfast._settle_attempts((select q.name from holdfast.queue q where q.id = v_endpoint.queue_id), v_reports);
  if exists (select from unnest(v_reports) r where r.outcome = 'gone') and v_endpoint.enabled
     and (holdfast._filled_endpoint(v_endpoint.config) ->> 'disable_on_gone')::boolean then
    perform holdfast._switch_endpoint(v_endpoint, false, '410 Gone: the endpoint says that it is not there any more.');
    v_endpoint := holdfast._endpoint(record_attempts.endpoint);
  end if;
  v_breaker := holdfast._move_breaker(v_endpoint, v_reports, v_now);
  return (v_breaker.state, v_endpoint.enabled, case when v_breaker.state <> 'closed' then greatest(v_breaker.retry_at - v_now, interval '0') end,
          v_endpoint.version, v_settled.settled, v_settled.skipped)::holdfast.endpoint_state;
end $$;
comment on function holdfast.record_attempts is
  'For dispatchers: write attempts down, move the breaker, disable an endpoint that is gone; and settle each message that comes with its token: done acks, retry nacks with delay (seconds), dead and gone reject';

create or replace function holdfast._attempt_info(attempt holdfast.attempt) returns holdfast.attempt_info language sql stable
  return ((select e.name from holdfast.endpoint e where e.id = (attempt).endpoint_id), (select q.name from holdfast.queue q where q.id = (attempt).queue_id),
          (attempt).message_id, (attempt).root_id, (attempt).at, (attempt).delivery, (attempt).outcome, (attempt).status, (attempt).latency,
          (attempt).error, (attempt).response)::holdfast.attempt_info;
comment on function holdfast._attempt_info is 'An attempt, as people see it';

create or replace function holdfast.attempts(queue text, id bigint, "limit" int default 100) returns setof holdfast.attempt_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(attempts.queue);
  v_root bigint;
  v_here boolean;
begin
  perform holdfast._check_limit("limit");
  -- What lives here now may have been tried under another name: a dead letter, or one that was sent back.
  select holdfast._root_id(m.id, m.origin), m.queue_id = v_queue.id into v_root, v_here from holdfast.message m where m.id = attempts.id;
  return query select (holdfast._attempt_info(a)).* from (
    select t.* from holdfast.attempt t where t.root_id = coalesce(v_root, attempts.id) and (t.queue_id = v_queue.id or v_here)
    order by t.at desc limit "limit") a;
end $$;
comment on function holdfast.attempts is 'The attempts to deliver a message, the last first: of this queue, or that lies in it now';

create or replace function holdfast.endpoint_attempts(endpoint text, outcomes text[] default null, "limit" int default 100, until timestamptz default null)
returns setof holdfast.attempt_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_endpoint holdfast.endpoint := holdfast._endpoint(endpoint_attempts.endpoint);
begin
  perform holdfast._check_limit("limit");
  if not outcomes <@ '{done,retry,dead,gone}' then
    perform holdfast._fail('QH401', 'unknown outcome', format('Got %s.', left(outcomes::text, 100)), 'outcomes takes done, retry, dead and gone.');
  end if;
  -- Of the last 10,000: a search for one failure among millions of successes has an end.
  return query select (holdfast._attempt_info(a)).* from (
    select w.* from (select t.* from holdfast.attempt t where t.endpoint_id = v_endpoint.id and t.at < coalesce(until, 'infinity')
                     order by t.at desc limit case when outcomes is null then "limit" else 10000 end) w
    where outcomes is null or w.outcome = any (outcomes)
    order by w.at desc limit "limit") a;
end $$;
comment on function holdfast.endpoint_attempts is
  'The last attempts at an endpoint, the last first: all, or those with these outcomes among the last 10,000. until: the time of the last one seen, for the next page';

create or replace function holdfast._health(endpoint holdfast.endpoint, "window" interval, at timestamptz) returns holdfast.endpoint_health language plpgsql stable
as $$
declare
  v_queue holdfast.queue;
  v_breaker holdfast.endpoint_breaker;
  v_stats record;
  v_seen record;
begin
  select q.* into v_queue from holdfast.queue q where q.id = endpoint.queue_id;
  select b.* into v_breaker from holdfast.endpoint_breaker b where b.endpoint_id = endpoint.id;
  select s.* into v_stats from holdfast.queue_stats(v_queue.name) s;
  with recent as (
    select t.* from holdfast.attempt t where t.endpoint_id = endpoint.id and t.at > _health.at - "window" order by t.at desc limit 10000
  )
  select count(*) as attempts, avg((r.outcome = 'done')::int)::float8 as success_rate,
         percentile_cont('{0.5,0.95,0.99}'::float8[]) within group (order by r.latency) as latency,
         (select coalesce(jsonb_agg(jsonb_build_object('at', f.at, 'id', f.message_id::text, 'outcome', f.outcome, 'status', f.status, 'error', left(f.error, 200))), '[]')
          from (select o.* from recent o where o.outcome <> 'done' order by o.at desc limit 5) f) as last_errors
  into v_seen from recent r;
  return (endpoint.name, v_queue.name, endpoint.enabled, endpoint.disabled_reason, v_breaker.state, v_breaker.failures, v_breaker.opened_at, v_breaker.retry_at,
          v_breaker.last_success_at, v_breaker.last_failure_at, v_seen.attempts, v_seen.success_rate, v_seen.latency[1], v_seen.latency[2], v_seen.latency[3],
          v_stats.ready + v_stats.scheduled + v_stats.blocked, v_stats.in_flight, v_stats.dead, v_stats.oldest_age, v_stats.exact, v_seen.last_errors)::holdfast.endpoint_health;
end $$;
comment on function holdfast._health is 'How an endpoint does';

create or replace function holdfast.endpoint_health(endpoint text default null, "window" interval default '15 minutes') returns setof holdfast.endpoint_health
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  if ("window" between interval '1 second' and interval '366 days') is not true then
    perform holdfast._fail('QH421', 'window is out of range', format('Got %s.', coalesce("window"::text, 'null')), 'window takes 1 second to 366 days.');
  end if;
  if endpoint_health.endpoint is not null then
    return next holdfast._health(holdfast._endpoint(endpoint_health.endpoint), "window", v_now);
    return;
  end if;
  return query select (holdfast._health(e, "window", v_now)).* from holdfast.endpoint e order by e.name collate "C";
end $$;
comment on function holdfast.endpoint_health is
  'How an endpoint does (null: all): its breaker, what waits, and of the attempts in the window, at most the last 10,000, success rate, latencies in seconds and errors';

create or replace function holdfast._forget_attempts(at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  v_attempts int;
  v_events int;
begin
  delete from holdfast.attempt a where a.ctid = any (array(
    select o.ctid from holdfast.attempt o where o.keep_until < _forget_attempts.at order by o.keep_until limit 10000 for update skip locked));
  get diagnostics v_attempts = row_count;
  delete from holdfast.endpoint_event n where n.ctid = any (array(
    select o.ctid from holdfast.endpoint_event o where o.at < _forget_attempts.at - interval '30 days' order by o.at limit 1000 for update skip locked));
  get diagnostics v_events = row_count;
  return v_attempts >= 10000 or v_events >= 1000;
end $$;
comment on function holdfast._forget_attempts is 'Remove attempts whose time is over, 10,000 a call, and what happened to endpoints 30 days ago; true: there are more';

-- 89_breaker.sql
-- Circuit breakers of endpoints: whether to deliver, for all processes together.
--
--   admit           may so many be delivered now?
--   yield_probe     the one that was to find out found nothing to deliver
--   reset_breaker   deliver as if nothing had failed
--
-- Table: endpoint_breaker. closed: deliver. After so many failures in a row it is open: nobody delivers, so no message loses an
-- attempt. Once the cooldown is over, it is half-open for one delivery, the probe: whoever asks first gets it, and a number to show.
-- How that goes decides (attempt.sql); whoever does not tell leaves it to the next after a while.
-- A closed breaker is read and not written, but for the time of the last success, once a second. Every move is written
-- down in endpoint_event and announced. Lock order: an endpoint, then its breaker; nothing is locked after it.

create or replace function holdfast._probe_time(config jsonb) returns interval language sql immutable
  return make_interval(secs => 2 * coalesce((config ->> 'timeout')::float8, 10) + 5);
comment on function holdfast._probe_time is 'How long a probe may take before another is made';

create or replace function holdfast.admit(endpoint text, want int default 1)
returns table (granted int, state text, retry_in interval, probe bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_at record;
  v_now timestamptz;
  v_probe bigint;
begin
  select e.id, e.name, e.enabled, e.config, b.state, b.retry_at into v_at
  from holdfast.endpoint e join holdfast.endpoint_breaker b on b.endpoint_id = e.id where e.name = admit.endpoint;
  if not found then
    perform holdfast._no_endpoint(admit.endpoint);
  elsif want is null or want not between 0 and 10000 then
    perform holdfast._fail('QH301', 'want is out of range', format('Got %s.', coalesce(want::text, 'null')), 'One call asks for 0 to 10,000 deliveries.');
  end if;
  if not v_at.enabled then
    return query select 0, 'disabled', null::interval, null::bigint;
    return;
  elsif v_at.state = 'closed' then
    return query select want, v_at.state, null::interval, null::bigint;
    return;
  end if;
  v_now := holdfast.now();
  if v_at.retry_at <= v_now and want > 0 then
    -- Whoever has the row is about to move the breaker, and is not waited for.
    update holdfast.endpoint_breaker b
    set state = 'half_open', probe = 1 + floor(random() * 9007199254740990)::bigint, retry_at = v_now + holdfast._probe_time(v_at.config)
    from (select o.endpoint_id, o.state from holdfast.endpoint_breaker o
          where o.endpoint_id = v_at.id and o.state <> 'closed' and o.retry_at <= v_now for update skip locked) o
    where b.endpoint_id = o.endpoint_id
    returning b.probe, o.state into v_probe, v_at.state;
    if v_probe is not null then
      if v_at.state = 'open' then
        perform holdfast._endpoint_event(v_at.id, 'half_opened', 'The cooldown is over: one delivery finds out.');
        perform holdfast._tell_of_endpoint(v_at.name);
      end if;
      return query select 1, 'half_open', null::interval, v_probe;
      return;
    end if;
  end if;
  return query select 0, v_at.state, greatest(v_at.retry_at - v_now, interval '100 ms'), null::bigint;
end $$;
comment on function holdfast.admit is
  'For dispatchers: how many of these deliveries may be made now, by the breaker of the endpoint; none: ask again after retry_in. probe: this one finds out whether it works again; pass it to record_attempts';

create or replace function holdfast.yield_probe(endpoint text, probe bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_endpoint holdfast.endpoint := holdfast._endpoint(yield_probe.endpoint);
begin
  update holdfast.endpoint_breaker b set probe = null, retry_at = holdfast.now()
  where b.endpoint_id = v_endpoint.id and b.state = 'half_open' and b.probe = yield_probe.probe;
  return found;
end $$;
comment on function holdfast.yield_probe is 'For dispatchers: give back a probe for which there is nothing to deliver; the next that asks gets one. false: it was not this one''s any more';

create or replace function holdfast._set_breaker(endpoint holdfast.endpoint, breaker holdfast.endpoint_breaker, state text, reason text)
returns holdfast.endpoint_breaker language plpgsql volatile
as $$
declare
  v_now timestamptz := holdfast.now();
  v_cooldown float8 := (holdfast._filled_endpoint(endpoint.config) #>> '{breaker,cooldown}')::float8;
begin
  perform holdfast._endpoint_event(endpoint.id, case _set_breaker.state when 'open' then 'opened' else 'closed' end, reason);
  perform holdfast._tell_of_endpoint(endpoint.name);
  breaker.state := _set_breaker.state;
  breaker.probe := null;
  breaker.opened_at := case when _set_breaker.state = 'open' then v_now end;
  breaker.retry_at := case when _set_breaker.state = 'open' then v_now + make_interval(secs => v_cooldown) end;
  breaker.failures := case when _set_breaker.state = 'open' then breaker.failures else 0 end;
  return breaker;
end $$;
comment on function holdfast._set_breaker is 'A breaker after a move, which is written down and announced; whoever calls writes the row';

create or replace function holdfast._save_breaker(breaker holdfast.endpoint_breaker) returns void language plpgsql volatile
as $$
begin
  update holdfast.endpoint_breaker b set
    state = breaker.state, failures = breaker.failures, retry_at = breaker.retry_at, probe = breaker.probe, opened_at = breaker.opened_at,
    last_success_at = breaker.last_success_at, last_failure_at = breaker.last_failure_at
  where b.endpoint_id = breaker.endpoint_id;
end $$;
comment on function holdfast._save_breaker is 'Write the row of a breaker';

create or replace function holdfast.reset_breaker(endpoint text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_endpoint holdfast.endpoint := holdfast._locked_endpoint(reset_breaker.endpoint);
  v_breaker holdfast.endpoint_breaker;
begin
  select b.* into v_breaker from holdfast.endpoint_breaker b where b.endpoint_id = v_endpoint.id for update;
  if v_breaker.state = 'closed' and v_breaker.failures = 0 then
    return false;
  end if;
  if v_breaker.state <> 'closed' then
    v_breaker := holdfast._set_breaker(v_endpoint, v_breaker, 'closed', 'It was reset.');
  end if;
  v_breaker.failures := 0;
  perform holdfast._save_breaker(v_breaker);
  return true;
end $$;
comment on function holdfast.reset_breaker is 'Close the breaker of an endpoint and forget its failures; false: there were none';

create or replace function holdfast._move_breaker(endpoint holdfast.endpoint, reports holdfast.attempt_report[], at timestamptz)
returns holdfast.endpoint_breaker language plpgsql volatile
as $$
declare
  v_breaker holdfast.endpoint_breaker;
  v_last_done bigint;
  v_failed int;
  v_probe text;
  v_threshold int := (holdfast._filled_endpoint(endpoint.config) #>> '{breaker,threshold}')::int;
  v_error text;
begin
  select max(r.n) filter (where r.outcome = 'done') into v_last_done from unnest(reports) with ordinality
    r(message, root, delivery, outcome, status, latency, error, response, probe, at, token, delay, n);
  select count(*) filter (where r.outcome = 'retry'), max(coalesce(r.error, r.status::text)) filter (where r.outcome = 'retry') into v_failed, v_error
  from unnest(reports) with ordinality r(message, root, delivery, outcome, status, latency, error, response, probe, at, token, delay, n)
  where r.n > coalesce(v_last_done, 0);
  select b.* into v_breaker from holdfast.endpoint_breaker b where b.endpoint_id = endpoint.id;
  if v_breaker.state = 'closed' and v_failed = 0
     and (v_last_done is null or (v_breaker.failures = 0 and v_breaker.last_success_at between at - interval '1 second' and at)) then
    return v_breaker;
  end if;
  select b.* into v_breaker from holdfast.endpoint_breaker b where b.endpoint_id = endpoint.id for update;
  v_breaker.failures := case when v_last_done is null then v_breaker.failures else 0 end + v_failed;
  v_breaker.last_success_at := case when v_last_done is null then v_breaker.last_success_at else at end;
  v_breaker.last_failure_at := case when v_failed = 0 then v_breaker.last_failure_at else at end;
  select r.outcome into v_probe from unnest(reports) r where r.probe = v_breaker.probe limit 1;
  if v_breaker.state = 'half_open' and v_probe = 'retry' then
    v_breaker := holdfast._set_breaker(endpoint, v_breaker, 'open', format('The probe failed: %s.', coalesce(v_error, 'no error text')));
  elsif v_breaker.state = 'half_open' and v_probe is not null then
    v_breaker := holdfast._set_breaker(endpoint, v_breaker, 'closed', 'The probe was answered.');
  elsif v_breaker.state = 'closed' and v_breaker.failures >= v_threshold then
    v_breaker := holdfast._set_breaker(endpoint, v_breaker, 'open',
      format('%s deliveries failed in a row, the last with: %s.', v_breaker.failures, coalesce(v_error, 'no error text')));
  end if;
  perform holdfast._save_breaker(v_breaker);
  return v_breaker;
end $$;
comment on function holdfast._move_breaker is 'What attempts say of an endpoint: count failures in a row, and open or close its breaker';

-- 89_endpoint.sql
-- Webhook endpoints: where the messages of a queue go.
--
--   create_endpoint      with its queue, if that is not there
--   configure_endpoint   null takes a field back to its default
--   rotate_secret        another signing secret; the old ones sign too, for a while
--   enable_endpoint, disable_endpoint
--   drop_endpoint        with its queue, or without
--   endpoints, endpoint_info
--   dispatch_endpoints   for dispatchers: what it takes to deliver
--
-- Tables: endpoint, endpoint_secret. An endpoint consumes a queue, and no other consumes it too. How many attempts there are, how
-- many deliveries a second, and whether they keep an order are settings of that queue alone (max_deliveries, throughput_limit, ordering):
-- claims see to them, for all dispatchers together.
-- No secret comes here in clear: they are sealed by who passes them, and what is not is refused. Durations are kept in seconds.
-- Every change is announced on the channel holdfast_endpoint.
-- Lock order: the endpoint, then its queue, as of 30_queue.sql; then its breaker.

create or replace function holdfast._builtin_endpoint() returns jsonb language sql immutable
  return '{"method": "POST", "headers": {}, "timeout": 10, "connect_timeout": 5,
           "retry": {"strategy": "exponential", "base": 10, "factor": 2, "increment": 30, "cap": 300, "jitter": 0.1, "retry_after": true},
           "concurrency": 10, "cloudevents": "off", "cloudevents_type": null, "cloudevents_source": "/holdfast",
           "capture_response": false, "capture_limit": 65536, "disable_on_gone": true, "allow": [],
           "breaker": {"threshold": 10, "cooldown": 30}, "keep_attempts": 604800}'::jsonb;
comment on function holdfast._builtin_endpoint is 'The configuration of an endpoint of which nothing was said';

create or replace function holdfast._no_endpoint(endpoint text) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH870', format('endpoint %s does not exist', coalesce('"' || left(_no_endpoint.endpoint, 200) || '"', 'null')),
    'Endpoints are made explicitly.', 'Create it with holdfast.create_endpoint, or check the spelling.');
end $$;
comment on function holdfast._no_endpoint is 'Raise: no such endpoint';

create or replace function holdfast._endpoint(endpoint text) returns holdfast.endpoint language plpgsql stable
as $$
declare
  v_endpoint holdfast.endpoint;
begin
  select e.* into v_endpoint from holdfast.endpoint e where e.name = _endpoint.endpoint;
  if not found then
    perform holdfast._no_endpoint(_endpoint.endpoint);
  end if;
  return v_endpoint;
end $$;
comment on function holdfast._endpoint is 'An endpoint by its name, or an error';

create or replace function holdfast._locked_endpoint(endpoint text) returns holdfast.endpoint language plpgsql volatile
as $$
declare
  v_endpoint holdfast.endpoint;
begin
  select e.* into v_endpoint from holdfast.endpoint e where e.name = _locked_endpoint.endpoint for update;
  if not found then
    perform holdfast._no_endpoint(_locked_endpoint.endpoint);
  end if;
  return v_endpoint;
end $$;
comment on function holdfast._locked_endpoint is 'An endpoint by its name, locked, or an error';

create or replace function holdfast._tell_of_endpoint(endpoint text) returns void language plpgsql volatile
as $$
begin
  perform pg_notify('holdfast_endpoint', _tell_of_endpoint.endpoint);
end $$;
comment on function holdfast._tell_of_endpoint is 'Tell dispatchers that what they know of an endpoint is out of date';

create or replace function holdfast._endpoint_event(endpoint_id int, event text, reason text) returns void language plpgsql volatile
as $$
begin
  insert into holdfast.endpoint_event (endpoint_id, at, event, reason)
  values (_endpoint_event.endpoint_id, holdfast.now(), _endpoint_event.event, left(_endpoint_event.reason, 1000));
end $$;
comment on function holdfast._endpoint_event is 'Write down what has happened to an endpoint';

create or replace function holdfast._seal_secrets(endpoint_id int, sealed text, at timestamptz, overlap interval) returns timestamptz
language plpgsql volatile
as $$
declare
  v_until timestamptz;
begin
  delete from holdfast.endpoint_secret s
  where s.endpoint_id = _seal_secrets.endpoint_id and (overlap = interval '0' or s.expires_at <= at);
  update holdfast.endpoint_secret s set expires_at = least(s.expires_at, at + overlap) where s.endpoint_id = _seal_secrets.endpoint_id;
  -- Five sign at a time: what a receiver has to try is bounded, too.
  delete from holdfast.endpoint_secret s where s.id in (
    select o.id from holdfast.endpoint_secret o where o.endpoint_id = _seal_secrets.endpoint_id order by o.id desc offset 4);
  if _seal_secrets.sealed is not null then
    insert into holdfast.endpoint_secret (endpoint_id, sealed, created_at) values (_seal_secrets.endpoint_id, _seal_secrets.sealed, at);
  end if;
  select max(s.expires_at) into v_until from holdfast.endpoint_secret s where s.endpoint_id = _seal_secrets.endpoint_id;
  return v_until;
end $$;
comment on function holdfast._seal_secrets is 'Let this secret sign from now on (null: none), and the old ones for overlap; returns until when';

create or replace function holdfast._queue_fields(config jsonb) returns jsonb language sql immutable
  return case when config ? 'rate_limit' then jsonb_build_object('throughput_limit', config -> 'rate_limit') else '{}' end
         || case when config ? 'ordering' then jsonb_build_object('ordering', config -> 'ordering') else '{}' end
         || case when config -> 'retry' ? 'max_attempts' then jsonb_build_object('max_deliveries', coalesce(nullif(config #> '{retry,max_attempts}', 'null'), '10')) else '{}' end;
comment on function holdfast._queue_fields is 'What of the configuration of an endpoint is one of its queue';

create or replace function holdfast._merge_endpoint(base jsonb, change jsonb) returns jsonb language sql immutable
  return coalesce((select jsonb_object_agg(e.key, e.value) from (
    select m.key, case when m.key in ('retry', 'breaker') and m.value <> 'null'
                       then jsonb_strip_nulls(coalesce(nullif(base -> m.key, 'null'), '{}') || m.value) else m.value end as value
    from jsonb_each(base || (change - '{url,signing_secret,auth,rate_limit,ordering}'::text[])) m
  ) e where e.value not in ('null', '{}')), '{}') #- '{retry,max_attempts}';
comment on function holdfast._merge_endpoint is 'Overrides after a change: null takes a field back, retry and breaker merge field by field';

create or replace function holdfast._filled_endpoint(config jsonb) returns jsonb language sql immutable
  return holdfast._builtin_endpoint() || config
         || jsonb_build_object('retry', (holdfast._builtin_endpoint() -> 'retry') || coalesce(config -> 'retry', '{}'),
                               'breaker', (holdfast._builtin_endpoint() -> 'breaker') || coalesce(config -> 'breaker', '{}'));
comment on function holdfast._filled_endpoint is 'Overrides laid over the built-in configuration of an endpoint';

create or replace function holdfast._allowed(config jsonb) returns text[] language sql immutable
  return array(select jsonb_array_elements_text(coalesce(config -> 'allow', '[]')));
comment on function holdfast._allowed is 'What an endpoint may connect to beside public addresses';

create or replace function holdfast._endpoint_config(endpoint holdfast.endpoint, queue holdfast.queue) returns jsonb language sql immutable
  return (select jsonb_set(f.config, '{retry,max_attempts}', to_jsonb((queue).max_deliveries))
                 || jsonb_build_object('connect_timeout', least(f.config -> 'connect_timeout', f.config -> 'timeout'), 'rate_limit', (queue).throughput_limit, 'ordering', coalesce((queue).ordering, 'none'))
          from (select holdfast._filled_endpoint((endpoint).config) as config) f);
comment on function holdfast._endpoint_config is 'The configuration of an endpoint that holds, with what its queue says';

create or replace function holdfast._same_endpoint(endpoint holdfast.endpoint, config jsonb, queue text) returns void language plpgsql stable
as $$
declare
  v_queue holdfast.queue;
  v_differs text;
begin
  select q.* into v_queue from holdfast.queue q where q.id = endpoint.queue_id;
  v_differs := case
    when v_queue.name <> _same_endpoint.queue then format('It consumes the queue "%s".', v_queue.name)
    when endpoint.url <> config ->> 'url' then 'It has another url.'
    when config ?| '{signing_secret,auth}' then 'What is sealed cannot be compared.'
    when endpoint.config <> holdfast._merge_endpoint('{}', holdfast._normal_endpoint(config))
      then holdfast._config_difference(endpoint.config, holdfast._merge_endpoint('{}', holdfast._normal_endpoint(config)))
    when not v_queue.config @> jsonb_strip_nulls(holdfast._queue_fields(config)) then holdfast._config_difference(v_queue.config, v_queue.config || holdfast._queue_fields(config)) end;
  if v_differs is not null then
    perform holdfast._fail('QH871', format('endpoint "%s" exists with another configuration', endpoint.name), v_differs,
      'Change it with holdfast.configure_endpoint, and its secret with holdfast.rotate_secret.');
  end if;
end $$;
comment on function holdfast._same_endpoint is 'Refuse to make an endpoint that is there and another one';

create or replace function holdfast._endpoint_queue(queue text, config jsonb) returns int language plpgsql volatile
as $$
declare
  v_queue holdfast.queue;
  v_other text;
begin
  if not exists (select from holdfast.queue q where q.name = _endpoint_queue.queue) then
    perform holdfast.create_queue(_endpoint_queue.queue, '{"max_deliveries": 10}' || holdfast._queue_fields(config));
  elsif holdfast._queue_fields(config) <> '{}' then
    perform holdfast._work_queue(_endpoint_queue.queue);
    perform holdfast.configure_queue(_endpoint_queue.queue, holdfast._queue_fields(config));
  end if;
  v_queue := holdfast._work_queue(_endpoint_queue.queue);
  select e.name into v_other from holdfast.endpoint e where e.queue_id = v_queue.id;
  if found then
    perform holdfast._fail('QH875', format('the endpoint "%s" consumes the queue "%s"', v_other, v_queue.name),
      'A queue has one endpoint at most.', 'Name another queue; holdfast.publish sends a message to the queues of several endpoints.');
  end if;
  return v_queue.id;
end $$;
comment on function holdfast._endpoint_queue is 'The queue that an endpoint is to consume, made or configured as it says';

create or replace function holdfast.create_endpoint(endpoint text, config jsonb, queue text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_queue text := coalesce(create_endpoint.queue, create_endpoint.endpoint);
  v_there holdfast.endpoint;
  v_config jsonb;
  v_id int;
begin
  perform holdfast._check_endpoint_name(create_endpoint.endpoint);
  perform holdfast._check_endpoint_config(create_endpoint.config);
  perform holdfast._check_name(v_queue);
  v_config := holdfast._merge_endpoint('{}', holdfast._normal_endpoint(create_endpoint.config));
  perform holdfast._check_url(create_endpoint.config ->> 'url', holdfast._allowed(v_config));
  select e.* into v_there from holdfast.endpoint e where e.name = create_endpoint.endpoint;
  if found then
    perform holdfast._same_endpoint(v_there, create_endpoint.config, v_queue);
    return false;
  end if;
  insert into holdfast.endpoint (name, queue_id, url, config, auth, created_at, changed_at)
  values (create_endpoint.endpoint, holdfast._endpoint_queue(v_queue, create_endpoint.config), create_endpoint.config ->> 'url', v_config,
          nullif(create_endpoint.config -> 'auth', 'null'), v_now, v_now)
  on conflict (name) do nothing returning id into v_id;
  if v_id is null then
    -- Somebody was faster, and has committed by now.
    perform holdfast._same_endpoint(holdfast._locked_endpoint(create_endpoint.endpoint), create_endpoint.config, v_queue);
    return false;
  end if;
  insert into holdfast.endpoint_breaker (endpoint_id) values (v_id);
  perform holdfast._seal_secrets(v_id, create_endpoint.config ->> 'signing_secret', v_now, '0');
  perform holdfast._tell_of_endpoint(create_endpoint.endpoint);
  return true;
end $$;
comment on function holdfast.create_endpoint is
  'Deliver the messages of a queue (null: one of the endpoint''s name) to a URL; the queue is made if it is not there. true: made; false: it was there, with this configuration';

create or replace function holdfast.configure_endpoint(endpoint text, config jsonb) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_endpoint holdfast.endpoint;
  v_queue holdfast.queue;
begin
  perform holdfast._check_endpoint_config(configure_endpoint.config);
  v_endpoint := holdfast._locked_endpoint(configure_endpoint.endpoint);
  v_endpoint.config := holdfast._merge_endpoint(v_endpoint.config, holdfast._normal_endpoint(configure_endpoint.config));
  v_endpoint.url := case when configure_endpoint.config ? 'url' then configure_endpoint.config ->> 'url' else v_endpoint.url end;
  perform holdfast._check_url(v_endpoint.url, holdfast._allowed(v_endpoint.config));
  if holdfast._queue_fields(configure_endpoint.config) <> '{}' then
    perform holdfast.configure_queue(q.name, holdfast._queue_fields(configure_endpoint.config)) from holdfast.queue q where q.id = v_endpoint.queue_id;
  end if;
  if configure_endpoint.config ? 'signing_secret' then
    perform holdfast._seal_secrets(v_endpoint.id, configure_endpoint.config ->> 'signing_secret', v_now, '0');
  end if;
  update holdfast.endpoint e set
    url = v_endpoint.url, config = v_endpoint.config, version = e.version + 1, changed_at = v_now,
    auth = case when configure_endpoint.config ? 'auth' then nullif(configure_endpoint.config -> 'auth', 'null') else e.auth end
  where e.id = v_endpoint.id returning e.* into v_endpoint;
  perform holdfast._tell_of_endpoint(v_endpoint.name);
  select q.* into v_queue from holdfast.queue q where q.id = v_endpoint.queue_id;
  return (holdfast._endpoint_info(v_endpoint, v_queue, v_now)).config;
end $$;
comment on function holdfast.configure_endpoint is
  'Change the configuration of an endpoint; null takes a field back to its default, retry and breaker field by field. Returns what holds now, without secrets';

create or replace function holdfast.rotate_secret(endpoint text, sealed text, overlap interval default '24 hours') returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_endpoint holdfast.endpoint;
  v_until timestamptz;
begin
  perform holdfast._check_sealed_field('sealed', to_jsonb(rotate_secret.sealed));
  if (overlap between interval '0' and interval '90 days') is not true then
    perform holdfast._fail('QH872', 'overlap is out of range', format('Got %s.', coalesce(overlap::text, 'null')), 'The old secrets sign too for 0 seconds to 90 days.');
  end if;
  v_endpoint := holdfast._locked_endpoint(rotate_secret.endpoint);
  v_until := holdfast._seal_secrets(v_endpoint.id, rotate_secret.sealed, holdfast.now(), overlap);
  update holdfast.endpoint e set version = e.version + 1, changed_at = holdfast.now() where e.id = v_endpoint.id;
  perform holdfast._tell_of_endpoint(v_endpoint.name);
  return v_until;
end $$;
comment on function holdfast.rotate_secret is
  'Sign deliveries with this secret from now on, and with the old ones too for overlap; returns until when, null if there was none. Five sign at most';

create or replace function holdfast._switch_endpoint(endpoint holdfast.endpoint, "on" boolean, reason text) returns boolean language plpgsql volatile
as $$
begin
  update holdfast.endpoint e set
    enabled = "on", disabled_reason = case when not "on" then left(_switch_endpoint.reason, 1000) end,
    disabled_at = case when not "on" then holdfast.now() end, version = e.version + 1, changed_at = holdfast.now()
  where e.id = endpoint.id and e.enabled <> "on";
  if found then
    perform holdfast._endpoint_event(endpoint.id, case when "on" then 'enabled' else 'disabled' end, _switch_endpoint.reason);
    perform holdfast._tell_of_endpoint(endpoint.name);
  end if;
  return found;
end $$;
comment on function holdfast._switch_endpoint is 'Enable or disable an endpoint; false: it was so';

create or replace function holdfast.enable_endpoint(endpoint text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return holdfast._switch_endpoint(holdfast._locked_endpoint(enable_endpoint.endpoint), true, null);
end $$;
comment on function holdfast.enable_endpoint is 'Deliver to this endpoint again; false: it was enabled';

create or replace function holdfast.disable_endpoint(endpoint text, reason text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return holdfast._switch_endpoint(holdfast._locked_endpoint(disable_endpoint.endpoint), false, disable_endpoint.reason);
end $$;
comment on function holdfast.disable_endpoint is 'Deliver nothing more to this endpoint; its messages wait, and events are not published to it. false: it was disabled';

create or replace function holdfast.drop_endpoint(endpoint text, with_queue boolean default false) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue int;
begin
  delete from holdfast.endpoint e where e.name = drop_endpoint.endpoint returning e.queue_id into v_queue;
  if not found then
    return false;
  end if;
  if with_queue then
    perform holdfast.drop_queue(q.name) from holdfast.queue q where q.id = v_queue;
  end if;
  perform holdfast._tell_of_endpoint(drop_endpoint.endpoint);
  return true;
end $$;
comment on function holdfast.drop_endpoint is
  'Remove an endpoint, its secrets and subscriptions; its queue stays with its messages, unless with_queue. false: no such endpoint';

create or replace function holdfast._check_unconsumed(queue holdfast.queue) returns void language plpgsql stable
as $$
declare
  v_endpoint text;
begin
  select e.name into v_endpoint from holdfast.endpoint e where e.queue_id = queue.id;
  if found then
    perform holdfast._fail('QH875', format('the endpoint "%s" consumes the queue "%s"', v_endpoint, queue.name),
      'A queue cannot be dropped while an endpoint consumes it.', 'Drop the endpoint first, with holdfast.drop_endpoint; it can take the queue along.');
  end if;
end $$;
comment on function holdfast._check_unconsumed is 'Refuse to drop a queue that an endpoint consumes';

create or replace function holdfast._endpoint_info(endpoint holdfast.endpoint, queue holdfast.queue, at timestamptz) returns holdfast.endpoint_info
language sql stable
  return ((endpoint).name, (queue).name, (endpoint).url, (endpoint).enabled, (endpoint).disabled_reason, (endpoint).disabled_at,
          holdfast._endpoint_config(endpoint, queue) || jsonb_build_object('auth', (endpoint).auth - '{password,token}'::text[]),
          (select coalesce(jsonb_agg(jsonb_build_object('id', s.id::text, 'created_at', s.created_at, 'expires_at', s.expires_at) order by s.id desc), '[]')
           from holdfast.endpoint_secret s where s.endpoint_id = (endpoint).id and coalesce(s.expires_at > at, true)),
          (endpoint).created_at, (endpoint).changed_at)::holdfast.endpoint_info;
comment on function holdfast._endpoint_info is 'An endpoint without its secrets';

create or replace function holdfast.endpoints() returns setof holdfast.endpoint_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._endpoint_info(e, q, holdfast.now())).*
    from holdfast.endpoint e join holdfast.queue q on q.id = e.queue_id order by e.name collate "C";
end $$;
comment on function holdfast.endpoints is 'All endpoints, with the configuration that holds, without their secrets';

create or replace function holdfast.endpoint_info(endpoint text) returns setof holdfast.endpoint_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._endpoint_info(e, q, holdfast.now())).*
    from holdfast.endpoint e join holdfast.queue q on q.id = e.queue_id where e.name = endpoint_info.endpoint;
end $$;
comment on function holdfast.endpoint_info is 'One endpoint, as endpoints() has it; no row: there is none';

create or replace function holdfast.dispatch_endpoints(endpoints text[] default null) returns setof holdfast.endpoint_target
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  return query
    select e.name, q.name, e.enabled, e.url, e.version, holdfast._endpoint_config(e, q),
           array(select s.sealed from holdfast.endpoint_secret s
                 where s.endpoint_id = e.id and coalesce(s.expires_at > v_now, true) order by s.id desc),
           e.auth
    from holdfast.endpoint e join holdfast.queue q on q.id = e.queue_id
    where dispatch_endpoints.endpoints is null or e.name = any (dispatch_endpoints.endpoints)
    order by e.name collate "C";
end $$;
comment on function holdfast.dispatch_endpoints is 'For dispatchers: what it takes to deliver to endpoints (null: to all), the disabled ones too; secrets are sealed, the newest first';

create or replace function holdfast.endpoint_events(endpoint text, "limit" int default 100)
returns table (at timestamptz, event text, reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_endpoint holdfast.endpoint := holdfast._endpoint(endpoint_events.endpoint);
begin
  perform holdfast._check_limit("limit");
  return query select n.at, n.event, n.reason from holdfast.endpoint_event n where n.endpoint_id = v_endpoint.id order by n.endpoint_id desc, n.id desc limit "limit";
end $$;
comment on function holdfast.endpoint_events is 'How the breaker of an endpoint moved, and when it was enabled or disabled, and why; the last first';

-- 89_event.sql
-- Publish and subscribe: one event, a message for each endpoint that asked for it.
--
--   create_event_type, drop_event_type, event_types
--   subscribe, unsubscribe, subscriptions
--   publish, publish_batch
--
-- Tables: event_type, subscription. A publication is part of the caller's transaction, and so are all the messages it becomes: sends to
-- the queues of the enabled endpoints, in the order of their queues. An endpoint gets an event once, whatever number of its
-- subscriptions fits. What it costs grows with the subscriptions of that type, and with nothing else.

create or replace function holdfast._event_type(name text) returns holdfast.event_type language plpgsql stable
as $$
declare
  v_type holdfast.event_type;
begin
  select t.* into v_type from holdfast.event_type t where t.name = _event_type.name;
  if not found then
    perform holdfast._fail('QH876', format('there is no event type %s', coalesce('"' || left(_event_type.name, 200) || '"', 'null')),
      'Event types are made explicitly.', 'Create it with holdfast.create_event_type, or check the spelling.');
  end if;
  return v_type;
end $$;
comment on function holdfast._event_type is 'An event type by its name, or an error';

create or replace function holdfast._check_event_type(name text, description text, schema jsonb) returns void language plpgsql stable
as $$
begin
  if (_check_event_type.name ~ '^[A-Za-z0-9._:-]{1,200}$') is not true then
    perform holdfast._fail('QH878', 'invalid name of an event type', format('Got %s.', coalesce(quote_literal(left(_check_event_type.name, 250)), 'null')),
      'A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -');
  elsif length(description) > 2000 then
    perform holdfast._fail('QH878', 'the description is too long', format('It has %s characters.', length(description)), 'description takes up to 2,000 characters.');
  elsif schema is not null then
    perform holdfast._check_schema(schema, 'json', null);
  end if;
end $$;
comment on function holdfast._check_event_type is 'Refuse a bad event type';

create or replace function holdfast.create_event_type(name text, description text default null, schema jsonb default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_there holdfast.event_type;
begin
  perform holdfast._check_event_type(create_event_type.name, create_event_type.description, create_event_type.schema);
  insert into holdfast.event_type as t (name, description, schema, created_at)
  values (create_event_type.name, create_event_type.description, create_event_type.schema, holdfast.now()) on conflict on constraint event_type_name_key do nothing;
  if found then
    return true;
  end if;
  v_there := holdfast._event_type(create_event_type.name);
  if (v_there.description, v_there.schema) is distinct from (create_event_type.description, create_event_type.schema) then
    perform holdfast._fail('QH877', format('the event type "%s" exists with another description or schema', v_there.name), 'Nothing was changed.',
      'Drop it and make it anew; subscriptions to it go with it.');
  end if;
  return false;
end $$;
comment on function holdfast.create_event_type is 'Make an event type. schema: JSON Schema of its payloads, for who writes and reads them; nothing is checked. true: made; false: it was there, the same';

create or replace function holdfast.drop_event_type(name text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  delete from holdfast.event_type t where t.name = drop_event_type.name;
  return found;
end $$;
comment on function holdfast.drop_event_type is 'Remove an event type, and all subscriptions to it; what was published is sent. false: there was none';

create or replace function holdfast.event_types()
returns table (name text, description text, schema jsonb, subscriptions bigint, created_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query
    select t.name, t.description, t.schema, (select count(*) from holdfast.subscription s where s.event_type_id = t.id), t.created_at
    from holdfast.event_type t order by t.name collate "C";
end $$;
comment on function holdfast.event_types is 'All event types';

create or replace function holdfast.subscribe(event_type text, endpoint text, filter jsonb default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_type holdfast.event_type := holdfast._event_type(subscribe.event_type);
  v_endpoint holdfast.endpoint;
  v_filter jsonb := nullif(nullif(subscribe.filter, 'null'), '{}');
  v_id bigint;
begin
  if jsonb_typeof(v_filter) <> 'object' or octet_length(v_filter::text) > 16384 then
    perform holdfast._fail('QH878', 'bad value for filter', format('Got %s.', left(v_filter::text, 100)),
      'filter takes a JSON object of up to 16,384 bytes: events whose payload contains it are sent.');
  end if;
  -- The lock makes the same subscription, at the same moment, one.
  v_endpoint := holdfast._locked_endpoint(subscribe.endpoint);
  select s.id into v_id from holdfast.subscription s
  where s.event_type_id = v_type.id and s.endpoint_id = v_endpoint.id and s.filter is not distinct from v_filter;
  if v_id is null then
    insert into holdfast.subscription (event_type_id, endpoint_id, filter, created_at)
    values (v_type.id, v_endpoint.id, v_filter, holdfast.now()) returning id into v_id;
  end if;
  return v_id;
end $$;
comment on function holdfast.subscribe is
  'Let an endpoint have the events of a type, or those whose payload contains filter; returns the number of the subscription, the old one if it is there';

create or replace function holdfast.unsubscribe(id bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  delete from holdfast.subscription s where s.id = unsubscribe.id;
  return found;
end $$;
comment on function holdfast.unsubscribe is 'End a subscription; false: there is none of this number';

create or replace function holdfast.subscriptions(event_type text default null, endpoint text default null) returns setof holdfast.subscription_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_type int := case when subscriptions.event_type is not null then (holdfast._event_type(subscriptions.event_type)).id end;
  v_endpoint int := case when subscriptions.endpoint is not null then (holdfast._endpoint(subscriptions.endpoint)).id end;
begin
  return query
    select s.id, t.name, e.name, s.filter, s.created_at
    from holdfast.subscription s join holdfast.event_type t on t.id = s.event_type_id join holdfast.endpoint e on e.id = s.endpoint_id
    where (v_type is null or s.event_type_id = v_type) and (v_endpoint is null or s.endpoint_id = v_endpoint) order by s.id;
end $$;
comment on function holdfast.subscriptions is 'The subscriptions: all, to a type, or of an endpoint';

create or replace function holdfast._receivers(event_type int, payload jsonb) returns table (endpoint text, queue_id int, queue text, ordering text)
language plpgsql stable
as $$
begin
  return query
    select e.name, q.id, q.name, q.ordering
    from (select distinct s.endpoint_id from holdfast.subscription s
          where s.event_type_id = _receivers.event_type and (s.filter is null or _receivers.payload @> s.filter)) f
      join holdfast.endpoint e on e.id = f.endpoint_id and e.enabled join holdfast.queue q on q.id = e.queue_id
    order by q.id;
end $$;
comment on function holdfast._receivers is 'The enabled endpoints that get an event of a type, and their queues';

create or replace function holdfast._as_sent(event jsonb, ordering text) returns jsonb language sql immutable
  return event - 'event_type'::text
         - case when ordering is distinct from 'key' then '{ordering_key}'::text[] else '{}' end
         - case when ordering = 'strict' then '{priority}'::text[] else '{}' end
         || jsonb_build_object('headers', coalesce(nullif(event -> 'headers', 'null'), '{}') || jsonb_build_object('event-type', event ->> 'event_type'));
comment on function holdfast._as_sent is 'An event as a message of a queue: with its type in a header, and without a line or a priority where the queue has none';

create or replace function holdfast._check_event(event jsonb, nth bigint) returns void language plpgsql stable
as $$
begin
  if jsonb_typeof(event) <> 'object' or jsonb_typeof(event -> 'event_type') is distinct from 'string' or event ? 'body' or not event ? 'payload' then
    perform holdfast._fail('QH203', 'this is no event', format('Got %s.', left(event::text, 100)),
      'Pass {"event_type": …, "payload": …}, and the options of a message.', nth);
  elsif jsonb_typeof(event -> 'headers') not in ('object', 'null') then
    perform holdfast._fail('QH203', 'headers must be a JSON object', format('Got a JSON %s.', jsonb_typeof(event -> 'headers')), 'Pass headers as {"name": "value"}.', nth);
  end if;
end $$;
comment on function holdfast._check_event is 'Refuse what is no event';

create or replace function holdfast._send_events(queue text, messages jsonb, places int[], one boolean) returns bigint[] language plpgsql volatile
as $$
declare
  v_place text;
  v_detail text;
  v_hint text;
begin
  return holdfast.send_many(queue, messages);
exception
  -- Which event is to blame, where several were published and only some of them were for this queue.
  when sqlstate 'QH000' then
    get stacked diagnostics v_place = column_name, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    if one then
      perform holdfast._fail(sqlstate, regexp_replace(sqlerrm, ' \[QH\d+\]$', ''), v_detail, v_hint);
    end if;
    perform holdfast._blame(places[coalesce(substring(v_place from '\d+')::int, 0) + 1] + 1, sqlstate, sqlerrm,
      regexp_replace(v_detail, '^messages\[\d+\]: ', ''), v_hint);
end $$;
comment on function holdfast._send_events is 'Send events to one queue; places: their numbers in the call, for errors';

create or replace function holdfast._publish(events jsonb) returns setof holdfast.published language plpgsql volatile
as $$
declare
  v_queue record;
  v_ids bigint[];
  v_one boolean := jsonb_array_length(events) = 1;
begin
  perform holdfast._check_event(n.value, case when not v_one then n.n end) from jsonb_array_elements(events) with ordinality n(value, n);
  for v_queue in
    select r.endpoint, r.queue, array_agg(e.n::int - 1 order by e.n) as places, jsonb_agg(holdfast._as_sent(e.value, r.ordering) order by e.n) as messages
    from jsonb_array_elements(events) with ordinality e(value, n)
      join (select t.name, (holdfast._event_type(t.name)).id from (select distinct d ->> 'event_type' as name from jsonb_array_elements(events) d) t) t
        on t.name = e.value ->> 'event_type'
      cross join lateral holdfast._receivers(t.id, e.value -> 'payload') r
    group by r.queue_id, r.queue, r.endpoint order by r.queue_id
  loop
    v_ids := holdfast._send_events(v_queue.queue, v_queue.messages, v_queue.places, v_one);
    return query select p.nth, v_queue.endpoint, v_queue.queue, p.id from unnest(v_queue.places, v_ids) p(nth, id);
  end loop;
end $$;
comment on function holdfast._publish is 'Send events to the queues of all who asked for them';

create or replace function holdfast.publish(
  event_type text, payload jsonb, headers jsonb default null, priority int default null, delay interval default null,
  deliver_at timestamptz default null, ttl interval default null, expires_at timestamptz default null, correlation_id uuid default null,
  tag text default null, max_deliveries int default null, ordering_key text default null, key text default null, idempotency_key text default null)
returns setof holdfast.published
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_type holdfast.event_type := holdfast._event_type(publish.event_type);
begin
  return query select p.* from holdfast._publish(jsonb_build_array(
    jsonb_build_object('event_type', v_type.name, 'payload', coalesce(publish.payload, 'null'))
    || jsonb_strip_nulls(jsonb_build_object('priority', publish.priority, 'delay', publish.delay::text, 'deliver_at', publish.deliver_at, 'ttl', publish.ttl::text,
         'expires_at', publish.expires_at, 'correlation_id', publish.correlation_id, 'tag', publish.tag, 'max_deliveries', publish.max_deliveries,
         'ordering_key', publish.ordering_key, 'key', publish.key, 'idempotency_key', publish.idempotency_key))
    || case when publish.headers is null then '{}' else jsonb_build_object('headers', publish.headers) end)) p;
end $$;
comment on function holdfast.publish is
  'Send an event to the queue of each enabled endpoint that subscribes to its type, with the options of send; returns the messages. The header event-type says what it is';

create or replace function holdfast.publish_batch(events jsonb) returns setof holdfast.published
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  if jsonb_typeof(events) is distinct from 'array' then
    perform holdfast._fail('QH203', 'events must be a JSON array', format('Got %s.', coalesce(jsonb_typeof(events), 'null')),
      'Pass [{"event_type": …, "payload": …}, …].');
  end if;
  perform holdfast._check_batch(jsonb_array_length(events));
  return query select p.* from holdfast._publish(events) p;
end $$;
comment on function holdfast.publish_batch is 'Publish many events, each with its type and its own options; returns the messages, and of which event each is';

-- 89_hook.sql
-- Inbound hooks: where others post messages to.
--
--   create_hook       with its queue, if that is not there
--   configure_hook    null takes a field back to its default
--   rotate_hook       another slug, another secret, or both; the old ones count too, for a while
--   drop_hook         with its queue, or without
--   hooks, hook_info
--   hook_calls        the last calls
--   find_hooks        for servers: the hooks that hashes of slugs belong to
--   record_hook_calls for servers: what became of calls
--
-- Tables: hook, hook_slug, hook_secret, hook_call. The slug is all that a caller has to know, so it is kept as an API key is: whoever makes it passes
-- the hash, from which nobody gets back to it. Secrets come sealed or not at all, as those of endpoints. The queue of a hook is strict unless
-- somebody else has made it; how long a claim holds, how long a message lives and how often it is delivered are settings of that queue
-- alone. Every change is announced on the channel holdfast_hook.
-- Lock order: the hook, then its queue, as of 30_queue.sql.

create or replace function holdfast._builtin_hook() returns jsonb language sql immutable
  return '{"enabled": true, "tolerance": 300, "idempotency_header": null, "idempotency_window": 86400, "max_body": 1048576, "content_types": null,
           "drop_headers": [], "plan": null, "rate_limit": null, "burst": null, "keep_calls": 1000}'::jsonb;
comment on function holdfast._builtin_hook is 'The configuration of a hook of which nothing was said';

create or replace function holdfast._plan(plan text) returns jsonb language sql immutable
  return case plan
    when 'free' then '{"rate_limit": 10, "queue": {"ttl": "7 days", "max_deliveries": 3, "rate_limits": {"claim": 5, "settle": 10}}}'
    when 'pro' then '{"rate_limit": 100, "queue": {"ttl": "30 days", "max_deliveries": 10, "rate_limits": {"claim": 50, "settle": 100}}}'
    when 'enterprise' then '{"rate_limit": 1000, "queue": {"ttl": "90 days", "max_deliveries": 25, "rate_limits": {"claim": 500, "settle": 1000}}}'
    else '{"queue": {"ttl": null, "max_deliveries": null, "rate_limits": null}}' end::jsonb;
comment on function holdfast._plan is 'What a plan allows: calls of the hook a second, and what holds for its queue';

create or replace function holdfast._no_hook(hook text) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH880', format('hook %s does not exist', coalesce('"' || left(_no_hook.hook, 200) || '"', 'null')),
    'Hooks are made explicitly.', 'Create it with holdfast.create_hook, or check the spelling.');
end $$;
comment on function holdfast._no_hook is 'Raise: no such hook';

create or replace function holdfast._locked_hook(hook text) returns holdfast.hook language plpgsql volatile
as $$
declare
  v_hook holdfast.hook;
begin
  select h.* into v_hook from holdfast.hook h where h.name = _locked_hook.hook for update;
  if not found then
    perform holdfast._no_hook(_locked_hook.hook);
  end if;
  return v_hook;
end $$;
comment on function holdfast._locked_hook is 'A hook by its name, locked, or an error';

create or replace function holdfast._tell_of_hook(hook text) returns void language plpgsql volatile
as $$
begin
  perform pg_notify('holdfast_hook', _tell_of_hook.hook);
end $$;
comment on function holdfast._tell_of_hook is 'Tell servers that what they know of a hook is out of date';

create or replace function holdfast._room_for(body int) returns int language sql immutable
  return least(body + 65536, 67108864);
comment on function holdfast._room_for is 'How large a payload a queue has to take for such a body, which may be sealed';

create or replace function holdfast._hook_queue_fields(config jsonb) returns jsonb language sql immutable
  return case when config ? 'plan' then holdfast._plan(config ->> 'plan') -> 'queue' else '{}' end
         || case when config ? 'lock_timeout' then jsonb_build_object('lease', coalesce(nullif(config -> 'lock_timeout', 'null'), '300')) else '{}' end
         || case when config ? 'max_body' then jsonb_build_object('max_payload', holdfast._room_for(coalesce((config ->> 'max_body')::int, 1048576))) else '{}' end
         || case when config ? 'ttl' then jsonb_build_object('ttl', config -> 'ttl') else '{}' end
         || case when config ? 'max_deliveries' then jsonb_build_object('max_deliveries', config -> 'max_deliveries') else '{}' end;
comment on function holdfast._hook_queue_fields is 'What of the configuration of a hook is one of its queue';

create or replace function holdfast._merge_hook(base jsonb, change jsonb) returns jsonb language sql immutable
  return jsonb_strip_nulls(base || (change - '{signing_secret,lock_timeout,ttl,max_deliveries}'::text[]));
comment on function holdfast._merge_hook is 'Overrides after a change; null takes a field back';

create or replace function holdfast._called_config(hook holdfast.hook) returns jsonb language sql immutable
  return holdfast._builtin_hook() || (holdfast._plan((hook).config ->> 'plan') - 'queue') || (hook).config;
comment on function holdfast._called_config is 'The configuration of a hook that holds for calls';

create or replace function holdfast._hook_config(hook holdfast.hook, queue holdfast.queue) returns jsonb language sql immutable
  return holdfast._called_config(hook) || jsonb_build_object('lock_timeout', extract(epoch from (queue).lease)::float8, 'ttl', extract(epoch from (queue).ttl)::float8,
    'max_deliveries', (queue).max_deliveries, 'ordering', coalesce((queue).ordering, 'none'));
comment on function holdfast._hook_config is 'The configuration of a hook that holds, with what its queue says';

create or replace function holdfast._add_slug(hook_id int, prefix text, hash bytea, at timestamptz, overlap interval) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.hook_slug s where s.hook_id = _add_slug.hook_id and (overlap = interval '0' or s.expires_at <= at);
  update holdfast.hook_slug s set expires_at = least(s.expires_at, at + overlap) where s.hook_id = _add_slug.hook_id;
  delete from holdfast.hook_slug s where s.hash in (
    select o.hash from holdfast.hook_slug o where o.hook_id = _add_slug.hook_id order by o.created_at desc offset 4);
  insert into holdfast.hook_slug (hash, hook_id, prefix, created_at)
  values (_add_slug.hash, _add_slug.hook_id, _add_slug.prefix, at) on conflict do nothing;
  if not found then
    perform holdfast._fail('QH881', 'this slug is in use', 'A hook is, or was, called by it.', 'Take another, or none: then one is made.');
  end if;
end $$;
comment on function holdfast._add_slug is 'Let a hook be called by this slug from now on, and by the old ones for overlap; five at most';

create or replace function holdfast._add_hook_secret(hook_id int, sealed text, at timestamptz, overlap interval) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.hook_secret s where s.hook_id = _add_hook_secret.hook_id and (overlap = interval '0' or s.expires_at <= at);
  update holdfast.hook_secret s set expires_at = least(s.expires_at, at + overlap) where s.hook_id = _add_hook_secret.hook_id;
  delete from holdfast.hook_secret s where s.id in (
    select o.id from holdfast.hook_secret o where o.hook_id = _add_hook_secret.hook_id order by o.id desc offset 4);
  if _add_hook_secret.sealed is not null then
    insert into holdfast.hook_secret (hook_id, sealed, created_at) values (_add_hook_secret.hook_id, _add_hook_secret.sealed, at);
  end if;
end $$;
comment on function holdfast._add_hook_secret is 'Verify calls by this secret from now on (null: not at all), and by the old ones for overlap; five at most';

create or replace function holdfast._queue_of_hook(queue text, config jsonb) returns int language plpgsql volatile
as $$
declare
  v_fields jsonb := holdfast._hook_queue_fields(config);
begin
  if not exists (select from holdfast.queue q where q.name = _queue_of_hook.queue) then
    perform holdfast.create_queue(_queue_of_hook.queue, jsonb_build_object('ordering', 'strict', 'lease', 300, 'max_payload', holdfast._room_for(1048576)) || jsonb_strip_nulls(v_fields));
  elsif v_fields <> '{}' then
    perform holdfast._work_queue(_queue_of_hook.queue);
    perform holdfast.configure_queue(_queue_of_hook.queue, v_fields);
  end if;
  return (holdfast._work_queue(_queue_of_hook.queue)).id;
end $$;
comment on function holdfast._queue_of_hook is 'The queue that a hook is to fill, made or configured as it says';

create or replace function holdfast.create_hook(hook text, prefix text, hash bytea, config jsonb default '{}', queue text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_queue text := coalesce(create_hook.queue, create_hook.hook);
  v_config jsonb;
  v_id int;
begin
  perform holdfast._check_hook_name(create_hook.hook);
  perform holdfast._check_slug(create_hook.prefix, create_hook.hash);
  perform holdfast._check_hook_config(create_hook.config);
  perform holdfast._check_name(v_queue);
  v_config := holdfast._normal_hook(create_hook.config);
  if not exists (select from holdfast.hook h where h.name = create_hook.hook) then
    insert into holdfast.hook (name, queue_id, config, created_at, changed_at)
    values (create_hook.hook, holdfast._queue_of_hook(v_queue, v_config), holdfast._merge_hook('{}', v_config), v_now, v_now)
    on conflict (name) do nothing returning id into v_id;
  end if;
  if v_id is null then
    perform holdfast._fail('QH881', format('hook "%s" exists', create_hook.hook), 'Its slug is not told again.',
      'Change it with holdfast.configure_hook, and its slug with holdfast.rotate_hook.');
  end if;
  perform holdfast._add_slug(v_id, create_hook.prefix, create_hook.hash, v_now, '0');
  perform holdfast._add_hook_secret(v_id, v_config ->> 'signing_secret', v_now, '0');
  perform holdfast._tell_of_hook(create_hook.hook);
  return v_queue;
end $$;
comment on function holdfast.create_hook is
  'Let others post messages to a queue (null: one of the hook''s name, made if it is not there); returns its name. prefix: how the slug begins; hash: its SHA-256';

create or replace function holdfast.configure_hook(hook text, config jsonb) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_hook holdfast.hook;
  v_queue holdfast.queue;
  v_config jsonb;
begin
  perform holdfast._check_hook_config(configure_hook.config);
  v_config := holdfast._normal_hook(configure_hook.config);
  v_hook := holdfast._locked_hook(configure_hook.hook);
  if holdfast._hook_queue_fields(v_config) <> '{}' then
    perform holdfast.configure_queue(q.name, holdfast._hook_queue_fields(v_config)) from holdfast.queue q where q.id = v_hook.queue_id;
  end if;
  if v_config ? 'signing_secret' then
    perform holdfast._add_hook_secret(v_hook.id, v_config ->> 'signing_secret', v_now, '0');
  end if;
  update holdfast.hook h set config = holdfast._merge_hook(h.config, v_config), changed_at = v_now where h.id = v_hook.id returning h.* into v_hook;
  perform holdfast._tell_of_hook(v_hook.name);
  select q.* into v_queue from holdfast.queue q where q.id = v_hook.queue_id;
  return holdfast._hook_config(v_hook, v_queue);
end $$;
comment on function holdfast.configure_hook is 'Change the configuration of a hook; null takes a field back to its default. Returns what holds now, without secrets';

create or replace function holdfast.rotate_hook(
  hook text, prefix text default null, hash bytea default null, sealed text default null, overlap interval default '24 hours') returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_hook holdfast.hook;
begin
  if num_nonnulls(rotate_hook.prefix, rotate_hook.hash, rotate_hook.sealed) = 0 then
    perform holdfast._fail('QH882', 'there is nothing to rotate', 'Neither a slug nor a secret was passed.', 'Pass one of them, or both.');
  elsif num_nonnulls(rotate_hook.prefix, rotate_hook.hash) > 0 then
    perform holdfast._check_slug(rotate_hook.prefix, rotate_hook.hash);
  end if;
  if rotate_hook.sealed is not null then
    perform holdfast._check_sealed_field('sealed', to_jsonb(rotate_hook.sealed));
  end if;
  if (overlap between interval '0' and interval '90 days') is not true then
    perform holdfast._fail('QH882', 'overlap is out of range', format('Got %s.', coalesce(overlap::text, 'null')), 'What was before counts too for 0 seconds to 90 days.');
  end if;
  v_hook := holdfast._locked_hook(rotate_hook.hook);
  if rotate_hook.hash is not null then
    perform holdfast._add_slug(v_hook.id, rotate_hook.prefix, rotate_hook.hash, v_now, overlap);
  end if;
  if rotate_hook.sealed is not null then
    perform holdfast._add_hook_secret(v_hook.id, rotate_hook.sealed, v_now, overlap);
  end if;
  update holdfast.hook h set changed_at = v_now where h.id = v_hook.id;
  perform holdfast._tell_of_hook(v_hook.name);
  return (select max(e.expires_at) from (
    select s.expires_at from holdfast.hook_slug s where s.hook_id = v_hook.id and rotate_hook.hash is not null
    union all select s.expires_at from holdfast.hook_secret s where s.hook_id = v_hook.id and rotate_hook.sealed is not null) e);
end $$;
comment on function holdfast.rotate_hook is
  'Let a hook have another slug (prefix and hash), another secret, or both; those before count too for overlap. Returns until when, null if none does. Five of each at most';

create or replace function holdfast.drop_hook(hook text, with_queue boolean default false) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_queue int;
begin
  delete from holdfast.hook h where h.name = drop_hook.hook returning h.queue_id into v_queue;
  if not found then
    return false;
  end if;
  if with_queue then
    perform holdfast.drop_queue(q.name) from holdfast.queue q where q.id = v_queue;
  end if;
  perform holdfast._tell_of_hook(drop_hook.hook);
  return true;
end $$;
comment on function holdfast.drop_hook is
  'Remove a hook, its slugs, secrets and calls; its queue stays with its messages, unless with_queue. false: no such hook';

create or replace function holdfast._check_unfed(queue holdfast.queue) returns void language plpgsql stable
as $$
declare
  v_hook text;
begin
  select h.name into v_hook from holdfast.hook h where h.queue_id = queue.id order by h.id limit 1;
  if found then
    perform holdfast._fail('QH885', format('the hook "%s" fills the queue "%s"', v_hook, queue.name),
      'A queue cannot be dropped while a hook fills it.', 'Drop the hook first: holdfast.drop_hook, with_queue => true drops both.');
  end if;
end $$;
comment on function holdfast._check_unfed is 'Refuse to drop a queue that a hook fills';

create or replace function holdfast._hook_info(hook holdfast.hook, queue holdfast.queue, at timestamptz) returns holdfast.hook_info language sql stable
  return ((hook).name, (queue).name, (holdfast._called_config(hook) -> 'enabled')::boolean, holdfast._hook_config(hook, queue),
          (select coalesce(jsonb_agg(jsonb_build_object('prefix', s.prefix, 'created_at', s.created_at, 'expires_at', s.expires_at) order by s.created_at desc), '[]')
           from holdfast.hook_slug s where s.hook_id = (hook).id and coalesce(s.expires_at > at, true)),
          (select coalesce(jsonb_agg(jsonb_build_object('id', s.id::text, 'created_at', s.created_at, 'expires_at', s.expires_at) order by s.id desc), '[]')
           from holdfast.hook_secret s where s.hook_id = (hook).id and coalesce(s.expires_at > at, true)),
          (hook).created_at, (hook).changed_at)::holdfast.hook_info;
comment on function holdfast._hook_info is 'A hook without its slugs and secrets';

create or replace function holdfast.hooks() returns setof holdfast.hook_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._hook_info(h, q, holdfast.now())).*
    from holdfast.hook h join holdfast.queue q on q.id = h.queue_id order by h.name collate "C";
end $$;
comment on function holdfast.hooks is 'All hooks, with the configuration that holds, without their slugs and secrets';

create or replace function holdfast.hook_info(hook text) returns setof holdfast.hook_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query select (holdfast._hook_info(h, q, holdfast.now())).*
    from holdfast.hook h join holdfast.queue q on q.id = h.queue_id where h.name = hook_info.hook;
end $$;
comment on function holdfast.hook_info is 'One hook, as hooks() has it; no row: there is none';

create or replace function holdfast.find_hooks(hashes bytea[]) returns setof holdfast.hook_target
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  return query
    select a.nth, h.name, q.name, holdfast._called_config(h),
           array(select s.sealed from holdfast.hook_secret s where s.hook_id = h.id and coalesce(s.expires_at > v_now, true) order by s.id desc),
           extract(epoch from l.expires_at - v_now)::float8
    from unnest(find_hooks.hashes) with ordinality a(hash, nth)
      join holdfast.hook_slug l on l.hash = a.hash and coalesce(l.expires_at > v_now, true)
      join holdfast.hook h on h.id = l.hook_id join holdfast.queue q on q.id = h.queue_id;
end $$;
comment on function holdfast.find_hooks is 'For servers: the hooks that slugs belong to, by their SHA-256, with what it takes to answer a call; no row: none';

create or replace function holdfast.record_hook_calls(calls jsonb) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_recorded int;
begin
  insert into holdfast.hook_call (hook_id, at, outcome, status, size, code, message_id)
  select h.id, c.at, c.outcome, c.status, c.size, c.code, c.id
  from jsonb_to_recordset(record_hook_calls.calls) c(hook text, at timestamptz, outcome text, status int, size bigint, code text, id bigint)
    join holdfast.hook h on h.name = c.hook order by c.at;
  get diagnostics v_recorded = row_count;
  return v_recorded;
end $$;
comment on function holdfast.record_hook_calls is 'For servers: write down what became of calls, a list of {hook, at, outcome, status, size, code, id}; those of hooks that are gone are left out. Returns how many';

create or replace function holdfast.hook_calls(hook text, "limit" int default 100, before bigint default null)
returns table (id bigint, at timestamptz, outcome text, status int, size bigint, code text, message_id bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_hook int;
begin
  perform holdfast._check_limit("limit");
  select h.id into v_hook from holdfast.hook h where h.name = hook_calls.hook;
  if not found then
    perform holdfast._no_hook(hook_calls.hook);
  end if;
  return query
    select c.id, c.at, c.outcome, c.status, c.size, c.code, c.message_id from holdfast.hook_call c
    where c.hook_id = v_hook and c.id < coalesce(hook_calls.before, 9223372036854775807) order by c.hook_id desc, c.id desc limit "limit";
end $$;
comment on function holdfast.hook_calls is 'The last calls of a hook, the last first; before: only those with a lower id';

create or replace function holdfast._forget_calls(at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  v_old int;
  v_over int;
begin
  delete from holdfast.hook_slug s where s.expires_at <= _forget_calls.at;
  delete from holdfast.hook_secret s where s.expires_at <= _forget_calls.at;
  delete from holdfast.hook_call c where c.ctid = any (array(
    select o.ctid from holdfast.hook_call o where o.at < _forget_calls.at - interval '30 days' order by o.at limit 10000 for update skip locked));
  get diagnostics v_old = row_count;
  delete from holdfast.hook_call c where c.ctid = any (array(
    select o.ctid from holdfast.hook h
      cross join lateral (select n.id from holdfast.hook_call n where n.hook_id = h.id order by n.hook_id desc, n.id desc
                          offset (holdfast._called_config(h) ->> 'keep_calls')::int limit 1) e
      join holdfast.hook_call o on o.hook_id = h.id and o.id <= e.id
    limit 10000 for update of o skip locked));
  get diagnostics v_over = row_count;
  return v_old >= 10000 or v_over >= 10000;
end $$;
comment on function holdfast._forget_calls is 'Remove calls of 30 days ago and those beyond keep_calls, 10,000 of each at most, and slugs and secrets whose time is over; true: there are more';

-- 89_keys.sql
-- API keys of the HTTP server.
--
--   create_key    a new key, of which the caller has made the secret and passes the hash
--   keys          all of them, without the hashes
--   rotate_key    another secret for a key; the old one may stay valid for a while
--   revoke_key    not valid any more
--   find_key      for servers: the key that a hash belongs to, if it is valid now
--   begin_login   for servers: a second, short-lived secret for whoever has shown a key
--   touch_keys    for servers: these keys are in use
--   has_keys      for servers: was there ever a key
--
-- Tables: api_key, api_login. No secret ever comes here, so that no log and no dump can hold one: a secret has 256 random
-- bits, and from its SHA-256 nobody gets back to it. Every change is announced on the channel holdfast_keys: servers remember
-- for a few seconds what they have found. Rows of keys stay for ever: who was let in can be told, and there never is no key again.

create or replace function holdfast._check_key_name(name text) returns void language plpgsql immutable
as $$
begin
  if (length(_check_key_name.name) between 1 and 64 and _check_key_name.name !~ '[[:cntrl:]]' and _check_key_name.name ~ '\S') is not true then
    perform holdfast._fail('QH901', 'a key cannot have this name', format('Got %s.', coalesce(quote_literal(left(_check_key_name.name, 100)), 'null')),
      'A name has 1 to 64 characters, of which not all are spaces and none is a control character.');
  end if;
end $$;
comment on function holdfast._check_key_name is 'Refuse a bad name of a key';

create or replace function holdfast._check_key_hash(prefix text, hash bytea) returns void language plpgsql stable
as $$
begin
  if (_check_key_hash.prefix ~ '^[!-~]{1,20}$' and length(_check_key_hash.hash) = 32) is not true then
    perform holdfast._fail('QH901', 'a key has a prefix and a hash', format('Got a prefix of %s characters and a hash of %s bytes.',
      coalesce(length(_check_key_hash.prefix)::text, 'no'), coalesce(length(_check_key_hash.hash)::text, 'no')),
      'prefix: the first 1 to 20 characters of the secret, without spaces; hash: its SHA-256.');
  end if;
  if exists (select from holdfast.api_key k where k.hash = _check_key_hash.hash or k.old_hash = _check_key_hash.hash) then
    perform holdfast._fail('QH901', 'this secret is in use', 'A key has, or had, the same hash.', 'Make another secret, of 32 random bytes.');
  end if;
end $$;
comment on function holdfast._check_key_hash is 'Refuse a bad prefix or hash of a key, and a hash that another has';

create or replace function holdfast._check_key_rights(scopes text[], queues text[], expires_in interval) returns void
language plpgsql immutable
as $$
begin
  if (cardinality(scopes) between 1 and 10 and array_position(scopes, null) is null and scopes <@ '{send,consume,read,admin}') is not true then
    perform holdfast._fail('QH901', 'these are no scopes', format('Got %s.', coalesce(left(scopes::text, 100), 'null')),
      'scopes takes one or more of send, consume, read, admin.');
  end if;
  if (cardinality(queues) between 1 and 100) is not true
     or exists (select from unnest(queues) q where (q ~ '^[A-Za-z0-9._:*-]{1,200}$') is not true) then
    perform holdfast._fail('QH901', 'these are no patterns of queues', format('Got %s.', coalesce(left(queues::text, 100), 'null')),
      'queues takes 1 to 100 names of queues, in which * stands for anything.');
  end if;
  if expires_in <= interval '0' or expires_in > interval '10 years' then
    perform holdfast._fail('QH901', 'expires_in is out of range', format('Got %s.', expires_in), 'A key is valid for up to 10 years, or without end.');
  end if;
end $$;
comment on function holdfast._check_key_rights is 'Refuse bad scopes, queues or expiry of a key';

create or replace function holdfast._check_key_rate(rate float8, burst int) returns void language plpgsql immutable
as $$
begin
  if rate is not null then
    perform holdfast._check_fill(rate, burst);
  elsif burst is not null then
    perform holdfast._fail('QH901', 'burst needs a rate', format('Got a burst of %s.', burst), 'Pass rate too.');
  end if;
end $$;
comment on function holdfast._check_key_rate is 'Refuse a bad limit of a key';

create or replace function holdfast.create_key(
  name text, prefix text, hash bytea, scopes text[], queues text[] default '{*}', expires_in interval default null,
  rate float8 default null, burst int default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
  v_id bigint;
begin
  perform holdfast._check_key_name(create_key.name);
  perform holdfast._check_key_hash(create_key.prefix, create_key.hash);
  perform holdfast._check_key_rights(create_key.scopes, create_key.queues, create_key.expires_in);
  perform holdfast._check_key_rate(create_key.rate, create_key.burst);
  insert into holdfast.api_key (name, prefix, hash, scopes, queues, rate, burst, created_at, expires_at)
  values (create_key.name, create_key.prefix, create_key.hash,
          array(select s from unnest('{send,consume,read,admin}'::text[]) s where s = any (create_key.scopes)),
          array(select distinct q from unnest(create_key.queues) q order by q),
          create_key.rate, create_key.burst, v_now, v_now + create_key.expires_in)
  returning id into v_id;
  perform pg_notify('holdfast_keys', '');
  return v_id;
end $$;
comment on function holdfast.create_key is
  'Make a key to the HTTP server; returns its id. prefix: how the secret begins; hash: its SHA-256; the secret itself stays with the caller';

create or replace function holdfast.keys() returns setof holdfast.api_key_info
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select k.id, k.name, k.prefix, k.scopes, k.queues, k.rate, k.burst, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
  from holdfast.api_key k order by k.id
$$;
comment on function holdfast.keys is 'All keys to the HTTP server, without their secrets';

create or replace function holdfast._no_key(id bigint) returns void language plpgsql stable
as $$
begin
  perform holdfast._fail('QH902', format('there is no key %s', coalesce(_no_key.id::text, 'null')), 'It was never made, is revoked, or has expired.',
    'holdfast.keys() lists them.');
end $$;
comment on function holdfast._no_key is 'Refuse a key that is not there';

create or replace function holdfast._check_grace(grace interval) returns void language plpgsql immutable
as $$
begin
  if (grace between interval '0' and interval '7 days') is not true then
    perform holdfast._fail('QH901', 'grace is out of range', format('Got %s.', coalesce(grace::text, 'null')),
      'The old secret stays valid for up to 7 days.');
  end if;
end $$;
comment on function holdfast._check_grace is 'Refuse a bad time for which an old secret stays valid';

create or replace function holdfast.rotate_key(id bigint, prefix text, hash bytea, grace interval default '0') returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  perform holdfast._check_key_hash(rotate_key.prefix, rotate_key.hash);
  perform holdfast._check_grace(rotate_key.grace);
  update holdfast.api_key k set prefix = rotate_key.prefix, hash = rotate_key.hash, old_hash = k.hash, old_until = v_now + rotate_key.grace
  where k.id = rotate_key.id and k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now);
  if not found then
    perform holdfast._no_key(rotate_key.id);
  end if;
  -- Whoever has logged in with the old secret stays no longer than it does.
  update holdfast.api_login l set expires_at = least(l.expires_at, v_now + rotate_key.grace) where l.key_id = rotate_key.id;
  perform pg_notify('holdfast_keys', '');
  return true;
end $$;
comment on function holdfast.rotate_key is 'Give a key another secret; the old one, and logins, stay valid for grace';

create or replace function holdfast.revoke_key(id bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update holdfast.api_key k set revoked_at = holdfast.now() where k.id = revoke_key.id and k.revoked_at is null;
  if not found then
    perform holdfast._no_key(revoke_key.id) where not exists (select from holdfast.api_key k where k.id = revoke_key.id);
    return false;
  end if;
  delete from holdfast.api_login l where l.key_id = revoke_key.id;
  perform pg_notify('holdfast_keys', '');
  return true;
end $$;
comment on function holdfast.revoke_key is 'Let a key be valid no more, and no login; false: it was revoked before';

create or replace function holdfast.find_key(hash bytea) returns setof holdfast.api_key_info
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  return query
    select k.id, k.name, k.prefix, k.scopes, k.queues, k.rate, k.burst, k.created_at, least(k.expires_at, f.until), k.last_used_at, k.revoked_at
    from (select o.id, null::timestamptz as until from holdfast.api_key o where o.hash = find_key.hash
          union all select o.id, o.old_until from holdfast.api_key o where o.old_hash = find_key.hash
          union all select l.key_id, l.expires_at from holdfast.api_login l where l.hash = find_key.hash) f
      join holdfast.api_key k on k.id = f.id
    where k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now) and (f.until is null or f.until > v_now);
end $$;
comment on function holdfast.find_key is
  'The key that this hash belongs to, if it is valid now: by its secret, by one it had, or by a login; expires_at is then when that ends';

create or replace function holdfast.begin_login(hash bytea, token bytea, lasts interval default '15 min') returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_key bigint;
  v_until timestamptz;
begin
  if (length(begin_login.token) = 32 and lasts > interval '0' and lasts <= interval '1 day') is not true then
    perform holdfast._fail('QH901', 'a login has a hash, and an end', format('Got a hash of %s bytes for %s.',
      coalesce(length(begin_login.token)::text, 'no'), coalesce(lasts::text, 'null')), 'token: a SHA-256; lasts: up to a day.');
  end if;
  -- With a secret of the key alone: a login that could be exchanged for another would never end.
  select k.id, least(v_now + lasts, k.expires_at, case when k.hash <> begin_login.hash then k.old_until end) into v_key, v_until
  from holdfast.find_key(begin_login.hash) f join holdfast.api_key k on k.id = f.id
  where (k.hash = begin_login.hash or k.old_hash = begin_login.hash) and k.revoked_at is null
  for no key update of k;
  if v_key is null then
    return null;
  end if;
  -- What has ended goes, and a key has 1,000 logins at most: the first to end makes room.
  delete from holdfast.api_login l where l.hash = any (array(
    select o.hash from holdfast.api_login o
    where o.hash in ((select e.hash from holdfast.api_login e where e.expires_at <= v_now order by e.expires_at limit 1000)
                     union (select e.hash from holdfast.api_login e where e.key_id = v_key order by e.expires_at desc offset 999))
    for update skip locked));
  insert into holdfast.api_login (hash, key_id, expires_at) values (begin_login.token, v_key, v_until) on conflict do nothing;
  if not found then
    perform holdfast._fail('QH901', 'this token is in use', 'A login has the same hash.', 'Make another token, of 32 random bytes.');
  end if;
  return v_until;
end $$;
comment on function holdfast.begin_login is
  'Let a token (its SHA-256) stand for the key with this hash, for so long; returns until when. Null: there is no such key';

create or replace function holdfast.touch_keys(ids bigint[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := holdfast.now();
begin
  -- Many servers say the same: one row a key and half a minute is written.
  update holdfast.api_key k set last_used_at = v_now
  from (select o.id from holdfast.api_key o
        where o.id = any (touch_keys.ids) and (o.last_used_at is null or o.last_used_at < v_now - interval '30 s')
        order by o.id for no key update skip locked) u
  where k.id = u.id;
end $$;
comment on function holdfast.touch_keys is 'These keys are in use: keys() shows when they last were, to half a minute';

create or replace function holdfast.has_keys() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select exists (select from holdfast.api_key)
$$;
comment on function holdfast.has_keys is 'Was there ever a key, revoked ones included: until then the HTTP server is open, on loopback';

-- 89_services.sql
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

-- 89_tasks.sql
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

-- 90_grants.sql
-- Rights. Every public function runs as the owner of the schema; a role gets the verbs it needs, and no table. Consumers
-- may read the views that show what scan shows.

create or replace function holdfast._grant_rights() returns void language plpgsql volatile
as $$
declare
  v_grant record;
begin
  revoke all on all functions in schema holdfast from public;
  revoke all on all tables in schema holdfast from public;
  if to_regclass('holdfast.migration') is not null then
    -- A client looks there whether it fits the schema.
    grant select on holdfast.migration to public;
  end if;
  for v_grant in
    select * from (values
      ('holdfast_producer', '{send,send_batch,send_many,send_once,queue_schema,schema_versions,sealing,seal_keys,open_stage,check_staged,send_staged,drop_staged,writes,json_errors,begin_run,report_run,end_run,runs,publish,publish_batch,event_types,fast_mode,now}'::text[]),
      ('holdfast_consumer', '{read,read_archive,log_stats,extent,base_id,queue_schema,schema_versions,seal_keys,claim,claim_cohort,claims,take,bury_spent,hold,next,ack,nack,reject,release,extend,dispatch_endpoints,admit,yield_probe,record_attempts,attempts,endpoint_attempts,held,holders,listen,browse,message,whereabouts,contents,outcomes,scan,scan_bounds,scan_source,put_rollups,queue_stats,blocked_keys,begin_run,report_run,end_run,runs,fast_mode,now}'),
      ('holdfast_monitor', '{queue_stats,outcomes,queues,queue_info,queue_schema,schema_versions,seal_keys,leases,log_stats,extent,base_id,blocked_keys,samples,rollups,archived,why,runs,endpoints,endpoint_info,endpoint_health,endpoint_events,hooks,hook_info,hook_calls,event_types,subscriptions,now}'),
      ('holdfast_admin', (select array_agg(distinct p.proname::text) from pg_proc p
                          where p.pronamespace = 'holdfast'::regnamespace and p.proname not like '\_%'))
    ) g(role, verbs)
    where exists (select from pg_roles r where r.rolname = g.role)
  loop
    execute format('grant usage on schema holdfast to %I', v_grant.role);
    execute (select string_agg(format('grant execute on function %s to %I', p.oid::regprocedure, v_grant.role), '; ')
             from pg_proc p where p.pronamespace = 'holdfast'::regnamespace and p.proname = any (v_grant.verbs));
    if v_grant.role in ('holdfast_producer', 'holdfast_admin') then
      execute format('grant insert (queue, payload, body, content_type, headers, priority, deliver_at, expires_at, correlation_id, tag, '
                     'max_deliveries, ordering_key, key, idempotency_key) on holdfast.inbox to %I', v_grant.role);
      execute format('grant usage on sequence holdfast.inbox_n to %I', v_grant.role);
      execute format('grant insert on holdfast.staged to %I', v_grant.role);
    end if;
    if v_grant.role in ('holdfast_consumer', 'holdfast_admin') then
      execute format('grant select on holdfast.scan_message, holdfast.scan_archive, holdfast.scan_lease, holdfast.row_message, '
                     'holdfast.row_queue to %I', v_grant.role);
    end if;
  end loop;
end $$;
comment on function holdfast._grant_rights is 'Give each role that exists its rights; the owner may call it again after a role was created';

do $$
begin
  perform holdfast._grant_rights();
end $$;

grant select on holdfast.migration to public;

insert into holdfast.migration (version, name, checksum, breaking)
values (0, 'functions', '420681205d335d92716f1fb3eec91b19832a8c0871b053ad48e88b813fceeb2a', false);
\else
do $install$
begin
    if exists (
        select from holdfast.migration as there
        full join (values
            (1, '621d655256ad21eeedc61bca35533d3c6a2ea035497df4b869c8ee28c7517795'),
            (2, 'ef95fee59b6cf25abea36f335abbe3e7e3ea1d8a30bd23630360956e3df67cbb'),
            (3, 'aaabdea6fd27b5a76fc56bf842bc8bc6cb5f4c8d0f1d6e76d79d1ca0fdfcad16'),
            (4, '0025768d79614e27e99ac9bf26692b128c83f5ea50462a2abaefa3d389d855ea'),
            (5, 'f31818a9d12522779b03c861a36a92310cd555ba46dd3e22826385b2d1abb74f'),
            (6, '8cfe087836f81971135c136a01c65c554fd266b60f9a08f64458f15b84477d9b'),
            (7, '09a60c0ff6493617033222a8d6b19bb93d01bceee01ea31884678ee17089afe6'),
            (8, '61d7ac39bc06745d8cd305df101595b4ab4177f4ad71037af060fdbc5bf5f3de'),
            (9, '332976f9a9f93c9f7ce5289337f73c5f0b63ad892af214821e5ac1d7100496b7'),
            (10, '0036a314be45982e884a1a53b527f077b6b395f19bf6cc6a88f280f166a78929'),
            (11, '004fd1f028fde78745be9726081258fcdf1f9173cf2c848028c98140cc686e72'),
            (12, '8294239b6efe8786d1a522a1b69126e35113393d085f2ef5f0dd6a95c2baac93'),
            (13, '6fd8556a28c639a5d8ca0170da78ad03c97a848b47cfa50c7359db59f6c001b3'),
            (14, '57bffc9382292cbe79447f720280e7a698964e6229f762b318611fd52ee78984'),
            (15, 'fe56e6e2bae0fc1aeb4d6087bc723d295e0d5c13e2e9576128fae84c8b63abe5'),
            (16, '0c7f711442b3598385b0e6cdd922e03dfb5af341ccb0649e4a9f8c46eba1e211'),
            (17, 'e260fab7d2a73a168a02eed2f50f3f1fb93eedf8b3388036cf25923dfcd20ae6'),
            (18, '6fc7de9033e787267cdf7aa89d0f3518e8154b7aa590880ff50b3395aa772940'),
            (19, 'e28c384f80a951b59f733e9c7487c09031c6350771a4129d2242fb5074ff90dd'),
            (20, '6ebdb59d50bac18e6f6fc2fd9661ba0a16555668e522cd4a1806c04b46805dbb'),
            (21, 'de6e5583ce9910af7100d92838fb9960f47491cc8482c66fd825ef02f1f8ec60'),
            (22, '954d21b8304085e64881f76495b356065f9b8b77ad4361c17aef5386919bca12'),
            (23, 'c2592bf3b2fd34c8347743344f9e59f3a5c741ae7155abb08e3024b3af120496'),
            (24, 'e886b19ee8b5042be976f5c6eea4123871412ed93f37e9d928ae379ba24bc663'),
            (25, 'e478617c19c768ad1bc356bdfa2ac74497c95532765ccd5bb0c0dab8493703a5'),
            (0, '420681205d335d92716f1fb3eec91b19832a8c0871b053ad48e88b813fceeb2a')
        ) as here (version, checksum) using (version, checksum)
        where there.name is null or here.version is null
    ) then
        raise exception 'another version of Holdfast is installed in this database'
            using errcode = 'QH503', hint = 'Run: holdfast migrate';
    end if;
end
$install$;
\endif
commit;
\if :holdfast_absent
\echo 'Holdfast is installed, schema version 25.'
\else
\echo 'This version of Holdfast, schema version 25, is installed already: nothing to do.'
\endif
\set ON_ERROR_STOP :holdfast_stop
\set QUIET :holdfast_quiet
\unset holdfast_absent
\unset holdfast_stop
\unset holdfast_quiet
