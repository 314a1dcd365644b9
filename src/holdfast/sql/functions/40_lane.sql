-- Lanes: making one, its registers, the boot check, repair.
--
-- A lane's volatile state (registers, leases, gaps) belongs to one database since its last crash; the row in
-- holdfast.boot says so. Where it is missing or speaks of another database, _boot_lane() starts over: every
-- lease has expired, the cursor goes back to the start.
-- Lock order: lane locks by lane id, before any row.

create or replace function holdfast._make_sequence(kind text, name text, options text) returns regclass language plpgsql volatile
as $$
declare
  v_name text := format('holdfast.%I', _make_sequence.name);
begin
  -- A restore over a newer database can leave one of this name behind; the number in it is new, so nobody uses it.
  if to_regclass(v_name) is not null then
    execute format('drop sequence %s', v_name);
  end if;
  execute format('create %s %s %s', kind, v_name, options);
  return v_name::regclass;
end $$;
comment on function holdfast._make_sequence is 'Make a sequence';

create or replace function holdfast._unchanged(lane holdfast.lane) returns boolean language plpgsql volatile
as $$
begin
  return exists (select from holdfast.lane l where l.id = lane.id and l.cursor = lane.cursor);
end $$;
comment on function holdfast._unchanged is
  'Under the lane lock: is the lane still as it was read before? Whoever held the lock may have dropped it, or made its registers anew';

create or replace function holdfast._register(name text) returns regclass language plpgsql volatile
as $$
begin
  return holdfast._make_sequence('unlogged sequence', name, 'minvalue 0 start 0');
end $$;
comment on function holdfast._register is 'Make a register';

create or replace function holdfast._make_registers(lane_id int) returns void language plpgsql volatile
as $$
begin
  update holdfast.lane l set
    booted = holdfast._register('booted_' || l.id),
    cursor = holdfast._register('cursor_' || l.id),
    care_at = holdfast._register('care_at_' || l.id),
    sweep_at = holdfast._register('sweep_at_' || l.id),
    due_floor = holdfast._register('due_floor_' || l.id),
    due_walk = holdfast._register('due_walk_' || l.id),
    lease_floor = holdfast._register('lease_floor_' || l.id),
    lease_walk = holdfast._register('lease_walk_' || l.id),
    lease_tidy = holdfast._register('lease_tidy_' || l.id),
    gap_floor = holdfast._register('gap_floor_' || l.id),
    gap_look = holdfast._register('gap_look_' || l.id),
    gap_walk = holdfast._register('gap_walk_' || l.id),
    gap_turn = holdfast._register('gap_turn_' || l.id),
    expiry_at = holdfast._register('expiry_at_' || l.id),
    expiry_id = holdfast._register('expiry_id_' || l.id),
    expiry_walk = holdfast._register('expiry_walk_' || l.id)
  where l.id = _make_registers.lane_id;
  update holdfast.lane l set fence = case when q.lean then l.booted else 'holdfast.no_boot' end
  from holdfast.queue q where l.id = _make_registers.lane_id and q.id = l.queue_id;
  perform holdfast._clear_registers(l) from holdfast.lane l where l.id = _make_registers.lane_id;
end $$;
comment on function holdfast._make_registers is 'Make the registers of a lane';

create or replace function holdfast._registers(lane holdfast.lane) returns regclass[] language sql immutable
  return array[(lane).booted, (lane).cursor, (lane).care_at, (lane).sweep_at, (lane).due_floor, (lane).due_walk, (lane).lease_floor,
               (lane).lease_walk, (lane).lease_tidy, (lane).gap_floor, (lane).gap_look, (lane).gap_walk, (lane).gap_turn,
               (lane).expiry_at, (lane).expiry_id, (lane).expiry_walk];
comment on function holdfast._registers is 'All registers of a lane';

create or replace function holdfast._clear_registers(lane holdfast.lane) returns void language plpgsql volatile
as $$
begin
  perform setval(r, 0) from unnest(holdfast._registers(lane)) r;
  perform setval(lane.cursor, (lane.id::bigint << 40) + 1);
end $$;
comment on function holdfast._clear_registers is 'Set the registers of a lane as they are before the first claim';

