"""The deliveries of one endpoint: claimed as far as there is room, made side by side, and settled together.

A delivery has its slot until the answer is there, not until it is settled: commits and requests go on at the
same time. Messages wait here for a slot only where receivers are quicker than claims. What cannot be sent
now, since the breaker has opened or the end has come, is released, which costs a message no attempt.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic, time
from typing import TYPE_CHECKING

import psycopg

from holdfast.client import HoldfastError
from holdfast.server.trouble import said, unavailable

from .breaker import CLOSED, DISABLED, Admission, After, Attempt
from .deliver import Answer, Line, unmade
from .holds import Held, Holds
from .pace import Alarm, Pace
from .policy import Outcome, next_delay, outcome_of
from .request import request_for, root_of
from .target import Target

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

POLL_SECONDS = 1.0
BLIND_POLL_SECONDS = 0.2  # where no notification can come, or a rate limit holds messages back
SHORTEST_PAUSE = 0.02
LONGEST_PAUSE = 30.0
PATIENCE_SECONDS = 30.0  # how long the engine is asked to notify
TROUBLE_SECONDS = 1.0  # until a call of the database is tried again
REPORT_TRIES = 60
MOST_UNSETTLED = 2_000  # messages that are held, those too that were delivered and wait for their commit

logger = logging.getLogger("holdfast.webhook")


class Courier:
    """Works off one endpoint's queue until it is told to stop."""

    def __init__(self, dispatcher: Dispatcher, target: Target, line: Line) -> None:
        self.target = target
        self.active = 0  # requests that are on their way
        self.state = CLOSED  # of the breaker, as far as it is known
        self._line = line
        self._dispatcher = dispatcher
        self._holds = Holds()
        self._waiting: deque[Held] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pace = Pace()
        self._alarm = Alarm()
        self._news = asyncio.Event()
        self._dry = False  # the last claim found less than there was room for
        self._notified_until = 0.0
        self._stopping = False
        self._failing = False
        self.task = asyncio.create_task(self._run(), name=f"holdfast-courier-{target.endpoint}")

    def wake(self) -> None:
        """Something has happened: look."""
        self._news.set()

    async def change(self, target: Target, line: Line) -> None:
        """Go on with another configuration; what is on its way ends with the one that it began with."""
        old, self._line, self.target = self._line, line, target
        self.wake()
        await old.close()

    def stop(self) -> None:
        """Begin nothing more; give back what waits."""
        self._stopping = True
        self._give_back_waiting()
        self.wake()

    async def _run(self) -> None:
        try:
            while not self._stopping:
                self._news.clear()
                await self._sleep(await self._round())
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self._stopping = True
            self._waiting.clear()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            # What was broken off has perhaps arrived, and is delivered again; it costs no attempt.
            self._give_back(self._holds.all())
            await self._line.close()

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0 and not self._stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()

    # Claiming

    async def _round(self) -> float:
        """Claim if there is room, and begin what can begin; returns how long to sleep without news."""
        want = self._room()
        if want <= 0:
            return LONGEST_PAUSE
        try:
            pause = await self._claim(want)
        except (HoldfastError, psycopg.Error) as error:
            self._tell(error)
            return TROUBLE_SECONDS
        self._tell(None)
        return pause

    def _room(self) -> int:
        """How many messages to claim; none until it is worth a claim."""
        concurrency = self.target.config.concurrency
        most = concurrency + self._pace.ahead(concurrency)
        under_way = self.active + len(self._waiting)
        room = min(most - under_way, MOST_UNSETTLED - len(self._holds))
        return room if room >= max(most // 2, 1) or not under_way else 0

    async def _claim(self, want: int) -> float:
        target, began = self.target, monotonic()
        admission = await self._dispatcher.breakers.admit(target.endpoint, want)
        self._note(admission.state)
        if not admission.granted:
            self._give_back_waiting()
            return pause_until(admission)
        found = await self._dispatcher.service.desks.claim(
            target.queue,
            admission.granted,
            lease=timedelta(seconds=self._dispatcher.settings.lease),
            consumer=self._dispatcher.consumer,
        )
        self._pace.claimed(monotonic() - began)
        self._waiting += self._holds.take(found, admission.probe)
        if self._stopping:
            self._give_back_waiting()
        self._begin()
        if not found and admission.probe is not None:
            await self._dispatcher.breakers.yield_probe(target.endpoint, admission.probe)
        self._dry = len(found) < admission.granted
        return await self._quiet() if self._dry else 0.0

    async def _quiet(self) -> float:
        """Nothing more is there: ask to be notified, look once more, and only then wait."""
        if self._dispatcher.notified and monotonic() >= self._notified_until:
            await self._dispatcher.service.engine.listen(self.target.queue, PATIENCE_SECONDS)
            self._notified_until = monotonic() + PATIENCE_SECONDS / 2
            return 0.0
        blind = not self._dispatcher.notified or self.target.config.rate_limit is not None
        poll = BLIND_POLL_SECONDS if blind else POLL_SECONDS
        return max(min(poll * random.uniform(0.8, 1.0), self._alarm.left()), SHORTEST_PAUSE)

    async def keep_leases(self) -> None:
        """Extend every lease, in one call; what is lost is not begun any more."""
        lease = timedelta(seconds=self._dispatcher.settings.lease)
        extending = [self._extend(token, ids, lease) for token, ids in self._holds.tokens()]
        for error in await asyncio.gather(*extending, return_exceptions=True):
            if isinstance(error, HoldfastError | psycopg.Error):
                self._tell(error)
            elif isinstance(error, BaseException):
                raise error

    async def _extend(self, token: int, ids: list[int], lease: timedelta) -> None:
        settlements = self._dispatcher.service.settlements
        kept = await settlements.settle("extend", self.target.queue, token, ids, options=(lease,))
        self._holds.lose(token, kept.skipped)

    def _give_back_waiting(self) -> None:
        """Release what has not begun: there it costs no attempt."""
        waiting, self._waiting = [*self._waiting], deque()
        self._give_back(waiting)

    def _give_back(self, helds: list[Held]) -> None:
        for held in helds:
            self._holds.drop(held)
        queue = self.target.queue
        self._dispatcher.service.give_back(queue, [held.delivery for held in helds if not held.lost])

    # Delivering

    def _begin(self) -> None:
        """Fill the slots."""
        while self._waiting and self.active < self.target.config.concurrency:
            held = self._waiting.popleft()
            if held.lost:
                self._holds.drop(held)
                continue
            self.active += 1
            self._tasks.add(task := asyncio.create_task(self._deliver(held)))
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, held: Held) -> None:
        try:
            attempt = await self._attempt(held)
        finally:
            self.active -= 1
            self._begin()
            if not self._dry and self._room():
                self.wake()
        await self._settle(attempt)
        self._holds.drop(held)
        # The next of its line could not be claimed before.
        if self._dry and self.target.config.ordering != "none":
            self.wake()

    async def _attempt(self, held: Held) -> Attempt:
        """Make the request, and say what came of it."""
        target, line = self.target, self._line
        async with self._dispatcher.slots:
            at = time()
            try:
                answer = await line.send(request_for(target, held.delivery, at))
            # A message that nothing can be made of must not stay here for ever: it has so many attempts.
            except Exception as error:
                logger.error("%s: message %s", target.endpoint, held.delivery.id, exc_info=error)
                answer = unmade(error)
        self._pace.delivered(answer.latency)
        outcome = outcome_of(answer.status)
        self._dispatcher.meters.delivered(target.endpoint, outcome, answer.latency)
        return self._told(target, held, at, answer, outcome)

    def _told(self, target: Target, held: Held, at: float, answer: Answer, outcome: Outcome) -> Attempt:
        delivery, now = held.delivery, datetime.now(UTC)
        delay = None
        if outcome is Outcome.RETRY:
            delay = next_delay(
                target.config.retry,
                delivery.deliveries,
                chance=random.random(),
                asked=answer.retry_after,
                now=now,
            )
        if outcome is not Outcome.DONE:
            logger.info(
                "%s: message %s, attempt %s: %s (%s)",
                target.endpoint,
                delivery.id,
                delivery.deliveries,
                answer.error,
                outcome,
            )
        return Attempt(
            message=delivery.id,
            token=delivery.token,
            outcome=outcome,
            latency=round(answer.latency, 6),
            at=datetime.fromtimestamp(at, UTC),
            root=root_of(delivery),
            delivery=delivery.deliveries,
            status=answer.status,
            error=answer.error,
            response=as_text(answer.excerpt),
            probe=held.probe,
            delay=delay,
        )

    async def _settle(self, attempt: Attempt) -> None:
        """Report an attempt, as often as it takes: if it is too late, somebody else has the message."""
        for _ in range(REPORT_TRIES):
            try:
                after = await self._dispatcher.breakers.report(self.target.endpoint, attempt)
            except (HoldfastError, psycopg.Error) as error:
                if unavailable(error) is None:
                    logger.warning("%s: an attempt was not recorded: %s", self.target.endpoint, said(error))
                    return
                self._tell(error)
            else:
                self._react(after, attempt)
                return
            await asyncio.sleep(TROUBLE_SECONDS)

    def _react(self, after: After, attempt: Attempt) -> None:
        """What an attempt has led to concerns those that have not begun."""
        self._note(after.state if after.enabled else DISABLED)
        if attempt.delay is not None:
            self._alarm.set(attempt.delay)
            self.wake()
        if not after.lets_pass:
            self._give_back_waiting()
        if attempt.probe is not None:
            self.wake()

    def _note(self, state: str) -> None:
        if state != self.state:
            logger.warning("%s: the breaker is %s, and was %s", self.target.endpoint, state, self.state)
            self.state = state

    def _tell(self, error: Exception | None) -> None:
        if error is not None and not self._failing:
            logger.warning("%s: no deliveries for now: %s", self.target.endpoint, said(error))
        elif error is None and self._failing:
            logger.warning("%s: deliveries go on", self.target.endpoint)
        self._failing = error is not None


def pause_until(admission: Admission) -> float:
    """How long to wait where nothing may be delivered; a notification comes if that changes sooner."""
    if admission.retry_in is None:
        return LONGEST_PAUSE
    return min(max(admission.retry_in.total_seconds(), SHORTEST_PAUSE), LONGEST_PAUSE)


def as_text(excerpt: bytes) -> str | None:
    """An excerpt as the database can keep it."""
    return excerpt.decode(errors="replace").replace("\0", "�") if excerpt else None
