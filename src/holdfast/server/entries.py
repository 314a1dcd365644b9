"""Entries: messages looked at by id without being claimed, several in one statement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.client import Entry
from holdfast.client._rows import record

from .engine import Engine

LARGEST_ID = 2**63 - 1
ROOT = re.compile("[1-9][0-9]{0,18}")  # as text, which it may be in what others have written
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
        return root_in(origin if isinstance(origin, dict) else {}, id)

    async def failures_of(self, queue: str, ids: Sequence[int]) -> dict[int, int]:
        """How often each of these messages has failed."""
        return {id: entry.failures for id, entry in (await self.of(queue, ids)).items()}


def root_in(origin: Mapping[str, Any], id: int) -> int:
    """The first id of a message, as the engine finds it in an origin; its own id where that is none."""
    root = origin.get("root_id")
    if isinstance(root, bool) or not isinstance(root, int | str) or not ROOT.fullmatch(str(root)):
        return id
    return int(root) if int(root) <= LARGEST_ID else id
