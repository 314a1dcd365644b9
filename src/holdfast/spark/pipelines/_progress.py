"""How far a query is: counted by what Spark tells of each batch, and told on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from holdfast.spark.transforms.stream import COUNT, ROWS

from ._pipeline import Run

LOOKING = 3.0  # seconds between two looks at what waits
NOTING = 60.0  # seconds between two remarks


class Progress(StreamingQueryListener):
    """Counts batches, messages and rows of one query. Spark calls it from a thread of its own."""

    def __init__(self) -> None:
        self.batches = 0
        self.messages = 0
        self.rows = 0
        self.last = ""  # the last batch, for people
        self.offsets: list[dict[str, Any]] = []  # of its sources, up to where Spark's commit log has all
        self._batch = -1
        self._ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The query begins."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        told = event.progress
        if told.batchId == self._batch:
            return
        self._batch = told.batchId
        self.batches += 1
        self.messages += told.numInputRows
        observed = told.observedMetrics.get(COUNT)
        self.rows += observed[ROWS] if observed is not None else 0
        rate = f"{told.processedRowsPerSecond:,.0f}/s"
        self.last = f"batch {told.batchId}: {told.numInputRows:,} messages, {rate}"
        ends = [json.loads(source.endOffset) for source in told.sources if source.endOffset]
        self.offsets = [end for end in ends if isinstance(end, dict)]

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There was nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query has ended; all its batches were told before."""
        self._ended.set()

    def await_end(self, seconds: float) -> bool:
        """Wait until all was told, at most so long."""
        return self._ended.wait(seconds)


class Teller:
    """Tells a run how far its query is: what waits, and remarks for people, only now and then.

    waits: how many messages wait, or None if that is not known.
    """

    def __init__(self, run: Run, progress: Progress, waits: Callable[[], int | None]) -> None:
        self._run = run
        self._progress = progress
        self._waits = waits
        self._waiting: int | None = None
        self._looked = self._noted = -NOTING
        self._batches = 0

    def tell(self) -> None:
        """Tell what is new."""
        done, now = self._progress.messages, time.monotonic()
        if now - self._looked >= LOOKING:
            self._looked, self._waiting = now, self._waits()
        self._run.advance(done, None if self._waiting is None else done + self._waiting)
        if self._progress.batches > self._batches and now - self._noted >= NOTING:
            self._noted, self._batches = now, self._progress.batches
            left = "" if self._waiting is None else f", {self._waiting:,} waiting"
            self._run.note(f"{self._progress.last}{left}")
