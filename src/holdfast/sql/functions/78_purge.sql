-- Purging: end all messages of a queue that are in some state, a bounded number a call.
--
-- What is purged ends as discarded, so a queue that keeps that keeps it. Under the lane lock; what somebody has locked
-- (an ack in an open transaction) is left alone, and so is an ordered message whose successor somebody has locked: its end
-- would wait for that, and the lane with it. The cursor passes fresh messages that were purged: sends that were
-- open then are written down as gaps, never jumped over.
--
-- forget deletes from the archive alone, what has ended in some way before some time.

create or replace function holdfast._check_purge(states text[]) returns void language plpgsql immutable
as $$
declare
  v_known text[] := '{ready,scheduled,blocked,in_flight,dead,archive}';
begin
  if states is null or states = '{}' or not states <@ v_known then
    perform holdfast._fail('QH410', 'purge needs the states to purge', format('Got %s.', coalesce(quote_literal(left(states::text, 100)), 'null')),
      'states takes one or more of ready, scheduled, blocked, in_flight, dead, archive.');
  end if;
end $$;
comment on function holdfast._check_purge is 'Refuse bad states of purge';

create or replace function holdfast._end_purged(lane holdfast.lane, ids bigint[], at timestamptz) returns int language plpgsql volatile
as $$
begin
  if lane.ordering is not null then
    ids := holdfast._can_end(lane.queue_id, ids);
  end if;
  return cardinality(holdfast._end(lane.queue_id, ids, 'discarded', at));
end $$;
comment on function holdfast._end_purged is 'Under the lane lock: end these locked messages, but for those that would wait for somebody; returns how many';

create or replace function holdfast._purge_fresh(lane holdfast.lane, "limit" int, at timestamptz, out gone int, out passed int)
language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint := holdfast._advance(lane);
  v_scan record;
  v_free bigint[];
begin
  -- One statement, one snapshot, as in a claim: what is missing in it is a gap.
  with present as (
    select m.id, m.due_at, coalesce(lag(m.id) over (order by m.id), v_start - 1) as before from holdfast.message m
    where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit _purge_fresh."limit"
  )
  select coalesce(array_agg(p.id) filter (where p.due_at is null), '{}') as fresh, max(p.id) + 1 as next, count(*)::int as seen,
         coalesce(array_agg(p.before + 1) filter (where p.id > p.before + 1), '{}') as gap_lo,
         coalesce(array_agg(p.id - 1) filter (where p.id > p.before + 1), '{}') as gap_hi
  into v_scan from present p;
  gone := 0;
  passed := v_scan.seen;
  if passed = 0 then
    return;
  end if;
  v_free := array(select m.id from holdfast.message m where m.id = any (v_scan.fresh) for update skip locked);
  if lane.ordering is not null then
    v_free := holdfast._can_end(lane.queue_id, v_free);
  end if;
  gone := cardinality(holdfast._end(lane.queue_id, v_free, 'discarded', at));
  -- Locked by somebody who may let go of it: for claims to find again.
  v_free := array(select i from unnest(v_scan.fresh) i where i not in (select unnest(v_free)));
  if v_free <> '{}' or v_scan.gap_lo <> '{}' then
    perform holdfast._open_gaps(lane, v_scan.gap_lo || v_free, v_scan.gap_hi || v_free, v_clean);
  end if;
  perform holdfast._pass_to(lane, v_scan.next, at);
end $$;
comment on function holdfast._purge_fresh is
  'Under the lane lock: end the next fresh messages and let the cursor pass them. passed: how many messages it went by, scheduled ones included';

create or replace function holdfast._purge_due(lane holdfast.lane, lo timestamptz, hi timestamptz, "limit" int, at timestamptz) returns int
language plpgsql volatile
as $$
begin
  return holdfast._end_purged(lane, array(
    select m.id from holdfast.message m where m.id >> 40 = lane.id and m.due_at > lo and m.due_at <= hi
    order by m.due_at, m.id limit _purge_due."limit" for update skip locked), at);
