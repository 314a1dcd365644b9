"""Reapers: what is past its time to live is marked, and what is marked is deleted in the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.client import QueueNotFoundError
from holdfast.server.endpoint import ADMIN, Book, Call
from holdfast.server.service import Service
from holdfast.server.ticks import Job, Schedule

from .configs import ANNOTATION
from .requests import Reaping

EXPIRED = "expired"
MARK_SECONDS = 60.0
EXPIRY, DELETE = "/api/admin/expiry-reaper", "/api/admin/delete-reaper"

book = Book("reapers")


async def mark(service: Service) -> int:
    """Mark what is past its time to live, in all topics."""
    return await in_all(service, service.reaping.expire)


async def delete(service: Service) -> int:
    """Delete what is marked, in all topics."""
    return await in_all(service, lambda topic: service.reaping.forget(topic, [EXPIRED]))


async def in_all(service: Service, do: Callable[[str], Awaitable[int]]) -> int:
    """Do something in one topic after the other; how many messages that was about."""
    reaped = 0
    for topic in await service.annotations.of_queues(ANNOTATION):
        with suppress(QueueNotFoundError):  # it was there a moment ago
            reaped += await do(topic)
    return reaped


# Once for all servers; a schedule is in the database.
MARKING = Job(name="queue-ti.expiry-reaper", run=mark, every=MARK_SECONDS)
DELETING = Job(name="queue-ti.delete-reaper", run=delete)
JOBS = (MARKING, DELETING)


@book.add("POST", EXPIRY + "/run", ADMIN)
async def run_expiry(call: Call[None]) -> object:
    """Mark what is past its time to live, now."""
    return {"expired": await mark(call.service)}


@book.add("POST", DELETE + "/run", ADMIN)
async def run_delete(call: Call[None]) -> object:
    """Delete what is marked, now."""
    return {"deleted": await delete(call.service)}


@book.add("GET", DELETE + "/schedule", ADMIN)
async def get_schedule(call: Call[None]) -> object:
    """When what is marked is deleted."""
    return shown(await call.service.ticks.schedules.of(DELETING.name))


@book.add("PUT", DELETE + "/schedule", ADMIN, body=Reaping)
async def put_schedule(call: Call[Reaping]) -> object:
    """Say when what is marked is deleted; with an empty schedule, never."""
    return shown(await call.service.ticks.schedules.set(DELETING.name, call.asked.schedule))


def shown(schedule: Schedule | None) -> dict[str, object]:
    """A schedule as the page shows it."""
    return {"schedule": "" if schedule is None else schedule.cron, "active": schedule is not None}
