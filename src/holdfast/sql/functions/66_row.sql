-- Rows: messages as rows that a statement of somebody else selects, locks and takes (by_row).
--
-- holdfast.row_message shows them, in the order of their ids by an index of its own, and can be read for update: it has no
-- join, so nothing but messages is locked. What it shows of leases is what the statement's snapshot knows. So a row that
-- is to be had by it may have been claimed since: take() decides, under the lane lock and with a new snapshot. What it takes
-- is held as by the due path (due_at = -infinity), also ahead of the cursor and in gaps: claims pass it by.
--
-- Where nobody claims but by rows, nothing moves the cursor. So take() lets it pass what has been taken, a thousand
-- ids at a time; sends that are open then are written down as gaps.
-- Lock order: as in a claim.

-- Far dearer than it is: where the planner has no figures of a queue, it believes that there is next to nothing in it, and
-- would rather sort that than walk an index that has the order. As it is, it has reason not to look at one row too many.
create or replace function holdfast.hold(id bigint, due_at timestamptz) returns holdfast.hold
language plpgsql stable security definer cost 20000 set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_hold holdfast.hold;
begin
  select h.token, h.consumer, h.deadline into v_hold from holdfast._holders(array[hold.id]) h;
  if v_hold.token is null and hold.due_at = '-infinity' and holdfast._is_ours((hold.id >> 40)::int) then
    -- In somebody's hands all the same. Where the lane has not been booted here, a crash took it out of them.
    v_hold.deadline := 'infinity';
  end if;
  return v_hold;
end $$;
comment on function holdfast.hold is
  'In whose lease a message with this id and due_at is, as far as the snapshot of the statement goes; all null: in nobody''s';

-- Who names a queue has said that row_of is not null. The planner would count that twice, and expect too few, if this said it
-- as plainly.
create or replace view holdfast.row_message as
  select m.id, m.row_of as queue, m.payload, m.body, m.content_type, m.headers, m.correlation_id, m.tag, m.key,
         coalesce(m.deliveries, 0)
           + case when m.due_at is null or m.due_at = '-infinity' then ((holdfast.hold(m.id, m.due_at)).deadline is not null)::int else 0 end as deliveries,
         coalesce(m.max_deliveries, (select q.max_deliveries from holdfast.queue q where q.name = m.row_of)) as max_deliveries,
         case when m.due_at is null or m.due_at = '-infinity' then coalesce((holdfast.hold(m.id, m.due_at)).deadline, least(m.enqueued_at, now()))
              else m.due_at end as visible_at,
         case when m.due_at is null or m.due_at = '-infinity' then (holdfast.hold(m.id, m.due_at)).token end as token,
         case when m.due_at is null or m.due_at = '-infinity' then (holdfast.hold(m.id, m.due_at)).consumer end as consumer,
         m.enqueued_at, m.expires_at, m.last_error, m.origin
  from holdfast.message m where coalesce(m.row_of, '') <> '';
comment on view holdfast.row_message is
  'The messages of queues with by_row. deliveries counts the one under way; visible_at: from when on a message can be taken, of one in flight the deadline';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.row_message for each row execute function holdfast._refuse_write();

create or replace view holdfast.row_queue as
  select q.name as queue, q.created_at, q.paused, q.lease, q.max_deliveries, q.dead_letter, q.max_payload, q.config -> 'annotations' as annotations
  from holdfast.queue q where q.row_of is not null;
comment on view holdfast.row_queue is 'The queues with by_row, and what holds for them';
create or replace trigger refuse_write instead of insert or update or delete on holdfast.row_queue for each row execute function holdfast._refuse_write();

create or replace function holdfast._check_take(queue holdfast.queue, ids bigint[], lease interval, consumer text) returns void language plpgsql stable
as $$
begin
  if queue.row_of is null then
    perform holdfast._fail('QH104', format('the messages of "%s" are no rows', queue.name), 'It was made without by_row.',
      'Claim from it, or make a queue with {"by_row": true}.');
  end if;
  if cardinality(ids) > 10000 then
    perform holdfast._fail('QH301', 'too many ids', format('Got %s.', cardinality(ids)), 'One call takes at most 10,000 messages.');
  end if;
  perform holdfast._check_lease(lease);
  perform holdfast._check_text('consumer', consumer);
  perform holdfast._check_isolation('take');
