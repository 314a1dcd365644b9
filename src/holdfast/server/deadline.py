"""A limit to how long a connection may work: also where the network swallows everything it says."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg import AsyncConnection

CANCEL_SECONDS = 2.0

_breaking: set[asyncio.Task[None]] = set()  # a loop keeps no hold of its tasks


class Deadline:
    """A block in which a connection works; if that takes too long it is cancelled, and the line is cut."""

    __slots__ = ("_connection", "_over", "_seconds", "_timer", "passed")

    def __init__(self, connection: AsyncConnection[Any], seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._over: asyncio.Event | None = None
        self.passed = False  # from then on the connection is of no use

    def __enter__(self) -> Deadline:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._pass)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._over is not None:
            self._over.set()

    def _pass(self) -> None:
        self.passed = True
        self._over = asyncio.Event()
        _breaking.add(task := asyncio.create_task(self._break_off(self._over), name="holdfast-break-off"))
        task.add_done_callback(_breaking.discard)

    async def _break_off(self, over: asyncio.Event) -> None:
        """A server that hears it rolls back and says so; of one that does not, nothing more is expected."""
        with suppress(psycopg.Error):
            await self._connection.cancel_safe(timeout=CANCEL_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), CANCEL_SECONDS)
        cut(self._connection)


def cut(connection: AsyncConnection[Any]) -> None:
    """Close the line under a connection: whoever waits for it learns that it is lost."""
    # Cancelling a task would not do: psycopg then waits for the server to say that it has stopped.
    with (
        suppress(psycopg.Error, OSError),
        socket.socket(fileno=os.dup(connection.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)
