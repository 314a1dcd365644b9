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
