-- Reports: figures, leases, and the messages themselves. Nothing here changes a message.
--
-- Counting is subtraction: fresh = last id drawn - cursor. What lies behind the cursor is counted from the
-- leases and the due index, at most 10,000 of each; above that a figure is an estimate, and says so.

create or replace function holdfast._start(lane holdfast.lane) returns bigint language plpgsql stable
as $$
declare
  v_register bigint := (lane.id::bigint << 40) + 1;
begin
  -- A lane that has not been booted here starts over with its first claim.
  if not holdfast._is_ours(lane.id) then
    return v_register;
  end if;
  v_register := greatest(coalesce(pg_sequence_last_value(lane.cursor), 0), v_register);
  return coalesce((select l.upto from holdfast.lease l where l.lane_id = lane.id and l.upto > v_register and l.upto > 0
                   order by l.upto desc limit 1), v_register);
end $$;
comment on function holdfast._start is 'Where the fresh messages of a lane start, as far as is committed';

create or replace function holdfast._in_gaps(lane holdfast.lane) returns setof holdfast.message language plpgsql stable
as $$
declare
  v_floor bigint := coalesce(pg_sequence_last_value(lane.gap_floor), 0);
begin
  return query
    select m.* from (select g.lo, g.hi from holdfast.gap g
                     where g.lane_id = lane.id and g.lo >= v_floor order by g.lo limit 5000) g
      cross join lateral (select m.* from holdfast.message m where m.id between g.lo and g.hi and m.due_at is null order by m.id limit 10001) m
    where holdfast._is_ours(lane.id) limit 10001;
end $$;
comment on function holdfast._in_gaps is 'Messages that were committed after the cursor had passed them, and that no claim has found yet';

create or replace function holdfast._count_behind(lane holdfast.lane, at timestamptz, start bigint, out figures holdfast._figures, out ahead bigint, out most bigint)
language plpgsql stable
as $$
declare
  v_floor timestamptz := case when holdfast._is_ours(lane.id) then '-infinity' end;
  v_late bigint;
begin
  -- Held by the due path and then left by a crash (v_floor is null): due as soon as the lane boots.
  select count(*) filter (where w.due_at <= at), count(*) filter (where w.due_at > at and w.due_at < 'infinity'),
         count(*) filter (where w.due_at = 'infinity'), count(*) filter (where w.id >= start), count(*),
         min(w.enqueued_at) filter (where w.due_at <= at)
  into figures.due, figures.scheduled, figures.blocked, ahead, most, figures.oldest
  from (select m.id, m.due_at, m.enqueued_at from holdfast.message m
        where m.id >> 40 = lane.id and m.due_at is not null and (v_floor is null or m.due_at > v_floor) order by m.due_at limit 10001) w;
  select coalesce(sum(cardinality(l.ids)), 0), greatest(most, count(*)) into figures.in_flight, most
  from (select l.ids from holdfast.lease l where l.lane_id = lane.id and v_floor is not null order by l.deadline limit 10001) l;
  select count(*), greatest(most, count(*)), least(figures.oldest, min(m.enqueued_at)) into v_late, most, figures.oldest from holdfast._in_gaps(lane) m;
  figures.due := figures.due + v_late;
end $$;
comment on function holdfast._count_behind is
  'Count what is not simply ahead of the cursor. ahead: how many of it lie there all the same; most: the longest count, 10,001 if one was cut off';

create or replace function holdfast._figures(lane holdfast.lane, at timestamptz) returns holdfast._figures
language plpgsql stable
as $$
declare
  v_start bigint := holdfast._start(lane);
  v_last bigint := coalesce(pg_sequence_last_value(lane.ids), v_start - 1);
  v_behind record := holdfast._count_behind(lane, at, v_start);
  v_out holdfast._figures := v_behind.figures;
