"""Claiming: everybody who waits for messages of a queue stands at one desk, which claims for all of them.

One statement, claim_cohort, takes what there is and divides it, so that a thousand sleepers cost one look.
A desk that nobody waits at is closed. With a claim_window the desk lets so much time pass from the first
arrival on, for others to join in; without, it claims at once, and whoever comes meanwhile is next.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from time import monotonic, time_ns
from typing import Any

from opentelemetry.trace import Span

from holdfast.client import Delivery
from holdfast.client._rows import maker

from .engine import Engine
from .meters import Meters
from .traces import Traces, current_span
from .trouble import may_be_of_one

MOST_CLAIMERS = 1_000  # in one statement
MOST_MESSAGES = 10_000
POLL_SECONDS = 0.5
BLIND_POLL_SECONDS = 0.1  # where no notification can come
PATIENCE_SECONDS = 30.0  # how long the engine is asked to notify
CLAIM = (
    b"select * from holdfast.claim_cohort(queue => %s, maxes => %s::int[], leases => %s::interval[], "
    b"consumers => %s::text[], alone => true)"
)

Window = Callable[[str], Awaitable[float]]
Release = Callable[[str, list[Delivery]], None]


@dataclass(slots=True, eq=False)
class Claimer:
    """Somebody at the desk."""

    max: int
    lease: timedelta | None
    consumer: str | None
    until: float  # by the monotonic clock
    answer: asyncio.Future[list[Delivery]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    span: Span | None = field(default_factory=current_span)


class Desks:
    """The desks of all queues."""

    def __init__(
        self,
        engine: Engine,
        meters: Meters,
        traces: Traces,
        window: Window,
        release: Release,
        *,
        notified: bool,
    ) -> None:
        """window: a queue's claim_window in seconds; release: gives back what nobody waits for any more;
        notified: whether notifications come."""
        self.engine = engine
        self.meters = meters
        self.traces = traces
        self.measure = meters.batches("claim")
        self.window = window
        self.release = release
        self.poll = POLL_SECONDS if notified else BLIND_POLL_SECONDS
        self.notified = notified
        self.closed = False
        self.turns = 0  # how often those who wait were turned out
        self._desks: dict[str, Desk] = {}

    async def claim(
        self,
        queue: str,
        max: int,
        *,
        lease: timedelta | None = None,
        consumer: str | None = None,
        wait: float = 0.0,
    ) -> list[Delivery]:
        """Take up to `max` messages, as soon as there is one, or none when the wait is over.

        If the caller is cancelled, what it was about to get is given back.
        """
        claimer = Claimer(max, lease, consumer, monotonic() + wait)
        desk = self._desks.get(queue)
        if desk is None:
            desk = self._desks[queue] = Desk(self, queue)
        desk.join(claimer)
        try:
            return await claimer.answer
        except asyncio.CancelledError:
            desk.leave(claimer)
            raise

    def wake(self, queue: str) -> None:
        """Something was sent to a queue; "" means: perhaps to any."""
        for desk in [self._desks.get(queue)] if queue else list(self._desks.values()):
            if desk is not None:
                desk.wake()

    def turn_out(self) -> None:
        """Answer all who wait with nothing: whether they may go on is to be asked anew. Who does not wait
        stays, since nobody would ask for him again, and is asked afterwards."""
        self.turns += 1
        for desk in list(self._desks.values()):
            desk.dismiss(monotonic())

    @property
    def waiting(self) -> int:
        """How many claims wait."""
        return sum(desk.waiting for desk in self._desks.values())

    def close(self, desk: Desk) -> None:
        """Nobody is at this desk."""
        if self._desks.get(desk.queue) is desk:
            del self._desks[desk.queue]

    def end(self) -> None:
        """Send everybody away with nothing; from now on nobody waits."""
        self.closed = True
        for desk in list(self._desks.values()):
            desk.dismiss()


class Desk:
    """Claims for all who wait for one queue."""

    def __init__(self, desks: Desks, queue: str) -> None:
        self.queue = queue
        self._desks = desks
        self._waiting: list[Claimer] = []
        self._news = asyncio.Event()
        self._asleep_until = 0.0
        self._task = asyncio.create_task(self._run(), name=f"holdfast-desk-{queue}")

    @property
    def waiting(self) -> int:
        """How many wait here."""
        return len(self._waiting)

    def join(self, claimer: Claimer) -> None:
        """Stand in line."""
        self._waiting.append(claimer)
        self._news.set()

    def leave(self, claimer: Claimer) -> None:
        """Step out of the line; the answer that is on its way is released when it comes."""
        if claimer in self._waiting:
            self._waiting.remove(claimer)
            self._news.set()
        elif claimer.answer.done() and not claimer.answer.cancelled() and not claimer.answer.exception():
            self._give_back(claimer.answer.result())

    def wake(self) -> None:
        """Look now."""
        self._news.set()

    def dismiss(self, later_than: float = -inf) -> None:
        """Answer everybody with nothing whose time ends after that."""
        stay = [claimer for claimer in self._waiting if claimer.until <= later_than]
        for claimer in self._waiting:
            if claimer.until > later_than and not claimer.answer.done():
                claimer.answer.set_result([])
        self._waiting[:] = stay
        self._news.set()

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._news.clear()
                await self._round()
                if self._waiting:
                    await self._sleep()
        finally:
            self._desks.close(self)
            self.dismiss()

    async def _gather(self) -> None:
        """Let others join in, for as long as the queue's configuration says."""
        window = await self._desks.window(self.queue)
        if window > 0:
            await asyncio.sleep(window)

    async def _round(self) -> None:
        """One claim for all who wait."""
        try:
            await self._gather()
        except Exception as error:
            await self._refuse(self._cohort(), error)
            return
        cohort = self._cohort()
        if not cohort:
            return
        turns = self._desks.turns
        try:
            shares = await self._claim(cohort)
        except Exception as error:
            await self._refuse(cohort, error)
            return
        self._hand_out(cohort, shares, turned_out=turns != self._desks.turns)

    def _cohort(self) -> list[Claimer]:
        """Who takes part: as many as fit into one statement, the first first."""
        cohort: list[Claimer] = []
        total = 0
        while self._waiting and len(cohort) < MOST_CLAIMERS and total < MOST_MESSAGES:
            claimer = self._waiting.pop(0)
            cohort.append(claimer)
            total += claimer.max
        return cohort

    async def _claim(self, cohort: Sequence[Claimer]) -> list[list[Delivery]]:
        parameters: list[Any] = [
            self.queue,
            [claimer.max for claimer in cohort],
            [claimer.lease for claimer in cohort],
            [claimer.consumer for claimer in cohort],
        ]
        self._desks.measure(len(cohort))
        began = time_ns()
        rows = await self._desks.engine.fetch("claim", CLAIM, parameters, dealt)
        if rows:  # looks that find nothing are many, and nobody's concern
            spans = [claimer.span for claimer in cohort if claimer.span is not None]
            self._desks.traces.call("claim_cohort", self.queue, began, spans, None)
        self._desks.meters.messages("claimed", self.queue, len(rows))
        shares: list[list[Delivery]] = [[] for _ in cohort]
        for place, delivery in rows:
            shares[place - 1].append(delivery)
        return shares

    async def _refuse(self, cohort: list[Claimer], error: Exception) -> None:
        """Somebody's claim is refused: each is tried alone, so that the others get theirs."""
        if len(cohort) == 1 or not may_be_of_one(error):
            for claimer in cohort:
                if not claimer.answer.done():
                    claimer.answer.set_exception(error)
            return
        for claimer in cohort:
            try:
                shares = await self._claim([claimer])
            except Exception as own:
                if not claimer.answer.done():
                    claimer.answer.set_exception(own)
            else:
                self._hand_out([claimer], shares)

    def _hand_out(
        self, cohort: Sequence[Claimer], shares: list[list[Delivery]], *, turned_out: bool = False
    ) -> None:
        now = monotonic()
        back: list[Claimer] = []
        for claimer, share in zip(cohort, shares, strict=True):
            if claimer.answer.done():
                self._give_back(share)
            elif share or turned_out or claimer.until <= now or self._desks.closed:
                claimer.answer.set_result(share)
            else:
                back.append(claimer)
        self._waiting[:0] = back

    def _give_back(self, share: list[Delivery]) -> None:
        """What nobody waits for any more is there for others at once."""
        if share:
            self._desks.release(self.queue, share)

    async def _sleep(self) -> None:
        """Ask to be notified, look once more, and sleep until there is news or somebody's time is up."""
        now = monotonic()
        if self._desks.notified and now >= self._asleep_until:
            with suppress(Exception):
                await self._desks.engine.listen(self.queue, PATIENCE_SECONDS)
            self._asleep_until = now + PATIENCE_SECONDS / 2
            return
        if self._news.is_set():
            return
        first = min(claimer.until for claimer in self._waiting)
        pause = min(self._desks.poll * random.uniform(0.5, 1.0), max(first - now, 0.0))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), pause)


def dealt(cursor: Any) -> Callable[[Sequence[Any]], tuple[int, Delivery]]:
    """A row factory: whose it is, and the delivery."""
    columns = tuple(column.name for column in cursor.description or ())
    make = maker(Delivery, columns[1:])
    return lambda row: (row[0], make(row[1:]))
