"""Rows of insights as figures of the report. What is gathered here is bounded, see Gathered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row

from holdfast.spark.report.figures import (
    COUNTED,
    Bucket,
    Burn,
    Consumer,
    Counts,
    Failure,
    Figures,
    HotKey,
    Kept,
    Live,
    Objective,
    Spread,
    Total,
)
from holdfast.spark.report.page import SPARKED_QUEUES
from holdfast.spark.report.timeline import worst
from holdfast.spark.transforms.insights.facts import Range
from holdfast.spark.transforms.insights.percentiles import ERROR
from holdfast.spark.transforms.insights.samples import CLASSES

OTHERS = ""  # the queue of the buckets that sum up all that have no plot of their own


class Gathered:
    """The figures of one report, as rows come in.

    It holds a total for each queue, with the first few errors, keys and consumers; the buckets of the
    busiest queues, and of all others summed up; and those of each objective.
    """

    def __init__(self, span: Range, totals: Sequence[Total], objectives: Sequence[Objective]) -> None:
        self._span = span
        self._totals = totals
        ranked = sorted(totals, key=lambda total: (-total.counts.sent - total.counts.ended, total.queue))
        self._plotted = {total.queue for total in ranked[:SPARKED_QUEUES]}
        self._buckets: list[Bucket] = []
        self._others: dict[datetime, Bucket] = {}
        self._burns: dict[Objective, list[Burn]] = {objective: [] for objective in objectives}

    def add(self, row: Row) -> None:
        """Take in a bucket of a queue."""
        found = bucket(row)
        if found.queue in self._plotted:
            self._buckets.append(found)
        else:
            self._others[found.start] = together(self._others.get(found.start), found)
        for each in row.objectives or ():
            objective = Objective(row.queue, each.measure, each.percentile, each.seconds)
            self._burns[objective].append(Burn(found.start, each.messages, each.over))

    def figures(self, rows: Sequence[Row], made_at: datetime, notes: Sequence[str]) -> Figures:
        """All of it, with what the totals list."""
        return Figures(
            since=self._span.since,
            until=self._span.until,
            bucket=self._span.bucket,
            made_at=made_at,
            totals=self._totals,
            buckets=[*self._buckets, *self._others.values()],
            failures=[failure(queue, each) for queue, each in listed(rows, "errors")],
            keys=[HotKey(queue, each.key, each.messages) for queue, each in listed(rows, "keys")],
            consumers=[consumer(queue, each) for queue, each in listed(rows, "consumers")],
            objectives=[Kept(objective, tuple(burns)) for objective, burns in self._burns.items()],
            notes=notes,
        )


def totals(queues: Sequence[str], rows: Sequence[Row], live: Mapping[str, Live]) -> list[Total]:
    """One for each queue, whether something happened in it or not."""
    found = {row.queue: row for row in rows}
    return [total(queue, found.get(queue), live.get(queue)) for queue in queues]


def total(queue: str, row: Row | None, live: Live | None) -> Total:
    """A queue over the whole range."""
    if row is None:
        return Total(queue, Counts(), live=live)
    return Total(
        queue,
        counts(row),
        spread(row, "waiting"),
        spread(row, "processing"),
        tuple(row.estimated),
        row.erring_count,
        row.fatal_count,
        row.keyed,
        live,
    )


def bucket(row: Row) -> Bucket:
    """A queue in a bucket."""
    measured = spread(row, "waiting"), spread(row, "processing")
    return Bucket(row.queue, utc(row.start), counts(row), *measured, tuple(row.estimated))


def together(one: Bucket | None, other: Bucket) -> Bucket:
    """The same bucket of several queues."""
    if one is None:
        return Bucket(OTHERS, other.start, other.counts, other.waiting, other.processing, other.estimated)
    return Bucket(
        OTHERS,
        one.start,
        one.counts + other.counts,
        worst([one.waiting, other.waiting]),
        worst([one.processing, other.processing]),
        tuple(sorted({*one.estimated, *other.estimated})),
    )


def counts(row: Row) -> Counts:
    """What happened."""
    return Counts(**{name: row[name] for name in COUNTED})


def spread(row: Row, measure: str) -> Spread:
    """How long it took; where it comes from samples, as their classes have it."""
    count, *values = (row[f"{measure}_{part}"] for part in ("count", "p50", "p95", "p99"))
    return Spread(count, *(map(snapped, values) if measure in row.estimated else values))


def snapped(seconds: float | None) -> float | None:
    """The end of a class of samples, if a percentile is that but for the width of its bin."""
    ends = [end for end in CLASSES.values() if seconds and abs(seconds - end) <= 2 * ERROR * end]
    return ends[0] if ends else seconds


def failure(queue: str, row: Row) -> Failure:
    """An error, by its fingerprint."""
    seen = utc(row.first_seen), utc(row.last_seen)
    return Failure(queue, row.fingerprint, row.messages, row.fatal, *seen, row.example)


def consumer(queue: str, row: Row) -> Consumer:
    """Somebody who did something."""
    took = Spread(row.messages, row.p50, row.p95, row.p99)
    return Consumer(queue, row.consumer, row.messages, row.failures, took)


def listed(rows: Sequence[Row], name: str) -> Iterator[tuple[str, Any]]:
    """What the lists of some rows hold, each with its queue."""
    return ((row.queue, each) for row in rows for each in row[name] or ())


def utc(moment: datetime) -> datetime:
    """Spark hands out local times without a zone."""
    return moment.astimezone(UTC)
