"""Services as dialects see them: queues elsewhere, and messages and figures by way of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.client import ServiceQueue, ServiceTask, TaskNotFoundError
from holdfast.client._rows import record, scalar

from .engine import Engine

ENQUEUE = b"select holdfast.enqueue_task(%s, %s, %s::jsonb)"
STATS = b"select holdfast.stats_task(%s, %s)"
TASK = b"select * from holdfast.service_task(%s, %s, %s::uuid)"


class Services:
    """Queues on services. A service is named by its name or its id."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create_queue(
        self,
        service: str,
        name: str,
        database_name: str | None = None,
        visibility_timeout_seconds: int = 30,
        max_attempts: int = 5,
        dlq_enabled: bool = True,
    ) -> ServiceQueue:
        """Ask for a queue, which an agent will make."""
        return await self._engine.create_service_queue(
            service,
            name,
            database_name=database_name,
            visibility_timeout_seconds=visibility_timeout_seconds,
            max_attempts=max_attempts,
            dlq_enabled=dlq_enabled,
        )

    async def queues(self, service: str) -> list[ServiceQueue]:
        """The queues that are not gone."""
        return await self._engine.service_queues(service)

    async def queue(self, service: str, name: str) -> ServiceQueue:
        """One queue, or an error."""
        return (await self._engine.service_queues(service, name))[0]

    async def delete_queue(self, service: str, name: str) -> ServiceQueue:
        """Ask for a queue to be removed, which an agent will do."""
        return await self._engine.delete_service_queue(service, name)

    async def retry_queue(self, service: str, name: str) -> ServiceQueue:
        """Try again what has failed."""
        return await self._engine.retry_service_queue(service, name)

    async def enqueue(self, service: str, name: str, messages: Sequence[Any]) -> UUID:
        """Let an agent send a batch, all of it or nothing; returns the task.

        messages: each an object with payload, and delay_seconds if it is to wait. Raw JSON stays as it is.
        """
        given = [service, name, msgspec.json.encode(messages).decode()]
        return (await self._engine.fetch("enqueue_task", ENQUEUE, given, scalar(UUID)))[0]

    async def ask_stats(self, service: str, name: str) -> UUID:
        """Let an agent count the messages of a queue; returns the task."""
        return (await self._engine.fetch("stats_task", STATS, [service, name], scalar(UUID)))[0]

    async def task(self, service: str, name: str, task: UUID | str) -> ServiceTask:
        """What came of a task so far."""
        try:
            id = task if isinstance(task, UUID) else UUID(task)
        except ValueError:
            raise TaskNotFoundError(
                "QH868", "there is no such task", f"Got {str(task)[:100]!r}.", "The id of a task is a UUID."
            ) from None
        found = await self._engine.fetch("service_task", TASK, [service, name, id], record(ServiceTask))
        return found[0]
