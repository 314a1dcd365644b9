-- Claiming: hand out messages under a lease.
--
-- claim() walks the queue's lanes, highest priority first. In each it holds the lane's advisory lock, so claims
-- of a lane are serial; everything it writes for a plain message is one row in the unlogged lease table.
--
-- cursor   where fresh messages start: the register, or upto of a lease above it. The register moves only
--          here and in the sweep, under the lane lock, and only to upto of a lease that another transaction
--          has committed: a claim that rolls back never happened.
-- gap      ids that the cursor passed without a row: their senders were open, or never commit. Looked at
--          again until every transaction that may own them has ended.
-- floor    where the walk over due rows or leases starts: what lies below is dead versions.
--
-- Lock order: lane locks by priority, then rows, SKIP LOCKED throughout: nobody's open transaction can stall a lane,
-- but one that has claimed and stays open.

create or replace function holdfast._await_lane(lane holdfast.lane) returns boolean
language plpgsql volatile set lock_timeout = '500ms'
as $$
begin
  perform pg_advisory_xact_lock(holdfast._lane_lock(), lane.id);
  return holdfast._unchanged(lane);
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._await_lane is 'Wait for a lane lock that somebody else holds, but not for long. false: not got, or the lane has changed';

create or replace function holdfast._advance(lane holdfast.lane) returns bigint language plpgsql volatile
as $$
declare
  v_register bigint := greatest(coalesce(pg_sequence_last_value(lane.cursor), 0), (lane.id::bigint << 40) + 1);
  v_top record;
begin
  select l.upto, l.made_by into v_top
  from holdfast.lease l where l.lane_id = lane.id and l.upto > v_register and l.upto > 0 order by l.upto desc limit 1;
  -- A lease of this transaction is no evidence; what was committed before it, its first claim has seen already.
  if v_top.made_by <> coalesce(pg_current_xact_id_if_assigned(), '0') then
    perform setval(lane.cursor, v_top.upto);
  end if;
  return coalesce(v_top.upto, v_register);
end $$;
comment on function holdfast._advance is 'Under the lane lock: move the cursor register to what is committed; returns where fresh messages start';

create or replace function holdfast._first_due(lane holdfast.lane, at timestamptz, clean boolean) returns timestamptz
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_walk bigint := coalesce(pg_sequence_last_value(lane.due_walk), 0);
  v_bottom boolean := v_walk <= holdfast._us(v_began) or v_walk > holdfast._us(v_began) + 60000000;
  v_floor timestamptz := '-infinity';
  v_first timestamptz;
  v_took float8;
begin
  if not v_bottom then
    v_floor := holdfast._time(coalesce(pg_sequence_last_value(lane.due_floor), 0));
    if v_floor > at then
      v_floor := '-infinity';
    end if;
  end if;
  select m.due_at into v_first from holdfast.message m
  where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= v_floor and m.due_at <= at
  order by m.due_at limit 1;
  v_took := extract(epoch from clock_timestamp() - v_began) * 1000000;
  -- A walk from the bottom that is cheap comes every time, without a floor; a dear one takes a twentieth of the time.
  if v_bottom and v_took > 300 then
    perform setval(lane.due_walk, holdfast._us(clock_timestamp()) + (20 * v_took)::bigint);
  elsif v_bottom and v_walk > 0 then
    perform setval(lane.due_walk, 0), setval(lane.due_floor, 0);
  end if;
  if clean and (v_took > 300 or not v_bottom) then
    perform setval(lane.due_floor, holdfast._us(coalesce(v_first, at)));
  end if;
  return v_first;
end $$;
comment on function holdfast._first_due is
  'Under the lane lock: when the first due message became due; null: none is. clean: this transaction has written nothing yet, so what it sees is committed';

create or replace function holdfast._answer_bytes() returns int language sql immutable
  return 16777216;
comment on function holdfast._answer_bytes is 'How many bytes one claim hands out; a single larger message still goes alone';

