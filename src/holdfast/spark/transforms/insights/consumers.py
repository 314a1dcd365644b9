"""Consumers: who did how much, and how fast."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .percentiles import QUANTILES
from .rollup import histogram, spread
from .tops import listed, top

FIELDS = ("consumer", "messages", "failures", *QUANTILES)


def compared(cells: DataFrame, by: Sequence[str], most: int) -> DataFrame:
    """The busiest consumers of each group, as the array column `consumers`. Samples know of none."""
    processing = F.col("measure") == "processing"
    counted = (
        cells.where(F.col("measure").isin("processing", "failures") & ~F.col("sampled"))
        .groupBy(*by, F.col("label").alias("consumer"), "measure", "bin")
        .agg(F.sum("n").alias("n"))
        .groupBy(*by, "consumer")
        .agg(
            F.sum(F.when(processing, F.col("n"))).alias("processing_count"),
            F.coalesce(F.sum(F.when(~processing, F.col("n"))), F.lit(0)).alias("failures"),
            histogram(processing).alias("processing"),
        )
    )
    busiest = top(counted, by, most, F.desc("processing_count"), F.asc("consumer"))
    count, *values = spread("processing")
    named = [value.alias(label) for label, value in zip(QUANTILES, values, strict=True)]
    told = busiest.select(*by, "place", "consumer", count.alias("messages"), "failures", *named)
    return listed(told, by, "consumers", FIELDS)
