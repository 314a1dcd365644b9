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
