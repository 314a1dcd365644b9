-- Samples: what happened in a queue, minute by minute, kept for 14 days.
--
-- maintain() looks at every lane in passing (_probe) and writes a sample of each queue in the first call of a minute.
-- A sample is the difference between two looks at figures that only grow: ids drawn, counters, sums over the probes.
-- No message pays for it.
--
-- waiting     how long messages had waited when they were handed out: those that the cursor passed between two looks
--             are booked with the age of the message that was next in line at the second
-- processing  how long messages were in flight: by Little's law, the average number in flight * time / number done

create or replace function holdfast._class(seconds float8) returns int language sql immutable
  return width_bucket(seconds, array[0.01, 0.1, 1, 10, 60, 600, 3600]::float8[]) + 1;
comment on function holdfast._class is 'Which of the eight classes of the histograms a duration falls into';

create or replace function holdfast._histogram(classes bigint[]) returns jsonb language sql immutable
  return jsonb_build_object('under_10ms', classes[1], 'under_100ms', classes[2], 'under_1s', classes[3], 'under_10s', classes[4],
                            'under_1min', classes[5], 'under_10min', classes[6], 'under_1h', classes[7], 'longer', classes[8]);
comment on function holdfast._histogram is 'A histogram as samples() shows it';

create or replace function holdfast._one_class(seconds float8, messages bigint) returns bigint[] language sql immutable
  return (select array_agg(case when n = holdfast._class(seconds) then messages else 0 end order by n) from generate_series(1, 8) n);
comment on function holdfast._one_class is 'A histogram with all messages in the class of one duration';

create or replace function holdfast._probe(lane holdfast.lane, start bigint, at timestamptz) returns void language plpgsql volatile
as $$
declare
  v_floor timestamptz := holdfast._time(coalesce(pg_sequence_last_value(lane.lease_floor), 0));
  v_first bigint := (lane.id::bigint << 40) + 1;
  v_waiting float8;
  v_held bigint;
begin
  select greatest(extract(epoch from at - m.enqueued_at), 0) into v_waiting
  from (select m.enqueued_at, m.due_at from holdfast.message m
        where m.id >= _probe.start and m.id < (lane.id + 1)::bigint << 40 order by m.id limit 100) m
  where m.due_at is null limit 1;
  select coalesce(sum(cardinality(l.ids)), 0) into v_held
  from (select l.ids from holdfast.lease l where l.lane_id = lane.id and l.deadline >= v_floor order by l.deadline limit 1000) l;
  insert into holdfast.probe as p (lane_id, start, looks, in_flight, waiting)
  values (lane.id, _probe.start, 1, v_held, holdfast._one_class(coalesce(v_waiting, 0), _probe.start - v_first))
  on conflict (lane_id) do update set
    start = excluded.start, looks = p.looks + 1, in_flight = p.in_flight + v_held,
    waiting = array(select a + b from unnest(p.waiting, holdfast._one_class(coalesce(v_waiting, 0), greatest(excluded.start - p.start, 0))) s(a, b));
end $$;
comment on function holdfast._probe is 'Under the lane lock: note how long the next message has waited, how many went past since the last look, and how many are in flight';

create or replace function holdfast._growth(before bigint[], after bigint[]) returns bigint[] language sql immutable
  return (select array_agg(case when a.value >= coalesce(before[a.n], 0) then a.value - coalesce(before[a.n], 0) else a.value end order by a.n)
          from unnest(after) with ordinality a(value, n));
comment on function holdfast._growth is 'By how much each sum has grown; one that was lost in a crash has started over';

create or replace function holdfast._totals(queue holdfast.queue, stats holdfast.stats) returns bigint[] language plpgsql stable
as $$
declare
  v_probed bigint[];
begin
  select array[sum(p.looks), sum(p.in_flight), sum(p.waiting[1]), sum(p.waiting[2]), sum(p.waiting[3]), sum(p.waiting[4]),
               sum(p.waiting[5]), sum(p.waiting[6]), sum(p.waiting[7]), sum(p.waiting[8])]::bigint[]
  into v_probed from holdfast.lane l join holdfast.probe p on p.lane_id = l.id where l.queue_id = queue.id;
  return array[(stats.counters ->> 'sent')::bigint, (stats.counters ->> 'done')::bigint]
         || array(select (stats.counters ->> k.kind)::bigint from unnest(holdfast._counted()) with ordinality k(kind, n) order by k.n)
         || array(select coalesce(s, 0) from unnest(v_probed) s);
