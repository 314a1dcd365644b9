"""Waking sleepers: NOTIFY, and only while somebody sleeps.

1. listen returns the channel, and says until when somebody may sleep: at most an hour.
2. While that lasts, whatever makes a message claimable notifies with the queue's name; else nothing does.
3. `notify: false` switches it off.
4. A rolled-back send wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine

SECOND = timedelta(seconds=1)
Action = Callable[[Engine], Any]


def heard(listener: Engine) -> list[tuple[str, str]]:
    """What came since the last time: a round trip delivers what was committed before it."""
    listener.conn.execute("select 1")
    return [(n.channel, n.payload) for n in listener.conn.notifies(timeout=0)]


@pytest.fixture
def listener(open_engine: Open) -> Engine:
    """Another session, which listens, but has not said that it sleeps."""
    listener = open_engine()
    listener.conn.execute("listen holdfast")
    return listener


WAKING: dict[str, Action] = {
    "send": lambda engine: engine.send(1),
    "send_batch": lambda engine: engine.send_numbers(2),
    "send_many": lambda engine: engine.value("send_many", queue="q", messages=Jsonb([{}])),
    "inbox": lambda engine: engine.conn.execute("insert into holdfast.inbox (queue) values ('q')"),
    "nack": lambda engine: engine.settle("nack", engine.claim_one()["token"]),
    "release": lambda engine: engine.settle("release", engine.claim_one()["token"]),
    "resume": lambda engine: (
        engine.value("pause_queue", queue="q"),
        engine.value("resume_queue", queue="q"),
    ),
}


def test_listen_returns_the_channel(queue: Engine) -> None:
    assert queue.value("listen", queue="q") == "holdfast"


@pytest.mark.parametrize("action", WAKING.values(), ids=WAKING.keys())
def test_what_makes_a_message_claimable_wakes_a_sleeper(
    queue: Engine, listener: Engine, action: Action
) -> None:
    queue.send("first")
    listener.value("listen", queue="q", patience="30 s")

    action(queue)

    assert heard(listener) == [("holdfast", "q")]


@pytest.mark.parametrize("action", WAKING.values(), ids=WAKING.keys())
def test_nothing_is_notified_while_nobody_sleeps(queue: Engine, listener: Engine, action: Action) -> None:
    queue.send("first")

    action(queue)

    assert heard(listener) == []


def test_a_sleeper_is_forgotten_when_its_patience_is_over(queue: Engine, listener: Engine) -> None:
    listener.value("listen", queue="q", patience="10 s")

    queue.at(T0 + 10 * SECOND)
    queue.send(1)
    last = heard(listener)
    queue.at(T0 + 10 * SECOND + timedelta(microseconds=1))
    queue.send(1)

    assert last == [("holdfast", "q")]
    assert heard(listener) == []


def test_the_longest_patience_of_all_sleepers_holds(queue: Engine, listener: Engine) -> None:
    listener.value("listen", queue="q", patience="30 s")
    listener.value("listen", queue="q", patience="1 s")

    queue.at(T0 + 20 * SECOND)
    queue.send(1)

    assert heard(listener) == [("holdfast", "q")]


@pytest.mark.parametrize(
    ("patience", "after", "expected"), [("5 h", 3600, 1), ("5 h", 3601, 0), ("-5 s", 1, 0), (None, 1, 0)]
)
def test_patience_lasts_from_nothing_to_an_hour(
    queue: Engine, listener: Engine, patience: str | None, after: int, expected: int
) -> None:
    listener.value("listen", queue="q", patience=patience)

    queue.at(T0 + after * SECOND)
    queue.send(1)

    assert len(heard(listener)) == expected


def test_sleepers_of_one_queue_are_not_woken_by_another(queue: Engine, listener: Engine) -> None:
    queue.create("other")
    listener.value("listen", queue="q")

    queue.send(1, queue="other")

    assert heard(listener) == []


def test_the_switch_turns_it_off(engine: Engine, listener: Engine) -> None:
    engine.create("q", notify=False)
    listener.value("listen", queue="q")

    engine.send(1)

    assert heard(listener) == []


def test_a_rolled_back_send_wakes_nobody(queue: Engine, listener: Engine) -> None:
    listener.value("listen", queue="q")

    with queue.conn.transaction(force_rollback=True):
        queue.send(1)

    assert heard(listener) == []


def test_many_sends_in_one_transaction_wake_once(queue: Engine, listener: Engine) -> None:
    listener.value("listen", queue="q")

    with queue.conn.transaction():
        for _ in range(5):
            queue.send(1)

    assert heard(listener) == [("holdfast", "q")]


def test_a_death_wakes_sleepers_of_the_dead_letter_queue(engine: Engine, listener: Engine) -> None:
    engine.create("q.dlq")
    engine.create("q", max_deliveries=1)
    listener.value("listen", queue="q.dlq")

    engine.kill(engine.send(1))

    assert heard(listener) == [("holdfast", "q.dlq")]


def test_a_redrive_wakes_sleepers_of_its_target(engine: Engine, listener: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.kill(engine.send(1))
    listener.value("listen", queue="q")

    engine.rows("redrive", queue="q")

    assert heard(listener) == [("holdfast", "q")]


def test_sends_can_be_prepared_while_nobody_sleeps(queue: Engine) -> None:
    queue.conn.execute("begin")
    queue.send("two phases")
    queue.conn.execute("prepare transaction 'engine_wake'")
    before = queue.claim(1)
    queue.conn.execute("commit prepared 'engine_wake'")

    assert before == []
    assert len(queue.claim(1)) == 1
