"""Figures from counted facts: of each queue and bucket, or of each queue over the whole range."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .facts import COUNTED, TIMED
from .percentiles import QUANTILES, percentile

BY_BUCKET = ("queue", "start")
BY_QUEUE = ("queue",)


def rolled_up(cells: DataFrame, by: Sequence[str]) -> DataFrame:
    """Counts, and percentiles of waiting and processing time."""
    merged = cells.groupBy(*by, "measure", "bin").agg(
        F.sum("n").alias("n"), F.max("sampled").alias("sampled")
    )
    figures = merged.groupBy(*by).agg(
        *(_sum(name).alias(name) for name in COUNTED),
        _sum("key").alias("keyed"),
        *(_sum(name).alias(f"{name}_count") for name in TIMED),
        *(histogram(F.col("measure") == name).alias(name) for name in TIMED),
        F.array_sort(F.collect_set(F.when(F.col("sampled"), F.col("measure")))).alias("estimated"),
    )
    return figures.select(
        *by,
        *COUNTED,
        "keyed",
        *(column for name in TIMED for column in spread(name)),
        "estimated",
    )


def histogram(condition: Column) -> Column:
    """Aggregates (bin, n) of some rows to an array by bin."""
    return F.array_sort(F.collect_list(F.when(condition, F.struct("bin", "n"))))


def spread(name: str) -> list[Column]:
    """The count and the percentiles of a histogram column and its count."""
    count = F.col(f"{name}_count")
    values = [percentile(F.col(name), count, quantile) for quantile in QUANTILES.values()]
    return [count, *(value.alias(f"{name}_{label}") for label, value in zip(QUANTILES, values, strict=True))]


def _sum(measure: str) -> Column:
    return F.coalesce(F.sum(F.when(F.col("measure") == measure, F.col("n"))), F.lit(0))
