-- Who did it, and how long it took: a kept message tells which consumer ended it, and since when that one had it.
--
-- lease.claimed_at                     when the claim took the lane; an extend does not change it. null: an older lease
-- archive.consumer, archive.claimed_at of the delivery that ended a message as done; null for other ends

alter table holdfast.lease add column claimed_at timestamptz;
comment on column holdfast.lease.claimed_at is 'when its messages were claimed';

alter table holdfast.archive add column consumer text, add column claimed_at timestamptz;
comment on column holdfast.archive.consumer is 'of a message that is done: who acked it, as the claim named itself';
comment on column holdfast.archive.claimed_at is 'of a message that is done: when it was claimed for the last time';

alter type holdfast.entry add attribute consumer text, add attribute claimed_at timestamptz;

drop function if exists holdfast._end(int, bigint[], text, timestamptz);
