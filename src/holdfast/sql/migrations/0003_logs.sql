-- Logs: queues that are read by sequence instead of being claimed.
--
-- holdfast.log         one row a log: its lane, its retention, and up to where retention has removed records
-- holdfast.tombstone   ranges of sequence numbers that log_delete has removed, coalesced
-- message_tag          finds the records of a tag; a message without a tag is not in it
--
-- A log's sequence number is id - lane * 2^40. Its lane has no queue_name, so no claim finds it. Three registers of the
-- lane hold something else in a log: gap_floor the first id of which it is not known whether it will ever come,
-- gap_turn and gap_walk an id and a transaction id: when no writer older than the latter is left, the former is known.

alter table holdfast.queue add kind text not null default 'queue' check (kind in ('queue', 'log'));
comment on column holdfast.queue.kind is 'queue: claimed and settled. log: appended to and read by sequence';

create table holdfast.log (
  lane_id int primary key references holdfast.lane on delete cascade,
  queue_id int not null unique references holdfast.queue on delete cascade,
  retain_age interval,
  retain_count bigint,
  trimmed bigint not null default 0
);
comment on table holdfast.log is 'Logs: how long records are kept, and which prefix is gone';
comment on column holdfast.log.trimmed is 'retention has removed all records up to this sequence number';

create table holdfast.tombstone (
  lane_id int not null references holdfast.log on delete cascade,
  hi bigint not null,
  lo bigint not null,
  primary key (lane_id, hi)
);
comment on table holdfast.tombstone is 'Sequence numbers that were deleted from a log; ranges that do not overlap';

create index message_tag on holdfast.message ((id >> 40), tag, id) where tag is not null;

create type holdfast.record as (
  kind text, seq bigint, from_seq bigint, to_seq bigint, id bigint, payload jsonb, body bytea, content_type text, headers jsonb,
  correlation_id uuid, tag text, enqueued_at timestamptz, last_error text, origin jsonb
);
comment on type holdfast.record is 'A record of a log as read shows it, or a range of sequence numbers that are gone';
