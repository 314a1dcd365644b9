"""The bodies and queries of the native API. A field that is not named here is refused.

Ranges that the engine checks, with errors of its own, are only told here, for the OpenAPI document.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

MOST_MESSAGES = 1_000  # in one request
LONGEST_WAIT = 30  # seconds

SMALLEST, LARGEST = -(2**31), 2**31 - 1  # of an integer of PostgreSQL's
LEAST, MOST = "x-minimum", "x-maximum"  # what the OpenAPI document says in place of them
ANY_BUT_NUL = r"^[^\x00]*$"  # PostgreSQL stores no NUL


def whole(least: int, most: int) -> Meta:
    """A number of PostgreSQL's; the range is the engine's to check."""
    return Meta(ge=SMALLEST, le=LARGEST, extra_json_schema={LEAST: least, MOST: most})


Id: TypeAlias = (
    Annotated[str, Meta(pattern="^[0-9]{1,19}$")] | Annotated[int, Meta(ge=0, le=9223372036854775807)]
)
Ids: TypeAlias = Annotated[list[Id], Meta(max_length=10_000)]
Duration: TypeAlias = (
    Annotated[float, Meta(description="Seconds.")]
    | Annotated[str, Meta(description='Text such as "5 min".', max_length=100)]
)
Instant: TypeAlias = Annotated[datetime, Meta(tz=True)]
Word: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL)]
Text: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL, extra_json_schema={"maxLength": 200})]
Max: TypeAlias = Annotated[int, whole(1, MOST_MESSAGES)]  # the server checks it
Limited: TypeAlias = Annotated[int, whole(1, 10_000)]
Config: TypeAlias = Annotated[Raw, Meta(description="Fields to set.", extra_json_schema={"type": "object"})]

Definition: TypeAlias = Annotated[Raw, Meta(description="A JSON Schema, or an Avro schema.")]

Secret: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL, max_length=200)]


class Body(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What every request is: fields that are known, and no other."""


class NewMessage(Body, kw_only=True):
    """A message to send; what is left out is up to the queue's configuration."""

    payload: Raw | UnsetType = UNSET
    body: Annotated[str, Meta(description="Bytes in base64, in place of a payload.")] | None = None
    content_type: Text | None = None
    headers: dict[str, Raw] | None = None
    priority: Annotated[int, whole(0, 10)] | None = None
    delay: Duration | None = None
    deliver_at: Instant | None = None
    ttl: Duration | None = None
    expires_at: Instant | None = None
    correlation_id: UUID | None = None
    tag: Text | None = None
    max_deliveries: Annotated[int, whole(0, 1_000)] | None = None
    ordering_key: Text | None = None
    key: Text | None = None
    idempotency_key: Text | None = None


class Send(Body):
    """Messages to send, all or none."""

    messages: Annotated[list[NewMessage], Meta(max_length=MOST_MESSAGES)]


class Claim(Body, kw_only=True):
    """What to claim, for how long, and how long to wait for it."""

    max: Max = 1
    lease: Duration | None = None
    consumer: Text | None = None
    wait: Duration = 0.0


class Next(Body, kw_only=True):
    """The token to ack, and what to claim."""

    token: Id
    max: Max = 1
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
    error: Annotated[str, Meta(max_length=100_000, pattern=ANY_BUT_NUL)] | None = None
    strict: bool = False


class Reject(Body, kw_only=True):
    """What failed for good, and why."""

    token: Id
    ids: Ids | None = None
    error: Annotated[str, Meta(max_length=100_000, pattern=ANY_BUT_NUL)] | None = None
    strict: bool = False


class Extend(Body, kw_only=True):
    """What to hold longer."""

    token: Id
    lease: Duration | None = None
    ids: Ids | None = None
    strict: bool = False


class Work(Body, kw_only=True):
    """How many messages a stream keeps in flight, for how long each, and for whom."""

    max: Max = 1
    lease: Duration | None = None
    consumer: Text | None = None


class Browse(Body, kw_only=True):
    """Which messages to look at."""

    state: Word | None = None
    limit: Limited | None = None
    after: Id | None = None


class Archive(Body, kw_only=True, rename={"from_": "from"}):
    """Which messages of the archive to look at."""

    from_: Instant | None = None
    to: Instant | None = None
    limit: Limited | None = None
    after: Id | None = None