create or replace function holdfast._drop_registers(lane holdfast.lane) returns void language plpgsql volatile
as $$
begin
  execute format('drop sequence %s', array_to_string(holdfast._registers(lane), ', '));
end $$;
comment on function holdfast._drop_registers is 'Drop the registers of a lane';

create or replace function holdfast._make_lane(queue_id int, priority smallint, shard smallint) returns holdfast.lane
language plpgsql volatile
as $$
declare
  v_lane holdfast.lane;
begin
  -- Look first: an insert that meets a lane uses up a lane id all the same.
  select l.* into v_lane from holdfast.lane l
  where l.queue_id = _make_lane.queue_id and l.priority = _make_lane.priority and l.shard = _make_lane.shard;
  if found then
    return v_lane;
  end if;
  -- Whoever drops the queue is waited for, or has to wait.
  perform from holdfast.queue q where q.id = _make_lane.queue_id for key share;
  if not found then
    perform holdfast._fail('QH101', 'the queue does not exist any more', 'It was dropped while this call waited for it.',
      'Create it with holdfast.create_queue, or stop using it.');
  end if;
  -- Two first users of a priority: the second waits here until the first has committed.
  insert into holdfast.lane (queue_id, priority, shard)
  values (_make_lane.queue_id, _make_lane.priority, _make_lane.shard)
  on conflict do nothing returning * into v_lane;
  if found then
    update holdfast.lane l set ids = holdfast._make_sequence('sequence', 'ids_' || l.id, format('minvalue %s maxvalue %s cache 1',
      (l.id::bigint << 40) + 1, ((l.id + 1)::bigint << 40) - 1)) where l.id = v_lane.id;
    perform holdfast._make_registers(v_lane.id);
    perform holdfast._write_boot(v_lane.id);
    update holdfast.lane l set
      queue_name = case q.kind when 'queue' then q.name end, paused = q.paused, lease = q.lease, max_deliveries = q.max_deliveries,
      shards = greatest(q.shards, (select max(o.shard) + 1 from holdfast.lane o where o.queue_id = q.id)),
      plain = q.plain, fence = case when q.lean then l.booted else 'holdfast.no_boot' end,
      ordering = case when q.ordered then coalesce(q.ordering, 'key') end,
      throughput_limit = q.throughput_limit, throttle = case when q.throughput_limit is not null then q.throttle end
    from holdfast.queue q where l.id = v_lane.id and q.id = l.queue_id;
  end if;
  select l.* into v_lane from holdfast.lane l
  where l.queue_id = _make_lane.queue_id and l.priority = _make_lane.priority and l.shard = _make_lane.shard;
  return v_lane;
end $$;
comment on function holdfast._make_lane is 'A lane, made if it is not there';

create or replace function holdfast._database_oid() returns oid language sql stable
  return split_part(pg_relation_filepath('holdfast.lease'::regclass), '/', -2)::oid;
comment on function holdfast._database_oid is 'The oid of this database, without reading a table';

create or replace function holdfast._system_identifier() returns bigint language plpgsql stable
as $$
begin
  return (select c.system_identifier from pg_control_system() c);
end $$;
comment on function holdfast._system_identifier is 'Which cluster this is; reads the control file';

create or replace function holdfast._boot_mark() returns bigint language sql stable
  return hashtextextended(pg_relation_filepath('holdfast.lease'::regclass), holdfast._us(pg_postmaster_start_time())) & 9223372036854775807;
comment on function holdfast._boot_mark is 'A number that is another one in any other database, and after every start of the server';

create or replace function holdfast._write_boot(lane_id int) returns void language plpgsql volatile
as $$
begin
  delete from holdfast.boot b where b.lane_id = _write_boot.lane_id;
  insert into holdfast.boot (lane_id, started_at, database_oid, lease_oid, system_identifier, made_by)
  values (_write_boot.lane_id, pg_postmaster_start_time(), holdfast._database_oid(), 'holdfast.lease'::regclass, holdfast._system_identifier(),
          pg_current_xact_id());
end $$;
comment on function holdfast._write_boot is 'Say that the volatile state of this lane belongs to this database';

