"""Webhook endpoints: where the messages of queues are delivered to, and how that goes.

Endpoints are the business of an admin of all queues: what they allow, they allow for the whole network that
the server is in.
"""

from __future__ import annotations

from typing import Any

from holdfast.client import EndpointNotFoundError
from holdfast.server.answering import JsonResponse
from holdfast.server.endpoint import ADMIN, READ, Book, Call
from holdfast.server.reading import parse_body
from holdfast.wire import requests as wire
from holdfast.wire.requests import Config
from holdfast.wire.routes import ROUTES

from ._values import path_id, span

book = Book("endpoints")


def named(call: Call[Any]) -> str:
    """The endpoint in the path."""
    return call.part("endpoint")


def read(config: Config) -> dict[str, Any]:
    """A configuration, whose secrets the client of the server's own seals."""
    fields: dict[str, Any] = parse_body(bytes(config), dict[str, Any])
    return fields


@book.verb(ADMIN)
async def create_endpoint(call: Call[wire.CreateEndpoint]) -> object:
    """Make an endpoint, and its queue; 201 if it was made, 200 if it was there with the same configuration.

    Secrets in the configuration are sealed before they are stored.
    """
    asked = call.asked
    created = await call.service.engine.create_endpoint(named(call), read(asked.config), queue=asked.queue)
    call.service.configs.changed(asked.queue or named(call))
    return JsonResponse(ROUTES["create_endpoint"].answer.write(created), 201 if created else 200)


@book.verb(ADMIN)
async def configure_endpoint(call: Call[Config]) -> object:
    """Change fields of an endpoint (null: back to the default); answers with what is in force."""
    effective = await call.service.engine.configure_endpoint(named(call), read(call.asked))
    call.service.configs.changed("")
    return effective


@book.verb(ADMIN)
async def drop_endpoint(call: Call[wire.DropEndpoint]) -> object:
    """Remove an endpoint; its queue stays with its messages, unless with_queue."""
    dropped = await call.service.engine.drop_endpoint(named(call), with_queue=call.asked.with_queue)
    call.service.configs.changed("")
    return dropped


@book.verb(ADMIN)
async def rotate_secret(call: Call[wire.RotateSecret]) -> object:
    """Sign with another secret, a new one unless it is given; it is in this answer, and told never again."""
    asked = call.asked
    return await call.service.engine.rotate_secret(
        named(call), asked.secret, overlap=span(asked.overlap, "overlap")
    )


@book.verb(ADMIN)
async def enable_endpoint(call: Call[None]) -> object:
    """Deliver to an endpoint again."""
    return await call.service.engine.enable_endpoint(named(call))


@book.verb(ADMIN)
async def disable_endpoint(call: Call[wire.DisableEndpoint]) -> object:
    """Deliver nothing more to an endpoint; its messages wait."""
    return await call.service.engine.disable_endpoint(named(call), call.asked.reason)


@book.verb(ADMIN)
async def reset_breaker(call: Call[None]) -> object:
    """Close the breaker of an endpoint, and forget its failures."""
    return await call.service.engine.reset_breaker(named(call))


@book.verb(READ)
async def endpoints(call: Call[None]) -> object:
    """All endpoints, without their secrets."""
    return await call.service.engine.endpoints()


@book.verb(READ)
async def endpoint_info(call: Call[None]) -> object:
    """An endpoint, and what is in force, without its secrets."""
    found = await call.service.engine.endpoint_info(named(call))
    if found is None:
        raise EndpointNotFoundError(
            "QH870",
            f'endpoint "{named(call)}" does not exist',
            "Endpoints are made explicitly.",
            f"PUT /v1/endpoints/{named(call)} makes it.",
        )
    return found


@book.verb(READ)
async def endpoint_health(call: Call[wire.Health]) -> object:
    """How an endpoint does, or all of them: breaker, what waits, and the attempts of the last minutes."""
    asked = call.asked
    return await call.service.engine.endpoint_health(asked.endpoint, window=span(asked.window, "window"))


@book.verb(READ)
async def endpoint_events(call: Call[wire.Limit]) -> object:
    """How the breaker moved, and when the endpoint was enabled or disabled; the last first."""
    return await call.service.engine.endpoint_events(named(call), call.asked.limit)


@book.verb(READ)
async def endpoint_attempts(call: Call[wire.EndpointAttempts]) -> object:
    """The last attempts to deliver to an endpoint; with outcomes, those of them among the last 10,000."""
    asked = call.asked
    outcomes = None if asked.outcomes is None else asked.outcomes.split(",")
    return await call.service.engine.endpoint_attempts(
        named(call), outcomes=outcomes, limit=asked.limit, until=asked.until
    )


@book.verb(READ)
async def attempts(call: Call[wire.Limit]) -> object:
    """The attempts to deliver a message, the last first, wherever it has moved."""
    return await call.service.engine.attempts(call.queue, path_id(call), limit=call.asked.limit)
