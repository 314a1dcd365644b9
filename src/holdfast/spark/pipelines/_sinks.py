"""Where a stream goes: a queue, a folder of Parquet, a table. Each refuses what it does not take."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from holdfast.spark._database import DatabaseError
from holdfast.spark._outgoing import check_columns
from holdfast.spark._table import find_table
from holdfast.spark.table_sink import TableWriter

from ._owner import Owner
from ._pipeline import FORMAT, PipelineError, Run
from ._storage import Storage
from .function import is_folder


class Sink(Protocol):
    """A target of a stream."""

    @property
    def modes(self) -> Sequence[str]:
        """The output modes that it takes."""
        ...

    def check(self, schema: StructType, checkpoint: str) -> None:
        """Refuse rows, or a checkpoint, that do not go with the target; or a target that is not there."""
        ...

    def take(self, checkpoint: str) -> None:
        """The stream is about to begin: make the target its own, if that takes anything."""
        ...

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """The stream into it, not begun yet."""
        ...

    def close(self) -> None:
        """The query has ended, in order."""
        ...


class QueueSink:
    """A queue: each batch is one write, of the name that Spark's ids of query and batch make."""

    modes = ("append", "update")

    def __init__(self, run: Run, queue: str) -> None:
        self._run = run
        self._queue = queue

    def check(self, schema: StructType, checkpoint: str) -> None:
        """Refuse columns that no message has."""
        check_columns(schema)

    def take(self, checkpoint: str) -> None:
        """Nothing: it knows batches by the query's id."""

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """Into the queue."""
        return frame.writeStream.format(FORMAT).options(**self._run.database_option, queue=self._queue)

    def close(self) -> None:
        """Nothing is left."""


class FolderSink:
    """A folder of Parquet, by Spark's own sink."""

    modes = ("append",)

    def __init__(self, run: Run, folder: str) -> None:
        self._run = run
        self._folder = folder

    def check(self, schema: StructType, checkpoint: str) -> None:
        """Refuse a folder that is another stream's."""
        self._owner(checkpoint).check()

    def take(self, checkpoint: str) -> None:
        """Note whose the folder is."""
        self._owner(checkpoint).take()

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """Into the folder."""
        return frame.writeStream.format("parquet").options(path=self._folder, compression="zstd")

    def close(self) -> None:
        """Nothing is left."""

    def _owner(self, checkpoint: str) -> Owner:
        spark = self._run.spark
        return Owner(Storage(spark, self._folder), Storage(spark, checkpoint))


class TableSink:
    """A table of the database."""

    modes = ("append", "update", "complete")

    def __init__(self, run: Run, table: str, *, key: Sequence[str], replace: bool) -> None:
        self._run = run
        self._table = table
        self._key = key
        self._replace = replace
        self._writer: TableWriter | None = None

    def check(self, schema: StructType, checkpoint: str) -> None:
        """Refuse a table that is not there, or that has other columns."""
        with self._run.database() as connection:
            target = find_table(connection, self._table, schema)
        target.check(schema, self._key)
        self._writer = TableWriter(
            self._run.url, target, columns=schema.names, key=self._key, replace=self._replace
        )

    def take(self, checkpoint: str) -> None:
        """Nothing: it knows batches by the query's id."""

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """Into the table, batch by batch."""
        assert self._writer is not None
        return frame.writeStream.foreachBatch(self._writer)

    def close(self) -> None:
        """Remove the stage. What is not removed now goes when the stream is started again."""
        assert self._writer is not None
        with suppress(DatabaseError):
            self._writer.close()


def sink_of(run: Run, *, to: str | None, table: str | None, key: Sequence[str], output_mode: str) -> Sink:
    """The sink of a target."""
    found: Sink
    if table is not None:
        found = TableSink(run, table, key=key, replace=output_mode == "complete")
    else:
        found = FolderSink(run, str(to)) if is_folder(str(to)) else QueueSink(run, str(to))
    if output_mode not in found.modes:
        expected = " or ".join(found.modes)
        raise PipelineError(f"--output-mode: got {output_mode} for {table or to}; expected {expected}")
    return found
