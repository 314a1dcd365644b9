-- why(): why is nothing moving?
--
-- One row for each thing that keeps messages from moving, or soon will, with what to do about it. A check is a function
-- that returns findings, none if there is nothing to say; they are listed in _findings(), one line each. All look at a
-- bounded number of rows, whatever lies in the queue; nothing is changed and nobody is waited for.
--
-- severity: blocking (nothing moves because of it), warning (somebody should act), info (so it is meant to be), ok

create or replace function holdfast._several(n bigint, what text) returns text language sql immutable
  return case when n = 1 then '1 ' || what else n || ' ' || what || 's' end;
comment on function holdfast._several is 'A number of things, in words';

create or replace function holdfast._why_state(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_next timestamptz;
begin
  if queue.paused then
    return next ('paused', 'blocking', 'The queue is paused: claims get nothing.', jsonb_build_object('ready', stats.ready),
      'Resume it: select holdfast.resume_queue(''' || queue.name || ''').')::holdfast.finding;
  end if;
  if stats.depth = 0 then
    return next ('empty', 'info', format('The %s is empty: there is nothing to hand out.', queue.kind), jsonb_build_object('counters', stats.counters),
      format('Look whether producers send to this %s, and whether their transactions commit.', queue.kind))::holdfast.finding;
  end if;
  if stats.ready = 0 and stats.scheduled > 0 then
    v_next := (select min(d.due_at) from holdfast.lane l cross join lateral (
      select m.due_at from holdfast.message m where m.id >> 40 = l.id and m.due_at > at and m.due_at < 'infinity' order by m.due_at limit 1) d
      where l.queue_id = queue.id);
    return next ('scheduled', 'info', format(case when stats.scheduled = 1 then '%s waits for its time; it is due at %s.' else '%s wait for their time; the next one is due at %s.' end,
             holdfast._several(stats.scheduled, 'message'), v_next),
      jsonb_build_object('scheduled', stats.scheduled, 'next_due_at', v_next),
      'Wait, or look at delay, deliver_at and backoff: they decide when.')::holdfast.finding;
  end if;
  if stats.depth >= queue.max_depth then
    return next ('full', 'warning', format('The queue holds %s messages of at most %s: sends are refused.', stats.depth, queue.max_depth),
      jsonb_build_object('depth', stats.depth, 'max_depth', queue.max_depth),
      'Consume faster, or raise max_depth with holdfast.configure_queue.')::holdfast.finding;
  end if;
  if stats.dead > 0 then
    return query select * from holdfast._why_dead(queue, stats.dead);
  end if;
end $$;
comment on function holdfast._why_state is 'Findings: paused, empty, scheduled, full, dead';

create or replace function holdfast._why_dead(queue holdfast.queue, dead bigint) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_last record;
begin
  -- The newest dead letters of all lanes of the dead-letter queue; those of other queues may lie between them.
  select d.id, d.enqueued_at, d.last_error into v_last from holdfast.queue g join holdfast.lane l on l.queue_id = g.id cross join lateral (
    select m.* from (select m.id, m.enqueued_at, m.last_error, m.origin from holdfast.message m
                     where m.id >= l.id::bigint << 40 and m.id < (l.id + 1)::bigint << 40 order by m.id desc limit 100) m
    where m.origin ->> 'queue' = queue.name limit 1) d
  where g.name = queue.dead_letter order by d.enqueued_at desc limit 1;
  return next ('dead', case when dead < 100 then 'info' else 'warning' end,
    format('%s of this queue in %s%s.', holdfast._several(dead, 'dead letter'), queue.dead_letter,
           ', the last one with: ' || coalesce(left(v_last.last_error, 200), 'no error text')),
    jsonb_strip_nulls(jsonb_build_object('dead', dead, 'dead_letter', queue.dead_letter, 'last_id', v_last.id::text, 'last_error', left(v_last.last_error, 1000),
                                         'last_died_at', v_last.enqueued_at)),
    format('Look at holdfast.browse(''%1$s'', ''dead''), mend the cause, then holdfast.redrive(''%1$s'') or holdfast.discard.', queue.name))::holdfast.finding;
end $$;
comment on function holdfast._why_dead is 'Finding: dead letters lie about';

create or replace function holdfast._why_leases(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_held record;
begin
  if stats.in_flight = 0 then
    return;
  end if;
  with held as materialized (
    select s.consumer, cardinality(s.ids) as messages, s.deadline from holdfast.lane l cross join lateral (
      select e.consumer, e.ids, e.deadline from holdfast.lease e where e.lane_id = l.id and e.ids <> '{}' order by e.deadline limit 1000) s
    where l.queue_id = queue.id
  ), by_consumer as (
    select h.consumer, sum(h.messages) as messages, min(h.deadline) as first_deadline, max(h.deadline) as last_deadline
    from held h group by h.consumer order by sum(h.messages) desc limit 5
  )
  select (select min(h.deadline) filter (where h.deadline > at) from held h) as next, (select max(h.deadline) from held h) as last,
         (select coalesce(sum(h.messages) filter (where h.deadline <= at), 0) from held h) as lapsed,
         (select coalesce(jsonb_agg(to_jsonb(c)), '[]') from by_consumer c) as consumers
  into v_held;
  if v_held.lapsed > 0 then
    return next ('leases_expired', 'warning',
      format('%s %s in leases that have run out%s: the consumers are gone, or too slow.', holdfast._several(v_held.lapsed, 'message'),
             case when v_held.lapsed = 1 then 'is' else 'are' end, case when v_held.next is null then ', and no lease still runs' else '' end),
      jsonb_build_object('expired', v_held.lapsed, 'in_flight', stats.in_flight, 'all', v_held.next is null, 'consumers', v_held.consumers),
      format('They come back with the next claim, or now: select holdfast.sweep(''%s''). If it happens often, make lease longer or call holdfast.extend.', queue.name))::holdfast.finding;
  end if;
  -- In a strict queue the others wait for the one that is in flight, though they are counted as ready.
  if (stats.ready = 0 or queue.ordering = 'strict') and v_held.next is not null then
    return next ('in_flight', 'info', format('%s in flight and none can be claimed; the next lease ends at %s.', holdfast._several(stats.in_flight, 'message'), v_held.next),
      jsonb_build_object('in_flight', stats.in_flight, 'next_deadline', v_held.next, 'last_deadline', v_held.last, 'consumers', v_held.consumers),
      'Wait for the consumers, or look at them: in SQL, holdfast.leases says who holds what.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_leases is 'Findings: all in flight, by whom and until when; leases that ran out';

create or replace function holdfast._why_lines(queue holdfast.queue, stats holdfast.stats) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_dead record;
begin
  for v_dead in
    select m.id, m.ordering_key, m.blocks_since, m.last_error, holdfast._waiting(queue.id, m.ordering_key, m.order_no) as waiting
    from holdfast.message m where m.queue_id = queue.id and m.blocks_since is not null order by m.ordering_key limit 5
  loop
    return next ('line_blocked', case when stats.ready = 0 or queue.ordering = 'strict' then 'blocking' else 'warning' end,
      format('%s stands at message %s, which is dead since %s: %s. %s behind it.',
             coalesce('The line of ' || nullif(v_dead.ordering_key, ''), 'The queue'), v_dead.id, v_dead.blocks_since,
             coalesce(left(v_dead.last_error, 200), 'no error text'), holdfast._several(v_dead.waiting, 'message')),
      jsonb_build_object('key', nullif(v_dead.ordering_key, ''), 'head', v_dead.id::text, 'since', v_dead.blocks_since, 'waiting', v_dead.waiting,
                         'error', left(v_dead.last_error, 1000)),
      format('Mend the cause, then deliver it again: select holdfast.unblock(%1$s). Or move it to the dead letters: select holdfast.unblock(%1$s, how => ''skip'').',
             quote_literal(queue.name) || coalesce(', ' || quote_literal(nullif(v_dead.ordering_key, '')), '')))::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_lines is 'Findings: lines that a dead message blocks; the first five';

create or replace function holdfast._why_keys(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_parked record;
  v_heads jsonb;
begin
  if stats.blocked = 0 then
    return;
  end if;
  -- Lines at which a dead message stands have a finding of their own: what is parked there waits for unblock().
  with parked as (
    select p.ordering_key, count(*) as messages, min(p.id) as first from holdfast.lane l cross join lateral (
      select m.id, m.ordering_key from holdfast.message m where m.id >> 40 = l.id and m.due_at = 'infinity' order by m.due_at, m.id limit 10000) p
    where l.queue_id = queue.id group by p.ordering_key
  ), told as (
    select p.*, exists (select from holdfast.message d where d.queue_id = queue.id and d.ordering_key = p.ordering_key and d.blocks_since is not null) as dead
    from parked p
  )
  select (array_agg(t.ordering_key order by t.first) filter (where not t.dead))[1:5] as keys,
         stats.blocked - coalesce(sum(t.messages) filter (where t.dead), 0) as messages
  into v_parked from told t;
  if v_parked.keys is null then
    return;
  end if;
  v_heads := holdfast._heads(queue, v_parked.keys, at);
  return next ('keys_parked',
    case when stats.ready = 0 and exists (select from jsonb_array_elements(v_heads) h where h ->> 'reason' in ('ready', 'lapsed')) then 'warning' else 'info' end,
    format('%s parked behind an earlier one of the same line%s.', holdfast._several(v_parked.messages::bigint, 'message'),
           coalesce(', such as ' || nullif(array_to_string(v_parked.keys, ', '), ''), '')),
    jsonb_build_object('blocked', v_parked.messages, 'keys', to_jsonb(v_parked.keys), 'heads', v_heads),
    'Settle or end the messages that go first: the rest of their lines follows. holdfast.blocked_keys lists them.')::holdfast.finding;
end $$;
comment on function holdfast._why_keys is
  'Finding: messages are parked behind an earlier one of their line that is not dead; names a few of the keys. A warning if such a one could go on and does not';

create or replace function holdfast._heads(queue holdfast.queue, keys text[], at timestamptz) returns jsonb language plpgsql stable
as $$
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('key', nullif(k.key, ''), 'id', h.id::text, 'reason',
                   coalesce((select case when o.deadline > at then 'in_flight' else 'lapsed' end from holdfast._holders(array[h.id]) o),
                            case when h.due_at > at and h.due_at < 'infinity' then 'scheduled' else 'ready' end)) order by k.n), '[]')
          from unnest(keys) with ordinality k(key, n) cross join lateral (
            select m.id, m.due_at from holdfast.message m where m.queue_id = queue.id and m.ordering_key = k.key order by m.order_no limit 1) h);
end $$;
comment on function holdfast._heads is
  'The messages at which these ordering keys stand, as a JSON list. reason: in_flight, lapsed (its lease has run out), scheduled or ready';

create or replace function holdfast._why_limits(queue holdfast.queue, stats holdfast.stats, at timestamptz) returns setof holdfast.finding
language plpgsql stable
as $$
declare
  v_full bigint := coalesce(pg_sequence_last_value(queue.throttle), 0);
  v_step float8 := 1e9 / queue.throughput_limit;
begin
  -- The bucket is empty while less than one message is missing to its brim.
  if queue.throughput_limit is not null and stats.ready > 0
     and holdfast._us(at) * 1000 + ceil(v_step * ceil(queue.throughput_limit)) - v_full < v_step then
    return next ('limited', 'info', format('The throughput limit is reached: %s messages a second.', queue.throughput_limit),
      jsonb_build_object('throughput_limit', queue.throughput_limit, 'ready', stats.ready),
      'Claims go on getting messages at that rate. Raise throughput_limit with configure_queue if it is too low.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_limits is 'Finding: the throughput limit holds messages back';

create or replace function holdfast._why_budget(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_spent bigint[];
begin
  v_spent := array(
    select d.id from holdfast.lane l cross join lateral (
      select m.id, m.deliveries, m.failures, m.max_deliveries from holdfast.message m
      where m.id >> 40 = l.id and m.due_at > '-infinity' and m.due_at < 'infinity' order by m.due_at limit 1000) d
    where l.queue_id = queue.id
      and holdfast._used(queue.budget, d.deliveries, d.failures) >= nullif(coalesce(d.max_deliveries, queue.max_deliveries), 0)
    limit 1000);
  if v_spent <> '{}' then
    return next ('budget_spent', 'warning',
      format('%s used up max_deliveries and still here: the limit was lowered after the last delivery.', holdfast._several(cardinality(v_spent), 'message')),
      jsonb_build_object('messages', cardinality(v_spent), 'ids', to_jsonb(v_spent[1:5]::text[]), 'budget', queue.budget),
      'Each is handed out once more, and is dead if that fails too. Raise max_deliveries if that is not meant.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_budget is 'Finding: messages that have used up their deliveries and wait for one more; looks at the first 1,000 due of each lane';

create or replace function holdfast._why_lanes(queue holdfast.queue) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_holder record;
begin
  for v_holder in
    select h.* from holdfast._lane_holders() h
    where h.queue = queue.name and coalesce(h.since, '-infinity') < clock_timestamp() - interval '1 second' order by h.since, h.priority desc limit 20
  loop
    return next ('lane_held', case when v_holder.since is null then 'warning' else 'blocking' end,
      format('%s holds the lane of priority %s%s: other claims of it get nothing.',
             coalesce('Process ' || v_holder.pid, 'The prepared transaction ' || v_holder.prepared), v_holder.priority, ' since ' || v_holder.since),
      jsonb_strip_nulls(to_jsonb(v_holder) - 'queue'),
      case when v_holder.prepared is not null then format('End it: commit prepared or rollback prepared ''%s''.', v_holder.prepared)
           else format('Let it commit or roll back, or end it: select pg_terminate_backend(%s). holdfast.maintain() does so after five minutes.', v_holder.pid) end)::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_lanes is 'Findings: sessions that have kept a lane to themselves for over a second';

create or replace function holdfast._open_writers() returns table (pid int, "user" text, application text, state text, since timestamptz, prepared text)
language plpgsql stable
as $$
begin
  return query
    select distinct w.pid, coalesce(a.usename, p.owner)::text, nullif(a.application_name, ''), a.state, coalesce(a.xact_start, p.prepared), p.gid
    from pg_locks w left join pg_stat_activity a on a.pid = w.pid
      left join pg_locks x on w.pid is null and x.pid is null and x.virtualtransaction = w.virtualtransaction
        and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock'
      left join pg_prepared_xacts p on p.transaction = x.transactionid
    where w.locktype = 'relation' and w.relation = 'holdfast.message'::regclass and w.mode = 'RowExclusiveLock' and w.granted
      and w.database = holdfast._database_oid() and w.pid is distinct from pg_backend_pid();
end $$;
comment on function holdfast._open_writers is 'Transactions, other than this one, that have written messages of whatever queue and are still open';

create or replace function holdfast._missing(queue holdfast.queue) returns bigint language plpgsql stable
as $$
declare
  v_missing bigint := 0;
  v_lane holdfast.lane;
  v_start bigint;
  v_last bigint;
  v_floor bigint;
begin
  for v_lane in select l.* from holdfast.lane l where l.queue_id = queue.id order by l.id loop
    v_floor := coalesce(pg_sequence_last_value(v_lane.gap_floor), 0);
    v_start := holdfast._start(v_lane);
    v_last := coalesce(pg_sequence_last_value(v_lane.ids), v_start - 1);
    v_missing := v_missing
      + (select coalesce(sum(g.hi - g.lo + 1), 0) from (
           select g.lo, g.hi from holdfast.gap g where g.lane_id = v_lane.id and g.lo >= v_floor order by g.lo limit 1000) g)
      + greatest(least(v_last - v_start + 1, 1000) - (select count(*) from (
           select from holdfast.message m where m.id >= v_start and m.id <= least(v_last, v_start + 999) order by m.id limit 1000) m), 0);
  end loop;
  return v_missing;
end $$;
comment on function holdfast._missing is 'How many ids of a queue were drawn and have no message: in up to 1,000 gaps, and in the next 1,000 ids of each lane';

create or replace function holdfast._why_senders(queue holdfast.queue) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_missing bigint := holdfast._missing(queue);
  v_writer record;
begin
  if v_missing = 0 then
    return;
  end if;
  for v_writer in
    select w.* from holdfast._open_writers() w where coalesce(w.since, '-infinity') < clock_timestamp() - interval '1 second' order by w.since limit 20
  loop
    return next ('open_transaction', 'warning',
      format('%s has a transaction open%s that has written messages; %s of this queue %s drawn and not committed.',
             coalesce('Process ' || v_writer.pid, 'The prepared transaction ' || v_writer.prepared), ' since ' || v_writer.since,
             holdfast._several(v_missing, 'id'), case when v_missing = 1 then 'is' else 'are' end),
      jsonb_strip_nulls(to_jsonb(v_writer)) || jsonb_build_object('missing', v_missing),
      case when v_writer.prepared is not null then format('End it: commit prepared or rollback prepared ''%s''.', v_writer.prepared)
           else format('If messages were sent in it, they are delivered once it commits. If it is stuck, end it: select pg_terminate_backend(%s).', v_writer.pid) end)::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_senders is 'Findings: open transactions that may own ids of this queue which are not there';

create or replace function holdfast._old_snapshots() returns table (what text, pid int, "user" text, application text, state text, since timestamptz, name text)
language plpgsql stable
as $$
begin
  -- Of a replication slot or a standby there is no time, only how many transactions it lies behind.
  return query
    select 'session', a.pid, a.usename::text, nullif(a.application_name, ''), a.state, a.xact_start, null::text
    from pg_stat_activity a where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
      and a.backend_type <> 'autovacuum worker'
      and a.xact_start < clock_timestamp() - interval '5 minutes'
    union all
    select 'prepared transaction', null, p.owner::text, null, null, p.prepared, p.gid from pg_prepared_xacts p
    where p.database = current_database() and p.prepared < clock_timestamp() - interval '5 minutes'
    union all
    select 'replication slot', s.active_pid, null, null, case when s.active then 'active' else 'inactive' end, null, s.slot_name::text
    from pg_replication_slots s where age(s.xmin) > 1000000
    union all
    select 'standby', r.pid, r.usename::text, nullif(r.application_name, ''), r.state, null, null
    from pg_stat_replication r where age(r.backend_xmin) > 1000000
    order by 6 nulls last limit 20;
end $$;
comment on function holdfast._old_snapshots is 'What keeps dead rows from being removed: for over five minutes, or a million transactions';

create or replace function holdfast._why_snapshots() returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_old record;
begin
  for v_old in select o.* from holdfast._old_snapshots() o loop
    return next ('old_snapshot', 'warning',
      format('A %s%s holds an old snapshot%s: vacuum cannot remove what is settled, and the tables grow.', v_old.what,
             coalesce(' (' || coalesce(v_old.name, 'process ' || v_old.pid) || ')', ''), coalesce(' since ' || v_old.since, '')),
      jsonb_strip_nulls(to_jsonb(v_old)),
      case v_old.what when 'session' then format('Let its transaction end, or end it: select pg_terminate_backend(%s).', v_old.pid)
        when 'prepared transaction' then format('End it: commit prepared or rollback prepared ''%s''.', v_old.name)
        when 'replication slot' then format('Let its consumer catch up, or drop it: select pg_drop_replication_slot(''%s'').', v_old.name)
        else 'End the long query on the standby, or switch hot_standby_feedback off there.' end)::holdfast.finding;
  end loop;
end $$;
comment on function holdfast._why_snapshots is 'Findings: old snapshots, and who holds them';

create or replace function holdfast._why_upkeep(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_last timestamptz := holdfast._time(nullif(pg_sequence_last_value('holdfast.maintained_at'), 0));
begin
  if coalesce(v_last, queue.created_at) < at - interval '5 minutes' then
    return next ('not_maintained', 'warning', format('holdfast.maintain() was %s.', coalesce('last called at ' || v_last, 'never called')),
      jsonb_build_object('last', v_last),
      'Have a process call it every ten seconds: holdfast maintain --every 10s.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_upkeep is 'Finding: maintain() has not been called for over five minutes';

create or replace function holdfast._why_registers(queue holdfast.queue) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_lanes int[];
begin
  v_lanes := array(select l.priority from holdfast.lane l where l.queue_id = queue.id and not holdfast._readable(holdfast._registers(l)) order by l.id);
  if v_lanes <> '{}' or not holdfast._readable(array[queue.asleep, queue.depth, queue.counted_at]) then
    return next ('unreadable', 'blocking', 'Registers of this queue cannot be read: a failover has left them behind.',
      jsonb_build_object('priorities', to_jsonb(v_lanes)),
      'Make them anew: select holdfast.repair(unreadable_only => true). Leases end by that, no message is lost.')::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_registers is 'Finding: registers that a failover has left unreadable';

create or replace function holdfast._why_endpoint(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_endpoint record;
begin
  select e.name, e.enabled, e.disabled_reason, e.disabled_at, b.state, b.failures, b.opened_at, b.retry_at into v_endpoint
  from holdfast.endpoint e join holdfast.endpoint_breaker b on b.endpoint_id = e.id where e.queue_id = queue.id;
  if v_endpoint.enabled = false then
    return next ('endpoint_disabled', 'blocking', format('The endpoint %s is disabled since %s: %s.', v_endpoint.name, v_endpoint.disabled_at,
             rtrim(coalesce(left(v_endpoint.disabled_reason, 200), 'nobody said why'), '.')),
      jsonb_build_object('endpoint', v_endpoint.name, 'since', v_endpoint.disabled_at, 'reason', v_endpoint.disabled_reason),
      format('Mend the cause, then enable it: select holdfast.enable_endpoint(%L).', v_endpoint.name))::holdfast.finding;
  elsif v_endpoint.state <> 'closed' then
    return next ('breaker_open', 'blocking',
      format('The breaker of the endpoint %s is %s after %s: nothing is delivered%s.', v_endpoint.name, replace(v_endpoint.state, '_', '-'),
             holdfast._several(v_endpoint.failures, 'failure'), case when v_endpoint.state = 'open' then format(' until %s', v_endpoint.retry_at) else ' but one message that finds out' end),
      jsonb_build_object('endpoint', v_endpoint.name, 'state', v_endpoint.state, 'failures', v_endpoint.failures, 'opened_at', v_endpoint.opened_at, 'retry_at', v_endpoint.retry_at),
      format('Look at holdfast.endpoint_health(%1$L) and mend the receiver; it is tried again by itself, or now: select holdfast.reset_breaker(%1$L).', v_endpoint.name))::holdfast.finding;
  end if;
end $$;
comment on function holdfast._why_endpoint is 'Findings: the endpoint of the queue is disabled, or its breaker is open';

create or replace function holdfast._findings(queue holdfast.queue, at timestamptz) returns setof holdfast.finding language plpgsql stable
as $$
declare
  v_stats holdfast.stats;
begin
  return query select * from holdfast._why_registers(queue);
  if found then
    -- Nothing else can be said: figures come from the registers.
    return;
  end if;
  select s.* into v_stats from holdfast.queue_stats(queue.name) s;
  return query
    select * from holdfast._why_state(queue, v_stats, at)
    union all select * from holdfast._why_endpoint(queue, at)
    union all select * from holdfast._why_leases(queue, v_stats, at)
    union all select * from holdfast._why_lines(queue, v_stats)
    union all select * from holdfast._why_keys(queue, v_stats, at)
    union all select * from holdfast._why_limits(queue, v_stats, at)
    union all select * from holdfast._why_budget(queue, at)
    union all select * from holdfast._why_lanes(queue)
    union all select * from holdfast._why_senders(queue)
    union all select * from holdfast._why_snapshots()
    union all select * from holdfast._why_upkeep(queue, at);
  if not found then
    return next ('ok', 'ok', format('Nothing is in the way: %s.', case queue.kind when 'log' then 'records are there to be read' else 'messages are ready to be claimed' end),
      jsonb_build_object('ready', v_stats.ready, 'in_flight', v_stats.in_flight, 'oldest_age', v_stats.oldest_age),
      case queue.kind when 'log' then 'If nobody sees them, look at the readers: do they pass the last seq that they have seen?'
                      else 'If none of them moves, nobody is claiming: look at the consumers.' end)::holdfast.finding;
  end if;
end $$;
comment on function holdfast._findings is 'All findings about a queue, one check after the other; ok if there are none';

create or replace function holdfast.why(queue text) returns setof holdfast.finding
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(why.queue);
begin
  return query
    select f.finding, f.severity, f.message, f.details, f.remedy
    from holdfast._findings(v_queue, holdfast.now()) with ordinality f(finding, severity, message, details, remedy, n)
    order by array_position('{blocking,warning,info}', f.severity), f.n;
exception
  when internal_error then
    perform holdfast._check_there(v_queue);
    raise;
end $$;
comment on function holdfast.why is 'Why is nothing moving? One row for each reason, the gravest first, with what to do; ok: there is none';
