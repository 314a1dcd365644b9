-- Order and keys: columns, indexes, and the sequence that numbers ordered messages.
--
-- ordering_key + order_no    its place in its key's line; a strict queue is one line, under the key ''
-- head                       known to be the first of its line: nobody needs to search for one before it
-- blocks_since               dead, and its line waits behind it until unblock() (on_dead = block)
-- key                        replaceable: found by (queue_id, key) under a lock on the key
-- idempotency_key            unique among the live messages of a queue

create sequence holdfast.order_no;
comment on sequence holdfast.order_no is 'numbers ordered messages; drawn under the lock of their key, so that order is commit order';

alter table holdfast.message add column head boolean, add column blocks_since timestamptz;
comment on column holdfast.message.head is 'true: no live message of its queue and ordering key comes before it';
comment on column holdfast.message.blocks_since is 'not null: dead since then, parked, and blocking its ordering key';
create index message_order on holdfast.message (queue_id, ordering_key, order_no) where ordering_key is not null;
create index message_blocks on holdfast.message (queue_id, ordering_key) where blocks_since is not null;
create index message_key on holdfast.message (queue_id, key, id) where key is not null;
create unique index message_idempotency on holdfast.message (queue_id, idempotency_key) where idempotency_key is not null;

alter table holdfast.queue add column ordering text, add column on_dead text not null default 'continue', add column ordered boolean not null default false;
comment on column holdfast.queue.ordering is 'null: none, key, strict';
comment on column holdfast.queue.ordered is 'it has had an ordering once: there may be ordered messages in it';
alter table holdfast.lane add column ordering text;
comment on column holdfast.lane.ordering is 'null: no ordered message was ever in it. key, strict: how claim judges what it meets';

alter type holdfast.draft add attribute ordering_key text, add attribute key text, add attribute idempotency_key text;
alter table holdfast.inbox add column ordering_key text, add column key text, add column idempotency_key text;

drop function if exists holdfast.send(text, jsonb, bytea, text, jsonb, int, interval, timestamptz, interval, timestamptz, uuid, text, int);
drop function if exists holdfast.send_batch(text, jsonb[], text, jsonb, int, interval, timestamptz, interval, timestamptz, uuid, text, int);
