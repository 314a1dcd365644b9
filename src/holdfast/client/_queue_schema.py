"""Schemas of queues: the values, and what a client remembers of them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

from ._types import Json

FRESH_SECONDS = 5.0  # also where no notification comes
MOST_REMEMBERED = 1_000  # queues
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


@dataclass(slots=True)
class Known:
    """What was found, and when; None: the queue has no schema."""

    schema: InForce | None
    at: float = field(default_factory=monotonic)


class KnownSchemas:
    """The schemas of queues that a client has looked at."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._forgotten = 0

    def forget(self, queue: str) -> None:
        """A queue has changed; "" means: perhaps all."""
        self._forgotten += 1
        if queue:
            self._known.pop(queue, None)
        else:
            self._known.clear()

    def fresh(self, queue: str) -> Known | None:
        """What is known of a queue, if it is not too old."""
        known = self._known.get(queue)
        return known if known is not None and monotonic() - known.at <= FRESH_SECONDS else None

    @property
    def state(self) -> int:
        """Another number after each change: a look that began before may have found what was there then."""
        return self._forgotten

    def remember(self, queue: str, schema: InForce | None, state: int) -> None:
        """Keep what was found by a look that began in this state."""
        if state != self._forgotten:
            return
        self._known[queue] = Known(schema)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
