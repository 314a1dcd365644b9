"""Schedules of the jobs of servers.

1. A job has one schedule, which can be changed and dropped; the same again leaves its next tick.
2. Of all who ask for a tick that is due, one gets it; who saw another schedule, or another tick, gets none.
3. Every change is announced, once; a tick that is taken is none.
4. What is no schedule is refused, and nothing is changed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine

MINUTE = timedelta(minutes=1)
EVERY = "* * * * *"


def put(engine: Engine, cron: Any = EVERY, *, name: Any = "jobs.tidy", next_at: Any = T0 + MINUTE) -> bool:
    return bool(engine.value("set_schedule", name=name, cron=cron, next_at=next_at))


def take(engine: Engine, at: datetime, *, cron: str = EVERY, next_at: Any = T0 + 2 * MINUTE) -> bool:
    return bool(engine.value("take_tick", name="jobs.tidy", cron=cron, at=at, next_at=next_at))


def test_a_schedule_is_set_changed_and_dropped(engine: Engine) -> None:
    put(engine, "0 4 * * *", name="other", next_at=T0)

    changes = [put(engine), put(engine, next_at=T0), put(engine, "@every 2.5 s", next_at=T0 + 5 * MINUTE)]
    stored = engine.rows("schedules")
    drops = [engine.value("drop_schedule", name=name) for name in ("other", "jobs.tidy", "jobs.tidy")]

    assert changes == [True, False, True]
    assert stored == [
        {"name": "jobs.tidy", "cron": "@every 2.5 s", "next_at": T0 + 5 * MINUTE, "last_at": None},
        {"name": "other", "cron": "0 4 * * *", "next_at": T0, "last_at": None},
    ]
    assert drops == [True, True, False]
    assert engine.rows("schedules") == []


def test_a_tick_is_taken_once_when_it_is_due(engine: Engine) -> None:
    put(engine)

    early = take(engine, T0 + MINUTE)
    engine.at(T0 + 90 * timedelta(seconds=1))
    found = [take(engine, T0), take(engine, T0 + MINUTE, cron="0 4 * * *"), take(engine, T0 + MINUTE)]
    again = take(engine, T0 + MINUTE)

    assert (early, found, again) == (False, [False, False, True], False)
    assert engine.rows("schedules") == [
        {"name": "jobs.tidy", "cron": EVERY, "next_at": T0 + 2 * MINUTE, "last_at": T0 + 1.5 * MINUTE}
    ]


def test_of_many_who_ask_at_once_one_gets_the_tick(engine: Engine, open_engine: Open) -> None:
    put(engine, next_at=T0)
    engines = [open_engine() for _ in range(8)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: take(each, T0), engines))

    assert sorted(found) == [False] * 7 + [True]


def test_changes_are_announced_and_nothing_else(engine: Engine, open_engine: Open) -> None:
    listener = open_engine().conn
    listener.execute("listen holdfast_schedule")

    put(engine, next_at=T0)
    put(engine, next_at=T0)
    take(engine, T0)
    engine.value("drop_schedule", name="none")
    engine.value("drop_schedule", name="jobs.tidy")
    put(engine, name="last")

    heard = [notification.payload for notification in listener.notifies(timeout=5, stop_after=3)]
    assert heard == ["jobs.tidy", "jobs.tidy", "last"]


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("QH830", {"name": None}),
        ("QH830", {"name": ""}),
        ("QH830", {"name": "two words"}),
        ("QH830", {"name": "x" * 201}),
        ("QH831", {"cron": None}),
        ("QH831", {"cron": ""}),
        ("QH831", {"cron": "* * * *"}),
        ("QH831", {"cron": "* * * * * *"}),
        ("QH831", {"cron": "*  * * * *"}),
        ("QH831", {"cron": "@daily"}),
        ("QH831", {"cron": "0 0 * * " + "1" * 93}),
        ("QH831", {"next_at": None}),
        ("QH831", {"next_at": "infinity"}),
    ],
)
def test_what_is_no_schedule_is_refused(refusing: Engine, code: str, given: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error) as caught:
        put(refusing, **given)

    assert caught.value.sqlstate == code
    assert refusing.rows("schedules") == []


@pytest.mark.parametrize("next_at", [None, T0, "infinity"])
def test_a_next_tick_that_is_not_later_is_refused(refusing: Engine, next_at: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        take(refusing, T0, next_at=next_at)

    assert caught.value.sqlstate == "QH831"
