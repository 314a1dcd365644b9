"""The values that the client takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeAlias
from uuid import UUID

Duration: TypeAlias = timedelta | float
"""A length of time: a timedelta, or a number of seconds."""

Json: TypeAlias = Any
"""Any value that the json module can write; a psycopg Jsonb is taken as it is."""

Id: TypeAlias = Annotated[int, "id"]
"""A number of up to 63 bits that names something. In JSON it is text: many readers keep only 53 bits."""

Origin: TypeAlias = Annotated[dict[str, Any], "origin"]
"""Where a message that was moved came from. In JSON its ids are text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to send, with its own options; what is None is left to the queue's configuration."""

    payload: Json = None
    body: bytes | None = None
    content_type: str | None = None
    headers: dict[str, Json] | None = None
    priority: int | None = None
    delay: Duration | None = None
    deliver_at: datetime | None = None
    ttl: Duration | None = None
    expires_at: datetime | None = None
    correlation_id: UUID | None = None
    tag: str | None = None
    max_deliveries: int | None = None
    ordering_key: str | None = None
    key: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message handed out to a consumer, and the token under which it is held."""

    token: Id
    id: Id
    queue: str
    payload: Json
    body: bytes | None
    content_type: str | None
    headers: dict[str, Json] | None
    priority: int
    key: str | None
    ordering_key: str | None
    correlation_id: UUID | None
    tag: str | None
    deliveries: int
    max_deliveries: int
    enqueued_at: datetime
    deadline: datetime
    last_error: str | None
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message as it lies in its queue or in the archive, looked at without being claimed."""

    id: Id
    queue: str
    state: str
    payload: Json
    body: bytes | None
    content_type: str | None
    headers: dict[str, Json] | None
    priority: int
    key: str | None
    ordering_key: str | None
    correlation_id: UUID | None
    tag: str | None
    deliveries: int
    failures: int
    max_deliveries: int
    enqueued_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None
    origin: Origin | None
    ended_at: datetime | None = None
    consumer: str | None = None
    claimed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What an ack, nack, release or extend did: the ids it settled, and those the token did not hold."""

    settled: list[Id]
    skipped: list[Id]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a message, and until when."""

    id: Id
    token: Id
    consumer: str | None
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of a consumer that is still open: its token, and what it holds."""

    token: Id
    messages: int
    first_id: Id
    last_id: Id
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One claim that is still open; it does not show the token."""

    consumer: str | None
    priority: int
    messages: int
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """How many messages of a queue are in which state, and how exact that is."""

    queue: str
    kind: str
    ready: int
    scheduled: int
    blocked: int
    in_flight: int
    dead: int
    blocked_lines: int
    depth: int
    oldest_age: timedelta | None
    exact: bool
    paused: bool
    counters: dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What happened in a queue between two looks, and what was in it at the second."""

    began: datetime
    ended: datetime
    sent: int
    done: int
    failed: int
    dead: int
    expired: int
    discarded: int
    nacked: int
    lapsed: int
    moved: int
    depth: int
    ready: int
    scheduled: int
    blocked: int
    in_flight: int
    oldest_age: timedelta | None
    exact: bool
    waiting: dict[str, int]
    processing: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """What happened in a queue in a bucket of time. Percentiles are in seconds.

    estimated: the figures that come from the samples. details: errors, keys, consumers, objectives.
    """

    start: datetime
    sent: int
    done: int
    failed: int
    dead: int
    expired: int
    discarded: int
    retries: int
    waiting_count: int
    waiting_p50: float | None
    waiting_p95: float | None
    waiting_p99: float | None
    processing_count: int
    processing_p50: float | None
    processing_p95: float | None
    processing_p99: float | None
    estimated: list[str]
    details: dict[str, Json]
    made_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A run of a pipeline: what it was told, how far it is, how it ended."""

    id: Id
    pipeline: str
    state: str
    step: str | None
    done: int | None
    total: int | None
    parameters: dict[str, Json]
    figures: dict[str, Json] | None
    error: str | None
    started_by: str
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One answer to the question why nothing is moving, and what to do about it."""

    finding: str
    severity: str
    message: str
    details: dict[str, Json]
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue: what was configured for it, and what is in force with the defaults."""

    queue: str
    paused: bool
    created_at: datetime
    config: dict[str, Json]
    effective: dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """A dead letter that was sent back: the id it had, and the id it has now."""

    id: Id
    new_id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A message of the archive that was sent once more: the id it had, when it ended, and the new id."""

    id: Id
    new_id: Id
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many messages a purge ended, and whether there may be more."""

    purged: int
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedKey:
    """Messages of one ordering key that wait behind their head; a strict queue's only line has no key.

    reason: dead (it waits for unblock), in_flight, scheduled or ready.
    """

    key: str | None
    head: Id
    since: datetime
    waiting: int
    reason: str
