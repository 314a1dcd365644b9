"""What other processes announce: sends to sleepers, and changes of keys, schemas and configuration.

One connection listens for the whole process. It is a hint and no more: whatever is cached also grows old, and
whoever sleeps also looks from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection

RECONNECT_SECONDS = 1.0

Heard = Callable[[str], None]
logger = logging.getLogger("holdfast.server")


class Bulletin:
    """Listens on channels, and tells whoever has asked; after a lost connection, everybody."""

    def __init__(self, url: str) -> None:
        self._url = url
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
        while True:
            try:
                await self._listen()
            except psycopg.Error as error:
                logger.warning("not listening for now: %s", str(error).strip())
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        async with await AsyncConnection.connect(
            self._url, autocommit=True, prepare_threshold=None
        ) as connection:
            for channel in self._readers:
                await connection.execute(f'listen "{channel}"'.encode())
            for channel in self._readers:
                self._tell(channel, "")
            async for notification in connection.notifies():
                self._tell(notification.channel, notification.payload)

    def _tell(self, channel: str, text: str) -> None:
        for heard in self._readers.get(channel, ()):
            heard(text)
