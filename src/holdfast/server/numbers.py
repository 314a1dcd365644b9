"""Sequence numbers for queues and logs alike: how far an id lies from the base of its queue.

The base of a lane never changes, and no lane is ever used again: so what was found once is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Raw

from holdfast.client._rows import record, scalar

from .engine import Engine

LANE_BITS = 40  # of an id; above them is the number of its lane
MOST_REMEMBERED = 10_000
LARGEST = 2**53 - 1  # a sequence number that every reader of JSON keeps

BASE = b"select holdfast.base_id(%s)"
EXTENT = b"select * from holdfast.extent(%s, %s)"

LISTED = (
    b"select n.name as queue, e.kind, e.first_seq, e.last_seq, s.depth, i.effective "
    b"from unnest(%s::text[]) with ordinality n(name, nth), lateral holdfast.queue_info(n.name) i, "
    b"lateral holdfast.extent(n.name) e, lateral holdfast.queue_stats(n.name) s order by n.nth"
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A queue or log in a list: from where to where it reaches, what is in it, what holds for it."""

    queue: str
    kind: str
    first_seq: int | None
    last_seq: int
    depth: int
    effective: Raw


@dataclass(frozen=True, slots=True)
class Extent:
    """From where to where a queue or log reaches."""

    kind: str
    base: int
    first_seq: int | None
    last_seq: int
    place: int | None = None  # where a reader goes on who was shown nothing behind its place


class Numbers:
    """Turns ids into sequence numbers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._bases: OrderedDict[int, int] = OrderedDict()  # by lane

    async def of(self, queue: str, ids: Sequence[int]) -> list[int]:
        """The sequence numbers of ids that are, or were, in a queue."""
        lanes = {id >> LANE_BITS for id in ids}
        if not lanes <= self._bases.keys():
            base = await self.base(queue)
            self._bases.update((lane, base) for lane in lanes)
            while len(self._bases) > MOST_REMEMBERED:
                self._bases.popitem(last=False)
            return [id - base for id in ids]
        return [id - self._bases[id >> LANE_BITS] for id in ids]

    async def base(self, queue: str) -> int:
        """What the numbers of a queue count from."""
        (base,) = await self._engine.fetch("base_id", BASE, [queue], scalar(int))
        return base

    async def listed(self, queues: Sequence[str]) -> list[Listed]:
        """Several at once, those that are there."""
        return await self._engine.fetch("extent", LISTED, [list(queues)], record(Listed))

    async def extent(self, queue: str, after: int | None = None) -> Extent:
        """From where to where a queue reaches now; after: where somebody stands who reads it."""
        (extent,) = await self._engine.fetch("extent", EXTENT, [queue, after], record(Extent))
        return extent
