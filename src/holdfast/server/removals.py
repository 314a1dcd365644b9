"""Removing messages of queues and records of logs: by tag, by the beginning of a tag, before a number."""

from __future__ import annotations

from holdfast.client._rows import scalar

from .engine import Engine
from .numbers import Numbers

MOST = 10_000  # in one statement
FIND = b"select holdfast.find_tagged(%s, tag => %s, prefix => %s, before => %s)"


class Removals:
    """Removes what is there when it is asked to, and nothing that comes later."""

    def __init__(self, engine: Engine, numbers: Numbers) -> None:
        self._engine = engine
        self._numbers = numbers

    async def remove(self, queue: str, tag: str | None, prefix: str | None, before: int | None) -> int:
        """Remove what has a tag, or one that begins so, before a number; returns how many."""
        extent = await self._numbers.extent(queue)
        end = extent.last_seq + 1 if before is None else min(before, extent.last_seq + 1)
        removed = 0
        while True:
            (ids,) = await self._engine.fetch("find_tagged", FIND, [queue, tag, prefix, end], scalar(list))
            gone = await self._remove(queue, extent.kind, extent.base, ids) if ids else 0
            removed += gone
            # What somebody else removes at this moment is not there the next time either.
            if len(ids) < MOST or gone == 0:
                return removed

    async def _remove(self, queue: str, kind: str, base: int, ids: list[int]) -> int:
        if kind == "log":
            return await self._engine.log_delete(queue, [id - base for id in ids])
        return len(await self._engine.discard(queue, ids))
