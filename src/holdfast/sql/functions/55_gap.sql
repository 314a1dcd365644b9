-- Gaps: ids that the cursor passed without finding a row.
--
-- A missing id was drawn by a transaction that is still open, or that rolled back. A gap keeps the range until
-- that is settled: rows that turn up are handed out, and once every transaction that may own an id in it has
-- ended, one more look in a newer snapshot decides. Two ways to know that they have ended, both exact:
--   the oldest transaction still running is not older than the gap's horizon, or
--   no transaction older than the horizon has locked holdfast.message for writing (an owner has: send draws ids
--   while it holds that lock). Without the second, any idle open writer would keep every gap alive.
-- All of this happens under the lane lock.

create or replace function holdfast._horizon(clean boolean) returns xid8 language plpgsql volatile
as $$
declare
  v_next bigint;
  v_ahead bigint;
begin
  -- An id that this transaction draws only now is above every other drawn before.
  if clean then
    return pg_current_xact_id();
  end if;
  -- Otherwise: a running transaction holds a lock on its id. (xmax alone will not do: it is only above those that have ended.)
  v_next := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  select max(x.transactionid::text::bigint - v_next & 4294967295) filter (where x.transactionid::text::bigint - v_next & 4294967295 < 2147483648)
  into v_ahead from pg_locks x where x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted;
  return (v_next + coalesce(v_ahead + 1, 0))::text::xid8;
end $$;
comment on function holdfast._horizon is
  'A transaction id above all that were drawn before this call. clean: this transaction had none before it took the lane lock and looked';

create or replace function holdfast._open_gaps(lane holdfast.lane, los bigint[], his bigint[], clean boolean) returns void
language plpgsql volatile
as $$
declare
  v_horizon xid8 := holdfast._horizon(clean);
begin
  insert into holdfast.gap (lane_id, lo, hi, horizon)
  select lane.id, g.lo, g.hi, v_horizon from unnest(los, his) g(lo, hi)
  on conflict (lane_id, lo) do update set hi = greatest(gap.hi, excluded.hi), horizon = excluded.horizon;
  -- Where gaps keep opening, the look at those that are there must not be put off by each.
  perform setval(lane.gap_look, least((holdfast._us(clock_timestamp()) + 5000) * 10, nullif(pg_sequence_last_value(lane.gap_look), 0))),
          setval(lane.care_at, 0);
end $$;
comment on function holdfast._open_gaps is 'Write down ids that a scan missed. clean: this transaction had no id before the scan';

create or replace function holdfast._oldest_writer() returns xid8 language plpgsql volatile
as $$
declare
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  v_behind bigint;
begin
  -- Lock entries show the lower 32 bits of a transaction id: the upper ones follow from how far it lies behind.
  select max(o.behind) into v_behind
  from (select v_next - x.transactionid::text::bigint & 4294967295 as behind
        from pg_locks w join pg_locks x on x.virtualtransaction = w.virtualtransaction
        where w.locktype = 'relation' and w.relation = 'holdfast.message'::regclass and w.mode = 'RowExclusiveLock'
          and w.database = holdfast._database_oid() and w.pid is distinct from pg_backend_pid()
          and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted) o
  where o.behind < 2147483648;
  return (v_next - coalesce(v_behind, 0))::text::xid8;
end $$;
comment on function holdfast._oldest_writer is
  'The oldest transaction that may own ids of messages not yet committed, other than this one; the next to come if there is none';

create or replace function holdfast._first_gap(lane holdfast.lane, everything boolean, clean boolean) returns bigint language plpgsql volatile
as $$
declare
  v_floor bigint := coalesce(pg_sequence_last_value(lane.gap_floor), 0);
  v_turn bigint := coalesce(pg_sequence_last_value(lane.gap_turn), 0);
  v_first bigint;
begin
  if not everything then
    -- Gaps that stay open must not make every look dear, nor hide new ones: between two walks over all, the newest only.
    return (select min(g.lo) from (select g.lo from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_floor order by g.lo desc limit 50) g);
  end if;
  select g.lo into v_first from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_floor order by g.lo limit 1;
  if clean then
    perform setval(lane.gap_floor, coalesce(v_first, v_floor));
    if v_first is null then
      perform setval(lane.gap_look, 0);
    end if;
  end if;
  return greatest(v_first, case when v_first is not null then v_turn end);
end $$;
comment on function holdfast._first_gap is 'Where a look at gaps starts; null: there are none. everything: go on with the walk over all of them';

