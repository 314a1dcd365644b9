"""Counters and minute samples: what happened in a queue.

1. counters say what was sent, done, nacked, lapsed, dead, failed, expired, discarded and moved since the
   queue was made.
2. maintain() writes one sample a queue and minute; its figures are what happened since the one before.
3. A sample knows what was in the queue, and, by estimate, how long messages waited and were worked on.
4. Samples are kept for 14 days, and go with their queue.
5. samples() shows those that ended in a period, by default in the last hour.
6. A clock that was set ahead and runs again does not end the sampling.
7. A crash, which forgets the sums over the looks, makes no figure negative.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.engine.engine import T0, Engine, Row

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
HAPPENED = ("sent", "done", "nacked", "lapsed", "dead", "failed", "expired", "discarded", "moved")


def counters(engine: Engine, queue: str = "q") -> dict[str, int]:
    """Those that are not zero."""
    return {name: n for name, n in engine.stats(queue)["counters"].items() if n and name != "ended"}


def happened(row: Row) -> dict[str, int]:
    return {name: row[name] for name in HAPPENED if row[name]}


def counted(histogram: dict[str, int]) -> dict[str, int]:
    return {name: n for name, n in histogram.items() if n}


def sampled(engine: Engine, at: datetime) -> Row:
    """The sample that maintain writes at that time."""
    engine.at(at)
    assert engine.value("maintain", budget="10 s")["sampled"] >= 1
    row: Row = engine.rows("samples", queue="q")[-1]
    assert row["ended"] == at
    return row


def test_counters_tell_what_became_of_messages(engine: Engine) -> None:
    engine.create("q", max_deliveries=2)
    sent = engine.send_numbers(6)
    engine.send(1, ttl="1 s", delay="1 s")
    token = engine.claim(6)[0]["token"]
    engine.settle("ack", token, sent[:2])
    engine.settle("nack", token, sent[2:4], delay="0 s")
    engine.settle("nack", engine.claim(2)[0]["token"], delay="0 s")
    engine.value("discard", queue="q", ids=sent[4:5])
    engine.at(T0 + 30 * SECOND)
    engine.value("sweep", queue="q")
    engine.claim(5)

    assert counters(engine) == {
        "sent": 7, "done": 2, "nacked": 4, "lapsed": 1, "dead": 2, "discarded": 1, "expired": 1
    }  # fmt: skip


def test_dead_letters_are_counted_where_they_lie(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    dead = [engine.kill(engine.send(n)) for n in range(3)]

    engine.rows("redrive", queue="q", ids=dead[:1])
    engine.value("discard", queue="q", ids=dead[1:2])

    assert counters(engine) == {"sent": 4, "nacked": 3, "dead": 3}
    assert counters(engine, "q.dlq") == {"sent": 3, "moved": 1, "discarded": 1}


def test_what_ends_without_a_dead_letter_queue_has_failed(engine: Engine) -> None:
    engine.create("q", max_deliveries=1, dead_letter=False)
    engine.send(1)

    engine.settle("nack", engine.claim_one()["token"])

    assert counters(engine) == {"sent": 1, "nacked": 1, "failed": 1}


def test_the_plain_way_draws_from_no_counter(queue: Engine) -> None:
    queue.send_numbers(3)
    queue.settle("ack", queue.claim(3)[0]["token"])

    drawn = queue.look(
        "select count(pg_sequence_last_value(c)) from holdfast.queue q, unnest(q.counters) c where name = 'q'"
    )

    assert drawn == 0
    assert counters(queue) == {"sent": 3, "done": 3}


def test_a_sample_tells_what_happened_since_the_one_before(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    first = engine.send_numbers(5)
    engine.settle("ack", engine.claim(2)[0]["token"])
    one = sampled(engine, T0 + MINUTE)
    engine.settle("nack", engine.claim(1)[0]["token"])
    engine.send_numbers(4)
    engine.settle("ack", engine.claim(2)[0]["token"], first[3:])
    two = sampled(engine, T0 + 2 * MINUTE)

    assert happened(one) == {"sent": 5, "done": 2}
    assert happened(two) == {"sent": 4, "done": 2, "nacked": 1, "dead": 1}
    assert (one["began"], one["ended"], two["began"]) == (T0, T0 + MINUTE, T0 + MINUTE)
    assert [(r["depth"], r["ready"], r["in_flight"]) for r in (one, two)] == [(3, 3, 0), (4, 4, 0)]
    assert (one["oldest_age"], two["oldest_age"], two["exact"]) == (MINUTE, MINUTE, True)


def test_a_minute_has_one_sample(queue: Engine) -> None:
    did = []
    for seconds in (5, 15, 59, 60, 61):
        queue.at(T0 + seconds * SECOND)
        did.append(queue.value("maintain", budget="10 s")["sampled"])

    assert did == [1, 0, 0, 1, 0]
    assert [r["ended"] for r in queue.rows("samples", queue="q")] == [T0 + 5 * SECOND, T0 + 60 * SECOND]


def test_a_pause_of_maintain_makes_one_long_sample(queue: Engine) -> None:
    sampled(queue, T0)
    queue.send_numbers(3)

    row = sampled(queue, T0 + 10 * MINUTE)

    assert (row["began"], row["ended"], row["sent"]) == (T0, T0 + 10 * MINUTE, 3)


def test_waiting_is_the_age_of_the_next_in_line(queue: Engine) -> None:
    queue.send_numbers(10)
    queue.at(T0 + 30 * SECOND)
    queue.settle("ack", queue.claim(4)[0]["token"])

    row = sampled(queue, T0 + 30 * SECOND)

    assert counted(row["waiting"]) == {"under_1min": 4}


def test_messages_that_leave_nothing_behind_have_not_waited(queue: Engine) -> None:
    queue.send_numbers(4)
    queue.settle("ack", queue.claim(4)[0]["token"])

    row = sampled(queue, T0 + MINUTE)

    assert counted(row["waiting"]) == {"under_10ms": 4}


def test_processing_is_the_average_in_flight_by_the_number_done(queue: Engine) -> None:
    queue.send_numbers(60)
    sampled(queue, T0)
    for turn in range(1, 7):  # always ten in flight, ten done every ten seconds: ten seconds each
        token = queue.claim(10)[0]["token"]
        queue.at(T0 + turn * 10 * SECOND)
        if turn < 6:
            queue.value("maintain", budget="10 s")
        queue.settle("ack", token)

    row = sampled(queue, T0 + MINUTE)

    assert counted(row["processing"]) == {"under_10s": 60}


def test_samples_older_than_fourteen_days_go(queue: Engine) -> None:
    sampled(queue, T0)
    sampled(queue, T0 + DAY)

    sampled(queue, T0 + 14 * DAY + MINUTE)

    every = queue.rows("samples", queue="q", since=T0 - DAY)
    assert [row["ended"] for row in every] == [T0 + DAY, T0 + 14 * DAY + MINUTE]


def test_samples_go_with_their_queue(queue: Engine) -> None:
    sampled(queue, T0)

    queue.value("drop_queue", queue="q")

    assert queue.look("select count(*) from holdfast.sample") == 0
    assert queue.look("select count(*) from holdfast.probe") == 0
    assert queue.look("select count(*) from pg_class where relname ~ '^(nacked|dead|moved)_'") == 0


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ({}, [90]),
        ({"since": T0 - SECOND}, [0, 30, 90]),
        ({"since": T0}, [30, 90]),
        ({"until": T0 + 30 * MINUTE}, [0, 30]),
        ({"until": T0 + 30 * MINUTE - SECOND}, [0]),
        ({"since": T0 + DAY, "until": T0 + 2 * DAY}, []),
    ],
)
def test_a_period_chooses_samples(queue: Engine, period: dict[str, Any], expected: list[int]) -> None:
    for minutes in (0, 30, 90):
        sampled(queue, T0 + minutes * MINUTE)

    rows = queue.rows("samples", queue="q", **period)

    assert [row["ended"] for row in rows] == [T0 + n * MINUTE for n in expected]


def test_sums_that_a_crash_forgot_start_over(queue: Engine) -> None:
    queue.send_numbers(9)
    queue.settle("ack", queue.claim(3)[0]["token"])
    sampled(queue, T0)
    queue.settle("ack", queue.claim(2)[0]["token"])
    queue.conn.execute("truncate holdfast.probe")

    row = sampled(queue, T0 + MINUTE)

    assert happened(row) == {"done": 2}
    assert min(row["waiting"].values()) == 0
    assert counted(row["waiting"]) == {"under_10min": 5}


def test_a_clock_that_was_set_ahead_does_not_end_the_sampling(queue: Engine) -> None:
    sampled(queue, T0 + 365 * DAY)
    queue.at(T0 + MINUTE)
    queue.send(1)

    assert queue.value("maintain", budget="10 s")["sampled"] == 1
