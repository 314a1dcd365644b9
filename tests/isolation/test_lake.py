"""Batches of the archive beside open transactions.

1. Two that open batches at once get different messages: the second waits, and goes on behind the first.
2. A batch that is rolled back leaves its messages to the next.
3. Retention beside a removal, and two removals of one batch at once: each message goes once, nobody fails.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.isolation.scene import Scene, Session

OPEN = "select id, messages from holdfast.open_batch(%s, 'q', \"limit\" => 2)"
CLOSE = "select holdfast.close_batch(%s, %s, %s)"


@pytest.fixture
def lake(scene: Scene) -> str:
    """A lake, and three messages that have ended."""
    scene.watcher.execute("select holdfast.configure_queue('q', '{\"keep\": [\"done\"]}')")
    worker = scene.session("worker")
    for _ in range(3):
        worker.send()
        (delivery,) = worker.claim(1)
        worker.ack(delivery.token)
    return str(scene.watcher.value("select holdfast.register_lake('x')"))


def content(session: Session, batch: int) -> list[Any]:
    """What closes a batch, if its file has all of it."""
    read = "select array_agg(id), array_agg(checksum) from holdfast.read_batch(%s)"
    ((ids, checksums),) = session.execute(read, [batch])
    return [batch, ids, checksums]


def archived(scene: Scene) -> int:
    return int(scene.watcher.value("select count(*) from holdfast.archive"))


@pytest.mark.parametrize(("commits", "left"), [(True, 1), (False, 2)])
def test_two_that_open_batches_at_once_get_different_messages(
    scene: Scene, lake: str, commits: bool, left: int
) -> None:
    one, other = scene.session("one"), scene.session("other")
    one.begin().execute(OPEN, [lake])

    second = other.start(lambda: other.execute(OPEN, [lake])).blocked_by(one)
    if commits:
        one.commit()
    else:
        one.rollback()

    ((_, messages),) = second.result()
    assert messages == left


def test_retention_beside_a_removal_passes_over_what_is_being_removed(scene: Scene, lake: str) -> None:
    one, admin = scene.session("one"), scene.session("admin")
    batch = one.value("select id from holdfast.open_batch(%s, 'q')", [lake])
    closing = content(one, batch)
    one.begin().execute(CLOSE, closing)

    purged = admin.value("select purged from holdfast.purge('q', '{archive}')")
    one.commit()

    assert purged == 0
    assert archived(scene) == 0


def test_two_removals_of_one_batch_remove_each_message_once(scene: Scene, lake: str) -> None:
    one, other = scene.session("one"), scene.session("other")
    batch = one.value("select id from holdfast.open_batch(%s, 'q')", [lake])
    closing = content(one, batch)
    first = one.begin().value(CLOSE, closing)

    second = other.start(lambda: other.value(CLOSE, closing)).blocked_by(one)
    one.commit()

    assert (first, second.result()) == (3, 0)
    assert archived(scene) == 0
