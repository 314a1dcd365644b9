"""Jobs of the server: what runs from time to time, once for all servers of the database.

When a job is due lies in the database, and is compared with the clock of the database. Who moves the row on
from a tick has the tick, and runs the job afterwards: one that fails, or whose server dies, goes on at the
next tick. So a job does what is to be done by then, and not what belongs to its tick.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import psycopg

from holdfast.client import HoldfastError
from holdfast.client._rows import record, scalar

from .crons import checked, next_tick, paused
from .engine import Engine
from .trouble import said

if TYPE_CHECKING:
    from .service import Service

LOOK_SECONDS = 5.0  # also where no notification comes
SHORTEST_PAUSE = 0.05  # seconds
LAST_SECONDS = 2.0  # for jobs to be broken off, when the server ends
SCHEDULES = b"select name, cron, next_at, last_at from holdfast.schedules()"
SET = b"select holdfast.set_schedule(%s, %s, %s)"
DROP = b"select holdfast.drop_schedule(%s)"
TAKE = b"select holdfast.take_tick(%s, %s, %s, %s)"

logger = logging.getLogger("holdfast.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something that a server does from time to time, while others may be doing it too."""

    name: str
    run: Callable[[Service], Awaitable[object]]
    every: float | None = None  # seconds; None: by the schedule that it is given, and never without


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job runs."""

    name: str
    cron: str
    next_at: datetime
    last_at: datetime | None


class Schedules:
    """What is stored of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of(self, name: str) -> Schedule | None:
        """The schedule of a job; None: it runs never."""
        found = await self._engine.fetch("schedules", SCHEDULES, [], record(Schedule))
        return next((schedule for schedule in found if schedule.name == name), None)

    async def set(self, name: str, cron: str) -> Schedule | None:
        """Let a job run by a cron expression, at whichever server; without one, never."""
        if cron.strip():
            await self.put(name, checked(cron))
        else:
            await self._engine.fetch("drop_schedule", DROP, [name], scalar(bool))
        return await self.of(name)

    async def put(self, name: str, cron: str) -> None:
        """Store a schedule; one that is there already keeps its next tick."""
        tick = next_tick(cron, await self._engine.now())
        await self._engine.fetch("set_schedule", SET, [name, cron, tick], scalar(bool))

    async def take(self, schedule: Schedule, now: datetime) -> bool:
        """Whether the tick that is due is ours."""
        arguments = [schedule.name, schedule.cron, schedule.next_at, next_tick(schedule.cron, now)]
        return (await self._engine.fetch("take_tick", TAKE, arguments, scalar(bool)))[0]


class Ticks:
    """Runs jobs when they are due, each after the other ticks of its own."""

    def __init__(self, service: Service, jobs: Sequence[Job]) -> None:
        self.schedules = Schedules(service.engine)
        self.jobs = {job.name: job for job in jobs}
        self._service = service
        self._news: dict[str, asyncio.Event] = {name: asyncio.Event() for name in self.jobs}
        self._begun: set[str] = set()
        self._failing: set[tuple[str, str]] = set()

    def heard(self, name: str) -> None:
        """The schedule of a job has changed; "" means: perhaps of all."""
        for job, news in self._news.items():
            if name in ("", job):
                news.set()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Run jobs as long as the block lasts."""
        tasks = {
            asyncio.create_task(self._keep(job), name=f"holdfast-job-{job.name}")
            for job in self.jobs.values()
        }
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                # Not for longer: a call that hears nothing from the database is cut in the end.
                await asyncio.wait(tasks, timeout=LAST_SECONDS)

    async def _keep(self, job: Job) -> None:
        while True:
            self._news[job.name].clear()
            pause = await self.run_once(job)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news[job.name].wait()

    async def run_once(self, job: Job) -> float:
        """Run a job if it is due, and the tick is ours; returns how many seconds later to look again."""
        try:
            schedule = await self._schedule(job)
            now = await self._service.engine.now()
            if schedule is not None and schedule.last_at is not None and schedule.last_at > now:
                # The clock has been set back; the next tick was counted from what it said before.
                await self.schedules.put(schedule.name, schedule.cron)
                schedule = await self._schedule(job)
            due_in = LOOK_SECONDS if schedule is None else (schedule.next_at - now).total_seconds()
            ours = schedule is not None and due_in <= 0 and await self.schedules.take(schedule, now)
        except (HoldfastError, psycopg.Error) as error:
            self._tell(job, "is not run for now", error)
            return LOOK_SECONDS
        self._tell(job, "is not run for now", None)
        if ours:
            await self._do(job)
        return min(max(due_in, SHORTEST_PAUSE), LOOK_SECONDS)

    async def _do(self, job: Job) -> None:
        try:
            await job.run(self._service)
        # A defect of a job is no reason for it never to run again.
        except Exception as error:
            self._tell(job, "failed, and goes on at its next tick", error)
        else:
            self._tell(job, "failed, and goes on at its next tick", None)

    async def _schedule(self, job: Job) -> Schedule | None:
        """What is stored; a job with a fixed pause sees to it, and puts up with what another version says."""
        schedule = await self.schedules.of(job.name)
        if job.every is not None and (schedule is None or job.name not in self._begun):
            await self.schedules.put(job.name, paused(job.every))
            schedule = await self.schedules.of(job.name)
        self._begun.add(job.name)
        return schedule

    def _tell(self, job: Job, what: str, error: Exception | None) -> None:
        told = (job.name, what) in self._failing
        if error is not None and not told:
            defect = None if isinstance(error, HoldfastError | psycopg.Error) else error
            logger.warning("the job %s %s: %s", job.name, what, said(error), exc_info=defect)
            self._failing.add((job.name, what))
        elif error is None and told:
            logger.warning("the job %s works again", job.name)
            self._failing.discard((job.name, what))
