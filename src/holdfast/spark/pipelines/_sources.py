"""Where the figures of insights come from: the lake, the archive, the queues and their samples.

All that PostgreSQL says is of one moment: a transaction holds its snapshot while tasks read. The lake is
listed after that moment, so what had left the archive by then is in the lake; and what is in both counts
once (ended.once).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame

from holdfast.spark._database import literal
from holdfast.spark._fetch import Fetcher
from holdfast.spark.lake import read_lake
from holdfast.spark.options import Secret
from holdfast.spark.report.figures import Live
from holdfast.spark.transforms.insights import ended
from holdfast.spark.transforms.insights.facts import COVERAGE, Range
from holdfast.spark.transforms.insights.samples import SAMPLE, sampled_measures

from ._moved import Moved, lakes, moved
from ._pipeline import PipelineError, Run

STATES = ("archive", "dead", "live")
SAMPLING = timedelta(minutes=2)  # a sample may end so much later than the half of it
PATIENCE = 60.0  # seconds for a database that is away while samples are read
QUEUES = """
select q.queue, array(select jsonb_array_elements_text(q.effective -> 'keep')),
       (q.effective ->> 'keep_for')::interval,
       exists (select from holdfast.queues() o where o.effective ->> 'dead_letter' = q.queue)
from holdfast.queues() q where q.effective ->> 'kind' = 'queue' order by q.queue
"""
PRESENT = """
select q.name, s.state from unnest(%s::text[]) q(name) cross join unnest(%s::text[]) s(state)
where exists (select from holdfast.scan_bounds(q.name, s.state, case when s.state = 'archive' then %s end))
"""
COVERED = """
select q.name, min(s.began), max(s.ended)
from unnest(%s::text[]) q(name) cross join lateral holdfast.samples(q.name, %s, %s) s
where s.began + (s.ended - s.began) / 2 >= %s and s.began + (s.ended - s.began) / 2 < %s group by q.name
"""
LEFT = """
select q.name, min(s.began), max(s.ended)
from unnest(%s::text[], %s::timestamptz[], %s::timestamptz[]) q(name, first_at, last_at)
cross join lateral holdfast.samples(q.name, %s, %s) s
where s.ended > q.first_at and s.began <= q.last_at
  and s.began + (s.ended - s.began) / 2 >= %s and s.began + (s.ended - s.began) / 2 < %s group by q.name
"""
NOW = """
select s.queue, s.ready, s.scheduled, s.blocked, s.in_flight, s.dead, s.oldest_age, s.exact
from unnest(%s::text[]) q(name) cross join lateral holdfast.queue_stats(q.name) s
"""
SAMPLES = """
select {name} as queue, began, ended, sent, done, failed, dead, expired, discarded, nacked, lapsed,
       waiting::text as waiting, processing::text as processing
from holdfast.samples({name}, {since}, {until})
"""
ARROW = pa.schema(
    [
        ("queue", pa.string()),
        ("began", pa.timestamp("us", "UTC")),
        ("ended", pa.timestamp("us", "UTC")),
        *(
            (name, pa.int64())
            for name in ("sent", "done", "failed", "dead", "expired", "discarded", "nacked", "lapsed")
        ),
        ("waiting", pa.string()),
        ("processing", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that is looked at. One that is only in the lake is not there, and keeps nothing."""

    name: str
    keep: tuple[str, ...] = ()
    keep_for: timedelta = timedelta()
    for_dead: bool = False
    there: bool = True


