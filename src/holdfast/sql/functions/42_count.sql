-- Counters: what happened to messages besides the plain way of send, claim and ack.
--
-- Each is a logged sequence of the queue. Drawing from one takes no lock that anybody waits for and leaves no dead row.
-- It is not transactional: what was rolled back stays counted, and a crash may add up to 32.
-- Sent and done are not counted at all: the first is how many ids were drawn, the second what is left of it.

create or replace function holdfast._counted() returns text[] language sql immutable
  return '{nacked,lapsed,dead,failed,expired,discarded,moved}'::text[];
comment on function holdfast._counted is 'What is counted, in the order of queue.counters';

create or replace function holdfast._make_counters(queue_id int) returns regclass[] language plpgsql volatile
as $$
begin
  return array(select holdfast._make_sequence('sequence', k.kind || '_' || _make_counters.queue_id, '')
               from unnest(holdfast._counted()) with ordinality k(kind, n) order by k.n);
end $$;
comment on function holdfast._make_counters is 'Make the counters of a queue';

create or replace function holdfast._count(queue_id int, kind text, messages int) returns void language plpgsql volatile
as $$
begin
  if messages > 0 and kind = any (holdfast._counted()) then
    perform nextval(q.counters[array_position(holdfast._counted(), _count.kind)])
    from holdfast.queue q cross join lateral generate_series(1, messages) where q.id = _count.queue_id;
  end if;
end $$;
comment on function holdfast._count is 'Count something that happened to messages of a queue; what is not counted (done) passes';

create or replace function holdfast._counts(queue holdfast.queue) returns bigint[] language plpgsql stable
as $$
begin
  return array(select coalesce(pg_sequence_last_value(c.counter), 0) from unnest(queue.counters) with ordinality c(counter, n) order by c.n);
end $$;
comment on function holdfast._counts is 'The counters of a queue, in the order of _counted()';

do $$
begin
  -- Queues that were made before there were counters.
  update holdfast.queue q set counters = holdfast._make_counters(q.id) where q.counters is null;
end $$;