create or replace function holdfast._has_room(total bigint, bytes bigint, room bigint) returns boolean language sql immutable
  return total <= room or (total = bytes and room = holdfast._answer_bytes());
comment on function holdfast._has_room is
  'May a message of so many bytes go, as the last of total, where a claim has room for so many? The first of a claim always may';

create or replace function holdfast._bytes(ids bigint[]) returns bigint language sql stable
  return (select coalesce(sum(coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0)), 0)
          from holdfast.message m where m.id = any (ids));
comment on function holdfast._bytes is 'How many bytes these messages take, as stored';

create or replace function holdfast._take_due(lane holdfast.lane, first timestamptz, at timestamptz, want int, room bigint) returns bigint[]
language plpgsql volatile
as $$
declare
  v_taken bigint[];
  v_over bigint[];
begin
  with candidate as (
    select m.id, m.due_at, m.expires_at <= at as over,
           case when m.expires_at <= at then 0
                else coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) end as bytes
    from holdfast.message m
    where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= first and m.due_at <= at
    order by m.due_at, m.id limit want for update skip locked
  ), fitting as (
    select f.* from (select c.*, sum(c.bytes) over (order by c.due_at, c.id) as total from candidate c) f
    where holdfast._has_room(f.total, f.bytes, room)
  ), taken as (
    update holdfast.message m set due_at = '-infinity' from fitting f where m.id = f.id
    returning m.id, f.due_at, f.over
  )
  select array_agg(t.id order by t.due_at, t.id) filter (where t.over is not true), array_agg(t.id) filter (where t.over)
  into v_taken, v_over from taken t;
  if v_over is not null then
    perform holdfast._end(lane.queue_id, v_over, 'expired', at);
  end if;
  return v_taken;
end $$;
comment on function holdfast._take_due is 'Under the lane lock: mark due messages as held and return their ids; those past their time to live end';

create or replace function holdfast._scan(
  lo bigint, hi bigint, rows int, want int, room bigint, taken boolean, at timestamptz, patience interval,
  out ids bigint[], out bytes bigint, out expired bigint[], out next bigint, out stopped boolean, out "full" boolean,
  out gap_lo bigint[], out gap_hi bigint[])
language plpgsql volatile
as $$
begin
  -- One statement, one snapshot: an id missing in it goes to gap_lo..gap_hi, so nothing falls between two looks.
  with present as (
    select m.id, m.enqueued_at, m.due_at is null and m.expires_at <= at as over,
           (m.due_at is null and (m.expires_at is null or m.expires_at > at))::int as good,
           coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) as bytes,
           coalesce(lag(m.id) over (order by m.id), _scan.lo - 1) as before
    from holdfast.message m where m.id >= _scan.lo and m.id <= _scan.hi order by m.id limit _scan.rows
  ), counted as (
    select p.*, sum(p.good) over earlier as nth, sum(p.good * p.bytes) over earlier as total from present p
    window earlier as (order by p.id)
  ), cut as materialized (
    -- A hole right before a young row will be filled in a moment: stop there, if there is something to hand out.
    select min(c.before) as upto from counted c
    where c.id > c.before + 1 and c.enqueued_at > at - patience and (taken or c.nth > c.good)
  ), kept as (
    select c.* from counted c, cut
    where (cut.upto is null or c.id <= cut.upto) and c.nth - c.good < want
      and (_scan.room is null or holdfast._has_room(c.total, c.good * c.bytes, _scan.room))
  )
  select array_agg(k.id) filter (where k.good = 1), max(k.total), array_agg(k.id) filter (where k.over), max(k.id) + 1,
         count(*) < (select count(*) from present), (select count(*) from present) = rows,
         array_agg(k.before + 1) filter (where k.id > k.before + 1), array_agg(k.id - 1) filter (where k.id > k.before + 1)
  into ids, bytes, expired, next, stopped, "full", gap_lo, gap_hi from kept k;
end $$;
comment on function holdfast._scan is
  'Look at an id range with exceptions in it: what can be taken, what has expired, which ids are missing, where to go on';

