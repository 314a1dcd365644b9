-- Sweeping: what leases that ran out leave behind becomes due again, or is buried as a dead letter.
--
-- Runs under the lane lock, for about 20 ms at most; every 250 ms for a lane, or at the next claim if it freed something. Leases and messages that
-- somebody has locked (an ack in an open transaction) are left alone: they stay leased until that is over.

create or replace function holdfast._first_overdue(lane holdfast.lane, at timestamptz, clean boolean) returns timestamptz
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_walk bigint := coalesce(pg_sequence_last_value(lane.lease_walk), 0);
  v_bottom boolean := v_walk not between holdfast._us(v_began) and holdfast._us(v_began) + 60000000;
  v_floor timestamptz := '-infinity';
  v_first timestamptz;
  v_took float8;
begin
  if not v_bottom then
    v_floor := holdfast._time(coalesce(pg_sequence_last_value(lane.lease_floor), 0));
    if v_floor > at then
      v_floor := '-infinity';
    end if;
  end if;
  select l.deadline into v_first from holdfast.lease l
  where l.lane_id = lane.id and l.deadline >= v_floor and l.deadline <= at
  order by l.deadline limit 1;
  v_took := extract(epoch from clock_timestamp() - v_began) * 1000000;
  if v_bottom and v_took > 300 then
    perform setval(lane.lease_walk, holdfast._us(clock_timestamp()) + (20 * v_took)::bigint);
  end if;
  if clean then
    perform setval(lane.lease_floor, holdfast._us(coalesce(v_first, at)));
  end if;
  return v_first;
end $$;
comment on function holdfast._first_overdue is 'Under the lane lock: when the first lease that is over ended; null: none is';

create or replace function holdfast._sweep_lane(lane holdfast.lane, at timestamptz, clean boolean) returns int
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_first timestamptz := holdfast._first_overdue(lane, at, clean);
  v_leases tid[];
  v_end record;
  v_freed int := 0;
  v_kept int := 0;
  v_more boolean := false;
  v_next interval := interval '250 ms';
begin
  perform holdfast._tidy_leases(lane, clean);
  while v_first is not null loop
    -- Locked by this transaction, these rows keep their place: so the place can name them.
    v_leases := array(
      select l.ctid from holdfast.lease l
      where l.lane_id = lane.id and l.deadline >= v_first and l.deadline <= at
      order by l.deadline offset v_kept limit 200 for update skip locked);
    v_end := holdfast._end_leases(lane, v_leases, at);
    v_freed := v_freed + v_end.freed;
    v_kept := v_kept + v_end.kept;
    exit when cardinality(v_leases) < 200;
    v_more := clock_timestamp() > v_began + interval '20 ms';
    exit when v_more;
  end loop;
  if v_more or v_freed > 0 then
    -- The next claim sweeps again: there is more, or what was freed is held once more because this rolled back.
    v_next := interval '-1 microsecond';
  end if;
  perform setval(lane.sweep_at, holdfast._us(at + v_next));
  return v_freed;
end $$;
comment on function holdfast._sweep_lane is 'Under the lane lock: end leases that ran out; returns how many messages that freed';

create or replace function holdfast._tidy_leases(lane holdfast.lane, clean boolean) returns void language plpgsql volatile
as $$
declare
  v_from bigint := coalesce(pg_sequence_last_value(lane.lease_tidy), 0);
  v_cursor bigint := coalesce(pg_sequence_last_value(lane.cursor), 0);
begin
  if v_cursor > v_from then
    delete from holdfast.lease l where l.ctid = any (array(
      select e.ctid from holdfast.lease e
      where e.lane_id = lane.id and e.upto > v_from and e.upto > 0 and e.upto <= v_cursor and e.ids = '{}'
      order by e.upto limit 10000 for update skip locked));
    if clean then
      perform setval(lane.lease_tidy, v_cursor);
    end if;
  end if;
end $$;
comment on function holdfast._tidy_leases is
  'Under the lane lock: remove leases that were settled while the cursor register had not passed them. One that is missed ends with its deadline';

create or replace function holdfast._end_leases(
  lane holdfast.lane, leases tid[], at timestamptz, only_spent boolean default false, out freed int, out kept int)
language plpgsql volatile
as $$
declare
  v_cursor bigint := coalesce(pg_sequence_last_value(lane.cursor), 0);
  v_ids bigint[];
  v_freed bigint[];
  v_spent bigint[];
  v_stay bigint[];
begin
  v_ids := array(select i from holdfast.lease l cross join lateral unnest(l.ids) i where l.ctid = any (leases));
  v_freed := array(select m.id from holdfast.message m where m.id = any (v_ids) for update skip locked);
  v_spent := holdfast._spent(lane.queue_id, v_freed);
  if only_spent then
    v_freed := v_spent;
  end if;
  if v_spent <> '{}' and not holdfast._can_bury(lane.queue_id) then
    v_freed := array(select i from unnest(v_freed) i where i not in (select unnest(v_spent)));
  end if;
  if lane.ordering is not null then
    -- The last delivery of a head passes the baton: not while somebody has its successor locked.
    v_freed := holdfast._can_end(lane.queue_id, v_freed);
  end if;
  v_stay := array(select m.id from holdfast.message m where m.id = any (v_ids) and m.id not in (select unnest(v_freed)));
  perform holdfast._return(lane.queue_id, v_freed, at, interval '0', null, false);
  -- A lease above the cursor register says where fresh messages start: it stays, empty, until the register has passed it.
  delete from holdfast.lease l where l.ctid = any (leases) and l.upto <= v_cursor and not l.ids && v_stay;
  update holdfast.lease l set ids = array(select i from unnest(l.ids) i where i in (select unnest(v_stay))), lo = null
  where l.ctid = any (leases);
  get diagnostics kept = row_count;
  freed := cardinality(v_freed);
end $$;
comment on function holdfast._end_leases is
  'Under the lane lock: give back what these locked leases hold, but for messages that somebody has locked, and dead ones that cannot be buried now. only_spent: nothing but dead ones. kept: leases that stay';

create or replace function holdfast.sweep(queue text) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(sweep.queue);
  v_lane holdfast.lane;
  v_ended int := 0;
begin
  perform holdfast._check_isolation('sweep');
  perform holdfast._limit_transaction();
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id order by l.priority desc, l.shard loop
    continue when not holdfast._await_lane(v_lane);
    continue when holdfast._boot_lane(v_lane);
    perform holdfast._advance(v_lane);
    v_ended := v_ended + holdfast._sweep_lane(v_lane, holdfast.now(), pg_current_xact_id_if_assigned() is null);
  end loop;
  return v_ended;
end $$;
comment on function holdfast.sweep is 'End the leases of a queue that ran out, now; returns how many messages that freed. claim does this by itself';