create or replace function holdfast._ours(boot holdfast.boot) returns boolean language sql stable
  return (boot).database_oid = holdfast._database_oid() and (boot).lease_oid = 'holdfast.lease'::regclass::oid
         and ((boot).started_at = pg_postmaster_start_time()
              or (boot).system_identifier = holdfast._system_identifier());
comment on function holdfast._ours is 'Does the volatile state of this lane belong to this database? Reading the control file is left for last';

create or replace function holdfast._boot_lane(lane holdfast.lane) returns boolean language plpgsql volatile
as $$
declare
  v_boot holdfast.boot;
begin
  if pg_sequence_last_value(lane.booted) = holdfast._boot_mark() then
    return false;
  end if;
  select b.* into v_boot from holdfast.boot b where b.lane_id = lane.id;
  if holdfast._ours(v_boot) then
    -- Registers move on what is committed only: not if this very transaction has started the lane over.
    if v_boot.made_by <> coalesce(pg_current_xact_id_if_assigned(), '0') then
      perform setval(lane.booted, holdfast._boot_mark());
    end if;
    -- After a restart: spare the next look the control file.
    update holdfast.boot b set started_at = pg_postmaster_start_time()
    where b.lane_id = lane.id and b.started_at <> pg_postmaster_start_time();
    return false;
  end if;
  perform holdfast._reset_lane(lane);
  perform holdfast._write_boot(lane.id);
  return true;
end $$;
comment on function holdfast._boot_lane is 'Under the lane lock: is the volatile state ours? If not, start over. true: started over, so claim nothing in this transaction';

create or replace function holdfast._reset_lane(lane holdfast.lane) returns void language plpgsql volatile
as $$
declare
  v_last bigint;
begin
  delete from holdfast.lease l where l.lane_id = lane.id;
  delete from holdfast.gap g where g.lane_id = lane.id;
  -- A prepared transaction may have one of them locked: the audit finds those it leaves behind.
  update holdfast.message m set due_at = holdfast.now() where m.id = any (array(
    select h.id from holdfast.message h where h.id >> 40 = lane.id and h.due_at = '-infinity' for update skip locked));
  perform holdfast._clear_registers(lane);
  -- A dump reads sequences outside its snapshot: the log may hold ids that its sequence has not reached.
  select m.id into v_last from holdfast.message m
  where m.id >= lane.id::bigint << 40 and m.id < (lane.id + 1)::bigint << 40 order by m.id desc limit 1;
  if v_last > coalesce(pg_sequence_last_value(lane.ids), 0) then
    perform setval(lane.ids, v_last);
  end if;
  if lane.ordering is not null then
    select max(m.order_no) into v_last from holdfast.message m where m.queue_id = lane.queue_id and m.ordering_key is not null;
    if v_last > coalesce(pg_sequence_last_value('holdfast.order_no'), 0) then
      perform setval('holdfast.order_no', v_last);
    end if;
  end if;
end $$;
comment on function holdfast._reset_lane is 'Under the lane lock: forget leases, gaps and positions, as after a crash';

create or replace function holdfast._is_ours(lane_id int) returns boolean language plpgsql stable
as $$
begin
  return exists (select from holdfast.boot b where b.lane_id = _is_ours.lane_id and holdfast._ours(b));
end $$;
comment on function holdfast._is_ours is 'Has this lane been booted in this database?';

create or replace function holdfast._readable(registers regclass[]) returns boolean language plpgsql volatile
as $$
begin
  perform pg_sequence_last_value(r) from unnest(registers) r;
  return true;
exception
  -- After a failover: a register that was made after the standby's last restartpoint has no page.
  when internal_error or data_corrupted then return false;
end $$;
comment on function holdfast._readable is 'Can these registers be read?';

create or replace function holdfast._renew(register regclass, name text) returns regclass language plpgsql volatile
as $$
begin
  -- Whoever has used it holds a lock on it until his transaction ends: dropping it would wait for that.
  if holdfast._readable(array[register]) then
    perform setval(register, 0);
    return register;
  end if;
  return holdfast._register(_renew.name);
