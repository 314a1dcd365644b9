"""The engine as the server sees it: every verb over a pool, with JSON that is passed on and never read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from msgspec import Raw
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holdfast.client import HoldfastError
from holdfast.client._async.session import AsyncPoolSession, run
from holdfast.client._async.sql_verbs import AsyncSqlVerbs
from holdfast.client._explain import explained
from holdfast.client._rows import Factory, scalar
from holdfast.client._schema import async_check_schema

from .settings import Settings

T = TypeVar("T")

PATIENCE = 5.0  # seconds for a free connection; then the answer is 503
CONFIGURE = b"select holdfast.configure_queue(%s, %s::jsonb)"
# Connection trouble, and a server that is going down: the transaction may have been committed or not.
UNCERTAIN = ("08", "57P")


class Engine(AsyncSqlVerbs):
    """The verbs, and statements of the server's own."""

    def __init__(self, settings: Settings) -> None:
        prepare = 5 if settings.prepare else None
        self.pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            settings.database_url,
            open=False,
            min_size=min(2, settings.pool_size),
            max_size=settings.pool_size,
            timeout=PATIENCE,
            kwargs={"autocommit": True, "prepare_threshold": prepare},
        )
        self._url = settings.database_url
        super().__init__(AsyncPoolSession(self.pool, as_it_is))

    async def open(self) -> None:
        """Connect, so that a database that is not there, or not ours, is told at once."""
        async with await AsyncConnection.connect(
            self._url, autocommit=True, prepare_threshold=None
        ) as connection:
            await async_check_schema(connection)
        await self.pool.open(wait=True, timeout=PATIENCE)

    async def close(self) -> None:
        """Let go of all connections."""
        await self.pool.close()

    async def fetch(
        self, verb: str, statement: bytes, parameters: list[Any], factory: Factory[T]
    ) -> list[T]:
        """Run a statement around a verb, with the errors that the verb has."""
        with explained(verb):
            return await self._session.fetch(statement, parameters, factory)

    async def configured(self, connection: AsyncConnection[Any], queue: str, change: str) -> Raw:
        """configure_queue within a transaction; returns what is in force."""
        with explained("configure_queue"):
            rows = await run(connection, CONFIGURE, [queue, change], scalar(Raw), as_it_is)
        return rows[0]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection, for several statements that belong together."""
        async with self._session.transaction() as connection:
            yield connection


def as_it_is(data: str | bytes) -> Raw:
    """JSON out of the database, digits and order and all."""
    return Raw(data if isinstance(data, str) else bytes(data))


def changed_nothing(error: Exception) -> bool:
    """Whether what failed has certainly not happened, so that it can be repeated."""
    if isinstance(error, HoldfastError | PoolTimeout):
        return True
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        return False
    return not error.sqlstate.startswith(UNCERTAIN)
