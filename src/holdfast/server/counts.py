"""Counts: how many messages of a queue are in which state, looked up once for all who ask together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.client._rows import record

from .coalesce import Coalescer
from .engine import Engine

MOST = 10_000
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
        self._looks: Coalescer[tuple[str, str], None, Count] = Coalescer(
            self._look, weigh=lambda _: 1, most=MOST
        )

    async def of(self, queue: str, kind: str = "queue") -> Count:
        """How many there are, at a moment after this was asked."""
        return await self._looks.submit((queue, kind), None)

    async def _look(self, key: tuple[str, str], asked: Sequence[None]) -> list[Count]:
        queue, kind = key
        if kind == "log":
            rows = await self._engine.fetch("queue_stats", LOOK_AT_LOG, [queue], record(Count))
        else:
            rows = await self._engine.fetch("queue_stats", LOOK, [queue, queue, MOST_LATE], record(Count))
        return [rows[0]] * len(asked)