create or replace function holdfast._look_at_gaps(lane holdfast.lane, want int, room bigint, at timestamptz, clean boolean, thorough boolean)
returns bigint[] language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_walk bigint := coalesce(pg_sequence_last_value(lane.gap_walk), 0);
  v_all boolean := v_walk <= holdfast._us(v_began) or v_walk > holdfast._us(v_began) + 60000000;
  v_first bigint := holdfast._first_gap(lane, v_all, clean);
  v_ended xid8;
  v_found bigint[];
  v_more bigint[];
  v_gap record;
  v_seen int := 0;
begin
  if v_first is null then
    return null;
  end if;
  v_ended := pg_snapshot_xmin(pg_current_snapshot());
  if thorough then
    v_ended := greatest(v_ended, (holdfast._oldest_writer()::text::bigint - 1)::text::xid8);
  end if;
  for v_gap in
    select g.*, g.horizon <= v_ended as ended, exists (select from holdfast.message m where m.id between g.lo and g.hi) as filled
    from (select g.lo, g.hi, g.horizon from holdfast.gap g where g.lane_id = lane.id and g.lo >= v_first order by g.lo limit 20000) g
    order by g.lo
  loop
    v_seen := v_seen + 1;
    continue when not v_gap.ended and not v_gap.filled;
    v_more := holdfast._look_at_gap(lane, v_gap.lo, v_gap.hi, v_gap.horizon, v_gap.ended, want - coalesce(cardinality(v_found), 0), room, at);
    v_found := v_found || v_more;
    exit when cardinality(v_found) >= want;
    if v_more is not null then
      room := room - holdfast._bytes(v_more);
    end if;
  end loop;
  if v_all then
    -- More gaps than one walk takes: the next goes on from here.
    perform setval(lane.gap_turn, case when v_seen = 20000 then v_gap.lo else 0 end);
    perform setval(lane.gap_walk, holdfast._us(clock_timestamp() + 20 * (clock_timestamp() - v_began)));
  end if;
  perform holdfast._pace_gaps(lane, v_found is not null);
  return v_found;
end $$;
comment on function holdfast._look_at_gaps is
  'Look whether messages have turned up in the gaps, at most want, and as many bytes as there is room for; drops gaps that nobody can fill any more. thorough: ask the lock table too';

create or replace function holdfast._look_at_gap(lane holdfast.lane, lo bigint, hi bigint, horizon xid8, ended boolean, want int, room bigint, at timestamptz)
returns bigint[] language plpgsql volatile
as $$
declare
  v_scan record;
begin
  v_scan := holdfast._scan(lo, hi, want + 1000, want, room, false, at, null);
  if v_scan.next is null and v_scan.stopped then
    return null;
  elsif v_scan.next is null then
    delete from holdfast.gap g where ended and g.lane_id = lane.id and g.lo = _look_at_gap.lo;
    return null;
  end if;
  delete from holdfast.gap g where g.lane_id = lane.id and g.lo = _look_at_gap.lo;
  insert into holdfast.gap (lane_id, lo, hi, horizon)
  select lane.id, h.lo, h.hi, horizon from unnest(v_scan.gap_lo, v_scan.gap_hi) h(lo, hi) where not ended
  union all
  select lane.id, v_scan.next, hi, horizon where v_scan.next <= hi and (v_scan.stopped or v_scan.full or not ended);
  if v_scan.expired is not null then
    perform holdfast._end_expired(lane.queue_id, v_scan.expired, at);
    perform holdfast._remember_passed(lane, v_scan.expired);
  end if;
  if lane.ordering is not null and v_scan.ids is not null then
    return (holdfast._in_order(lane, v_scan.ids, want, null, at)).taken;
  end if;
  return v_scan.ids;
end $$;
comment on function holdfast._look_at_gap is 'Look at one gap: take what turned up, keep the ids still missing unless their owners have ended';

create or replace function holdfast._pace_gaps(lane holdfast.lane, found boolean) returns void language plpgsql volatile
as $$
declare
  v_patience int := case when found then 0 else least(8, coalesce(pg_sequence_last_value(lane.gap_look), 0) % 10 + 1) end;
begin
  perform setval(lane.gap_look, (holdfast._us(clock_timestamp()) + least(1000000, 5000 * 2 ^ v_patience)::bigint) * 10 + v_patience);
end $$;
comment on function holdfast._pace_gaps is 'When to look at gaps next: 5 ms, doubling to 1 s while nothing turns up';
