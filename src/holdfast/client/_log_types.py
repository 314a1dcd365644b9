"""The values that logs and rate limiters return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ._types import Id, Json, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of a log (kind "record"), or a range of sequence numbers that are gone ("gap", "deleted").

    Pass the last one's seq on as `after` to read what comes next.
    """

    kind: str
    seq: Id
    from_seq: Id
    to_seq: Id
    id: Id | None
    payload: Json
    body: bytes | None
    content_type: str | None
    headers: dict[str, Json] | None
    correlation_id: UUID | None
    tag: str | None
    enqueued_at: datetime | None
    last_error: str | None
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats:
    """What a log holds: records from first_seq on, of which all up to last_seq can be read."""

    first_seq: Id | None
    last_seq: Id
    records: int
    trimmed: int
    oldest_age: timedelta | None
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a rate limiter granted; retry_after says when to ask again if that is nothing."""

    granted: int
    remaining: int
    retry_after: timedelta | None