end $$;
comment on function holdfast._totals is 'What a sample is a difference of: sent, done, the counters; looks, in flight, and the eight classes of waiting';

create or replace function holdfast._sample(queue holdfast.queue, at timestamptz) returns jsonb language plpgsql volatile
as $$
declare
  v_minute timestamptz := date_trunc('minute', at, 'UTC');
  v_last holdfast.sample;
  v_stats holdfast.stats;
  v_totals bigint[];
  v_growth bigint[];
  v_began timestamptz;
  v_lanes bigint;
  v_seconds float8;
begin
  -- Not those of a time to come, which a clock that was set ahead has left.
  select s.* into v_last from holdfast.sample s where s.queue_id = queue.id and s.minute <= v_minute order by s.minute desc limit 1;
  if v_last.minute = v_minute then
    return '{}';
  end if;
  select s.* into v_stats from holdfast.queue_stats(queue.name) s;
  v_totals := holdfast._totals(queue, v_stats);
  -- An estimate of the depth may make it look as if less were done than before.
  v_totals[2] := greatest(v_totals[2], v_last.totals[2]);
  v_growth := holdfast._growth(v_last.totals, v_totals);
  v_began := coalesce(v_last.ended, least(queue.created_at, at));
  v_lanes := (select count(*) from holdfast.lane l where l.queue_id = queue.id);
  v_seconds := v_growth[11]::float8 * v_lanes / greatest(v_growth[10], 1) * extract(epoch from at - v_began) / greatest(v_growth[2], 1);
  insert into holdfast.sample (queue_id, minute, began, ended, figures, ready, scheduled, blocked, in_flight, oldest_age, exact,
                               waiting, processing, totals)
  values (queue.id, v_minute, v_began, at, v_growth[1:9], v_stats.ready, v_stats.scheduled, v_stats.blocked, v_stats.in_flight,
          v_stats.oldest_age, v_stats.exact, v_growth[12:19], holdfast._one_class(v_seconds, v_growth[2]), v_totals);
  delete from holdfast.sample s where s.queue_id = queue.id and s.minute = any (array(
    select o.minute from holdfast.sample o where o.queue_id = queue.id and o.minute < at - interval '14 days' order by o.minute limit 100
    for update skip locked));
  return '{"sampled": 1}';
end $$;
comment on function holdfast._sample is 'Write the sample of this minute, unless it is there, and remove up to 100 that are older than 14 days';

create or replace function holdfast.samples(queue text, since timestamptz default null, until timestamptz default null)
returns table (began timestamptz, ended timestamptz, sent bigint, done bigint, failed bigint, dead bigint, expired bigint, discarded bigint,
               nacked bigint, lapsed bigint, moved bigint, depth bigint, ready bigint, scheduled bigint, blocked bigint, in_flight bigint,
               oldest_age interval, exact boolean, waiting jsonb, processing jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(samples.queue);
  v_until timestamptz := coalesce(samples.until, 'infinity');
  v_since timestamptz := coalesce(samples.since, least(v_until, holdfast.now()) - interval '1 hour');
begin
  if v_since > v_until then
    perform holdfast._fail('QH421', 'since is later than until', format('Got %s and %s.', v_since, v_until),
      'since and until take times; without since it is the last hour before until, without until all up to now.');
  end if;
  return query
    select s.began, s.ended, s.figures[1], s.figures[2], s.figures[6], s.figures[5], s.figures[7], s.figures[8], s.figures[3], s.figures[4],
           s.figures[9], s.ready + s.scheduled + s.blocked + s.in_flight, s.ready, s.scheduled, s.blocked, s.in_flight,
           s.oldest_age, s.exact, holdfast._histogram(s.waiting), holdfast._histogram(s.processing)
    from holdfast.sample s
    where s.queue_id = v_queue.id and s.minute >= v_since - interval '1 minute' and s.minute <= v_until
      and s.ended > v_since and s.ended <= v_until
    order by s.minute;
end $$;
comment on function holdfast.samples is 'What happened in a queue, minute by minute: the samples that ended between two times, by default in the last hour';
