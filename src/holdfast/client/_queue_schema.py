"""Schemas of queues: the values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ._types import Json

# The definition as text: a client may read numbers in a way of its own.
LOOK = b"select s.version, s.kind, s.definition::text, s.compatibility from holdfast.queue_schema(%s::text) s"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSchema:
    """A version of a queue's schema; once it was dropped, the time of that."""

    version: int
    kind: str
    definition: Json
    compatibility: str
    created_at: datetime
    dropped_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFinding:
    """What is wrong with one of several payloads, counted from 0, or (index None) with a definition."""

    index: int | None
    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A schema as those need it who check."""

    version: int
    kind: str
    definition: str  # JSON text
    compatibility: str
