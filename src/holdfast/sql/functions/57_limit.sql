-- Limits: token buckets in registers, for queues (throughput_limit) and by name (take_rate).
--
-- A bucket is one number: the moment, in nanoseconds, at which it would be full again if nothing more were taken. A
-- token costs 1/rate seconds; taking n moves the moment on by n of them, and it may not lie more than a full bucket
-- ahead of now. So a bucket that nobody uses fills up by itself, and a new one is full.
--
-- Reading and moving it must be one step, and must not make anybody wait for a transaction that stays open. So it
-- happens under an advisory lock in a subtransaction that is always undone: that lets go of the lock at once, also
-- after an error, while the register keeps what was written. A bucket that has too little is seen without the lock.
-- What was taken stays taken when the transaction rolls back.
--
-- A name is a row, and freeing it is a change like any other: uncommitted, nobody sees it. So take_rate locks the row
-- (FOR KEY SHARE) of a limiter that has been full for nine minutes, and maintain() frees, under a row lock, only what has been
-- full for ten: nobody takes tokens from a name that is about to go.
-- Lock order: lane locks, then a limiter's row, then a bucket; a bucket's holder waits for nobody.

create or replace function holdfast._tokens(mark bigint, brim bigint, step float8, burst int) returns int language sql immutable
  return least(floor((brim - mark) / step + 1e-6), burst)::int;
comment on function holdfast._tokens is 'How many tokens are in a bucket with this mark; at the brim it is empty';

create or replace function holdfast._spend(register regclass, bucket int, want int, rate float8, burst int, partial boolean, at timestamptz)
returns holdfast.allowance language plpgsql volatile
as $$
declare
  v_at bigint := holdfast._us(at) * 1000;
  v_step float8 := 1e9 / rate;
  v_brim bigint := v_at + ceil(v_step * burst)::bigint;
  v_least int := case when partial then least(want, 1) else want end;
  v_found bigint := coalesce(pg_sequence_last_value(register), 0);
  -- A mark far beyond the brim (the clock was set back, the rate was raised) is brought back to it. Not a mark just
  -- beyond it: whoever was faster may have read the clock a moment later.
  v_mark bigint := least(greatest(v_found, v_at), v_brim);
  v_tokens int := holdfast._tokens(v_mark, v_brim, v_step, burst);
  v_granted int := 0;
begin
  if (v_tokens >= v_least or v_found > v_brim + 60000000000) and want > 0 then
    begin
      perform pg_advisory_xact_lock(holdfast._bucket_lock(), bucket);
      v_found := coalesce(pg_sequence_last_value(register), 0);
      v_mark := least(greatest(v_found, v_at), v_brim);
      v_tokens := holdfast._tokens(v_mark, v_brim, v_step, burst);
      if v_tokens >= v_least then
        v_granted := least(want, v_tokens);
      end if;
      if v_granted > 0 or v_found > v_brim + 60000000000 then
        perform setval(register, v_mark + ceil(v_granted * v_step)::bigint);
      end if;
      raise exception using errcode = 'HF000';
    exception
      when sqlstate 'HF000' then null;
    end;
  end if;
  return (v_granted, v_tokens - v_granted,
          case when v_granted = 0 and want > 0
               then make_interval(secs => (v_mark - v_brim + ceil(v_least * v_step)) / 1e9) end)::holdfast.allowance;
end $$;
comment on function holdfast._spend is 'Take tokens out of a bucket: want, or as many as there are (partial)';

create or replace function holdfast._allowance(lane holdfast.lane, want int) returns int language plpgsql volatile
as $$
begin
  return (holdfast._spend(lane.throttle, -lane.queue_id, want, lane.throughput_limit, ceil(lane.throughput_limit)::int, true, holdfast.now())).granted;
end $$;
comment on function holdfast._allowance is 'How many of so many messages a claim may hand out now, by the throughput limit of its queue';

create or replace function holdfast._refund(queue text, count int) returns void language plpgsql volatile
as $$
declare
  v_queue holdfast.queue := holdfast._queue(_refund.queue);
begin
  perform pg_advisory_xact_lock(holdfast._bucket_lock(), -v_queue.id);
  perform setval(v_queue.throttle, greatest(coalesce(pg_sequence_last_value(v_queue.throttle), 0)
                                            - floor(count * 1e9 / v_queue.throughput_limit)::bigint, 0));
  raise exception using errcode = 'HF000';
