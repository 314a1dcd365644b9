"""contents and outcomes: what is in a queue, for those who list it.

1. A page has what lives by priority and id, then what is kept by the time of its end; pages cover all, once.
2. States choose: each message is in the list of its state, and in no other.
3. A row tells all there is to know, the first id and the lease too.
4. outcomes counts what is kept, and says where there may be more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine, payloads

SECOND = timedelta(seconds=1)
OUTCOMES = ["done", "expired", "failed", "discarded"]
STATES = ["ready", "scheduled", "blocked", "in_flight", *OUTCOMES]


@pytest.fixture
def full(engine: Engine) -> Engine:
    """A queue with messages in every state, in two lanes; payloads say which."""
    engine.create("q", keep=OUTCOMES, ordering="key", dead_letter=False, max_deliveries=1)
    for n, outcome in enumerate(("failed", "done", "expired", "discarded")):
        engine.at(T0 + n * SECOND)
        id = engine.send(outcome, ttl="1 ms" if outcome == "expired" else None)
        if outcome == "expired":
            engine.at(T0 + n * SECOND + timedelta(milliseconds=2))
            engine.claim(1)
        elif outcome == "discarded":
            engine.value("discard", queue="q", ids=[id])
        else:
            verb = "ack" if outcome == "done" else "nack"
            engine.settle(verb, engine.claim_one(consumer="worker")["token"])
    engine.send("in_flight 1", ordering_key="k")
    engine.send("blocked", ordering_key="k")
    engine.send("in_flight 2", priority=5)
    assert len(engine.claim(10, consumer="worker")) == 2
    engine.send("scheduled", delay="1 h")
    engine.send("ready 1")
    engine.send("ready 2", priority=5)
    return engine


IN_ORDER = ["in_flight 2", "ready 2", "in_flight 1", "blocked", "scheduled", "ready 1"]
IN_ORDER += ["failed", "done", "expired", "discarded"]


@pytest.mark.parametrize("size", [1, 3, 4, 1000])
def test_pages_cover_what_lives_then_what_is_kept(full: Engine, size: int) -> None:
    pages = [full.rows("contents", queue="q", limit=size, offset=start) for start in range(0, 11, size)]

    assert [payload for page in pages for payload in payloads(page)] == IN_ORDER


@pytest.mark.parametrize("states", [[state] for state in STATES] + [["blocked", "ready", "done", "failed"]])
def test_states_choose_and_every_row_says_its_state(full: Engine, states: list[str]) -> None:
    expected = [payload for payload in IN_ORDER if payload.split()[0] in states]

    rows = [
        row
        for start in range(5)
        for row in full.rows("contents", queue="q", states=states, limit=1, offset=start)
    ]

    assert payloads(rows) == expected
    assert [row["state"] for row in rows] == [payload.split()[0] for payload in expected]


def test_a_row_tells_all_there_is(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    root = engine.send(1, headers={"a": 1}, tag="t", key="k", priority=3)
    engine.kill(root, error="no luck")
    engine.at(T0 + SECOND)
    (moved,) = engine.rows("redrive", queue="q")
    engine.claim_one(consumer="worker", lease="10 s")

    (row,) = engine.rows("contents", queue="q")

    assert (row["id"], row["root_id"]) == (moved["new_id"], root)
    assert (row["queue"], row["state"]) == ("q", "in_flight")
    assert (row["headers"], row["tag"], row["key"], row["priority"]) == ({"a": 1}, "t", "k", 3)
    assert (row["consumer"], row["deadline"]) == ("worker", T0 + 11 * SECOND)
    assert (row["claimed_at"], row["enqueued_at"], row["ended_at"]) == (T0 + SECOND, T0 + SECOND, None)
    assert (row["deliveries"], row["last_error"], row["origin"]["queue"]) == (0, "no luck", "q")


def test_an_ended_one_tells_who_ended_it_and_when(full: Engine) -> None:
    (row,) = full.rows("contents", queue="q", states=["done"])

    assert (row["ended_at"], row["consumer"], row["deadline"]) == (T0 + SECOND, "worker", None)
    assert (row["root_id"], row["deliveries"]) == (row["id"], 1)


def test_messages_after_a_crash_are_ready(queue: Engine) -> None:
    queue.send(1, key="k")
    queue.claim_one()
    queue.conn.execute("delete from holdfast.boot")

    assert [row["state"] for row in queue.rows("contents", queue="q")] == ["ready"]
    assert payloads(queue.rows("contents", queue="q", states=["ready"])) == [1]
    assert queue.rows("contents", queue="q", states=["in_flight"]) == []


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"states": []}, "QH401"),
        ({"states": ["ready", "asleep"]}, "QH401"),
        ({"states": ["ready", None]}, "QH401"),
        ({"limit": 0}, "QH402"),
        ({"limit": 1001}, "QH402"),
        ({"limit": None}, "QH402"),
        ({"offset": -1}, "QH402"),
        ({"offset": 1_000_001}, "QH402"),
        ({"queue": "nowhere"}, "QH101"),
    ],
)
def test_what_cannot_be_listed_is_refused(refusing: Engine, given: dict[str, Any], code: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.rows("contents", **{"queue": "q"} | given)

    assert caught.value.sqlstate == code


def outcomes(engine: Engine) -> dict[str, tuple[int, bool]]:
    return {row["outcome"]: (row["messages"], row["exact"]) for row in engine.rows("outcomes", queue="q")}


def test_outcomes_are_counted_up_to_a_limit(full: Engine) -> None:
    assert outcomes(full) == dict.fromkeys(OUTCOMES, (1, True))

    full.conn.execute(
        "insert into holdfast.archive (id, queue_id, outcome, ended_at, enqueued_at)"
        " select n, q.id, case when n <= 10000 then 'failed' else 'done' end, %s, %s"
        " from holdfast.queue q, generate_series(1, 19999) n where q.name = 'q'",
        [T0, T0],
    )

    assert outcomes(full) == {
        "expired": (1, True),
        "failed": (10_000, False),
        "discarded": (1, True),
        "done": (10_000, True),
    }
