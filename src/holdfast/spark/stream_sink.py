"""The stream write: each batch of a query is sent once.

Tasks stage their rows, as in a batch write. The name of the write is Spark's id of the query and the number
of the batch, which survive a restart from the checkpoint: a batch that is run again finds its name taken, and
sends nothing. A name that the user gives would not do: under a new checkpoint, batch 0 would count as sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ._access import check_sendable
from ._database import LostConnectionError
from ._outgoing import check_columns
from .options import OptionError, Options
from .sink import Part, Stage

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class BatchPart(WriterCommitMessage):
    """What one task has staged, and for which write."""

    write_id: str
    run: str
    part: Part


class BatchWriter(DataSourceStreamArrowWriter):
    """Sends the batches of a query to one queue."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("outputMode", "complete", "append or update: a queue is never replaced")
        check_columns(schema)
        # A database that is away for a moment is for the tasks to try: the query may outlive it.
        with suppress(LostConnectionError):
            check_sendable(options.url, options.queue)
        self._options = options
        self._run = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        write_id, number = _whose()
        part = Stage(self._options, write_id, self._run).fill(iterator, number)
        return BatchPart(write_id, self._run, part)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Send what the tasks have staged, unless this batch was sent before."""
        for (write_id, run), parts in _by_write(messages).items():
            Stage(self._options, write_id, run).send(parts)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks have staged."""
        for (write_id, run), parts in _by_write(messages).items():
            Stage(self._options, write_id, run).drop(parts)


def _whose() -> tuple[str, int]:
    """The name of the write that this task is a part of, and which part."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if context is None or query is None or batch is None:
        raise RuntimeError("a stream write runs in a task of a streaming query, which knows the query's id")
    return f"{query}/{batch}", context.partitionId()


def _by_write(messages: Sequence[WriterCommitMessage | None]) -> dict[tuple[str, str], list[Part]]:
    """What tasks have staged, by the write and the run they belong to; a failed task has left nothing."""
    found: dict[tuple[str, str], list[Part]] = {}
    for message in messages:
        if isinstance(message, BatchPart):
            found.setdefault((message.write_id, message.run), []).append(message.part)
    return found
