"""Rollups: figures of a queue by bucket of time.

1. What was put in is shown, by size of bucket, from since to before until, the oldest first.
2. Putting in a stretch of time replaces what was there of it, and nothing else.
3. What is not said is zero, or not known.
4. Of each size the last 20,000 buckets are kept; a call removes at most 2,000 of the older ones.
5. Rollups go with their queue.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine

HOUR = timedelta(hours=1)


def put(
    engine: Engine, since: datetime, until: datetime, *starts: datetime, bucket: str = "1 h", **figures: Any
) -> int:
    rollups = [{"start": start.isoformat(), **figures} for start in starts]
    return int(
        engine.value(
            "put_rollups", queue="q", bucket=bucket, since=since, until=until, rollups=Jsonb(rollups)
        )
    )


def shown(engine: Engine, **period: Any) -> list[tuple[datetime, int]]:
    return [(row["start"], row["sent"]) for row in engine.rows("rollups", queue="q", **period)]


def test_what_was_put_in_is_shown(queue: Engine) -> None:
    figures: dict[str, Any] = {
        "sent": 9, "done": 8, "failed": 1, "dead": 2, "expired": 3, "discarded": 4, "retries": 5,
        "waiting_count": 8, "waiting_p50": 0.5, "waiting_p95": 1.5, "waiting_p99": 2.5,
        "processing_count": 7, "processing_p50": 0.25, "processing_p95": 0.75, "processing_p99": 1.25,
        "estimated": ["dead", "sent"], "details": {"keys": [{"key": "a", "messages": 3}]},
    }  # fmt: skip

    written = put(queue, T0, T0 + HOUR, T0, **figures)

    assert written == 1
    assert queue.rows("rollups", queue="q") == [{"start": T0, **figures, "made_at": T0}]


def test_what_is_not_said_is_zero_or_not_known(queue: Engine) -> None:
    put(queue, T0, T0 + HOUR, T0)

    (row,) = queue.rows("rollups", queue="q")

    assert (row["sent"], row["waiting_count"], row["waiting_p95"]) == (0, 0, None)
    assert (row["estimated"], row["details"]) == ([], {})


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ({}, [0, 1, 3]),
        ({"since": T0 + HOUR}, [1, 3]),
        ({"until": T0 + 3 * HOUR}, [0, 1]),
        ({"since": T0 + timedelta(minutes=1), "until": T0 + 2 * HOUR}, [1]),
        ({"limit": 2}, [0, 1]),
        ({"bucket": "60 min"}, [0, 1, 3]),
        ({"bucket": "1 d"}, []),
    ],
)
def test_a_period_and_a_size_choose_rollups(
    queue: Engine, period: dict[str, Any], expected: list[int]
) -> None:
    put(queue, T0, T0 + 4 * HOUR, T0 + 3 * HOUR, T0, T0 + HOUR)

    assert [start for start, _ in shown(queue, **period)] == [T0 + n * HOUR for n in expected]


def test_a_stretch_replaces_what_was_there_of_it_and_nothing_else(queue: Engine) -> None:
    put(queue, T0, T0 + 4 * HOUR, *(T0 + n * HOUR for n in range(4)), sent=1)
    put(queue, T0, T0 + 24 * HOUR, T0, sent=7, bucket="1 d")

    put(queue, T0 + HOUR, T0 + 3 * HOUR, T0 + 2 * HOUR, sent=5)

    assert shown(queue) == [(T0, 1), (T0 + 2 * HOUR, 5), (T0 + 3 * HOUR, 1)]
    assert shown(queue, bucket="24 h") == [(T0, 7)]


def test_the_same_again_changes_nothing_but_when_it_was_made(queue: Engine) -> None:
    put(queue, T0, T0 + HOUR, T0, sent=1)
    queue.at(T0 + HOUR)
    put(queue, T0, T0 + HOUR, T0, sent=1)

    (row,) = queue.rows("rollups", queue="q")

    assert (row["sent"], row["made_at"]) == (1, T0 + HOUR)


def test_what_is_over_twenty_thousand_buckets_old_goes(queue: Engine) -> None:
    edge = T0 - 20_000 * HOUR
    queue.conn.execute(
        "insert into holdfast.rollup select q.id, b, %s - n * b, 0, 0, 0, 0, 0, 0, 0, 0, null, null, null,"
        " 0, null, null, null, '{}', '{}', %s"
        " from holdfast.queue q, unnest(array['1 h', '1 d']::interval[]) b, generate_series(0, 2002) n"
        " where q.name = 'q'",
        [edge, T0],
    )

    put(queue, T0, T0 + HOUR, T0)
    after_one = shown(queue)
    put(queue, T0, T0 + HOUR, T0)

    assert [start for start, _ in after_one] == [edge - 2 * HOUR + n * HOUR for n in range(3)] + [T0]
    assert [start for start, _ in shown(queue)] == [edge, T0]
    assert len(shown(queue, bucket="1 d", limit=10_000)) == 2003


def test_rollups_go_with_their_queue(queue: Engine) -> None:
    put(queue, T0, T0 + HOUR, T0)

    queue.value("drop_queue", queue="q")

    assert queue.look("select count(*) from holdfast.rollup") == 0
