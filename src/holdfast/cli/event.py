"""holdfast event, publish: types of events, who gets them, and publishing."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from psycopg.types.json import Jsonb

from ._command import Invocation, command
from ._help import Group
from ._options import (
    CorrelationId,
    Delay,
    DeliverAt,
    ExpiresAt,
    Header,
    IdempotencyKey,
    MaxDeliveries,
    OrderingKey,
    Payload,
    Priority,
    ReplaceKey,
    Tag,
    Ttl,
    Yes,
)
from ._output import counted
from ._values import headers, json_value, positive
from .message import read_payload

TYPES = ("name", "description", "subscriptions", "created_at")
SUBSCRIPTIONS = ("id", "event_type", "endpoint", "filter", "created_at")

app = typer.Typer(cls=Group, help="Types of events, and who gets them.", no_args_is_help=True)


def number(text: str) -> int:
    """The number of a subscription."""
    return positive(text, "the number of a subscription: holdfast event subscriptions shows them")


Name = Annotated[str, typer.Argument(metavar="TYPE", help="The name of an event type.")]
MaybeName = Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Only those to this type.")]
Endpoint = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Who gets the events.")]
OfEndpoint = Annotated[str | None, typer.Option("--endpoint", help="Only those of this endpoint.")]
Description = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="What it means.")]
Schema = Annotated[
    str | None, typer.Option("--schema", metavar="JSON", help="A JSON Schema of its payloads, for readers.")
]
Filter = Annotated[
    str | None, typer.Option("--filter", metavar="JSON", help="Only events whose payload contains this.")
]
Number = Annotated[int, typer.Argument(parser=number, metavar="NUMBER", help="Which subscription.")]


def register(root: typer.Typer) -> None:
    """Add the command that stands alone."""
    command(root)(publish)


@command(app)
def create(
    invocation: Invocation, event_type: Name, description: Description = None, schema: Schema = None
) -> None:
    """Make an event type."""
    wanted = None if schema is None else Jsonb(json_value(schema))
    with invocation.client() as client:
        created = client.create_event_type(event_type, description=description, schema=wanted)
    text = f"Created event type {event_type}." if created else f"Event type {event_type} was there already."
    invocation.output.document({"event_type": event_type, "created": created}, text)


@command(app, "list")
def list_types(invocation: Invocation) -> None:
    """List all event types."""
    with invocation.client() as client:
        found = client.event_types()
    invocation.output.records(found, TYPES, "There are no event types.")


@command(app)
def drop(invocation: Invocation, event_type: Name, yes: Yes = False) -> None:
    """Remove an event type, and all subscriptions to it."""
    invocation.confirm(f"Delete event type {event_type} and all subscriptions to it?", yes=yes)
    with invocation.client() as client:
        dropped = client.drop_event_type(event_type)
    text = f"Dropped event type {event_type}." if dropped else f"There was no event type {event_type}."
    invocation.output.document({"event_type": event_type, "dropped": dropped}, text)


@command(app)
def subscribe(invocation: Invocation, event_type: Name, endpoint: Endpoint, filter: Filter = None) -> None:
    """Let an endpoint have the events of a type."""
    wanted: Any = None if filter is None else Jsonb(json_value(filter))
    with invocation.client() as client:
        id = client.subscribe(event_type, endpoint, wanted)
    invocation.output.document({"id": id}, f"Subscription {id}: {endpoint} gets {event_type}.")


@command(app)
def subscriptions(invocation: Invocation, event_type: MaybeName = None, endpoint: OfEndpoint = None) -> None:
    """List who gets which events."""
    with invocation.client() as client:
        found = client.subscriptions(event_type, endpoint)
    invocation.output.records(found, SUBSCRIPTIONS, "There are no subscriptions.")


@command(app)
def unsubscribe(invocation: Invocation, id: Number) -> None:
    """End a subscription."""
    with invocation.client() as client:
        ended = client.unsubscribe(id)
    text = f"Ended subscription {id}." if ended else f"There was no subscription {id}."
    invocation.output.document({"id": id, "ended": ended}, text)


def publish(
    invocation: Invocation,
    event_type: Name,
    payload: Payload = None,
    header: Header = None,
    priority: Priority = None,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    correlation_id: CorrelationId = None,
    tag: Tag = None,
    max_deliveries: MaxDeliveries = None,
    ordering_key: OrderingKey = None,
    key: ReplaceKey = None,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Send an event to each endpoint that gets events of this type."""
    with invocation.client() as client:
        messages = client.publish(
            event_type,
            read_payload(payload, text=False),
            headers=headers(header or []),
            priority=priority,
            delay=delay,
            deliver_at=deliver_at,
            ttl=ttl,
            expires_at=expires_at,
            correlation_id=correlation_id,
            tag=tag,
            max_deliveries=max_deliveries,
            ordering_key=ordering_key,
            key=key,
            idempotency_key=idempotency_key,
        )
    nobody = f"Nobody gets this {event_type}: no enabled endpoint has a subscription that fits."
    invocation.output.records(messages, ("endpoint", "queue", "id"), nobody)
    if messages:
        invocation.output.note(f"Published {event_type} to {counted(len(messages), 'endpoint')}.")
