-- The lake: which files outside hold messages of the archive.
--
-- holdfast.lake         lakes that this database has put messages into
-- holdfast.lake_batch   batches: a stretch of a queue's archive that becomes one file of a lake; kept for 90 days once done
-- holdfast.batch        what open_batch() and open_batches() return

create table holdfast.lake (
  id uuid primary key default gen_random_uuid(),
  place text not null,
  made_at timestamptz not null
);
comment on table holdfast.lake is 'Lakes that hold messages of this database';
comment on column holdfast.lake.place is 'where it was when it was made, for people';

create table holdfast.lake_batch (
  id bigint generated always as identity primary key,
  lake uuid not null references holdfast.lake,
  queue_id int not null,
  queue text not null,
  day date not null,
  first_at timestamptz not null,
  first_id bigint not null,
  last_at timestamptz not null,
  last_id bigint not null,
  state text not null default 'open',
  messages bigint not null,
  checksum numeric,
  opened_at timestamptz not null,
  closed_at timestamptz
);
create index lake_batch_open on holdfast.lake_batch (lake, id) where state <> 'done';
create index lake_batch_queue on holdfast.lake_batch (queue_id, last_at, last_id) where state <> 'done';
create index lake_batch_done on holdfast.lake_batch (closed_at) where state = 'done';
comment on table holdfast.lake_batch is 'Stretches of the archive that are files of a lake, or are becoming so';
comment on column holdfast.lake_batch.queue is 'its name, for a queue that is dropped meanwhile';
comment on column holdfast.lake_batch.state is 'open: the file may be there or not; kept: it is, and so are the rows; done: the rows that it has are removed';
comment on column holdfast.lake_batch.messages is 'open: how many were there when it was opened; else how many the file has';
comment on column holdfast.lake_batch.checksum is 'the sum of the checksums of what the file has';

create type holdfast.batch as (
  id bigint, queue text, day date, state text, first_at timestamptz, first_id bigint, last_at timestamptz, last_id bigint, messages bigint
);
comment on type holdfast.batch is 'A batch of messages on their way to a lake';
