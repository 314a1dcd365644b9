"""Tasks, as the database has them: taken for a while, kept, put off and ended."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import Raw

from holdfast.client._rows import record, scalar
from holdfast.server.engine import Engine

LEASE = timedelta(seconds=30)
MOST_OF_A_SERVICE = 4  # tasks at once, of all agents: one that is slow keeps no more hands busy

TAKE = b"select * from holdfast.take_tasks(%s, %s, %s, %s)"
BEGIN = b"select holdfast.begin_task(%s, %s)"
HOLD = b"select holdfast.hold_tasks(%s::uuid[], %s::int[], %s)"
PUT_OFF = b"select holdfast.put_off_task(%s, %s, %s, %s)"
END = b"select holdfast.end_task(%s, %s, %s::jsonb, %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something to be done for a queue on a service."""

    id: UUID
    kind: str
    body: Raw | None
    attempt: int
    service: str
    sealed: str | None
    queue_id: UUID
    queue: str
    database_name: str
    visibility_timeout_seconds: int
    max_attempts: int
    dlq_enabled: bool


class Tasks:
    """What an agent does with tasks. Where it says False, somebody else has the task by now."""

    def __init__(self, engine: Engine, agent: str) -> None:
        self._engine = engine
        self._agent = agent

    async def take(self, most: int) -> list[Task]:
        """Tasks that are due, up to so many."""
        given = [self._agent, most, LEASE, MOST_OF_A_SERVICE]
        return await self._engine.fetch("take_tasks", TAKE, given, record(Task))

    async def begin(self, task: Task) -> bool:
        """The service is reached, and the work begins."""
        return await self._asked("begin_task", BEGIN, [task.id, task.attempt])

    async def hold(self, tasks: Collection[Task]) -> set[UUID]:
        """Keep tasks; returns the ids of those that are still ours."""
        given: list[Any] = [[task.id for task in tasks], [task.attempt for task in tasks], LEASE]
        return set((await self._engine.fetch("hold_tasks", HOLD, given, scalar(list)))[0])

    async def put_off(self, task: Task, error: str, seconds: float) -> bool:
        """It could not be done now."""
        given = [task.id, task.attempt, error, timedelta(seconds=seconds)]
        return await self._asked("put_off_task", PUT_OFF, given)

    async def end(self, task: Task, result: str | None) -> bool:
        """It is done."""
        return await self._asked("end_task", END, [task.id, task.attempt, result, None])

    async def fail(self, task: Task, error: str) -> bool:
        """It will not be done."""
        return await self._asked("end_task", END, [task.id, task.attempt, None, error])

    async def _asked(self, verb: str, statement: bytes, given: list[Any]) -> bool:
        return (await self._engine.fetch(verb, statement, given, scalar(bool)))[0]
