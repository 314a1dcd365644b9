"""Definitions: the schemas in force of all queues, looked up together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from msgspec import Raw

from holdfast.client._rows import record

from .engine import Engine

OF_ALL = (
    b"select q.queue, s.version, s.kind, s.definition, s.created_at "
    b"from holdfast.queues() q, lateral holdfast.queue_schema(q.queue) s order by q.queue"
)
OF_ONE = (
    b"select %s::text as queue, s.version, s.kind, s.definition, s.created_at "
    b"from holdfast.queue_schema(%s) s"
)


@dataclass(frozen=True, slots=True)
class Definition:
    """The schema of a queue."""

    queue: str
    version: int
    kind: str
    definition: Raw
    created_at: datetime


class Definitions:
    """Looks up schemas as they are now."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def all(self) -> list[Definition]:
        """Those of all queues that have one, by name."""
        return await self._engine.fetch("queues", OF_ALL, [], record(Definition))

    async def of(self, queue: str) -> Definition | None:
        """That of one queue; None: it has none."""
        found = await self._engine.fetch("queue_schema", OF_ONE, [queue, queue], record(Definition))
        return found[0] if found else None
