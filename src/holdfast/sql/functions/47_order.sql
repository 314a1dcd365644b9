-- Order: who comes first in a line, and how the baton passes.
--
-- The live messages of a queue with one ordering key are a line, by order_no. Only its first, the head, may be
-- handed out; so two of a line are never in flight. A strict queue is one line, under the key ''.
--
-- A line's order is the order of its senders' commits: send draws order_no under a lock on the key, held to the
-- end of its transaction. The locks are hashed into 1,024 buckets a queue and taken in order of their numbers, so any
-- number of keys in one transaction takes at most as many locks.
--
-- parked   A message that claim meets behind a head gets due_at = infinity, while claim holds the head's row FOR KEY
--          SHARE: the head can end only after that is committed, and whoever ends it sees the parked row. If claim cannot
--          have that lock, the head is ending: the message is due again in 20 ms.
-- baton    Whoever ends a head makes the next of its line the head, and due if it was parked: in a statement of its
--          own, after the delete, and locking that row, so that one who cancels it at this moment is waited for and
--          passed over. Rows of a line are locked upwards only.
-- head     Once a head, always a head until it ends: order_no only grows. The mark spares claim the search through
--          a line's dead versions.
--
-- Lock order: rows of a line by order_no; under a lane lock everything SKIP LOCKED: what cannot end without waiting
-- for somebody (its successor is locked) ends a little later.

create or replace function holdfast._shortly() returns interval language sql immutable
  return interval '20 ms';
comment on function holdfast._shortly is 'When a message is looked at again that somebody has his hands on';

create or replace function holdfast._lock_keys(class int, queue_id int, keys text[]) returns void language plpgsql volatile
as $$
declare
  v_bucket int;
begin
  for v_bucket in
    select distinct ((_lock_keys.queue_id::bigint << 10) + (hashtext(k) & 1023) & 2147483647)::int as bucket
    from unnest(keys) k where k is not null order by bucket
  loop
    perform pg_advisory_xact_lock(class, v_bucket);
  end loop;
end $$;
comment on function holdfast._lock_keys is
  'Lock the buckets of these keys until the transaction ends, in order of their numbers; class: which kind of keys (15_lock.sql)';