end $$;
comment on function holdfast._check_take is 'Refuse bad arguments of take, a queue without rows, and a transaction it cannot work in';

create or replace function holdfast._free_lapsed(lane holdfast.lane, ids bigint[], at timestamptz) returns void language plpgsql volatile
as $$
declare
  -- The sum keeps the planner off the index of deadlines, where it would read all leases that are over.
  v_leases tid[] := array(
    select o.place from (select distinct h.token, h.part from holdfast._holders(_free_lapsed.ids) h where h.deadline <= at) h
      cross join lateral (select l.ctid as place from holdfast.lease l
                          where l.token = h.token and l.part = h.part and l.deadline + interval '0' <= at for update skip locked) o);
begin
  if v_leases <> '{}' then
    perform holdfast._end_leases(lane, v_leases, at);
  end if;
end $$;
comment on function holdfast._free_lapsed is 'Under the lane lock: end the leases in which these messages are, if they are over';

create or replace function holdfast._take_ids(lane holdfast.lane, ids bigint[], at timestamptz, want int) returns bigint[] language plpgsql volatile
as $$
declare
  v_held bigint[] := array(select h.id from holdfast._holders(_take_ids.ids) h);
  v_taken bigint[];
  v_over bigint[];
begin
  with candidate as (
    select m.id, m.expires_at <= at as over from holdfast.message m
    where m.id = any (_take_ids.ids) and m.id <> all (v_held) and (m.due_at is null or (m.due_at > '-infinity' and m.due_at <= at))
    order by m.id limit want for update skip locked
  ), taken as (
    update holdfast.message m set due_at = '-infinity' from candidate c where m.id = c.id returning m.id, c.over
  )
  select array_agg(t.id order by t.id) filter (where t.over is not true), array_agg(t.id) filter (where t.over) into v_taken, v_over from taken t;
  if v_over is not null then
    perform holdfast._end(lane.queue_id, v_over, 'expired', at);
  end if;
  return v_taken;
end $$;
comment on function holdfast._take_ids is
  'Under the lane lock: mark those of these messages that can be claimed now as held, and return their ids, at most so many; those past their time to live end';

create or replace function holdfast._pass_taken(lane holdfast.lane, at timestamptz) returns void language plpgsql volatile
as $$
declare
  v_clean boolean := pg_current_xact_id_if_assigned() is null;
  v_start bigint := holdfast._advance(lane);
  v_last bigint := coalesce(pg_sequence_last_value(lane.ids), 0);
  v_first bigint;
begin
  select coalesce(min(s.id) filter (where s.due_at is null), case when count(*) = 1000 then max(s.id) else v_last end + 1) into v_first
  from (select m.id, m.due_at from holdfast.message m
        where m.id >= v_start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 1000) s;
  if v_first >= v_start + 1000 then
    -- What is there of these ids is held, or due some time: a look at the gap leaves it alone.
    perform holdfast._open_gaps(lane, array[v_start], array[v_first - 1], v_clean);
    perform holdfast._pass_to(lane, v_first, at);
  end if;
end $$;
comment on function holdfast._pass_taken is
  'Under the lane lock: let the cursor pass what was taken by its id, and what lies scheduled between, if that is a thousand ids at least';

create or replace function holdfast.take(
  queue text, ids bigint[], lease interval default null, consumer text default null, patient boolean default true)
returns setof holdfast.delivery
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(take.queue);
  v_lane holdfast.lane;
  v_token bigint := holdfast._token();
  v_now timestamptz;
  v_mine bigint[];
  v_taken bigint[];
  v_allowed int;
  v_handed int := 0;
