"""The database of a service: how it is reached, in bounded time, and how Holdfast comes into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.client._errors import SealedError, translated
from holdfast.client._services import LOCAL, purpose_of
from holdfast.migrate import migrate
from holdfast.server.connections import careful
from holdfast.server.deadline import Deadline
from holdfast.vault import Vault

DIALECT = "foundrydb"
OWN_DATABASE = "defaultdb"
STATEMENT_SECONDS = 30.0  # for each statement on a service
WORK_SECONDS = 60.0  # for a whole step; then the line is cut
INSTALL_SECONDS = 120.0

T = TypeVar("T")


class Target:
    """A database of a service."""

    def __init__(self, url: str, database_name: str = OWN_DATABASE) -> None:
        self._own = url
        self._url = url if database_name == OWN_DATABASE else make_conninfo(url, dbname=database_name)
        self.database_name = database_name
        self._password = str(conninfo_to_dict(url).get("password") or "")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection in a transaction, which has to be done in time."""
        async with await reached(self._url) as connection:
            with Deadline(connection, WORK_SECONDS), translated():
                async with connection.transaction():
                    milliseconds = str(int(STATEMENT_SECONDS * 1000))
                    await connection.execute(
                        "select set_config('statement_timeout', %s, true)", [milliseconds]
                    )
                    yield connection

    async def has_database(self) -> bool:
        """Whether the database is there, as the service's own one knows."""
        if self.database_name == OWN_DATABASE:
            return True
        async with await reached(self._own) as connection:
            with Deadline(connection, WORK_SECONDS):
                found = await connection.execute(
                    "select exists (select from pg_database where datname = %s)", [self.database_name]
                )
                return await found.fetchone() == (True,)

    async def install(self) -> None:
        """Bring Holdfast and the SQL contract into it, or up to date."""
        # Of no use once it is late: a server that says nothing more shall keep no thread of others busy.
        async with asyncio.timeout(INSTALL_SECONDS):
            await apart(
                lambda: migrate(
                    careful(self._url), dialects=(DIALECT,), statement_timeout=STATEMENT_SECONDS * 2
                )
            )

    def without_secrets(self, text: str) -> str:
        """A text that may be told: errors of a connection can quote what they were given."""
        return text.replace(self._password, "***") if len(self._password) > 3 else text


async def reached(url: str) -> AsyncConnection[Any]:
    """A connection."""
    connection = await AsyncConnection.connect(
        careful(url), autocommit=True, prepare_threshold=None, application_name="holdfast agent"
    )
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    return connection


def opened(vault: Vault, local_url: str, service: str, sealed: str | None) -> str:
    """How to connect to a service."""
    if sealed is None and service == LOCAL:
        return local_url
    url = vault.open(sealed or "", purpose_of(service))
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise SealedError(
            "QH841", "the address of the service cannot be read", "It is not shown.", "Store it again."
        ) from None
    return url


async def apart(work: Callable[[], T]) -> T:
    """Wait for work in a thread of its own, which ends with the process if nobody waits any more."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if not done.done():
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # None is what the work returned

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:
            error = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name="holdfast-install", daemon=True).start()
    return await done