create or replace function holdfast._end_expired(queue_id int, ids bigint[], at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_locked bigint[] := array(select e.id from holdfast.message e where e.id = any (_end_expired.ids) for update skip locked);
  v_free bigint[] := holdfast._can_end(_end_expired.queue_id, v_locked);
  v_ended int;
begin
  v_ended := cardinality(holdfast._end(_end_expired.queue_id, v_free, 'expired', at));
  if cardinality(v_free) < cardinality(v_locked) then
    update holdfast.message m set due_at = at + holdfast._shortly()
    where m.id = any (v_locked) and m.id not in (select unnest(v_free));
  end if;
  return v_ended;
end $$;
comment on function holdfast._end_expired is
  'Under a lane lock: end messages whose time to live is over; those whose successor somebody has locked, shortly. Returns how many have ended';

create or replace function holdfast._expired_due(lane holdfast.lane, first timestamptz, at timestamptz) returns bigint[]
language plpgsql volatile
as $$
begin
  return array(
    select c.id from (
      select m.id, m.expires_at from holdfast.message m
      where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= first and m.due_at <= at
      order by m.due_at, m.id limit 10000) c
    where c.expires_at <= at);
end $$;
comment on function holdfast._expired_due is 'Of the next 10,000 due messages those whose time to live is over';

create or replace function holdfast._remember_passed(lane holdfast.lane, ids bigint[]) returns void language plpgsql volatile
as $$
declare
  v_busy bigint[] := array(select m.id from holdfast.message m where m.id = any (_remember_passed.ids) and m.due_at is null);
begin
  -- Still fresh: somebody had it locked. The cursor passes it, so a gap must remember it: a line may wait behind it.
  if v_busy <> '{}' then
    perform holdfast._open_gaps(lane, v_busy, v_busy, false);
  end if;
end $$;
comment on function holdfast._remember_passed is 'Under the lane lock: of messages that the cursor passes because they have ended or are due, those that are fresh all the same become gaps';

create or replace function holdfast._take_fresh(lane holdfast.lane, start bigint, want int, room bigint, taken boolean, at timestamptz)
returns holdfast._fresh language plpgsql volatile
as $$
declare
  v_fresh holdfast._fresh := (null, start);
  v_end bigint := (lane.id + 1)::bigint << 40;
  v_rows int := want;
  v_scanned bigint := 0;
  v_clean boolean;
  v_scan record;
begin
  loop
    v_clean := pg_current_xact_id_if_assigned() is null;
    v_scan := holdfast._scan(v_fresh.upto, v_end - 1, v_rows, want, room, taken, at, interval '10 ms');
    exit when v_scan.next is null;
    if v_scan.gap_lo is not null then
      perform holdfast._open_gaps(lane, v_scan.gap_lo, v_scan.gap_hi, v_clean);
    end if;
    if v_scan.expired is not null then
      perform holdfast._end_expired(lane.queue_id, v_scan.expired, at);
      perform holdfast._remember_passed(lane, v_scan.expired);
    end if;
    v_fresh.ids := v_fresh.ids || v_scan.ids;
    v_fresh.upto := v_scan.next;
    v_scanned := v_scanned + v_rows;
    want := want - coalesce(cardinality(v_scan.ids), 0);
    room := room - v_scan.bytes;
    taken := taken or v_scan.ids is not null;
    exit when want = 0 or v_scan.stopped or not v_scan."full" or v_scanned >= 10000;
    v_rows := greatest(want, 1000);
  end loop;
  return v_fresh;
end $$;
comment on function holdfast._take_fresh is
  'Under the lane lock: fresh ids from start on, at most want, and for as many bytes as there is room. Passes delayed messages, ends expired ones, writes holes down as gaps';

create or replace function holdfast._take_with_care(
  lane_id int, token bigint, want int, handed int, room bigint, at timestamptz, deadline timestamptz, consumer text) returns bigint
language plpgsql volatile
as $$
declare
  -- As it is now, under the lock: it may have become ordered since claim read it.
  v_lane holdfast.lane := (select l from holdfast.lane l where l.id = _take_with_care.lane_id);
  -- A plain lane was tended before; in any other, what the sweep frees is to be had by this claim.
  v_calm boolean := v_lane.plain or coalesce(holdfast._is_calm(v_lane.care_at), false) or holdfast._tend(v_lane, at);
  v_start bigint := holdfast._advance(v_lane);
  v_other bigint[] := holdfast._take_exceptions(v_lane, want, room, at);
  v_left int := want - coalesce(cardinality(v_other), 0);
  v_room bigint := case when v_other is null then room when v_left > 0 then room - holdfast._bytes(v_other) end;
  v_fresh holdfast._fresh := (null, v_start);
begin
  if v_left > 0 then
    if v_lane.ordering is null then
      v_fresh := holdfast._take_fresh(v_lane, v_start, v_left, v_room, v_other is not null, at);
    else
      v_fresh := holdfast._take_fresh_in_order(v_lane, v_start, v_left, v_room, v_other is not null, at);
    end if;
    if v_other is null and v_fresh.ids is null and pg_sequence_last_value(v_lane.gap_look) > 0 then
      v_other := holdfast._look_at_gaps(v_lane, want, room, at, pg_current_xact_id_if_assigned() is null, false);
    end if;
  end if;
  -- A cursor that only passed messages which cannot be taken leaves a lease without ids, for the next claim to go on from.
  insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, upto,
                              handed, made_by)
  select _take_with_care.token, p.part, v_lane.queue_id, v_lane.id, v_lane.queue_name, v_lane.booted, v_lane.cursor, _take_with_care.consumer,
         at, _take_with_care.deadline, coalesce(p.ids, '{}'), case when p.upto = 0 then p.ids end, p.upto,
         _take_with_care.handed + coalesce(cardinality(v_fresh.ids || v_other), 0), pg_current_xact_id()
  from (values (v_lane.id, v_fresh.ids, v_fresh.upto), (-v_lane.id, v_other, 0)) p(part, ids, upto)
  where p.ids is not null or p.upto > v_start;
  perform holdfast._set_care(v_lane, at);
  -- Where all that was wanted is there, nobody asks.
  return case when v_fresh.ids is null and v_other is null then 0
              when cardinality(v_fresh.ids || v_other) < want then holdfast._bytes(v_fresh.ids || v_other) end;
