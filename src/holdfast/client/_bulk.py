"""Messages in bulk: as rows of holdfast.inbox for COPY, and as objects for send_many."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from ._calls import interval, jsonb, jsonb_or_null
from ._errors import InvalidScheduleError, InvalidTtlError
from ._types import Duration, Json, NewMessage

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
)
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


def inbox_row(queue: str, message: NewMessage, now: datetime | None) -> tuple[Any, ...]:
    """One message as a row of holdfast.inbox."""
    return (
        queue,
        jsonb_or_null(message.payload),
        message.body,
        message.content_type,
        None if message.headers is None else jsonb(message.headers),
        message.priority,
        deliver_at(message, now),
        expires_at(message, now),
        message.correlation_id,
        message.tag,
        message.max_deliveries,
    )


def deliver_at(message: NewMessage, now: datetime | None) -> datetime | None:
    """When the message is due; refuses what send would refuse and the inbox can't see."""
    if message.delay is None or now is None:
        return message.deliver_at
    if message.deliver_at is not None:
        raise InvalidScheduleError("QH205", "a message has either a delay or a deliver_at, not both")
    delay = interval(message.delay)
    if delay < timedelta(0):
        raise InvalidScheduleError("QH205", f"the delay is negative: {delay.total_seconds()} s")
    return now + delay


def expires_at(message: NewMessage, now: datetime | None) -> datetime | None:
    """When the message expires; the time to live counts from now, as in send."""
    if message.ttl is None or now is None:
        return message.expires_at
    if message.expires_at is not None:
        raise InvalidTtlError("QH206", "a message has either a ttl or an expires_at, not both")
    return now + interval(message.ttl)


def as_object(message: NewMessage) -> dict[str, Json]:
    """One message as send_many takes it: only what is set, in JSON's own types."""
    values = ((name, getattr(message, name)) for name in FIELDS)
    return {name: as_json(name, value) for name, value in values if value is not None}


def as_json(name: str, value: Any) -> Json:
    """One field in JSON's own types."""
    if isinstance(value, Jsonb):
        return value.obj
    if name in ("payload", "headers"):
        return value
    if name in ("delay", "ttl"):
        return seconds(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return str(value) if isinstance(value, datetime | UUID) else value


def seconds(duration: Duration) -> float:
    """A duration as a number of seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
