"""The connections of one process to the database: bounded in number and time, and made anew after a loss.

A lost connection is a suspicion: one probe looks whether the database is there, again and again until it is.
As long as it is not, nobody waits for a connection: requests are refused at once. When it is back the whole
pool is replaced, since idle connections in it may be dead, and its own attempts to connect grow rare by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from .deadline import Deadline, cut
from .settings import Settings
from .trouble import away, is_gone, said

PATIENCE_SECONDS = 5.0  # for a free connection; then the answer is 503
MOST_WAITING = 1_000
CONNECT_SECONDS = 5
RETRY_SECONDS = 0.5
CLOSE_SECONDS = 2.0

# Where the other end is silent for good, TCP finds out after some 25 seconds, and not after hours.
CAREFUL: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "fallback_application_name": "holdfast serve",
}
# A standby takes connections, and can do nothing.
CAN_WORK = b"select not pg_is_in_recovery()"

Pool = AsyncConnectionPool[AsyncConnection[Any]]
logger = logging.getLogger("holdfast.server")


def careful(url: str) -> str:
    """A database's address with limits to silence, where it names none itself."""
    given = conninfo_to_dict(url)
    return make_conninfo("", **{**CAREFUL, **given})


async def connect(url: str) -> AsyncConnection[Any]:
    """A connection of its own."""
    return await AsyncConnection.connect(careful(url), autocommit=True, prepare_threshold=None)


class Connections:
    """Lends connections for one statement or transaction at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = self._make()
        self._lent: set[AsyncConnection[Any]] = set()
        self._probe: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._returned: list[Callable[[], None]] = []
        self._lost = False  # a connection was; others may be dead too
        self.away = False
        self.limit = settings.statement_timeout  # seconds for what is lent from now on

    def on_return(self, call: Callable[[], None]) -> None:
        """Call this whenever the database may have been gone, and is there."""
        self._returned.append(call)

    def _make(self) -> Pool:
        settings = self._settings
        return AsyncConnectionPool(
            careful(settings.database_url),
            open=False,
            min_size=min(2, settings.pool_size),
            max_size=settings.pool_size,
            timeout=PATIENCE_SECONDS,
            max_waiting=MOST_WAITING,
            kwargs={"autocommit": True, "prepare_threshold": 5 if settings.prepare else None},
        )

    async def open(self) -> None:
        """Begin to connect; whoever comes first waits for it."""
        await self._pool.open()
        self._look()

    async def close(self) -> None:
        """Let go of all connections, also of those that are lent."""
        if self._probe is not None:
            self._probe.cancel()
            with suppress(asyncio.CancelledError):
                await self._probe
        self.cut_all()
        await self._pool.close(CLOSE_SECONDS)
        if self._closing:
            await asyncio.wait(self._closing)

    def cut_all(self) -> None:
        """Let nobody wait for the database any longer."""
        for connection in self._lent:
            cut(connection)

    def figures(self) -> dict[str, int]:
        """How many connections there are, how many are lent, and how many callers wait for one."""
        stats = self._pool.get_stats()
        return {
            "open": stats.get("pool_size", 0),
            "lent": len(self._lent),
            "waiting": stats.get("requests_waiting", 0),
        }

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection for a while, but no longer than the limit."""
        if self.away:
            raise away()
        pool = self._pool
        try:
            connection = await pool.getconn()
        except PoolTimeout:
            self._look()
            raise
        self._lent.add(connection)
        deadline = Deadline(connection, self.limit)
        try:
            with deadline:
                yield connection
        except psycopg.Error as error:
            if is_gone(error):
                self.suspect()
            raise
        finally:
            self._lent.discard(connection)
            if deadline.passed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
                await connection.close()
            await pool.putconn(connection)

    def suspect(self) -> None:
        """A connection was lost: perhaps the database is."""
        self._lost = True
        self._look()

    def _look(self) -> None:
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._recover(), name="holdfast-probe")

    async def _recover(self) -> None:
        while problem := await self._problem():
            if not self.away:
                logger.error("the database does not answer: %s", problem)
            self.away = True
            await asyncio.sleep(RETRY_SECONDS)
        if self.away:
            logger.warning("the database answers again")
        if self.away or self._lost:
            await self._renew()
        self.away = self._lost = False
        for call in self._returned:
            call()
        # Whoever ends one session after the other shall not make us connect all the time.
        await asyncio.sleep(RETRY_SECONDS)

    async def _problem(self) -> str | None:
        """Why the database cannot work; None if it can."""
        try:
            async with await connect(self._settings.database_url) as connection:
                with Deadline(connection, CONNECT_SECONDS):
                    can_work = await (await connection.execute(CAN_WORK)).fetchone()
        except psycopg.Error as error:
            return said(error)
        return None if can_work == (True,) else "it is a standby"

    async def _renew(self) -> None:
        """Another pool: who waits at the old one is refused, who has a connection of it keeps that."""
        old, self._pool = self._pool, self._make()
        await self._pool.open()
        self._closing.add(task := asyncio.create_task(old.close(CLOSE_SECONDS), name="holdfast-close-pool"))
        task.add_done_callback(self._closing.discard)
