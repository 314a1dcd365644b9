"""One server process: everything that its requests share, opened and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from operator import attrgetter
from typing import Any

from holdfast.client import Delivery, UnavailableError

from .auth import Door
from .bulletin import Bulletin
from .claims import Desks
from .configs import Configs
from .engine import Engine
from .limits import Limits
from .sends import Sends
from .settings import Settings
from .settlements import Settlements
from .streams import Streams
from .upkeep import Upkeep


class Service:
    """What a server does, without HTTP."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = Engine(settings)
        self.limits = Limits(self.engine)
        self.door = Door(self.engine, settings, self.limits)
        self.configs = Configs(self.engine)
        self.sends = Sends(self.engine)
        self.streams = Streams(self)
        self.settlements = Settlements(self.engine, self.streams.settled)
        self.desks = Desks(self.engine, self.configs.window, self.give_back, notified=settings.listen)
        self.bulletin = Bulletin(settings.listen_url or settings.database_url) if settings.listen else None
        self.ending = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Service]:
        """Open what is needed, and close it: streams first, so that what they hold is free at once."""
        await self.engine.open()
        if self.bulletin is not None:
            self.bulletin.subscribe("holdfast", self.desks.wake)
            self.bulletin.subscribe("holdfast_keys", self.door.forget)
            self.bulletin.subscribe("holdfast_config", self.configs.forget)
            self.bulletin.start()
        try:
            async with kept_in_order(self.engine, self.settings.upkeep), self.door.uses.written():
                yield self
        finally:
            await self.end()
            if self.bulletin is not None:
                await self.bulletin.close()
            await self.engine.close()

    async def end(self) -> None:
        """Take no more work, and finish what is on its way."""
        self.ending.set()
        await self.desks.end()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def refuse_if_ending(self) -> None:
        """A server that is going down starts nothing new."""
        if self.ending.is_set():
            raise UnavailableError("QH930", "the server is shutting down", None, "Ask again, or another.")

    async def limit(self, what: str, queue: str) -> None:
        """Count a request against the queue's own limit, if it has one."""
        rate = (await self.configs.of(queue)).rates.get(what)
        if rate is not None:
            await self.limits.take(f"{what}:{queue}", rate)

    def begin(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Do something beside the request, that a shutdown waits for."""
        self._tasks.add(task := asyncio.create_task(work, name=name))
        task.add_done_callback(self._tasks.discard)

    def give_back(self, queue: str, deliveries: list[Delivery]) -> None:
        """Release what was claimed for somebody who has gone."""
        if deliveries:
            self.begin(self._release(queue, deliveries), "holdfast-release")

    async def _release(self, queue: str, deliveries: list[Delivery]) -> None:
        by_token = attrgetter("token")
        for token, group in groupby(sorted(deliveries, key=by_token), key=by_token):
            await self.settlements.settle("release", queue, token, [delivery.id for delivery in group])


@asynccontextmanager
async def kept_in_order(engine: Engine, every: float) -> AsyncIterator[None]:
    """Upkeep as long as the block lasts; none if it is to be done every 0 seconds."""
    upkeep = asyncio.create_task(Upkeep(engine, every).run(), name="holdfast-upkeep") if every else None
    try:
        yield
    finally:
        if upkeep is not None:
            upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await upkeep
