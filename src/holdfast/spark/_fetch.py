"""Rows of PostgreSQL as Arrow, a whole answer at a time: a retry can't take back what was handed on."""

from __future__ import annotations

import os

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

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
        close_spare()
        _spare[self._key] = self._connection
        self._connection = None

    def table(self, query: str) -> pa.Table:
        """The rows of a query; it may be asked more than once."""
        return retried(lambda: self._ask(query), patience=self._patience, recover=self._close)

    def _ask(self, query: str) -> pa.Table:
        with arrow_errors(self._url):
            if self._connection is None:
                self._connection = _spare.pop(self._key, None)
            if self._connection is None:
                self._connection = adbc.connect(self._url.reveal(), autocommit=True)
            with self._connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetch_arrow_table()

    @property
    def _key(self) -> tuple[int, str]:
        return os.getpid(), self._url.reveal()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def close_spare() -> None:
    """Close the connection that this process keeps for its next task."""
    for key in [key for key in _spare if key[0] == os.getpid()]:
        _spare.pop(key).close()
