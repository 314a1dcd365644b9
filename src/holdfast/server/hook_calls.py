"""What became of calls of hooks: gathered here and written from time to time: no caller waits for it.

It is for people to look at. A server that is killed takes what it has not written with it, and of more calls
than are kept the rest is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg

from holdfast.client import HoldfastError
from holdfast.client._rows import scalar

from .engine import Engine
from .trouble import said

EVERY_SECONDS = 1.0
MOST = 1_000  # calls between two writes
RECORD = b"select holdfast.record_hook_calls(%s::text::jsonb)"

logger = logging.getLogger("holdfast.server")
encode = msgspec.json.Encoder().encode


class HookCalls:
    """The calls since the last time they were written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls: list[dict[str, Any]] = []

    def note(
        self, hook: str, outcome: str, status: int, *, size: int | None, code: str | None, id: int | None
    ) -> None:
        """A call was answered just now."""
        if len(self._calls) < MOST:
            self._calls.append(
                {
                    "hook": hook,
                    "at": datetime.now(UTC),
                    "outcome": outcome,
                    "status": status,
                    "size": size,
                    "code": code,
                    "id": id,
                }
            )

    async def write(self) -> None:
        """Write them; what cannot be written is not kept."""
        calls, self._calls = self._calls, []
        if not calls:
            return
        try:
            await self._engine.fetch("record_hook_calls", RECORD, [encode(calls).decode()], scalar(int))
        except (HoldfastError, psycopg.Error) as error:
            logger.warning("cannot write what became of %s calls of hooks: %s", len(calls), said(error))

    @asynccontextmanager
    async def written(self) -> AsyncIterator[None]:
        """Write them again and again as long as the block lasts, and at its end."""
        task = asyncio.create_task(self._run(), name="holdfast-hook-calls")
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
