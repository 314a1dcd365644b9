"""Order, with several sessions at the same moment.

1. Senders of one key queue up: the order is that of their commits; a sender of another key does not wait.
2. An ack waits for the claim that is parking somebody behind its message; then that one is due. A claim that
   rolls back has parked nobody.
3. A claim that meets a message whose head is being acked looks again shortly: it comes if the ack
   commits, and stays behind its head if that rolls back. One that was sent after
   the ack looked for the next is not parked for good.
4. The baton is not lost to one who cancels the next message at this moment, on either side of the commit.
5. A claim waits for nobody: not to end an expired head, not to bury a dead one, not to park what is locked.
6. Claims of two lanes at once hand out one message of a line.
7. Savepoints that are rolled back leave the line as it was.
8. unblock, discard and unblock again: one of them does it, the other is told.
9. An ack waits for nobody but those: not for an open sender of its key.
10. A purge waits for nobody, so it stalls no lane: what cannot end now is left, and told.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.isolation.scene import Scene, Session
from tests.waiting import eventually


def ordered(scene: Scene, **config: object) -> None:
    """Let the queue be ordered by key."""
    fields = {"ordering": "key"} | config
    scene.watcher.execute("select holdfast.configure_queue('q', %s)", [Jsonb(fields)])


def line(session: Session, count: int, key: str = "a") -> list[int]:
    """Send messages of one key."""
    return [session.send(ordering_key=key) for _ in range(count)]


def end(session: Session, commits: bool) -> None:
    if commits:
        session.commit()
    else:
        session.rollback()


def coming(session: Session, count: int = 1) -> list[int]:
    """What claims hand out in the end."""
    taken: list[int] = []

    def more() -> bool:
        taken.extend(session.take(1))
        return len(taken) >= count

    eventually(more, what=f"{count} messages come")
    return taken


@pytest.mark.parametrize("commits", [True, False])
def test_senders_of_a_key_queue_up(scene: Scene, commits: bool) -> None:
    ordered(scene)
    one, two, other = scene.session("one"), scene.session("two"), scene.session("other")
    first = one.begin().send(ordering_key="a")
    waiting = two.start(lambda: two.send(ordering_key="a")).blocked_by(one)
    elsewhere = other.send(ordering_key="b")
    also_first = one.send(ordering_key="a", priority=5)

    end(one, commits)

    second = waiting.result()
    scene.drain()
    drained = [first, also_first, second] if commits else [second]
    assert scene.journal.sent == {*drained, elsewhere}


def test_the_order_of_a_line_is_that_of_the_commits(scene: Scene) -> None:
    ordered(scene)
    one, two = scene.sessions("sender", 2)
    first = one.begin().send(ordering_key="a")
    waiting = two.start(lambda: two.send(ordering_key="a", priority=9)).blocked_by(one)
    one.commit()

    assert scene.drain() == [first, waiting.result()]


@pytest.mark.parametrize("commits", [True, False])
def test_an_ack_waits_for_the_claim_that_parks_behind_its_message(scene: Scene, commits: bool) -> None:
    ordered(scene)
    worker, claimer = scene.session("worker"), scene.session("claimer")
    head, behind = line(worker, 2)
    ((token, _, _),) = worker.claim(1)
    nothing = claimer.begin().take(5)
    acking = worker.start(lambda: worker.ack(token)).blocked_by(claimer)

    end(claimer, commits)

    assert (nothing, acking.result()) == ([], ([head], []))
    assert coming(worker) == [behind]


@pytest.mark.parametrize("commits", [True, False])
def test_a_claim_that_meets_a_line_whose_head_is_being_acked_looks_again(scene: Scene, commits: bool) -> None:
    ordered(scene)
    worker, claimer = scene.session("worker"), scene.session("claimer")
    head, behind = line(worker, 2)
    ((token, _, _),) = worker.claim(1)
    worker.begin().ack(token)
    meanwhile = claimer.take(5)

    end(worker, commits)

    assert meanwhile == []
    if commits:
        assert coming(claimer) == [behind]
    else:
        for _ in range(3):
            assert claimer.take(5) == []
        worker.ack(token, [head])
        assert coming(claimer) == [behind]


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_sent_while_its_head_is_being_acked_is_not_parked_for_good(
    scene: Scene, commits: bool
) -> None:
    ordered(scene)
    worker, sender, claimer = scene.session("worker"), scene.session("sender"), scene.session("claimer")
    (head,) = line(sender, 1)
    ((token, _, _),) = worker.claim(1)
    worker.begin().ack(token)  # the baton found nobody
    (late,) = line(sender, 1)
    meanwhile = claimer.take(5)

    end(worker, commits)

    assert meanwhile == []
    if not commits:
        worker.ack(token, [head])
    assert coming(claimer) == [late]


@pytest.mark.parametrize("commits", [True, False])
def test_the_baton_passes_over_a_message_that_is_being_cancelled(scene: Scene, commits: bool) -> None:
    ordered(scene)
    worker, admin = scene.session("worker"), scene.session("admin")
    head, middle, last = line(worker, 3)
    ((token, _, _),) = worker.claim(5)
    assert admin.begin().discard([middle]) == [middle]
    acking = worker.start(lambda: worker.ack(token)).blocked_by(admin)

    end(admin, commits)

    assert acking.result() == ([head], [])
    assert coming(worker) == [last if commits else middle]


@pytest.mark.parametrize("commits", [True, False])
def test_whoever_cancels_the_next_passes_the_baton_on(scene: Scene, commits: bool) -> None:
    ordered(scene)
    worker, admin = scene.session("worker"), scene.session("admin")
    head, middle, last = line(worker, 3)
    ((token, _, _),) = worker.claim(5)
    worker.begin().ack(token)
    cancelling = admin.start(lambda: admin.discard([middle])).blocked_by(worker)

    end(worker, commits)

    assert cancelling.result() == [middle]
    if not commits:
        assert scene.session("other").take(5) == []
        worker.ack(token, [head])
    assert coming(worker) == [last]


def test_a_claim_does_not_wait_to_end_an_expired_head(scene: Scene) -> None:
    ordered(scene)
    scene.clock()
    worker, other = scene.session("worker"), scene.session("other")
    worker.send(ordering_key="a", ttl="1 s")
    last = worker.send(ordering_key="a")
    worker.take(5)
    scene.watcher.execute("select holdfast.repair('q')")
    scene.journal.live.clear()
    other.begin().execute("select from holdfast.message where id = %s for update", [last])
    scene.clock("2 s")
    meanwhile = worker.start(lambda: worker.take(5)).result()
    other.rollback()
    scene.clock("3 s")

    assert meanwhile == []
    assert worker.take(5) == [last]


def test_a_claim_does_not_wait_to_bury_a_dead_head(scene: Scene) -> None:
    ordered(scene, max_deliveries=1)
    scene.clock()
    worker, other = scene.session("worker"), scene.session("other")
    head, last = line(worker, 2)
    worker.take(5)
    other.begin().execute("select from holdfast.message where id = %s for update", [last])
    scene.clock("1 h")
    meanwhile = worker.start(lambda: worker.take(5)).result()
    held = worker.execute("select id from holdfast.holders('q', %s)", [[head]])
    other.rollback()
    scene.journal.expired([head])
    scene.clock("2 h")

    assert (meanwhile, held) == ([], [(head,)])
    assert worker.take(5) == [last]


def test_a_blocked_message_that_somebody_has_locked_is_not_lost(scene: Scene) -> None:
    ordered(scene)
    worker, other = scene.session("worker"), scene.session("other")
    head, last = line(worker, 2)
    other.begin().execute("select from holdfast.message where id = %s for update", [last])
    ((token, taken, _),) = worker.claim(5)
    gaps = scene.gaps()
    other.rollback()
    worker.ack(token)

    assert (taken, gaps) == (head, [(last, last)])
    assert coming(worker) == [last]


def test_claims_of_two_lanes_hand_out_one_message_of_a_line(scene: Scene) -> None:
    ordered(scene)
    one, two = scene.sessions("worker", 2)
    low = one.send(ordering_key="a")
    high = one.send(ordering_key="a", priority=9)
    scene.patient()
    first = one.begin().take(1)
    racing = two.start(lambda: two.take(1))
    racing.settles_or_blocks_on(one)
    one.commit()

    assert (first, racing.result()) == ([low], [])
    one.ack(next(token for token, ids in scene.held.items() if low in ids))
    assert coming(two) == [high]


def test_an_ack_that_is_undone_leaves_the_line_behind_its_head(scene: Scene) -> None:
    ordered(scene)
    worker, other = scene.sessions("worker", 2)
    head, behind = line(worker, 2)
    ((token, _, _),) = worker.claim(5)
    worker.begin().savepoint("s")
    worker.ack(token)
    worker.rollback_to("s")
    worker.commit()
    meanwhile = other.take(5)
    worker.ack(token, [head])

    assert meanwhile == []
    assert coming(other) == [behind]


def test_a_claim_that_is_undone_has_parked_nobody(scene: Scene) -> None:
    ordered(scene)
    worker, other = scene.sessions("worker", 2)
    head, behind = line(worker, 2)
    worker.begin().savepoint("s")
    worker.take(5)
    worker.rollback_to("s")
    worker.commit()

    assert scene.drain(consumer=other) == [head, behind]


@pytest.mark.parametrize("how", ["retry", "skip"])
def test_of_two_who_unblock_a_key_one_does_it(scene: Scene, how: str) -> None:
    ordered(scene, on_dead="block", max_deliveries=1)
    one, two = scene.sessions("admin", 2)
    head, behind = line(one, 2)
    ((token, _, _),) = one.claim(5)
    one.nack(token)
    one.begin().execute("select holdfast.unblock('q', 'a', %s)", [how])
    unblocking = two.start(lambda: two.execute("select holdfast.unblock('q', 'a')")).blocked_by(one)

    one.commit()

    error = unblocking.error()
    assert isinstance(error, psycopg.Error)
    assert error.sqlstate == "QH312"
    assert coming(two) == [head if how == "retry" else behind]


def test_a_blocking_message_that_is_discarded_cannot_be_unblocked(scene: Scene) -> None:
    ordered(scene, on_dead="block", max_deliveries=1)
    one, two = scene.sessions("admin", 2)
    head, behind = line(one, 2)
    ((token, _, _),) = one.claim(5)
    one.nack(token)
    one.begin().discard([head])
    unblocking = two.start(lambda: two.execute("select holdfast.unblock('q', 'a')")).blocked_by(one)

    one.commit()

    error = unblocking.error()
    assert isinstance(error, psycopg.Error)
    assert error.sqlstate == "QH312"
    assert coming(two) == [behind]


def test_an_unblock_that_is_open_lets_nobody_through(scene: Scene) -> None:
    ordered(scene, on_dead="block", max_deliveries=1)
    admin, worker = scene.session("admin"), scene.session("worker")
    head, _ = line(admin, 2)
    ((token, _, _),) = admin.claim(1)
    admin.nack(token)
    admin.begin().execute("select holdfast.unblock('q', 'a', 'skip')")
    meanwhile = worker.take(5)
    admin.rollback()

    assert (meanwhile, worker.take(5)) == ([], [])
    admin.execute("select holdfast.unblock('q', 'a')")
    assert coming(worker) == [head]


def test_an_ack_does_not_wait_for_an_open_sender_of_its_key(scene: Scene) -> None:
    ordered(scene)
    worker, sender = scene.session("worker"), scene.session("sender")
    (head,) = line(worker, 1)
    ((token, _, _),) = worker.claim(1)
    late = sender.begin().send(ordering_key="a")
    acked = worker.start(lambda: worker.ack(token)).result()
    sender.commit()

    assert acked == ([head], [])
    assert coming(worker) == [late]


def purge(session: Session, *states: str) -> tuple[int, bool]:
    """Purge; how many, and is there more? An error if it has to wait."""
    session.execute("set lock_timeout = '2s'")
    ((purged, more),) = session.execute("select * from holdfast.purge('q', %s)", [list(states)])
    return purged, more


def fresh_head(scene: Scene) -> None:
    scene.session("sender").send(ordering_key="a")


def head_in_flight(scene: Scene) -> None:
    worker = scene.session("worker")
    worker.send(ordering_key="a")
    assert len(worker.take(5)) == 1


def due_head(scene: Scene) -> None:
    scene.session("sender").send(ordering_key="a", key="head")


def scheduled_head(scene: Scene) -> None:
    scene.session("sender").send(ordering_key="a", delay="1 h")


def head_in_a_gap(scene: Scene) -> None:
    late, worker = scene.session("late"), scene.session("worker")
    late.begin().send(ordering_key="a")
    worker.send()
    ((token, _, _),) = eventually(lambda: worker.claim(5), what="the cursor passes the gap")
    worker.ack(token)
    late.commit()


def blocked_head(scene: Scene) -> None:
    worker = scene.session("worker")
    ordered(scene, on_dead="block", max_deliveries=1)
    worker.send(ordering_key="a")
    ((token, _, _),) = worker.claim(5)
    worker.nack(token)


@pytest.mark.parametrize(
    ("head", "state"),
    [
        (fresh_head, "ready"),
        (due_head, "ready"),
        (head_in_a_gap, "ready"),
        (head_in_flight, "in_flight"),
        (scheduled_head, "scheduled"),
        (blocked_head, "blocked"),
    ],
)
def test_a_purge_leaves_a_head_whose_successor_is_locked(
    scene: Scene, head: Callable[[Scene], None], state: str
) -> None:
    ordered(scene)
    sender, admin = scene.session("sender"), scene.session("admin")
    head(scene)
    sender.send(ordering_key="a", key="k", priority=1)
    sender.begin().send(ordering_key="a", key="k")  # replaces it, and has it locked

    meanwhile = purge(admin, state)
    sender.commit()

    assert meanwhile == (0, True)
    assert purge(admin, state)[0] >= 1
    left = "select count(*) from holdfast.message where ordering_key = 'a' and key is distinct from 'k'"
    assert scene.watcher.value(left) == 0
