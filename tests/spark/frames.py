"""Frames for tests: read from the queue q, written to it, streamed out of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.engine.engine import Engine

DRAINING = 120  # seconds


def write(frame: DataFrame, url: str, **options: str) -> None:
    """Send all rows."""
    frame.write.format("holdfast").options(url=url, **options).mode("append").save("q")


def read(spark: SparkSession, url: str, **options: str) -> DataFrame:
    """The messages of the queue."""
    return spark.read.format("holdfast").options(url=url, **options).load("q")


def consumed(spark: SparkSession, url: str, **options: str) -> DataFrame:
    """The queue as a stream that takes its messages."""
    return spark.readStream.format("holdfast").options(url=url, queue="q", mode="consume", **options).load()


def drained(frame: DataFrame, checkpoint: Path, sink: str, **options: str) -> StreamingQuery:
    """A query over what is there, ended."""
    writer = frame.writeStream.format(sink).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(DRAINING)
    return query


def payload_counts(engine: Engine, queue: str) -> Counter[Any]:
    """What a queue holds, whatever its state."""
    of_queue = "(select id from holdfast.queue where name = %s)"
    rows = engine.conn.execute(
        f"select payload from holdfast.message where queue_id = {of_queue}".encode(), [queue]
    ).fetchall()
    return Counter(payload for (payload,) in rows)