exception
  when sqlstate 'HF000' then null;
end $$;
comment on function holdfast._refund is 'Give back what a claim was allowed and did not hand out';

create or replace function holdfast._apply_limit(queue text) returns void language plpgsql volatile
as $$
begin
  update holdfast.queue q set throttle = holdfast._register('throttle_' || q.id)
  where q.name = _apply_limit.queue and q.throughput_limit is not null and q.throttle is null;
end $$;
comment on function holdfast._apply_limit is 'Make the register of a queue''s first throughput limit';

create or replace function holdfast._check_fill(rate float8, burst int) returns void language plpgsql immutable
as $$
begin
  if rate is null or not (rate >= 0.000001 and rate <= 1000000) then
    perform holdfast._fail('QH701', 'rate is out of range', format('Got %s.', coalesce(rate::text, 'null')), 'rate takes 0.000001 to 1,000,000 a second.');
  end if;
  if burst not between 1 and 1000000 then
    perform holdfast._fail('QH701', 'burst is out of range', format('Got %s.', burst), 'burst takes 1 to 1,000,000; the default is one second''s worth.');
  end if;
  if coalesce(burst, ceil(rate)) / rate > extract(epoch from interval '10 years') then
    perform holdfast._fail('QH701', 'the bucket would take over ten years to fill', format('Got a burst of %s at %s a second.', burst, rate),
      'burst / rate is at most ten years, 315,576,000 seconds.');
  end if;
end $$;
comment on function holdfast._check_fill is 'Refuse a bucket that cannot be: too slow, too fast, too large';

create or replace function holdfast._check_rate(limiter text, rate float8, burst int, want int, partial boolean) returns void
language plpgsql stable
as $$
begin
  if limiter is null or length(limiter) not between 1 and 200 then
    perform holdfast._fail('QH702', 'invalid limiter name', format('Got %s.', coalesce(quote_literal(left(limiter, 250)), 'null')),
      'A name has 1 to 200 characters.');
  end if;
  perform holdfast._check_fill(rate, burst);
  if want is null or want not between 0 and 1000000 or (partial is not true and want > coalesce(burst, ceil(rate))) then
    perform holdfast._fail('QH701', 'want is out of range', format('Got %s.', coalesce(want::text, 'null')),
      'want takes 0 to 1,000,000, and no more than burst unless partial is true.');
  end if;
  perform holdfast._check_isolation('take_rate');
end $$;
comment on function holdfast._check_rate is 'Refuse bad arguments of take_rate';

create or replace function holdfast.take_rate(
  limiter text, rate float8, burst int default null, want int default 1, partial boolean default false)
returns holdfast.allowance
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_limiter record;
begin
  perform holdfast._check_rate(limiter, rate, burst, want, partial);
  select l.id, l.register, coalesce(pg_sequence_last_value(l.register), 0) as mark into v_limiter
  from holdfast.limiter l where l.name = take_rate.limiter;
  if v_limiter.mark < holdfast._us(holdfast.now() - interval '9 minutes') * 1000 and want > 0 then
    -- maintain() may be about to free it: whoever has its row first is waited for, and then the name is another limiter's.
    select l.id, l.register into v_limiter from holdfast.limiter l where l.name = take_rate.limiter for key share;
  end if;
  if v_limiter.id is null then
    v_limiter := holdfast._make_limiter(take_rate.limiter);
  end if;
  return holdfast._spend(v_limiter.register, v_limiter.id, want, rate, coalesce(burst, ceil(rate)::int), partial is true, holdfast.now());
end $$;
comment on function holdfast.take_rate is
  'Take tokens from the named bucket, which gets rate a second and holds burst (null: one second''s worth): all that are wanted or none, or what there is (partial)';

create or replace function holdfast._make_limiter(limiter text) returns holdfast.limiter language plpgsql volatile
as $$
declare
  v_limiter holdfast.limiter;
  v_free int;
  v_mark bigint;
