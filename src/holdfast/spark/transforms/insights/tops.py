"""The first few of many, by group: hot keys, busy consumers, frequent errors."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def top(frame: DataFrame, by: Sequence[str], most: int, *order: Column) -> DataFrame:
    """The first rows of each group. Each task drops all but its own first before they meet."""
    window = Window.partitionBy(*by).orderBy(*order)
    return frame.withColumn("place", F.row_number().over(window)).where(F.col("place") <= most)


def listed(frame: DataFrame, by: Sequence[str], name: str, fields: Sequence[str]) -> DataFrame:
    """The rows of each group as an array of structs, in the order of their places."""
    rows = F.array_sort(F.collect_list(F.struct("place", *fields)))
    kept = F.transform(rows, lambda row: F.struct(*(row[field].alias(field) for field in fields)))
    return frame.groupBy(*by).agg(kept.alias(name)).select(*by, name)
