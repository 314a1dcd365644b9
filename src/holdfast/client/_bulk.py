"""Messages in bulk: as rows of holdfast.inbox for COPY, and as objects for send_many."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from ._arguments import instant, interval
from ._calls import adapted
from ._errors import InvalidScheduleError, InvalidTtlError
from ._traces import marked_headers
from ._types import Json, NewMessage

COLUMNS = (
    "queue",
    "payload",
    "body",
    "content_type",
    "headers",
    "priority",
    "deliver_at",
    "expires_at",
    "correlation_id",
    "tag",
    "max_deliveries",
    "ordering_key",
    "key",
    "idempotency_key",
)
COPY_ROWS = 5_000  # the most that the engine wants in one COPY
COPY = f"copy holdfast.inbox ({', '.join(COLUMNS)}) from stdin"
FIELDS = tuple(field.name for field in fields(NewMessage))


class Tally:
    """How many messages went out so far, for whoever wants to know."""

    def __init__(self, progress: Callable[[int], object] | None) -> None:
        self.total = 0
        self._progress = progress

    def add(self, number: int) -> None:
        """Count more, and tell."""
        self.total += number
        if self._progress is not None:
            self._progress(self.total)


def new_message(message: Any) -> NewMessage:
    """A message with options as it is; anything else is a payload."""
    return message if isinstance(message, NewMessage) else NewMessage(payload=message)


def needs_clock(messages: Iterable[NewMessage]) -> bool:
    """Whether some message has a delay or a time to live: in the inbox they are instants."""
    return any(message.delay is not None or message.ttl is not None for message in messages)


def inbox_row(
    queue: str, message: NewMessage, now: datetime | None, trace: Mapping[str, str] | None
) -> tuple[Any, ...]:
    """One message as a row of holdfast.inbox, with the trace that it is sent in."""
    headers = message.headers if trace is None else marked_headers(message.headers, trace)
    return (
        queue,
        adapted("payload", message.payload),
        adapted("body", message.body),
        adapted("content_type", message.content_type),
        adapted("headers", headers),
        adapted("priority", message.priority),
        deliver_at(message, now),
        expires_at(message, now),
        adapted("correlation_id", message.correlation_id),
        adapted("tag", message.tag),
        adapted("max_deliveries", message.max_deliveries),
        adapted("ordering_key", message.ordering_key),
        adapted("key", message.key),
        adapted("idempotency_key", message.idempotency_key),
    )


def deliver_at(message: NewMessage, now: datetime | None) -> datetime | None:
    """When the message is due; refuses what send would refuse and the inbox can't see."""
    if message.delay is None or now is None:
        return None if message.deliver_at is None else instant("deliver_at", message.deliver_at)
    if message.deliver_at is not None:
        raise InvalidScheduleError("QH205", "a message has either a delay or a deliver_at, not both")
    delay = interval("delay", message.delay)
    if delay < timedelta(0):
        raise InvalidScheduleError("QH205", f"the delay is negative: {delay.total_seconds()} s")
    try:
        return now + delay
    except OverflowError as error:
        raise InvalidScheduleError("QH205", f"the delay is too long: {delay.days} days") from error


def expires_at(message: NewMessage, now: datetime | None) -> datetime | None:
    """When the message expires; the time to live counts from now, as in send."""
    if message.ttl is None or now is None:
        return None if message.expires_at is None else instant("expires_at", message.expires_at)
    if message.expires_at is not None:
        raise InvalidTtlError("QH206", "a message has either a ttl or an expires_at, not both")
    ttl = interval("ttl", message.ttl)
    try:
        return now + ttl
    except OverflowError as error:
        raise InvalidTtlError("QH206", f"the time to live is too long: {ttl.days} days") from error


def as_object(message: NewMessage) -> dict[str, Json]:
    """One message as send_many takes it: only what is set, in JSON's own types."""
    values = ((name, adapted(name, getattr(message, name))) for name in FIELDS)
    return {name: as_json(value) for name, value in values if value is not None}


def as_json(value: Any) -> Json:
    """One field in JSON's own types."""
    if isinstance(value, Jsonb):
        return value.obj
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return str(value) if isinstance(value, datetime | UUID) else value
