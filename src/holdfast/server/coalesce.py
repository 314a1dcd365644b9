"""Coalescing: what is asked for while a call is on its way goes into the next call, together.

An idle lane calls at once, so nobody waits for company; under load the calls become larger, not more. One
that fails as a whole is repeated item by item, so that what is wrong with one does not fail its neighbours.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar

from opentelemetry.trace import Span

from .traces import Told, current_span, followed
from .trouble import crowded, is_held_up, may_be_of_one

I = TypeVar("I")  # noqa: E741 - an item
A = TypeVar("A")
K = TypeVar("K", bound=Hashable)

Weigh = Callable[[I], int]
Call = Callable[[K, Sequence[I]], Awaitable[Sequence[A]]]
Measure = Callable[[float], None]
Batch: TypeAlias = list[tuple[I, asyncio.Future[A], Span | None]]

MOST_ASIDE = 2  # calls, and so connections, for items that somebody else keeps waiting
ASIDE_SECONDS = 5.0  # for one of these


class Coalescer(Generic[K, I, A]):
    """Gathers items of one key into calls; at most `width` calls of a key are on their way at once."""

    def __init__(
        self,
        call: Call[K, I, A],
        *,
        weigh: Weigh[I],
        most: int,
        width: int = 1,
        apart: bool = True,
        measure: Measure | None = None,
        told: Told[K] | None = None,
        patient: Call[K, I, A] | None = None,
    ) -> None:
        """apart: whether the items of a call that failed are tried one by one; no use if none can be bad.
        measure: is told how many items each call has; told: of each call that was made for spans.
        patient: does what the call would not wait for any longer, beside the lane, so that others go on."""
        self._measure = measure
        self._told = told
        self._patient = patient
        self._aside: set[asyncio.Task[None]] = set()
        self._room_aside = asyncio.Semaphore(MOST_ASIDE)
        self._apart = apart
        self._call = call
        self._weigh = weigh
        self._most = most
        self._width = width
        self._lanes: dict[K, _Lane[I, A]] = {}

    async def submit(self, key: K, item: I) -> A:
        """The answer to one item."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        lane.waiting.append((item, answer, current_span()))
        if lane.running < self._width:
            lane.running += 1
            lane.tasks.add(task := asyncio.create_task(self._run(key, lane)))
            task.add_done_callback(lane.tasks.discard)
        return await answer

    async def _run(self, key: K, lane: _Lane[I, A]) -> None:
        try:
            while batch := self._next(lane):
                await self._answer(key, batch)
        finally:
            lane.running -= 1
            if not lane.running and not lane.waiting:
                self._lanes.pop(key, None)

    def _next(self, lane: _Lane[I, A]) -> Batch[I, A]:
        """The items of the next call; one whose asker has gone is left out."""
        batch: Batch[I, A] = []
        weight = 0
        while lane.waiting:
            item, answer, span = lane.waiting[0]
            weight += self._weigh(item)
            if batch and weight > self._most:
                break
            lane.waiting.popleft()
            if not answer.done():
                batch.append((item, answer, span))
        return batch

    async def _answer(self, key: K, batch: Batch[I, A]) -> None:
        if self._measure is not None:
            self._measure(len(batch))
        try:
            answers = await self._asked(self._call, key, batch)
        except Exception as error:
            await self._try_apart(key, batch, error)
        except BaseException as error:
            fail(batch, error)
            raise
        else:
            answer_all(batch, answers)

    async def _asked(self, call: Call[K, I, A], key: K, batch: Batch[I, A]) -> Sequence[A]:
        """One call, which whoever is interested is told of if it was made for spans."""
        items = [item for item, _, _ in batch]
        spans = [span for _, _, span in batch if span is not None]
        if self._told is None or not spans:
            return await call(key, items)
        with followed(self._told, key, spans):
            return await call(key, items)

    async def _try_apart(self, key: K, batch: Batch[I, A], error: Exception) -> None:
        """Find out whose fault an error is. Where the outcome is not known (a lost connection) a repetition
        could send twice."""
        held_up = self._patient is not None and is_held_up(error)
        if len(batch) == 1 and held_up:
            self._aside.add(task := asyncio.create_task(self._wait(key, batch)))
            task.add_done_callback(self._aside.discard)
        elif len(batch) == 1 or not self._apart or not (held_up or may_be_of_one(error)):
            fail(batch, error)
        else:
            for one in batch:
                await self._answer(key, [one])

    async def _wait(self, key: K, batch: Batch[I, A]) -> None:
        """Do for one item what takes long, once there is room for that."""
        assert self._patient is not None
        try:
            async with asyncio.timeout(ASIDE_SECONDS):
                await self._room_aside.acquire()
        except TimeoutError:
            fail(batch, crowded())
            return
        try:
            answers = await self._asked(self._patient, key, batch)
        except Exception as error:
            fail(batch, error)
        else:
            answer_all(batch, answers)
        finally:
            self._room_aside.release()


class _Lane(Generic[I, A]):
    """What waits under one key."""

    __slots__ = ("running", "tasks", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[I, asyncio.Future[A], Span | None]] = deque()
        self.running = 0
        self.tasks: set[asyncio.Task[None]] = set()


def answer_all(batch: Batch[I, A], answers: Sequence[A]) -> None:
    """Give everybody in a batch the answer."""
    for (_, future, _), answer in zip(batch, answers, strict=True):
        if not future.done():
            future.set_result(answer)


def fail(batch: Batch[I, A], error: BaseException) -> None:
    """Tell everybody in a batch."""
    for _, future, _ in batch:
        if not future.done():
            future.set_exception(error)
