"""The short ways of claim and ack, against others at the same moment.

1. Two acks of a range at once: one settles it, the other waits and is told so.
2. An ack waits for whoever is splitting the range or giving some of it back, and settles what is left.
3. An ack waits for the sweep that is taking its lease back, and settles nothing, or what that had to leave.
4. A message that somebody discards while it is being claimed is not said to be settled; of several
   acked at once it counts with the others, unless the ack is strict: that refuses.
   The figures count it as in flight until the lease ends; nobody can extend it or is shown as holder.
5. A range ends before an id whose sender is still open; a claim is filled up from behind it all the same, and
   the message is delivered when it commits.
6. A lane that was dropped, or repaired, while a claim waited for it is not claimed from as it was.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.isolation.scene import Delivery, Scene, Session
from tests.waiting import eventually

NINE_SECONDS = 9_000_000  # microseconds
LONG_WAY = "select count(*) from holdfast.lease where token = %s and lo is null"


def calm(scene: Scene) -> None:
    """Let claims take the short way for a while."""
    scene.watcher.execute(
        "select setval(l.care_at, holdfast._us(clock_timestamp()) + %s) from holdfast.lane l", [NINE_SECONDS]
    )


def claim_range(scene: Scene, session: Session, count: int) -> list[Delivery]:
    """Claim messages the short way."""
    calm(scene)
    taken = session.claim(count)
    assert len(taken) == count
    assert session.value(LONG_WAY, [taken[0].token]) == 0
    return taken


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_of_two_acks_of_a_range_one_settles_it(scene: Scene, passed: bool, commits: bool) -> None:
    one, two = scene.sessions("worker", 2)
    sent = [one.send() for _ in range(3)]
    token = claim_range(scene, one, 2)[0].token
    if passed:
        claim_range(scene, one, 1)
    first = one.begin().ack(token)
    second = two.start(lambda: two.ack(token)).blocked_by(one)

    if commits:
        one.commit()
    else:
        one.rollback()

    assert first == (sent[:2], [])
    assert second.result() == (([], []) if commits else (sent[:2], []))


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_an_ack_waits_for_whoever_splits_the_range(scene: Scene, verb: str, passed: bool) -> None:
    one, two = scene.sessions("worker", 2)
    sent = [one.send() for _ in range(3)]
    token = claim_range(scene, one, 2)[0].token
    if passed:
        claim_range(scene, one, 1)
    getattr(one.begin(), verb)(token, sent[:1])
    acking = two.start(lambda: two.ack(token)).blocked_by(one)

    one.commit()

    assert acking.result() == (sent[:2] if verb == "extend" else sent[1:2], [])


def test_an_ack_waits_for_the_sweep_that_takes_its_lease_back(scene: Scene) -> None:
    scene.clock()
    worker, admin = scene.session("worker"), scene.session("admin")
    sent = [worker.send() for _ in range(2)]
    token = claim_range(scene, worker, 2)[0].token
    scene.clock("1 h")
    freed = admin.begin().sweep()
    acking = worker.start(lambda: worker.ack(token, sent)).blocked_by(admin)
    admin.commit()
    scene.journal.expired(sent)

    assert (freed, acking.result()) == (2, ([], sent))
    assert worker.take() == sent


def test_an_ack_after_a_sweep_that_had_to_leave_a_message_settles_that_one_only(scene: Scene) -> None:
    scene.clock()
    worker, other = scene.sessions("worker", 2)
    sent = [worker.send() for _ in range(3)]
    token = claim_range(scene, worker, 3)[0].token
    other.begin().execute("select from holdfast.message where id = %s for update", [sent[1]])
    scene.clock("1 h")
    freed = scene.watcher.sweep()
    other.rollback()
    scene.journal.expired([sent[0], sent[2]])

    settled = worker.ack(token)

    assert (freed, settled) == (2, (sent[1:2], []))
    assert worker.take() == [sent[0], sent[2]]


def claim_and_discard(scene: Scene, count: int) -> tuple[Session, int, list[int]]:
    """A claim of so many, the first of which was discarded before the claim committed."""
    worker, admin = scene.session("worker"), scene.session("admin")
    sent = [worker.send() for _ in range(count)]
    worker.begin()
    token = claim_range(scene, worker, count)[0].token
    assert admin.discard(sent[:1]) == sent[:1]  # it does not see the claim
    worker.commit()
    return worker, token, sent


def test_a_message_discarded_while_it_is_being_claimed_is_not_said_to_be_settled(scene: Scene) -> None:
    worker, token, sent = claim_and_discard(scene, 1)

    assert worker.ack(token, sent) == ([], sent)


def test_of_several_it_counts_as_settled_with_the_others(scene: Scene) -> None:
    worker, token, sent = claim_and_discard(scene, 2)

    assert worker.ack(token, sent) == (sent, [])
    assert scene.messages() == 0


def test_a_strict_ack_of_several_refuses_when_one_was_discarded(scene: Scene) -> None:
    worker, token, sent = claim_and_discard(scene, 2)

    with pytest.raises(psycopg.errors.Error) as refused:
        worker.ack(token, sent, strict=True)

    assert refused.value.sqlstate == "QH304"
    assert scene.messages() == 1


@pytest.mark.parametrize("ends", ["ack", "sweep"])
def test_the_figures_count_such_a_message_until_the_lease_ends(scene: Scene, ends: str) -> None:
    scene.clock()
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send()
    worker.begin()
    ((token, _, _),) = claim_range(scene, worker, 1)
    admin.discard([id])
    worker.commit()
    counted = admin.value("select in_flight from holdfast.queue_stats('q')")
    held = admin.execute("select * from holdfast.holders('q', %s)", [[id]])
    extended = worker.extend(token, [id])

    if ends == "ack":
        worker.ack(token)
    else:
        scene.clock("1 h")
        admin.sweep()

    assert (counted, held, extended) == (1, [], ([], [id]))
    assert admin.execute("select in_flight, depth from holdfast.queue_stats('q')") == [(0, 0)]
    scene.journal.live.clear()


def test_a_range_does_not_step_over_an_open_sender(scene: Scene) -> None:
    late, sender, worker = scene.session("late"), scene.session("sender"), scene.session("worker")
    first = sender.send()
    second = late.begin().send()
    third = sender.send()
    calm(scene)
    taken = worker.take(3)
    calm(scene)
    taken += worker.take(3)

    late.commit()

    assert taken == [first, third]
    assert eventually(worker.take, what="what was sent late is delivered") == [second]


def test_a_claim_is_filled_up_from_behind_an_open_sender(scene: Scene) -> None:
    scene.clock()
    late, sender, worker = scene.session("late"), scene.session("sender"), scene.session("worker")
    first = sender.send()
    late.begin().send()
    third = sender.send()
    scene.clock("1 s")
    calm(scene)

    assert worker.take(2) == [first, third]
    late.rollback()


def test_a_range_that_ends_in_an_open_sender_leaves_it_to_the_next_claim(scene: Scene) -> None:
    late, sender, worker = scene.session("late"), scene.session("sender"), scene.session("worker")
    first = sender.send()
    second = late.begin().send()
    calm(scene)
    taken = worker.take(2)
    late.commit()
    calm(scene)

    assert (taken, worker.take(2)) == ([first], [second])


@pytest.mark.parametrize("change", ["select holdfast.drop_queue('q')", "select holdfast.repair('q')"])
def test_a_lane_that_changed_while_a_claim_waited_for_it_hands_out_nothing(scene: Scene, change: str) -> None:
    scene.patient()
    worker, admin = scene.session("worker"), scene.session("admin")
    id = worker.send()
    admin.begin().execute(change)
    calm_before = worker.start(worker.take).blocked_by(admin)

    admin.commit()

    assert calm_before.result() == []
    scene.journal.sent.discard(id)