begin
  perform holdfast._check_take(v_queue, take.ids, take.lease, take.consumer);
  perform holdfast._limit_transaction();
  for v_lane in
    select l.* from holdfast.lane l where l.queue_id = v_queue.id and l.id in (select i >> 40 from unnest(take.ids) i) order by l.priority desc, l.shard
  loop
    continue when v_lane.paused;
    if not pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) then
      continue when patient is not true or not holdfast._await_lane(v_lane);
    end if;
    -- Only now, as in a claim.
    v_now := holdfast.now();
    continue when holdfast._boot_lane(v_lane);
    v_mine := array(select i from unnest(take.ids) i where i >> 40 = v_lane.id);
    if v_lane.throttle is not null then
      v_allowed := holdfast._allowance(v_lane, cardinality(v_mine));
    end if;
    perform holdfast._advance(v_lane);
    perform holdfast._free_lapsed(v_lane, v_mine, v_now);
    v_taken := holdfast._take_ids(v_lane, v_mine, v_now, v_allowed);
    if v_allowed > coalesce(cardinality(v_taken), 0) then
      perform holdfast._refund(v_queue.name, v_allowed - coalesce(cardinality(v_taken), 0));
    end if;
    continue when v_taken is null;
    v_handed := v_handed + cardinality(v_taken);
    insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, consumer, claimed_at, deadline, ids, scattered, upto,
                                handed, made_by)
    values (v_token, -v_lane.id, v_lane.queue_id, v_lane.id, v_lane.queue_name, v_lane.booted, v_lane.cursor, take.consumer, v_now,
            v_now + coalesce(take.lease, v_lane.lease), v_taken, v_taken, 0, v_handed, pg_current_xact_id());
    if v_taken[1] >= pg_sequence_last_value(v_lane.cursor) + 1000 then
      perform holdfast._pass_taken(v_lane, v_now);
    end if;
  end loop;
  update holdfast.lease l set handed = v_handed where l.token = v_token and l.handed <> v_handed;
  return query select h.* from holdfast._held(v_token, null) h;
end $$;
comment on function holdfast.take is
  'Take these messages of a queue with by_row under a lease, as far as they can be claimed now. patient: wait a little for whoever claims at this moment';

create or replace function holdfast._bury_spent(lane holdfast.lane, at timestamptz, want int) returns int language plpgsql volatile
as $$
declare
  v_first timestamptz := holdfast._first_overdue(lane, at, false);
  v_leases tid[] := array(
    select l.ctid from holdfast.lease l
    where l.lane_id = lane.id and l.deadline >= v_first and l.deadline <= at
    order by l.deadline limit want for update skip locked);
begin
  if v_leases = '{}' then
    return 0;
  end if;
  perform holdfast._advance(lane);
  return (holdfast._end_leases(lane, v_leases, at, true)).freed;
end $$;
comment on function holdfast._bury_spent is 'Under the lane lock: of the messages in leases that are over, at most so many leases, end those that have used up their deliveries';

create or replace function holdfast.bury_spent(queue text default null) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_at timestamptz := holdfast.now();
  v_lane holdfast.lane;
  v_buried int := 0;
begin
  perform holdfast._check_isolation('bury_spent');
  if bury_spent.queue is not null then
    perform holdfast._work_queue(bury_spent.queue);
  end if;
  for v_lane in
    select l.* from holdfast.queue q join holdfast.lane l on l.queue_id = q.id
    where q.row_of is not null and (bury_spent.queue is null or q.name = bury_spent.queue)
      and (select e.deadline from holdfast.lease e
           where e.lane_id = l.id and e.deadline <= v_at and e.deadline >= holdfast._time(coalesce(pg_sequence_last_value(l.lease_floor), 0))
           order by e.deadline limit 1) is not null
    order by l.id
  loop
    -- Whoever has the lane is at it, or in a hurry: the next call comes soon.
    continue when not pg_try_advisory_xact_lock(holdfast._lane_lock(), v_lane.id) or holdfast._boot_lane(v_lane);
    v_buried := v_buried + holdfast._bury_spent(v_lane, v_at, 200);
  end loop;
  return v_buried;
end $$;
comment on function holdfast.bury_spent is
  'Bury the messages of a queue with by_row (null: of all of them) whose last delivery has run out, and leave those that have another; returns how many. It waits for nobody';
