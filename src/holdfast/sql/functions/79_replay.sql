-- Replaying: messages of the archive sent once more, as new messages. The archive stays as it is.
--
--   replay          out of the archive, a page at a time
--   replay_staged   out of a stage (52_stage.sql): rows that were in an archive, in the database or elsewhere, each with its origin
--
-- Lock order: the target's row, then the line of a strict target, as a send does; replay_staged as send_staged.

create or replace function holdfast._check_replay("from" timestamptz, "to" timestamptz, outcomes text[]) returns void
language plpgsql immutable
as $$
begin
  if not outcomes <@ '{done,expired,failed,discarded}' or outcomes = '{}' then
    perform holdfast._fail('QH411', 'unknown outcome', format('Got %s.', quote_literal(left(outcomes::text, 100))),
      'outcomes takes one or more of done, expired, failed, discarded; null for all.');
  end if;
  if "from" > "to" then
    perform holdfast._fail('QH411', 'the period ends before it begins', format('Got %s to %s.', "from", "to"),
      'Messages are replayed that ended at from or later, and before to.');
  end if;
end $$;
comment on function holdfast._check_replay is 'Refuse bad arguments of replay';

create or replace function holdfast.replay(
  queue text, "from" timestamptz default null, "to" timestamptz default null, outcomes text[] default null, "limit" int default 1000,
  target text default null, after bigint default null)
returns table (id bigint, new_id bigint, ended_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(replay.queue);
  v_target holdfast.queue;
  v_found record;
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_replay("from", "to", outcomes);
  -- Nobody drops the target while messages are sent to it.
  select q.* into v_target from holdfast.queue q where q.name = coalesce(replay.target, replay.queue) for key share;
  if not found and replay.target is null then
    perform holdfast._no_queue(replay.queue);
  elsif not found then
    perform holdfast._fail('QH411', format('target queue "%s" does not exist', left(replay.target, 200)), 'Nothing was sent.',
      'Create it with holdfast.create_queue, or check the spelling.');
  end if;
  -- A log has one lane, and its numbers are drawn by appends alone.
  if v_target.kind = 'log' then
    perform holdfast._not_a_queue(v_target.name);
  end if;
  select array_agg(f.id) as ids, min(f.ended_at) as first, max(f.ended_at) as last into v_found from (
    select a.id, a.ended_at from holdfast.archive a
    where a.queue_id = v_queue.id and a.ended_at >= coalesce("from", '-infinity') and a.ended_at < coalesce("to", 'infinity')
      and (a.ended_at, a.id) > (coalesce("from", '-infinity'), coalesce(replay.after, 0))
      and (outcomes is null or a.outcome = any (outcomes))
    order by a.ended_at, a.id limit replay."limit") f;
  if v_found.ids is null then
    return;
  end if;
  -- Before ids and numbers are drawn, as in a send.
  if v_target.ordering = 'strict' then
    perform holdfast._lock_keys(holdfast._line_lock(), v_target.id, '{""}');
  end if;
  return query select r.* from holdfast._resend(v_queue, v_target, v_found.ids, v_found.first, v_found.last, holdfast.now()) r;
  perform holdfast._wake(v_target);
end $$;
comment on function holdfast.replay is
  'Send messages once more that ended in a period and were kept, the first to end first, under new ids, to the queue or to target. To go on, pass the last ended_at as from and the last id as after';

create or replace function holdfast._resend(queue holdfast.queue, target holdfast.queue, ids bigint[], first timestamptz, last timestamptz, at timestamptz)
returns table (id bigint, new_id bigint, ended_at timestamptz) language plpgsql volatile
as $$
declare
  v_lanes jsonb;
  v_xid xid8;
begin
  -- A strict queue is one line, in one lane.
  select jsonb_object_agg(l.priority, holdfast._ids(target, case when target.ordering = 'strict' then target.priority_default else l.priority end))
  into v_lanes
  from (select distinct l.priority from unnest(_resend.ids) i(id) join holdfast.lane l on l.id = i.id >> 40) l;
  v_xid := pg_current_xact_id();
  return query
    with numbered as materialized (
      select a.*, l.priority, nextval((v_lanes ->> l.priority::text)::regclass) as resent_id,
             case when target.ordering = 'strict' then nextval('holdfast.order_no') end as resent_no
      from unnest(_resend.ids) with ordinality i(id, nth)
        cross join lateral (select a.* from holdfast.archive a where a.id = i.id and a.ended_at >= first and a.ended_at <= last offset 0) a
        cross join lateral (select l.priority from holdfast.lane l where l.id = i.id >> 40 offset 0) l
    ), resent as (
      insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, body, content_type, headers, tag, correlation_id,
                                    max_deliveries, ordering_key, order_no, row_of, origin)
      select n.resent_id, target.id, at, at + target.ttl, n.payload, n.body, n.content_type, n.headers, n.tag, n.correlation_id,
             n.max_deliveries, case when target.ordering = 'strict' then '' end, n.resent_no, target.row_of,
             coalesce(n.origin, '{}') || jsonb_strip_nulls(jsonb_build_object(
               'queue', queue.name, 'id', n.id, 'root_id', holdfast._root_id(n.id, n.origin), 'outcome', n.outcome,
               'ended_at', n.ended_at, 'sent_at', holdfast._sent_at(n.origin, n.enqueued_at), 'enqueued_at', n.enqueued_at,
               'deliveries', n.deliveries, 'priority', n.priority, 'key', n.key,
               'ordering_key', nullif(n.ordering_key, ''), 'replays', coalesce((n.origin ->> 'replays')::int, 0) + 1, 'replayed_at', at))
      from numbered n
    )
    select n.id, n.resent_id, n.ended_at from numbered n;
