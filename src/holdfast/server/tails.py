"""Reading on: what comes behind a place in a log or queue, and waiting until something does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic

from holdfast.client import Record

from .claims import BLIND_POLL_SECONDS, PATIENCE_SECONDS, POLL_SECONDS
from .engine import Engine
from .numbers import Extent, Numbers


@dataclass(frozen=True, slots=True)
class Page:
    """What was found behind a place, and where to go on."""

    rows: list[Record]
    place: int  # the last number that was looked at
    extent: Extent
    head: int  # the last number that there is
    is_full: bool  # there are as many rows as were wanted
    at_end: bool  # nothing more is to be had now


class Tails:
    """Reads on for everybody who follows a queue or log."""

    def __init__(self, engine: Engine, numbers: Numbers, *, notified: bool) -> None:
        self._engine = engine
        self._numbers = numbers
        self._poll = POLL_SECONDS if notified else BLIND_POLL_SECONDS
        self._notified = notified
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._asleep_until: dict[str, float] = {}

    def wake(self, queue: str) -> None:
        """Something was sent to a queue; "" means: perhaps to any."""
        for name in [queue] if queue else list(self._waiting):
            for news in self._waiting.get(name, ()):
                news.set()

    async def read(self, queue: str, after: int, limit: int) -> Page:
        """What is behind a place now."""
        rows = await self._engine.read(queue, after, limit=limit)
        place = rows[-1].seq if rows else after
        if len(rows) >= limit:
            extent = await self._numbers.extent(queue)
        else:
            extent = await self._numbers.extent(queue, place)
            place = place if extent.place is None else extent.place
        is_full = len(rows) >= limit
        at_end = not is_full and place >= extent.last_seq
        return Page(rows, place, extent, max(place, extent.last_seq), is_full, at_end)

    @contextmanager
    def following(self, queues: Sequence[str]) -> Iterator[asyncio.Event]:
        """What is set whenever something may have come to one of these queues."""
        news = asyncio.Event()
        for queue in queues:
            self._waiting.setdefault(queue, set()).add(news)
        try:
            yield news
        finally:
            for queue in queues:
                self._waiting[queue].discard(news)
                if not self._waiting[queue]:
                    del self._waiting[queue]
                    self._asleep_until.pop(queue, None)

    async def sleep(self, queues: Sequence[str], news: asyncio.Event, seconds: float) -> None:
        """Sleep until there is news, or it is time to look again; not at all if it just began to listen."""
        if await self._listen(queues) or news.is_set():
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), min(self._poll * random.uniform(0.5, 1.0), max(seconds, 0)))

    async def _listen(self, queues: Sequence[str]) -> bool:
        """Ask to be notified; says whether that is new, so that a last look is due."""
        now = monotonic()
        if not self._notified:
            return False
        quiet = [queue for queue in queues if self._asleep_until.get(queue, 0.0) <= now]
        for queue in quiet:
            with suppress(Exception):
                await self._engine.listen(queue, PATIENCE_SECONDS)
            self._asleep_until[queue] = now + PATIENCE_SECONDS / 2
        return bool(quiet)
