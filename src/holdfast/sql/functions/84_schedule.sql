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
