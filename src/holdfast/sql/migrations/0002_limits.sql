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
