"""When keys were last used: gathered here, and written from time to time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from holdfast.client import HoldfastError
from holdfast.client._rows import scalar

from .engine import Engine
from .trouble import said

EVERY_SECONDS = 20.0
TOUCH = b"select 1 from holdfast.touch_keys(%s)"

logger = logging.getLogger("holdfast.server")


class Uses:
    """The keys that were used since the last time they were written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ids: set[int] = set()

    def note(self, key_id: int) -> None:
        """A key was used just now."""
        self._ids.add(key_id)

    async def write(self) -> None:
        """Write them; if that fails, they wait for the next time."""
        ids, self._ids = self._ids, set()
        if not ids:
            return
        try:
            await self._engine.fetch("touch_keys", TOUCH, [sorted(ids)], scalar(int))
        except (HoldfastError, psycopg.Error) as error:
            self._ids |= ids
            logger.warning("cannot write which keys were used: %s", said(error))

    @asynccontextmanager
    async def written(self) -> AsyncIterator[None]:
        """Write them again and again as long as the block lasts, and at its end."""
        task = asyncio.create_task(self._run(), name="holdfast-uses")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self.write()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self.write()
