-- Rows: messages that statements of others can select, lock and take.
--
-- queue.row_of     the queue's own name where its messages are to be had as rows, else null
-- message.row_of   the same: in all other queues it is null, and costs a message nothing
-- message_row      in the order in which they are taken. Only where row_of is not null, so the others pay for no index
-- holdfast.hold    in whose lease a message is

alter table holdfast.queue add column row_of text;
comment on column holdfast.queue.row_of is 'the name of the queue, if its messages can be taken as rows (by_row)';
alter table holdfast.message add column row_of text;
comment on column holdfast.message.row_of is 'the name of the queue, if its messages can be taken as rows (by_row)';
create index message_row on holdfast.message (row_of, id) where row_of is not null;

create type holdfast.hold as (token bigint, consumer text, deadline timestamptz);
comment on type holdfast.hold is 'In whose lease a message is, and until when';

-- It has other arguments now.
drop function if exists holdfast._end_leases(holdfast.lane, tid[], timestamptz);
