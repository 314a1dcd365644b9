"""Insights over a lake of archived messages, beside the least that can be done with it: one count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bench import payload
from bench.spark.case import HOLDFAST, Rival, SparkCase
from bench.spark.ground import PARTITIONS, Ground
from bench.spark.meter import Action
from holdfast.spark.lake import FOLDERS, STORED, read_lake
from holdfast.spark.transforms.insights.buckets import bucket_of
from holdfast.spark.transforms.insights.ended import from_lake
from holdfast.spark.transforms.insights.errors import errors_of
from holdfast.spark.transforms.insights.facts import COVERAGE, Range, counted, facts_of_ended
from holdfast.spark.transforms.insights.insight import by_bucket, by_queue
from holdfast.spark.transforms.insights.slo import PROMISED

FIRST = datetime(2030, 1, 1, tzinfo=UTC)
DAYS = 7
SPAN = Range(FIRST, FIRST + timedelta(days=DAYS), timedelta(hours=1))
QUEUES, CONSUMERS, KEYS = 5, 20, 50_000
TOP = 20  # errors, keys and consumers that are named


def cases() -> list[SparkCase]:
    rivals = [Rival(HOLDFAST, _insights), Rival("one count", _one_count)]
    return [SparkCase("insights", f"insights over a lake, {DAYS} days by the hour", rivals, times=5)]


@contextmanager
def _insights(ground: Ground, messages: int) -> Iterator[Action]:
    lake = _lake(ground, messages)
    coverage = ground.spark.createDataFrame([], COVERAGE)
    objectives = ground.spark.createDataFrame([], PROMISED)

    def work() -> int:
        ended = from_lake(lake)
        cells = counted([facts_of_ended(ended, coverage, SPAN)]).cache()
        errors = errors_of(ended, SPAN).cache()
        try:
            _drain(by_bucket(cells, errors, objectives, TOP))
            _drain(by_queue(cells, errors, TOP))
        finally:
            cells.unpersist()
            errors.unpersist()
        return messages

    yield work


@contextmanager
def _one_count(ground: Ground, messages: int) -> Iterator[Action]:
    lake = _lake(ground, messages)
    start = bucket_of(F.col("ended_at"), SPAN.bucket).alias("start")

    def work() -> int:
        _drain(lake.groupBy("queue", start, "outcome").count())
        return messages

    yield work


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _lake(ground: Ground, messages: int) -> DataFrame:
    """A lake that is written once: done but for a few, waiting and processing times over four decades."""
    path = ground.folder / f"lake-{messages}"
    if not path.exists():
        rows = ground.spark.range(0, messages, 1, PARTITIONS)
        made = rows.select(
            *(_column(each.name, messages).cast(each.dataType).alias(each.name) for each in STORED)
        )
        queue = F.concat(F.lit("queue-"), F.pmod("id", F.lit(QUEUES))).alias("queue")
        folders = made.select("*", queue, F.to_date("ended_at").alias("day"))
        folders.write.partitionBy(*FOLDERS.names).option("compression", "zstd").parquet(str(path))
    return read_lake(ground.spark, str(path))


def _column(name: str, messages: int) -> Column:
    every = DAYS * 86_400 / (messages + 1)
    sent = F.unix_micros(F.lit(FIRST)) + (F.col("id") * F.lit(every * 1e6)).cast("long")
    claimed = sent + F.pow(10, 3 + 4 * _random(1)).cast("long")
    failed = _random(3) < 0.02
    made = {
        "id": F.col("id"),
        "root_id": F.col("id"),
        "outcome": F.when(failed, "failed").otherwise("done"),
        "priority": F.lit(5),
        "enqueued_at": F.timestamp_micros(sent),
        "claimed_at": F.when(~failed, F.timestamp_micros(claimed)),
        "ended_at": F.timestamp_micros(claimed + F.pow(10, 3 + 3 * _random(2)).cast("long")),
        "consumer": F.when(~failed, F.concat(F.lit("worker-"), F.pmod(F.hash("id"), F.lit(CONSUMERS)))),
        "deliveries": F.when(failed, 3).otherwise(1),
        "failures": F.when(failed, 3).otherwise(0),
        "ordering_key": F.concat(F.lit("customer-"), F.pmod(F.xxhash64("id"), F.lit(KEYS))),
        "payload": F.lit(payload.document(1).decode()),
        "last_error": F.when(failed, F.concat(F.lit("timeout after "), "id", F.lit(" ms: host 10.0.0.7"))),
    }
    return made.get(name, F.lit(None))


def _random(seed: int) -> Column:
    """A number from 0 to 1 that is the same for the same row, each time."""
    return F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(1_000_003)) / F.lit(1_000_003.0)
