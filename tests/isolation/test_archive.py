"""Expiry, archive, purge and replay beside open transactions.

1. An ack that keeps its message and the making or dropping of a partition: neither loses anything; a drop
   that has to wait gives up, and works once the ack has ended. An ack never fails for want of a partition.
2. purge of ready messages jumps over no open send: it is delivered once it commits, never if it rolls back.
3. purge waits a moment for an open claim, says more, and takes nothing that is being settled.
4. A message that is purged or expired beside a discard in an open transaction ends once, or is found again.
5. Expiry in flight leaves alone what an open ack has; an ack that comes second is skipped.
6. Expired messages ahead of the cursor beside an open send: it is delivered once it commits.
7. Two replays at once send each message twice, under different ids.
8. A reader of the archive passes no end that is still to be committed.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.isolation.scene import Scene, Session
from tests.waiting import eventually

KEEPING = '{"keep": ["done", "expired", "discarded"]}'
HASTY = '{"keep": ["done", "expired"], "expire_in_flight": true}'


def configure(scene: Scene, config: str) -> None:
    scene.watcher.execute("select holdfast.configure_queue('q', %s)", [config])


def maintain(session: Session) -> dict[str, Any]:
    did: dict[str, Any] = session.value("select holdfast.maintain()")
    return did


def purge(session: Session, *states: str) -> tuple[int, bool]:
    ((purged, more),) = session.execute("select purged, more from holdfast.purge('q', %s)", [list(states)])
    return purged, more


def archived(scene: Scene) -> list[tuple[int, str]]:
    """What the archive holds: id and outcome."""
    return [(i, o) for i, o in scene.watcher.execute("select id, outcome from holdfast.archive order by id")]


def expired(session: Session) -> int:
    return int(maintain(session)["expired"])


@pytest.mark.parametrize("commits", [True, False])
def test_a_partition_is_not_dropped_under_an_open_ack(scene: Scene, commits: bool) -> None:
    scene.clock()
    configure(scene, KEEPING)
    maintain(scene.watcher)
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send()
    (delivery,) = worker.claim(lease="24 h")
    worker.begin().ack(delivery.token)
    scene.clock("8 days")

    waited = maintain(admin)
    if commits:
        worker.commit()
    else:
        worker.rollback()
    then = maintain(admin)

    assert (waited["partitions_dropped"], then["partitions_dropped"]) == (0, 1)
    assert archived(scene) == []
    assert scene.messages() == (0 if commits else 1)
    assert id in scene.journal.sent


def test_an_ack_waits_for_a_drop_and_is_kept(scene: Scene) -> None:
    scene.clock()
    configure(scene, KEEPING)
    maintain(scene.watcher)
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send()
    (delivery,) = worker.claim(lease="24 h")
    scene.clock("8 days")
    admin.begin()
    assert maintain(admin)["partitions_dropped"] == 1

    acking = worker.start(lambda: worker.ack(delivery.token)).blocked_by(admin)
    admin.commit()

    # The lease ran out meanwhile; the maintenance has swept it or not, but nothing is lost or doubled.
    settled = acking.result().settled
    assert archived(scene) == ([(id, "done")] if settled else [])
    assert scene.messages() == (0 if settled else 1)


def test_a_partition_is_not_made_under_an_ack_into_the_default_one(scene: Scene) -> None:
    scene.clock("30 days")
    configure(scene, KEEPING)
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send()
    (delivery,) = worker.claim()
    worker.begin().ack(delivery.token)

    waited = maintain(admin)
    worker.commit()
    then = maintain(admin)

    assert (waited["partitions_made"], then["partitions_made"]) == (0, 4)
    assert archived(scene) == [(id, "done")]
    assert scene.watcher.value("select count(*) from holdfast.archive_default") == 0


def test_an_ack_beside_the_making_of_a_partition_is_kept(scene: Scene) -> None:
    scene.clock("30 days")
    configure(scene, KEEPING)
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send()
    (delivery,) = worker.claim()
    admin.begin()
    assert maintain(admin)["partitions_made"] == 4

    acking = worker.start(lambda: worker.ack(delivery.token))
    acking.settles_or_blocks_on(admin)
    admin.commit()

    assert acking.result().settled == [id]
    assert archived(scene) == [(id, "done")]


@pytest.mark.parametrize("commits", [True, False])
def test_purge_jumps_over_no_open_send(scene: Scene, commits: bool) -> None:
    configure(scene, KEEPING)
    producer, late, admin = scene.session("producer"), scene.session("late"), scene.session("admin")
    first = producer.send()
    open_id = late.begin().send()
    last = producer.send()

    assert purge(admin, "ready") == (2, False)
    assert producer.claim() == []
    if commits:
        late.commit()
    else:
        late.rollback()

    assert scene.drain() == ([open_id] if commits else [])
    kept = [(first, "discarded"), (last, "discarded")]
    assert archived(scene) == sorted([*kept, (open_id, "done")] if commits else kept)


def test_a_send_behind_all_others_outlives_a_purge(scene: Scene) -> None:
    producer, late, admin = scene.session("producer"), scene.session("late"), scene.session("admin")
    producer.send()
    open_id = late.begin().send()

    assert purge(admin, "ready") == (1, False)
    late.commit()

    assert scene.drain() == [open_id]


def test_purge_gives_up_on_a_lane_that_an_open_claim_holds(scene: Scene) -> None:
    worker, admin = scene.session("worker"), scene.session("admin")
    ids = [worker.send() for _ in range(3)]
    worker.begin().claim(1)

    assert purge(admin, "ready", "in_flight") == (0, True)
    worker.rollback()

    assert purge(admin, "ready", "in_flight") == (3, False)
    assert scene.messages() == 0
    assert len(ids) == 3


@pytest.mark.parametrize("commits", [True, False])
def test_purge_leaves_alone_what_is_being_acked(scene: Scene, commits: bool) -> None:
    configure(scene, KEEPING)
    worker, admin = scene.session("worker"), scene.session("admin")
    ids = [worker.send() for _ in range(2)]
    held = [worker.claim(1)[0] for _ in ids]
    worker.begin().ack(held[0].token)

    assert purge(admin, "in_flight") == (1, False)
    if commits:
        worker.commit()
    else:
        worker.rollback()

    assert worker.ack(held[1].token, [ids[1]]) == ([], [ids[1]])
    assert worker.ack(held[0].token, [ids[0]]) == (([], [ids[0]]) if commits else ([ids[0]], []))
    assert archived(scene) == [(ids[0], "done"), (ids[1], "discarded")]


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_is_being_discarded_is_not_lost_to_a_purge(scene: Scene, commits: bool) -> None:
    configure(scene, KEEPING)
    admin, other = scene.session("admin"), scene.session("other")
    ids = [admin.send() for _ in range(3)]
    other.begin().discard([ids[1]])

    assert purge(admin, "ready") == (2, False)
    if commits:
        other.commit()
    else:
        other.rollback()

    assert scene.drain() == ([] if commits else [ids[1]])
    outcomes = ["discarded", "discarded" if commits else "done", "discarded"]
    assert archived(scene) == list(zip(ids, outcomes, strict=True))


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_is_being_discarded_expires_if_that_rolls_back(scene: Scene, commits: bool) -> None:
    scene.clock()
    configure(scene, KEEPING)
    admin, other = scene.session("admin"), scene.session("other")
    ids = [admin.send(ttl="10 s") for _ in range(3)]
    other.begin().discard([ids[1]])
    scene.clock("11 s")

    assert expired(admin) == 2
    if commits:
        other.commit()
        assert expired(admin) == 0
    else:
        other.rollback()
        eventually(lambda: expired(admin) == 1, what="what was locked expires")

    outcomes = ["expired", "discarded" if commits else "expired", "expired"]
    assert archived(scene) == list(zip(ids, outcomes, strict=True))


@pytest.mark.parametrize("commits", [True, False])
def test_expiry_leaves_alone_what_an_open_ack_has(scene: Scene, commits: bool) -> None:
    scene.clock()
    configure(scene, HASTY)
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send(ttl="10 s")
    (delivery,) = worker.claim(lease="1 h")
    worker.begin().ack(delivery.token)
    scene.clock("11 s")

    assert expired(admin) == 0
    if commits:
        worker.commit()
    else:
        worker.rollback()
        eventually(lambda: expired(admin) == 1, what="it expires")

    assert archived(scene) == [(id, "done" if commits else "expired")]


@pytest.mark.parametrize("by", ["expiry", "purge"])
def test_nobody_waits_for_an_open_ack_of_a_part_of_a_lease(scene: Scene, by: str) -> None:
    scene.clock()
    configure(scene, HASTY)
    worker, admin = scene.session("worker"), scene.session("admin")
    ids = [worker.send(ttl="10 s") for _ in range(2)]
    token = worker.claim(2, lease="1 h")[0].token
    worker.begin().ack(token, ids[:1])
    scene.clock("11 s")

    def end() -> int:
        return expired(admin) if by == "expiry" else purge(admin, "in_flight")[0]

    assert admin.start(end).result() == 0
    worker.commit()

    eventually(lambda: end() == 1, what="the rest of the lease ends")
    assert worker.ack(token, ids) == ([], ids)
    assert scene.messages() == 0


@pytest.mark.parametrize("commits", [True, False])
def test_an_ack_beside_an_expiry_waits_and_is_skipped(scene: Scene, commits: bool) -> None:
    scene.clock()
    configure(scene, HASTY)
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send(ttl="10 s")
    (delivery,) = worker.claim(lease="1 h")
    scene.clock("11 s")
    admin.begin()
    assert expired(admin) == 1

    acking = worker.start(lambda: worker.ack(delivery.token, [id])).blocked_by(admin)
    if commits:
        admin.commit()
    else:
        admin.rollback()

    assert acking.result() == ([], [id])
    assert archived(scene) == [(id, "expired")]
    assert scene.messages() == 0


@pytest.mark.parametrize("commits", [True, False])
def test_an_open_send_among_expired_messages_is_not_passed_for_good(scene: Scene, commits: bool) -> None:
    scene.clock()
    producer, late, admin = scene.session("producer"), scene.session("late"), scene.session("admin")
    producer.send(ttl="10 s")
    open_ids = [late.begin().send()]
    producer.send(ttl="10 s")
    open_ids.append(late.send())
    scene.clock("11 s")

    assert expired(admin) == 2
    assert producer.claim() == []
    if commits:
        late.commit()
    else:
        late.rollback()

    scene.watcher.execute("select holdfast.set_clock(null)")
    assert sorted(scene.drain()) == (open_ids if commits else [])


def test_an_expiry_that_rolls_back_did_not_happen(scene: Scene) -> None:
    scene.clock()
    admin = scene.session("admin")
    for _ in range(3):
        admin.execute("select holdfast.send('q', ttl => '10 s')")
    scene.clock("11 s")
    admin.begin()
    assert expired(admin) == 3
    admin.rollback()

    scene.clock("5 s")

    assert len(admin.execute("select * from holdfast.claim('q', 10)")) == 3


def test_two_replays_at_once_send_every_message_twice(scene: Scene) -> None:
    configure(scene, KEEPING)
    worker, one, other = scene.session("worker"), scene.session("one"), scene.session("other")
    ids = [worker.send() for _ in range(3)]
    for delivery in [worker.claim(1)[0] for _ in ids]:
        worker.ack(delivery.token)
    query = "select id, new_id from holdfast.replay('q')"

    first = one.begin().execute(query)
    second = other.begin().execute(query)
    one.account_sent([new for _, new in first])
    other.account_sent([new for _, new in second])
    other.commit()
    one.commit()

    assert [old for old, _ in first] == [old for old, _ in second] == ids
    assert sorted(scene.drain()) == sorted(new for _, new in [*first, *second])
    assert len(archived(scene)) == 9


def test_read_archive_stops_before_an_end_that_is_not_committed(scene: Scene) -> None:
    configure(scene, KEEPING)
    late, other, reader = scene.session("late"), scene.session("other"), scene.session("reader")
    first, second = late.send(), other.send()
    (slow,), (quick,) = late.claim(1), other.claim(1)
    late.begin().ack(slow.token)
    other.ack(quick.token)
    read = "select id from holdfast.read_archive('q')"

    while_open = reader.execute(read)
    late.commit()
    afterwards = reader.execute(read)

    assert while_open == []
    assert afterwards == [(first,), (second,)]
