-- Replays: messages of an archive that are staged bring along where they came from.

alter table holdfast.staged add column origin jsonb;
comment on column holdfast.staged.origin is 'of a message of an archive: what its origin is to say; read by replay_staged alone';
