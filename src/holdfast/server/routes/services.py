"""Services: PostgreSQL databases on which queues are made.

To make one takes the scope admin for all queues: the server will connect to wherever it is.
"""

from __future__ import annotations

from holdfast.server.endpoint import ADMIN, READ, Book, Call
from holdfast.wire import requests as wire

book = Book("services")


@book.verb(ADMIN)
async def put_service(call: Call[wire.PutService]) -> object:
    """Make a PostgreSQL service on which queues can be made, or say anew where it is; answers with its id.

    The URL is sealed before it is stored, and shown nowhere. Nothing is connected yet: the first queue does
    that.
    """
    return await call.service.engine.put_service(call.asked.name, call.asked.url)


@book.verb(READ)
async def services(call: Call[None]) -> object:
    """All services, without their secrets; `local`, the server's own database, is the first."""
    return await call.service.engine.services()


@book.verb(ADMIN)
async def drop_service(call: Call[wire.DropService]) -> object:
    """Take a service off the list; false if there is none. One with queues is refused.

    With forget, what is known of its queues goes too, and the service itself stays as it is.
    """
    return await call.service.engine.drop_service(call.part("name"), forget=call.asked.forget)


@book.verb(ADMIN)
async def create_service_queue(call: Call[wire.CreateServiceQueue]) -> object:
    """Ask for a queue on a service, by its name or id; an agent will make it."""
    asked = call.asked
    return await call.service.engine.create_service_queue(
        call.part("service"),
        asked.name,
        database_name=asked.database_name,
        visibility_timeout_seconds=asked.visibility_timeout_seconds,
        max_attempts=asked.max_attempts,
        dlq_enabled=asked.dlq_enabled,
    )


@book.verb(READ)
async def service_queues(call: Call[wire.ServiceQueues]) -> object:
    """The queues of a service that are not gone; with a name that one, or an error."""
    return await call.service.engine.service_queues(call.part("service"), call.asked.name)


@book.verb(ADMIN)
async def delete_service_queue(call: Call[None]) -> object:
    """Ask for a queue on a service to be removed, with all its messages; an agent will do it."""
    return await call.service.engine.delete_service_queue(call.part("service"), call.part("name"))


@book.verb(ADMIN)
async def retry_service_queue(call: Call[None]) -> object:
    """Try again to make, or to remove, a queue on a service for which that has failed."""
    return await call.service.engine.retry_service_queue(call.part("service"), call.part("name"))
