"""The doors. Every test that takes `client` runs through each of them; through the last in `make verify`.

A module has one database and one server; a test has queues of its own by their names. The clock of a module
only goes forward, so that what one test leaves behind does not concern the next.
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import psycopg
import pytest

from holdfast import AsyncClient, AsyncHoldfast, Client, async_connect, connect
from holdfast.server.settings import Settings
from holdfast.vault import KEY_VARIABLE
from tests.client.twin import twin
from tests.fix_database import holdfast_database
from tests.fix_http import served

SQL_ASYNC, SQL_SYNC, HTTP_ASYNC, HTTP_SYNC = "sql-async", "sql-sync", "http-async", "http-sync"
# The last joins what the second and the third have each shown: generated code, and the way over HTTP.
DOORS = [SQL_ASYNC, SQL_SYNC, HTTP_ASYNC, pytest.param(HTTP_SYNC, marks=pytest.mark.verify)]
SECRET_KEY = b64encode(b"k" * 32).decode()
START = datetime.fromisoformat("2031-05-01T12:00:00+00:00")
_numbers = itertools.count(1)

MakeQueue = Callable[..., Awaitable[str]]
OpenClient = Callable[..., AsyncHoldfast]


@dataclass(frozen=True, slots=True)
class World:
    """A database with Holdfast in it, and a server in front of it."""

    database_url: str
    server_url: str
    key: str | None = None  # to the server

    def url(self, door: str) -> str:
        """Where a door leads."""
        return self.database_url if door in (SQL_ASYNC, SQL_SYNC) else self.server_url


@pytest.fixture(scope="module")
def world(server_url: str, template_database: str) -> Iterator[World]:
    """What all tests of a module share, with a key for secrets at every door; the server does no upkeep, and
    nothing on services, so that tests see their own alone."""
    with (
        pytest.MonkeyPatch.context() as patch,
        holdfast_database(server_url, template_database) as url,
    ):
        patch.setenv(KEY_VARIABLE, SECRET_KEY)
        with served(Settings(database_url=url, port=0, upkeep=0, agent=False)) as http:
            yield World(url, http.address)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    """By which way the client goes."""
    return str(request.param)


@pytest.fixture
async def open_client(door: str, world: World) -> AsyncIterator[OpenClient]:
    """Opens clients through the door, and closes them at the end of the test."""
    opened: list[AsyncHoldfast] = []

    def open(**options: Any) -> AsyncHoldfast:
        if world.key is not None and world.url(door) == world.server_url:
            options["key"] = world.key
        client = made(door, world.url(door), options)
        opened.append(client)
        return client

    yield open
    for client in opened:
        await client.close()


def made(door: str, url: str, options: dict[str, Any]) -> AsyncHoldfast:
    """A client; one that is not asynchronous looks as if it were."""
    if door in (SQL_ASYNC, HTTP_ASYNC):
        later: AsyncClient = async_connect(url, **options)
        return cast(AsyncHoldfast, later)
    plain: Client = connect(url, **options)
    return twin(plain)


@pytest.fixture
def client(open_client: OpenClient) -> AsyncHoldfast:
    """A client through the door."""
    return open_client()


@pytest.fixture
def name() -> str:
    """A name that no queue has had."""
    return f"orders-{next(_numbers)}"


@pytest.fixture
def make_queue(client: AsyncHoldfast) -> MakeQueue:
    """Makes queues with names of their own."""

    async def make(**config: Any) -> str:
        queue = f"queue-{next(_numbers)}"
        await client.create_queue(queue, config)
        return queue

    return make


@pytest.fixture
async def queue(make_queue: MakeQueue) -> str:
    """A queue with the defaults."""
    return await make_queue()


@pytest.fixture
def conn(world: World) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the world's database, beside the client."""
    with psycopg.connect(world.database_url, autocommit=True) as connection:
        yield connection


class Clock:
    """The stopped clock of a module."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def stop(self) -> datetime:
        """Stop the clock, later than ever before; returns the time."""
        ((now,),) = self._connection.execute("select holdfast.now()").fetchall()
        return self._set(max(now, START) + timedelta(days=1))

    def forward(self, **by: float) -> datetime:
        """Set the clock forward; returns the time."""
        ((now,),) = self._connection.execute("select holdfast.now()").fetchall()
        return self._set(now + timedelta(**by))

    def _set(self, at: datetime) -> datetime:
        self._connection.execute("select holdfast.set_clock(%s)", [at])
        return at


@pytest.fixture
def clock(conn: psycopg.Connection[Any]) -> Clock:
    """The clock of the world."""
    return Clock(conn)
