"""purge: end all messages of a queue that are in some state.

1. Each state is purged if it is named, and no other; another queue's messages stay.
2. What is purged ends as discarded: kept if the queue keeps that. The archive itself is deleted.
3. A call is bounded by its limit, and says whether there may be more.
4. Messages in flight leave their leases; settling them is skipped, the others of the lease are not.
5. The cursor passes purged messages; what comes later is delivered, what is scheduled stays.
6. A purge that rolls back did not happen.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.engine.engine import T0, Engine, payloads

SECOND = timedelta(seconds=1)
STATES = ["ready", "scheduled", "blocked", "in_flight", "dead", "archive"]


@pytest.fixture
def full(engine: Engine) -> Engine:
    """Two queues with a message in every state, ready ones of three kinds."""
    for name in ("q", "other"):
        engine.create(name, keep=["done"], max_deliveries=1)
        engine.kill(engine.send("dead", queue=name), queue=name)
        engine.send("archive", queue=name)
        engine.settle("ack", engine.claim_one(queue=name)["token"], queue=name)
        engine.send("in_flight", queue=name)
        engine.claim_one(queue=name, lease="1 h")
        engine.send("ready: due", queue=name)
        engine.settle("release", engine.claim_one(queue=name)["token"], queue=name)
        engine.send("ready: fresh", queue=name)
        engine.send("scheduled", queue=name, delay="1 h")
        parked = engine.send("blocked", queue=name, delay="1 h")
        engine.conn.execute("update holdfast.message set due_at = 'infinity' where id = %s", [parked])
        engine.send("ready: urgent", queue=name, priority=7)
    return engine


def purge(engine: Engine, *states: str, **options: Any) -> tuple[int, bool]:
    row = engine.row("purge", queue="q", states=list(states), **options)
    return row["purged"], row["more"]


def everything(engine: Engine, queue: str = "q") -> set[str]:
    """The payloads of all messages, live, dead or kept."""
    rows = engine.conn.execute(
        "select payload #>> '{}' from holdfast.message m join holdfast.queue q on q.id = m.queue_id"
        " where q.name = %(q)s or m.origin ->> 'queue' = %(q)s"
        " union all select payload #>> '{}' from holdfast.archive a"
        " join holdfast.queue q on q.id = a.queue_id where q.name = %(q)s",
        {"q": queue},
    ).fetchall()
    return {payload for (payload,) in rows}


ALL = {"dead", "archive", "in_flight", "ready: due", "ready: fresh", "scheduled", "blocked", "ready: urgent"}


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_purged_and_no_other(full: Engine, state: str) -> None:
    gone = {payload for payload in ALL if payload.startswith(state)}

    assert purge(full, state) == (len(gone), False)

    assert everything(full) == ALL - gone
    assert everything(full, "other") == ALL


def test_all_states_at_once_leave_nothing(full: Engine) -> None:
    assert purge(full, *STATES) == (8, False)

    assert everything(full) == set()
    assert full.stats()["depth"] == full.stats()["dead"] == 0
    assert full.claim(10) == []


def test_what_is_purged_ends_as_discarded(engine: Engine) -> None:
    engine.create("q", keep=["discarded"])
    engine.send("fresh")
    engine.send("scheduled", delay="1 h")
    engine.send("urgent", priority=9)
    engine.claim_one()

    assert purge(engine, "ready", "scheduled", "in_flight") == (3, False)

    kept = engine.rows("browse", queue="q", state="archive")
    assert [(row["payload"], row["state"]) for row in kept] == [
        ("urgent", "discarded"),
        ("fresh", "discarded"),
        ("scheduled", "discarded"),
    ]
    assert purge(engine, "archive") == (3, False)
    assert engine.rows("browse", queue="q", state="archive") == []


@pytest.mark.parametrize("state", ["ready", "scheduled", "in_flight", "archive"])
def test_a_call_is_bounded_and_says_whether_there_may_be_more(engine: Engine, state: str) -> None:
    engine.create("q", keep=["done"])
    engine.send_numbers(25, delay="1 h" if state == "scheduled" else None)
    if state in ("in_flight", "archive"):
        for _ in range(5):
            token = engine.claim(5, lease="1 h")[0]["token"]
            if state == "archive":
                engine.settle("ack", token)

    assert [purge(engine, state, limit=10) for _ in range(4)] == [
        (10, True),
        (10, True),
        (5, False),
        (0, False),
    ]


def test_settling_purged_messages_is_skipped(queue: Engine) -> None:
    ids = queue.send_numbers(3)
    token = queue.claim(3)[0]["token"]

    assert purge(queue, "in_flight", limit=2) == (2, True)

    assert queue.look("select count(*) from holdfast.lease where lo is not null") == 0
    assert queue.settle("ack", token, ids) == (ids[2:], ids[:2])


def test_the_cursor_passes_purged_messages(queue: Engine) -> None:
    queue.send_numbers(100)
    last = queue.send("scheduled", delay="1 h")
    assert purge(queue, "ready") == (100, False)

    assert queue.claim(1) == []

    assert queue.look("select pg_sequence_last_value(cursor) from holdfast.lane") == last + 1
    queue.send("new")
    assert payloads(queue.claim(10, lease="2 h")) == ["new"]
    queue.at(T0 + 3600 * SECOND)
    assert payloads(queue.claim(10)) == ["scheduled"]


def test_a_purge_that_rolls_back_did_not_happen(queue: Engine) -> None:
    queue.send_numbers(3)
    with queue.conn.transaction(force_rollback=True):
        assert purge(queue, "ready") == (3, False)

    assert payloads(queue.claim(10)) == [0, 1, 2]


def test_a_purge_of_nothing_is_no_error(queue: Engine) -> None:
    assert purge(queue, *STATES) == (0, False)


def test_purging_scheduled_messages_in_front_goes_on_in_the_next_call(queue: Engine) -> None:
    queue.send_numbers(15, delay="1 h")
    queue.send("behind")

    assert [purge(queue, "ready", limit=10) for _ in range(2)] == [(0, True), (1, False)]
    assert queue.stats()["scheduled"] == 15


def test_a_paused_queue_can_be_purged(queue: Engine) -> None:
    queue.send_numbers(3)
    queue.value("pause_queue", queue="q")

    assert purge(queue, "ready") == (3, False)
