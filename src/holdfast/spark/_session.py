"""A session with the database for the process that leads a stream: opened when needed, anew when broken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from ._database import call_errors, connect
from ._retry import retried
from .options import Secret

T = TypeVar("T")


class Session:
    """One connection, and what every stream asks of it."""

    def __init__(self, *, url: Secret, queue: str) -> None:
        self._url = url
        self._queue = queue
        self._connection: psycopg.Connection[Any] | None = None
        self._listening = False

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection, opened if need be."""
        if self._connection is None or self._connection.closed:
            self._listening = False
            self._connection = connect(self._url)
        return self._connection

    def close(self) -> None:
        """Let go of the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def attempt(
        self, call: Callable[[], T], *, patience: float, recover: Callable[[], None] | None = None
    ) -> T:
        """The answer of a call that may be made again; its errors show no secret."""

        def once() -> T:
            with call_errors(self._url):
                return call()

        return retried(once, patience=patience, recover=recover or self.close)

    def now(self) -> datetime:
        """The engine's time."""
        row = self.connection.execute("select holdfast.now()").fetchone()
        assert row is not None
        found: datetime = row[0]
        return found

    def announce(self, patience: float) -> None:
        """Say that this session is about to sleep, so that a send wakes it. Then look once more."""
        row = self.connection.execute(
            "select holdfast.listen(%s, make_interval(secs => %s))", [self._queue, patience]
        ).fetchone()
        assert row is not None
        if not self._listening:
            self.connection.execute(sql.SQL("listen {}").format(sql.Identifier(row[0])))
            self._listening = True

    def await_send(self, patience: float) -> None:
        """Sleep until something is sent to any queue that somebody sleeps on, or for so many seconds."""
        for _ in self.connection.notifies(timeout=patience, stop_after=1):
            pass
