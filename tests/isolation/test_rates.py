"""Rate limiters under concurrency: no more is granted than there is, and no open transaction blocks.

1. Any number of sessions that take from one bucket at once get exactly what it holds, and after a second
   exactly what came in; the same for the throughput limit of a queue with many lanes.
2. What a session took in a transaction that stays open blocks nobody.
3. Two first users of a name share one bucket.
4. A session that was cancelled while it waited for a bucket leaves nothing behind.
5. Locks of one use never meet those of another: an open send with a key stops no limiter and no log.
6. repair() and maintain() wait for no open transaction that took from a bucket, or claimed from an empty one.
7. What is taken from a limiter while maintain() frees it is not forgotten.
8. Two that repair a limiter at once do not get in each other's way.
"""

from __future__ import annotations

from functools import partial

import psycopg
import pytest

from tests.isolation.scene import Scene, Session

SESSIONS = 12
TAKE = (
    "select coalesce(sum((holdfast.take_rate('a', %s, %s, %s, true)).granted), 0) from generate_series(1, %s)"
)


def together(sessions: list[Session], query: str, *arguments: int) -> int:
    """The sum of what all of them get, all at once."""
    pending = [session.start(partial(session.value, query, list(arguments))) for session in sessions]
    return sum(int(one.result()) for one in pending)


def taken(sessions: list[Session], *arguments: int) -> int:
    return together(sessions, TAKE, *arguments)


@pytest.mark.parametrize("want", [1, 7])
def test_sessions_together_get_what_is_there_and_no_more(scene: Scene, want: int) -> None:
    scene.clock()
    sessions = scene.sessions("taker", SESSIONS)
    scene.watcher.execute("select holdfast.take_rate('a', 500, 1000, 0)")

    at_first = taken(sessions, 500, 1000, want, 200)
    scene.clock("1 s")
    a_second_later = taken(sessions, 500, 1000, want, 200)

    assert (at_first, a_second_later) == (1000, 500)


def test_two_first_users_share_one_bucket(scene: Scene) -> None:
    scene.clock()
    sessions = scene.sessions("taker", SESSIONS)

    assert taken(sessions, 10, 100, 1, 50) == 100
    assert scene.watcher.value("select count(*) from holdfast.limiter") == 1


