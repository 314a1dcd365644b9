"""Errors by fingerprint: how often, since when, and one of them as it was."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .buckets import bucket_of
from .facts import Range
from .fingerprints import fingerprinted
from .tops import listed, top

FIELDS = ("fingerprint", "messages", "fatal", "first_seen", "last_seen", "example")


def errors_of(ended: DataFrame, span: Range) -> DataFrame:
    """Messages with an error that ended in the range, by bucket and fingerprint."""
    within = (F.col("ended_at") >= F.lit(span.since)) & (F.col("ended_at") < F.lit(span.until))
    erring = ended.where(F.col("last_error").isNotNull() & within).select(
        "queue",
        bucket_of(F.col("ended_at"), span.bucket).alias("start"),
        fingerprinted(F.col("last_error")).alias("fingerprint"),
        (F.col("outcome") != "done").cast("long").alias("fatal"),
        "ended_at",
        "last_error",
    )
    return erring.groupBy("queue", "start", "fingerprint").agg(
        F.count("*").alias("messages"),
        F.sum("fatal").alias("fatal"),
        F.min("ended_at").alias("first_seen"),
        F.max("ended_at").alias("last_seen"),
        # The same one whenever it is asked for.
        F.min("last_error").alias("example"),
    )


def frequent(errors: DataFrame, by: Sequence[str], most: int) -> DataFrame:
    """The most frequent errors of each group, as the array column `errors`; and how many there are in all."""
    counted = errors.groupBy(*by, "fingerprint").agg(
        F.sum("messages").alias("messages"),
        F.sum("fatal").alias("fatal"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.min("example").alias("example"),
    )
    first = top(counted, by, most, F.desc("messages"), F.asc("fingerprint"))
    sums = errors.groupBy(*by).agg(
        F.sum("messages").alias("erring_count"), F.sum("fatal").alias("fatal_count")
    )
    return (
        listed(first, by, "errors", FIELDS)
        .join(sums, list(by))
        .select(*by, "erring_count", "fatal_count", "errors")
    )
