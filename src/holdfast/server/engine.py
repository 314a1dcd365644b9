"""The engine as the server sees it: every verb over a pool, with JSON that is passed on and never read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, TypeVar

from msgspec import Raw
from psycopg import AsyncConnection

from holdfast.client._async.session import AsyncPoolSession, run
from holdfast.client._async.sql_verbs import AsyncSqlVerbs
from holdfast.client._explain import explained
from holdfast.client._rows import Factory, scalar

from .connections import Connections
from .settings import Settings

T = TypeVar("T")

took: ContextVar[float] = ContextVar("took", default=0.0)  # seconds that the last statement here took

DROP = b"select holdfast.drop_queue(%s, %s)"
CREATE = b"select holdfast.create_queue(%s, %s::jsonb)"
DEFAULTS = b"select holdfast.configure_defaults(%s::jsonb)"
CONFIGURE = b"select holdfast.configure_queue(%s, %s::jsonb)"


class LentSession(AsyncPoolSession):
    """Statements over connections that are lent for one at a time."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._reader = as_it_is

    def connection(self) -> Any:
        """A connection for a while."""
        return self._connections.lend()

    async def _fetch(self, statement: bytes, parameters: list[Any], factory: Factory[T]) -> list[T]:
        async with self.connection() as connection:
            started = perf_counter()
            try:
                return await run(connection, statement, parameters, factory, self._reader)
            finally:
                took.set(perf_counter() - started)


class Engine(AsyncSqlVerbs):
    """The verbs, and statements of the server's own."""

    def __init__(self, settings: Settings) -> None:
        self.connections = Connections(settings)
        super().__init__(LentSession(self.connections))

    async def open(self) -> None:
        """Begin to connect."""
        await self.connections.open()

    async def close(self) -> None:
        """Let go of all connections."""
        await self.connections.close()

    async def fetch(
        self, verb: str, statement: bytes, parameters: list[Any], factory: Factory[T]
    ) -> list[T]:
        """Run a statement around a verb, with the errors that the verb has."""
        with explained(verb):
            return await self._session.fetch(statement, parameters, factory)

    async def created(self, connection: AsyncConnection[Any], queue: str, config: str) -> bool:
        """create_queue within a transaction."""
        with explained("create_queue"):
            rows = await run(connection, CREATE, [queue, config], scalar(bool), as_it_is)
        return rows[0]

    async def configured(self, connection: AsyncConnection[Any], queue: str, change: str) -> Raw:
        """configure_queue within a transaction; returns what is in force."""
        with explained("configure_queue"):
            rows = await run(connection, CONFIGURE, [queue, change], scalar(Raw), as_it_is)
        return rows[0]

    async def configured_defaults(self, connection: AsyncConnection[Any], change: str) -> Raw:
        """configure_defaults within a transaction; returns what is in force."""
        with explained("configure_defaults"):
            rows = await run(connection, DEFAULTS, [change], scalar(Raw), as_it_is)
        return rows[0]

    async def dropped(self, connection: AsyncConnection[Any], queue: str, if_empty: bool) -> bool:
        """drop_queue within a transaction."""
        with explained("drop_queue"):
            rows = await run(connection, DROP, [queue, if_empty], scalar(bool), as_it_is)
        return rows[0]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection, for several statements that belong together."""
        async with self._session.transaction() as connection:
            yield connection


def as_it_is(data: str | bytes) -> Raw:
    """JSON out of the database, digits and order and all."""
    return Raw(data if isinstance(data, str) else bytes(data))
