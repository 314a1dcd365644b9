-- For readers that keep a place: claims found again by their consumer's name, and the archive read in order.
--
-- claims         what a consumer of this name holds, for one that was restarted and has lost the tokens.
-- read_archive   what ended, by (ended_at, id). ended_at is taken before the commit, so rows turn up behind others
--                that are there already. What is shown by itself therefore stops at a time of which it is known that every
--                transaction that may have taken an earlier one has ended (_archive_settled). Whoever ends a message
--                has locked holdfast.queue, lane, lease or message before it looks at the clock, until it has ended.
-- Nothing here locks a row.

create or replace function holdfast.claims(queue text, consumer text)
returns table (token bigint, messages int, first_id bigint, last_id bigint, deadline timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._work_queue(claims.queue);
begin
  return query
    select s.token, sum(cardinality(s.ids))::int, min(i.lo), max(i.hi), min(s.deadline)
    from holdfast.lane n
      cross join lateral (select l.token, l.ids, l.deadline from holdfast.lease l
                          where l.lane_id = n.id and l.consumer = claims.consumer and l.ids <> '{}' and holdfast._is_ours(n.id)) s
      cross join lateral (select min(u) as lo, max(u) as hi from unnest(s.ids) u) i
    where n.queue_id = v_queue.id
    group by s.token order by 3, 1;
end $$;
comment on function holdfast.claims is 'The claims of a consumer with this name: tokens, how many messages each holds, between which ids, and until when';

create or replace function holdfast._enders() returns text[] language plpgsql volatile
as $$
begin
  return array(
    select distinct k.virtualtransaction from pg_locks k
    where k.granted and k.locktype = 'relation' and k.database = holdfast._database_oid() and k.pid is distinct from pg_backend_pid()
      and (k.relation in ('holdfast.queue'::regclass, 'holdfast.lane'::regclass)
           or k.relation in ('holdfast.lease'::regclass, 'holdfast.message'::regclass) and k.mode = 'RowExclusiveLock'));
end $$;
comment on function holdfast._enders is 'Other transactions that are open and may have ended messages';

create or replace function holdfast._archive_settled(patience interval) returns timestamptz language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_at timestamptz := holdfast.now();
  v_open text[] := holdfast._enders();
begin
  -- One that was prepared meanwhile goes by another name, so each of those counts.
  while exists (select from unnest(holdfast._enders()) e where e = any (v_open) or e like '-1/%') loop
    if clock_timestamp() > v_began + patience then
      return '-infinity';
    end if;
    perform pg_sleep(0.002);
  end loop;
  return v_at;
end $$;
comment on function holdfast._archive_settled is
  'A time before which no message can turn up any more as ended, for statements that come next; -infinity: somebody stays open';

create or replace function holdfast.read_archive(
  queue text, "from" timestamptz default null, "to" timestamptz default null, "limit" int default 100, after bigint default null)
returns setof holdfast.entry
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
declare
  v_queue holdfast.queue := holdfast._queue(read_archive.queue);
  v_from timestamptz := coalesce("from", '-infinity');
  v_to timestamptz;
begin
  perform holdfast._check_limit("limit");
  perform holdfast._check_replay("from", "to", null);
  perform holdfast._check_isolation('read_archive');
  v_to := coalesce("to", holdfast._archive_settled('500 ms'));
  return query
    with ahead as (
      select f.message, sum(f.bytes) over (order by (f.message).ended_at, (f.message).id rows between unbounded preceding and 1 preceding) as bytes
      from (select a as message, coalesce(pg_column_size(a.payload), 0) + coalesce(pg_column_size(a.body), 0) as bytes
            from holdfast.archive a
            where a.queue_id = v_queue.id and a.ended_at >= v_from and a.ended_at < v_to
              and (a.ended_at, a.id) > (v_from, coalesce(read_archive.after, 0))
            order by a.ended_at, a.id limit read_archive."limit") f
    )
    select e.* from ahead h cross join lateral holdfast._archived(h.message, v_queue.name) e
    where coalesce(h.bytes, 0) < holdfast._answer_bytes() order by e.ended_at, e.id;
end $$;
comment on function holdfast.read_archive is
  'What ended in a period and is kept, the first to end first. Without to: up to a time before which no more can turn up. To go on, pass the last ended_at as from and the last id as after';
