"""The batch write: tasks stage their rows, one transaction sends them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .options import Options


class MessageWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame to one queue."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        raise NotImplementedError

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Send what the tasks have staged."""
        raise NotImplementedError
