"""Agents that are killed with -9 in the middle of a step, and those that go on.

1. Wherever an agent was killed, another one finishes what it began, and nothing is done twice.
2. An agent that was only asleep finds that it has lost its task, and leaves no trace.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import msgspec
import psycopg
import pytest

from holdfast import AsyncHoldfast
from holdfast.server.service import Service
from holdfast.server.settings import Settings
from tests.agent.conftest import Serve, becomes, ended, gone, has_queue, patiently, payloads

pytestmark = pytest.mark.verify

ROOT = Path(__file__).parents[2]
PLACES = ("reached", "worked", "committed")
BUSY = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name like 'holdfast %'
"""
LEASES_END = "update holdfast.service_task set lease_until = now() - interval '1 s' where status = 'running'"


def started(place: str, url: str) -> subprocess.Popen[str]:
    """A process with an agent."""
    words = [sys.executable, "-m", "tests.agent.killable", url, place]
    return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@asynccontextmanager
async def stopped_at(place: str, url: str) -> AsyncIterator[subprocess.Popen[str]]:
    """An agent that waits at a place; killed at the end, if not before."""
    with started(place, url) as process:
        try:
            assert process.stdout is not None
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 60)
            assert line.strip() == place
            yield process
        finally:
            process.kill()


async def kill(place: str, url: str) -> None:
    """Let an agent begin, and kill it at a place; its lease is over at once."""
    async with stopped_at(place, url) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute(LEASES_END).rowcount == 1


async def active(serve: Serve, shop_url: str, home: AsyncHoldfast) -> None:
    """A service with an active queue, and no agent any more."""
    await home.put_service("shop", shop_url)
    await home.create_service_queue("shop", "orders", max_attempts=1)


async def made(url: str, home: AsyncHoldfast) -> None:
    """An agent for as long as it takes to make the queue."""
    async with Service(Settings(database_url=url, upkeep=0)).running() as service:
        await becomes(service, "orders", "Active")


@pytest.mark.parametrize("place", PLACES)
async def test_a_queue_is_made_by_whoever_goes_on(
    place: str, serve: Serve, home: AsyncHoldfast, shop_url: str, database_url: str
) -> None:
    await active(serve, shop_url, home)

    await kill(place, database_url)
    service = await serve()
    queue = await becomes(service, "orders", "Active")

    assert queue.max_attempts == 1
    assert has_queue(shop_url, "orders")


@pytest.mark.parametrize("place", PLACES)
async def test_a_batch_is_sent_once_by_whoever_goes_on(
    place: str, serve: Serve, home: AsyncHoldfast, shop_url: str, database_url: str
) -> None:
    await active(serve, shop_url, home)
    await made(database_url, home)
    with psycopg.connect(database_url, autocommit=True) as connection:
        batch = '[{"payload": 1}, {"payload": 2}]'
        row = connection.execute("select holdfast.enqueue_task('shop', 'orders', %s)", [batch]).fetchone()
    assert row is not None
    task: UUID = row[0]

    await kill(place, database_url)
    done = await ended(await serve(), "orders", task)

    with psycopg.connect(shop_url) as connection:
        ids = connection.execute("select id from mdb_queue.messages order by id").fetchall()
    assert (done.status, done.attempts) == ("completed", 2)
    assert msgspec.json.decode(done.result) == {"message_ids": [id for (id,) in ids]}
    assert payloads(shop_url, "orders") == [1, 2]


@pytest.mark.parametrize("place", PLACES)
async def test_a_queue_is_removed_by_whoever_goes_on(
    place: str, serve: Serve, home: AsyncHoldfast, shop_url: str, database_url: str
) -> None:
    await active(serve, shop_url, home)
    await made(database_url, home)
    await home.delete_service_queue("shop", "orders")

    await kill(place, database_url)
    await gone(await serve(), "orders")

    assert not has_queue(shop_url, "orders")


@pytest.mark.parametrize("place", PLACES)
async def test_figures_are_counted_by_whoever_goes_on(
    place: str, serve: Serve, home: AsyncHoldfast, shop_url: str, database_url: str
) -> None:
    await active(serve, shop_url, home)
    await made(database_url, home)
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("select holdfast.stats_task('shop', 'orders')").fetchone()
    assert row is not None

    await kill(place, database_url)

    assert (await ended(await serve(), "orders", row[0])).status == "completed"


async def test_an_agent_that_slept_does_not_make_a_queue_that_was_removed_meanwhile(
    serve: Serve, home: AsyncHoldfast, shop_url: str, database_url: str
) -> None:
    await active(serve, shop_url, home)
    async with stopped_at("reached", database_url) as sleeper:
        os.kill(sleeper.pid, signal.SIGSTOP)
        with psycopg.connect(database_url, autocommit=True) as connection:
            assert connection.execute(LEASES_END).rowcount == 1
        service = await serve()
        await becomes(service, "orders", "Active")
        await service.services.delete_queue("shop", "orders")
        await gone(service, "orders")
        os.kill(sleeper.pid, signal.SIGCONT)

        assert sleeper.stdin is not None
        assert sleeper.stdout is not None
        sleeper.stdin.write("go on\n")
        sleeper.stdin.flush()
        found = await asyncio.wait_for(asyncio.to_thread(sleeper.stdout.readline), 120)
        # What it had open on the service ends with it, at the latest.
        await rolled_back(shop_url)

    assert found.strip() == "held False"
    assert not has_queue(shop_url, "orders")


async def rolled_back(url: str) -> None:
    """Wait until no agent is in a transaction on a service."""
    with psycopg.connect(url, autocommit=True) as connection:

        async def look() -> bool:
            (busy,) = connection.execute(BUSY).fetchall()[0]
            return bool(busy == 0)

        await patiently(look, what="no agent is at work")
