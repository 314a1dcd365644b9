"""What other processes announce: sends to sleepers, and changes of keys, schemas and configuration.

One connection listens for the whole process. It is a hint and no more: whatever is cached also grows old, and
whoever sleeps also looks from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection

from .connections import connect
from .deadline import Deadline
from .trouble import said

RECONNECT_SECONDS = 1.0
QUIET_SECONDS = 15.0  # without a notification: then it asks whether the database is still there
ANSWER_SECONDS = 5.0

Heard = Callable[[str], None]
logger = logging.getLogger("holdfast.server")


class Bulletin:
    """Listens on channels, and tells whoever has asked; after a lost connection, everybody."""

    def __init__(self, url: str, lost: Callable[[], None]) -> None:
        """lost: is called when the connection is."""
        self._url = url
        self._lost = lost
        self._readers: dict[str, list[Heard]] = {}
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, channel: str, heard: Heard) -> None:
        """Call `heard` with the text of every notification; with "" if some may have been missed."""
        self._readers.setdefault(channel, []).append(heard)

    def start(self) -> None:
        """Begin to listen, once everybody has subscribed."""
        self._task = asyncio.create_task(self._run(), name="holdfast-bulletin")

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        told = False
        while True:
            try:
                async with await connect(self._url) as connection:
                    await self._listen(connection)
                    told = False
                    await self._read(connection)
            except psycopg.Error as error:
                if not told:
                    logger.warning("not listening for now: %s", said(error))
                told = True
                self._lost()
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self, connection: AsyncConnection[Any]) -> None:
        with Deadline(connection, ANSWER_SECONDS):
            for channel in self._readers:
                await connection.execute(f'listen "{channel}"'.encode())
        for channel in self._readers:
            self._tell(channel, "")

    async def _read(self, connection: AsyncConnection[Any]) -> None:
        while True:
            async for notification in connection.notifies(timeout=QUIET_SECONDS):
                self._tell(notification.channel, notification.payload)
            with Deadline(connection, ANSWER_SECONDS):
                await connection.execute(b"select 1")

    def _tell(self, channel: str, text: str) -> None:
        for heard in self._readers.get(channel, ()):
            heard(text)
