"""Settling in open transactions, against each other and against the sweep.

1. A settlement in an open transaction keeps its messages from the sweep, though the lease ran out.
2. When that transaction commits, it counts; when it rolls back, the messages are delivered again.
3. Two acks of one token: the second waits, and settles only if the first rolls back.
4. An ack that waits for the sweep that ends its lease settles nothing if the sweep commits.
5. A settlement that waits for a lease row which is being split finds every id that is still held.
6. A split lease is settled, extended and ended part by part, and no id twice.
7. A lease row above the cursor register outlives its settlement: late ids below it are delivered once.
8. An extension that waited for a lock counts from when it got it.
9. A message that cannot be locked stays in its lease; it holds up neither its lease nor the leases behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import errors

from tests.isolation.scene import Delivery, Scene, Session

Settle = Callable[[Session, int], object]

LEASE_LOST = "QH304"
LOCK_MESSAGES = "select from holdfast.message where id = any (%s) for update"
FIRST_HELD = "select min(i) from holdfast.lease, unnest(ids) i"

SETTLING: dict[str, Settle] = {
    "ack": lambda session, token: session.ack(token),
    "nack": lambda session, token: session.nack(token),
    "release": lambda session, token: session.release(token),
    "extend": lambda session, token: session.extend(token, lease="100 s"),
    "extend some": lambda session, token: session.extend(token, [session.value(FIRST_HELD)]),
}


def held(scene: Scene, consumer: Session, count: int = 1, lease: str = "30 s") -> list[Delivery]:
    """Messages that a consumer has just taken, at START."""
    scene.clock()
    for _ in range(count):
        consumer.send()
    return consumer.claim(lease=lease)


@pytest.mark.parametrize("verb", SETTLING)
def test_the_sweep_leaves_a_lease_alone_that_is_being_settled(scene: Scene, verb: str) -> None:
    worker, other = scene.sessions("worker", 2)
    deliveries = held(scene, worker, 2)
    worker.begin()
    SETTLING[verb](worker, deliveries[0].token)

    scene.clock("31 s")
    swept = other.sweep()
    taken = other.take()

    assert swept == 0
    assert taken == []
    worker.rollback()


@pytest.mark.parametrize("verb", SETTLING)
def test_a_settlement_rolled_back_after_the_lease_ran_out_means_redelivery(scene: Scene, verb: str) -> None:
    worker, other = scene.sessions("worker", 2)
    deliveries = held(scene, worker, 2)
    worker.begin()
    SETTLING[verb](worker, deliveries[0].token)
    scene.clock("31 s")
    other.sweep()

    worker.rollback()
    scene.clock("32 s")
    scene.journal.expired([delivery.id for delivery in deliveries])
    again = other.claim()

    assert [(delivery.id, delivery.deliveries) for delivery in again] == [(d.id, 2) for d in deliveries]


def test_an_ack_committed_after_the_lease_ran_out_counts(scene: Scene) -> None:
    worker, other = scene.sessions("worker", 2)
    (delivery,) = held(scene, worker)
    worker.begin()
    settlement = worker.ack(delivery.token)
    scene.clock("31 s")
    other.sweep()

    worker.commit()

    assert settlement.settled == [delivery.id]
    assert other.sweep() == 0
    assert scene.drain() == []
    scene.journal.check_exactly_once()


@pytest.mark.parametrize(("verb", "deliveries"), [("nack", 2), ("release", 1)])
def test_giving_back_after_the_lease_ran_out_counts_once(scene: Scene, verb: str, deliveries: int) -> None:
    worker, other = scene.sessions("worker", 2)
    (delivery,) = held(scene, worker)
    worker.begin()
    SETTLING[verb](worker, delivery.token)
    scene.clock("31 s")
    other.sweep()

    worker.commit()
    again = other.claim()

    assert [(d.id, d.deliveries) for d in again] == [(delivery.id, deliveries)]


def test_an_extension_committed_after_the_lease_ran_out_holds(scene: Scene) -> None:
    worker, other = scene.sessions("worker", 2)
    (delivery,) = held(scene, worker)
    worker.begin()
    worker.extend(delivery.token, lease="100 s")
    scene.clock("31 s")
    other.sweep()

    worker.commit()
    scene.clock("99 s")
    swept = other.sweep()
    within = other.take()
    settled = worker.ack(delivery.token).settled

    assert (swept, within) == (0, [])
    assert settled == [delivery.id]


def test_of_two_acks_the_second_settles_nothing_if_the_first_commits(scene: Scene) -> None:
    first, second = scene.sessions("worker", 2)
    (delivery,) = held(scene, first)
    first.begin()
    first.ack(delivery.token)
    late = second.start(lambda: second.ack(delivery.token, [delivery.id])).blocked_by(first)

    first.commit()

    assert late.result() == ([], [delivery.id])
    scene.journal.check_exactly_once()


def test_of_two_acks_the_second_settles_if_the_first_rolls_back(scene: Scene) -> None:
    first, second = scene.sessions("worker", 2)
    (delivery,) = held(scene, first)
    first.begin()
    first.ack(delivery.token)
    late = second.start(lambda: second.ack(delivery.token)).blocked_by(first)

    first.rollback()

    assert late.result() == ([delivery.id], [])
    scene.journal.check_exactly_once()


def test_of_two_strict_acks_the_second_fails(scene: Scene) -> None:
    first, second = scene.sessions("worker", 2)
    (delivery,) = held(scene, first)
    first.begin()
    first.ack(delivery.token, strict=True)
    late = second.start(lambda: second.ack(delivery.token, strict=True)).blocked_by(first)

    first.commit()
    error = late.error()

    assert isinstance(error, errors.Error)
    assert error.sqlstate == LEASE_LOST


@pytest.mark.parametrize("commits", [True, False])
def test_an_ack_that_waits_for_the_sweep_counts_if_the_sweep_rolls_back(scene: Scene, commits: bool) -> None:
    worker, sweeper = scene.sessions("worker", 2)
    (delivery,) = held(scene, worker)
    scene.clock("31 s")
    sweeper.begin()
    swept = sweeper.sweep()
    late = worker.start(lambda: worker.ack(delivery.token, [delivery.id])).blocked_by(sweeper)

    if commits:
        sweeper.commit()
        scene.journal.expired([delivery.id])
    else:
        sweeper.rollback()

    assert swept == 1
    assert late.result() == (([], [delivery.id]) if commits else ([delivery.id], []))
    scene.drain()
    assert scene.journal.delivered[delivery.id] == (2 if commits else 1)


@pytest.mark.parametrize("ids", [[0], [1], [0, 1], [2], [1, 2], [0, 1, 2], None])
@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_a_settlement_that_waits_for_a_split_finds_every_id(
    scene: Scene, verb: str, ids: list[int] | None
) -> None:
    worker, other = scene.sessions("worker", 2)
    deliveries = held(scene, worker, 3)
    token = deliveries[0].token
    wanted = None if ids is None else [deliveries[n].id for n in ids]
    other.begin()
    other.extend(token, [deliveries[1].id, deliveries[2].id])
    late = worker.start(lambda: getattr(worker, verb)(token, wanted)).blocked_by(other)

    other.commit()

    assert late.result() == (wanted or [delivery.id for delivery in deliveries], [])
    if verb == "ack":
        assert scene.messages() == 3 - len(wanted or deliveries)


def test_an_ack_that_waits_for_a_split_which_rolls_back_finds_every_id(scene: Scene) -> None:
    worker, other = scene.sessions("worker", 2)
    deliveries = held(scene, worker, 3)
    other.begin()
    other.extend(deliveries[0].token, [deliveries[1].id])
    late = worker.start(lambda: worker.ack(deliveries[0].token, [deliveries[1].id])).blocked_by(other)

    other.rollback()

    assert late.result() == ([deliveries[1].id], [])


def test_an_ack_that_waits_for_another_of_other_ids_loses_none(scene: Scene) -> None:
    first, second = scene.sessions("worker", 2)
    deliveries = held(scene, first, 4)
    token, ids = deliveries[0].token, [delivery.id for delivery in deliveries]
    first.begin()
    first.ack(token, ids[:2])
    late = second.start(lambda: second.ack(token, ids[1:])).blocked_by(first)

    first.commit()

    assert late.result() == (ids[2:], [ids[1]])
    scene.journal.check_exactly_once()


def test_an_ack_of_all_that_waits_for_a_nack_of_some_leaves_those_alone(scene: Scene) -> None:
    first, second = scene.sessions("worker", 2)
    deliveries = held(scene, first, 4)
    token, ids = deliveries[0].token, [delivery.id for delivery in deliveries]
    first.begin()
    first.nack(token, ids[:2])
    late = second.start(lambda: second.ack(token)).blocked_by(first)

    first.commit()

    assert late.result().settled == ids[2:]
    assert second.take() == ids[:2]


def test_the_parts_of_a_split_lease_end_at_their_own_deadlines(scene: Scene) -> None:
    worker, other = scene.sessions("worker", 2)
    deliveries = held(scene, worker, 3)
    ids = [delivery.id for delivery in deliveries]

    worker.extend(deliveries[0].token, [ids[1]], lease="60 s")
    scene.clock("31 s")
    scene.journal.expired([ids[0], ids[2]])
    first = other.take()
    late = worker.ack(deliveries[0].token, ids)
    scene.clock("61 s")

    assert first == [ids[0], ids[2]]
    assert late == ([ids[1]], [ids[0], ids[2]])


def test_a_lease_split_in_a_savepoint_that_is_undone_is_whole_again(scene: Scene) -> None:
    worker = scene.session("worker")
    deliveries = held(scene, worker, 3)
    ids = [delivery.id for delivery in deliveries]
    worker.begin()
    worker.savepoint("s")
    worker.extend(deliveries[0].token, [ids[1]])
    worker.rollback_to("s")

    settlement = worker.ack(deliveries[0].token)
    worker.commit()

    assert settlement.settled == ids
    scene.journal.check_exactly_once()


def test_late_ids_below_an_acked_lease_are_delivered_once(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = [sender.send() for _ in range(3)]
    early = consumer.send()
    (first,) = consumer.claim()

    consumer.ack(first.token)
    leases = scene.watcher.execute("select ids, upto from holdfast.lease")
    sender.commit()

    assert first.id == early
    assert leases == [([], early + 1)]  # emptied, not deleted: the register has not passed it yet
    assert scene.drain() == late
    scene.journal.check_exactly_once()


def test_late_ids_below_leases_acked_in_any_order_are_delivered_once(scene: Scene) -> None:
    senders, consumer = scene.sessions("sender", 5), scene.session("consumer")
    tokens = []
    for sender in senders:
        sender.begin().send()
        consumer.send()
        tokens += [delivery.token for delivery in consumer.claim()]

    for n in (4, 1, 3, 0, 2):
        consumer.ack(tokens[n])
        senders[n].commit()
        consumer.ack(consumer.claim(1)[0].token)

    scene.drain()
    scene.journal.check_exactly_once()


def test_claim_and_ack_in_one_transaction_do_not_free_the_ids_behind(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = sender.send()
    consumer.send()
    consumer.begin()
    consumer.ack(consumer.claim()[0].token)
    within = consumer.take()

    consumer.commit()
    sender.commit()

    assert within == []
    assert scene.drain() == [late]
    scene.journal.check_exactly_once()


def test_next_rolled_back_undoes_the_ack_and_the_claim(scene: Scene) -> None:
    worker = scene.session("worker")
    first, second = [worker.send() for _ in range(2)]
    (delivery,) = worker.claim(1)
    worker.begin()
    following = [d.id for d in worker.next(delivery.token)]

    worker.rollback()

    assert following == [second]
    assert worker.ack(delivery.token).settled == [first]
    assert scene.drain() == [second]
    scene.journal.check_exactly_once()


def test_messages_that_are_locked_stay_in_their_lease_when_it_ends(scene: Scene) -> None:
    worker, other = scene.sessions("worker", 2)
    ids = [delivery.id for delivery in held(scene, worker, 3)]
    other.begin().execute(LOCK_MESSAGES, [[ids[1]]])

    scene.clock("31 s")
    scene.journal.expired([ids[0], ids[2]])
    taken = worker.take()
    other.rollback()
    scene.clock("32 s")
    scene.journal.expired([ids[1]])

    assert taken == [ids[0], ids[2]]
    assert worker.take() == [ids[1]]


def test_leases_with_locked_messages_do_not_hold_up_those_behind_them(scene: Scene) -> None:
    worker, other = scene.sessions("worker", 2)
    scene.clock()
    ids = [worker.send() for _ in range(201)]  # the sweep takes 200 leases at a time
    for n in range(201):
        scene.clock(f"{n} ms")
        worker.claim(1)
    other.begin().execute(LOCK_MESSAGES, [ids[:200]])

    scene.journal.expired([ids[200]])
    taken = []
    for n in range(20):  # one sweep is bounded by time
        scene.clock(f"{31 + n} s")
        taken += worker.take()

    assert taken == [ids[200]]
    other.rollback()


def test_an_extension_that_waited_counts_from_its_end(scene: Scene) -> None:
    worker, other = scene.sessions("worker", 2)
    (delivery,) = held(scene, worker, lease="10 s")
    other.begin()
    other.ack(delivery.token)
    waiting = worker.start(lambda: worker.extend(delivery.token, lease="1 s")).blocked_by(other)
    scene.clock("5 s")

    other.rollback()

    assert waiting.result().settled == [delivery.id]
    assert other.sweep() == 0
