"""The pipeline insights: what happened in queues, as rollups and as a report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Row

from holdfast.spark.report.figures import Counts, Live, Objective
from holdfast.spark.report.objectives import parsed
from holdfast.spark.report.page import render
from holdfast.spark.transforms.insights.buckets import BUCKETS, floored, raised
from holdfast.spark.transforms.insights.errors import errors_of
from holdfast.spark.transforms.insights.facts import Range, counted, facts_of_ended, facts_of_live
from holdfast.spark.transforms.insights.insight import by_bucket, by_queue
from holdfast.spark.transforms.insights.samples import facts_of_samples
from holdfast.spark.transforms.insights.slo import promised

from . import _rollups
from ._figures import Gathered, totals
from ._moved import Moved, not_read
from ._needs import Finds, Need, Reads
from ._pipeline import PipelineError, Run, fingerprint
from ._sources import Moment, Queue, coverage, moment

POINTS = 400  # buckets that are enough for a plot
MOST_BUCKETS = 3_000
MOST_OBJECTIVES = 100
LISTED = 25  # errors, keys and consumers of each queue
LISTED_IN_BUCKET = 5
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Insights:
    """Lake, archive, queues and samples, to rollups and a report."""

    name: ClassVar[str] = "insights"
    summary: ClassVar[str] = "What happened in queues: rollups by time, and a report as one HTML file"

    queues: list[str] = field(default_factory=list)
    since: datetime | timedelta = DAY  # a duration is so long ago
    until: datetime | timedelta = timedelta()
    bucket: str | None = None
    lake: str | None = None
    objectives: list[str] = field(default_factory=list)
    report: str | None = "holdfast-insights.html"
    output: str | None = None
    rollups: bool = True

    @property
    def exclusive(self) -> str:
        """Two that write the same rollups would only hinder each other."""
        return f"insights {self.output or fingerprint(sorted(self.queues))}"[:200]

    def check(self) -> None:
        """Refuse what cannot be."""
        if self.bucket is not None and self.bucket not in BUCKETS:
            raise PipelineError(f"--bucket: got {self.bucket}; expected one of {', '.join(BUCKETS)}")
        if len(self._promised()) > MOST_OBJECTIVES:
            raise PipelineError(f"--objective: expected at most {MOST_OBJECTIVES}")
        if self.report is not None and not Path(self.report).absolute().parent.is_dir():
            raise PipelineError(f"--report: got {self.report}; expected a file in a folder that is there")
        if not (self.report or self.output or self.rollups):
            raise PipelineError("got nothing to write; expected a report, rollups or --output")

    @property
    def needs(self) -> Sequence[Need]:
        """The lake, which may know queues that are gone; without one, the queues."""
        return [Finds(self.lake)] if self.lake else [Reads(queue, "archive") for queue in self.queues]

    def run(self, run: Run) -> Mapping[str, Any]:
        """Read, count, and write what comes out."""
        with moment(run) as now:
            with run.step("looking at the queues"):
                work = Work.of(self, run, now, self._promised())
                work.remark()
            if run.dry_run:
                return work.previewed(now)
            counts = work.read(now)
        return work.written(*counts)

    def _promised(self) -> list[Objective]:
        try:
            return [each for text in self.objectives for each in parsed(text)]
        except ValueError as error:
            raise PipelineError(f"--objective: {error}") from None


class Work:
    """What one run of insights knows, reads and writes."""

    def __init__(
        self,
        insights: Insights,
        run: Run,
        span: Range,
        label: str,
        queues: Sequence[Queue],
        objectives: Sequence[Objective],
        live: Mapping[str, Live],
        moved: Sequence[Moved],
        made_at: datetime,
    ) -> None:
        self._insights = insights
        self._run = run
        self._span = span
        self._label = label
        self._queues = queues
        self._objectives = objectives
        self._live = live
        self._moved = moved
        self._made_at = made_at
        self._frames: list[DataFrame] = []

    @classmethod
    def of(cls, insights: Insights, run: Run, now: Moment, objectives: Sequence[Objective]) -> Work:
        """What the parameters mean at this moment."""
        span, label = ranged(insights.since, insights.until, insights.bucket, now.at)
        queues = now.queues(insights.queues, in_lake=insights.lake is not None)
        if not queues:
            raise PipelineError("there are no queues to look at; make one with holdfast queue create")
        names = {queue.name for queue in queues}
        for each in objectives:
            if each.queue not in names:
                raise PipelineError(f"--objective: got {each.queue}; expected a queue that is looked at")
        moved = now.moved(queues, span, insights.lake)
        return cls(insights, run, span, label, queues, objectives, now.live_figures(queues), moved, now.at)

    def remark(self) -> None:
        """Tell those who watch what is missed."""
        for each in self._moved:
            self._run.note(str(each))

    def previewed(self, now: Moment) -> Mapping[str, Any]:
        """Count what would be read, and say what would be written."""
        with self._run.step("counting"):
            ended = now.ended(self._queues, self._span, self._insights.lake).count()
            live = now.live(self._queues, self._span).count()
            samples = now.samples(self._queues, self._span).count()
        read = {"ended": ended, "live": live, "samples": samples}
        buckets = -((self._span.since - self._span.until) // self._span.bucket)
        most = {"rollups_at_most": buckets * len(self._queues) if self._insights.rollups else 0}
        return {**self._told(), **read, **most, **self._places()}

    def read(self, now: Moment) -> tuple[DataFrame, DataFrame]:
        """Count all facts, and all errors, in one moment of the database."""
        covered = now.covered(self._queues, self._span)
        looked_back = self._made_at - self._span.since
        instead = now.covered_instead(self._queues, self._span, self._moved)
        in_lake = self._insights.lake is not None
        known = coverage(self._run, self._queues, covered, instead, looked_back=looked_back, in_lake=in_lake)
        with self._run.step("reading messages"):
            ended = now.ended(self._queues, self._span, self._insights.lake)
            facts = [
                facts_of_ended(ended, known, self._span),
                facts_of_live(now.live(self._queues, self._span), known, self._span),
                facts_of_samples(now.samples(self._queues, self._span), known, self._span),
            ]
            cells = self._held(counted(facts))
        with self._run.step("reading errors"):
            return cells, self._held(errors_of(ended, self._span))

    def written(self, cells: DataFrame, errors: DataFrame) -> Mapping[str, Any]:
        """Write rollups and the report."""
        try:
            with self._run.step("adding up"):
                rows = by_queue(cells, errors, LISTED).collect()
                kept = promised(self._run.spark, self._objectives)
                found = self._held(by_bucket(cells, errors, kept, LISTED_IN_BUCKET))
            if self._insights.output:
                with self._run.step(f"writing to {self._insights.output}"):
                    _rollups.saved(found, self._insights.output, self._label, self._span, self._names())
            return self._reported(found, rows)
        finally:
            for frame in self._frames:
                with suppress(Py4JError):  # Spark is gone; what ended it is on its way up
                    frame.unpersist()

    def _reported(self, found: DataFrame, rows: Sequence[Row]) -> Mapping[str, Any]:
        known = totals(self._names(), rows, self._live)
        gathered = Gathered(self._span, known, self._objectives)
        written = 0
        with self._run.step("writing rollups"):
            for row in self._put(found):
                gathered.add(row)
                written += 1
        if self._insights.report:
            with self._run.step(f"writing {self._insights.report}"):
                figures = gathered.figures(rows, self._made_at, self._notes())
                replaced(Path(self._insights.report), render(figures))
        counts = sum((each.counts for each in known), Counts())
        happened = {"sent": counts.sent, "done": counts.done, "failed_or_dead": counts.lost}
        return {**self._told(), **happened, "rollups": written, **self._places()}

    def _put(self, found: DataFrame) -> Iterator[Row]:
        rows = _rollups.in_turn(found)
        if not self._insights.rollups:
            return rows
        there = [queue.name for queue in self._queues if queue.there]
        return _rollups.put(self._run, rows, self._span, there)

    def _held(self, frame: DataFrame) -> DataFrame:
        """A frame that is read once, now: Spark keeps it in memory, or on disk."""
        self._frames.append(frame.persist())
        frame.count()
        return frame

    def _names(self) -> list[str]:
        return [queue.name for queue in self._queues]

    def _told(self) -> dict[str, Any]:
        period = {"since": self._span.since.isoformat(), "until": self._span.until.isoformat()}
        return {"queues": len(self._queues), **period, "bucket": self._label, **not_read(self._moved)}

    def _places(self) -> dict[str, Any]:
        table = "holdfast.rollup" if self._insights.rollups else None
        return {"report": self._insights.report, "output": self._insights.output, "table": table}

    def _notes(self) -> list[str]:
        """What is to be said about the sources."""
        lake = f" and the lake {self._insights.lake}" if self._insights.lake else ""
        notes = [
            f"Read were the archive, the queues as they were at {self._made_at:%Y-%m-%d %H:%M:%S} UTC,"
            f" the samples of each minute{lake}."
        ]
        notes += [
            f"{each}. Without it the samples tell what happened to them (~), where there are some, and"
            " their errors, keys and consumers are missing."
            for each in self._moved
        ]
        silent = [queue.name for queue in self._queues if "done" not in queue.keep and queue.there]
        if silent:
            notes.append(
                f"Messages that are done are not kept by {shown(silent)}: how long they waited and took (~)"
                " is what the samples estimate, by class: 10 ms, 100 ms, 1 s, 10 s, 1 min, 10 min, 1 h."
                " Bursts between two looks escape them. To know it exactly, let the queue keep them."
            )
        return notes


def ranged(
    since: datetime | timedelta, until: datetime | timedelta, bucket: str | None, now: datetime
) -> tuple[Range, str]:
    """A range in whole buckets, and the name of their size: so small that there are enough for a plot."""
    first, last = (
        now - each if isinstance(each, timedelta) else each.astimezone(UTC) for each in (since, until)
    )
    if first >= last:
        raise PipelineError(
            f"got {first.isoformat()} to {last.isoformat()}; expected --since to be before --until"
        )
    label = bucket or next((name for name, size in BUCKETS.items() if last - first <= POINTS * size), "1d")
    size = BUCKETS[label]
    span = Range(floored(first, size), raised(last, size), size)
    if (span.until - span.since) / size > MOST_BUCKETS:
        raise PipelineError(
            f"--bucket {label}: got more than {MOST_BUCKETS:,} of them; expected larger ones, or less time"
        )
    return span, label


def replaced(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def shown(names: Sequence[str], most: int = 5) -> str:
    """A few names, and how many more there are."""
    first = ", ".join(names[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
