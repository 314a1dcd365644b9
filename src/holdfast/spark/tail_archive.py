"""Tail mode on the archive: what has ended, in the order of its end. The place is (ended_at, id) of a batch's last row.

A message ends a moment before its transaction commits. holdfast.read_archive goes only as far as none can turn up any
more, so nothing is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ._fetch import Fetcher, batches, literal
from ._retry import retried
from ._session import Session
from .options import OptionError, Options
from .schema import COLUMNS, selection

T = TypeVar("T")

ENDED = {name: COLUMNS[name] for name in COLUMNS if name not in {"due_at", "seq"}}
PAGE = 10_000  # rows
POLL = 0.2  # seconds

LOOK = """
select (extract(epoch from e.ended_at) * 1000000)::bigint, e.id, count(*) over ()
from holdfast.read_archive(%(queue)s, "from" => holdfast._time(%(at)s), after => %(id)s, "limit" => %(limit)s) e
where e.ended_at <= holdfast._time(%(target)s) order by e.ended_at desc, e.id desc limit 1
"""


class Spot(NamedTuple):
    """A place in the archive: microseconds since 1970, and an id."""

    at: int
    id: int


class Stretch(InputPartition):
    """Rows after one place, up to another."""

    def __init__(self, after: Spot, upto: Spot) -> None:
        super().__init__((after, upto))
