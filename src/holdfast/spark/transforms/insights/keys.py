"""Hot keys: the ordering keys with the most messages."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .tops import listed, top

FIELDS = ("key", "messages")


def hot_keys(cells: DataFrame, by: Sequence[str], most: int) -> DataFrame:
    """The hottest keys of each group, as the array column `keys`."""
    counted = (
        cells.where(F.col("measure") == "key")
        .groupBy(*by, F.col("label").alias("key"))
        .agg(F.sum("n").alias("messages"))
    )
    return listed(top(counted, by, most, F.desc("messages"), F.asc("key")), by, "keys", FIELDS)
