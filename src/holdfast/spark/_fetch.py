"""Rows of PostgreSQL as Arrow, for tasks: over a connection that the process keeps for its next task.

Streams fetch a whole answer at a time, since a retry can't take back what was handed on. A batch read takes
what comes, in one transaction: if that fails, Spark runs the task again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from adbc_driver_manager import Error as ArrowError

from ._database import arrow_errors
from ._retry import retried
from .options import Secret

# What the last task of this process has left, by process and database: opening a connection takes 50 ms, most
# of it for the driver's look at the catalog and for the server's first plans.
_spare: dict[tuple[int, str], adbc.Connection] = {}


class Fetcher:
    """Answers to one task's queries, over one connection that is opened anew when it breaks."""

    def __init__(self, url: Secret, *, patience: float) -> None:
        self._url = url
        self._patience = patience
        self._connection: adbc.Connection | None = None

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._connection is None:
            self._close()
            return
        _keep(self._url, self._connection)
        self._connection = None

    def table(self, query: str) -> pa.Table:
        """The rows of a query; it may be asked more than once."""
        return retried(lambda: self._ask(query), patience=self._patience, recover=self._close)

    def _ask(self, query: str) -> pa.Table:
        with arrow_errors(self._url):
            if self._connection is None:
                self._connection = _spare.pop(_key(self._url), None)
            if self._connection is None:
                self._connection = adbc.connect(self._url.reveal(), autocommit=True)
            with self._connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetch_arrow_table()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@contextmanager
def transaction(url: Secret, opening: Sequence[str]) -> Iterator[Any]:
    """A cursor in a transaction that begins with these statements, and leaves nothing behind."""

    def begin(connection: adbc.Connection) -> None:
        connection.adbc_connection.set_autocommit(False)
        with connection.cursor() as cursor:
            for statement in opening:
                cursor.execute(statement)

    with _connection(url, begin) as connection:
        with connection.cursor() as cursor:
            yield cursor
        connection.rollback()
        connection.adbc_connection.set_autocommit(True)


@contextmanager
def ingestion(url: Secret) -> Iterator[Any]:
    """A cursor that ingests: each time in a transaction of its own."""

    def greet(connection: adbc.Connection) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select 1")

    with _connection(url, greet) as connection, connection.cursor() as cursor:
        yield cursor


@contextmanager
def _connection(url: Secret, prepare: Callable[[adbc.Connection], None]) -> Iterator[adbc.Connection]:
    """A connection that was prepared, kept for the next task if all goes well."""
    with arrow_errors(url):
        connection = _prepared(url, prepare)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        _keep(url, connection)


def _prepared(url: Secret, prepare: Callable[[adbc.Connection], None]) -> adbc.Connection:
    spare = _spare.pop(_key(url), None)
    if spare is not None:
        # The server may have ended it while it lay idle. What is wrong otherwise shows again.
        with suppress(ArrowError):
            return _tried(spare, prepare)
    return _tried(adbc.connect(url.reveal(), autocommit=True), prepare)


def _tried(connection: adbc.Connection, prepare: Callable[[adbc.Connection], None]) -> adbc.Connection:
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _key(url: Secret) -> tuple[int, str]:
    return os.getpid(), url.reveal()


def _keep(url: Secret, connection: adbc.Connection) -> None:
    close_spare()
    _spare[_key(url)] = connection


def close_spare() -> None:
    """Close the connection that this process keeps for its next task."""
    for key in [key for key in _spare if key[0] == os.getpid()]:
        _spare.pop(key).close()
