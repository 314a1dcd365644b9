"""Ended messages in one shape, wherever they come from: the archive, the lake, a dead-letter queue."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .fingerprints import LONGEST_TEXT

# The contract of this package. A dead letter has ended, as dead, in the queue that it came from.
ENDED = (
    "id",
    "queue",
    "outcome",
    "enqueued_at",
    "claimed_at",
    "ended_at",
    "deliveries",
    "failures",
    "consumer",
    "ordering_key",
    "last_error",
)
TYPES = (
    "id BIGINT, queue STRING, outcome STRING, enqueued_at TIMESTAMP, claimed_at TIMESTAMP,"
    " ended_at TIMESTAMP, deliveries INT, failures INT, consumer STRING, ordering_key STRING,"
    " last_error STRING"
)
# What has to be read for that.
ARCHIVED = ("id", "queue", "state", *ENDED[3:])
BURIED = ("enqueued_at", "last_error", "origin")
ORIGIN = "id BIGINT, enqueued_at STRING, deliveries INT, failures INT, ordering_key STRING"


def from_archive(frame: DataFrame) -> DataFrame:
    """Messages of the archive, as the data source reads them."""
    return frame.withColumnRenamed("state", "outcome").select(*_bounded())


def from_lake(frame: DataFrame) -> DataFrame:
    """Messages of the lake."""
    return frame.select(*_bounded())


def from_dead(frame: DataFrame, queue: str) -> DataFrame:
    """Dead letters of a queue, as the data source reads them: what they were is in their origin."""
    origin = F.from_json("origin", ORIGIN)
    read = frame.select(origin.alias("was"), F.col("enqueued_at").alias("died_at"), "last_error")
    return read.select(
        F.col("was.id").alias("id"),
        F.lit(queue).alias("queue"),
        F.lit("dead").alias("outcome"),
        F.coalesce(F.col("was.enqueued_at").try_cast("timestamp"), "died_at").alias("enqueued_at"),
        F.lit(None).cast("timestamp").alias("claimed_at"),
        F.col("died_at").alias("ended_at"),
        F.coalesce("was.deliveries", F.lit(0)).alias("deliveries"),
        F.coalesce("was.failures", F.lit(0)).alias("failures"),
        F.lit(None).cast("string").alias("consumer"),
        F.col("was.ordering_key").alias("ordering_key"),
        F.substring("last_error", 1, LONGEST_TEXT).alias("last_error"),
    ).select(*ENDED)


def once(lake: DataFrame, archive: DataFrame) -> DataFrame:
    """Both together: a message that the archive still holds, and the lake already, counts once."""
    known = lake.select("id", "queue", "ended_at")
    return lake.unionByName(archive.join(known, ["id", "queue", "ended_at"], "left_anti").select(*ENDED))


def _bounded() -> list[Column | str]:
    """The columns, with no more of an error than is looked at."""
    shortened = F.substring("last_error", 1, LONGEST_TEXT).alias("last_error")
    return [shortened if name == "last_error" else name for name in ENDED]
