"""Places: where messages are now that are known by their first ids, looked up for all who ask together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.client._rows import record

from .coalesce import Coalescer
from .engine import Engine

MOST = 10_000  # ids in one look
LOOK = b"select w.root_id, w.queue, w.id, w.state from holdfast.whereabouts(%s) w"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message is, by which id, and in which state; or how it ended."""

    root_id: int
    queue: str
    id: int
    state: str


class Places:
    """Finds messages, whatever queue they were moved to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looks: Coalescer[None, int, Place | None] = Coalescer(
            self._look, weigh=lambda _: 1, most=MOST, apart=False
        )

    async def of(self, root_id: int) -> Place | None:
        """Where a message is; None: nowhere, and nothing was kept of it."""
        return await self._looks.submit(None, root_id)

    async def _look(self, _: None, roots: Sequence[int]) -> list[Place | None]:
        rows = await self._engine.fetch("whereabouts", LOOK, [sorted({*roots})], record(Place))
        found = {place.root_id: place for place in rows}
        return [found.get(root) for root in roots]
