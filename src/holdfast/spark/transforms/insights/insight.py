"""All figures of a queue and bucket in one row: what is written to Parquet and to the database."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .consumers import compared
from .errors import frequent
from .facts import COUNTED, TIMED
from .keys import hot_keys
from .percentiles import QUANTILES
from .rollup import BY_BUCKET, BY_QUEUE, rolled_up
from .slo import burned

SPREADS = tuple(f"{name}_{part}" for name in TIMED for part in ("count", *QUANTILES))
TOTAL = (
    "queue",
    *COUNTED,
    "keyed",
    *SPREADS,
    "estimated",
    "erring_count",
    "fatal_count",
    "errors",
    "keys",
    "consumers",
)
ZEROS = frozenset({*COUNTED, "keyed", "waiting_count", "processing_count", "erring_count", "fatal_count"})
INSIGHT = ("queue", "start", *TOTAL[1:], "objectives")


def by_bucket(cells: DataFrame, errors: DataFrame, objectives: DataFrame, most: int) -> DataFrame:
    """A row for each queue and bucket in which something happened."""
    parts = [*_parts(cells, errors, BY_BUCKET, most), burned(cells, objectives)]
    return _joined(parts, BY_BUCKET).select(*INSIGHT)


def by_queue(cells: DataFrame, errors: DataFrame, most: int) -> DataFrame:
    """A row for each queue, over the whole range."""
    return _joined(_parts(cells, errors, BY_QUEUE, most), BY_QUEUE).select(*TOTAL)


def _parts(cells: DataFrame, errors: DataFrame, by: Sequence[str], most: int) -> list[DataFrame]:
    return [
        rolled_up(cells, by),
        frequent(errors, by, most),
        hot_keys(cells, by, most),
        compared(cells, by, most),
    ]


def _joined(parts: Sequence[DataFrame], by: Sequence[str]) -> DataFrame:
    """Side by side. A bucket may have an error and no count: the samples count it in the next one."""
    first, *others = parts
    for each in others:
        first = first.join(each, list(by), "full")
    return first.select(*map(_filled, first.columns))


def _filled(name: str) -> Column:
    """A column in which nothing is a zero, or an empty list."""
    if name in ZEROS:
        return F.coalesce(name, F.lit(0)).alias(name)
    if name == "estimated":
        return F.coalesce(name, F.array().cast("array<string>")).alias(name)
    return F.col(name)
