"""The lake: ended messages as Parquet, in folders by queue and day. Its schema, and how to read it.

    LAKE/queue=orders/day=2030-01-31/batch-17.parquet
    LAKE/_holdfast/…    what runs of the pipeline archive note; Spark passes it over
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ._paths import literal

# A column that is added later comes behind these: files without it are read with nulls there.
STORED = StructType(
    [
        StructField("id", LongType()),
        StructField("root_id", LongType()),  # the first id that the message had, over all moves and replays
        StructField("outcome", StringType()),  # done, expired, failed or discarded
        StructField("priority", IntegerType()),
        StructField("enqueued_at", TimestampType()),
        StructField("claimed_at", TimestampType()),  # of the delivery that was acked; null for other ends
        StructField("ended_at", TimestampType()),
        StructField("expires_at", TimestampType()),
        StructField("consumer", StringType()),  # who acked it
        StructField("deliveries", IntegerType()),
        StructField("failures", IntegerType()),
        StructField("max_deliveries", IntegerType()),  # null: its queue decided
        StructField("tag", StringType()),
        StructField("correlation_id", StringType()),
        StructField("key", StringType()),
        StructField("idempotency_key", StringType()),
        StructField("ordering_key", StringType()),
        StructField("order_no", LongType()),  # its place in the line of its ordering key
        StructField("content_type", StringType()),
        StructField("headers", StringType()),  # JSON, as the next one
        StructField("payload", StringType()),
        StructField("body", BinaryType()),
        StructField("last_error", StringType()),
        StructField("origin", StringType()),  # JSON
    ]
)
# In the names of folders, not in the files.
FOLDERS = StructType([StructField("queue", StringType()), StructField("day", DateType())])
SCHEMA = StructType([*STORED, *FOLDERS])


def read_lake(
    spark: SparkSession,
    path: str,
    *,
    queues: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """The messages in a lake: of some queues, that ended from one time to before another; all by default."""
    frame = spark.read.schema(SCHEMA).parquet(literal(path))
    for condition in conditions(queues, since, until):
        frame = frame.where(condition)
    return frame


def conditions(queues: Sequence[str] | None, since: datetime | None, until: datetime | None) -> list[Column]:
    """What says which messages: by folder, so that Spark opens no others, then by time."""
    found: list[Column] = []
    if queues is not None:
        found.append(F.col("queue").isin(*queues))
    if since is not None:
        found += [F.col("day") >= F.lit(_day(since)), F.col("ended_at") >= F.lit(since)]
    if until is not None:
        last = until - timedelta(microseconds=1)
        found += [F.col("day") <= F.lit(_day(last)), F.col("ended_at") < F.lit(until)]
    return found


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()
