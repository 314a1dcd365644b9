"""queue-ti: the reapers by themselves, at whichever server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import psycopg
import pytest

from tests.dialects.conftest import T0
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi
from tests.fix_http import Serve
from tests.waiting import eventually

Conn: TypeAlias = psycopg.Connection[Any]

SCHEDULE = "/admin/delete-reaper/schedule"


@pytest.fixture
def clock(database_url: str) -> Iterator[Conn]:
    """Stops the clock of the test's database; it is where the servers look."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select holdfast.set_clock(%s)", [T0])
        yield connection


def move_on(clock: Conn, hours: float) -> None:
    """So much time goes by; servers look at once what is due."""
    clock.execute("select holdfast.set_clock(holdfast.now() + make_interval(secs => %s))", [hours * 3600])
    clock.execute("notify holdfast_schedule, ''")


def expired(queue_ti: QueueTi) -> int:
    """How many messages are marked."""
    every = queue_ti.ok("GET", "/stats")["topics"]
    return sum(one["count"] for one in every if one["status"] == "expired")


@pins(32)
def test_the_expiry_reaper_marks_every_minute_what_nobody_dequeues(serve: Serve, clock: Conn) -> None:
    with QueueTi(serve(upkeep=0).address) as queue_ti:
        queue_ti.configure("short", message_ttl_seconds=30)
        queue_ti.send("short", "x")
        eventually(
            lambda: clock.execute("select from holdfast.schedules()").fetchall(), what="the job is known"
        )
        move_on(clock, 61 / 3600)
        eventually(lambda: expired(queue_ti) == 1, what="it is marked")
        queue_ti.send("short", "x")
        move_on(clock, 61 / 3600)

        eventually(lambda: expired(queue_ti) == 2, what="the next one is too")


@pins(35, 36)
def test_the_delete_reaper_deletes_by_its_schedule_once_for_two_servers(serve: Serve, clock: Conn) -> None:
    with QueueTi(serve(upkeep=0).address) as one, QueueTi(serve(upkeep=0).address) as other:
        assert one.ok("GET", SCHEDULE) == {"schedule": "", "active": False}
        assert one.ok("PUT", SCHEDULE, {"schedule": "0 4 * * *"}) == {
            "schedule": "0 4 * * *",
            "active": True,
        }
        assert other.ok("GET", SCHEDULE) == {"schedule": "0 4 * * *", "active": True}
        one.configure("short", message_ttl_seconds=30)
        one.send("short", "x")
        move_on(clock, 3.9)
        one.ok("POST", "/admin/expiry-reaper/run")
        assert expired(one) == 1

        move_on(clock, 0.2)

        eventually(lambda: expired(one) == 0, what="it is deleted")
        one.send("short", "y")
        move_on(clock, 0.1)
        other.ok("POST", "/admin/expiry-reaper/run")
        ticks = (
            "select last_at = %s + interval '4.1 hours' from holdfast.schedules() "
            "where name like '%%delete%%'"
        )
        assert clock.execute(ticks, [T0]).fetchall() == [(True,)]
        assert expired(other) == 1
        assert other.ok("PUT", SCHEDULE, {"schedule": ""}) == {"schedule": "", "active": False}
        assert one.ok("GET", SCHEDULE) == {"schedule": "", "active": False}