class Held(Body):
    """Whose messages."""

    token: Id


class Holders(Body):
    """Which messages."""

    ids: Ids


class Claims(Body):
    """Of which consumer."""

    consumer: Word


class DropQueue(Body, kw_only=True):
    """On what condition."""

    if_empty: bool = False


class Limit(Body, kw_only=True):
    """How many."""

    limit: Limited | None = None


class Period(Body, kw_only=True):
    """From when to when."""

    since: Instant | None = None
    until: Instant | None = None


class Rollups(Body, kw_only=True):
    """From when to when, by what size."""

    since: Instant | None = None
    until: Instant | None = None
    bucket: Duration | None = None
    limit: Limited | None = None


class Runs(Body, kw_only=True):
    """Of which pipeline, how many."""

    pipeline: Word | None = None
    limit: Limited | None = None


class Discard(Body):
    """Which messages to delete."""

    ids: Ids


class DiscardKey(Body):
    """The key of the messages to delete."""

    key: Word


class Unblock(Body, kw_only=True):
    """Which ordering key to let go on, and how."""

    key: Text | None = None
    how: Word = "retry"


class Redrive(Body, kw_only=True):
    """Which dead letters to send back, and where to."""

    ids: Ids | None = None
    filter: dict[str, Any] | None = None
    limit: Limited | None = None
    target: Text | None = None


class Replay(Body, kw_only=True, rename={"from_": "from"}):
    """Which messages of the archive to send once more, and where to."""

    from_: Instant | None = None
    to: Instant | None = None
    outcomes: list[Word] | None = None
    limit: Limited | None = None
    target: Text | None = None
    after: Id | None = None


class Purge(Body, kw_only=True):
    """Which messages to end, by their state."""

    states: list[Word]
    limit: Limited | None = None


class Read(Body, kw_only=True):
    """From where to read a log."""

    after: Annotated[str, Meta(pattern="^-?[0-9]{1,19}$")] | int = 0  # the engine has its own error for it
    limit: Limited | None = None


class LogDelete(Body, kw_only=True):
    """Which records of a log to delete."""

    seqs: Ids | None = None
    tag: Word | None = None
    before: Id | None = None
    limit: Limited | None = None


class SetSchema(Body, kw_only=True):
    """What payloads must look like, and which changes of that are allowed."""

    definition: Definition
    kind: Word | None = None
    compatibility: Word | None = None
    expected_version: Annotated[int, Meta(ge=0, le=LARGEST)] | None = None


class CheckSchema(Body, kw_only=True):
    """Payloads to check; with a definition: by that one, which is compared with the one in force."""

    payloads: Annotated[list[Raw], Meta(max_length=MOST_MESSAGES)] | None = None
    definition: Definition | UnsetType = UNSET
    kind: Word | None = None
    compatibility: Word | None = None


class SetSealKey(Body, kw_only=True):
    """The key that messages are sealed with."""

    public_key: Annotated[str, Meta(max_length=8_000)]


class TakeRate(Body, kw_only=True):
    """What to take from a bucket, and how it fills."""

    limiter: Text
    rate: float
    burst: Annotated[int, whole(1, 1_000_000)] | None = None
    want: Annotated[int, whole(0, 1_000_000)] = 1
    partial: bool = False


class Maintain(Body, kw_only=True):
    """How long to work."""

    budget: Duration | None = None


class Repair(Body, kw_only=True):
    """What to start afresh."""

    queue: Word | None = None
    unreadable_only: bool = False


class CreateKey(Body, kw_only=True):
    """Whose key it is, and what it may do with which queues."""

    name: Annotated[str, Meta(pattern=ANY_BUT_NUL, extra_json_schema={"minLength": 1, "maxLength": 64})]
    scopes: Annotated[list[Word], Meta(description="One or more of send, consume, read, admin.")]
    queues: Annotated[list[Word], Meta(description="Names, in which * stands for anything.")] | None = None
    expires_in: Duration | None = None
    rate: Annotated[float, Meta(description="Requests a second.")] | None = None
    burst: Annotated[int, whole(1, 1_000_000)] | None = None


class RotateKey(Body, kw_only=True):
    """How long the old secret stays valid."""

    grace: Duration | None = None


