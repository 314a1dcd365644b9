"""Streams: which reader goes with which mode, and the columns each can have."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import DataType, StructType

from .consume import DELIVERED, ConsumeReader
from .options import Options
from .schema import schema_of
from .tail import TailReader
from .tail_archive import ENDED, ArchiveFollower
from .tail_log import RECORDED, LogFollower


def stream_columns(options: Options) -> Mapping[str, DataType]:
    """The columns that a stream can have."""
    if options.mode == "consume":
        return DELIVERED
    return ENDED if options.state == "archive" else RECORDED


def stream_schema(options: Options) -> str:
    """The columns of a stream, as DDL."""
    return schema_of(options, stream_columns(options))


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """The reader of a stream."""
    if options.mode == "consume":
        return ConsumeReader(options, schema)
    follower = ArchiveFollower(options) if options.state == "archive" else LogFollower(options)
    return TailReader(follower, stream_columns(options), schema)
