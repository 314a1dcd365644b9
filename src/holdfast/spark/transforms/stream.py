"""Streaming: messages through SQL, rows counted on their way, and rows as the text that COPY takes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from .load import quoted

VIEW = "messages"
COUNT, ROWS = "holdfast_out", "rows"  # of what is observed
MOMENT = "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"
NESTED = (StructType, MapType, ArrayType, VariantType)
INTERVALS = (DayTimeIntervalType, YearMonthIntervalType)


def through_sql(messages: DataFrame, query: str) -> DataFrame:
    """What a query over the view `messages` makes of them."""
    messages.createOrReplaceTempView(VIEW)
    return messages.sparkSession.sql(query)


def counted(frame: DataFrame) -> DataFrame:
    """The same rows; each batch's progress says how many they are."""
    return frame.observe(COUNT, F.count(F.lit(1)).alias(ROWS))


def as_text(frame: DataFrame) -> DataFrame:
    """The same columns, each as PostgreSQL reads its type; what is nested is JSON."""
    return frame.select(*(_text(field.name, field.dataType).alias(field.name) for field in frame.schema))


def without_text(schema: StructType) -> list[str]:
    """The columns that have no form as text which PostgreSQL reads."""
    return [field.name for field in schema.fields if isinstance(field.dataType, INTERVALS)]


def _text(name: str, kind: DataType) -> Column:
    column = quoted(name)
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, NESTED):
        return F.to_json(column, {"ignoreNullFields": "false"})
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\x"), F.hex(column))
    if isinstance(kind, TimestampType):
        # With its offset: PostgreSQL reads a time without one in its own zone, not in Spark's.
        return F.date_format(column, MOMENT)
    return column.cast("string")
