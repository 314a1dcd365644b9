-- Numbering: sequence numbers for queues and logs alike, and finding messages by them.
--
-- A sequence number is the distance of an id from the base of its queue, which is the base of its lowest lane: so the
-- records of a log, and the messages of a queue with one lane, count from 1, as read() counts. Those of further lanes
-- have numbers far above. A queue that is dropped and made again has another base, and counts from 1 again.

create or replace function holdfast.base_id(queue text) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(base_id.queue);
begin
  return (select min(l.id)::bigint << 40 from holdfast.lane l where l.queue_id = v_queue.id);
end $$;
comment on function holdfast.base_id is 'The number that sequence numbers of a queue or log count from: id - base_id is the sequence number';

create or replace function holdfast._last_drawn(lane holdfast.lane) returns bigint language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
  v_drawn bigint := coalesce(pg_sequence_last_value(lane.ids), v_base);
  v_floor bigint := holdfast._decide(lane, greatest(holdfast._passed(lane), v_base + 1), v_drawn, false);
begin
  return case when v_floor > v_drawn then v_drawn else holdfast._run_end(v_floor, v_drawn) end;
end $$;
comment on function holdfast._last_drawn is 'Of a queue''s lane: the last id up to which it is known of each whether it comes';

create or replace function holdfast._place(lane holdfast.lane, after bigint, last bigint) returns bigint language plpgsql volatile
as $$
declare
  v_base bigint := lane.id::bigint << 40;
begin
  -- One snapshot, younger than what is known of the last: what retention removed meanwhile is for read to tell.
  return (select case when g.trimmed > after then after else greatest(after, coalesce(f.id - 1 - v_base, last)) end
          from (select max(g.trimmed) as trimmed from holdfast.log g where g.lane_id = lane.id) g
            left join (select m.id from holdfast.message m where m.id > v_base + after and m.id <= v_base + last order by m.id limit 1) f on true);
end $$;
comment on function holdfast._place is 'Where a reader who was shown nothing behind its place goes on: before the next message, else behind the last number of which all is known';

create or replace function holdfast.extent(queue text, after bigint default null)
returns table (kind text, base bigint, first_seq bigint, last_seq bigint, place bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(extent.queue);
  v_lanes holdfast.lane[] := array(select l from holdfast.lane l where l.queue_id = v_queue.id order by l.id);
  v_trimmed bigint;
begin
  if after not between 0 and 1099511627775 then
    perform holdfast._check_read(after, 1);
  end if;
  perform holdfast._check_isolation('extent');
  kind := v_queue.kind;
  base := (v_lanes[1]).id::bigint << 40;
  if kind = 'log' then
    select g.trimmed into v_trimmed from holdfast.log g where g.lane_id = (v_lanes[1]).id;
    last_seq := holdfast._last_known(v_lanes[1], v_trimmed);
  elsif cardinality(v_lanes) = 1 then
    last_seq := holdfast._last_drawn(v_lanes[1]) - base;
  else
    last_seq := (select coalesce(max(pg_sequence_last_value(l.ids)), base) - base from unnest(v_lanes) l);
  end if;
  if cardinality(v_lanes) = 1 and after is not null then
    -- Further than any number was drawn: it was a reader of another queue of this name. What was drawn may still come.
    place := case when base + after > coalesce(pg_sequence_last_value((v_lanes[1]).ids), base) then 0
                  else holdfast._place(v_lanes[1], after, last_seq) end;
  end if;
  first_seq := (
    select min(f.id) - base from unnest(v_lanes) l cross join lateral (
      select m.id from holdfast.message m
      where m.id > (l.id::bigint << 40) + coalesce(v_trimmed, 0) and m.id < (l.id + 1)::bigint << 40 order by m.id limit 1) f);
  return next;
end $$;
comment on function holdfast.extent is
  'From where to where a queue or log reaches: its first message (null: nothing is in it), and the last number up to which it is known of each whether it comes. place: where a reader goes on who was shown nothing behind after; 0 if no message has ever had that number';

create or replace function holdfast.find_tagged(
  queue text, tag text default null, prefix text default null, before bigint default null, "limit" int default 10000) returns bigint[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(find_tagged.queue);
  v_base bigint := holdfast.base_id(find_tagged.queue);
  v_end bigint := v_base + least(greatest(before, 0), (1::bigint << 53));
begin
  perform holdfast._check_limit("limit");
  if tag is null and prefix is null then
    return array(
      select f.id from holdfast.lane l cross join lateral (
        select m.id from holdfast.message m
        where m.id > l.id::bigint << 40 and m.id < least((l.id + 1)::bigint << 40, v_end) order by m.id limit find_tagged."limit") f
      where l.queue_id = v_queue.id order by f.id limit find_tagged."limit");
  end if;
  -- No range of texts is all that begin with a prefix, but in one collation: so all tags of a lane are looked at.
  return array(
    select f.id from holdfast.lane l cross join lateral (
      (select m.id from holdfast.message m
       where m.id >> 40 = l.id and m.tag = find_tagged.tag and (before is null or m.id < v_end) order by m.id limit find_tagged."limit")
      union all
      (select m.id from holdfast.message m
       where m.id >> 40 = l.id and m.tag is not null and find_tagged.tag is null and starts_with(m.tag, find_tagged.prefix) and (before is null or m.id < v_end)
       limit find_tagged."limit")) f
    where l.queue_id = v_queue.id order by f.id limit find_tagged."limit");
end $$;
comment on function holdfast.find_tagged is
  'Ids of messages or records that have a tag, or one that begins with a prefix, before a sequence number (null: all); or, without a tag, all before it';