class Moment:
    """The database as it is at one moment, as long as this is open."""

    def __init__(self, run: Run, connection: psycopg.Connection[Any]) -> None:
        self._run = run
        self._connection = connection
        ((self.at, self._snapshot),) = self._ask("select holdfast.now(), pg_export_snapshot()")

    def queues(self, names: Sequence[str], *, in_lake: bool) -> list[Queue]:
        """Those that are named, or all but those that hold the dead letters of others."""
        found = {row[0]: Queue(row[0], tuple(row[1]), *row[2:]) for row in self._ask(QUEUES)}
        missing = [name for name in names if name not in found]
        if missing and not in_lake:
            raise PipelineError(f"--queue: got {missing[0]}; expected the name of a queue that is no log")
        if names:
            return [found.get(name, Queue(name, there=False)) for name in dict.fromkeys(names)]
        return [queue for queue in found.values() if not queue.for_dead]

    def live_figures(self, queues: Sequence[Queue]) -> dict[str, Live]:
        """How many messages are where, now."""
        return {row[0]: Live(*row[1:]) for row in self._ask(NOW, _there(queues))}

    def covered(self, queues: Sequence[Queue], span: Range) -> dict[str, tuple[datetime, datetime]]:
        """From when to when there are samples of each queue."""
        period = (span.since, span.until + SAMPLING, span.since, span.until)
        return {row[0]: (row[1], row[2]) for row in self._ask(COVERED, _there(queues), *period)}

    def moved(self, queues: Sequence[Queue], span: Range, lake: str | None) -> list[Moved]:
        """What has left the database for a lake that is not read."""
        names = [queue.name for queue in queues]
        read = lakes(self._run.spark, lake)
        return moved(self._connection, names, span.since, span.until, read=read)

    def covered_instead(
        self, queues: Sequence[Queue], span: Range, found: Sequence[Moved]
    ) -> dict[str, tuple[datetime, datetime]]:
        """From when to when samples tell of a queue what has left it."""
        there = set(_there(queues))
        gone = [each for each in found if each.queue in there]
        stretches = ([getattr(each, name) for each in gone] for name in ("queue", "first_at", "last_at"))
        period = (span.since, span.until + SAMPLING, span.since, span.until)
        return {row[0]: (row[1], row[2]) for row in self._ask(LEFT, *stretches, *period)}

    def ended(self, queues: Sequence[Queue], span: Range, lake: str | None) -> DataFrame:
        """What has ended in the range; and what was sent in it and has ended since."""
        present = self._present(queues, span)
        sent = f"enqueued_at < {literal(span.until)}"
        archived = [
            ended.from_archive(
                self._read(name, "archive", ended.ARCHIVED, since=span.since.isoformat(), where=sent)
            )
            for name in present["archive"]
        ]
        died = f"enqueued_at >= {literal(span.since)}"
        dead = [
            ended.from_dead(self._read(name, "dead", ended.BURIED, where=died), name)
            for name in present["dead"]
        ]
        archive = self._together(archived, ended.TYPES)
        if lake is not None:
            names = [queue.name for queue in queues]
            kept = read_lake(self._run.spark, lake, queues=names, since=span.since)
            archive = ended.once(ended.from_lake(kept.where(kept["enqueued_at"] < span.until)), archive)
        return self._together([archive, *dead], ended.TYPES)

    def live(self, queues: Sequence[Queue], span: Range) -> DataFrame:
        """What was sent in the range and has not ended: queue and enqueued_at."""
        sent = f"enqueued_at >= {literal(span.since)} and enqueued_at < {literal(span.until)}"
        names = self._present(queues, span)["live"]
        read = [self._read(name, "live", ("queue", "enqueued_at"), where=sent) for name in names]
        return self._together(read, "queue STRING, enqueued_at TIMESTAMP")

    def samples(self, queues: Sequence[Queue], span: Range) -> DataFrame:
        """The samples of each queue, read by tasks."""
        spark = self._run.spark
        names = spark.createDataFrame([(name,) for name in _there(queues)], "queue STRING")
        read = Sampled(self._run.url, span.since, span.until + SAMPLING)
        return names.mapInArrow(read.rows, SAMPLE)

    def _present(self, queues: Sequence[Queue], span: Range) -> dict[str, list[str]]:
        """Which queues have messages in which state: a read of nothing takes a task all the same."""
        found = self._ask(PRESENT, _there(queues), list(STATES), span.since)
        return {state: sorted(row[0] for row in found if row[1] == state) for state in STATES}

    def _read(self, queue: str, state: str, columns: Sequence[str], **options: str) -> DataFrame:
        told = {"state": state, "columns": ",".join(columns), "snapshot": self._snapshot}
        return self._run.messages(queue, **told, **options)

    def _together(self, frames: Sequence[DataFrame], types: str) -> DataFrame:
        if not frames:
            return self._run.spark.createDataFrame([], types)
        return reduce(DataFrame.unionByName, frames)

    def _ask(self, query: str, *parameters: Any) -> list[Any]:
        return self._connection.execute(query.encode(), parameters).fetchall()


class Sampled:
    """Fetches the samples of queues, in a task."""

    def __init__(self, url: Secret, since: datetime, until: datetime) -> None:
        self._url = url
        self._since = since
        self._until = until

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All samples of the queues that are named."""
        period = {"since": literal(self._since), "until": literal(self._until)}
        with Fetcher(self._url, patience=PATIENCE) as fetcher:
            for batch in batches:
                for name in batch["queue"].to_pylist():
                    query = SAMPLES.format(name=literal(name), **period)
                    yield from fetcher.table(query).cast(ARROW).to_batches()


@contextmanager
def moment(run: Run) -> Iterator[Moment]:
    """Hold one moment of the database open."""
    with run.database() as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        connection.execute("set local idle_in_transaction_session_timeout = 0")
        yield Moment(run, connection)


def coverage(
    run: Run,
    queues: Sequence[Queue],
    covered: Mapping[str, tuple[datetime, datetime]],
    instead: Mapping[str, tuple[datetime, datetime]],
    *,
    looked_back: timedelta,
    in_lake: bool,
) -> DataFrame:
    """What is taken from samples, and in which time: a frame of COVERAGE.

    Instead: the time of which messages have left for a lake that is not read, so that samples tell it all.
    """

    def stretches(queue: Queue) -> Iterator[tuple[Sequence[str], datetime, datetime]]:
        complete = in_lake or queue.keep_for >= looked_back
        yield sampled_measures(queue.keep, complete=complete), *covered[queue.name]
        if queue.name in instead:
            yield sampled_measures((), complete=False), *instead[queue.name]

    rows = [(queue.name, list(stretches(queue))) for queue in queues if queue.name in covered]
    return run.spark.createDataFrame(rows, COVERAGE)


def _there(queues: Sequence[Queue]) -> list[str]:
    return [queue.name for queue in queues if queue.there]
