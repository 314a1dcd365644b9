"""A stream from queue q to queue out, in a process of its own, to be killed. Argument: the checkpoint.

It drains q in batches of 500 and ends. What happens to it on the way, the environment says:
HOLDFAST_TEST_FATE is a point and the number of a batch, as in "asked 2". At that point it kills the JVM; or,
if HOLDFAST_TEST_NOTE names a file, it makes that file and takes a nap.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from holdfast.spark.consume import ConsumeReader
from holdfast.spark.datasource import HoldfastDataSource
from holdfast.spark.options import Options, Use
from holdfast.spark.session import make_session
from holdfast.spark.stream_sink import BATCH_ID, BatchWriter
from tests.spark.conftest import SMALL

FATE, NOTE, LEASE = "HOLDFAST_TEST_FATE", "HOLDFAST_TEST_NOTE", "HOLDFAST_TEST_LEASE"
NAP = 3.0  # seconds


def meet(point: str, batch: int) -> None:
    """Meet the fate that waits at this point of this batch, counted from 1; once, if it is a nap."""
    if os.environ.get(FATE) != f"{point} {batch}":
        return
    if note := os.environ.get(NOTE):
        if not Path(note).exists():
            Path(note).touch()
            time.sleep(NAP)
        return
    for parent in psutil.Process().parents():
        if "java" in parent.name():
            os.kill(parent.pid, signal.SIGKILL)
    time.sleep(60)


class FatefulReader(ConsumeReader):
    """Meets its fate when a batch is claimed and Spark does not know yet."""

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:
        """Claim; then perhaps the end."""
        found = super().latestOffset(start, limit)
        if found != start:
            meet("asked", found["batch"])
        return found


class FatefulWriter(BatchWriter):
    """Meets its fate when rows are staged, or when they are sent and Spark does not know yet."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage; then perhaps the end."""
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        meet("staged", int(context.getLocalProperty(BATCH_ID) or 0) + 1)
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Send; then perhaps the end."""
        super().commit(messages, batchId)
        meet("sent", batchId + 1)


class Fateful(HoldfastDataSource):
    """The data source, with a fate."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "fateful"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The stream read."""
        return FatefulReader(Options.parse(self.options, Use.READ_STREAM), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The stream write."""
        return FatefulWriter(Options.parse(self.options, Use.WRITE_STREAM), schema, overwrite)


def main(checkpoint: str) -> None:
    """Drain one queue into another."""
    session = make_session("streamer", master="local[2]", settings=SMALL)
    session.dataSource.register(Fateful)
    options = {"queue": "q", "mode": "consume", "max_messages": "500", "lease": os.environ.get(LEASE, "60 s")}
    rows = session.readStream.format("fateful").options(**options).load().select("payload")
    query = (
        rows.writeStream.format("fateful")
        .option("queue", "out")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