begin
  select l.id into v_free from holdfast.limiter l where l.name is null order by l.id limit 1 for update skip locked;
  if v_free is null and (select count(*) from holdfast.limiter) >= 10000 then
    perform holdfast._fail('QH703', 'too many limiters', 'There are 10,000.',
      'Limit by fewer names: by plan or by key, not by request. maintain() removes those that were not used for ten minutes.');
  end if;
  -- Two first users of a name: the second waits here until the first has committed.
  if v_free is not null then
    begin
      update holdfast.limiter l set name = _make_limiter.limiter, freed_at = null where l.id = v_free returning setval(l.register, 0) into v_mark;
    exception
      when unique_violation then null;
    end;
  else
    insert into holdfast.limiter as l (name) values (_make_limiter.limiter) on conflict (name) do nothing returning l.id into v_free;
    update holdfast.limiter l set register = holdfast._register('limiter_' || l.id) where l.id = v_free;
  end if;
  select l.* into v_limiter from holdfast.limiter l where l.name = _make_limiter.limiter;
  return v_limiter;
end $$;
comment on function holdfast._make_limiter is 'The limiter of a name, made if it is not there: out of a free one, or anew';

create or replace function holdfast._drop_limiter(id int, register regclass) returns boolean
language plpgsql volatile set lock_timeout = '10ms'
as $$
begin
  execute format('drop sequence %s', register);
  delete from holdfast.limiter l where l.id = _drop_limiter.id;
  return true;
exception
  when lock_not_available or deadlock_detected then return false;
end $$;
comment on function holdfast._drop_limiter is
  'Drop a free limiter. false: a transaction that has used its register is still open, and is not waited for';

create or replace function holdfast._tidy_limiters(at timestamptz) returns int language plpgsql volatile
as $$
declare
  v_from int;
  v_idle bigint := holdfast._us(at - interval '10 minutes') * 1000;
  v_full int[];
  v_freed int;
  v_busy int := 0;
  v_old record;
begin
  -- Somewhere: every limiter's turn comes, and no position is to be kept.
  select floor(random() * max(l.id))::int into v_from from holdfast.limiter l;
  -- A bucket that has been full for ten minutes says no more than a new one.
  v_full := array(
    select s.id from (select l.id, l.register from holdfast.limiter l where l.id >= v_from and l.name is not null order by l.id limit 1000) s
    where coalesce(pg_sequence_last_value(s.register), 0) < v_idle);
  -- Look again when the row is locked: from then on nobody takes from it (take_rate locks the row of one that is idle), but
  -- somebody may have just before.
  update holdfast.limiter l set name = null, freed_at = at
  where l.id = any (array(select f.id from holdfast.limiter f where f.id = any (v_full) and f.name is not null for update skip locked))
    and coalesce(pg_sequence_last_value(l.register), 0) < v_idle;
  get diagnostics v_freed = row_count;
  for v_old in
    select l.id, l.register from holdfast.limiter l
    where l.name is null and l.freed_at < at - interval '1 hour' order by l.id desc limit 100 for update skip locked
  loop
    v_busy := v_busy + case when holdfast._drop_limiter(v_old.id, v_old.register) then 0 else 1 end;
    -- This may be called under lane locks: it waits 50 ms in all.
    exit when v_busy = 5;
  end loop;
  return v_freed;
end $$;
comment on function holdfast._tidy_limiters is
  'Free limiters that were not used for ten minutes, 1,000 a call; drop the registers of some that have been free for an hour';

create or replace function holdfast._repair_limiters(unreadable_only boolean) returns void language plpgsql volatile
as $$
declare
  v_id int;
  v_register regclass;
begin
  -- One that is being dropped, or taken into use, needs no repair.
  for v_id in select l.id from holdfast.limiter l order by l.id for key share skip locked loop
    -- Before the register is read, which locks it until the end: whoever repairs it at this moment could not drop it. He is
    -- waited for: what one has made, the next would drop again, under its users.
    select l.register into v_register from holdfast.limiter l where l.id = v_id for no key update;
    if not holdfast._readable(array[v_register]) then
      update holdfast.limiter l set register = holdfast._register('limiter_' || l.id) where l.id = v_id;
    elsif not unreadable_only then
      perform setval(v_register, 0);
    end if;
  end loop;
end $$;
comment on function holdfast._repair_limiters is 'Fill the buckets of limiters, all or those that cannot be read';
