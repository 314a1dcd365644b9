"""One server process: everything that its requests share, opened and closed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import monotonic
from types import MappingProxyType
from typing import Any

import psycopg
from starlette.requests import Request

from holdfast.agent.agent import Agent
from holdfast.client import Delivery, HoldfastError, QueueNotFoundError, UnavailableError
from holdfast.vault import Vault
from holdfast.webhook.dispatcher import Dispatcher
from holdfast.webhook.meters import DeliveryMeters

from .annotations import Annotations
from .auth import Door
from .bulletin import Bulletin
from .claims import Desks
from .coalesce import Coalescer
from .configs import FORM, Configs
from .contents import Contents
from .counts import Counts
from .definitions import Definitions
from .endpoint import CONSUME
from .engine import Engine
from .entries import Entries
from .figures import Figures
from .holdings import Holdings
from .hook_calls import HookCalls
from .hooks import Hooks
from .limits import Limits
from .meters import Meters, shared_folder
from .numbers import Numbers
from .places import Places
from .reaping import Reaping
from .removals import Removals
from .second_tier import SecondTier
from .sends import Sends
from .services import Services
from .settings import Settings
from .settlements import Settlements
from .sse import while_there
from .streams import Streams
from .tails import Tails
from .ticks import Job, Ticks
from .traces import Traces
from .trouble import said, unavailable
from .upkeep import Upkeep

GAUGE_SECONDS = 1.0
LAST_SECONDS = 2.0  # for each call of the database while it ends
END_SECONDS = 5.0  # for releases, when everything else has ended
TICK_SECONDS = 0.02
MOST_ASKERS = 10_000  # whether the database answers, in one call
AT_ONCE: Mapping[str, tuple[timedelta | str | None, ...]] = MappingProxyType(
    {"release": (), "nack": (timedelta(0), None)}
)
RELEASE_TRIES, RELEASE_PAUSE_SECONDS = 60, 1.0

logger = logging.getLogger("holdfast.server")


class Service:
    """What a server does, without HTTP."""

    def __init__(self, settings: Settings, jobs: Sequence[Job] = ()) -> None:
        self.settings = settings
        self.vault = Vault.found(settings.key_folder)
        self.meters = Meters()
        self.traces = Traces()
        self.engine = Engine(settings)
        self.figures = Figures(self.engine, settings.metrics_queues)
        self.meters.registry.register(self.figures)
        self.limits = Limits(self.engine)
        self.door = Door(self.engine, settings, self.limits)
        self.tier = SecondTier(settings.redis_url, self.engine, FORM) if settings.redis_url else None
        self.configs = Configs(self.engine, self.tier)
        self.sends = Sends(self.engine, self.configs, self.meters, self.traces)
        self.streams = Streams(self)
        self.settlements = Settlements(self.engine, self.meters, self.traces, self.streams.settled)
        self.desks = Desks(
            self.engine,
            self.meters,
            self.traces,
            self.configs.window,
            self.give_back,
            notified=settings.listen,
        )
        self.holdings = Holdings(self.engine, self.settlements)
        self.counts = Counts(self.engine)
        self.numbers = Numbers(self.engine)
        self.hooks = Hooks(self.engine, self.numbers, self.vault)
        self.hook_calls = HookCalls(self.engine)
        self.places = Places(self.engine)
        self.contents = Contents(self.engine)
        self.reaping = Reaping(self.engine)
        self.entries = Entries(self.engine)
        self.annotations = Annotations(self.engine)
        self.definitions = Definitions(self.engine)
        self.removals = Removals(self.engine, self.numbers)
        self.tails = Tails(self.engine, self.numbers, notified=settings.listen)
        self.engine.vault = self.vault
        self.services = Services(self.engine)
        self.agent = Agent(self.engine, settings, self.vault)
        self.ticks = Ticks(self, jobs)
        self.bulletin = (
            Bulletin(settings.listen_url or settings.database_url, self.engine.connections.suspect)
            if settings.listen
            else None
        )
        # Anybody may ask, without a key: however many do, it is one call at a time.
        self._asking: Coalescer[None, None, None] = Coalescer(
            self._ask, weigh=lambda _: 1, most=MOST_ASKERS, apart=False
        )
        self.leaving = False  # it is about to end: whoever can is to ask another server
        self.ending = asyncio.Event()
        self.abandoned = asyncio.Event()  # nothing is waited for any more
        self._tasks: set[asyncio.Task[Any]] = set()
        self.dispatcher = (
            Dispatcher(self, settings.dispatch, DeliveryMeters(self.meters.own))
            if settings.dispatch is not None
            else None
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Service]:
        """Open what is needed, and close it: streams first, so that what they hold is free at once."""
        connections = self.engine.connections
        connections.on_return(lambda: self.desks.wake(""))
        if self.dispatcher is not None:
            connections.on_return(partial(self.dispatcher.heard, ""))
        await self.engine.open()
        with suppress(HoldfastError, psycopg.Error):
            await self.door.is_open()  # so that it is known, should the database go away before anybody asks
        if self.tier is not None:
            self.tier.on_change(self.configs.forget)
        if self.bulletin is not None:
            self.bulletin.subscribe("holdfast", self.desks.wake)
            self.bulletin.subscribe("holdfast", self.tails.wake)
            self.bulletin.subscribe("holdfast_keys", lambda _: self.ask_again())
            self.bulletin.subscribe("holdfast_config", self.configs.changed)
            self.bulletin.subscribe("holdfast_schedule", self.ticks.heard)
            self.bulletin.subscribe("holdfast_service", self.agent.wake)
            if self.dispatcher is not None:
                self.bulletin.subscribe("holdfast", self.dispatcher.wake)
                self.bulletin.subscribe("holdfast_endpoint", self.dispatcher.heard)
            self.bulletin.subscribe("holdfast_hook", self.hooks.forget)
            self.bulletin.start()
        try:
            upkeep = kept_in_order(self.engine, self.settings.upkeep)
            tier = self.tier.kept() if self.tier is not None else nullcontext()
            agent = self.agent.kept() if self.settings.agent else nullcontext()
            written, called = self.door.uses.written(), self.hook_calls.written()
            async with self._measured(), tier, upkeep, self.ticks.kept(), agent, written, called:
                # Before anything else ends: what is being delivered is still to be settled.
                async with self.dispatcher.kept() if self.dispatcher is not None else nullcontext():
                    yield self
                connections.limit = LAST_SECONDS
        finally:
            await self.end()
            if self.bulletin is not None:
                await self.bulletin.close()
            await self.engine.close()

    @asynccontextmanager
    async def _measured(self) -> AsyncIterator[None]:
        """Where another process may be asked for them: keep the gauges of this one up to date."""
        task = asyncio.create_task(self._measure(), name="holdfast-gauges") if shared_folder() else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()

    async def _measure(self) -> None:
        while True:
            self.meters.look(self)
            await asyncio.sleep(GAUGE_SECONDS)

    def ask_again(self) -> None:
        """Something has changed about keys: whoever was let in, and waits, has to show theirs once more."""
        self.door.forget()
        self.desks.turn_out()
        self.streams.turn_out()

    def dismiss(self) -> None:
        """Take no more work; send away who waits: claims with nothing, streams with their last event."""
        self.leaving = True
        self.ending.set()
        self.desks.end()
        self.tails.wake("")
        self.streams.turn_out()

    async def end(self) -> None:
        """Finish what is on its way, in bounded time: above all, release what streams held."""
        self.dismiss()
        until = monotonic() + END_SECONDS
        while not self.abandoned.is_set() and (self._tasks or self.streams.open) and monotonic() < until:  # noqa: ASYNC110 - two conditions
            await asyncio.sleep(TICK_SECONDS)
        if self._tasks:
            logger.warning("%s releases did not end: those leases have to run out", len(self._tasks))
        self.abandon()

    def abandon(self) -> None:
        """Wait for nothing more."""
        self.abandoned.set()
        for task in self._tasks:
            task.cancel()
        self.engine.connections.cut_all()

    def refuse_if_ending(self) -> None:
        """A server that is going down starts nothing new."""
        if self.ending.is_set():
            raise ending()

    def refuse_if_leaving(self) -> None:
        """One that is about to go down is not ready for more."""
        if self.leaving:
            raise ending()

    async def reach(self) -> None:
        """Refuse if the database does not answer."""
        await self._asking.submit(None, None)

    async def _ask(self, _: None, askers: Sequence[None]) -> Sequence[None]:
        await self.engine.now()
        return askers

    async def limit(self, what: str, queue: str) -> None:
        """Count a request against the queue's own limit, if it has one."""
        rate = (await self.configs.of(queue)).rates.get(what)
        if rate is not None:
            await self.limits.take(f"{what}:{queue}", rate)

    async def claimed(
        self,
        request: Request,
        queue: str,
        max: int,
        *,
        lease: timedelta | None = None,
        consumer: str | None = None,
    ) -> list[Delivery] | None:
        """What a request that does not wait gets; None: its client has gone while claims were gathered."""
        gathers = await self.configs.window(queue) > 0
        claiming = self.desks.claim(queue, max, lease=lease, consumer=consumer)
        if not gathers:
            return await claiming
        found = await while_there(request, claiming, partial(self.give_back, queue))
        if found:
            await self.readmit(request, queue, found)
        return found

    async def readmit(self, request: Request, queue: str, found: list[Delivery]) -> None:
        """Whoever claimed may have lost the right to it meanwhile: then it is given back."""
        try:
            await self.door.readmit(request, CONSUME, queue)
        except BaseException:
            self.give_back(queue, found)
            raise

    def begin(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Do something beside the request, that a shutdown waits for."""
        self._tasks.add(task := asyncio.create_task(work, name=name))
        task.add_done_callback(self._tasks.discard)

    def give_back(self, queue: str, deliveries: list[Delivery], verb: str = "release") -> None:
        """Release what was claimed for somebody who has gone, or nack it: then it counts as delivered."""
        if deliveries:
            self.begin(self._release(verb, queue, deliveries), "holdfast-release")

    async def _release(self, verb: str, queue: str, deliveries: list[Delivery]) -> None:
        by_token = attrgetter("token")
        for token, group in groupby(sorted(deliveries, key=by_token), key=by_token):
            await self._release_surely(verb, queue, token, [delivery.id for delivery in group])

    async def _release_surely(self, verb: str, queue: str, token: int, ids: list[int]) -> None:
        """Release, as often as it takes: a second one finds nothing, and does no harm."""
        for _ in range(RELEASE_TRIES):
            try:
                await self.settlements.settle(verb, queue, token, ids, options=AT_ONCE[verb])
                return
            except QueueNotFoundError:
                return  # nor is anything left to be released
            except (HoldfastError, psycopg.Error) as error:
                if unavailable(error) is None:
                    logger.warning("messages of %s were not released: %s", queue, said(error))
                    return
            await asyncio.sleep(RELEASE_PAUSE_SECONDS)


@asynccontextmanager
async def kept_in_order(engine: Engine, every: float) -> AsyncIterator[None]:
    """Upkeep as long as the block lasts; none if it is to be done every 0 seconds."""
    upkeep = asyncio.create_task(Upkeep(engine, every).run(), name="holdfast-upkeep") if every else None
    try:
        yield
    finally:
        if upkeep is not None:
            upkeep.cancel()
            # Not for longer: a call that hears nothing from the database is cut in the end.
            await asyncio.wait({upkeep}, timeout=LAST_SECONDS)


def ending() -> UnavailableError:
    """The refusal of a server that goes down."""
    return UnavailableError("QH930", "the server is shutting down", None, "Ask again, or another.")
