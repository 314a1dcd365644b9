"""The pure part of streaming: SQL over messages, and rows as the text that COPY takes."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DayTimeIntervalType,
    IntegerType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from holdfast.spark.transforms.stream import as_text, through_sql, without_text

pytestmark = pytest.mark.verify


def test_a_query_sees_the_messages_as_a_view(spark: SparkSession) -> None:
    session = spark.newSession()
    messages = session.createDataFrame([("1", 3), ("2", 5)], "payload string, priority int")

    found = through_sql(messages, "select payload, priority * 2 as twice from messages where priority > 3")

    assert [tuple(row) for row in found.collect()] == [("2", 10)]


def test_every_type_becomes_text_that_postgresql_reads(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = session.sql(
        """
        select 'a"b' as text, '' as empty, cast(null as string) as nothing, 7 as number, 1.50bd as price,
          true as yes, cast('nan' as double) as nan, date'2030-01-31' as day, x'00ff' as bytes,
          timestamp'2030-01-31T12:00:00.5Z' as moment, timestamp_ntz'2030-01-31T12:00:00' as local,
          named_struct('a', 1, 'b', null) as object, array(1, 2) as list, map('k', 'v') as pairs
        """
    )

    (row,) = as_text(frame).collect()

    assert row.asDict() == {
        "text": 'a"b',
        "empty": "",
        "nothing": None,
        "number": "7",
        "price": "1.50",
        "yes": "true",
        "nan": "NaN",
        "day": "2030-01-31",
        "bytes": "\\x00FF",
        "moment": "2030-01-31 07:00:00.500000-05:00",
        "local": "2030-01-31 12:00:00",
        "object": '{"a":1,"b":null}',
        "list": "[1,2]",
        "pairs": '{"k":"v"}',
    }


def test_intervals_have_no_text() -> None:
    kinds = {"a": IntegerType(), "b": DayTimeIntervalType(), "c": YearMonthIntervalType()}

    assert without_text(StructType([StructField(name, kind) for name, kind in kinds.items()])) == ["b", "c"]
