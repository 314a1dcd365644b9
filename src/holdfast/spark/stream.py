"""Streams: which reader goes with which mode, and the columns each has."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from .consume import DELIVERED, ConsumeReader
from .options import Options
from .schema import schema_of


def stream_schema(options: Options) -> str:
    """The columns of a stream."""
    return schema_of(options, DELIVERED)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """The reader of a stream."""
    return ConsumeReader(options, schema)