begin
  v_out.drawn := v_last - (lane.id::bigint << 40);
  -- Where no message follows, the ids that were drawn are those of sends that rolled back, or are open.
  if v_last - v_start >= 10000
     and not exists (select from holdfast.message m where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1) then
    v_last := v_start - 1;
  end if;
  v_out.fresh := greatest(v_last - v_start + 1 - v_behind.ahead, 0);
  if v_last - v_start < 10000 then
    select count(*), least(min(m.enqueued_at), v_out.oldest) into v_out.fresh, v_out.oldest
    from (select m.enqueued_at, m.due_at from holdfast.message m
          where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 10001) m
    where m.due_at is null;
  else
    select least(min(m.enqueued_at), v_out.oldest) into v_out.oldest
    from (select m.enqueued_at, m.due_at from holdfast.message m
          where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1000) m
    where m.due_at is null;
  end if;
  v_out.exact := v_behind.most <= 10000 and v_last - v_start < 10000;
  return v_out;
end $$;
comment on function holdfast._figures is 'Count a lane';

create or replace function holdfast._depth_at_most(queue holdfast.queue) returns bigint language sql stable
  return (select coalesce(sum((f).fresh + (f).due + (f).scheduled + (f).blocked + (f).in_flight), 0)::bigint
          from (select holdfast._figures(l, holdfast.now()) as f from holdfast.lane l where l.queue_id = (queue).id) counted);
comment on function holdfast._depth_at_most is 'The depth of a queue, holes included';

create or replace function holdfast._count_dead(queue holdfast.queue) returns bigint language sql stable
  return (select count(*) from (
    select from holdfast.queue q join holdfast.lane l on l.queue_id = q.id cross join lateral (
      select m.origin from holdfast.message m where m.id >= l.id::bigint << 40 and m.id < (l.id + 1)::bigint << 40 order by m.id limit 10001) m
    where q.name = (queue).dead_letter and m.origin ->> 'queue' = (queue).name limit 10001) counted);
comment on function holdfast._count_dead is 'How many dead letters came from this queue; 10,001 means more';

create or replace function holdfast._blocked_lines(queue holdfast.queue) returns bigint language sql stable
  return (select count(*) from (
    select from holdfast.message m where m.queue_id = (queue).id and m.blocks_since is not null order by m.ordering_key limit 10001) dead);
comment on function holdfast._blocked_lines is 'How many lines stand at a dead message and wait for unblock(); 10,001 means more';

create or replace function holdfast._counters(queue holdfast.queue, drawn bigint, ended bigint) returns jsonb language plpgsql stable
as $$
declare
  v_counts bigint[] := holdfast._counts(queue);
  v_counters jsonb;
  v_otherwise bigint;
begin
  select jsonb_object_agg(k.kind, v_counts[k.n]), sum(v_counts[k.n]) filter (where k.kind not in ('nacked', 'lapsed'))
  into v_counters, v_otherwise from unnest(holdfast._counted()) with ordinality k(kind, n);
  return v_counters || jsonb_build_object('sent', drawn, 'ended', greatest(ended, 0), 'done', greatest(ended - v_otherwise, 0));
end $$;
comment on function holdfast._counters is 'What has happened in a queue since it was made: done is what has ended and is not counted otherwise';

create or replace function holdfast.queue_stats(queue text) returns setof holdfast.stats
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(queue_stats.queue);
  v_now timestamptz := holdfast.now();
  v_dead bigint := holdfast._count_dead(v_queue);
begin
  return query
    with counted as (
      select holdfast._figures(l, v_now) as f from holdfast.lane l where l.queue_id = v_queue.id
    ), summed as (
      select sum((c.f).fresh)::bigint as fresh, sum((c.f).due)::bigint as due, sum((c.f).scheduled)::bigint as scheduled,
             sum((c.f).blocked)::bigint as blocked, sum((c.f).in_flight)::bigint as in_flight,
             sum((c.f).drawn)::bigint as drawn, min((c.f).oldest) as oldest, bool_and((c.f).exact) as exact
      from counted c
    ), best as (
      -- A figure that reached the limit of counting is replaced by what maintain() counted in full.
      select s.fresh + case when s.due > 10000 then greatest(s.due, t.due) else s.due end as ready,
             case when s.scheduled > 10000 then greatest(s.scheduled, t.scheduled) else s.scheduled end as scheduled,
             case when s.blocked > 10000 then greatest(s.blocked, t.blocked) else s.blocked end as blocked,
             case when s.exact then s.in_flight else greatest(s.in_flight, t.in_flight) end as in_flight,
             s.drawn, s.oldest, s.exact
      from summed s left join holdfast.tally t on t.queue_id = v_queue.id
    )
    select v_queue.name, v_queue.kind, b.ready, b.scheduled, b.blocked, b.in_flight, v_dead, holdfast._blocked_lines(v_queue),
           b.ready + b.scheduled + b.blocked + b.in_flight,
           v_now - b.oldest, b.exact and v_dead <= 10000, v_queue.paused,
           holdfast._counters(v_queue, b.drawn, b.drawn - (b.ready + b.scheduled + b.blocked + b.in_flight))
    from best b;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.queue_stats is
  'Figures of a queue. exact: false means that some are estimates (above 10,000). counters: since it was made; sent and done count the ids of rolled-back sends too';

