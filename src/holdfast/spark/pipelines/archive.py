"""The pipeline archive: ended messages become files of a lake, and then leave the database, each once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.client import BatchConflictError

from ._batches import Batch, Content, Ledger, archive_days
from ._explain import explain
from ._lake_files import LakeFiles, too_long
from ._left import Left
from ._needs import Archives, Need
from ._pipeline import PipelineError, Run
from ._storage import Storage

ROWS = 100_000  # messages of a file, unless told otherwise
MOST_ROWS = 1_000_000
WAVE_ROWS = 2_000_000  # ids and checksums that the driver holds at a time
# What may be wrong with a single batch. Whatever is wrong with the database ends the run.
OF_A_BATCH = (PipelineError, BatchConflictError, PySparkException, Py4JError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What queues keep of their ended messages, into a lake of Parquet."""

    name: ClassVar[str] = "archive"
    summary: ClassVar[str] = "Ended messages into a lake of Parquet, compared, then out of the database"

    lake: str
    queues: list[str] = field(default_factory=list)
    until: str | None = None
    older_than: float | None = None
    keep: bool = False
    rows: int = ROWS

    @property
    def exclusive(self) -> str:
        """Two runs would take the same messages to two places."""
        return "archive"

    @property
    def needs(self) -> Sequence[Need]:
        """The queues, and the right to remove."""
        return [Archives(self.queues)]

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if not 1 <= self.rows <= MOST_ROWS:
            raise PipelineError(f"--rows: got {self.rows}; expected 1 to {MOST_ROWS:,}")
        if self.until is not None and self.older_than is not None:
            raise PipelineError("got a time and an age; expected one of them")

    def run(self, run: Run) -> Mapping[str, Any]:
        """Finish what an earlier run began; then batch after batch."""
        spark = _plain(run.spark)
        storage = Storage(spark, self.lake)
        files = LakeFiles(spark, storage)
        with run.step("looking at the archive"):
            until = self._until(run)
            days = archive_days(run, self.queues, until)
        left = _unnameable(run, list(days))
        if run.dry_run:
            return {"lake": str(storage), "messages": _counted(days), "queues": days}
        with run.step("looking at the lake"):
            ledger = Ledger(run, self._lake(run, files, str(storage)), self.keep)
            files.clear()
        work = Work(self, run, files, ledger, until, _counted(days), left)
        work.finish(ledger.unfinished())
        for wave in work.waves([queue for queue in days if queue not in left]):
            work.take(wave)
        files.clear()
        left.refuse()
        return {"lake": str(storage), **work.figures}

    def _lake(self, run: Run, files: LakeFiles, place: str) -> str:
        known = files.note()
        if known is None:
            # The database first: a note that it does not know of would be refused.
            known = Ledger.register(run, place)
            files.claim(known)
        return known

    def _until(self, run: Run) -> datetime:
        """Before which messages must have ended; by the clock of the database, and never after now."""
        with run.database() as connection:
            row = connection.execute("select holdfast.now()").fetchone()
        assert row is not None
        now: datetime = row[0]
        if self.until is not None:
            return min(now, datetime.fromisoformat(self.until))
        return now - timedelta(seconds=self.older_than or 0)


