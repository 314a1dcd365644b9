"""The loop: tasks are taken as they come due, and each is worked on beside the others."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import random
from time import monotonic

import psycopg

from holdfast.client._errors import HoldfastError, SecretError, UnavailableError
from holdfast.server.engine import Engine
from holdfast.server.settings import Settings
from holdfast.server.trouble import is_gone, is_momentary, said
from holdfast.vault import Vault

from .steps import STEPS, Lost
from .target import Target, is_refused, opened
from .tasks import LEASE, Task, Tasks

MOST_TASKS = 64  # at once, in one process; they wait for services nearly all of the time
LOOK_SECONDS, POLL_SECONDS = 5.0, 1.0  # between two looks, with notifications and without
LONGEST_PAUSE = 60.0  # seconds between two attempts
HOLD_SECONDS = LEASE.total_seconds() / 3
LAST_SECONDS = 2.0  # for tasks to be given back, when the server ends
# Of errors that Holdfast raises, those of a moment: a queue is full, somebody is at a lock or at an upgrade.
AGAIN = frozenset({"QH209", "QH303"})
# Somebody looks at these, and can try again. Batches wait: the password may be about to be changed here too.
ASKED_FOR = frozenset({"provision", "deprovision"})

logger = logging.getLogger("holdfast.agent")


class Agent:
    """Does what there is to be done on services, as long as it runs."""

    def __init__(self, engine: Engine, settings: Settings, vault: Vault) -> None:
        self._tasks = Tasks(engine, f"{socket.gethostname()} {os.getpid()}")
        self._settings = settings
        self._vault = vault
        self._look_every = LOOK_SECONDS if settings.listen else POLL_SECONDS
        self._news = asyncio.Event()
        self._works: dict[asyncio.Task[None], Task] = {}
        self._again_at: list[float] = []
        self._failing = False

    def wake(self, _: str) -> None:
        """There may be something to be done."""
        self._news.set()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Work as long as the block lasts; what is not done by then is given back."""
        own = [
            asyncio.create_task(self._run(), name="holdfast-agent"),
            asyncio.create_task(self._hold(), name="holdfast-agent-hold"),
        ]
        try:
            yield
        finally:
            for task in [*own, *self._works]:
                task.cancel()
            # Not for longer: what is not given back is taken by others when its lease has ended.
            await asyncio.wait([*own, *self._works], timeout=LAST_SECONDS)

    async def _run(self) -> None:
        while True:
            self._news.clear()
            if not await self.run_once():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._news.wait()

    def _pause(self) -> float:
        """How many seconds until something may be due: what was put off here is known to the moment."""
        now = monotonic()
        self._again_at = [at for at in self._again_at if at > now]
        return max(0.01, min([self._look_every, *(at - now for at in self._again_at)]))

    async def run_once(self) -> bool:
        """Begin with what is due; says whether there may be more."""
        free = MOST_TASKS - len(self._works)
        if free <= 0:
            return False
        try:
            taken = await self._tasks.take(free)
        except (HoldfastError, psycopg.Error) as error:
            self._tell(said(error))
            return False
        self._tell(None)
        for task in taken:
            work = asyncio.create_task(self._work(task), name=f"holdfast-task-{task.id}")
            self._works[work] = task
            work.add_done_callback(self._done)
        return bool(taken)

    def _done(self, work: asyncio.Task[None]) -> None:
        del self._works[work]
        self._news.set()  # its service has a hand free, and so have we

    async def _hold(self) -> None:
        """Keep what is being worked on; what is lost is broken off."""
        while True:
            await asyncio.sleep(HOLD_SECONDS)
            works = dict(self._works)
            if not works:
                continue
            with suppress(HoldfastError, psycopg.Error):  # then the leases may run out
                held = await self._tasks.hold(works.values())
                for work, task in works.items():
                    if task.id not in held:
                        work.cancel("somebody else has it")

    async def _work(self, task: Task) -> None:
        try:
            error = await self._try(task)
            if error is not None:
                await self._put_off_or_fail(task, *error)
        except Lost:
            logger.info("task %s: somebody else has it by now", task.id)
        except asyncio.CancelledError:
            with suppress(HoldfastError, psycopg.Error):
                await self._tasks.put_off(task, "the server was ended meanwhile", 0.0)
            raise
        except (HoldfastError, psycopg.Error) as trouble:
            # This database does not answer: the lease runs out, and somebody goes on.
            logger.warning("task %s is left for later: %s", task.id, said(trouble))

    async def _try(self, task: Task) -> tuple[str, bool] | None:
        """Do it; returns what went wrong, and whether it may go better later."""

        async def sure() -> None:
            if not await self._tasks.begin(task):
                raise Lost

        if task.attempt > self._settings.task_attempts:
            return "the agents that tried it did not come back", False
        target: Target | None = None
        try:
            url = opened(self._vault, self._settings.database_url, task.service, task.sealed)
            target = Target(url, task.database_name)
            result = await STEPS[task.kind](target, task, sure)
        except (HoldfastError, psycopg.Error, OSError, TimeoutError) as error:
            again = may_pass(error) and not (task.kind in ASKED_FOR and is_refused(error))
            return (target.without_secrets(told(error)) if target else told(error)), again
        except Exception as error:
            # Left alone, it would be tried again whenever its lease is over, and the rest would wait.
            logger.exception("task %s: this was not expected", task.id)
            return f"the agent cannot do this: {type(error).__name__}", False
        await self._tasks.end(task, result)
        return None

    async def _put_off_or_fail(self, task: Task, error: str, again: bool) -> None:
        if not again or task.attempt >= self._settings.task_attempts:
            logger.warning("%s of %s on %s failed: %s", task.kind, task.queue, task.service, error)
            await self._tasks.fail(task, error)
            return
        longest = min(LONGEST_PAUSE, self._settings.task_pause * 2 ** (task.attempt - 1))
        pause = longest * (0.75 + random() / 4)
        logger.info("%s of %s on %s is tried again: %s", task.kind, task.queue, task.service, error)
        if await self._tasks.put_off(task, error, pause):
            self._again_at.append(monotonic() + pause)

    def _tell(self, problem: str | None) -> None:
        if problem and not self._failing:
            logger.warning("tasks are not taken for now: %s", problem)
        elif self._failing and not problem:
            logger.warning("tasks are taken again")
        self._failing = bool(problem)


def told(error: BaseException) -> str:
    """What an error says, with what can be done about it."""
    if isinstance(error, HoldfastError):
        # Functions are for those who speak SQL, and this is told at every door.
        hint = None if "holdfast." in (error.hint or "") else error.hint
        return " ".join(filter(None, [f"{error.message} [{error.code}].", error.detail, hint]))
    if isinstance(error, TimeoutError):
        return "the service did not answer in time"
    return said(error)


def may_pass(error: BaseException) -> bool:
    """Whether the same may work later, without anybody doing anything to the queue."""
    if isinstance(error, HoldfastError):
        return isinstance(error, UnavailableError | SecretError) or error.code in AGAIN
    if isinstance(error, psycopg.Error):
        return is_gone(error) or is_momentary(error)
    return True
