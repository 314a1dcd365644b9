"""After a crash, with wrong registers, and in maintenance: volatile state may be lost, messages may not.

1. Of two claims after a crash the one that read the lane before it was mended drops no lease given since.
2. A claim that mends and rolls back leaves the mending to the next.
3. A token from before the crash settles nothing; what it held is delivered again.
4. A register that is wrong costs a delay: the audit finds what it passed, and takes nothing that is held.
5. sweep and maintain with an old snapshot take nothing from its holder, and mend nothing twice.
6. maintain runs in many sessions at once; repair waits for an open claim, then every lease has expired.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import psycopg
import pytest

from tests.isolation.scene import Scene
from tests.waiting import eventually


def test_a_claim_that_read_the_lane_before_it_was_mended_drops_no_lease(scene: Scene) -> None:
    scene.patient()
    first, second = scene.sessions("consumer", 2)
    ids = [first.send() for _ in range(3)]
    scene.crash()
    first.begin()
    mending = first.take()
    waiting = second.start(second.take).blocked_by(first)
    taken = first.take(2)

    first.commit()
    rest = waiting.result()

    assert (mending, taken, rest) == ([], ids[:2], ids[2:])
    holders = scene.watcher.execute("select id from holdfast.holders('q', %s)", [ids])
    assert [id for (id,) in holders] == ids


def test_many_claims_at_once_after_a_crash_deliver_each_message_once(scene: Scene) -> None:
    scene.patient()
    consumers = scene.sessions("consumer", 8)
    ids = [scene.watcher.send() for _ in range(16)]
    scene.crash()
    scene.watcher.begin().execute("select pg_advisory_xact_lock(holdfast._lane_lock(), %s)", [scene.lane()])
    pending = [consumer.start(partial(consumer.take, 2)) for consumer in consumers]
    for claim in pending:
        claim.waiting_for("advisory")

    scene.watcher.commit()
    taken = [id for claim in pending for id in claim.result()]

    assert sorted(taken) == ids[:14]  # one of the eight mended, and took nothing
    assert scene.session("rest").take() == ids[14:]


def test_a_claim_that_mends_and_rolls_back_leaves_it_to_the_next(scene: Scene) -> None:
    first, second = scene.sessions("consumer", 2)
    ids = [first.send() for _ in range(2)]
    first.claim(1)
    scene.crash()
    first.begin()
    mended = [first.take(), first.take()]
    first.rollback()

    taken = [second.take(), second.take()]

    assert mended == [[], ids]
    assert taken == [[], ids]


def test_a_token_from_before_a_crash_settles_nothing(scene: Scene) -> None:
    consumer = scene.session("consumer")
    scene.clock()
    ids = [consumer.send(), consumer.send(delay="1 s")]
    scene.clock("2 s")
    due, fresh = consumer.claim()
    scene.crash()
    consumer.claim()

    stale = consumer.ack(fresh.token, ids)
    again = consumer.take()

    assert [fresh.id, due.id] == ids
    assert stale == ([], ids)
    assert sorted(again) == ids


def test_open_senders_outlive_the_forgetting_of_gaps(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = sender.send()
    consumer.send()
    consumer.ack(consumer.claim()[0].token)
    scene.crash()
    consumer.claim()
    consumer.send()
    consumer.ack(consumer.claim()[0].token)

    sender.commit()

    assert scene.drain() == [late]
    scene.journal.check_exactly_once()


def test_the_audit_finds_what_a_wrong_cursor_passed_and_nothing_that_is_held(scene: Scene) -> None:
    scene.clock()
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send() for _ in range(6)]
    (held,) = consumer.claim(1)
    scene.set_register("cursor", ids[-1] + 1)
    lost = other.take()

    report = other.value("select holdfast.maintain()")
    found = other.take()

    assert lost == []
    assert report["found"] == 5
    assert found == ids[1:]
    assert consumer.ack(held.token).settled == [held.id]


def test_the_audit_finds_a_late_message_whose_gap_was_lost(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = sender.send()
    for _ in range(2):
        consumer.send()
        consumer.ack(consumer.claim()[0].token)
    scene.watcher.execute("delete from holdfast.gap")
    sender.commit()
    consumer.claim()

    consumer.execute("select holdfast.maintain()")

    assert consumer.take() == [late]
    assert consumer.take() == []


@pytest.mark.parametrize("kind", ["fresh", "due", "late", "split"])
def test_the_audit_takes_nothing_from_a_lease(scene: Scene, kind: str) -> None:
    scene.clock()
    sender, consumer, other = scene.session("sender"), scene.session("consumer"), scene.session("other")
    sender.begin()
    late = sender.send()
    ids = [consumer.send(), consumer.send(), consumer.send(delay="1 s")]
    scene.clock("2 s")
    deliveries = consumer.claim()
    if kind == "late":
        sender.commit()
        deliveries += consumer.claim()
        ids = [late, *ids]
    elif kind == "split":
        consumer.extend(deliveries[0].token, ids[1:])
    scene.watcher.send()
    other.ack(other.claim()[0].token)

    for _ in range(4):
        other.execute("select holdfast.maintain()")

    assert other.take() == []
    assert sorted(d.id for d in deliveries) == ids
    if kind != "late":
        sender.rollback()


def test_the_audit_leaves_an_ack_in_an_open_transaction_alone(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    ids = [consumer.send() for _ in range(2)]
    (first, second) = [consumer.claim(1)[0], consumer.claim(1)[0]]
    consumer.begin()
    consumer.ack(first.token)
    consumer.nack(second.token)

    for _ in range(3):
        other.execute("select holdfast.maintain()")
    taken = other.take()
    consumer.commit()

    assert taken == []
    assert eventually(other.take, what="the nacked message is found") == ids[1:]


@pytest.mark.parametrize("call", ["select holdfast.maintain()", "select holdfast.sweep('q')"])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_maintenance_with_an_old_snapshot_takes_nothing_from_a_lease(
    scene: Scene, call: str, level: str
) -> None:
    old, consumer, other = scene.session("old"), scene.session("consumer"), scene.session("other")
    ids = [consumer.send() for _ in range(3)]
    old.begin(f"isolation level {level}").execute("select count(*) from holdfast.message")
    taken = [consumer.take(1), consumer.take(1), consumer.take(1)]
    other.claim()

    with suppress(psycopg.Error):
        old.execute(call)
        old.execute("commit")
    old.execute("rollback")

    assert taken == [[id] for id in ids]
    assert other.take() == []


@pytest.mark.parametrize("call", ["select holdfast.maintain()", "select holdfast.sweep('q')"])
def test_maintenance_with_a_snapshot_from_before_the_mending_mends_nothing(scene: Scene, call: str) -> None:
    old, sender, consumer = scene.session("old"), scene.session("sender"), scene.session("consumer")
    for _ in range(3):
        consumer.send()
    scene.crash()
    old.begin("isolation level repeatable read").execute("select count(*) from holdfast.message")
    consumer.claim()
    sender.begin()
    late = sender.send()
    token = consumer.claim(3)[0].token
    scene.watcher.send()
    passing = consumer.claim()[0].token
    sender.commit()
    held = consumer.take()  # the late one, from its gap: above all other leases once the passing one is acked
    consumer.ack(token)
    consumer.ack(passing)
    consumer.claim()

    with suppress(psycopg.Error):
        old.execute(call)
        old.execute("commit")
    old.execute("rollback")
    again = [*scene.session("other").take(), *scene.session("other").take()]

    assert held == [late]
    assert again == []


def test_maintain_in_several_sessions_at_once_does_not_deadlock(scene: Scene) -> None:
    first, second, blocker = scene.sessions("maintainer", 3)
    for name in ("b", "c"):
        scene.watcher.execute("select holdfast.create_queue(%s)", [name])
    scene.watcher.execute("select holdfast.maintain()")
    scene.watcher.execute("select setval('holdfast.turn', 0)")
    b = scene.watcher.value("select id from holdfast.queue where name = 'b'")
    blocker.begin().execute("select from holdfast.tally where queue_id = %s for update", [b])
    one = first.start(lambda: first.value("select holdfast.maintain()"))
    one.settles_or_blocks_on(blocker)
    scene.watcher.execute("select setval('holdfast.turn', %s)", [scene.lane("b")])  # as a third one would
    two = second.start(lambda: second.value("select holdfast.maintain()"))
    two.settles_or_blocks_on(first, blocker)

    blocker.rollback()

    assert one.error() is None
    assert two.error() is None


def test_maintain_does_not_wait_for_another_that_is_open(scene: Scene) -> None:
    first, second = scene.sessions("maintainer", 2)
    first.begin().execute("select holdfast.maintain()")
    second.execute("set statement_timeout = '10s'")

    report = second.value("select holdfast.maintain()")
    first.rollback()

    assert report["busy"] == 1


def test_repair_waits_for_an_open_claim_and_ends_its_lease(scene: Scene) -> None:
    consumer, admin = scene.session("consumer"), scene.session("admin")
    id = consumer.send()
    consumer.begin()
    (delivery,) = consumer.claim()
    repairing = admin.start(lambda: admin.value("select holdfast.repair('q')")).blocked_by(consumer)

    consumer.commit()
    repaired = repairing.result()
    scene.journal.expired([id])
    stale = consumer.ack(delivery.token, [id])

    assert repaired == 1
    assert stale == ([], [id])
    assert scene.drain() == [id]


def test_a_claim_that_waits_for_repair_works_with_the_new_registers(scene: Scene) -> None:
    scene.patient()
    consumer, admin = scene.session("consumer"), scene.session("admin")
    ids = [consumer.send() for _ in range(2)]
    admin.begin().execute("select holdfast.repair('q')")
    waiting = consumer.start(consumer.take).blocked_by(admin)

    admin.commit()
    error = waiting.error()

    assert error is None
    assert sorted(waiting.result() + scene.drain()) == ids


def test_a_claim_of_several_lanes_that_waits_for_repair_works_with_the_new_registers(scene: Scene) -> None:
    scene.patient()
    scene.watcher.execute("""select holdfast.configure_queue('q', '{"priorities": [0, 5]}')""")
    consumer, admin = scene.session("consumer"), scene.session("admin")
    ids = [consumer.send(), consumer.send(priority=5)]
    admin.begin().execute("select holdfast.repair('q')")
    waiting = consumer.start(consumer.claim).blocked_by(admin)

    admin.commit()
    taken = waiting.result()
    for delivery in taken:
        consumer.ack(delivery.token)

    assert sorted([delivery.id for delivery in taken] + scene.drain()) == ids
