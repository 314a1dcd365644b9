"""browse and message: looking without taking.

1. browse shows the messages of a state by priority, then id; it takes nothing.
2. A page ends at its limit; the last id as `after` gives the next, over all priorities, nothing twice.
3. message shows one message of the queue or one dead letter that came from it, with its state.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine, ids, payloads

SECOND = timedelta(seconds=1)


def paged(engine: Engine, state: str, size: int) -> list[list[Any]]:
    """The payloads, page by page, until an empty one."""
    pages: list[list[Any]] = []
    after = None
    while rows := engine.rows("browse", queue="q", state=state, limit=size, after=after):
        pages.append(payloads(rows))
        after = rows[-1]["id"]
        assert len(pages) < 20
    return pages


def test_ready_is_shown_in_the_order_of_delivery(queue: Engine) -> None:
    for n, priority in enumerate((0, 5, 0, 9)):
        queue.send(n, priority=priority)

    assert payloads(queue.rows("browse", queue="q")) == [3, 1, 0, 2]
    assert payloads(queue.claim(10)) == [3, 1, 0, 2]


def test_each_state_shows_its_own(engine: Engine) -> None:
    engine.create("q", max_deliveries=2)
    engine.kill(engine.send("dead"))
    engine.send("in flight")
    engine.claim_one()
    engine.send("returned")
    engine.settle("release", engine.claim_one()["token"])
    engine.send("fresh")
    engine.send("scheduled", delay="1 h")

    shown = {
        state: payloads(engine.rows("browse", queue="q", state=state))
        for state in ("ready", "scheduled", "in_flight", "dead")
    }

    assert shown == {
        "ready": ["returned", "fresh"],
        "scheduled": ["scheduled"],
        "in_flight": ["in flight"],
        "dead": ["dead"],
    }


def test_an_entry_tells_everything(queue: Engine) -> None:
    sent = queue.send(
        {"a": 1}, content_type="t", headers={"h": 1}, priority=2, tag="g", ttl="1 h", max_deliveries=9
    )
    queue.settle("nack", queue.claim_one()["token"], error="boom", delay="5 s")

    (row,) = queue.rows("browse", queue="q", state="scheduled")

    assert row == {
        "id": sent,
        "queue": "q",
        "state": "scheduled",
        "payload": {"a": 1},
        "body": None,
        "content_type": "t",
        "headers": {"h": 1},
        "priority": 2,
        "key": None,
        "ordering_key": None,
        "correlation_id": None,
        "tag": "g",
        "deliveries": 1,
        "failures": 1,
        "max_deliveries": 9,
        "enqueued_at": T0,
        "due_at": T0 + 5 * SECOND,
        "expires_at": T0 + timedelta(hours=1),
        "last_error": "boom",
        "origin": None,
        "ended_at": None,
        "consumer": None,
        "claimed_at": None,
    }


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_cover_one_priority(queue: Engine, size: int) -> None:
    queue.send_numbers(5)

    pages = paged(queue, "ready", size)

    assert [n for page in pages for n in page] == [0, 1, 2, 3, 4]
    assert all(len(page) == size for page in pages[:-1])


@pytest.mark.parametrize("state", ["ready", "scheduled", "in_flight"])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_cover_all_priorities(queue: Engine, state: str, size: int) -> None:
    for priority in (0, 5, 0, 5, 9, 0):
        queue.send(priority, priority=priority, delay="1 h" if state == "scheduled" else None)
    if state == "in_flight":
        queue.claim(10)

    pages = paged(queue, state, size)

    assert [n for page in pages for n in page] == [9, 5, 5, 0, 0, 0]
    assert all(len(page) == size for page in pages[:-1])


def test_pages_of_returned_and_fresh_messages_are_in_order_of_id(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    token = queue.claim(4)[0]["token"]
    queue.settle("release", token, [sent[3], sent[0]])

    assert paged(queue, "ready", 2) == [[0, 3], [4, 5]]


def test_pages_of_dead_letters(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    for n in range(5):
        engine.kill(engine.send(n))

    assert paged(engine, "dead", 2) == [[0, 1], [2, 3], [4]]


def test_browsing_takes_nothing(queue: Engine) -> None:
    queue.send_numbers(3)
    before = queue.state()

    queue.rows("browse", queue="q")

    assert queue.state() == before
    assert payloads(queue.claim(10)) == [0, 1, 2]


def test_the_dead_of_a_queue_where_nothing_died(queue: Engine) -> None:
    assert queue.rows("browse", queue="q", state="dead") == []


@pytest.mark.parametrize("state", ["", "READY", "asleep", None])
def test_an_unknown_state_is_refused(refusing: Engine, state: str | None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.rows("browse", queue="q", state=state)

    assert caught.value.sqlstate == "QH401"


@pytest.mark.parametrize("verb", ["browse", "leases", "redrive"])
@pytest.mark.parametrize("limit", [0, -1, 10_001, None])
def test_a_limit_out_of_range_is_refused(refusing: Engine, verb: str, limit: int | None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.rows(verb, queue="q", limit=limit)

    assert caught.value.sqlstate == "QH402"


@pytest.mark.parametrize("verb", ["browse", "leases", "redrive"])
@pytest.mark.parametrize("limit", [1, 10_000])
def test_a_limit_at_its_edge_is_taken(refusing: Engine, verb: str, limit: int) -> None:
    assert refusing.rows(verb, queue="q", limit=limit) == []


def test_message_tells_the_state_of_each(engine: Engine) -> None:
    engine.create("q", max_deliveries=2)
    letter = engine.kill(engine.send("dead"))
    held = engine.send("held")
    engine.claim_one()
    returned = engine.send("returned")
    engine.settle("release", engine.claim_one()["token"])
    held_again = engine.claim_one()["id"]
    fresh, scheduled = engine.send("fresh"), engine.send("scheduled", delay="1 h")

    states = [
        engine.row("message", queue="q", id=i)["state"] for i in (held, held_again, fresh, scheduled, letter)
    ]

    assert held_again == returned
    assert states == ["in_flight", "in_flight", "ready", "scheduled", "dead"]
    assert engine.row("message", queue="q", id=letter)["queue"] == "q.dlq"


def test_message_shows_nothing_of_other_queues_or_of_nothing(queue: Engine) -> None:
    queue.create("other")
    foreign = queue.send(1, queue="other")

    assert queue.rows("message", queue="q", id=foreign) == []
    assert queue.rows("message", queue="q", id=42) == []
    assert queue.rows("message", queue="q", id=None) == []
    assert ids(queue.rows("message", queue="other", id=foreign)) == [foreign]
