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
