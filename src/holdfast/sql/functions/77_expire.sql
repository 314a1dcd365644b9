-- Expiry: messages whose time to live is over end, also when nobody claims.
--
-- claim ends what it meets; this is maintain()'s part, and expire() does it for one queue on request. It walks the index of messages with a time to live, lane by
-- lane under the lane lock, so that no claim takes a message while it ends. What somebody has locked is left for later.
-- A message in flight is passed over, unless the queue says expire_in_flight; so is a dead head that blocks its line.
--
-- The walk goes on from where it stopped, by (expires_at, id). Having come to the end it starts from the bottom again:
-- at once while that is cheap; where dead index entries make it dear (a held snapshot), 20 times as long as it took
-- has to pass first. What was passed over, and what a late commit has put below, waits for that.

create or replace function holdfast._pass_missing(lane holdfast.lane, at timestamptz) returns void language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint := holdfast._advance(lane);
  v_last bigint := coalesce(pg_sequence_last_value(lane.ids), 0);
  v_first bigint;
begin
  select m.id into v_first from holdfast.message m where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1;
  v_first := coalesce(v_first, v_last + 1);
  if v_first > v_start then
    -- Some of these ids may belong to sends that are still open.
    perform holdfast._open_gaps(lane, array[v_start], array[v_first - 1], v_clean);
    perform holdfast._pass_to(lane, v_first, at);
  end if;
end $$;
comment on function holdfast._pass_missing is
  'Under the lane lock: let the cursor pass ids at its place that are not there any more, or not yet, and write them down as a gap: no claim walks over their remains';

create or replace function holdfast._expire_chunk(
  lane holdfast.lane, queue holdfast.queue, start bigint, at timestamptz, "limit" int, inout from_at timestamptz, inout from_id bigint,
  out met int, out ended bigint[], out dear boolean)
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_free bigint[];
  v_held bigint[];
begin
  with met as materialized (
    select m.id, m.expires_at, m.blocks_since is not null as dead,
           (m.due_at > '-infinity') is true or (m.due_at is null and (m.id >= start or coalesce((
             select g.hi >= m.id from holdfast.gap g where g.lane_id = lane.id and g.lo <= m.id order by g.lo desc limit 1), false))) as free
    from holdfast.message m
    where m.id >> 40 = lane.id and (m.expires_at, m.id) > (from_at, from_id) and m.expires_at <= at
    order by m.expires_at, m.id limit _expire_chunk."limit"
  )
  select coalesce(array_agg(c.id) filter (where c.free and not c.dead), '{}'),
         coalesce(array_agg(c.id) filter (where not c.free and not c.dead), '{}'), count(*),
         coalesce(max(c.expires_at), from_at), coalesce((array_agg(c.id))[count(*)::int], from_id)
  into v_free, v_held, met, from_at, from_id from met c;
  dear := clock_timestamp() > v_began + (300 + 5 * met) * interval '1 microsecond';
  v_free := array(select m.id from holdfast.message m where m.id = any (v_free) and m.expires_at <= at and m.blocks_since is null
                  for update skip locked);
  if lane.ordering is not null then
    -- The end of a head passes the baton: not while somebody has its successor locked.
    v_free := holdfast._can_end(lane.queue_id, v_free);
    v_held := holdfast._can_end(lane.queue_id, v_held);
  end if;
  if queue.expire_in_flight and v_held <> '{}' then
    v_free := v_free || holdfast._take_from_leases(v_held);
  end if;
  ended := case when v_free = '{}' then v_free else holdfast._end(lane.queue_id, v_free, 'expired', at) end;
end $$;
comment on function holdfast._expire_chunk is
  'Under the lane lock: end the next messages that are past their time to live, at most so many, and say where to go on';

create or replace function holdfast._expire(lane holdfast.lane, at timestamptz, "limit" int, out expired int, out more boolean)
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_queue holdfast.queue;
  v_start bigint := holdfast._advance(lane);
  v_walk bigint := coalesce(pg_sequence_last_value(lane.expiry_walk), 0);
  v_from timestamptz := coalesce(holdfast._time(nullif(pg_sequence_last_value(lane.expiry_at), 0)), '-infinity');
  v_id bigint := coalesce(pg_sequence_last_value(lane.expiry_id), 0);
  v_chunk record;
  v_size int;
  v_ahead boolean := false;
  v_dear boolean := false;
begin
  expired := 0;
  more := false;
  select q.* into v_queue from holdfast.queue q where q.id = lane.queue_id;
  if v_from > at or (v_walk > 0 and v_walk not between holdfast._us(v_began) and holdfast._us(v_began) + 60000000) then
    v_from := '-infinity';
    v_id := 0;
    v_walk := 0;
  end if;
  loop
    v_size := least(1000, "limit" - expired);
    v_chunk := holdfast._expire_chunk(lane, v_queue, v_start, at, v_size, v_from, v_id);
    v_from := v_chunk.from_at;
    v_id := v_chunk.from_id;
    expired := expired + cardinality(v_chunk.ended);
    v_ahead := v_ahead or v_start <= any (v_chunk.ended);
    v_dear := v_dear or v_chunk.dear;
    exit when v_chunk.met < v_size;
    more := expired >= "limit" or clock_timestamp() > v_began + interval '20 ms';
    exit when more;
  end loop;
  if not more then
    -- Come to the end. While the walk is cheap, the next one starts from the bottom; else only what expires from now on is met.
    if v_dear and v_walk = 0 then
      v_walk := holdfast._us(clock_timestamp() + 20 * (clock_timestamp() - v_began));
    end if;
    v_from := case when v_walk > 0 then at else '-infinity' end;
    v_id := case when v_walk > 0 then (lane.id + 1)::bigint << 40 else 0 end;
  end if;
  perform setval(lane.expiry_at, case when v_from > 'epoch' then holdfast._us(v_from) else 0 end), setval(lane.expiry_id, v_id),
          setval(lane.expiry_walk, v_walk);
  if v_ahead then
    perform holdfast._pass_missing(lane, at);
  end if;
end $$;
comment on function holdfast._expire is
  'Under the lane lock: end messages that are past their time to live, at most so many, and for about 20 ms at most. more: not all of them were looked at';

create or replace function holdfast.expire(queue text, "limit" int default 10000) returns table (expired int, more boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(expire.queue);
  v_lane holdfast.lane;
  v_did record;
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('expire');
  perform holdfast._limit_transaction();
  expired := 0;
  more := false;
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id order by l.id loop
    exit when expired >= "limit";
    if not holdfast._await_lane(v_lane) or holdfast._boot_lane(v_lane) then
      more := true;
      continue;
    end if;
    v_did := holdfast._expire(v_lane, holdfast.now(), "limit" - expired);
    expired := expired + v_did.expired;
    more := more or v_did.more;
  end loop;
  more := more or expired >= "limit";
  return next;
end $$;
comment on function holdfast.expire is
  'End messages of a queue that are past their time to live, now; at most limit a call. Call it again while more is true. maintain does this by itself';
