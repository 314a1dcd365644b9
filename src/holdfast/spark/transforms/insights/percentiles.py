"""Percentiles of durations, by counting them in bins whose bounds grow by 2 %.

A bin stands for the value in its middle, which is within 1 % of every value in it. So a percentile is right
within 1 % of the message's own duration, whatever the distribution; histograms add up, over buckets as over
consumers; and counting takes no more memory than there are bins.
"""

from __future__ import annotations

from math import ceil, log

from pyspark.sql import Column
from pyspark.sql import functions as F

ERROR = 0.01
GROWTH = (1 + ERROR) / (1 - ERROR)
SHORTEST = 1e-6  # seconds: all that is shorter counts as this
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def bin_of(seconds: float) -> int:
    """The bin of a duration: the n-th reaches up to GROWTH ** n seconds."""
    return ceil(log(max(seconds, SHORTEST)) / log(GROWTH))


def value_of(bin: int) -> float:
    """What a bin stands for, in seconds."""
    return 2 * GROWTH**bin / (GROWTH + 1)


def binned(start: Column, end: Column) -> Column:
    """The bin of the time between two moments; null if one of them is."""
    seconds = (F.unix_micros(end) - F.unix_micros(start)) / F.lit(1e6)
    return F.ceil(F.log(F.greatest(seconds, F.lit(SHORTEST))) / F.lit(log(GROWTH))).cast("int")


def unbinned(bin: Column) -> Column:
    """What a bin stands for, in seconds."""
    return F.lit(2 / (GROWTH + 1)) * F.pow(F.lit(GROWTH), bin)


def percentile(histogram: Column, count: Column, quantile: float) -> Column:
    """The value that so large a share does not exceed, by nearest rank; null if there is none.

    The histogram is an array of (bin, n) by bin, count the sum of all n.
    """
    rank = F.ceil(count * F.lit(quantile)).cast("long")
    start = F.struct(rank.alias("left"), F.lit(None).cast("int").alias("bin"))

    def passed(found: Column, cell: Column) -> Column:
        taken = F.struct((found["left"] - cell["n"]).alias("left"), cell["bin"].alias("bin"))
        return F.when(found["left"] > 0, taken).otherwise(found)

    return unbinned(F.aggregate(histogram, start, passed)["bin"])