create or replace function holdfast.queues()
returns table (queue text, paused boolean, created_at timestamptz, config jsonb, effective jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select q.name, q.paused, q.created_at, q.config, holdfast._effective(q.name, q.config) from holdfast.queue q order by q.name;
end $$;
comment on function holdfast.queues is 'All queues: their own configuration, and what holds';

create or replace function holdfast.queue_info(queue text)
returns table (paused boolean, created_at timestamptz, config jsonb, effective jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select q.paused, q.created_at, q.config, holdfast._effective(q.name, q.config) from holdfast.queue q where q.name = queue_info.queue;
end $$;
comment on function holdfast.queue_info is 'One queue, as queues() has it, without a look at the others; no row: there is none';

create or replace function holdfast.leases(queue text, "limit" int default 100)
returns table (consumer text, priority int, messages int, deadline timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(leases.queue);
begin
  perform holdfast._check_limit("limit");
  return query
    select s.consumer, n.priority::int, cardinality(s.ids), s.deadline
    from holdfast.lane n cross join lateral (
      select l.consumer, l.ids, l.deadline from holdfast.lease l
      where l.lane_id = n.id and l.ids <> '{}' order by l.deadline limit leases."limit") s
    where n.queue_id = v_queue.id
    order by s.deadline limit leases."limit";
end $$;
comment on function holdfast.leases is 'Who holds how many messages until when, the first to run out first';

create or replace function holdfast._holders(ids bigint[])
returns table (id bigint, token bigint, part int, consumer text, deadline timestamptz) language plpgsql stable
as $$
begin
  -- An id that came by the cursor is in the lease with the next upto; any other in a lease with upto = 0.
  return query
    select i.id, h.token, h.part, h.consumer, h.deadline
    from unnest(_holders.ids) i(id) cross join lateral (
      (select l.token, l.part, l.consumer, l.deadline from holdfast.lease l where l.upto = 0 and l.scattered @> array[i.id] and i.id = any (l.ids) limit 1)
      union all
      (select l.token, l.part, l.consumer, l.deadline from holdfast.lease l
       where l.lane_id = (i.id >> 40)::int and l.upto > 0 and i.id = any (l.ids)
         and l.upto = (select f.upto from holdfast.lease f where f.lane_id = (i.id >> 40)::int and f.upto > i.id and f.upto > 0
                       order by f.upto limit 1)
       limit 1)
      limit 1) h
    where holdfast._is_ours((i.id >> 40)::int) and exists (select from holdfast.message m where m.id = i.id);
end $$;
comment on function holdfast._holders is 'In whose lease these ids are';

create or replace function holdfast.holders(queue text, ids bigint[])
returns table (id bigint, token bigint, consumer text, deadline timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(holders.queue);
begin
  return query
    select h.id, h.token, h.consumer, h.deadline from holdfast._holders(array(
      select distinct i from unnest(holders.ids) i join holdfast.lane l on l.id = i >> 40 where l.queue_id = v_queue.id)) h
    order by h.id;
end $$;
comment on function holdfast.holders is 'The token, consumer and deadline under which these messages are held; those that nobody holds are left out';

create or replace function holdfast._held(token bigint, lane_id int) returns setof holdfast.delivery language plpgsql stable
as $$
begin
  if _held.lane_id is null then
    -- The only lease of its token, over a range of ids: one walk along the primary key. A claim has seen that it is not.
    return query
      select l.token, m.id, l.queue_name, m.payload, m.body, m.content_type, m.headers, l.priority, m.key, nullif(m.ordering_key, ''),
             m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, l.max_deliveries),
             m.enqueued_at, l.deadline, m.last_error, m.origin
      from (select l.token, l.queue_name, n.priority::int, q.max_deliveries, l.deadline, l.lo, l.upto
            from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
              join holdfast.lane n on n.id = l.lane_id join holdfast.queue q on q.id = l.queue_id
            where l.token = _held.token and l.lo is not null and l.ids <> '{}' offset 0) l
        cross join lateral (select m.* from holdfast.message m where m.id >= l.lo and m.id < l.upto order by m.id offset 0) m;
    if found then
      return;
    end if;
  end if;
  return query
    select l.token, m.id, q.name, m.payload, m.body, m.content_type, m.headers, n.priority::int, m.key, nullif(m.ordering_key, ''),
           m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, q.max_deliveries),
           m.enqueued_at, l.deadline, m.last_error, m.origin
    from holdfast.lease l join holdfast.boot b on b.lane_id = l.lane_id and holdfast._ours(b)
      join holdfast.lane n on n.id = l.lane_id join holdfast.queue q on q.id = l.queue_id
      cross join lateral unnest(l.ids) with ordinality i(id, nth) join holdfast.message m on m.id = i.id
    where l.token = _held.token and (_held.lane_id is null or l.lane_id = _held.lane_id)
    order by n.priority desc, l.upto > 0, i.nth;
end $$;
comment on function holdfast._held is 'The messages under a token, in one lane or all: by priority, then those that waited before';

create or replace function holdfast.held(queue text, token bigint) returns setof holdfast.delivery
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
begin
  perform holdfast._work_queue(held.queue);
  return query select h.* from holdfast._held(held.token, null) h where h.queue = held.queue;
end $$;
comment on function holdfast.held is 'The messages that are held under this token now';

create or replace function holdfast._entry(message holdfast.message, queue text, state text) returns holdfast.entry language sql stable
  return ((message).id, queue, state, (message).payload, (message).body, (message).content_type, (message).headers,
          (select l.priority::int from holdfast.lane l where l.id = (message).id >> 40), (message).key, nullif((message).ordering_key, ''),
          (message).correlation_id, (message).tag, coalesce((message).deliveries, 0), coalesce((message).failures, 0),
          coalesce((message).max_deliveries, (select q.max_deliveries from holdfast.queue q where q.id = (message).queue_id)),
          (message).enqueued_at, case when isfinite((message).due_at) then (message).due_at end, (message).expires_at,
          (message).last_error, (message).origin, null, null, null)::holdfast.entry;
comment on function holdfast._entry is 'A message as a report shows it';

create or replace function holdfast._of_state(lane holdfast.lane, state text, after bigint, "limit" int, at timestamptz)
returns setof holdfast.message language plpgsql stable
as $$
declare
  v_ids bigint[];
begin
  if state = 'in_flight' then
    -- The ids first, then their messages: never a walk along the log.
    v_ids := array(
      select i.id from (select l.ids from holdfast.lease l where l.lane_id = lane.id and l.ids <> '{}' and holdfast._is_ours(lane.id)
                        order by l.deadline limit 10000) l
        cross join lateral unnest(l.ids) i(id)
      where i.id > after order by i.id limit _of_state."limit");
    return query select m.* from unnest(v_ids) i(id) cross join lateral (select m.* from holdfast.message m where m.id = i.id offset 0) m;
  elsif state = 'blocked' then
    return query
      select m.* from holdfast.message m where m.id >> 40 = lane.id and m.due_at = 'infinity' and m.id > after
      order by m.due_at, m.id limit _of_state."limit";
  elsif state = 'scheduled' then
    return query
      select w.* from (select m.* from holdfast.message m where m.id >> 40 = lane.id and m.due_at > at and m.due_at < 'infinity'
                       order by m.due_at limit 10000) w
      where w.id > after order by w.id limit _of_state."limit";
  else
    return query
      select w.* from (
        (select d.* from (select m.* from holdfast.message m where m.id >> 40 = lane.id and m.due_at <= at
                            and (m.due_at > '-infinity' or not holdfast._is_ours(lane.id)) order by m.due_at limit 10000) d where d.id > after order by d.id limit _of_state."limit")
        union all
        (select g.* from holdfast._in_gaps(lane) g where g.id > after order by g.id limit _of_state."limit")
        union all
        (select m.* from holdfast.message m where m.id >= greatest(holdfast._start(lane), after + 1) and m.id < (lane.id + 1)::bigint << 40
           and m.due_at is null order by m.id limit _of_state."limit")) w
      order by w.id limit _of_state."limit";
  end if;
end $$;
comment on function holdfast._of_state is 'Messages of a lane in a state, by id; of those behind the cursor it looks at 10,000';

create or replace function holdfast.browse(queue text, state text default 'ready', "limit" int default 100, after bigint default null)
returns setof holdfast.entry
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(browse.queue);
  v_lane holdfast.lane;
  v_after_priority smallint;
  v_left int := "limit";
  v_shown int;
begin
  perform holdfast._check_limit("limit");
  if state is null or state not in ('ready', 'scheduled', 'blocked', 'in_flight', 'dead', 'archive') then
    perform holdfast._fail('QH401', 'unknown state', format('Got %s.', coalesce(quote_literal(left(state, 50)), 'null')),
      'state takes ready, scheduled, blocked, in_flight, dead or archive.');
  end if;
  if state = 'dead' then
    return query select (holdfast._entry(d, q.name, 'dead')).* from holdfast.queue q
      cross join lateral holdfast._dead(q, v_queue.name, null, null, "limit", coalesce(after, 0)) d
    where q.name = v_queue.dead_letter;
    return;
  end if;
  select l.priority into v_after_priority from holdfast.lane l where l.id = after >> 40;
  for v_lane in
    select l.* from holdfast.lane l where l.queue_id = v_queue.id
      and (v_after_priority is null or (l.priority, -l.id) <= (v_after_priority, -(after >> 40)))
    order by l.priority desc, l.id
  loop
    if state = 'archive' then
      return query select (holdfast._archived(a, v_queue.name)).*
        from holdfast._archived_of(v_lane, case when v_lane.id = after >> 40 then after else 0 end, v_left) a;
    else
      return query select (holdfast._entry(m, v_queue.name, state)).*
        from holdfast._of_state(v_lane, state, case when v_lane.id = after >> 40 then after else 0 end, v_left, holdfast.now()) m;
    end if;
    get diagnostics v_shown = row_count;
    v_left := v_left - v_shown;
    exit when v_left <= 0;
  end loop;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.browse is
  'Look at messages without taking them: a page by priority and id; pass the last id as after for the next one';

create or replace function holdfast._state_of(due_at timestamptz, held boolean, at timestamptz) returns text language sql immutable
  return case when held then 'in_flight' when due_at = 'infinity' then 'blocked' when due_at > at then 'scheduled' else 'ready' end;
comment on function holdfast._state_of is 'The state of a living message in its queue';

create or replace function holdfast.message(queue text, id bigint) returns setof holdfast.entry
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(message.queue);
  v_message holdfast.message;
  v_home holdfast.queue;
  v_state text;
begin
  select m.* into v_message from holdfast.message m where m.id = message.id;
  if not found then
    return query select (holdfast._archived(a, q.name)).* from holdfast.archive a join holdfast.queue q on q.id = a.queue_id
    where a.id = message.id and (a.queue_id = v_queue.id or (q.name = v_queue.dead_letter and a.origin ->> 'queue' = v_queue.name));
    return;
  end if;
  select q.* into v_home from holdfast.queue q where q.id = v_message.queue_id;
  if v_home.id = v_queue.id then
    v_state := holdfast._state_of(v_message.due_at, exists (select from holdfast._holders(array[v_message.id])), holdfast.now());
  elsif v_home.name = v_queue.dead_letter and v_message.origin ->> 'queue' = v_queue.name then
    v_state := 'dead';
  else
    return;
  end if;
  return next holdfast._entry(v_message, v_home.name, v_state);
end $$;
comment on function holdfast.message is 'One message of this queue, one dead letter that came from it, or how such a one ended if it was kept';
