"""maintain() from many sessions: they share the work, and wait for nobody.

1. One that is open keeps the others from its lanes and queues, and from nothing else: they skip them at once.
2. A minute has one sample, however many sessions maintain.
3. Nobody's open transaction on a queue's row, its tally or its samples is waited for.
4. A queue can be dropped while maintain runs: one of them comes first.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.isolation.scene import Scene, Session

CALL = "select holdfast.maintain('10 s')"


def maintained(session: Session) -> dict[str, Any]:
    """What maintain() says; it may not wait."""
    session.execute("set lock_timeout = '5s'")
    report: dict[str, Any] = session.value(CALL)
    return report


def samples(scene: Scene) -> int:
    count: int = scene.watcher.value("select count(*) from holdfast.sample")
    return count


def test_work_that_another_is_at_is_skipped(scene: Scene) -> None:
    scene.clock()
    first, second = scene.sessions("maintainer", 2)
    first.begin().execute(CALL)
    scene.watcher.execute("select holdfast.create_queue('new')")

    report = maintained(second)
    first.commit()

    assert (report["lanes"], report["busy"], report["queues"], report["sampled"]) == (2, 1, 2, 1)
    assert samples(scene) == 2


def test_a_minute_has_one_sample_whoever_writes_it(scene: Scene) -> None:
    scene.clock()
    sessions = scene.sessions("maintainer", 4)

    calls = [session.start(partial(session.value, CALL)) for session in sessions]
    sampled = [call.result()["sampled"] for call in calls]

    assert sum(sampled) == samples(scene) == 1


def test_a_sample_that_was_rolled_back_is_written_by_the_next(scene: Scene) -> None:
    scene.clock()
    first, second = scene.sessions("maintainer", 2)
    first.begin().execute(CALL)
    first.rollback()

    assert maintained(second)["sampled"] == samples(scene) == 1


@pytest.mark.parametrize(
    "grip",
    [
        "select from holdfast.queue for update",
        "select from holdfast.tally for update",
        "select from holdfast.sample for update",
        "select from holdfast.message for update",
        "select from holdfast.lease for update",
    ],
)
def test_no_row_is_waited_for(scene: Scene, grip: str) -> None:
    scene.clock()
    maintainer, other = scene.session("maintainer"), scene.session("other")
    other.send()
    other.send()
    other.claim(1, lease="1 s")
    maintained(maintainer)
    scene.clock("15 days")
    other.begin().execute(grip)

    report = maintained(maintainer)
    other.rollback()
    scene.journal.expired([scene.first_id()])

    assert report["lanes"] == 1
    assert maintained(maintainer)["done"] is True
    assert len(scene.drain()) == 2


def test_a_queue_that_is_being_dropped_is_left_alone(scene: Scene) -> None:
    scene.clock()
    maintainer, admin = scene.session("maintainer"), scene.session("admin")
    admin.begin().execute("select holdfast.drop_queue('q')")

    report = maintained(maintainer)
    admin.commit()

    assert (report["busy"], report["sampled"]) == (1, 0)
    assert maintained(maintainer)["queues"] == 0


def test_a_drop_waits_for_maintain(scene: Scene) -> None:
    scene.clock()
    maintainer, admin = scene.session("maintainer"), scene.session("admin")
    maintainer.begin().execute(CALL)
    dropping = admin.start(lambda: admin.value("select holdfast.drop_queue('q')")).blocked_by(maintainer)

    maintainer.commit()

    assert dropping.result() is True
    assert samples(scene) == 0
