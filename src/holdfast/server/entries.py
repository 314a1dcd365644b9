"""Entries: messages looked at by id without being claimed, several in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Raw

from holdfast.client import Entry
from holdfast.client._rows import record

from .engine import Engine

LOOK = b"select e.* from unnest(%s::bigint[]) i(id), lateral holdfast.message(%s, i.id) e"


class Entries:
    """Looks at messages of a queue."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of(self, queue: str, ids: Sequence[int]) -> dict[int, Entry]:
        """The messages with these ids; those that are not there are left out."""
        if not ids:
            return {}
        found = await self._engine.fetch("message", LOOK, [list(ids), queue], record(Entry))
        return {entry.id: entry for entry in found}

    async def root_of(self, queue: str, id: int) -> int:
        """The id that a message had first: its own, unless it was moved."""
        found = (await self.of(queue, [id])).get(id)
        if found is None or found.origin is None:
            return id
        origin = msgspec.json.decode(cast(Raw, found.origin))
        root = origin.get("root_id") if isinstance(origin, dict) else None
        return root if isinstance(root, int) else id

    async def failures_of(self, queue: str, ids: Sequence[int]) -> dict[int, int]:
        """How often each of these messages has failed."""
        return {id: entry.failures for id, entry in (await self.of(queue, ids)).items()}
