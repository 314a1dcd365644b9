"""Queues on services: made and removed by an agent, looked at meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.client import ServiceQueue
from holdfast.server.answering import JsonResponse
from holdfast.server.callers import require
from holdfast.server.endpoint import ADMIN, READ, Book, Call

from .requests import NewQueue
from .values import OWN_DATABASE, QUEUE, QUEUES, at

book = Book("queues")

Document = dict[str, Any]


@book.add("POST", QUEUES, ADMIN, body=NewQueue, needs_body=True, anywhere=True)
async def create_queue(call: Call[NewQueue]) -> object:
    """Make a queue, in a while."""
    asked = call.asked
    call.request.scope["visit"].queue = asked.name
    require(call.caller, ADMIN, asked.name)
    if asked.database_name not in (None, OWN_DATABASE):
        require(call.caller, ADMIN, "")  # Holdfast is installed there, whoever else that database is for
    said = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    made = await call.service.services.create_queue(call.part("service"), **said)
    return JsonResponse(shown(made), 201)


@book.add("GET", QUEUES, READ, anywhere=True)
async def list_queues(call: Call[None]) -> object:
    """The queues of a service that the key reaches."""
    every = await call.service.services.queues(call.part("service"))
    return {"queues": [listed(queue) for queue in every if call.caller.reaches(queue.name)]}


@book.add("GET", QUEUE, READ)
async def get_queue(call: Call[None]) -> object:
    """One queue."""
    return shown(await call.service.services.queue(call.part("service"), call.queue))


@book.add("DELETE", QUEUE, ADMIN)
async def delete_queue(call: Call[None]) -> object:
    """Remove a queue and its messages, in a while."""
    gone = await call.service.services.delete_queue(call.part("service"), call.queue)
    return JsonResponse(shown(gone), 202)


def shown(queue: ServiceQueue) -> Document:
    """A queue as the page shows one."""
    document: Document = {
        "id": str(queue.id),
        "service_id": str(queue.service_id),
        "name": queue.name,
        "database_name": queue.database_name,
        "visibility_timeout_seconds": queue.visibility_timeout_seconds,
        "max_attempts": queue.max_attempts,
        "dlq_enabled": queue.dlq_enabled,
        "status": queue.status,
        "created_at": at(queue.created_at),
        "updated_at": at(queue.updated_at),
    }
    return document | trouble(queue)


def listed(queue: ServiceQueue) -> Document:
    """A queue as the page lists it among others."""
    document: Document = {
        "id": str(queue.id),
        "name": queue.name,
        "database_name": queue.database_name,
        "status": queue.status,
        "visibility_timeout_seconds": queue.visibility_timeout_seconds,
        "max_attempts": queue.max_attempts,
        "dlq_enabled": queue.dlq_enabled,
    }
    return document | trouble(queue)


def trouble(queue: ServiceQueue) -> Document:
    """What went wrong with a queue, if something did."""
    return {} if queue.error_message is None else {"error_message": queue.error_message}