create or replace function holdfast._pass_baton(queue_id int, keys text[], orders bigint[], heads boolean[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_next bigint[];
  v_parked boolean;
begin
  -- Whoever looks with an old snapshot does not see who was parked since.
  perform holdfast._check_isolation('settling ordered messages');
  -- Of those that were not known to be heads, only lines that nobody is left at the front of.
  select array_agg(e.key order by e.key), array_agg(e.order_no order by e.key) into keys, orders
  from (select e.key, min(e.order_no) as order_no, bool_or(e.head) as head
        from unnest(keys, orders, heads) e(key, order_no, head) group by e.key) e
  where e.head or not exists (
    select from (select from holdfast.message m where m.queue_id = _pass_baton.queue_id and m.ordering_key = e.key
                 and m.order_no < e.order_no order by m.order_no limit 1 offset 0) before);
  -- One that is being cancelled is waited for, and then passed over.
  v_next := array(
    select n.id from unnest(keys, orders) e(key, order_no) cross join lateral (
      select m.id from holdfast.message m
      where m.queue_id = _pass_baton.queue_id and m.ordering_key = e.key and m.order_no > e.order_no
      order by m.order_no limit 1 for update) n);
  with woken as (
    update holdfast.message m set head = true, due_at = case when m.due_at = 'infinity' and m.blocks_since is null then at else m.due_at end
    where m.id = any (v_next) and (m.head is not true or m.due_at = 'infinity')
    returning m.due_at = at as parked
  )
  select bool_or(w.parked) into v_parked from woken w;
  if v_parked then
    perform holdfast._wake(q) from holdfast.queue q where q.id = _pass_baton.queue_id;
  end if;
end $$;
comment on function holdfast._pass_baton is
  'After messages of these ordering keys ended: the next of each line is its head, and due if it was parked. heads: known to have been heads';

create or replace function holdfast._can_end(queue_id int, ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_ids bigint[];
  v_next bigint[];
  v_locked bigint[];
begin
  select array_agg(m.id), array_agg(n.id) into v_ids, v_next
  from holdfast.message m cross join lateral (
    select n.id from holdfast.message n where n.queue_id = _can_end.queue_id and n.ordering_key = m.ordering_key
      and n.order_no > m.order_no order by n.order_no limit 1) n
  where m.id = any (_can_end.ids) and m.ordering_key is not null;
  if v_ids is null then
    return ids;
  end if;
  v_locked := array(select m.id from holdfast.message m where m.id = any (v_next) for update skip locked);
  return array(select i from unnest(ids) i where i not in (
    select s.id from unnest(v_ids, v_next) s(id, next) where s.next not in (select unnest(v_locked))));
end $$;
comment on function holdfast._can_end is
  'Which of these locked messages can end without waiting: those whose successor, if there is one, is locked by this call';

create or replace function holdfast._firsts(queue_id int, ids bigint[]) returns jsonb language plpgsql volatile
as $$
begin
  return (
    select jsonb_object_agg(k.ordering_key, f.id)
    from (select distinct m.ordering_key from holdfast.message m
          where m.id = any (_firsts.ids) and m.ordering_key is not null and m.head is not true) k
      cross join lateral (select m.id from holdfast.message m
                          where m.queue_id = _firsts.queue_id and m.ordering_key = k.ordering_key order by m.order_no limit 1) f);
end $$;
comment on function holdfast._firsts is 'The first of each line that these messages stand in, by ordering key; of heads it need not be asked';

create or replace function holdfast._park(lane holdfast.lane, ids bigint[], behind bigint[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_locked bigint[];
  v_busy bigint[];
  v_firm bigint[];
begin
  v_locked := array(select m.id from holdfast.message m where m.id = any (_park.ids) for update skip locked);
  if cardinality(v_locked) < cardinality(ids) then
    v_busy := array(select i from unnest(ids) i where i not in (select unnest(v_locked)));
    perform holdfast._open_gaps(lane, v_busy, v_busy, false);
  end if;
  v_firm := array(select m.id from holdfast.message m where m.id = any (array(select distinct b from unnest(behind) b))
                  for key share skip locked);
  update holdfast.message m set due_at = 'infinity'
  where m.id = any (array(select p.id from unnest(ids, behind) p(id, behind)
                          where p.id in (select unnest(v_locked)) and p.behind in (select unnest(v_firm))));
  update holdfast.message m set due_at = at + holdfast._shortly()
  where m.id = any (array(select p.id from unnest(ids, behind) p(id, behind)
                          where p.id in (select unnest(v_locked)) and (p.behind in (select unnest(v_firm))) is not true));
end $$;
comment on function holdfast._park is
  'Under the lane lock: park messages behind the heads of their lines, if those are held meanwhile; else look again shortly. A message that somebody has locked becomes a gap';

create or replace function holdfast._in_order(
  lane holdfast.lane, ids bigint[], want int, at timestamptz, out taken bigint[], out last bigint)
language plpgsql volatile
as $$
declare
  v_first jsonb := holdfast._firsts(lane.queue_id, ids);
  v_blocked bigint[];
  v_behind bigint[];
begin
  with candidate as (
    select c.id, c.nth, (v_first ->> m.ordering_key)::bigint as first,
           (m.ordering_key is null or m.head is true or (v_first ->> m.ordering_key)::bigint is not distinct from c.id)::int as free
    from unnest(ids) with ordinality c(id, nth) cross join lateral (select m.* from holdfast.message m where m.id = c.id offset 0) m
  ), counted as (
    select c.*, sum(c.free) over (order by c.nth) as frees from candidate c
  ), kept as (
    select c.* from counted c where c.frees - c.free < want and (c.frees < want or c.free = 1)
  )
  select array_agg(k.id order by k.nth) filter (where k.free = 1), array_agg(k.id) filter (where k.free = 0),
         array_agg(k.first) filter (where k.free = 0), max(k.id) filter (where k.frees = want)
  into taken, v_blocked, v_behind, last from kept k;
  if v_blocked is not null then
    perform holdfast._park(lane, v_blocked, v_behind, at);
  end if;
end $$;
comment on function holdfast._in_order is
  'Under the lane lock: the first want of these messages that are heads or stand in no line; those met before that are blocked are parked. last: where want was reached; null: it was not';

create or replace function holdfast._take_due_in_order(lane holdfast.lane, first timestamptz, at timestamptz, want int) returns bigint[]
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_rows int := want;
  v_ids bigint[];
  v_over bigint[];
  v_free bigint[];
  v_taken bigint[];
  v_bytes bigint := 0;
  v_full boolean := false;
begin
  loop
    select array_agg(c.id order by c.due_at, c.id) filter (where c.over is not true), array_agg(c.id) filter (where c.over)
    into v_ids, v_over
    from (select m.id, m.due_at, m.expires_at <= at as over from holdfast.message m
          where m.id >> 40 = lane.id and m.due_at > '-infinity' and m.due_at >= first and m.due_at <= at
          order by m.due_at, m.id limit v_rows for update skip locked) c;
    if v_over is not null then
      perform holdfast._end_expired(lane.queue_id, v_over, at);
    end if;
    exit when v_ids is null and v_over is null;
    if v_ids is not null then
      v_free := (holdfast._in_order(lane, v_ids, want, at)).taken;
      with sized as (
        select c.id, c.nth, coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.body), 0) as bytes
        from unnest(v_free) with ordinality c(id, nth) join holdfast.message m on m.id = c.id
      ), fitting as (
        select f.id, f.nth, f.upto from (select s.*, v_bytes + sum(s.bytes) over (order by s.nth) as upto from sized s) f
        where f.upto - f.bytes < holdfast._answer_bytes()
      ), held as (
        update holdfast.message m set due_at = '-infinity' from fitting f where m.id = f.id returning m.id, f.nth, f.upto
      )
      select array_agg(h.id order by h.nth), coalesce(max(h.upto), v_bytes) into v_free, v_bytes from held h;
      v_full := v_bytes >= holdfast._answer_bytes();
      v_taken := v_taken || v_free;
      want := want - coalesce(cardinality(v_free), 0);
    end if;
    exit when want <= 0 or v_full or clock_timestamp() > v_began + interval '20 ms';
    v_rows := least(500, greatest(v_rows * 4, 50));
  end loop;
  return v_taken;
end $$;
comment on function holdfast._take_due_in_order is
  'Under the lane lock: as _take_due, in a lane with order: what is due and blocked is parked, for about 20 ms';

create or replace function holdfast._take_fresh_in_order(lane holdfast.lane, start bigint, want int, taken boolean, at timestamptz)
returns holdfast._fresh language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_fresh holdfast._fresh := (null, start);
  v_end bigint := (lane.id + 1)::bigint << 40;
  v_rows int := want;
  v_scanned bigint := 0;
  v_clean boolean;
  v_scan record;
  v_good record;
begin
  if lane.ordering = 'strict' then
    want := 1;
    v_rows := 1;
  end if;
  loop
    v_clean := pg_current_xact_id_if_assigned() is null;
    v_scan := holdfast._scan(v_fresh.upto, v_end - 1, v_rows, v_rows, taken, at, interval '10 ms');
    exit when v_scan.next is null;
    if v_scan.expired is not null then
      perform holdfast._end_expired(lane.queue_id, v_scan.expired, at);
    end if;
    if v_scan.ids is not null then
      -- A strict queue waits for its head: what is blocked stays ahead of the cursor, and is not touched.
      exit when lane.ordering = 'strict' and not holdfast._is_first(lane.queue_id, v_scan.ids[1]);
      v_good := holdfast._in_order(lane, v_scan.ids, want, at);
      v_fresh.ids := v_fresh.ids || v_good.taken;
      want := want - coalesce(cardinality(v_good.taken), 0);
      if v_good.last + 1 < v_scan.next then
        -- Enough before the end of the window: what lies behind is for the next claim.
        v_scan.next := v_good.last + 1;
        v_scan.expired := array(select e from unnest(v_scan.expired) e where e < v_scan.next);
        select array_agg(g.lo), array_agg(g.hi) into v_scan.gap_lo, v_scan.gap_hi
        from unnest(v_scan.gap_lo, v_scan.gap_hi) g(lo, hi) where g.lo < v_scan.next;
      end if;
    end if;
    if v_scan.gap_lo is not null then
      perform holdfast._open_gaps(lane, v_scan.gap_lo, v_scan.gap_hi, v_clean);
    end if;
    if v_scan.expired <> '{}' then
      perform holdfast._remember_expired(lane, v_scan.expired);
    end if;
    v_fresh.upto := v_scan.next;
    v_scanned := v_scanned + v_rows;
    taken := taken or v_fresh.ids is not null;
    exit when want <= 0 or v_scan.stopped or not v_scan."full" or v_scanned >= 10000 or clock_timestamp() > v_began + interval '20 ms';
    v_rows := case when lane.ordering = 'strict' then 1 else least(500, greatest(v_rows * 4, 50)) end;
  end loop;
  return v_fresh;
end $$;
comment on function holdfast._take_fresh_in_order is
  'Under the lane lock: as _take_fresh, in a lane with order: parks what is blocked, for about 20 ms';

create or replace function holdfast._is_first(queue_id int, id bigint) returns boolean language plpgsql volatile
as $$
declare
  v_first jsonb := holdfast._firsts(_is_first.queue_id, array[_is_first.id]);
begin
  return coalesce((select m.ordering_key is null or m.head is true or (v_first ->> m.ordering_key)::bigint = m.id
                   from holdfast.message m where m.id = _is_first.id), false);
end $$;
comment on function holdfast._is_first is 'Is this message the head of its line, or in none?';

create or replace function holdfast._orphans(queue_id int, ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_first jsonb := holdfast._firsts(_orphans.queue_id, ids);
begin
  -- Whoever was first a moment ago is first still: nobody can have parked it since.
  return array(
    select m.id from unnest(ids) i(id) cross join lateral (
      select m.* from holdfast.message m where m.id = i.id and m.due_at = 'infinity' and m.blocks_since is null offset 0) m
    where m.ordering_key is null or m.head is true or m.id = (v_first ->> m.ordering_key)::bigint);
end $$;
comment on function holdfast._orphans is 'Which of these messages are parked behind nobody';
