"""Objectives: in which buckets they were kept, and by how much they were missed."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.spark.report.figures import Objective

from .percentiles import bin_of

PROMISED = "queue STRING, measure STRING, percentile INT, seconds DOUBLE, last_bin INT"
FIELDS = ("measure", "percentile", "seconds", "messages", "over")


def promised(spark: SparkSession, objectives: Sequence[Objective]) -> DataFrame:
    """Objectives as a frame. last_bin: what is in a higher one was too slow."""
    rows = [
        (each.queue, each.measure, each.percentile, each.limit, bin_of(each.limit)) for each in objectives
    ]
    return spark.createDataFrame(rows, PROMISED)


def burned(cells: DataFrame, objectives: DataFrame) -> DataFrame:
    """Of how many messages how many were too slow, as the array column `objectives` of queue and bucket."""
    slow = F.when(F.col("bin") > F.col("last_bin"), F.col("n")).otherwise(0)
    told = (
        cells.join(F.broadcast(objectives), ["queue", "measure"])
        .groupBy("queue", "start", "measure", "percentile", "seconds")
        .agg(F.sum("n").alias("messages"), F.sum(slow).alias("over"))
    )
    rows = F.array_sort(F.collect_list(F.struct(*FIELDS)))
    return told.groupBy("queue", "start").agg(rows.alias("objectives")).select("queue", "start", "objectives")
