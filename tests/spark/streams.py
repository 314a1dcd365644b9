"""Readers for tests, made as Spark makes them: from options, and the schema that goes with them."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructField, StructType

from holdfast.spark.options import Options, Use
from holdfast.spark.schema import COLUMNS
from holdfast.spark.stream import stream_columns, stream_reader


def schema(options: Options) -> StructType:
    """What Spark makes of the columns of a stream; it takes a session to parse the DDL."""
    names = options.columns or tuple(stream_columns(options))
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def reader(url: str, queue: str = "q", **options: object) -> DataSourceStreamReader:
    """The reader of a stream with these options; it does not wait if there is nothing."""
    given = {"url": url, "queue": queue, "mode": "consume", "wait": "0"}
    given |= {name: str(value) for name, value in options.items()}
    parsed = Options.parse(given, Use.READ_STREAM)
    return stream_reader(parsed, schema(parsed))
