"""Streams: which reader goes with which mode, and the columns each has."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import DataType, StructType

from .consume import DELIVERED, ConsumeReader
from .options import Options
from .schema import schema_of


def stream_columns(options: Options) -> Mapping[str, DataType]:
    """The columns that a stream can have."""
    return DELIVERED


def stream_schema(options: Options) -> str:
    """The columns of a stream, as DDL."""
    return schema_of(options, stream_columns(options))


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """The reader of a stream."""
    return ConsumeReader(options, schema)
