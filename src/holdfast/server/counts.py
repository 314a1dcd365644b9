"""Counts: how many messages of a queue are in which state, looked up once for all who ask together.

A count of few is made anew whenever somebody asks. To count many takes milliseconds, and they change while
they are counted: there, what was found a moment ago is told again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from holdfast.client._rows import record

from .coalesce import Coalescer
from .engine import Engine

MOST = 10_000
MANY = 1_000  # messages, from which on a count is told again
AGE_SECONDS = 0.1  # for so long
MOST_REMEMBERED = 1_000
MOST_LATE = 1_000  # leases that have run out and are not taken back yet; more are counted as in flight
# What a lease that has run out holds is there for the next claim, whether anybody has swept it or not.
LOOK = (
    b"select s.kind, s.ready + l.messages as ready, s.in_flight - l.messages as in_flight, s.depth, "
    b"(s.counters ->> 'dead')::bigint as dead from holdfast.queue_stats(%s) s, lateral ("
    b"select coalesce(sum(o.messages), 0)::bigint as messages "
    b"from holdfast.leases(%s, %s) o where o.deadline <= holdfast.now()) l"
)
LOOK_AT_LOG = (
    b"select s.kind, s.ready, s.in_flight, s.depth, (s.counters ->> 'dead')::bigint as dead "
    b"from holdfast.queue_stats(%s) s"
)


@dataclass(frozen=True, slots=True)
class Count:
    """The messages of a queue, or the records of a log."""

    kind: str
    ready: int
    in_flight: int
    depth: int
    dead: int  # since the queue was made


class Counts:
    """Counts for everybody who asks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found: dict[tuple[str, str], tuple[Count, float]] = {}  # those of many, and when
        self._looks: Coalescer[tuple[str, str], None, Count] = Coalescer(
            self._look, weigh=lambda _: 1, most=MOST
        )

    async def of(self, queue: str, kind: str = "queue") -> Count:
        """How many there are: at a moment after this was asked, or of many, shortly before."""
        key = (queue, kind)
        found = self._found.get(key)
        if found is not None and monotonic() - found[1] < AGE_SECONDS:
            return found[0]
        return await self._looks.submit(key, None)

    async def _look(self, key: tuple[str, str], asked: Sequence[None]) -> list[Count]:
        queue, kind = key
        began = monotonic()
        if kind == "log":
            rows = await self._engine.fetch("queue_stats", LOOK_AT_LOG, [queue], record(Count))
        else:
            rows = await self._engine.fetch("queue_stats", LOOK, [queue, queue, MOST_LATE], record(Count))
        self._found.pop(key, None)
        if rows[0].depth > MANY and len(self._found) < MOST_REMEMBERED:
            self._found[key] = (rows[0], began)
        return [rows[0]] * len(asked)