class CreateHook(Body, kw_only=True):
    """The name of a hook, what holds for it, which queue it fills, and how it is called."""

    hook: Word
    config: Config | UnsetType = UNSET
    queue: Text | None = None
    slug: Secret | None = None


class RotateHook(Body, kw_only=True):
    """What is to be another; and how long what was before counts too."""

    slug: Secret | bool = False
    secret: Secret | bool = False
    overlap: Duration | None = None


class DropHook(Body, kw_only=True):
    """Whether its queue goes too, with the messages in it."""

    with_queue: bool = False


class HookCalls(Body, kw_only=True):
    """Which calls to look at."""

    limit: Limited | None = None
    before: Id | None = None


class PutService(Body, kw_only=True):
    """A PostgreSQL service, and how to connect to it."""

    name: Annotated[str, Meta(pattern=ANY_BUT_NUL, extra_json_schema={"minLength": 1, "maxLength": 63})]
    url: Annotated[str, Meta(pattern=ANY_BUT_NUL, max_length=4_000)]


class DropService(Body, kw_only=True):
    """Whether what is known of its queues goes too."""

    forget: bool = False


class CreateServiceQueue(Body, kw_only=True):
    """The queue that is asked for."""

    name: Annotated[str, Meta(pattern=ANY_BUT_NUL, extra_json_schema={"minLength": 1, "maxLength": 128})]
    database_name: Word | None = None
    visibility_timeout_seconds: Annotated[int, whole(1, 43_200)] | None = None
    max_attempts: Annotated[int, whole(1, 100)] | None = None
    dlq_enabled: bool | None = None


class ServiceQueues(Body, kw_only=True):
    """Which queue; without a name, all."""

    name: Word | None = None


class Login(Body, kw_only=True):
    """A key as the password; the name of the user is of no account."""

    username: str = ""
    password: Annotated[str, Meta(min_length=1, max_length=1_000)]


class CreateEndpoint(Body, kw_only=True):
    """Where to deliver to, and how; and the messages of which queue."""

    config: Config
    queue: Text | None = None


class RotateSecret(Body, kw_only=True):
    """The secret to sign with, or a new one; and how long the old ones sign too."""

    secret: Annotated[str, Meta(pattern=ANY_BUT_NUL, max_length=200)] | None = None
    overlap: Duration | None = None


class DisableEndpoint(Body, kw_only=True):
    """Why."""

    reason: Annotated[str, Meta(pattern=ANY_BUT_NUL, max_length=10_000)] | None = None


class DropEndpoint(Body, kw_only=True):
    """Whether its queue goes too, with the messages in it."""

    with_queue: bool = False


class Health(Body, kw_only=True):
    """Of which endpoint, and for how long back."""

    endpoint: Word | None = None
    window: Duration | None = None


class EndpointAttempts(Body, kw_only=True):
    """Which attempts to look at."""

    outcomes: Word | None = None
    limit: Limited | None = None
    until: Instant | None = None


class CreateEventType(Body, kw_only=True):
    """What it means, and what its payloads look like."""

    description: Word | None = None
    schema: Definition | UnsetType = UNSET


class Subscribe(Body, kw_only=True):
    """Who gets which events."""

    event_type: Word
    endpoint: Word
    filter: dict[str, Any] | None = None


class Subscriptions(Body, kw_only=True):
    """To which type, of which endpoint."""

    event_type: Word | None = None
    endpoint: Word | None = None


class NewEvent(Body, kw_only=True):
    """An event to publish; what is left out is up to the queues that get it."""

    event_type: Word
    payload: Raw
    headers: dict[str, Raw] | None = None
    priority: Annotated[int, whole(0, 10)] | None = None
    delay: Duration | None = None
    deliver_at: Instant | None = None
    ttl: Duration | None = None
    expires_at: Instant | None = None
    correlation_id: UUID | None = None
    tag: Text | None = None
    max_deliveries: Annotated[int, whole(0, 1_000)] | None = None
    ordering_key: Text | None = None
    key: Text | None = None
    idempotency_key: Text | None = None


class PublishBatch(Body):
    """Events to publish, all or none."""

    events: Annotated[list[NewEvent], Meta(max_length=MOST_MESSAGES)]


class Nothing(Body):
    """No fields."""