end $$;
comment on function holdfast._take_with_care is
  'Under the lane lock: lease what a claim takes where the lane is not plain: due messages, what turned up in gaps, fresh ones between exceptions. handed: what this claim got before, in other lanes. Returns how many bytes it took, if it took less than wanted';

create or replace function holdfast._token() returns bigint language sql volatile
  return hashint8extended((random() * 9e18)::bigint, (holdfast._us(clock_timestamp()) << 8) # pg_backend_pid()) & 9223372036854775807;
comment on function holdfast._token is '63 random bits, different in two sessions even where both set the same random seed';

create or replace function holdfast._check_claim(max int, lease interval, consumer text) returns void language plpgsql stable
as $$
begin
  if max is null or max not between 1 and 10000 then
    perform holdfast._fail('QH301', 'max is out of range', format('Got %s.', coalesce(max::text, 'null')), 'max takes 1 to 10,000.');
  end if;
  perform holdfast._check_lease(lease);
  perform holdfast._check_text('consumer', consumer);
  perform holdfast._check_isolation('claim');
end $$;
comment on function holdfast._check_claim is 'Refuse bad arguments of claim, and a transaction it cannot work in';

create or replace function holdfast._limit_transaction() returns void language plpgsql volatile
as $$
begin
  -- A claim left open blocks its lane: unless the caller has limits of its own, the rest of its transaction gets these.
  if current_setting('idle_in_transaction_session_timeout') = '0' then
    perform set_config('idle_in_transaction_session_timeout', '60s', true);
  end if;
  if current_setting('statement_timeout') = '0' then
    perform set_config('statement_timeout', '60s', true);
  end if;
end $$;
comment on function holdfast._limit_transaction is 'Bound how long the caller''s transaction can hold the lane lock: statements and pauses of 60 s';

create or replace function holdfast._is_calm(care_at regclass) returns boolean language sql volatile
  return pg_sequence_last_value(care_at) between holdfast._us(clock_timestamp()) and holdfast._us(clock_timestamp()) + 10000000;
comment on function holdfast._is_calm is 'May a claim do without a look at what the lane needs: is the time for the next one still ahead?';

create or replace function holdfast._set_care(lane holdfast.lane, at timestamptz) returns void language plpgsql volatile
as $$
begin
  perform setval(lane.care_at, greatest(0, least(
    holdfast._us(clock_timestamp()) + pg_sequence_last_value(lane.sweep_at) - holdfast._us(at),
    nullif(pg_sequence_last_value(lane.gap_look), 0) / 10,
    nullif(pg_sequence_last_value(lane.due_walk), 0))));
end $$;
comment on function holdfast._set_care is 'Under the lane lock: say until when claims need no care';

create or replace function holdfast._tend(lane holdfast.lane, at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  v_sweep bigint := coalesce(pg_sequence_last_value(lane.sweep_at), 0);
begin
  if holdfast._us(at) not between v_sweep - 10000000 and v_sweep then
    perform holdfast._sweep_lane(lane, at, pg_current_xact_id_if_assigned() is null);
  end if;
  perform holdfast._set_care(lane, at);
  return coalesce(holdfast._is_calm(lane.care_at), false);
end $$;
comment on function holdfast._tend is
  'Under the lane lock: sweep if it is time, and say until when claims need no care. false: gaps or due messages below the floor are to be looked at now, or the sweep freed something';

create or replace function holdfast._home(token bigint, shards int) returns int language sql stable
  return case when token % 8 = 0 then token / 8 % shards else pg_backend_pid() % shards end;
comment on function holdfast._home is 'The shard that a claim starts with: the session''s own, where it sends to; one time in eight any';

create or replace function holdfast._lane_order(queue text, home int, but int default 0) returns int[] language plpgsql stable
as $$
declare
  v_lanes int[] := array(select l.id from holdfast.lane l where l.queue_name = _lane_order.queue and l.id <> but
                         order by l.priority desc, (l.shard - home + l.shards) % l.shards);
begin
  if v_lanes = '{}' and but = 0 then
    perform holdfast._no_queue(_lane_order.queue);
  end if;
  return v_lanes;
end $$;
comment on function holdfast._lane_order is
  'The lanes of a queue, but for one, in the order of a claim: by priority, each from the shard home on; no queue: an error';

create or replace function holdfast.claim(
  queue text, max int default 1, lease interval default null, consumer text default null, alone boolean default false
) returns setof holdfast.delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_lane holdfast.lane;
  v_home int := 0;
  v_order int[];
  v_turn int := 0;
  v_now timestamptz;
  v_deadline timestamptz;
  v_token bigint := holdfast._token();
  v_left int := max;
  v_handed int := 0;
  v_wait boolean;
  v_waited boolean := false;
  v_relaxed text;
  v_one holdfast.delivery;
  v_start bigint;
  v_above bigint;
  v_made_by xid8;
  v_floor timestamptz;
  v_due timestamptz;
  v_ids bigint[];
  v_taken int;
  v_bytes bigint := 0;
  v_more bigint;
  v_allowed int;
begin
  if max is null or max not between 1 and 10000 or lease is not null or consumer is not null
     or current_setting('transaction_isolation') <> 'read committed' then
    perform holdfast._check_claim(max, lease, consumer);
  end if;
  -- The row as one value: a column each for its many registers would cost a tenth of the whole claim.
  v_lane := (select l from holdfast.lane l where l.queue_name = claim.queue order by l.priority desc, l.shard limit 1);
  if v_lane.shards is distinct from 1 then
    v_home := holdfast._home(v_token, v_lane.shards);
    v_lane := (select l from holdfast.lane l where l.queue_name = claim.queue and l.priority = v_lane.priority and l.shard = v_home);
    if v_lane.id is null then
      v_order := holdfast._lane_order(claim.queue, v_home);
    end if;
  end if;
  if alone is not true then
    perform holdfast._limit_transaction();
  elsif pg_current_xact_id_if_assigned() is null then
    -- A claim has nothing to lose in a crash. It may write a little to the log all the same: reading a page can tidy it up.
    v_relaxed := set_config('synchronous_commit', 'off', true);
  end if;
  loop
    if v_order is not null then
      v_turn := v_turn + 1;
      select l.* into v_lane from holdfast.lane l where l.id = v_order[v_turn];
      exit when not found;
      v_ids := null;
    end if;
    if v_lane.paused or v_lane.throttle is not null then
      exit when v_lane.paused;
      v_allowed := coalesce(v_allowed, holdfast._allowance(v_lane, v_left));
      v_left := least(v_left, v_allowed);
      exit when v_left = 0;
    end if;
    if not pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) then
      -- Another shard may be free; only the last one is worth waiting for, and only once a call.
      v_wait := not v_waited and (v_lane.shard - v_home + v_lane.shards) % v_lane.shards = v_lane.shards - 1;
      v_waited := v_waited or v_wait;
      if not v_wait or not holdfast._await_lane(v_lane) then
        v_order := coalesce(v_order, holdfast._lane_order(claim.queue, v_home, v_lane.id));
        continue;
      end if;
    end if;
    -- Only now: nobody else may have taken the messages, and given them back, since the moment from which the lease counts.
    v_now := holdfast.now();
    if coalesce(pg_sequence_last_value(v_lane.booted) <> holdfast._boot_mark(), true) and holdfast._boot_lane(v_lane) then
      v_order := coalesce(v_order, holdfast._lane_order(claim.queue, v_home, v_lane.id));
      continue;
    end if;

    v_start := pg_sequence_last_value(v_lane.cursor);
    select l.upto, l.made_by into v_above, v_made_by from holdfast.lease l
    where l.lane_id = v_lane.id and l.upto > v_start and l.upto > 0 order by l.upto desc limit 1;
    if v_above is not null then
      v_start := case when v_made_by <> coalesce(pg_current_xact_id_if_assigned(), '0') then setval(v_lane.cursor, v_above) else v_above end;
    end if;
    v_deadline := v_now + coalesce(claim.lease, v_lane.lease);
    -- The plain case: no care is asked for, nothing is due, and the next ids are all there and free to take.
    if v_lane.plain and (holdfast._is_calm(v_lane.care_at) or holdfast._tend(v_lane, v_now)) then
      -- In a variable: a register read within the statement would be no bound for the index.
      v_floor := holdfast._time(pg_sequence_last_value(v_lane.due_floor));
      select m.due_at into v_due from holdfast.message m
      where m.id >> 40 = v_lane.id and m.due_at > '-infinity' and m.due_at <= v_now and m.due_at >= v_floor order by m.due_at limit 1;
      if v_due is null and max = 1 then
        select v_token, m.id, claim.queue, m.payload, m.body, m.content_type, m.headers, v_lane.priority::int, m.key, m.ordering_key,
               m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, v_lane.max_deliveries),
               m.enqueued_at, v_deadline, m.last_error, m.origin
        into v_one
        from holdfast.message m where m.id = v_start and m.due_at is null and (m.expires_at is null or m.expires_at > v_now);
        v_ids := case when found then array[v_start] end;
      elsif v_due is null then
        -- A range no longer than what is wanted: the index scan then stops where the messages do.
        select array_agg(m.id), coalesce(sum(m.payload), 0) + coalesce(sum(m.body), 0) into v_ids, v_more
        from (select m.id, pg_column_size(m.payload) as payload, pg_column_size(m.body) as body from holdfast.message m
              where m.id >= v_start and m.id < v_start + v_left and m.due_at is null and (m.expires_at is null or m.expires_at > v_now)
              order by m.id) m
        having count(*) = max(m.id) - v_start + 1 and coalesce(sum(m.payload), 0) + coalesce(sum(m.body), 0) <= holdfast._answer_bytes() - v_bytes
           and (count(*) = v_left or max(m.id) >= pg_sequence_last_value(v_lane.ids));
      end if;
    end if;

    if v_ids is not null then
      v_taken := cardinality(v_ids);
      insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, lo, upto, handed,
                                  made_by)
      select v_token, v_lane.id, v_lane.queue_id, v_lane.id, claim.queue, v_lane.fence, v_lane.cursor, claim.consumer,
             v_now, v_deadline, v_ids, case when v_taken = claim.max then v_start end, v_start + v_taken, v_handed + v_taken, pg_current_xact_id()
      -- Whoever makes a queue ordered holds its lanes: under the lock it is known whether that happened since the lane was read.
      from holdfast.lane l where l.id = v_lane.id and l.plain;
      v_ids := case when found then v_ids end;
    end if;
    if v_ids is null then
      v_more := holdfast._take_with_care(v_lane.id, v_token, v_left, v_handed, holdfast._answer_bytes() - v_bytes, v_now, v_deadline, claim.consumer);
      return query select h.* from holdfast._held(v_token, v_lane.id) h;
      get diagnostics v_taken = row_count;
    elsif max = 1 then
      return next v_one;
    else
      return query
        select v_token, m.id, claim.queue, m.payload, m.body, m.content_type, m.headers, v_lane.priority::int, m.key, m.ordering_key,
               m.correlation_id, m.tag, coalesce(m.deliveries, 0) + 1, coalesce(m.max_deliveries, v_lane.max_deliveries),
               m.enqueued_at, v_deadline, m.last_error, m.origin
        from holdfast.message m where m.id >= v_start and m.id < v_start + v_taken order by m.id;
    end if;
    if v_taken = max then
      return;
    elsif v_taken > 0 and v_handed > 0 then
      update holdfast.lease l set handed = v_handed + v_taken where l.token = v_token;
    end if;
    v_handed := v_handed + v_taken;
    v_left := v_left - v_taken;
    v_bytes := v_bytes + v_more;
    if v_left <= 0 then
      return;
    end if;
    exit when v_bytes >= holdfast._answer_bytes();
    v_order := coalesce(v_order, holdfast._lane_order(claim.queue, v_home, v_lane.id));
  end loop;
  if v_allowed > 0 then
    perform holdfast._refund(claim.queue, v_left);
  end if;
