-- Receipts: what was sent under an idempotency key that counts for a time, also when the messages have ended since.
--
-- holdfast.receipt   one row a queue and key; maintain() removes those whose time is over

create table holdfast.receipt (
  queue_id int not null references holdfast.queue on delete cascade,
  key text not null,
  hash bytea not null,
  ids bigint[] not null,
  until timestamptz not null,
  primary key (queue_id, key)
);
create index receipt_by_end on holdfast.receipt (until);
comment on table holdfast.receipt is 'Batches that were sent once, and are not sent again under their key until a time';
comment on column holdfast.receipt.hash is 'SHA-256 of the messages as text: the same key with others is an error';

-- These have another argument now: a queue may be dropped on the condition that it is empty.
drop function if exists holdfast.drop_queue(text);
drop function if exists holdfast._drop_queue(text);
