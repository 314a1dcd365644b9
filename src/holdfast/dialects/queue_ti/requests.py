"""The bodies and queries of the queue-ti dialect. A field that is not named here is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Raw

from holdfast.wire.requests import ANY_BUT_NUL, Body

Word: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL)]
Named: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL, min_length=1)]
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=86_400)]
Retries: TypeAlias = Annotated[int, Meta(ge=0, le=1_000)]
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
    """The defaults of all topics; what is left out, or null, stays as it is."""

    visibility_timeout_seconds: Seconds | None = None
    max_retries: Retries | None = None
    message_ttl_seconds: Lifetime | None = None
    dlq_threshold: Retries | None = None


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

    statuses: Annotated[list[Literal["pending", "processing", "expired"]], Meta(min_length=1)] | None = None


class Reaping(Body, kw_only=True):
    """When to delete what has expired: five fields of cron, in UTC; empty: never."""

    schedule: Word
