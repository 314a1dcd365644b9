"""Rows that pass through a frame, counted on their way: no job of its own, and nothing is read twice."""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

PATIENCE = 5.0  # seconds that Spark may take to tell what it has counted
PAUSE = 0.02  # seconds


class Counting:
    """A frame that counts its rows in the first job that goes through it."""

    def __init__(self, frame: DataFrame) -> None:
        self._observation = Observation()
        self.frame = frame.observe(self._observation, F.count(F.lit(1)).alias("rows"))

    def rows(self) -> int | None:
        """How many there were; None if no job went through the frame."""
        deadline = time.monotonic() + PATIENCE
        # The observation itself would be waited for without end, if the frame is not used.
        while not self._is_complete():
            if time.monotonic() > deadline:
                return None
            time.sleep(PAUSE)
        return int(self._observation.get["rows"])

    def _is_complete(self) -> bool:
        observed = self._observation._jo
        return observed is not None and bool(observed.future().isCompleted())
