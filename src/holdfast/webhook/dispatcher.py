"""The dispatcher: a courier for each endpoint, as long as a server runs, and as the database says."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
import psycopg

from holdfast.client import HoldfastError
from holdfast.client._rows import record
from holdfast.server.settings import Dispatch
from holdfast.server.trouble import said

from .breaker import Breakers
from .connect import Connecting, GuardedBackend, Lookup
from .courier import Courier
from .deliver import Line
from .guard import ForbiddenAddress, Guard
from .meters import DeliveryMeters
from .target import Target, TargetRow, as_target

if TYPE_CHECKING:
    from holdfast.server.service import Service

READ_SECONDS = 30.0  # also where no notification comes: secrets may have run out
BLIND_READ_SECONDS = 5.0
TROUBLE_SECONDS = 1.0
AT_ONCE = 4  # couriers whose leases are extended side by side
ENDPOINTS = b"select * from holdfast.dispatch_endpoints(%s)"

logger = logging.getLogger("holdfast.webhook")


class Dispatcher:
    """Sees to it that each endpoint that is enabled has a courier, and no other has one."""

    def __init__(self, service: Service, settings: Dispatch, meters: DeliveryMeters) -> None:
        self.service = service
        self.settings = settings
        self.meters = meters
        self.breakers = Breakers(service.engine)
        self.notified = service.settings.listen
        self.slots = asyncio.Semaphore(settings.concurrency)
        self.consumer = f"dispatch {socket.gethostname()} {os.getpid()}"[:200]
        self.lookup: Lookup | None = None  # says what hosts mean, in place of the system
        self.connecting: Connecting | None = None  # is told of each connection before it is made
        self.couriers: dict[str, Courier] = {}
        self._rows: dict[str, TargetRow] = {}
        self._leaving: set[Courier] = set()
        self._changed: set[str] = set()  # "": perhaps all
        self._news = asyncio.Event()
        self._failing = False

    def heard(self, name: str) -> None:
        """An endpoint has changed; "" means: perhaps all."""
        self._changed.add(name)
        self._news.set()

    def wake(self, queue: str) -> None:
        """Something was sent to a queue; "" means: perhaps to any."""
        for courier in self.couriers.values():
            if queue in ("", courier.target.queue):
                courier.wake()

    def look(self) -> None:
        """Bring the metrics up to date."""
        self.meters.look((each.active, each.state) for each in [*self.couriers.values(), *self._leaving])

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Deliver as long as the block lasts, or until the server is about to end."""
        jobs = [
            asyncio.create_task(self._run(), name="holdfast-dispatcher"),
            asyncio.create_task(self._keep_leases(), name="holdfast-dispatch-leases"),
        ]
        leaving = asyncio.create_task(self._leave(jobs[0]), name="holdfast-dispatch-end")
        try:
            yield
        finally:
            self.service.ending.set()
            try:
                await leaving
            finally:
                for job in jobs:
                    job.cancel()
                await asyncio.wait(jobs)

    async def _leave(self, reading: asyncio.Task[None]) -> None:
        """Once the server ends: begin nothing, finish what is on its way, break off what takes too long."""
        await self.service.ending.wait()
        until = monotonic() + self.service.settings.grace
        reading.cancel()
        await asyncio.wait({reading})
        for name in [*self.couriers]:
            self._dismiss(name)
        tasks = {courier.task for courier in self._leaving}
        abandoned = asyncio.create_task(self.service.abandoned.wait())
        while pending := {task for task in tasks if not task.done()}:
            left = until - monotonic()
            if left <= 0 or abandoned.done():
                break
            await asyncio.wait({*pending, abandoned}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        abandoned.cancel()
        for courier in [*self._leaving]:
            courier.task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Endpoints

    async def _run(self) -> None:
        while True:
            self._news.clear()
            pause = await self._read()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    async def _read(self) -> float:
        """Read what has changed, and see to it; returns when to read all again."""
        changed, self._changed = self._changed, set()
        # Whoever was told of nothing reads everything.
        names = sorted(changed) if changed and "" not in changed else None
        if names is None and self.settings.endpoints is not None:
            names = sorted(self.settings.endpoints)
        try:
            rows = await self.service.engine.fetch(
                "dispatch_endpoints", ENDPOINTS, [names], record(TargetRow)
            )
        except (HoldfastError, psycopg.Error) as error:
            self._tell(error)
            self._changed |= changed or {""}
            return TROUBLE_SECONDS
        self._tell(None)
        await self._see_to(rows, names)
        return READ_SECONDS if self.notified else BLIND_READ_SECONDS

    async def _see_to(self, rows: Sequence[TargetRow], names: Sequence[str] | None) -> None:
        """Have couriers as these rows say; names: which endpoints were asked for, None: all."""
        found = {row.endpoint: row for row in rows if self._is_ours(row.endpoint)}
        for name in [*self.couriers] if names is None else names:
            if name not in found:
                self._dismiss(name)
        for row in found.values():
            await self._see_to_one(row)

    def _is_ours(self, endpoint: str) -> bool:
        return self.settings.endpoints is None or endpoint in self.settings.endpoints

    async def _see_to_one(self, row: TargetRow) -> None:
        name = row.endpoint
        if self._rows.get(name) == row:
            if (courier := self.couriers.get(name)) is not None:
                courier.wake()  # its breaker has moved
            return
        self._rows[name] = row
        if not row.enabled:
            self._dismiss(name, forget=False)
            return
        try:
            target = as_target(row, self.service.vault.open)
            line = self._line_to(target)
        except (ValueError, ForbiddenAddress, msgspec.ValidationError, HoldfastError) as error:
            logger.error("%s: nothing is delivered: %s", name, said(error))
            self._dismiss(name, forget=False)
            return
        await self._employ(target, line)

    def _line_to(self, target: Target) -> Line:
        guard = Guard([*self.settings.allow, *target.config.allow])
        guard.check_place(target.place)
        return Line(target, GuardedBackend(guard, lookup=self.lookup, connecting=self.connecting))

    async def _employ(self, target: Target, line: Line) -> None:
        courier = self.couriers.get(target.endpoint)
        if courier is not None and courier.target.queue == target.queue:
            await courier.change(target, line)
            return
        if courier is not None:
            self._dismiss(target.endpoint, forget=False)
        self.couriers[target.endpoint] = courier = Courier(self, target, line)
        courier.task.add_done_callback(lambda task: self._ended(target.endpoint, task))

    def _dismiss(self, name: str, *, forget: bool = True) -> None:
        """Let a courier finish what is on its way, and begin nothing more."""
        if forget:
            self._rows.pop(name, None)
        if (courier := self.couriers.pop(name, None)) is not None:
            self._leaving.add(courier)
            courier.task.add_done_callback(lambda _: self._leaving.discard(courier))
            courier.stop()

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """A courier that ends by itself has a defect; another is made when endpoints are read again."""
        courier = self.couriers.get(name)
        if courier is not None and courier.task is task:
            del self.couriers[name]
            self._rows.pop(name, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: deliveries broke off, and begin again soon", name, exc_info=error)

    async def _keep_leases(self) -> None:
        """Extend what is held, long before it runs out."""
        while True:
            await asyncio.sleep(self.settings.lease / 3)
            couriers = [*self.couriers.values(), *self._leaving]
            for first in range(0, len(couriers), AT_ONCE):
                await asyncio.gather(*map(self._keep_leases_of, couriers[first : first + AT_ONCE]))

    async def _keep_leases_of(self, courier: Courier) -> None:
        try:
            await courier.keep_leases()
        # A defect here must not cost the leases of all others.
        except Exception as error:
            logger.error("%s: leases were not kept", courier.target.endpoint, exc_info=error)

    def _tell(self, error: Exception | None) -> None:
        if error is not None and not self._failing:
            logger.warning("endpoints cannot be read: %s", said(error))
        elif error is None and self._failing:
            logger.warning("endpoints can be read again")
        self._failing = error is not None
