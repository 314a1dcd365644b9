-- Contents: where a message is now, for those who know its first id, and what is in a queue, for those who list it. Nothing here
-- changes a message.
--
--   whereabouts   by first ids, in all queues
--   contents      a page of a queue: what lives by priority and id, then its archive by the end
--   outcomes      how many messages of the archive have ended how
--
-- A page has an offset, so ids are looked up first, from an index where one has what is asked for, and messages only for the page:
-- a lane's ids from its primary key, or those of a state as _of_state finds them; the archive's by the time of the end.
--
-- A message that moves (dead letter, redrive, replay) gets a new id. The first one stays: origin.root_id, or its own id
-- where it never moved.

create or replace function holdfast._root_id(id bigint, origin jsonb) returns bigint language sql immutable
  -- Whoever stages a message of an archive says what its origin is: that need not be a number.
  return case when origin ->> 'root_id' ~ '^[1-9][0-9]{0,18}$'
              then case when (origin ->> 'root_id')::numeric <= 9223372036854775807 then (origin ->> 'root_id')::bigint else id end
              else id end;
comment on function holdfast._root_id is 'The first id of a message: that of its origin, or its own';

create or replace function holdfast._living_copies(roots bigint[])
returns table (root_id bigint, id bigint, queue_id int, enqueued_at timestamptz, due_at timestamptz, came_from text) language plpgsql stable
as $$
begin
  return query
    select r.id, m.id, m.queue_id, m.enqueued_at, m.due_at, m.came_from
    from unnest(_living_copies.roots) r(id) cross join lateral (
      select m.id, m.queue_id, m.enqueued_at, m.due_at, m.came_from from (
        (select o.id, o.queue_id, o.due_at, o.enqueued_at, o.origin ->> 'queue' as came_from
         from holdfast.message o where o.id = r.id and holdfast._root_id(o.id, o.origin) = r.id)
        union all
        (select c.id, c.queue_id, c.due_at, c.enqueued_at, c.origin ->> 'queue'
         from holdfast.message c where c.origin ? 'root_id' and c.origin ->> 'root_id' = r.id::text)) m
      order by m.enqueued_at desc, m.id desc limit 100) m;
end $$;
comment on function holdfast._living_copies is 'The living messages with these first ids; of many with one the latest';

create or replace function holdfast._ended(roots bigint[])
returns table (root_id bigint, id bigint, queue text, outcome text) language plpgsql stable
as $$
begin
  return query
    select r.id, a.id, a.name, a.outcome
    from unnest(_ended.roots) r(id) cross join lateral (
      select a.id, q.name, a.outcome from (
        (select o.id, o.queue_id, o.outcome, o.ended_at
         from holdfast.archive o where o.id = r.id and holdfast._root_id(o.id, o.origin) = r.id)
        union all
        (select c.id, c.queue_id, c.outcome, c.ended_at
         from holdfast.archive c where c.origin ? 'root_id' and c.origin ->> 'root_id' = r.id::text)) a
        join holdfast.queue q on q.id = a.queue_id
      order by a.ended_at desc, a.id desc limit 1) a;
end $$;
comment on function holdfast._ended is 'The archived messages with these first ids; of several with one the last that ended';

