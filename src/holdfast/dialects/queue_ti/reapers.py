"""Reapers: what is past its time to live is marked, and what is marked is deleted in the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.client import QueueNotFoundError
from holdfast.server.endpoint import ADMIN, Book, Call
from holdfast.server.service import Service

from .configs import ANNOTATION

EXPIRED = "expired"
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


@book.add("POST", EXPIRY + "/run", ADMIN)
async def run_expiry(call: Call[None]) -> object:
    """Mark what is past its time to live, now."""
    return {"expired": await mark(call.service)}


@book.add("POST", DELETE + "/run", ADMIN)
async def run_delete(call: Call[None]) -> object:
    """Delete what is marked, now."""
    return {"deleted": await delete(call.service)}
