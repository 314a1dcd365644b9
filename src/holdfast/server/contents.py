"""Contents: what is in queues, live and kept, a page at a time; and how many messages that are, by state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from holdfast.client import Entry
from holdfast.client._rows import record

from .engine import Engine
from .sends import as_tuples

PAGE = b'select c.* from holdfast.contents(%s, %s, "limit" => %s, "offset" => %s) c'
COUNT = (
    b"select q.queue, jsonb_build_object('ready', s.ready, 'scheduled', s.scheduled, 'blocked', s.blocked, "
    b"'in_flight', s.in_flight) || (select jsonb_object_agg(o.outcome, o.messages) "
    b"from holdfast.outcomes(q.queue) o) from holdfast.queues() q, lateral holdfast.queue_stats(q.queue) s "
    b"where q.queue = any (%s) and q.effective ->> 'kind' = 'queue' order by q.queue"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content(Entry):
    """A message in a queue or in its archive."""

    root_id: int
    deadline: datetime | None


class Contents:
    """Looks into queues."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def page(
        self, queue: str, states: Sequence[str] | None, limit: int, offset: int
    ) -> list[Content]:
        """A page of the messages in some states; None: of all."""
        given = [queue, None if states is None else list(states), limit, offset]
        return await self._engine.fetch("contents", PAGE, given, record(Content))

    async def counts(self, queues: Sequence[str]) -> dict[str, dict[str, int]]:
        """How many messages of each queue are in which state; what is held no more does not count as held."""
        found = await self._count(queues)
        held = [queue for queue, count in found.items() if count["in_flight"]]
        freed = [await self._engine.sweep(queue) for queue in held]
        return await self._count(queues) if any(freed) else found

    async def _count(self, queues: Sequence[str]) -> dict[str, dict[str, int]]:
        rows = await self._engine.fetch("queue_stats", COUNT, [list(queues)], as_tuples)
        return {queue: msgspec.json.decode(count) for queue, count in rows}
