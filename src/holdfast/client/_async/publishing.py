"""Publish and subscribe: one method for each SQL function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from holdfast.client._arguments import several
from holdfast.client._async.calls import AsyncCalls
from holdfast.client._calls import adapted
from holdfast.client._endpoints import EventType, NewEvent, Published, Subscription
from holdfast.client._endpoints import events as as_objects
from holdfast.client._types import Duration, Json


class AsyncEventVerbs(AsyncCalls):
    """What can be done with events, over some session."""

    async def create_event_type(
        self, name: str, *, description: str | None = None, schema: Json = None
    ) -> bool:
        """Make an event type; False if it was there. Its schema is for readers: nothing checks it."""
        return await self._value(bool, "create_event_type", name=name, description=description, schema=schema)

    async def drop_event_type(self, name: str) -> bool:
        """Remove an event type, and all subscriptions to it; False if there was none."""
        return await self._value(bool, "drop_event_type", name=name)

    async def event_types(self) -> list[EventType]:
        """All event types."""
        return await self._records(EventType, "event_types")

    async def subscribe(
        self, event_type: str, endpoint: str, filter: Mapping[str, Json] | None = None
    ) -> int:
        """Let an endpoint have the events of a type, or those whose payload contains `filter`."""
        return await self._value(int, "subscribe", event_type=event_type, endpoint=endpoint, filter=filter)

    async def unsubscribe(self, id: int) -> bool:
        """End a subscription; False if there is none of this number."""
        return await self._value(bool, "unsubscribe", id=id)

    async def subscriptions(
        self, event_type: str | None = None, endpoint: str | None = None
    ) -> list[Subscription]:
        """The subscriptions: all, to a type, or of an endpoint."""
        return await self._records(Subscription, "subscriptions", event_type=event_type, endpoint=endpoint)

    async def publish(
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
        return await self._records(
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

    async def publish_batch(self, events: Iterable[NewEvent]) -> list[Published]:
        """Publish many events, all or none; returns the messages, and of which event each is."""
        objects = as_objects(adapted, several("events", events))
        return await self._records(Published, "publish_batch", events=objects)
