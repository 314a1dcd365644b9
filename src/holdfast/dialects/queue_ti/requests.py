"""The bodies and queries of the queue-ti dialect. A field that is not named here is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.wire.requests import ANY_BUT_NUL, Body

Word: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL)]
Named: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL, min_length=1)]
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=86_400)]
Retries: TypeAlias = Annotated[int, Meta(ge=0, le=1_000)]
Status: TypeAlias = Literal["pending", "processing", "expired", "failed"]
Lifetime: TypeAlias = Annotated[int, Meta(ge=0, le=3_600 * 86_400)]


class Enqueue(Body, kw_only=True):
    """A message to send."""

    topic: Named
    payload: Annotated[str, Meta(min_length=1)]
    metadata: dict[Word, Word] | None = None
    key: Named | None = None


class Dequeue(Body, kw_only=True):
    """From which topic to take, how many messages, for how long."""

    topic: Named
    count: Annotated[int, Meta(ge=1, le=1_000)] = 1
    visibility_timeout_seconds: Seconds | None = None
    consumer_group: Any = None


class Ack(Body, kw_only=True):
    """Nothing, but what is not there yet."""

    consumer_group: Any = None


class Nack(Ack, kw_only=True):
    """Why a message failed."""

    error: Annotated[str, Meta(max_length=100_000, pattern=ANY_BUT_NUL)] | None = None


class TopicConfig(Body, kw_only=True):
    """What a topic has of its own; what is left out, or null, is the default."""

    max_retries: Retries | None = None
    message_ttl_seconds: Lifetime | None = None
    max_depth: Annotated[int, Meta(ge=0, le=1_000_000_000)] | None = None
    throughput_limit: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class Settings(Body, kw_only=True):
    """The defaults of all topics, as they are at first."""

    visibility_timeout_seconds: Seconds = 30
    max_retries: Retries = 3
    message_ttl_seconds: Lifetime = 86_400
    dlq_threshold: Retries = 3


class SettingsChange(Body, kw_only=True):
    """What to change of them; what is left out stays as it is, and null is what it is at first."""

    visibility_timeout_seconds: Seconds | UnsetType | None = UNSET
    max_retries: Retries | UnsetType | None = UNSET
    message_ttl_seconds: Lifetime | UnsetType | None = UNSET
    dlq_threshold: Retries | UnsetType | None = UNSET


class TopicSchema(Body, kw_only=True):
    """What payloads of a topic have to look like: text that is JSON, or JSON itself."""

    schema_json: Raw
    kind: Literal["avro", "json"] | None = None


class Listing(Body, kw_only=True):
    """Which messages to list."""

    topic: Word | None = None
    status: Literal["pending", "processing", "deleted", "failed", "expired"] | None = None
    limit: Annotated[int, Meta(ge=1)] = 50
    offset: Annotated[int, Meta(ge=0)] = 0


class Purge(Body, kw_only=True):
    """What to delete of a topic."""

    statuses: Annotated[list[Status], Meta(min_length=1)] | None = None


class Reaping(Body, kw_only=True):
    """When to delete what has expired: five fields of cron, in UTC; empty: never."""

    schedule: Word
