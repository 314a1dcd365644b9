-- Contents: where a message is now, for those who know its first id. Nothing here changes a message.
--
-- A message that moves (dead letter, redrive, replay) gets a new id. The first one stays: origin.root_id, or its own id
-- where it never moved.

create or replace function holdfast._root_id(id bigint, origin jsonb) returns bigint language sql immutable
  -- Whoever stages a message of an archive says what its origin is: that need not be a number.
  return case when origin ->> 'root_id' ~ '^[1-9][0-9]{0,18}$'
              then case when (origin ->> 'root_id')::numeric <= 9223372036854775807 then (origin ->> 'root_id')::bigint else id end
              else id end;
comment on function holdfast._root_id is 'The first id of a message: that of its origin, or its own';

create or replace function holdfast._living(roots bigint[])
returns table (root_id bigint, id bigint, queue_id int, due_at timestamptz, came_from text) language plpgsql stable
as $$
begin
  return query
    select r.id, m.id, m.queue_id, m.due_at, m.came_from
    from unnest(_living.roots) r(id) cross join lateral (
      select m.id, m.queue_id, m.due_at, m.came_from from (
        (select o.id, o.queue_id, o.due_at, o.enqueued_at, o.origin ->> 'queue' as came_from
         from holdfast.message o where o.id = r.id and holdfast._root_id(o.id, o.origin) = r.id)
        union all
        (select c.id, c.queue_id, c.due_at, c.enqueued_at, c.origin ->> 'queue'
         from holdfast.message c where c.origin is not null and c.origin ->> 'root_id' = r.id::text)) m
      order by m.enqueued_at desc, m.id desc limit 1) m;
end $$;
comment on function holdfast._living is 'The living messages with these first ids; of several with one the latest';

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
         from holdfast.archive c where c.origin is not null and c.origin ->> 'root_id' = r.id::text)) a
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
    with living as materialized (
      select l.* from holdfast._living(v_roots) l
    ), held as materialized (
      select h.id from holdfast._holders(array(select l.id from living l)) h
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
  'Where messages are now that are known by their first ids: the queue, the id they have there, and their state, or how they ended. A living one wins, of several the latest';