end $$;
comment on function holdfast.claim is
  'Take up to max messages under a lease. alone: the caller promises that this statement is its own transaction';

create or replace function holdfast._take_exceptions(lane holdfast.lane, want int, room bigint, at timestamptz) returns bigint[]
language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_look bigint := coalesce(pg_sequence_last_value(lane.gap_look), 0);
  v_first timestamptz;
  v_ids bigint[];
begin
  v_first := holdfast._first_due(lane, at, v_clean);
  if v_first is not null and lane.ordering is null then
    v_ids := holdfast._take_due(lane, v_first, at, want, room);
    if v_ids is null and holdfast._end_expired(lane.queue_id, holdfast._expired_due(lane, v_first, at), at) > 0 then
      v_ids := holdfast._take_due(lane, v_first, at, want, room);
    end if;
  elsif v_first is not null then
    v_ids := holdfast._take_due_in_order(lane, v_first, at, want, room);
  end if;
  if v_look > 0 and v_look <= holdfast._us(clock_timestamp()) * 10 and coalesce(cardinality(v_ids), 0) < want then
    v_ids := v_ids || holdfast._look_at_gaps(lane, want - coalesce(cardinality(v_ids), 0),
                                             room - case when v_ids is null then 0 else holdfast._bytes(v_ids) end, at, v_clean, true);
  end if;
  return v_ids;
end $$;
comment on function holdfast._take_exceptions is
  'Under the lane lock: what is due, then what turned up in gaps; at most want, and as many bytes as there is room for';
