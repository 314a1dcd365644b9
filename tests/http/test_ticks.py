"""Jobs of servers. Claims pinned here:

1. Two servers run a job once for each tick; ticks that all of them missed are one.
2. A server that is killed in the middle of a job leaves the next tick to the others.
3. A changed schedule is in force at the other servers at once.
4. A job without a schedule never runs; one that fails is told once, and goes on at its next tick.
5. Cron expressions count in UTC; what is none is refused, and the schedule stays.
6. Jobs are those of the dialects that are offered.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from holdfast import InvalidCronError
from holdfast.dialects import DIALECTS
from holdfast.server import ticks
from holdfast.server.crons import next_tick
from holdfast.server.service import Service
from holdfast.server.ticks import Job, Schedule
from tests.fix_http import Serve
from tests.http.conftest import OpenService
from tests.http.ticking import JOB, job
from tests.waiting import eventually

Conn = psycopg.Connection[Any]
T0 = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def diary(conn: Conn) -> Conn:
    """A connection; the clock is stopped, and jobs have a table to write into."""
    conn.execute("create table public.diary (n int generated always as identity, who text, what text)")
    at(conn, T0)
    return conn


def at(conn: Conn, time: datetime) -> None:
    conn.execute("select holdfast.set_clock(%s)", [time])


def entries(conn: Conn) -> list[tuple[str, str]]:
    return conn.execute("select who, what from public.diary order by n").fetchall()


async def written(conn: Conn, *wanted: tuple[str, str]) -> None:
    found = asyncio.to_thread(eventually, lambda: entries(conn) == [*wanted], what=f"{wanted}")
    try:
        await found
    except AssertionError:
        assert entries(conn) == [*wanted]


def stored(conn: Conn) -> tuple[Any, ...] | None:
    return conn.execute("select cron, next_at from holdfast.schedules() where name = %s", [JOB]).fetchone()


def by_cron(seconds: float = 0) -> Job:
    """The job of the diary, without a pause of its own."""
    return replace(job("it", seconds), every=None)


# --- 1. once --------------------------------------------------------------------------------------


async def test_two_servers_run_a_job_once_for_each_tick(
    diary: Conn, open_service: OpenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticks, "LOOK_SECONDS", 3600.0)
    mine = job("it", 0)
    first, second = await open_service(mine), await open_service(mine)
    await asyncio.to_thread(eventually, lambda: stored(diary), what="the schedule is there")
    both = [("it", "began"), ("it", "ended")]

    for count, minutes in enumerate((1, 2, 60), start=1):  # the last: ticks were missed
        at(diary, T0 + minutes * MINUTE)
        await asyncio.gather(*(server.ticks.run_once(mine) for server in (first, second) for _ in range(3)))
        # They look by themselves too, when they begin: then it is they who run it.
        await written(diary, *both * count)

    assert stored(diary) == ("@every 60 s", T0 + 61 * MINUTE)


async def test_a_clock_that_is_set_back_leaves_no_job_waiting_for_what_it_said(
    diary: Conn, open_service: OpenService
) -> None:
    server = await open_service(mine := replace(job("it", 0), every=None), listen=False)
    at(diary, T0 + timedelta(days=3650))
    diary.execute("select holdfast.set_schedule(%s, '@every 60 s', holdfast.now())", [JOB])
    await server.ticks.run_once(mine)
    await written(diary, *[("it", "began"), ("it", "ended")])

    at(diary, T0)
    await server.ticks.run_once(mine)
    moved = stored(diary)
    await server.ticks.run_once(mine)

    assert moved == stored(diary) == ("@every 60 s", T0 + MINUTE)


async def test_a_server_that_starts_again_keeps_the_tick(diary: Conn, open_service: OpenService) -> None:
    mine = job("it", 0)
    diary.execute("select holdfast.set_schedule(%s, '@every 60 s', %s)", [JOB, T0 + MINUTE / 2])

    server = await open_service(mine)
    await server.ticks.run_once(mine)

    assert stored(diary) == ("@every 60 s", T0 + MINUTE / 2)


# --- 2. killed ------------------------------------------------------------------------------------


@contextmanager
def ticking(url: str, who: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.http.ticking", url, who, str(seconds)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


async def test_who_is_killed_in_the_middle_leaves_the_next_tick_to_others(
    diary: Conn, database_url: str, open_service: OpenService
) -> None:
    diary.execute("select holdfast.set_schedule(%s, '@every 60 s', %s)", [JOB, T0])
    with ticking(database_url, "first", 3600):
        await written(diary, ("first", "began"))
    second = await open_service(mine := job("second", 0))

    await second.ticks.run_once(mine)
    before = entries(diary)
    at(diary, T0 + MINUTE)
    await second.ticks.run_once(mine)

    assert before == [("first", "began")]
    await written(diary, ("first", "began"), ("second", "began"), ("second", "ended"))


# --- 3. changed -----------------------------------------------------------------------------------


async def test_a_changed_schedule_is_in_force_at_others_at_once(
    diary: Conn, open_service: OpenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticks, "LOOK_SECONDS", 3600.0)  # so it can only be the announcement
    await open_service(by_cron())
    here = await open_service()

    await here.ticks.schedules.set(JOB, "0 4 1 1 *")
    # It would be a matter of years; then it is one that was due a minute ago.
    diary.execute("select holdfast.set_schedule(%s, '*/5 * * * *', %s)", [JOB, T0 - MINUTE])
    await written(diary, ("it", "began"), ("it", "ended"))

    assert stored(diary) == ("*/5 * * * *", T0 + 5 * MINUTE)


async def test_without_announcements_it_is_a_matter_of_seconds(
    diary: Conn, open_service: OpenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticks, "LOOK_SECONDS", 0.1)
    await open_service(by_cron(), listen=False)

    diary.execute("select holdfast.set_schedule(%s, '*/5 * * * *', %s)", [JOB, T0])

    await written(diary, ("it", "began"), ("it", "ended"))


# --- 4. none, and failures ------------------------------------------------------------------------


async def test_without_a_schedule_it_never_runs(diary: Conn, open_service: OpenService) -> None:
    server = await open_service(mine := by_cron())

    found = await server.ticks.schedules.set(JOB, "* * * * *")
    taken_back = await server.ticks.schedules.set(JOB, " ")
    at(diary, T0 + 10 * MINUTE)
    await server.ticks.run_once(mine)

    assert found == Schedule(JOB, "* * * * *", T0 + MINUTE, None)
    assert taken_back is None
    assert entries(diary) == []


async def test_a_failure_is_told_once_and_the_job_goes_on_at_its_next_tick(
    diary: Conn, open_service: OpenService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticks, "LOOK_SECONDS", 3600.0)
    caplog.set_level(logging.WARNING, logger="holdfast.server")
    tried: list[int] = []

    async def fail_twice(_: Service) -> None:
        tried.append(len(tried))
        if len(tried) < 3:
            raise ValueError("not yet")

    mine = Job(name=JOB, run=fail_twice, every=60.0)
    server = await open_service(mine)
    await asyncio.to_thread(eventually, lambda: stored(diary), what="the schedule is there")
    for minutes in (1, 2, 3):
        at(diary, T0 + minutes * MINUTE)
        for _ in range(2):
            await server.ticks.run_once(mine)
        await asyncio.to_thread(eventually, lambda: len(tried) == minutes, what="it was tried")  # noqa: B023

    assert [record.getMessage() for record in caplog.records] == [
        "the job test.job failed, and goes on at its next tick: not yet",
        "the job test.job works again",
    ]
    assert tried == [0, 1, 2]


# SQL counts the fields, and that is all.
@pytest.mark.parametrize("cron", ["61 * * * *", "@every 99999999999999 s"])
async def test_a_schedule_that_says_nothing_is_told(
    diary: Conn, open_service: OpenService, caplog: pytest.LogCaptureFixture, cron: str
) -> None:
    caplog.set_level(logging.WARNING, logger="holdfast.server")
    diary.execute("select holdfast.set_schedule(%s, %s, %s)", [JOB, cron, T0])

    server = await open_service(mine := by_cron(), listen=False)
    for _ in range(2):
        await server.ticks.run_once(mine)

    (told,) = [record.getMessage() for record in caplog.records]
    assert told == "the job test.job is not run for now: this is no cron expression"
    assert entries(diary) == []


# --- 5. cron --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "tick"),
    [
        ("* * * * *", "2030-01-01T00:01Z"),
        ("30 4 * * *", "2030-01-01T04:30Z"),
        ("0 0 l * *", "2030-01-31T00:00Z"),
        ("0 0 29 2 *", "2032-02-29T00:00Z"),
        ("0 12 * * MON-FRI", "2030-01-01T12:00Z"),
        ("@every 2.5 s", "2030-01-01T00:00:02.5Z"),
    ],
)
def test_the_next_tick_is_counted_in_utc(cron: str, tick: str) -> None:
    assert next_tick(cron, T0.astimezone(timezone(timedelta(hours=5)))) == datetime.fromisoformat(tick)


@pytest.mark.parametrize(
    "cron",
    [
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "@daily",
        "R * * * *",
        "0 0 30 2 *",
        "a b c d e",
        "*/0 * * * *",
        "½ * * * *",
        "0 0 1W * *",
        "0 0 * * " + "1" * 93,
    ],
)
async def test_what_is_no_cron_expression_is_refused(
    diary: Conn, open_service: OpenService, cron: str
) -> None:
    server = await open_service()
    await server.ticks.schedules.set(JOB, "0 4 * * *")

    with pytest.raises(InvalidCronError) as caught:
        await server.ticks.schedules.set(JOB, cron)

    assert caught.value.code == "QH831"
    assert cron[:100] in str(caught.value.detail)
    assert stored(diary) == ("0 4 * * *", T0 + timedelta(hours=4))


# --- 6. of which dialects -------------------------------------------------------------------------


def test_only_jobs_of_dialects_that_are_offered_run(
    diary: Conn, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {
        name: replace(DIALECTS["topics"], name=name, paths=(f"/{name}",), endpoints=(), jobs=(each,))
        for name, each in {
            "on": replace(by_cron(), name="on.job"),
            "off": replace(by_cron(), name="off.job"),
        }.items()
    }
    for name, dialect in named.items():
        monkeypatch.setitem(DIALECTS, name, dialect)
        diary.execute("select holdfast.set_schedule(%s, '0 4 * * *', %s)", [f"{name}.job", T0])

    serve(dialects=("on",))
    eventually(lambda: len(entries(diary)) == 2, what="the job ran")

    last = dict(diary.execute("select name, last_at from holdfast.schedules()").fetchall())
    assert last == {"on.job": T0, "off.job": None}
