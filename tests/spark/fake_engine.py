"""Spark's micro-batch engine without Spark: the calls in its order, and a crash wherever a test wants one.

What survives a crash is on the disk: the offset log, the commit log, and what the sink has committed. The
sink is an exactly-once one: a batch that it has is not written again. Offsets pass through JSON and the
reader through pickle, as they do in Spark.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from holdfast.spark._fetch import close_spare

Row = dict[str, Any]
# Between which calls a crash can come, in the order of a batch.
POINTS = ("asked", "logged", "planned", "read", "written", "committed")


class Crashed(Exception):
    """The engine was killed at the point that the test named."""


@dataclass
class Disk:
    """What outlives the engine. The sink keeps the rows of each batch that it has committed."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)

    def rows(self) -> Iterator[Row]:
        """All rows that the sink has."""
        for batch in sorted(self.sink):
            yield from self.sink[batch]


class FakeEngine:
    """One run of a query: from its start until it is stopped or crashes."""

    def __init__(
        self, make: Callable[[], DataSourceStreamReader], disk: Disk, *, available_now: bool = False
    ) -> None:
        self._disk = disk
        self.reader = make()
        try:
            if available_now:
                assert isinstance(self.reader, SupportsTriggerAvailableNow)
                self.reader.prepareForTriggerAvailableNow()
            self._initial = json.dumps(self.reader.initialOffset())
        except BaseException:
            self.stop()
            raise

    def step(
        self, crash: str | None = None, *, limit: ReadLimit | None = None, asks: int = 1, reads: int = 1
    ) -> bool:
        """One batch; False if there was nothing to do. asks, reads: how often it makes these calls."""
        disk = self._disk
        if len(disk.offsets) == disk.commits:
            start = disk.offsets[-1] if disk.offsets else self._initial
            limit = limit or self.reader.getDefaultReadLimit()
            latest: dict[str, Any] = {}
            for _ in range(asks):
                latest = json.loads(json.dumps(self.reader.latestOffset(json.loads(start), limit)))
            self._perhaps(crash, "asked")
            if latest == json.loads(start):
                return False
            disk.offsets.append(json.dumps(latest))
            self._perhaps(crash, "logged")
        self._run(len(disk.offsets), crash, reads)
        return True

    def drain(self) -> int:
        """Batch after batch until there is nothing to do; returns how many."""
        batches = 0
        while self.step():
            batches += 1
        return batches

    def stop(self) -> None:
        """End, whether in order or not: Spark calls stop in both cases, if it can."""
        self.reader.stop()
        close_spare()

    def _run(self, batch: int, crash: str | None, reads: int) -> None:
        disk = self._disk
        start = disk.offsets[batch - 2] if batch > 1 else self._initial
        partitions = self.reader.partitions(json.loads(start), json.loads(disk.offsets[batch - 1]))
        self._perhaps(crash, "planned")
        rows: list[Row] = []
        task = pickle.dumps(self.reader)
        for partition in partitions:
            found: list[Row] = []
            for _ in range(reads):
                found = self._task(task, partition)
            self._perhaps(crash, "read")
            rows += found
        disk.sink.setdefault(batch, rows)
        self._perhaps(crash, "written")
        disk.commits = batch
        self._perhaps(crash, "committed")
        if batch > 1:
            self.reader.commit(json.loads(disk.offsets[batch - 2]))

    def _task(self, task: bytes, partition: InputPartition) -> list[Row]:
        reader: DataSourceStreamReader = pickle.loads(task)
        batches = list(reader.read(pickle.loads(pickle.dumps(partition))))
        assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
        return [row for batch in batches for row in batch.to_pylist()]

    def _perhaps(self, crash: str | None, point: str) -> None:
        if crash == point:
            self.stop()
            raise Crashed(point)


def finish(make: Callable[[], DataSourceStreamReader], disk: Disk) -> None:
    """Run a query from where the disk says it stands until there is nothing to do."""
    run = FakeEngine(make, disk)
    run.drain()
    run.stop()


def tell(machine: type[RuleBasedStateMachine], *, stories: int) -> None:
    """Tell some short stories of a machine, the same ones each time."""
    _tell(machine, settings(max_examples=stories, stateful_step_count=20, derandomize=True))


def tell_many(machine: type[RuleBasedStateMachine], *, stories: int) -> None:
    """Tell long stories of a machine, other ones each time."""
    _tell(machine, settings(max_examples=stories, stateful_step_count=40))


def _tell(machine: type[RuleBasedStateMachine], chosen: settings) -> None:
    patient = settings(chosen, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=patient)