create or replace function holdfast.whereabouts(ids bigint[])
returns table (root_id bigint, queue text, id bigint, state text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_now timestamptz := holdfast.now();
  v_roots bigint[] := array(select distinct i from unnest(whereabouts.ids) i where i is not null);
begin
  return query
    with copies as materialized (
      select l.* from holdfast._living_copies(v_roots) l
    ), held as materialized (
      select h.id from holdfast._holders(array(select c.id from copies c)) h
    ), living as materialized (
      -- Whoever holds one has to be able to settle it, also where another was sent after it.
      select distinct on (c.root_id) c.* from copies c order by c.root_id, c.id in (select h.id from held h) desc, c.enqueued_at desc, c.id desc
    )
    select l.root_id, q.name, l.id,
           case when l.id not in (select h.id from held h)
                     and exists (select from holdfast.queue o where o.name = l.came_from and o.dead_letter = q.name) then 'dead'
                else holdfast._state_of(l.due_at, l.id in (select h.id from held h), v_now) end
    from living l join holdfast.queue q on q.id = l.queue_id
    union all
    select e.root_id, e.queue, e.id, e.outcome
    from holdfast._ended(array(select r from unnest(v_roots) r where r not in (select l.root_id from living l))) e
    order by 1;
end $$;
comment on function holdfast.whereabouts is
  'Where messages are now that are known by their first ids: the queue, the id they have there, and their state, or how they ended. A living one wins, of several one that is in flight, else the latest';

create or replace function holdfast._most_offset() returns int language sql immutable
  return 1000000;
comment on function holdfast._most_offset is 'How far contents pages';

create or replace function holdfast._check_page("limit" int, "offset" int) returns void language plpgsql immutable
as $$
begin
  if "limit" is null or "limit" not between 1 and 1000 then
    perform holdfast._fail('QH402', 'limit is out of range', format('Got %s.', coalesce("limit"::text, 'null')), 'A page has 1 to 1,000 messages.');
  end if;
  if "offset" is null or "offset" not between 0 and holdfast._most_offset() then
    perform holdfast._fail('QH402', 'offset is out of range', format('Got %s.', coalesce("offset"::text, 'null')),
      'offset takes 0 to 1,000,000; ask for fewer states, or scan the queue.');
  end if;
end $$;
comment on function holdfast._check_page is 'Refuse a page that is too long or too far';

create or replace function holdfast._check_contents(states text[]) returns void language plpgsql immutable
as $$
begin
  if not states <@ '{ready,scheduled,blocked,in_flight,done,expired,failed,discarded}' or states = '{}' then
    perform holdfast._fail('QH401', 'unknown state', format('Got %s.', quote_literal(left(states::text, 100))),
      'states takes one or more of ready, scheduled, blocked, in_flight, done, expired, failed, discarded; null for all.');
  end if;
end $$;
comment on function holdfast._check_contents is 'Refuse bad states of contents';

create or replace function holdfast._ids_in_states(lane holdfast.lane, states text[], at timestamptz, most int) returns setof bigint
language plpgsql stable
as $$
declare
  v_ours boolean := holdfast._is_ours(lane.id);
  v_start bigint := holdfast._start(lane);
begin
  return query
    select w.id from (
      (select i.id from (
         select l.ids from holdfast.lease l where 'in_flight' = any (states) and v_ours and l.lane_id = lane.id and l.ids <> '{}'
         order by l.deadline limit 2 * holdfast._most_offset()) l cross join lateral unnest(l.ids) i(id) limit 2 * holdfast._most_offset())
      union all
      (select m.id from holdfast.message m
       where 'blocked' = any (states) and m.id >> 40 = lane.id and m.due_at = 'infinity' order by m.due_at, m.id limit most)
      union all
      (select m.id from holdfast.message m
       where 'scheduled' = any (states) and m.id >> 40 = lane.id and m.due_at > at and m.due_at < 'infinity'
       order by m.due_at, m.id limit 2 * holdfast._most_offset())
      union all
      (select m.id from holdfast.message m
       where 'ready' = any (states) and m.id >> 40 = lane.id and m.due_at <= at and (m.due_at > '-infinity' or not v_ours)
       order by m.due_at, m.id limit 2 * holdfast._most_offset())
      union all
      (select g.id from holdfast._in_gaps(lane) g where 'ready' = any (states))
      union all
      (select m.id from holdfast.message m
       where 'ready' = any (states) and m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 and m.due_at is null
       order by m.id limit most)) w(id)
    order by w.id limit most;
end $$;
comment on function holdfast._ids_in_states is 'The first ids of a lane that are in some states, but not in all of them';

create or replace function holdfast._living_page(lane holdfast.lane, states text[], at timestamptz, skip int, "limit" int, out ids bigint[], out passed int)
language plpgsql stable
as $$
begin
  if states @> '{ready,scheduled,blocked,in_flight}' then
    select array_agg(w.id order by w.id) filter (where w.n > skip), least(count(*), skip) into ids, passed from (
      select m.id, row_number() over (order by m.id) as n from holdfast.message m
      where m.id >= lane.id::bigint << 40 and m.id < (lane.id + 1)::bigint << 40 order by m.id limit skip + _living_page."limit") w;
  else
    select array_agg(w.id order by w.n) filter (where w.n > skip), least(count(*), skip) into ids, passed
    from holdfast._ids_in_states(lane, states, at, skip + _living_page."limit") with ordinality w(id, n);
  end if;
end $$;
comment on function holdfast._living_page is 'Ids of a lane that are in some states, behind the first so many. passed: how many of those there are';

create or replace function holdfast._ended_page(queue_id int, outcomes text[], skip int, "limit" int, out ids bigint[], out ends timestamptz[])
language plpgsql stable
as $$
declare
  v_most int := skip + _ended_page."limit";
begin
  -- Between a queue and itself: so only the index that has the queue first is in the order that is asked for.
  if outcomes @> '{done,expired,failed,discarded}' then
    select array_agg(w.id order by w.n), array_agg(w.ended_at order by w.n) into ids, ends from (
      select a.id, a.ended_at, row_number() over (order by a.queue_id, a.ended_at, a.id) as n from holdfast.archive a
      where a.queue_id between _ended_page.queue_id and _ended_page.queue_id order by a.queue_id, a.ended_at, a.id limit v_most) w
    where w.n > skip;
    return;
  end if;
  select array_agg(w.id order by w.ended_at, w.id), array_agg(w.ended_at order by w.ended_at, w.id) into ids, ends from (
    select e.id, e.ended_at from (
      select o.id, o.ended_at from unnest(outcomes) k(outcome) cross join lateral (
        select a.id, a.ended_at from holdfast.archive a
        where a.queue_id = _ended_page.queue_id and a.outcome = k.outcome and a.outcome <> 'done' order by a.ended_at, a.id limit v_most) o
      union all
      -- No index has these alone: they are most of what is kept.
      (select d.id, d.ended_at from (
         select a.id, a.ended_at, a.outcome from holdfast.archive a
         where a.queue_id between _ended_page.queue_id and _ended_page.queue_id and 'done' = any (outcomes)
         order by a.queue_id, a.ended_at, a.id limit 2 * holdfast._most_offset()) d
       where d.outcome = 'done' limit v_most)) e
    order by e.ended_at, e.id offset skip limit _ended_page."limit") w;
end $$;
comment on function holdfast._ended_page is 'Ids of the archive of a queue with some outcomes, behind the first so many, and when they ended';

create or replace function holdfast._contents_living(queue holdfast.queue, ids bigint[], at timestamptz) returns setof holdfast.content
language plpgsql stable
as $$
begin
  return query
    with held as materialized (
      select h.id, h.consumer, h.deadline, l.claimed_at
      from holdfast._holders(_contents_living.ids) h
        cross join lateral (select l.claimed_at from holdfast.lease l where l.token = h.token and l.part = h.part offset 0) l
    )
    select e.id, holdfast._root_id(e.id, e.origin), e.queue, e.state, e.payload, e.body, e.content_type, e.headers, e.priority, e.key,
           e.ordering_key, e.correlation_id, e.tag, e.deliveries, e.failures, e.max_deliveries, e.enqueued_at, e.due_at, e.expires_at,
           h.deadline, e.last_error, e.origin, e.ended_at, h.consumer, h.claimed_at
    from unnest(_contents_living.ids) with ordinality i(id, n)
      cross join lateral (select m from holdfast.message m where m.id = i.id offset 0) m(message)
      left join held h on h.id = i.id
      cross join lateral holdfast._entry(m.message, queue.name, holdfast._state_of((m.message).due_at, h.id is not null, at)) e
    order by i.n;
end $$;
comment on function holdfast._contents_living is 'Living messages of a queue as contents shows them, with who holds them';

create or replace function holdfast._contents_ended(queue holdfast.queue, ids bigint[], ends timestamptz[]) returns setof holdfast.content
language plpgsql stable
as $$
begin
  return query
    select e.id, holdfast._root_id(e.id, e.origin), e.queue, e.state, e.payload, e.body, e.content_type, e.headers, e.priority, e.key,
           nullif(e.ordering_key, ''), e.correlation_id, e.tag, e.deliveries, e.failures, e.max_deliveries, e.enqueued_at, e.due_at, e.expires_at,
           null::timestamptz, e.last_error, e.origin, e.ended_at, e.consumer, e.claimed_at
    from unnest(_contents_ended.ids, _contents_ended.ends) with ordinality i(id, ended_at, n)
      cross join lateral (select a from holdfast.archive a where a.id = i.id and a.ended_at = i.ended_at offset 0) a(message)
      cross join lateral holdfast._archived(a.message, queue.name) e
    order by i.n;
end $$;
comment on function holdfast._contents_ended is 'Archived messages of a queue as contents shows them';

create or replace function holdfast.contents(queue text, states text[] default null, "limit" int default 100, "offset" int default 0)
returns setof holdfast.content
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(contents.queue);
  v_now timestamptz := holdfast.now();
  v_states text[] := coalesce(states, '{ready,scheduled,blocked,in_flight,done,expired,failed,discarded}');
  v_skip int := "offset";
  v_left int := "limit";
  v_lane holdfast.lane;
  v_page record;
begin
  perform holdfast._check_contents(states);
  perform holdfast._check_page("limit", "offset");
  for v_lane in
    select l.* from holdfast.lane l where l.queue_id = v_queue.id and v_states && '{ready,scheduled,blocked,in_flight}' order by l.priority desc, l.id
  loop
    v_page := holdfast._living_page(v_lane, v_states, v_now, v_skip, v_left);
    v_skip := v_skip - v_page.passed;
    return query select * from holdfast._contents_living(v_queue, v_page.ids, v_now);
    v_left := v_left - coalesce(cardinality(v_page.ids), 0);
    exit when v_left = 0;
  end loop;
  if v_left > 0 and v_states && '{done,expired,failed,discarded}' then
    v_page := holdfast._ended_page(v_queue.id, v_states, v_skip, v_left);
    return query select * from holdfast._contents_ended(v_queue, v_page.ids, v_page.ends);
  end if;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.contents is
  'A page of what is in a queue, in these states (null: all): what lives by priority and id, then what has ended and is kept, the first to end first';

create or replace function holdfast.outcomes(queue text) returns table (outcome text, messages bigint, exact boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(outcomes.queue);
  v_most int := 10001;
  v_seen bigint;
begin
  foreach outcome in array '{expired,failed,discarded}'::text[] loop
    select count(*) into messages from (
      select from holdfast.archive a where a.queue_id = v_queue.id and a.outcome = outcomes.outcome and a.outcome <> 'done' limit 10001) counted;
    v_most := v_most + messages;
    exact := messages <= 10000;
    messages := least(messages, 10000);
    return next;
  end loop;
  -- The others are passed on the way, as many as there are: 10,001 of these are found if there are so many.
  outcome := 'done';
  select count(*) filter (where a.outcome = 'done'), count(*) into messages, v_seen from (
    select a.outcome from holdfast.archive a
    where a.queue_id between v_queue.id and v_queue.id order by a.queue_id, a.ended_at, a.id limit v_most) a;
  exact := v_seen < v_most;
  messages := least(messages, 10000);
  return next;
end $$;
comment on function holdfast.outcomes is
  'How many messages of the archive have ended how. exact: false means that there may be more: it counts to 10,000';
