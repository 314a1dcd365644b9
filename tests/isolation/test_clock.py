"""Floors and clocks: registers that say where to start a walk, and a clock that does not only go forward.

1. What becomes due below the floor, because its transaction committed late, is found by the next walk from
   the bottom: a nack, a release, a delayed send; and a lease that ends below the lease floor.
2. A floor above now() counts as unset.
3. With a clock that goes backwards nothing is lost or delivered twice; leases and delays end by the clock.
4. A transaction that rolls back may leave registers where they are: that costs nothing but a walk.
"""

from __future__ import annotations

import pytest

from tests.isolation.scene import Scene, Session

MICROSECONDS = "select (extract(epoch from {}) * 1000000)::bigint"
SOON = 30_000_000  # microseconds


def now(scene: Scene) -> int:
    """The engine's clock, in microseconds."""
    value: int = scene.watcher.value(MICROSECONDS.format("holdfast.now()"))
    return value


def real_now(scene: Scene) -> int:
    """The real clock, by which walks from the bottom come, in microseconds."""
    value: int = scene.watcher.value(MICROSECONDS.format("clock_timestamp()"))
    return value


def raise_floor(scene: Scene, kind: str) -> None:
    """As a claim that found the walk dear: the floor is now, and the next walk from the bottom is later."""
    scene.set_register(f"{kind}_floor", now(scene))
    scene.set_register(f"{kind}_walk", real_now(scene) + SOON)


def walk_from_the_bottom(scene: Scene, kind: str) -> None:
    """As time does: the next walk from the bottom is due."""
    scene.set_register(f"{kind}_walk", real_now(scene) - 1)


def give_back_late(scene: Scene, worker: Session, verb: str) -> int:
    """A message that was given back at START, in a transaction that commits when the floor is above."""
    scene.clock()
    id = worker.send()
    (delivery,) = worker.claim()
    getattr(worker.begin(), verb)(delivery.token)
    scene.clock("5 s")
    scene.session("other").claim()
    raise_floor(scene, "due")
    worker.commit()
    return id


@pytest.mark.parametrize("verb", ["nack", "release"])
def test_a_message_given_back_late_below_the_floor_is_found_again(scene: Scene, verb: str) -> None:
    worker, other = scene.sessions("worker", 2)
    id = give_back_late(scene, worker, verb)
    before = other.take()

    walk_from_the_bottom(scene, "due")

    assert before == []
    assert other.take() == [id]


@pytest.mark.parametrize("verb", ["nack", "release"])
def test_a_late_message_below_the_floor_is_found_also_among_fresh_ones(scene: Scene, verb: str) -> None:
    worker, other = scene.sessions("worker", 2)
    id = give_back_late(scene, worker, verb)
    fresh = [other.send() for _ in range(3)]

    first = other.take(1)
    walk_from_the_bottom(scene, "due")
    second = other.take(1)

    assert first == fresh[:1]
    assert second == [id]


def test_a_delayed_send_that_commits_late_below_the_floor_is_found_again(scene: Scene) -> None:
    scene.clock()
    sender, worker = scene.session("sender"), scene.session("worker")
    sender.begin()
    late = sender.send(delay="1 s")
    scene.clock("5 s")
    worker.claim()
    raise_floor(scene, "due")
    sender.commit()
    before = worker.take()

    walk_from_the_bottom(scene, "due")

    assert before == []
    assert worker.take() == [late]


def test_a_lease_shortened_late_below_the_floor_is_swept(scene: Scene) -> None:
    scene.clock()
    worker, other = scene.sessions("worker", 2)
    id = worker.send()
    (delivery,) = worker.claim(lease="1 h")
    worker.begin().extend(delivery.token, lease="1 s")
    scene.clock("5 s")
    other.sweep()
    raise_floor(scene, "lease")
    worker.commit()
    scene.clock("6 s")
    before = other.sweep()

    walk_from_the_bottom(scene, "lease")
    after = other.sweep()
    scene.journal.expired([id])

    assert (before, after) == (0, 1)
    assert other.take() == [id]


def test_a_floor_above_the_clock_counts_as_unset(scene: Scene) -> None:
    scene.clock("10 s")
    worker, other = scene.sessions("worker", 2)
    nacked, expiring = worker.send(), worker.send()
    first, second = worker.claim(1), worker.claim(1, lease="1 s")
    worker.nack(first[0].token)
    scene.clock("1 h")  # and back: what a register kept meanwhile lies ahead
    raise_floor(scene, "due")
    raise_floor(scene, "lease")

    scene.clock("12 s")
    scene.journal.expired([expiring])
    taken = other.take()

    assert second[0].id == expiring
    assert sorted(taken) == [nacked, expiring]


@pytest.mark.parametrize("back", ["59 minutes 55 s", "0 s"])
def test_with_a_clock_that_goes_backwards_nothing_is_lost_or_delivered_twice(scene: Scene, back: str) -> None:
    scene.clock("1 h")
    worker, other = scene.sessions("worker", 2)
    ids = [worker.send() for _ in range(3)]
    (held,) = worker.claim(1, lease="30 s")
    other.claim(1)

    scene.clock(back)
    late = other.send()
    taken = other.take()
    swept = other.sweep()
    nacked = other.nack(scene_token(scene, taken[0]), [taken[0]]).settled
    again = other.take()
    scene.clock("1 h 31 s")
    scene.journal.expired([held.id, ids[1], ids[2], late])

    assert taken == [ids[2], late]
    assert swept == 0
    assert nacked == again == [ids[2]]
    assert sorted(worker.take()) == [*ids, late]


def scene_token(scene: Scene, id: int) -> int:
    """The token under which a message is held."""
    token: int = scene.watcher.value("select token from holdfast.holders('q', %s)", [[id]])
    return token


def test_delays_end_by_the_clock_though_it_went_back_and_forth(scene: Scene) -> None:
    scene.clock("1 h")
    worker = scene.session("worker")
    id = worker.send(delay="10 s")
    scene.clock("1 h 5 s")
    early = worker.take()
    scene.clock("0 s")
    back = worker.take()
    scene.clock("1 h 10 s")

    assert (early, back) == ([], [])
    assert worker.take() == [id]


def test_registers_moved_by_a_claim_that_rolled_back_hide_nothing(scene: Scene) -> None:
    scene.clock()
    worker, other = scene.sessions("worker", 2)
    fresh, expiring, delayed = worker.send(), worker.send(), worker.send(delay="5 s")
    worker.claim(1)
    worker.claim(1, lease="1 s")
    scene.clock("10 s")
    other.begin()
    scene.journal.expired([expiring])
    taken = other.take()
    other.sweep()
    other.rollback()

    scene.clock("11 s")
    again = worker.take()

    assert sorted(taken) == sorted(again) == [expiring, delayed]
    assert fresh not in again