end $$;
comment on function holdfast._renew is 'A register as if new: set to 0, also if this transaction rolls back; made anew only if it cannot be read';

create or replace function holdfast._repair_queue(queue holdfast.queue, unreadable_only boolean) returns int
language plpgsql volatile
as $$
declare
  v_lane holdfast.lane;
  v_lanes int := 0;
begin
  if not (unreadable_only and holdfast._readable(array[queue.asleep, queue.depth, queue.counted_at, queue.throttle])) then
    update holdfast.queue q set
      asleep = holdfast._renew(q.asleep, 'asleep_' || q.id),
      depth = holdfast._renew(q.depth, 'depth_' || q.id),
      counted_at = holdfast._renew(q.counted_at, 'counted_at_' || q.id),
      throttle = case when q.throttle is not null then holdfast._renew(q.throttle, 'throttle_' || q.id) end
    where q.id = queue.id;
    perform holdfast._copy_to_lanes(queue.name);
  end if;
  for v_lane in select l.* from holdfast.lane l where l.queue_id = queue.id order by l.id loop
    perform pg_advisory_xact_lock(holdfast._lane_lock(), v_lane.id);
    continue when unreadable_only and holdfast._readable(holdfast._registers(v_lane));
    perform holdfast._drop_registers(v_lane);
    perform holdfast._make_registers(v_lane.id);
    delete from holdfast.boot b where b.lane_id = v_lane.id;
    select l.* into v_lane from holdfast.lane l where l.id = v_lane.id;
    perform holdfast._boot_lane(v_lane);
    v_lanes := v_lanes + 1;
  end loop;
  return v_lanes;
end $$;
comment on function holdfast._repair_queue is 'Make the registers of a queue anew, all or those that cannot be read; returns the number of lanes that started over';

create or replace function holdfast._tries(patience text) returns int language sql stable
  return case when patience::interval = interval '0' then 25 else least(25, floor(extract(epoch from patience::interval) / 0.4)) end;
comment on function holdfast._tries is 'How often to try for 400 ms: for ten seconds, or as long as this lock_timeout';

create or replace function holdfast._repair_patiently(queue text, unreadable_only boolean) returns int language plpgsql volatile
as $$
declare
  v_patience text := current_setting('lock_timeout');
  v_queue holdfast.queue;
  v_lanes int;
begin
  -- Gives way as drop_queue does, and for the same reason.
  for v_try in 0 .. holdfast._tries(v_patience) loop
    begin
      perform set_config('lock_timeout', case when v_try < holdfast._tries(v_patience) then '400ms' else v_patience end, true);
      -- Whoever comes second waits here, and sees the registers that the first has made.
      select q.* into v_queue from holdfast.queue q where q.name = _repair_patiently.queue for update;
      if not found then
        perform holdfast._no_queue(_repair_patiently.queue);
      end if;
      v_lanes := holdfast._repair_queue(v_queue, unreadable_only);
      perform set_config('lock_timeout', v_patience, true);
      return v_lanes;
    exception
      when lock_not_available or deadlock_detected then
        if v_try = holdfast._tries(v_patience) then
          raise;
        end if;
    end;
  end loop;
end $$;
comment on function holdfast._repair_patiently is 'Repair one queue; lets go of all locks and begins again while others are in the way';

create or replace function holdfast.repair(queue text default null, unreadable_only boolean default false) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue text;
  v_lanes int := 0;
begin
  perform holdfast._check_isolation('repair');
  -- Before any lane is held.
  if repair.queue is null then
    perform holdfast._repair_limiters(unreadable_only);
  end if;
  for v_queue in select q.name from holdfast.queue q where q.name = coalesce(repair.queue, q.name) order by q.id loop
    v_lanes := v_lanes + holdfast._repair_patiently(v_queue, unreadable_only);
  end loop;
  if not found and repair.queue is not null then
    perform holdfast._no_queue(repair.queue);
  end if;
  return v_lanes;
end $$;
comment on function holdfast.repair is
  'Make registers anew and start over as after a crash: every lease has expired. For one queue or all; unreadable_only: only lanes that a failover has left unreadable. Returns the number of lanes';
