-- The archive, and expiry without claims.
--
-- holdfast.archive    what ended and is kept, partitioned by the day it ended on (UTC). Partitions are made ahead by
--                     maintain(); what finds none lies in the default one, so an ack never fails for want of one.
-- message_expiry      messages with a time to live, by lane and time: what maintain() walks. Others are not in it.

alter table holdfast.queue
  add column expire_in_flight boolean not null default false,
  add column keep text[] not null default '{}',
  add column keep_for interval not null default '7 days',
  add column lean boolean not null default true;
comment on column holdfast.queue.lean is 'an ack has nothing to do but delete: nothing done is kept, and nothing expires in flight';
comment on column holdfast.queue.keep is 'the outcomes whose messages go to the archive: done, expired, failed, discarded';

create sequence holdfast.no_boot minvalue 0 start 0;
comment on sequence holdfast.no_boot is 'in place of a lane''s booted register, where acks may not take their short way: it never holds a mark';

alter table holdfast.lane
  add column fence regclass,
  add column expiry_at regclass,
  add column expiry_id regclass,
  add column expiry_walk regclass;
update holdfast.lane set fence = booted;
comment on column holdfast.lane.fence is 'what claim writes into a lease as booted: that register, or no_boot where the queue is not lean';
comment on column holdfast.lane.expiry_at is 'register: the walk over expired messages goes on from this time, in microseconds; 0: from the bottom';
comment on column holdfast.lane.expiry_id is 'register: and from this id';
comment on column holdfast.lane.expiry_walk is 'register: when that walk starts from the bottom again; 0: whenever it has come to the end';

do $$
declare
  v_lane record;
  v_register text;
begin
  for v_lane in select l.id from holdfast.lane l order by l.id loop
    foreach v_register in array array['expiry_at', 'expiry_id', 'expiry_walk'] loop
      execute format('create unlogged sequence holdfast.%I minvalue 0 start 0', v_register || '_' || v_lane.id);
      perform setval(format('holdfast.%I', v_register || '_' || v_lane.id)::regclass, 0);
      execute format('update holdfast.lane set %I = %L::regclass where id = %s', v_register,
                     format('holdfast.%I', v_register || '_' || v_lane.id), v_lane.id);
    end loop;
  end loop;
end $$;

create index message_expiry on holdfast.message ((id >> 40), expires_at, id) where expires_at is not null;

alter type holdfast.entry add attribute ended_at timestamptz;

create table holdfast.archive (
  id bigint not null,
  queue_id int not null,
  outcome text not null,
  ended_at timestamptz not null,
  deliveries int,
  enqueued_at timestamptz not null,
  due_at timestamptz,
  expires_at timestamptz,
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  tag text,
  correlation_id uuid,
  key text,
  idempotency_key text,
  payload_hash bytea,
  ordering_key text,
  order_no bigint,
  failures int,
  max_deliveries int,
  last_error text,
  origin jsonb
) partition by range (ended_at);
-- No primary key: pg_restore --clean cannot drop the constraint that a partition has from its table, and says so.
create unique index archive_by_id on holdfast.archive (id, ended_at);
create index archive_by_queue on holdfast.archive (queue_id, ended_at, id);
comment on table holdfast.archive is 'Messages that ended and are kept, by the day they ended on';
comment on column holdfast.archive.outcome is 'done, expired, failed or discarded';
comment on column holdfast.archive.deliveries is 'how often it was delivered, the last time included if it was acked';

create table holdfast.archive_default partition of holdfast.archive default;
create index archive_default_ended on holdfast.archive_default (ended_at, id);
comment on table holdfast.archive_default is 'Messages that ended on a day that had no partition at that time';

-- Logged, as holdfast.turn is.
create sequence holdfast.archive_turn minvalue 0 start 0;
comment on sequence holdfast.archive_turn is 'the queue whose old archive maintain() removed last';
create sequence holdfast.archive_walk minvalue 0 start 0;
comment on sequence holdfast.archive_walk is 'when maintain() looks for old rows in the archive again, in microseconds of the real clock';
