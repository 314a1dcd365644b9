"""A server without HTTP, whose agent works; databases that are services; and a second PostgreSQL."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

import psycopg
import pytest

from holdfast import AsyncHoldfast, Holdfast, ServiceQueue, ServiceQueueNotFoundError, ServiceTask
from holdfast.embedded import EmbeddedPostgres, temporary_postgres
from holdfast.server.service import Service
from holdfast.server.settings import Settings
from tests.fix_database import fresh_database
from tests.fix_folder import fast_folder
from tests.fix_server import SETTINGS
from tests.waiting import POLL

PATIENCE = 120.0  # seconds
T = TypeVar("T")
KEY = b64encode(b"k" * 32).decode()
QUICK: dict[str, Any] = {"upkeep": 0, "task_attempts": 4, "task_pause": 0.05}


@pytest.fixture(autouse=True)
def secret_key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The key that secrets are sealed with."""
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", KEY)
    return KEY


class Serve(Protocol):
    """Starts a server over the test's database; fields of Settings by name."""

    async def __call__(self, **settings: Any) -> Service: ...


@pytest.fixture
async def serve(database_url: str) -> AsyncIterator[Serve]:
    """Starts servers, which end with the test."""
    async with AsyncExitStack() as stack:

        async def start(**given: Any) -> Service:
            settings = Settings(**{"database_url": database_url, **QUICK, **given})
            return await stack.enter_async_context(Service(settings).running())

        yield start


@pytest.fixture
async def service(serve: Serve) -> Service:
    """A server, with its agent."""
    return await serve()


@pytest.fixture
def shop_url(server_url: str) -> Iterator[str]:
    """A database that is a service, still without Holdfast."""
    with fresh_database(server_url) as url:
        yield url


@pytest.fixture
def elsewhere() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server of its own, running, which a test may stop."""
    with temporary_postgres(settings=SETTINGS, inside=fast_folder()) as server:
        server.ensure_running()
        yield server


@pytest.fixture
async def home(database_url: str) -> AsyncIterator[AsyncHoldfast]:
    """The database that knows of services, without a server."""
    async with AsyncHoldfast(database_url) as client:
        yield client


async def patiently(look: Callable[[], Awaitable[T | None]], *, what: str) -> T:
    """What a look finds in the end: to install Holdfast takes a busy machine its time."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := await look()):  # noqa: ASYNC110 - it is in a database
                await asyncio.sleep(POLL)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} s: {what}") from None


async def gone(service: Service, name: str) -> None:
    """Wait until a queue of shop is gone."""

    async def look() -> bool:
        try:
            await service.services.queue("shop", name)
        except ServiceQueueNotFoundError:
            return True
        return False

    await patiently(look, what=f"{name} is gone")


async def becomes(service: Service, name: str, status: str, *, on: str = "shop") -> ServiceQueue:
    """A queue, once it has this status."""

    async def look() -> ServiceQueue | None:
        queue = await service.services.queue(on, name)
        return queue if queue.status == status else None

    return await patiently(look, what=f"{name} becomes {status}")


async def ended(service: Service, name: str, task: Any, *, on: str = "shop") -> ServiceTask:
    """A task, once it has ended."""

    async def look() -> ServiceTask | None:
        found = await service.services.task(on, name, task)
        return found if found.status in ("completed", "failed") else None

    return await patiently(look, what=f"the task of {name} ends")


def payloads(url: str, queue: str) -> list[Any]:
    """What is in a queue, by id."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select payload from mdb_queue.messages where queue_name = %s order by id", [queue]
        )
        return [row[0] for row in rows.fetchall()]


def has_queue(url: str, queue: str) -> bool:
    """Whether a database has a queue."""
    with Holdfast(url, max_size=1) as client:
        return queue in [each.queue for each in client.queues()]
