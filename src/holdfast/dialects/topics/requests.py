"""The bodies and queries of the topics dialect. A field that is not named here is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.server.numbers import LARGEST
from holdfast.wire.requests import ANY_BUT_NUL, Body

U32 = 2**32 - 1

Word: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL)]
Node: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL, min_length=1, max_length=128)]
# Without a pattern: msgspec frees what is not its own where text with one, or a list, may come.
ReaderNode: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]
Nodes: TypeAlias = ReaderNode | list[Node] | None
Unsigned: TypeAlias = Annotated[int, Meta(ge=0)]
Max: TypeAlias = Annotated[int, Meta(ge=1, le=U32)]
Seq: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
Seqs: TypeAlias = Annotated[list[Seq], Meta(min_length=1)]
LeaseIds: TypeAlias = list[Word]
Durability: TypeAlias = Literal["ephemeral", "memory", "disk", "fsync"]


class TopicConfig(Body, kw_only=True):
    """What a topic is told; what is left out stays as it is, or gets its default."""

    type: Literal["log", "queue"] | UnsetType = UNSET
    ttl_ms: Unsigned | UnsetType = UNSET
    cap_records: Unsigned | UnsetType = UNSET
    cap_bytes: Unsigned | UnsetType = UNSET
    discard: Literal["old", "reject"] | UnsetType = UNSET
    durable: bool | UnsetType = UNSET
    durability: Durability | UnsetType = UNSET
    priority: int | UnsetType | None = UNSET
    auto_create: bool | UnsetType = UNSET
    idempotency_window_ms: Unsigned | UnsetType = UNSET
    dedupe_node: bool | UnsetType = UNSET
    lease_ms: Unsigned | UnsetType = UNSET
    claim_jitter_ms: Unsigned | UnsetType = UNSET
    max_deliveries: Unsigned | UnsetType = UNSET
    dead_letter: Word | UnsetType | None = UNSET
    leases_durable: bool | UnsetType = UNSET


class NewRecord(Body, kw_only=True):
    """A record to append."""

    data: Raw
    tag: Word | None = None
    node: Node | None = None
    meta: dict[str, Raw] | None = None


class Append(Body, kw_only=True):
    """Records to append, all or none."""

    records: Annotated[list[NewRecord], Meta(min_length=1)]
    node: Node | None = None
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=256, pattern=ANY_BUT_NUL)] | None = None
    create: bool | None = None
    config: TopicConfig | None = None
    disable_backpressure: bool = False


class Diff(Body, kw_only=True):
    """From where to read, how much, and how long to wait for it."""

    from_seq: Seq = 0
    limit: Unsigned = 256
    node: Nodes = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Unsigned = 0


class Delete(Body, kw_only=True):
    """Which records to delete."""

    before_seq: Seq | None = None
    match: Any = None


class Claim(Body, kw_only=True):
    """For whom to claim, how many jobs, for how long."""

    node: Node
    max: Max = 1
    lease_ms: Unsigned | None = None


class Ack(Body, kw_only=True):
    """Which jobs are done."""

    node: Node
    seqs: Seqs
    lease_ids: LeaseIds | None = None


class Nack(Ack, kw_only=True):
    """Which jobs to release, and when they may be claimed again."""

    delay_ms: Unsigned = 0


class Extend(Ack, kw_only=True):
    """Which jobs to hold longer."""

    lease_ms: Unsigned


class Work(Body, kw_only=True):
    """For whom a stream is, how deep, for how long each job is leased."""

    node: Node
    max: Max = 1
    lease_ms: Unsigned | None = None
    token: Word | None = None  # the key, on loopback


class WatchFrom(Body, kw_only=True):
    """Where to begin with a topic."""

    from_seq: Seq = 0
    tail: bool = False


class Watch(Body, kw_only=True):
    """Which topics to watch, and what to show of them."""

    topics: Annotated[dict[Word, WatchFrom], Meta(min_length=1, max_length=256)]
    node: Nodes = None
    limit: Unsigned = 256
    heartbeat_ms: Unsigned = 15_000
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True


class Listing(Body, kw_only=True):
    """Which topics to list."""

    prefix: Word = ""
    page_size: Annotated[int, Meta(ge=1, le=U32)] = 100
    cursor: Word | None = None


class Dropping(Body, kw_only=True):
    """Whether to delete a topic that has records."""

    if_empty: bool = False


class Watching(Body, kw_only=True):
    """Who watches."""

    token: Word | None = None
