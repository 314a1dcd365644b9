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
