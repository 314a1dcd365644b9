"""Repairs: a frame of mended dead letters goes into a stage, and from there back to a queue, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from holdfast.spark._intake import Repairing
from holdfast.spark._quarantine import Quarantine
from holdfast.spark._session import Session
from holdfast.spark.options import Options
from holdfast.spark.sink import Stage

from ._chunks import STAGED, Staged, read_reports, reasons_aside, reported


@dataclass(frozen=True, slots=True)
class Repairs:
    """Mended dead letters on their way."""

    options: Options
    name: str
    run: str
    intake: Repairing
    quarantine: str | None

    def stage(self, frame: DataFrame) -> list[Staged]:
        """Stage all of them; what cannot be sent back is set aside and counted."""
        return read_reports(frame.sortWithinPartitions("id").mapInArrow(self._fill, STAGED).collect())

    def keep(self, staged: Sequence[Staged]) -> None:
        """Remove what attempts that do not count have set aside."""
        if self.quarantine:
            Quarantine(self.quarantine, self.name).keep([each.file for each in staged if each.file])

    def drop(self) -> None:
        """Remove what this run has staged."""
        self._stage().drop([])

    def _stage(self) -> Stage:
        return Stage(replace(self.options, quarantine=None), self.name, self.run, self.intake)

    def _fill(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a task does."""
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        with ExitStack() as stack:
            aside = reasons_aside(self.quarantine, self.name, number, stack)
            part = self._stage().fill(batches, number, aside)
        yield reported(part, 0, aside.reasons)


class Sender:
    """Sends back what is staged, over one connection: its server has the plans at hand."""

    def __init__(self, repairs: Repairs) -> None:
        self._intake = repairs.intake
        self._patience = repairs.options.retry_for
        self._session = Session(url=repairs.options.url, queue=repairs.intake.queue)

    def gather(self, staged: Sequence[Staged]) -> int | None:
        """Bring what was staged together; returns the stage, None if there is nothing."""
        stages = [each.stage for each in staged if each.messages]
        if not stages:
            return None
        total = sum(each.messages for each in staged)
        found: int = self._call("select holdfast.gather_staged(%s, %s)", [stages, total])[0][0]
        return found

    def send(self, stage: int, after: int, most: int) -> list[tuple[int, str | None]]:
        """Send the next ones back: their ids, and why one stays."""
        intake = self._intake
        return self._call(
            "select id, stays from holdfast.redrive_staged(%s, %s, %s, %s, %s, %s) order by id",
            [intake.queue, stage, list(intake.columns), intake.target, after, most],
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._session.close()

    def _call(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        return self._session.attempt(
            lambda: self._session.connection.execute(statement.encode(), parameters).fetchall(),
            patience=self._patience,
        )
