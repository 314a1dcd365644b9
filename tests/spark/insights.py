"""Small frames for tests of insights: ended messages, facts, and what comes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from holdfast.spark.transforms.insights.ended import ENDED, TYPES
from holdfast.spark.transforms.insights.facts import CELL, COVERAGE, FACT, Range

T0 = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
SPAN = Range(T0, T0 + 2 * HOUR, HOUR)


def ended(spark: SparkSession, *messages: dict[str, Any]) -> DataFrame:
    """Messages: by default each done at once at T0, by worker c, and sent and claimed then too."""
    plain = {"queue": "q", "outcome": "done", "deliveries": 1, "failures": 0, "consumer": "c"}
    times = {"enqueued_at": T0, "claimed_at": T0, "ended_at": T0}
    rows = [{"id": n} | plain | times | message for n, message in enumerate(messages)]
    return spark.createDataFrame([tuple(row.get(name) for name in ENDED) for row in rows], TYPES)


def facts(spark: SparkSession, *cells: dict[str, Any]) -> DataFrame:
    """Facts, by default one of queue q in its first hour."""
    plain = {"queue": "q", "start": T0, "n": 1, "sampled": False}
    rows = [plain | cell for cell in cells]
    return spark.createDataFrame([tuple(row.get(name) for name in CELL) for row in rows], FACT)


def no_coverage(spark: SparkSession) -> DataFrame:
    """There are no samples."""
    return spark.createDataFrame([], COVERAGE)


def covered(spark: SparkSession, *measures: str, since: datetime = T0, until: datetime = T0) -> DataFrame:
    """Samples of the queue q, for these measures."""
    return spark.createDataFrame([("q", [(list(measures), since, until)])], COVERAGE)


def told(frame: DataFrame, *names: str) -> set[tuple[Any, ...]]:
    """Some columns of all rows; times in UTC."""
    return {tuple(_utc(row[name]) for name in names) for row in frame.collect()}


def only(frame: DataFrame) -> Row:
    """The one row."""
    (row,) = frame.collect()
    return row


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
