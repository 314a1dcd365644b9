"""The bodies and queries of the native API. A field that is not named here is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta, Raw

MOST_MESSAGES = 1_000  # in one request
LONGEST_WAIT = 30.0  # seconds

Id: TypeAlias = (
    Annotated[str, Meta(pattern="^[0-9]{1,19}$")] | Annotated[int, Meta(ge=0, le=9223372036854775807)]
)
Ids: TypeAlias = Annotated[list[Id], Meta(max_length=10_000)]
Duration: TypeAlias = (
    Annotated[float, Meta(description="Seconds.")]
    | Annotated[str, Meta(description='Text such as "5 min".', max_length=100)]
)
Instant: TypeAlias = Annotated[datetime, Meta(tz=True)]
Text: TypeAlias = Annotated[str, Meta(max_length=200)]
Config: TypeAlias = dict[str, Any]


class Body(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What every request is: fields that are known, and no other."""


class NewMessage(Body, kw_only=True):
    """A message to send; what is left out is up to the queue's configuration."""

    payload: Raw = Raw()
    body: Annotated[str, Meta(description="Bytes in base64, in place of a payload.")] | None = None
    content_type: Text | None = None
    headers: dict[str, Any] | None = None
    priority: Annotated[int, Meta(ge=0, le=10)] | None = None
    delay: Duration | None = None
    deliver_at: Instant | None = None
    ttl: Duration | None = None
    expires_at: Instant | None = None
    correlation_id: UUID | None = None
    tag: Text | None = None
    max_deliveries: Annotated[int, Meta(ge=0, le=1000)] | None = None
    ordering_key: Text | None = None
    key: Text | None = None
    idempotency_key: Text | None = None


class Send(Body):
    """Messages to send, all or none."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MOST_MESSAGES)]


class Claim(Body, kw_only=True):
    """What to claim, for how long, and how long to wait for it."""

    max: Annotated[int, Meta(ge=1, le=MOST_MESSAGES)] = 1
    lease: Duration | None = None
    consumer: Text | None = None
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds.")] = 0.0


class Next(Body, kw_only=True):
    """The token to ack, and what to claim."""

    token: Id
    max: Annotated[int, Meta(ge=1, le=MOST_MESSAGES)] = 1
    lease: Duration | None = None
    consumer: Text | None = None
    strict: bool = False


class Settle(Body, kw_only=True):
    """What is done, or given back."""

    token: Id
    ids: Ids | None = None
    strict: bool = False


class Nack(Body, kw_only=True):
    """What failed, why, and when to try again."""

    token: Id
    ids: Ids | None = None
    delay: Duration | None = None
    error: Annotated[str, Meta(max_length=100_000)] | None = None
    strict: bool = False


class Extend(Body, kw_only=True):
    """What to hold longer."""

    token: Id
    lease: Duration | None = None
    ids: Ids | None = None
    strict: bool = False


class Work(Body, kw_only=True):
    """How many messages a stream keeps in flight, for how long each, and for whom."""

    max: Annotated[int, Meta(ge=1, le=MOST_MESSAGES)] = 1
    lease: Duration | None = None
    consumer: Text | None = None


class Browse(Body, kw_only=True):
    """Which messages to look at."""

    state: str | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    after: Id | None = None


class Archive(Body, kw_only=True, rename={"from_": "from"}):
    """Which messages of the archive to look at."""

    from_: Instant | None = None
    to: Instant | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    after: Id | None = None


class Held(Body):
    """Whose messages."""

    token: Id


class Holders(Body):
    """Which messages."""

    ids: Ids


class Claims(Body):
    """Of which consumer."""

    consumer: Text


class Limit(Body, kw_only=True):
    """How many."""

    limit: Annotated[int, Meta(ge=1)] | None = None


class Period(Body, kw_only=True):
    """From when to when."""

    since: Instant | None = None
    until: Instant | None = None


class Rollups(Body, kw_only=True):
    """From when to when, by what size."""

    since: Instant | None = None
    until: Instant | None = None
    bucket: Duration | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None


class Runs(Body, kw_only=True):
    """Of which pipeline, how many."""

    pipeline: str | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None


class Discard(Body):
    """Which messages to delete."""

    ids: Ids


class DiscardKey(Body):
    """The key of the messages to delete."""

    key: Text


class Unblock(Body, kw_only=True):
    """Which ordering key to let go on, and how."""

    key: Text | None = None
    how: str = "retry"


class Redrive(Body, kw_only=True):
    """Which dead letters to send back, and where to."""

    ids: Ids | None = None
    filter: dict[str, Any] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    target: Text | None = None


class Replay(Body, kw_only=True, rename={"from_": "from"}):
    """Which messages of the archive to send once more, and where to."""

    from_: Instant | None = None
    to: Instant | None = None
    outcomes: list[str] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    target: Text | None = None
    after: Id | None = None


class Purge(Body, kw_only=True):
    """Which messages to end, by their state."""

    states: list[str]
    limit: Annotated[int, Meta(ge=1)] | None = None


class Read(Body, kw_only=True):
    """From where to read a log."""

    after: Id = 0
    limit: Annotated[int, Meta(ge=1)] | None = None


class LogDelete(Body, kw_only=True):
    """Which records of a log to delete."""

    seqs: Ids | None = None
    tag: str | None = None
    before: Id | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None


class TakeRate(Body, kw_only=True):
    """What to take from a bucket, and how it fills."""

    limiter: Text
    rate: float
    burst: int | None = None
    want: int = 1
    partial: bool = False


class Maintain(Body, kw_only=True):
    """How long to work."""

    budget: Duration | None = None


class Repair(Body, kw_only=True):
    """What to start afresh."""

    queue: str | None = None
    unreadable_only: bool = False


class Nothing(Body):
    """No fields."""
