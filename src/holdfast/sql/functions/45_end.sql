-- The end of messages. Outside the short way of ack, a message ends here and nowhere else, or moves to another queue.
--
-- A queue that keeps an outcome has its messages go to the archive in the same statement: what was deleted is what was
-- kept, whoever else is at them. The queue in which a message lies when it ends decides.

create or replace function holdfast._end(
  queue_id int, ids bigint[], outcome text, at timestamptz, consumer text default null, claimed_at timestamptz default null)
returns bigint[] language plpgsql volatile
as $$
declare
  v_kept boolean := exists (select from holdfast.queue q where q.id = _end.queue_id and _end.outcome = any (q.keep));
  v_ended bigint[];
  v_keys text[];
  v_orders bigint[];
  v_heads boolean[];
begin
  if v_kept then
    with ended as (
      delete from holdfast.message m where m.id = any (_end.ids) returning m.*
    ), kept as (
      insert into holdfast.archive (id, queue_id, outcome, ended_at, deliveries, enqueued_at, due_at, expires_at, payload, body,
                                    content_type, headers, tag, correlation_id, key, idempotency_key, payload_hash, ordering_key,
                                    order_no, failures, max_deliveries, last_error, origin, consumer, claimed_at)
      -- The delivery that an ack ends was not counted yet.
      select e.id, e.queue_id, _end.outcome, at, case when _end.outcome = 'done' then coalesce(e.deliveries, 0) + 1 else e.deliveries end,
             e.enqueued_at, e.due_at, e.expires_at, e.payload, e.body, e.content_type, e.headers, e.tag, e.correlation_id, e.key,
             e.idempotency_key, e.payload_hash, e.ordering_key, e.order_no, e.failures, e.max_deliveries, e.last_error, e.origin,
             _end.consumer, _end.claimed_at
      from ended e
    )
    select coalesce(array_agg(e.id order by e.id), '{}'), array_agg(e.ordering_key) filter (where e.ordering_key is not null),
           array_agg(e.order_no) filter (where e.ordering_key is not null),
           array_agg(e.head is true or outcome in ('done', 'failed')) filter (where e.ordering_key is not null)
    into v_ended, v_keys, v_orders, v_heads from ended e;
  else
    with ended as (
      delete from holdfast.message m where m.id = any (_end.ids) returning m.id, m.ordering_key, m.order_no, m.head
    )
    select coalesce(array_agg(e.id order by e.id), '{}'), array_agg(e.ordering_key) filter (where e.ordering_key is not null),
           array_agg(e.order_no) filter (where e.ordering_key is not null),
           array_agg(e.head is true or outcome in ('done', 'failed')) filter (where e.ordering_key is not null)
    into v_ended, v_keys, v_orders, v_heads from ended e;
  end if;
  if v_keys is not null then
    perform holdfast._pass_baton(_end.queue_id, v_keys, v_orders, v_heads, at);
  end if;
  perform holdfast._count(_end.queue_id, _end.outcome, cardinality(v_ended));
  return v_ended;
end $$;
comment on function holdfast._end is 'End messages as done, expired, failed or discarded, and keep them if the queue says so, with who did it and since when; returns those that were there';

create or replace function holdfast._still_alive(queue holdfast.queue, ids bigint[], at timestamptz) returns bigint[] language plpgsql volatile
as $$
declare
  v_over bigint[];
begin
  if not queue.expire_in_flight then
    return _still_alive.ids;
  end if;
  v_over := array(select m.id from holdfast.message m where m.id = any (_still_alive.ids) and m.expires_at <= at);
  if v_over = '{}' then
    return _still_alive.ids;
  end if;
  perform holdfast._end(queue.id, v_over, 'expired', at);
  return array(select i from unnest(_still_alive.ids) i where i not in (select unnest(v_over)));
end $$;
comment on function holdfast._still_alive is
  'Of messages that just left a lease, those that live on: with expire_in_flight, what is past its time to live ends here';

create or replace function holdfast._take_from_leases(ids bigint[]) returns bigint[] language plpgsql volatile
as $$
declare
  v_lease record;
  v_mine bigint[];
  v_out bigint[] := '{}';
begin
  for v_lease in select distinct h.token, h.part from holdfast._holders(_take_from_leases.ids) h order by 1, 2 loop
    select l.ids into v_mine from holdfast.lease l where l.token = v_lease.token and l.part = v_lease.part for update skip locked;
    continue when not found;
    v_mine := array(select m.id from holdfast.message m
                    where m.id = any (array(select i from unnest(v_mine) i where i in (select unnest(_take_from_leases.ids))))
                    for update skip locked);
    continue when v_mine = '{}';
    update holdfast.lease l set ids = array(select i from unnest(l.ids) i where i not in (select unnest(v_mine))), lo = null
    where l.token = v_lease.token and l.part = v_lease.part;
    v_out := v_out || v_mine;
  end loop;
  return v_out;
end $$;
comment on function holdfast._take_from_leases is
  'Under the lane lock: take messages away from whoever holds them, but for those that somebody is settling at this moment; returns those taken, locked';

create or replace function holdfast._pass_to(lane holdfast.lane, upto bigint, at timestamptz) returns void language plpgsql volatile
as $$
begin
  insert into holdfast.lease (token, part, queue_id, lane_id, queue_name, booted, cursor, deadline, ids, upto, made_by)
  values (holdfast._token(), lane.id, lane.queue_id, lane.id, lane.queue_name, lane.booted, lane.cursor, at, '{}', _pass_to.upto,
          pg_current_xact_id());
end $$;
comment on function holdfast._pass_to is
  'Under the lane lock: let the cursor pass to this id once this transaction has committed; a lease without ids says so';