end $$;
comment on function holdfast._resend is 'Send messages of the archive as new ones, at the priority they had; into a strict queue at the end of its line';

create or replace function holdfast._store_replayed(queue holdfast.queue, stage bigint, lanes regclass[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_stored bigint;
begin
  insert into holdfast.message (id, queue_id, enqueued_at, expires_at, payload, body, content_type, headers, tag, correlation_id,
                                max_deliveries, ordering_key, order_no, row_of, origin)
  select nextval(lanes[case when queue.ordering = 'strict' then queue.priority_default else coalesce(s.priority, queue.priority_default) end + 1]),
         queue.id, at, at + queue.ttl, s.payload, s.body, s.content_type, s.headers, s.tag, s.correlation_id::uuid,
         s.max_deliveries, case queue.ordering when 'strict' then '' when 'key' then s.ordering_key end,
         case when queue.ordering = 'strict' or queue.ordering = 'key' and s.ordering_key is not null then nextval('holdfast.order_no') end, queue.row_of,
         coalesce(s.origin, '{}') || jsonb_build_object('replays', coalesce((s.origin ->> 'replays')::int, 0) + 1, 'replayed_at', at)
  from (select s.* from holdfast.staged s where s.stage = _store_replayed.stage order by s.n offset 0) s;
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
comment on function holdfast._store_replayed is
  'Store the messages of a stage that were in an archive, in their order; in a line only if the queue has lines. Returns how many';

create or replace function holdfast.replay_staged(queue text, write_id text, stages bigint[], messages bigint)
returns table (sent bigint, repeated boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_target holdfast.queue := holdfast._work_queue(replay_staged.queue);
begin
  perform holdfast._check_write(replay_staged.write_id);
  perform holdfast._check_isolation('replay_staged');
  return query select o.sent, o.repeated from holdfast._send_once(v_target, replay_staged.write_id, stages, replay_staged.messages, true) o;
end $$;
comment on function holdfast.replay_staged is
  'Send once more what lies in these stages, messages of an archive with their origins, if no write of this name was sent before; else as send_staged';
