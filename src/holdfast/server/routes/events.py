"""Events: types, subscriptions, and publishing, which takes a key for all queues."""

from __future__ import annotations

import msgspec
from msgspec import UnsetType
from psycopg.types.json import Jsonb

from holdfast.client import Published
from holdfast.client._rows import record
from holdfast.server.answering import JsonResponse
from holdfast.server.endpoint import ADMIN, READ, SEND, Book, Call
from holdfast.wire import requests as wire
from holdfast.wire.routes import ROUTES

from ._values import path_id
from .schemas import as_jsonb

PUBLISH = b"select * from holdfast.publish_batch(%s::jsonb)"

book = Book("events")


@book.verb(ADMIN)
async def create_event_type(call: Call[wire.CreateEventType]) -> object:
    """Make an event type; 201 if it was made, 200 if it was there, the same."""
    asked = call.asked
    created = await call.service.engine.create_event_type(
        call.part("name"),
        description=asked.description,
        schema=None if isinstance(asked.schema, UnsetType) else as_jsonb(asked.schema),
    )
    return JsonResponse(ROUTES["create_event_type"].answer.write(created), 201 if created else 200)


@book.verb(ADMIN)
async def drop_event_type(call: Call[None]) -> object:
    """Remove an event type, and all subscriptions to it."""
    return await call.service.engine.drop_event_type(call.part("name"))


@book.verb(READ)
async def event_types(call: Call[None]) -> object:
    """All event types, and how many subscriptions each has."""
    return await call.service.engine.event_types()


@book.verb(ADMIN)
async def subscribe(call: Call[wire.Subscribe]) -> object:
    """Let an endpoint have the events of a type, or those whose payload contains the filter."""
    asked = call.asked
    return await call.service.engine.subscribe(asked.event_type, asked.endpoint, asked.filter)


@book.verb(ADMIN)
async def unsubscribe(call: Call[None]) -> object:
    """End a subscription."""
    return await call.service.engine.unsubscribe(path_id(call))


@book.verb(READ)
async def subscriptions(call: Call[wire.Subscriptions]) -> object:
    """The subscriptions: all, to a type, or of an endpoint."""
    return await call.service.engine.subscriptions(call.asked.event_type, call.asked.endpoint)


@book.verb(SEND)
async def publish(call: Call[wire.NewEvent]) -> object:
    """Send an event to each enabled endpoint that subscribes to its type; answers with the messages."""
    return await published(call, [call.asked])


@book.verb(SEND)
async def publish_batch(call: Call[wire.PublishBatch]) -> object:
    """Publish many events, all or none; nth says which event each message is of."""
    return await published(call, call.asked.events)


async def published(
    call: Call[wire.NewEvent] | Call[wire.PublishBatch], events: list[wire.NewEvent]
) -> list[Published]:
    """Events passed on as they came, digits and all."""
    given = Jsonb(events, dumps=msgspec.json.encode)
    return await call.service.engine.fetch("publish_batch", PUBLISH, [given], record(Published))
