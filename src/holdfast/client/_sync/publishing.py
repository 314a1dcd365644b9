# Made from ../_async/publishing.py by tools/generate_sync.py: change that file, then run make generate.
"""Publish and subscribe: one method for each SQL function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from holdfast.client._arguments import several
from holdfast.client._calls import adapted
from holdfast.client._endpoints import EventType, NewEvent, Published, Subscription
from holdfast.client._endpoints import events as as_objects
from holdfast.client._sync.calls import Calls
from holdfast.client._types import Duration, Json


class EventVerbs(Calls):
    """What can be done with events, over some session."""

    def create_event_type(self, name: str, *, description: str | None = None, schema: Json = None) -> bool:
        """Make an event type; False if it was there. Its schema is for readers: nothing checks it."""
        return self._value(bool, "create_event_type", name=name, description=description, schema=schema)

    def drop_event_type(self, name: str) -> bool:
        """Remove an event type, and all subscriptions to it; False if there was none."""
        return self._value(bool, "drop_event_type", name=name)

    def event_types(self) -> list[EventType]:
        """All event types."""
        return self._records(EventType, "event_types")

    def subscribe(self, event_type: str, endpoint: str, filter: Mapping[str, Json] | None = None) -> int:
        """Let an endpoint have the events of a type, or those whose payload contains `filter`."""
        return self._value(int, "subscribe", event_type=event_type, endpoint=endpoint, filter=filter)

    def unsubscribe(self, id: int) -> bool:
        """End a subscription; False if there is none of this number."""
        return self._value(bool, "unsubscribe", id=id)

    def subscriptions(self, event_type: str | None = None, endpoint: str | None = None) -> list[Subscription]:
        """The subscriptions: all, to a type, or of an endpoint."""
        return self._records(Subscription, "subscriptions", event_type=event_type, endpoint=endpoint)

    def publish(
        self,
        event_type: str,
        payload: Json,
        *,
        headers: Mapping[str, Json] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        ttl: Duration | None = None,
        expires_at: datetime | None = None,
        correlation_id: UUID | None = None,
        tag: str | None = None,
        max_deliveries: int | None = None,
        ordering_key: str | None = None,
        key: str | None = None,
        idempotency_key: str | None = None,
    ) -> list[Published]:
        """Send an event to each enabled endpoint that subscribes to its type; returns the messages."""
        return self._records(
            Published,
            "publish",
            event_type=event_type,
            payload=payload,
            headers=headers,
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

    def publish_batch(self, events: Iterable[NewEvent]) -> list[Published]:
        """Publish many events, all or none; returns the messages, and of which event each is."""
        objects = as_objects(adapted, several("events", events))
        return self._records(Published, "publish_batch", events=objects)
