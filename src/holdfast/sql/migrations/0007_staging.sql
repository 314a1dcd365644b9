-- Staging: messages that many processes bring together, to be sent in one transaction.
--
-- holdfast.stage    volatile: who brings rows. One row for each attempt of each part of a write; kept for a day
-- holdfast.staged   volatile: the rows, by stage, numbered in the order in which they are to be sent
-- holdfast.write    writes that were sent to a queue, by the name that the sender gave: so that none is sent twice
--
-- Both volatile tables are unlogged: they are empty together after a crash, and send_staged then refuses.

create sequence holdfast.stage_n;
comment on sequence holdfast.stage_n is 'numbers the stages; logged, so that no number comes back after a crash';

create unlogged table holdfast.stage (
  id bigint primary key default nextval('holdfast.stage_n'),
  queue_id int not null,
  write_id text not null,
  run text not null,
  part int not null,
  opened_at timestamptz not null
);
create index stage_opened on holdfast.stage (opened_at);
create index stage_run on holdfast.stage (run);
create index stage_write on holdfast.stage (queue_id, write_id);
comment on table holdfast.stage is 'Stages: where one attempt of one part of a write puts its rows';

create unlogged table holdfast.staged (
  stage bigint not null,
  n bigint not null,
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  priority int,
  delay float8,
  deliver_at timestamptz,
  ttl float8,
  expires_at timestamptz,
  correlation_id text,
  tag text,
  max_deliveries int,
  ordering_key text,
  key text,
  idempotency_key text,
  primary key (stage, n)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
comment on table holdfast.staged is 'Messages that wait to be sent together; delay and ttl in seconds';

create table holdfast.write (
  queue_id int not null references holdfast.queue on delete cascade,
  id text not null,
  messages bigint not null,
  sent_at timestamptz not null,
  primary key (queue_id, id)
);
create index write_sent on holdfast.write (sent_at);
comment on table holdfast.write is 'Writes that were sent; kept for 30 days';
