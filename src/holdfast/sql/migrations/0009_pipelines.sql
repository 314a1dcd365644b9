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
