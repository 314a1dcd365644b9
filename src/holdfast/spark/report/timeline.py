"""Buckets over time: as many points as a plot can show, whatever the range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import TypeVar

from .charts import Axis
from .figures import Bucket, Burn, Counts, Kept, Spread
from .scales import Time

MOST_POINTS = 400
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """What a plot shows at one place: a bucket, or several that had to share it."""

    start: datetime
    counts: Counts
    waiting: Spread
    processing: Spread


@dataclass(frozen=True, slots=True)
class Timeline:
    """The range of a report, cut into equal stretches of one or more buckets."""

    since: datetime
    until: datetime
    bucket: timedelta

    @property
    def stride(self) -> timedelta:
        """How long a stretch is."""
        buckets = ceil((self.until - self.since) / self.bucket)
        return self.bucket * max(ceil(buckets / MOST_POINTS), 1)

    @property
    def merged(self) -> int:
        """How many buckets share a point."""
        return round(self.stride / self.bucket)

    @property
    def starts(self) -> list[datetime]:
        """When the stretches begin."""
        return [self.since + n * self.stride for n in range(ceil((self.until - self.since) / self.stride))]

    @property
    def axis(self) -> Axis:
        """The same for plots."""
        length = self.until - self.since
        return Axis(Time(self.since, self.until).ticks(), self.stride / length)

    def index(self, start: datetime) -> int:
        """In which stretch a bucket lies."""
        return (start - self.since) // self.stride

    def points(self, buckets: Iterable[Bucket]) -> list[Point | None]:
        """One for each stretch; None where nothing happened."""
        places = self._placed(buckets, lambda bucket: bucket.start)
        return [
            _point(start, found) if found else None for start, found in zip(self.starts, places, strict=True)
        ]

    def burns(self, kept: Kept) -> list[Burn | None]:
        """The worst burn of each stretch."""
        places = self._placed(kept.burns, lambda burn: burn.start)
        return [max(found, key=kept.burn) if found else None for found in places]

    def _placed(self, items: Iterable[T], start: Callable[[T], datetime]) -> list[list[T]]:
        places: list[list[T]] = [[] for _ in self.starts]
        for item in items:
            if 0 <= (place := self.index(start(item))) < len(places):
                places[place].append(item)
        return places


def _point(start: datetime, buckets: Sequence[Bucket]) -> Point:
    return Point(
        start,
        sum((bucket.counts for bucket in buckets), Counts()),
        worst([bucket.waiting for bucket in buckets]),
        worst([bucket.processing for bucket in buckets]),
    )


def worst(spreads: Sequence[Spread]) -> Spread:
    """The highest of each percentile: what several buckets have in common that share a point."""

    def highest(name: str) -> float | None:
        return max((value for each in spreads if (value := getattr(each, name)) is not None), default=None)

    messages = sum(each.messages for each in spreads)
    return Spread(messages, highest("p50"), highest("p95"), highest("p99"))
