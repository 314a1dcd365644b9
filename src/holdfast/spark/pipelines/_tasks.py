"""Spark's own progress: how many tasks of the stages that are under way are done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

POLL_SECONDS = 0.25

Tell = Callable[[int, int], None]


class Tasks:
    """Asks Spark how far it is, and tells it, as long as the context lasts."""

    def __init__(self, spark: SparkSession, tell: Tell) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="spark progress", daemon=True)

    def __enter__(self) -> Tasks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._tell(0, 0)

    def look(self) -> tuple[int, int]:
        """How many tasks are done, and how many there are; 0 and 0 when nothing is under way."""
        stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        under_way = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in under_way), sum(stage.numTasks for stage in under_way)

    def _poll(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            try:
                self._tell(*self.look())
            except (Py4JError, OSError):
                # Spark is gone; what ended it is told by whoever called it.
                return
