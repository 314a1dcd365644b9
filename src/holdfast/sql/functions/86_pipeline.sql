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
