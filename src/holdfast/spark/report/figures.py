"""What the report shows: plain values, bounded in number by whoever gathers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Spread:
    """How long something took, in seconds: percentiles over so many messages; None if there are none."""

    messages: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What happened to the messages of a queue."""

    sent: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    expired: int = 0
    discarded: int = 0
    retries: int = 0

    @property
    def ended(self) -> int:
        """All that have left the queue, whichever way."""
        return self.done + self.failed + self.dead + self.expired + self.discarded

    @property
    def lost(self) -> int:
        """Those that used up their deliveries."""
        return self.failed + self.dead

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in COUNTED})


COUNTED = tuple(Counts.__dataclass_fields__)
OUTCOMES = ("done", "failed", "dead", "expired", "discarded")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A queue in one stretch of time."""

    queue: str
    start: datetime
    counts: Counts
    waiting: Spread = Spread()
    processing: Spread = Spread()
    estimated: tuple[str, ...] = ()  # the figures that come from the minute samples


@dataclass(frozen=True, slots=True)
class Live:
    """A queue at the moment of the report."""

    ready: int
    scheduled: int
    blocked: int
    in_flight: int
    dead: int
    oldest_age: timedelta | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Total:
    """A queue over the whole range. erring: messages with an error; fatal: those of them that it ended."""

    queue: str
    counts: Counts
    waiting: Spread = Spread()
    processing: Spread = Spread()
    estimated: tuple[str, ...] = ()
    erring: int = 0
    fatal: int = 0
    keyed: int = 0  # messages with an ordering key
    live: Live | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Messages with the same error, but for numbers, ids and the like."""

    queue: str
    fingerprint: str
    messages: int
    fatal: int
    first_seen: datetime
    last_seen: datetime
    example: str


@dataclass(frozen=True, slots=True)
class HotKey:
    """An ordering key that many messages have."""

    queue: str
    key: str
    messages: int


@dataclass(frozen=True, slots=True)
class Consumer:
    """Whoever acked messages. failures: how often those messages had failed before, whoever had them then."""

    queue: str
    consumer: str | None
    messages: int
    failures: int
    processing: Spread


@dataclass(frozen=True, slots=True)
class Burn:
    """An objective in one stretch of time: how many messages it is about, and how many were too slow."""

    start: datetime
    messages: int
    over: int


@dataclass(frozen=True, slots=True)
class Objective:
    """What was promised: at least this share of the messages stays under the limit, in seconds."""

    queue: str
    measure: str  # waiting or processing
    percentile: int
    limit: float

    @property
    def allowed(self) -> float:
        """The share of messages that may be slower."""
        return (100 - self.percentile) / 100


@dataclass(frozen=True, slots=True)
class Kept:
    """How an objective was kept, bucket by bucket."""

    objective: Objective
    burns: tuple[Burn, ...]

    def burn(self, burn: Burn) -> float:
        """The share that was too slow, by the share that may be: above 1 the objective is missed."""
        return burn.over / burn.messages / self.objective.allowed if burn.messages else 0.0

    @property
    def missed(self) -> tuple[Burn, ...]:
        """The buckets in breach."""
        return tuple(burn for burn in self.burns if self.burn(burn) > 1)

    @property
    def overall(self) -> float:
        """The burn over the whole range."""
        total = sum(burn.messages for burn in self.burns)
        return self.burn(Burn(datetime.min, total, sum(burn.over for burn in self.burns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that one report shows."""

    since: datetime
    until: datetime
    bucket: timedelta
    made_at: datetime
    totals: Sequence[Total] = ()
    buckets: Sequence[Bucket] = ()
    failures: Sequence[Failure] = ()
    keys: Sequence[HotKey] = ()
    consumers: Sequence[Consumer] = ()
    objectives: Sequence[Kept] = ()
    notes: Sequence[str] = ()
