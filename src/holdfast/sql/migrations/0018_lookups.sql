-- Lookups: where a message is now, what a queue holds, and how what it keeps has ended.
--
-- message_root, archive_by_root   by the first id, which stays in origin when a message moves. As text: whoever stages a
--                                 message of an archive says what its origin is, and that need not be a number. Only who
--                                 asks for a root_id may walk them, so their condition is one that nothing else implies
-- archive_by_outcome              what ended otherwise than done: of that there is most, and it pays for no index more
-- holdfast.content                a message as contents shows it
-- queue.replaces                  which messages a send with their key replaces

create index message_root on holdfast.message ((origin ->> 'root_id')) where origin ? 'root_id';
create index archive_by_root on holdfast.archive ((origin ->> 'root_id')) where origin ? 'root_id';
create index archive_by_outcome on holdfast.archive (queue_id, outcome, ended_at, id) where outcome <> 'done';

create type holdfast.content as (
  id bigint, root_id bigint, queue text, state text, payload jsonb, body bytea, content_type text, headers jsonb, priority int,
  key text, ordering_key text, correlation_id uuid, tag text, deliveries int, failures int, max_deliveries int,
  enqueued_at timestamptz, due_at timestamptz, expires_at timestamptz, deadline timestamptz, last_error text, origin jsonb,
  ended_at timestamptz, consumer text, claimed_at timestamptz
);
comment on type holdfast.content is 'A message as contents shows it';

alter table holdfast.queue add column replaces text not null default 'unclaimed';
comment on column holdfast.queue.replaces is 'which messages a send with their key replaces: unclaimed, that were never handed out, or all that are waiting';

-- These have other arguments now.
drop function if exists holdfast._forget(timestamptz, int, int);
drop function if exists holdfast._expire(holdfast.lane, timestamptz);
drop function if exists holdfast._expire_chunk(holdfast.lane, holdfast.queue, bigint, timestamptz, timestamptz, bigint);
drop function if exists holdfast._replace(int, holdfast.draft, text, timestamptz);
