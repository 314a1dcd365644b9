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
