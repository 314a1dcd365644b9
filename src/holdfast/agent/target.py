"""The database of a service: how it is reached, in bounded time, and how Holdfast comes into it."""

from __future__ import annotations

import asyncio
import re
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
SECRETS = ("password", "sslpassword", "oauth_client_secret")
REACH_SECONDS = 20.0  # for a connection, to whichever of several hosts
STATEMENT_SECONDS = 30.0  # for each statement on a service
WORK_SECONDS = 60.0  # for a whole step; then the line is cut
INSTALL_SECONDS = 120.0
# Of connections: how psycopg goes on where it tried several, and what will not pass by itself.
SEVERAL = "All failures were:\n"
REFUSED = re.compile(
    r"FATAL: +(password authentication failed"
    r"|(database|role) \".*\" (does not exist|is not (permitted|currently)))"
    r"|no password supplied"
)

T = TypeVar("T")


class Target:
    """A database of a service."""

    def __init__(self, url: str, database_name: str = OWN_DATABASE) -> None:
        self._own = url
        self._url = url if database_name == OWN_DATABASE else make_conninfo(url, dbname=database_name)
        self.database_name = database_name
        given = conninfo_to_dict(url)
        self._secrets = [str(given[name]) for name in SECRETS if len(str(given.get(name) or "")) > 3]

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
                    "select exists (select from pg_database where datname = %s"
                    " and (datallowconn or not datistemplate))",
                    [self.database_name],
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
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def is_refused(error: BaseException) -> bool:
    """Whether a server will not let in whoever comes like this; of several, whether none will."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    # There is no SQLSTATE yet. A server that speaks another language is asked again, as one that is away.
    _, several, listed = str(error).partition(SEVERAL)
    return all(REFUSED.search(each) for each in (listed.split("\n- ") if several else [str(error)]))


async def reached(url: str) -> AsyncConnection[Any]:
    """A connection."""
    try:
        # Whatever the URL says of patience, and however many hosts it names.
        async with asyncio.timeout(REACH_SECONDS):
            connection = await AsyncConnection.connect(
                careful(url), autocommit=True, prepare_threshold=None, application_name="holdfast agent"
            )
    except UnicodeError as error:
        raise OSError(f"no host has this name: {error}") from None
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