def test_an_open_transaction_blocks_nobody(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.take_rate('a', 10, 10, 1)")
    holder, other = scene.session("holder").begin(), scene.session("other")
    holder.execute("select holdfast.take_rate('a', 10, 10, 4)")

    granted = other.start(lambda: other.value("select (holdfast.take_rate('a', 10, 10, 9, true)).granted"))

    assert granted.result() == 5
    holder.rollback()


def test_claims_of_many_lanes_together_keep_the_limit(scene: Scene) -> None:
    scene.clock()
    config = '{"throughput_limit": 40, "shards": 8}'
    scene.watcher.execute("select holdfast.create_queue('limited', %s)", [config])
    for _ in range(SESSIONS):
        scene.session("sender").execute("select holdfast.send('limited') from generate_series(1, 100)")
    claimers = scene.sessions("claimer", SESSIONS)
    claims = "select count(*) from generate_series(1, 30) n, lateral holdfast.claim('limited', n %% 3 + 1) c"

    at_first = together(claimers, claims)
    scene.clock("1 s")

    assert at_first <= 40
    assert at_first + together(claimers, claims) <= 80
    assert at_first > 0


def test_a_session_that_is_cancelled_while_it_waits_leaves_no_lock(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.take_rate('a', 10, 10, 1)")
    blocker, taker = scene.session("blocker").begin(), scene.session("taker")
    blocker.execute(
        "select pg_advisory_xact_lock(holdfast._bucket_lock(), (select id from holdfast.limiter))"
    )
    pending = taker.start(lambda: taker.execute("select holdfast.take_rate('a', 10)")).blocked_by(blocker)
    scene.watcher.execute("select pg_cancel_backend(%s)", [taker.pid])
    error = pending.error()
    blocker.rollback()

    assert isinstance(error, psycopg.errors.QueryCanceled)
    assert scene.watcher.value("select (holdfast.take_rate('a', 10, 10, 9)).granted") == 9
    assert scene.watcher.value("select count(*) from pg_locks where locktype = 'advisory'") == 0


def test_an_open_send_with_an_ordering_key_stops_no_limiter(scene: Scene) -> None:
    scene.watcher.execute("select holdfast.create_queue('lines', '{\"ordering\": \"key\"}')")
    sender, taker = scene.session("sender").begin(), scene.session("taker")
    sender.execute("select holdfast.send('lines', ordering_key => 'k')")
    bucket = scene.watcher.value("select max(objid::int) from pg_locks where locktype = 'advisory'")
    identity = "select setval(pg_get_serial_sequence('holdfast.limiter', 'id'), %s, false)"
    scene.watcher.execute(identity, [bucket])
    scene.watcher.execute("select holdfast.take_rate('a', 10, want => 0)")

    taker.execute("set lock_timeout = '5s'")
    granted = taker.value("select (holdfast.take_rate('a', 10)).granted")
    sender.rollback()

    assert scene.watcher.value("select id from holdfast.limiter") == bucket
    assert granted == 1


MAINTAIN = "select holdfast.maintain('10 s')"
REGISTERS = "select count(*) from pg_class where relname ~ '^limiter_[0-9]+$'"


def impatient(scene: Scene, name: str) -> Session:
    session = scene.session(name)
    session.execute("set lock_timeout = '3s'")
    return session


def test_repair_does_not_wait_for_who_took_from_a_limiter(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.take_rate('a', 10)")
    holder, admin = scene.session("holder").begin(), impatient(scene, "admin")
    holder.execute("select holdfast.take_rate('a', 10, want => 9)")

    lanes = admin.value("select holdfast.repair()")
    granted = admin.value("select (holdfast.take_rate('a', 10, want => 10)).granted")
    holder.rollback()

    assert (lanes, granted) == (1, 10)


def test_two_repairs_of_one_limiter_end_in_no_deadlock(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.take_rate('a', 10)")
    broken = scene.watcher.value("select register::oid from holdfast.limiter")
    # Reads it first, as the real one does: what it has read is locked.
    scene.watcher.execute(
        "create or replace function holdfast._readable(registers regclass[]) returns boolean language plpgsql"
        " as $$ begin perform pg_sequence_last_value(r) from unnest(registers) r;"
        f" return not {broken} = any (registers::oid[]); end $$"
    )
    holder, one, other = scene.session("holder").begin(), scene.session("one"), scene.session("other")
    holder.execute("select from holdfast.limiter for no key update")

    first = one.start(lambda: one.value("select holdfast.repair(unreadable_only => true)")).blocked_by(holder)
    second = other.start(lambda: other.value("select holdfast.repair(unreadable_only => true)"))
    second.blocked_by(holder, one)
    holder.rollback()

    assert (first.result(), second.result()) == (0, 0)
    assert scene.watcher.value("select (holdfast.take_rate('a', 10, want => 10)).granted") == 10


def test_repair_does_not_wait_for_a_claim_from_an_empty_bucket(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.create_queue('slow', '{\"throughput_limit\": 1}')")
    for _ in range(2):
        scene.watcher.send("slow")
    holder, admin = scene.session("holder"), impatient(scene, "admin")
    holder.take(queue="slow")
    holder.begin()
    in_vain = holder.take(queue="slow")
    patience = holder.value("show idle_in_transaction_session_timeout")

    lanes = admin.value("select holdfast.repair('slow')")
    holder.rollback()

    assert (in_vain, patience, lanes) == ([], "1min", 1)


def test_maintain_leaves_the_register_that_an_open_transaction_has_used(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.take_rate('a', 10), holdfast.take_rate('b', 10)")
    holder, keeper = scene.session("holder").begin(), impatient(scene, "keeper")
    holder.execute("select holdfast.take_rate('a', 10, want => 0)")
    for passed in ("20 min", "2 h"):
        scene.clock(passed)
        # It starts at any of them: both have had their turn after a few calls.
        for _ in range(20):
            keeper.execute(MAINTAIN)

    meanwhile = scene.watcher.value(REGISTERS)
    holder.rollback()
    keeper.execute(MAINTAIN)

    assert (meanwhile, scene.watcher.value(REGISTERS)) == (1, 0)


def test_what_is_taken_while_maintain_frees_the_limiter_is_not_forgotten(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.take_rate('first', 10)")
    scene.watcher.execute("select holdfast.take_rate('a', 10)")
    scene.clock("20 min")
    keeper, taker = scene.session("keeper").begin(), scene.session("taker")
    keeper.execute(MAINTAIN)
    take = "select (holdfast.take_rate(%s, 0.001, 10, 10, true)).granted"

    taking = taker.start(lambda: taker.value(take, ["a"]))
    taking.settles_or_blocks_on(keeper)
    keeper.commit()

    assert (taking.result(), taker.value(take, ["a"]), taker.value(take, ["b"])) == (10, 0, 10)


def test_maintain_does_not_free_a_limiter_that_is_being_taken_from(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.take_rate('first', 10)")
    scene.watcher.execute("select holdfast.take_rate('a', 10)")
    scene.clock("20 min")
    taker, keeper = scene.session("taker").begin(), impatient(scene, "keeper")
    take = "select (holdfast.take_rate('a', 0.001, 10, 10, true)).granted"

    taken = taker.value(take)
    keeper.execute(MAINTAIN)
    taker.commit()

    assert (taken, keeper.value(take)) == (10, 0)