end $$;
comment on function holdfast._purge_due is 'Under the lane lock: end messages that are due between two times';

create or replace function holdfast._seize(ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_held bigint[] := array(select h.id from holdfast._holders(_seize.ids) h);
begin
  return array(select m.id from holdfast.message m where m.id = any (_seize.ids) and m.id <> all (v_held) for update skip locked)
         || holdfast._take_from_leases(v_held);
end $$;
comment on function holdfast._seize is 'Under the lane lock: lock messages, and take those that are held out of their leases; returns those got';

create or replace function holdfast._purge_in_flight(lane holdfast.lane, "limit" int, at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_ids bigint[];
begin
  v_ids := array(
    select i from (select l.ids from holdfast.lease l where l.lane_id = lane.id and l.ids <> '{}'
                   order by l.deadline limit _purge_in_flight."limit" for update skip locked) l
      cross join lateral unnest(l.ids) i
    limit _purge_in_flight."limit");
  if lane.ordering is not null then
    -- First: what was taken out of a lease has to end.
    v_ids := holdfast._can_end(lane.queue_id, v_ids);
  end if;
  return cardinality(holdfast._end(lane.queue_id, holdfast._take_from_leases(v_ids), 'discarded', at));
end $$;
comment on function holdfast._purge_in_flight is 'Under the lane lock: end messages that are in flight; their ids leave the leases';

create or replace function holdfast._is_left(lane holdfast.lane, states text[], at timestamptz) returns boolean language plpgsql volatile
as $$
begin
  return ('in_flight' = any (states) and exists (
           select from holdfast.lease l cross join lateral unnest(l.ids) i join holdfast.message m on m.id = i where l.lane_id = lane.id))
      or ('blocked' = any (states) and exists (select from holdfast.message m where m.id >> 40 = lane.id and m.due_at = 'infinity'))
      or ('scheduled' = any (states) and exists (
           select from holdfast.message m where m.id >> 40 = lane.id and m.due_at > at and m.due_at < 'infinity'))
      or ('ready' = any (states) and (exists (
           select from holdfast.message m where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at <= at)
         or exists (select from holdfast._in_gaps(lane))));
end $$;
comment on function holdfast._is_left is 'After a purge of an ordered lane: has it left a message in these states, since its end would have waited for somebody?';

create or replace function holdfast._purge_lane(lane holdfast.lane, states text[], "limit" int, at timestamptz, out gone int, out more boolean)
language plpgsql volatile
as $$
declare
  v_fresh record;
begin
  gone := 0;
  more := false;
  if 'in_flight' = any (states) then
    gone := holdfast._purge_in_flight(lane, "limit", at);
  end if;
  if 'blocked' = any (states) and gone < "limit" then
    gone := gone + holdfast._purge_due(lane, '294276-12-31 23:59:59.999999 UTC', 'infinity', "limit" - gone, at);
  end if;
  if 'scheduled' = any (states) and gone < "limit" then
    gone := gone + holdfast._purge_due(lane, at, '294276-12-31 23:59:59.999999 UTC', "limit" - gone, at);
  end if;
  if 'ready' = any (states) and gone < "limit" then
    gone := gone + holdfast._purge_due(lane, '-infinity', at, "limit" - gone, at);
    gone := gone + holdfast._end_purged(lane, array(
      select m.id from holdfast.message m where m.id = any (array(select g.id from holdfast._in_gaps(lane) g limit greatest("limit" - gone, 0)))
      for update skip locked), at);
    if gone < "limit" then
      v_fresh := holdfast._purge_fresh(lane, "limit" - gone, at);
      more := v_fresh.passed = "limit" - gone;
      gone := gone + v_fresh.gone;
    end if;
  end if;
  more := more or gone >= "limit" or (lane.ordering is not null and holdfast._is_left(lane, states, at));
end $$;
comment on function holdfast._purge_lane is 'Under the lane lock: end messages in these states. more: there may be others';

create or replace function holdfast._purge_dead(queue holdfast.queue, "limit" int, at timestamptz, out gone int, out more boolean)
language plpgsql volatile
as $$
declare
  v_grave holdfast.queue;
  v_ids bigint[];
begin
  gone := 0;
  more := false;
  select q.* into v_grave from holdfast.queue q where q.name = queue.dead_letter;
  if not found then
    return;
  end if;
  select coalesce(bool_or(not holdfast._await_lane(l) or holdfast._boot_lane(l)), false) into more
  from (select l.* from holdfast.lane l where l.queue_id = v_grave.id order by l.id) l;
  if not more then
    v_ids := array(select d.id from holdfast._dead(v_grave, queue.name, null, null, "limit") d);
    gone := cardinality(holdfast._end(v_grave.id, holdfast._seize(v_ids), 'discarded', at));
    more := gone >= "limit";
  end if;
end $$;
comment on function holdfast._purge_dead is 'End dead letters that came from this queue';

create or replace function holdfast.purge(queue text, states text[], "limit" int default 10000) returns table (purged int, more boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(purge.queue);
  v_now timestamptz := holdfast.now();
  v_lane holdfast.lane;
  v_did record;
begin
  perform holdfast._check_purge(states);
  perform holdfast._check_limit("limit");
  perform holdfast._check_isolation('purge');
  purged := 0;
  more := false;
  for v_lane in select l.* from holdfast.lane l where l.queue_id = v_queue.id and states && '{ready,scheduled,blocked,in_flight}' order by l.id loop
    exit when purged >= "limit";
    if not holdfast._await_lane(v_lane) or holdfast._boot_lane(v_lane) then
      more := true;
      continue;
    end if;
    v_did := holdfast._purge_lane(v_lane, states, "limit" - purged, v_now);
    purged := purged + v_did.gone;
    more := more or v_did.more;
  end loop;
  if 'dead' = any (states) and purged < "limit" then
    v_did := holdfast._purge_dead(v_queue, "limit" - purged, v_now);
    purged := purged + v_did.gone;
    more := more or v_did.more;
  end if;
  if 'archive' = any (states) and purged < "limit" then
    purged := purged + holdfast._forget('infinity', v_queue.id, "limit" - purged);
  end if;
  more := more or purged >= "limit";
  return next;
end $$;
comment on function holdfast.purge is
  'End messages of a queue that are in these states, as discarded, and delete what the archive holds of it; at most limit a call. Call it again while more is true';

create or replace function holdfast._check_forget(outcomes text[], "limit" int) returns void language plpgsql immutable
as $$
begin
  if not outcomes <@ '{done,expired,failed,discarded}' or outcomes = '{}' then
    perform holdfast._fail('QH410', 'unknown outcome', format('Got %s.', quote_literal(left(outcomes::text, 100))),
      'outcomes takes one or more of done, expired, failed, discarded; null for all.');
  end if;
  perform holdfast._check_limit("limit");
end $$;
comment on function holdfast._check_forget is 'Refuse bad arguments of forget';

create or replace function holdfast.forget(queue text, outcomes text[] default null, before timestamptz default null, "limit" int default 10000)
returns table (forgotten int, more boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(forget.queue);
  v_before timestamptz := coalesce(forget.before, 'infinity');
  v_outcome text;
begin
  perform holdfast._check_forget(outcomes, "limit");
  perform holdfast._check_isolation('forget');
  forgotten := 0;
  -- One null: all that the archive holds of the queue.
  for v_outcome in select distinct o from unnest(coalesce(outcomes, '{null}')) o loop
    exit when forgotten >= "limit";
    forgotten := forgotten + holdfast._forget(v_before, v_queue.id, "limit" - forgotten, v_outcome);
  end loop;
  more := forgotten >= "limit";
  return next;
end $$;
comment on function holdfast.forget is
  'Delete from the archive what has ended in these ways (null: all) before a time (null: any), the first to end first; at most limit a call. Call it again while more is true';
