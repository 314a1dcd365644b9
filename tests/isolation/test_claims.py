"""Claims: rolled back, left open, many at once.

1. A claim that rolls back never happened: whole, to a savepoint, several in one transaction.
2. The cursor register moves only on committed evidence: never by what its own transaction did.
3. A claim left open: others return empty within a bounded time, sends and settlements go on.
4. It bounds its transaction by timeouts, locally: a user's own stay, and all are back afterwards.
5. maintain() ends a session that has held a lane for too long, and its messages are delivered.
6. While a lease is live nobody else gets its messages, however many claim at once (G3).
7. claim refuses REPEATABLE READ and SERIALIZABLE.
8. synchronous_commit is lowered only for due messages, and only for a claim that is alone.
9. Two sessions that claim two queues in opposite order do not deadlock: one of them returns empty.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from psycopg import errors

from tests.isolation.scene import Scene, Session
from tests.waiting import eventually

WRONG_ISOLATION = "QH303"


def test_a_claim_that_rolls_back_never_happened(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send() for _ in range(3)]
    consumer.begin()
    first = consumer.take()
    consumer.rollback()

    again = other.claim()

    assert first == ids
    assert [(delivery.id, delivery.deliveries) for delivery in again] == [(id, 1) for id in ids]


def test_claims_after_a_rolled_back_one_strand_nothing(scene: Scene) -> None:
    consumer = scene.session("consumer")
    for _ in range(6):
        consumer.send()
    for n in range(6):
        consumer.begin()
        token = consumer.claim(1)[0].token
        consumer.ack(token)
        if n % 2:
            consumer.commit()
        else:
            consumer.rollback()

    scene.drain()

    scene.journal.check_exactly_once()


def test_claims_twice_in_one_transaction_that_rolls_back_strand_nothing(scene: Scene) -> None:
    consumer = scene.session("consumer")
    ids = [consumer.send() for _ in range(5)]
    consumer.begin()
    first, second = consumer.take(2), consumer.take(2)
    consumer.rollback()

    rest = scene.drain()

    assert (first, second) == (ids[:2], ids[2:4])
    assert rest == ids
    scene.journal.check_exactly_once()


def test_a_claim_undone_to_a_savepoint_can_be_made_again_in_the_same_transaction(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send() for _ in range(4)]
    consumer.begin()
    kept = consumer.take(1)
    consumer.savepoint("s")
    undone = consumer.take(2)
    consumer.rollback_to("s")
    again = consumer.take(1)
    consumer.commit()

    rest = other.take()

    assert (kept, undone, again, rest) == (ids[:1], ids[1:3], ids[1:2], ids[2:])


@pytest.mark.parametrize("released", [True, False])
def test_a_lease_made_in_a_savepoint_is_no_evidence_within_its_transaction(
    scene: Scene, released: bool
) -> None:
    consumer = scene.session("consumer")
    ids = [consumer.send() for _ in range(4)]
    consumer.begin()
    consumer.savepoint("s")
    first = consumer.take(2)
    if released:
        consumer.release_savepoint("s")
    second = consumer.take(1)
    consumer.sweep()
    register = scene.register("cursor")

    consumer.rollback()

    assert (first, second) == (ids[:2], ids[2:3])
    assert register < ids[0] + 1
    assert scene.drain() == ids
    scene.journal.check_exactly_once()


def test_the_register_moves_to_the_last_committed_claim_only(scene: Scene) -> None:
    consumer = scene.session("consumer")
    ids = [consumer.send() for _ in range(3)]
    consumer.claim(1)
    consumer.begin()
    consumer.claim(1)
    consumer.claim(1)
    consumer.rollback()

    after_rollback = scene.register("cursor")
    taken = consumer.take()

    assert after_rollback == ids[1]
    assert taken == ids[1:]


def test_due_messages_of_a_claim_that_rolls_back_are_due_again(scene: Scene) -> None:
    scene.clock()
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send(delay="1 s") for _ in range(2)]
    scene.clock("2 s")
    consumer.begin()
    first = consumer.take()
    consumer.rollback()

    again = other.take()

    assert first == again == ids


def test_leases_swept_by_a_claim_that_rolls_back_are_swept_again(scene: Scene) -> None:
    scene.clock()
    consumer, other = scene.sessions("consumer", 2)
    id = consumer.send()
    consumer.claim(lease="30 s")
    scene.clock("31 s")
    other.begin()
    scene.journal.expired([id])
    swept = other.claim()
    other.rollback()

    scene.clock("32 s")
    again = other.claim()

    assert [(d.id, d.deliveries) for d in swept + again] == [(id, 2), (id, 2)]


def test_a_claim_left_open_makes_others_return_empty(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send() for _ in range(2)]
    consumer.begin().claim(1)

    pending = other.start(other.take).blocked_by(consumer)
    empty = pending.result()
    consumer.commit()

    assert empty == []
    assert other.take() == ids[1:]


def test_a_claim_that_waited_in_vain_holds_no_lock(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    consumer.send()
    consumer.begin().claim(1)
    other.begin()
    other.start(other.take).result()
    consumer.rollback()

    third = scene.session("third").take()

    assert len(third) == 1
    other.rollback()


def test_sends_and_settlements_go_on_while_a_claim_is_open(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send() for _ in range(5)]
    token = other.claim(4)[0].token
    consumer.begin().claim(1)

    other.execute("set statement_timeout = '10s'")
    late = other.send()
    acked = other.ack(token, ids[:1]).settled
    nacked = other.nack(token, ids[1:2]).settled
    released = other.release(token, ids[2:3]).settled
    extended = other.extend(token, ids[3:4]).settled
    consumer.commit()

    assert [acked, nacked, released, extended] == [ids[:1], ids[1:2], ids[2:3], ids[3:4]]
    assert sorted(other.take()) == [*ids[1:3], late]


def timeouts(session: Session) -> tuple[str, str]:
    """The two timeouts that bound an open claim, as the session sees them."""
    return (
        session.value("show statement_timeout"),
        session.value("show idle_in_transaction_session_timeout"),
    )


def test_an_open_claim_is_bounded_by_timeouts_until_its_transaction_ends(scene: Scene) -> None:
    consumer = scene.session("consumer")
    consumer.send()
    before = timeouts(consumer)
    consumer.begin().claim()
    within = timeouts(consumer)
    consumer.rollback()
    after = timeouts(consumer)
    consumer.claim()

    assert within == ("1min", "1min")
    assert before == after == timeouts(consumer) == ("0", "0")


def test_timeouts_of_the_user_are_kept(scene: Scene) -> None:
    consumer = scene.session("consumer")
    consumer.execute("set statement_timeout = '7s'")
    consumer.execute("set idle_in_transaction_session_timeout = '8s'")

    consumer.begin().claim()
    within = timeouts(consumer)
    consumer.commit()

    assert within == ("7s", "8s")
    assert timeouts(consumer) == ("7s", "8s")


def test_an_empty_claim_that_holds_the_lane_is_bounded_too(scene: Scene) -> None:
    consumer = scene.session("consumer")
    consumer.send()
    scene.crash()

    taken = consumer.begin().take()  # it mends the lane, and takes nothing

    assert taken == []
    assert timeouts(consumer) == ("1min", "1min")
    consumer.rollback()


def test_maintain_ends_a_session_that_holds_a_lane_for_too_long(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    id = other.send()
    consumer.begin().claim()
    scene.watcher.execute(
        "do $$ begin execute replace(pg_get_functiondef('holdfast._end_overdue_holders'::regproc),"
        " '5 minutes', '0 minutes'); end $$"
    )

    report = other.value("select holdfast.maintain()")
    taken = eventually(other.take, what="the lane is free again")

    assert report["holders_ended"] == 1
    assert taken == [id]
    with pytest.raises(errors.OperationalError):
        consumer.execute("select 1")


def test_maintain_leaves_a_claim_alone_that_is_not_overdue(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    id = other.send()
    consumer.begin().claim()

    report = other.value("select holdfast.maintain()")
    consumer.commit()

    assert (report["holders_ended"], report["busy"]) == (0, 1)
    assert scene.journal.delivered == Counter([id])


def claim_often(consumer: Session) -> list[int]:
    """What a consumer gets in five claims."""
    return [id for _ in range(5) for id in consumer.take(3)]


def test_of_many_claimers_at_once_each_message_has_one(scene: Scene) -> None:
    scene.patient()
    consumers = scene.sessions("consumer", 12)
    ids = [scene.watcher.send() for _ in range(150)]
    scene.watcher.begin().execute("select pg_advisory_xact_lock(holdfast._lane_lock(), %s)", [scene.lane()])
    pending = [consumer.start(partial(claim_often, consumer)) for consumer in consumers]
    for claim in pending:
        claim.waiting_for("advisory")

    scene.watcher.commit()
    taken = [id for claim in pending for id in claim.result()]
    holders = scene.watcher.execute("select id from holdfast.holders('q', %s)", [ids])

    assert sorted(taken) == ids[: len(taken)]
    assert len(taken) == 150
    assert [id for (id,) in holders] == ids


def test_due_messages_under_a_live_lease_go_to_nobody_else(scene: Scene) -> None:
    scene.clock()
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send(delay="1 s") for _ in range(3)]
    scene.clock("2 s")
    taken = consumer.take(2, lease="30 s")

    rest = [other.take(), other.take()]
    scene.clock("31 s")
    swept = other.sweep()

    assert (taken, rest) == (ids[:2], [ids[2:], []])
    assert swept == 0


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_claim_refuses_a_transaction_with_one_snapshot(scene: Scene, level: str) -> None:
    consumer = scene.session("consumer")
    id = consumer.send()
    consumer.begin(f"isolation level {level}")

    with pytest.raises(errors.Error) as refused:
        consumer.claim()
    consumer.rollback()

    assert refused.value.sqlstate == WRONG_ISOLATION
    assert consumer.take() == [id]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_next_refuses_a_transaction_with_one_snapshot_and_acks_nothing(scene: Scene, level: str) -> None:
    consumer = scene.session("consumer")
    id = consumer.send()
    token = consumer.claim()[0].token
    consumer.begin(f"isolation level {level}")

    with pytest.raises(errors.Error) as refused:
        consumer.execute("select * from holdfast.next('q', %s)", [token])
    consumer.rollback()

    assert refused.value.sqlstate == WRONG_ISOLATION
    assert consumer.ack(token).settled == [id]


@pytest.mark.parametrize(
    ("alone", "due", "expected"),
    [(True, True, "off"), (True, False, "off"), (False, True, "on"), (False, False, "on")],
)
def test_only_a_claim_alone_lowers_synchronous_commit(
    scene: Scene, alone: bool, due: bool, expected: str
) -> None:
    scene.clock()
    consumer = scene.session("consumer")
    id = consumer.send(delay="1 s") if due else consumer.send()
    scene.clock("2 s")
    consumer.begin()

    taken = consumer.take(alone=alone)
    within = consumer.value("show synchronous_commit")
    consumer.commit()

    assert taken == [id]
    assert within == expected
    assert consumer.value("show synchronous_commit") == "on"


def test_next_never_lowers_synchronous_commit(scene: Scene) -> None:
    scene.clock()
    consumer = scene.session("consumer")
    consumer.send()
    due = consumer.send(delay="1 s")
    token = consumer.claim()[0].token
    scene.clock("2 s")
    consumer.begin()

    taken = [delivery.id for delivery in consumer.next(token, alone=True)]

    assert taken == [due]
    assert consumer.value("show synchronous_commit") == "on"
    consumer.commit()


@pytest.mark.parametrize("deadlock_timeout", ["1s", "50ms"])
def test_two_queues_claimed_in_opposite_order_do_not_deadlock(scene: Scene, deadlock_timeout: str) -> None:
    one, two = scene.sessions("consumer", 2)
    scene.watcher.execute("select holdfast.create_queue('other')")
    ids = [scene.watcher.send(queue) for queue in ("q", "other")]
    for session in (one, two):
        session.execute(f"set deadlock_timeout = '{deadlock_timeout}'")
    taken = [one.begin().take(queue="q"), two.begin().take(queue="other")]

    pending = one.start(lambda: one.take(queue="other")).blocked_by(two)
    crossed = two.start(lambda: two.take(queue="q"))
    empty = [pending.result(), crossed.result()]
    one.commit()
    two.commit()

    assert taken == [[ids[0]], [ids[1]]]
    assert empty == [[], []]


def test_a_claim_waits_once_not_for_every_lane_that_another_holds(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    config = f'{{"priorities": {list(range(11))}}}'
    scene.watcher.execute("select holdfast.create_queue('wide', %s)", [config])
    consumer.begin().claim(queue="wide")
    other.execute("set statement_timeout = '3s'")  # six times what one lane may take

    taken = other.take(queue="wide")

    assert taken == []
    consumer.rollback()
