"""Clients of both kinds: every test that takes one of these fixtures runs twice, async and sync."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast import AsyncHoldfast, Holdfast
from tests.client.twin import Connected, twin

ASYNC, SYNC = "async", "sync"

Open = Callable[..., AsyncHoldfast]
Bind = Callable[..., Awaitable[tuple[AsyncHoldfast, psycopg.AsyncConnection[Any]]]]
BindPool = Callable[..., Awaitable[AsyncHoldfast]]


@pytest.fixture(params=[ASYNC, SYNC])
def flavour(request: pytest.FixtureRequest) -> str:
    """Which client is under test."""
    return str(request.param)


@pytest.fixture
async def open_client(flavour: str, database_url: str) -> AsyncIterator[Open]:
    """Opens clients by URL, and closes them at the end of the test, before the database goes."""
    async with AsyncExitStack() as stack:

        def opened(url: str, **options: Any) -> AsyncHoldfast:
            client = AsyncHoldfast(url, **options) if flavour == ASYNC else twin(Holdfast(url, **options))
            stack.push_async_callback(client.close)
            return client

        yield opened


@pytest.fixture
def client(open_client: Open, database_url: str) -> AsyncHoldfast:
    """A client with its own pool."""
    return open_client(database_url)


@pytest.fixture
async def bind(flavour: str, database_url: str) -> AsyncIterator[Bind]:
    """Makes a client over a connection of the caller's, and gives both."""
    async with AsyncExitStack() as stack:

        async def bound(
            *, autocommit: bool = False, **options: Any
        ) -> tuple[AsyncHoldfast, psycopg.AsyncConnection[Any]]:
            if flavour == ASYNC:
                connection = await psycopg.AsyncConnection.connect(database_url, autocommit=autocommit)
                stack.push_async_callback(connection.close)
                return AsyncHoldfast(connection=connection, **options), connection
            plain = psycopg.connect(database_url, autocommit=autocommit)
            stack.callback(plain.close)
            facade: Any = Connected(plain)
            return twin(Holdfast(connection=plain, **options)), facade

        yield bound


@pytest.fixture
async def bind_pool(flavour: str, database_url: str) -> AsyncIterator[BindPool]:
    """Makes a client over a pool of the caller's."""
    async with AsyncExitStack() as stack:

        async def bound(*, autocommit: bool, **options: Any) -> AsyncHoldfast:
            settings = {"autocommit": autocommit}
            if flavour == ASYNC:
                pool = AsyncConnectionPool(database_url, kwargs=settings, min_size=1, max_size=4, open=False)
                await stack.enter_async_context(pool)
                return AsyncHoldfast(pool=pool, **options)
            plain = ConnectionPool(database_url, kwargs=settings, min_size=1, max_size=4, open=False)
            stack.enter_context(plain)
            return twin(Holdfast(pool=plain, **options))

        yield bound
