"""Reaping: ending and deleting in bulk, by as many bounded calls as it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.client._rows import record

from .engine import Engine

MOST = 10_000  # in one call
EXPIRE = b'select e.expired as ended, e.more from holdfast.expire(%s, "limit" => %s) e'
FORGET = b'select f.forgotten as ended, f.more from holdfast.forget(%s, %s, "limit" => %s) f'


@dataclass(frozen=True, slots=True)
class Reaped:
    """How many messages a call has ended, and whether there may be more."""

    ended: int
    more: bool


class Reaping:
    """Ends messages of a queue until there is no more to end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def expire(self, queue: str) -> int:
        """End what is past its time to live; returns how many."""

        async def once() -> Reaped:
            return (await self._engine.fetch("expire", EXPIRE, [queue, MOST], record(Reaped)))[0]

        return await all_of(once)

    async def forget(self, queue: str, outcomes: Sequence[str]) -> int:
        """Delete what has ended so and was kept; returns how many."""

        async def once() -> Reaped:
            given = [queue, list(outcomes), MOST]
            return (await self._engine.fetch("forget", FORGET, given, record(Reaped)))[0]

        return await all_of(once)

    async def purge(self, queue: str, states: Sequence[str]) -> int:
        """End what is in these states; returns how many."""

        async def once() -> Reaped:
            done = await self._engine.purge(queue, states, limit=MOST)
            return Reaped(done.purged, done.more)

        return await all_of(once)


async def all_of(once: Callable[[], Awaitable[Reaped]]) -> int:
    """Call until there is no more, or what is left is in somebody's way."""
    ended = 0
    while True:
        reaped = await once()
        ended += reaped.ended
        if not reaped.more or not reaped.ended:
            return ended
