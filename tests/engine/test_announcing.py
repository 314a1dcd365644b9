"""Changes of configuration are announced, so that servers forget what they know.

1. Whatever changes a queue or its schema for servers notifies on holdfast_config with its name; the defaults
   with none.
2. What changes nothing, fails or rolls back does not; nor does a queue of which notify is false.
3. The hot verbs never do: not even where a message dies and its dead-letter queue is made.
4. notify is the switch for two-phase commit: without it, a change of configuration can be prepared.
5. queue_info tells of one queue what queues() tells of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import Engine
from tests.seals.plainly import pair

Action = Callable[[Engine], Any]


@pytest.fixture
def listener(open_engine: Open) -> Engine:
    """Another session, which listens for changes."""
    listener = open_engine()
    listener.conn.execute("listen holdfast_config")
    return listener


def heard(listener: Engine) -> list[str]:
    """What came since the last time: a round trip delivers what was committed before it."""
    listener.conn.execute("select 1")
    return [notification.payload for notification in listener.conn.notifies(timeout=0)]


def configure(**config: Any) -> Action:
    return lambda engine: engine.value("configure_queue", queue="q", config=config)


CHANGES: dict[str, tuple[Action, str]] = {
    "create": (lambda engine: engine.create("other"), "other"),
    "configure": (configure(claim_window="1 s"), "q"),
    "seal key": (lambda engine: engine.value("set_seal_key", queue="q", public_key=pair().public), "q"),
    "pause": (lambda engine: engine.value("pause_queue", queue="q"), "q"),
    "drop": (lambda engine: engine.value("drop_queue", queue="q"), "q"),
    "notify off": (configure(notify=False), "q"),
    "defaults": (lambda engine: engine.value("configure_defaults", config={"lease": "1 min"}), ""),
}


@pytest.mark.parametrize(("action", "text"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_announced(queue: Engine, listener: Engine, action: Action, text: str) -> None:
    action(queue)

    assert heard(listener) == [text]


def test_resuming_is_announced(queue: Engine, listener: Engine) -> None:
    queue.value("pause_queue", queue="q")
    queue.value("resume_queue", queue="q")

    assert heard(listener) == ["q", "q"]


@pytest.mark.parametrize(
    "action",
    [
        lambda engine: engine.value("create_queue", queue="q"),
        lambda engine: engine.value("resume_queue", queue="q"),
        lambda engine: engine.value("drop_queue", queue="nowhere"),
    ],
    ids=["create again", "resume", "drop nothing"],
)
def test_what_changes_nothing_is_not_announced(queue: Engine, listener: Engine, action: Action) -> None:
    assert action(queue) is False

    assert heard(listener) == []


def test_a_change_that_is_refused_or_rolled_back_is_not_announced(queue: Engine, listener: Engine) -> None:
    with pytest.raises(psycopg.Error):
        queue.value("configure_queue", queue="q", config={"claim_window": "1 min"})
    with queue.conn.transaction(force_rollback=True):
        queue.value("configure_queue", queue="q", config={"claim_window": "1 s"})

    assert heard(listener) == []


def test_a_queue_that_does_not_notify_announces_nothing(engine: Engine, listener: Engine) -> None:
    engine.create("quiet", notify=False)
    engine.value("configure_queue", queue="quiet", config={"claim_window": "1 s"})
    engine.value("pause_queue", queue="quiet")
    engine.value("drop_queue", queue="quiet")

    assert heard(listener) == []


def test_defaults_that_do_not_notify_announce_nothing(engine: Engine, listener: Engine) -> None:
    engine.value("configure_defaults", config={"notify": False})
    engine.value("configure_defaults", config={"lease": "1 min"})

    assert heard(listener) == []


def test_the_hot_verbs_announce_nothing_not_even_a_new_grave(engine: Engine, listener: Engine) -> None:
    engine.create("q", max_deliveries=1)
    assert heard(listener) == ["q"]

    engine.send(1)
    engine.send(2, priority=7)
    for row in engine.claim(2):
        engine.settle("nack", row["token"])
    engine.value("maintain")

    assert engine.stats()["dead"] == 2
    assert heard(listener) == []


def prepared(engine: Engine, action: Action) -> None:
    """Prepare a change, and commit it."""
    engine.conn.execute("begin")
    action(engine)
    engine.conn.execute("prepare transaction 'announcing'")
    engine.conn.execute("commit prepared 'announcing'")


@pytest.mark.parametrize(
    "action",
    [
        configure(claim_window="1 s"),
        lambda engine: engine.value("pause_queue", queue="q"),
        lambda engine: engine.create("other", notify=False),
    ],
    ids=["configure", "pause", "create"],
)
def test_a_change_can_be_prepared_where_notify_is_off(engine: Engine, action: Action) -> None:
    engine.create("q", notify=False)

    prepared(engine, action)


def test_a_change_that_notifies_cannot_be_prepared(queue: Engine) -> None:
    before = queue.state()

    with pytest.raises(psycopg.errors.FeatureNotSupported):
        prepared(queue, configure(claim_window="1 s"))

    assert queue.state() == before


@pytest.mark.parametrize("config", [{}, {"claim_window": 1, "rate_limits": {"send": 5}}, {"kind": "log"}])
def test_queue_info_tells_what_queues_tells(engine: Engine, config: dict[str, Any]) -> None:
    engine.value("configure_defaults", config={"lease": "1 min", "rate_limits": {"claim": 9}})
    engine.create("a")
    engine.create("q", **config)

    (listed,) = [row for row in engine.rows("queues") if row["queue"] == "q"]

    assert {"queue": "q"} | engine.row("queue_info", queue="q") == listed
    assert listed["effective"]["rate_limits"]["claim"] == 9
    assert engine.rows("queue_info", queue="nowhere") == []