class Work:
    """Takes batches to the lake, and counts."""

    def __init__(
        self,
        archive: Archive,
        run: Run,
        files: LakeFiles,
        ledger: Ledger,
        until: datetime,
        total: int,
        left: Left,
    ) -> None:
        self.figures = {"files": 0, "messages": 0, "removed": 0, "finished": 0}
        self._archive = archive
        self._run = run
        self._files = files
        self._ledger = ledger
        self._until = until
        self._total = total
        self._left = left
        self._closed: set[int] = set()

    def finish(self, begun: Sequence[Batch]) -> None:
        """Do what an earlier run has left undone."""
        mine = [batch for batch in begun if self._is_meant(batch)]
        for first in range(0, len(mine), self._width):
            self._finish(mine[first : first + self._width])
        self.figures["finished"] = len(self._closed)

    def waves(self, queues: Sequence[str]) -> Iterator[Sequence[Batch]]:
        """Batches of all queues, as many at a time as Spark has something to do with."""
        wave: list[Batch] = []
        for queue in queues:
            last: Batch | None = None
            while last := self._open(queue, last):
                wave.append(last)
                if len(wave) >= self._width:
                    yield wave
                    wave = []
        if wave:
            yield wave

    def take(self, wave: Sequence[Batch], *, step: str = "archiving") -> None:
        """Bring a wave to the lake; then let the database go of what is there."""
        with self._run.step(step):
            self._tell()
            for batch, content in self._in_lake(wave):
                self.figures["removed"] += self._ledger.close(batch, content)
                self._closed.add(batch.id)
                self.figures["messages"] += len(content)
                self.figures["files"] += bool(content)
                self._tell()

    def _finish(self, wave: Sequence[Batch]) -> None:
        """Finish a wave; if it fails, each batch on its own, so that one is not in the way of the others."""
        try:
            self.take(wave, step="finishing what was begun")
        except OF_A_BATCH as error:
            self._run.check()  # what is cancelled fails too
            if len(wave) > 1:
                for batch in [each for each in wave if each.id not in self._closed]:
                    self._finish([batch])
            else:
                self._left.add(wave[0].queue, f"batch {wave[0].id} of {wave[0].queue}: {_told(error)}")

    def _in_lake(self, wave: Sequence[Batch]) -> Iterator[tuple[Batch, Content]]:
        """Batches with what their files hold: those that have their place, then those that get it now."""
        states: dict[bool, list[Batch]] = defaultdict(list)
        for batch in wave:
            states[self._files.published(batch)].append(batch)
        if there := states[True]:
            found = self._files.content(there)
            yield from ((batch, found.get(batch.id, Content())) for batch in there)
        if missing := states[False]:
            found = self._files.write(missing, self._run.url)
            yield from ((batch, self._placed(batch, found.get(batch.id))) for batch in missing)

    def _placed(self, batch: Batch, content: Content | None) -> Content:
        self._run.check()
        if content is None:
            return Content()  # retention has been quicker
        self._files.publish(batch)
        return content

    def _open(self, queue: str, behind: Batch | None) -> Batch | None:
        try:
            return self._ledger.open(queue, until=self._until, limit=self._archive.rows, behind=behind)
        except BatchConflictError as error:  # another lake has to be done with it first
            self._left.add(queue, f"queue {queue}: {_told(error)}")
            return None

    def _is_meant(self, batch: Batch) -> bool:
        """What was kept on purpose stays until it is asked for; what is open is in the way of all else."""
        if batch.state == "open":
            return True
        asked = not self._archive.queues or batch.queue in self._archive.queues
        return asked and batch.last_at < self._until

    @property
    def _width(self) -> int:
        """How many batches go at a time."""
        cores = self._run.spark.sparkContext.defaultParallelism
        return max(1, min(2 * cores, WAVE_ROWS // self._archive.rows))

    def _tell(self) -> None:
        done = self.figures["messages"]
        # What was kept before counts in the archive, and is not taken again.
        self._run.advance(done, None if self._archive.keep else max(done, self._total))


def _plain(spark: SparkSession) -> SparkSession:
    """A session that writes what others can read, and sorts nothing to do so."""
    own = spark.newSession()
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    own.conf.set("spark.sql.maxConcurrentOutputFileWriters", "2")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def _unnameable(run: Run, queues: Sequence[str]) -> Left:
    """Queues that no folder can be named after: seen before a batch is opened that could not be finished."""
    left = Left(run)
    for queue in queues:
        if reason := too_long(queue):
            left.add(queue, reason)
    return left


def _told(error: Exception) -> str:
    problem = explain(error)
    return f"{problem}. {problem.detail}" if problem.detail else str(problem)


def _counted(days: Mapping[str, Mapping[str, int]]) -> int:
    return sum(sum(each.values()) for each in days.values())
