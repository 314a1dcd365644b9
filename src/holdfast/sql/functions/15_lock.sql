-- Locks: the classes of all advisory locks, here and nowhere else. Two uses of one class would wait for each other.
--
-- A lock is a pair (class, object). All are held until the transaction ends, unless it says "for a moment": then in a
-- subtransaction that is always undone.
--
--   class              object                                     taken by
--   _lane_lock         lane id                                    whoever moves a lane: claim, sweep, repair, drop
--   _upkeep_lock       queue id                                   maintain, for its steps of a queue; never waited for
--   _line_lock         a queue's bucket of ordering keys          sends and redrives to an ordered queue, replays to a strict one
--   _key_lock          a queue's bucket of keys                   sends with a key, discard_key
--   _idempotency_lock  a queue's bucket of idempotency keys       sends with one, redrive
--   _bucket_lock       limiter id, or the negative queue id       take_rate and limited claims, for a moment
--   _mark_lock         lane id of a log                           read, for its pair of registers, for a moment
--   _archive_lock      0                                          maintain, for the archive; never waited for
--   _stage_lock        0                                          maintain, for staged messages; never waited for
--   _turn_lock         0                                          maintain_in_turn; never waited for
--   _grave_lock        hash of a queue's name                     who names a dead-letter queue (shared), or makes one strict
--
-- Lock order: lines, keys, idempotency keys, each by bucket; then lanes by id or priority; then the momentary ones,
-- whose holders wait for nobody.

create or replace function holdfast._lane_lock() returns int language sql immutable
  return 1215261796;
comment on function holdfast._lane_lock is 'The class of the advisory locks on lanes; the object is the lane id';

create or replace function holdfast._upkeep_lock() returns int language sql immutable
  return 1215261797;
comment on function holdfast._upkeep_lock is 'The class of the advisory locks on the upkeep of queues; the object is the queue id';

create or replace function holdfast._line_lock() returns int language sql immutable
  return 1215261798;
comment on function holdfast._line_lock is 'The class of the advisory locks on ordering keys; the object is a bucket of a queue''s keys';

create or replace function holdfast._key_lock() returns int language sql immutable
  return 1215261799;
comment on function holdfast._key_lock is 'The class of the advisory locks on replaceable keys; the object is a bucket of a queue''s keys';

create or replace function holdfast._idempotency_lock() returns int language sql immutable
  return 1215261800;
comment on function holdfast._idempotency_lock is 'The class of the advisory locks on idempotency keys; the object is a bucket of a queue''s keys';

create or replace function holdfast._bucket_lock() returns int language sql immutable
  return 1215261801;
comment on function holdfast._bucket_lock is 'The class of the advisory locks on buckets of tokens; the object is the limiter''s id, or the negative of the queue''s';

create or replace function holdfast._mark_lock() returns int language sql immutable
  return 1215261802;
comment on function holdfast._mark_lock is 'The class of the advisory locks on mark and horizon of logs; the object is the lane id';

create or replace function holdfast._archive_lock() returns int language sql immutable
  return 1215261803;
comment on function holdfast._archive_lock is 'The class of the advisory lock on the upkeep of the archive; the object is 0';

create or replace function holdfast._grave_lock() returns int language sql immutable
  return 1215261804;
comment on function holdfast._grave_lock is 'The class of the advisory locks on names of dead-letter queues; the object is a hash of the name';

create or replace function holdfast._stage_lock() returns int language sql immutable
  return 1215261805;
comment on function holdfast._stage_lock is 'The class of the advisory lock on the upkeep of staged messages; the object is 0';

create or replace function holdfast._turn_lock() returns int language sql immutable
  return 1215261806;
comment on function holdfast._turn_lock is 'The class of the advisory lock on the turn to maintain; the object is 0';
