"""nack: failures, retries, backoff.

1. nack counts a delivery and a failure, keeps the error, and makes the message due after its delay.
2. Without a delay the queue's backoff says when: base * factor ^ failures before, at most cap, plus jitter.
3. Once max_deliveries is reached a nack buries, whatever its delay; 0 means never.
4. Lease expiry counts a delivery, but no failure.
5. An error text is kept up to 10,000 characters; a nack without one keeps the last.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine, Row, ids, payloads

SECOND = timedelta(seconds=1)


def shown(engine: Engine, message: int) -> Row:
    return engine.row("message", queue="q", id=message)


def nacked(engine: Engine, **options: Any) -> datetime:
    """Claim what is there and nack it; returns when it is due."""
    row = engine.claim_one()
    engine.settle("nack", row["token"], **options)
    due = shown(engine, row["id"])["due_at"]
    assert isinstance(due, datetime)
    return due


def test_a_nack_counts_and_keeps_the_error(queue: Engine) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]

    settled = queue.settle("nack", token, error="boom", delay="5 s")

    entry = shown(queue, sent)
    assert settled == ([sent], [])
    assert (entry["deliveries"], entry["failures"], entry["last_error"]) == (1, 1, "boom")
    assert (entry["state"], entry["due_at"]) == ("scheduled", T0 + 5 * SECOND)


def test_the_next_delivery_tells_the_last_error(queue: Engine) -> None:
    queue.send(1)
    nacked(queue, error="boom", delay="5 s")

    early = queue.claim(1)
    queue.at(T0 + 5 * SECOND)
    again = queue.claim_one()

    assert early == []
    assert (again["deliveries"], again["last_error"]) == (2, "boom")


def test_a_nack_without_an_error_keeps_the_last_one(queue: Engine) -> None:
    sent = queue.send(1)

    nacked(queue, error="first")
    nacked(queue)

    assert (shown(queue, sent)["last_error"], shown(queue, sent)["failures"]) == ("first", 2)


def test_a_nack_of_some_leaves_the_others_held(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    token = queue.claim(3)[0]["token"]

    settled = queue.settle("nack", token, sent[1:2], delay="0 s")

    assert settled == (sent[1:2], [])
    assert ids(queue.claim(10)) == sent[1:2]
    assert ids(queue.rows("held", queue="q", token=token)) == [sent[0], sent[2]]


def test_without_backoff_a_nacked_message_is_due_at_once(queue: Engine) -> None:
    queue.send(1)

    assert nacked(queue) == T0


def test_backoff_grows_by_its_factor_up_to_its_cap(engine: Engine) -> None:
    engine.create("q", max_deliveries=0, backoff={"base": "1 s", "factor": 3, "cap": "20 s"})
    engine.send(1)

    waits = []
    now = T0
    for _ in range(5):
        due = nacked(engine)
        waits.append((due - now).total_seconds())
        engine.at(now := due)

    assert waits == [1, 3, 9, 20, 20]


def test_jitter_adds_at_most_its_share(engine: Engine) -> None:
    engine.create("q", backoff={"base": "100 s", "factor": 1, "cap": "100 s", "jitter": 0.5})
    engine.send_numbers(200)
    token = engine.claim(200)[0]["token"]

    engine.settle("nack", token)

    low, high, different = engine.conn.execute(
        "select min(due_at), max(due_at), count(distinct due_at) from holdfast.message"
    ).fetchall()[0]
    assert T0 + 100 * SECOND <= low < high <= T0 + 150 * SECOND
    assert different > 150


def test_backoff_of_a_message_that_failed_a_thousand_times_is_its_cap(engine: Engine) -> None:
    engine.create("q", max_deliveries=0, backoff={"base": "1 year", "factor": 10, "cap": "1 year"})
    engine.send(1)
    engine.conn.execute("update holdfast.message set failures = 1000")

    due = nacked(engine)

    assert due == T0 + timedelta(days=365, hours=6)


def test_a_delay_goes_before_the_backoff(engine: Engine) -> None:
    engine.create("q", backoff={"base": "1 h"})
    engine.send(1)

    assert nacked(engine, delay="2 s") == T0 + 2 * SECOND


def test_expiry_counts_a_delivery_but_no_failure(queue: Engine) -> None:
    sent = queue.send(1)
    queue.claim_one(lease="1 s")
    queue.at(T0 + SECOND)

    queue.value("sweep", queue="q")

    entry = shown(queue, sent)
    assert (entry["deliveries"], entry["failures"], entry["last_error"]) == (1, 0, None)


def test_the_last_nack_buries_whatever_its_delay(engine: Engine) -> None:
    engine.create("q", max_deliveries=2)
    sent = engine.send("x")

    nacked(engine, delay="0 s")
    row = engine.claim_one()
    settled = engine.settle("nack", row["token"], delay="1 h")

    assert settled == ([sent], [])
    assert engine.rows("message", queue="q", id=sent) == []
    assert payloads(engine.claim(1, queue="q.dlq")) == ["x"]


def test_max_deliveries_zero_retries_without_end(engine: Engine) -> None:
    engine.create("q", max_deliveries=0)
    engine.send("x")

    for _ in range(20):
        nacked(engine)

    assert engine.claim_one()["deliveries"] == 21


def test_a_long_error_is_cut_at_ten_thousand_characters(queue: Engine) -> None:
    sent = queue.send(1)

    nacked(queue, error="é" * 20_000)

    assert shown(queue, sent)["last_error"] == "é" * 10_000


@pytest.mark.parametrize("delay", ["-1 s", "11 years"])
def test_a_bad_delay_is_refused_and_the_message_stays_held(queue: Engine, delay: str) -> None:
    queue.send(1)
    token = queue.claim_one()["token"]
    before = queue.state()

    with pytest.raises(psycopg.Error) as caught:
        queue.settle("nack", token, delay=delay)

    assert caught.value.sqlstate == "QH305"
    assert queue.state() == before


@pytest.mark.parametrize("delay", ["0 s", "10 years"])
def test_a_delay_at_the_edge_is_taken(queue: Engine, delay: str) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]

    assert queue.settle("nack", token, delay=delay) == ([sent], [])
