"""durability and fast_mode: who waits for the disk.

1. A send to a fast queue does not wait, if the caller promises that it is a transaction of its own; without
   that promise it leaves the caller's transaction as it is.
2. A send to a durable queue never changes anything.
3. fast_mode() is for one transaction, with all that is in it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import Engine

Sending = Callable[[Engine, bool], object]
SENDS: dict[str, Sending] = {
    "send": lambda engine, alone: engine.send(1, alone=alone),
    "send with options": lambda engine, alone: engine.send(1, tag="x", priority=2, alone=alone),
    "send_batch": lambda engine, alone: engine.send_numbers(2, alone=alone),
    "send_many": lambda engine, alone: engine.value(
        "send_many", queue="q", messages=Jsonb([{}]), alone=alone
    ),
    "send with a key": lambda engine, alone: engine.send(1, key="k", alone=alone),
    "send with an idempotency key": lambda engine, alone: engine.send(1, idempotency_key="k", alone=alone),
    "send_batch with a key": lambda engine, alone: engine.send_numbers(2, key="k", alone=alone),
    "send_many with a key": lambda engine, alone: engine.value(
        "send_many", queue="q", messages=Jsonb([{"key": "k"}]), alone=alone
    ),
}


def commits(engine: Engine) -> str:
    return str(engine.look("select current_setting('synchronous_commit')"))


@pytest.mark.parametrize("how", SENDS)
@pytest.mark.parametrize(
    ("durability", "alone", "expected"),
    [("fast", True, "off"), ("fast", False, "on"), ("durable", True, "on"), ("durable", False, "on")],
)
def test_only_a_send_of_its_own_to_a_fast_queue_does_not_wait(
    engine: Engine, how: str, durability: str, alone: bool, expected: str
) -> None:
    engine.create("q", durability=durability)

    with engine.conn.transaction():
        SENDS[how](engine, alone)
        within = commits(engine)

    assert within == expected
    assert commits(engine) == "on"
    assert engine.stats()["depth"] >= 1


@pytest.mark.parametrize("how", SENDS)
@pytest.mark.parametrize(("alone", "expected"), [(True, "off"), (False, "on")])
def test_it_is_the_same_for_lines(engine: Engine, how: str, alone: bool, expected: str) -> None:
    engine.create("q", durability="fast", ordering="key")

    with engine.conn.transaction():
        SENDS[how](engine, alone)
        within = commits(engine)

    assert within == expected


def test_a_refused_send_changes_nothing(engine: Engine) -> None:
    engine.create("q", durability="fast", max_depth=1)
    engine.send(1)

    with engine.conn.transaction():
        with pytest.raises(Exception, match="QH209"), engine.conn.transaction():
            engine.send(1, alone=True)
        within = commits(engine)

    assert within == "on"


def test_a_queue_is_made_durable_again(engine: Engine) -> None:
    engine.create("q", durability="fast")
    engine.value("configure_queue", queue="q", config={"durability": None})

    with engine.conn.transaction():
        engine.send(1, alone=True)
        within = commits(engine)

    assert within == "on"


def test_fast_mode_holds_for_one_transaction(queue: Engine) -> None:
    with queue.conn.transaction():
        queue.value("fast_mode")
        queue.send(1)
        within = commits(queue)

    assert (within, commits(queue)) == ("off", "on")
