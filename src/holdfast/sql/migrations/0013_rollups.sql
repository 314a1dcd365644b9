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
