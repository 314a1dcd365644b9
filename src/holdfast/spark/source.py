"""The batch read: the ids of a queue, shared out among tasks; each fetches its ranges as Arrow.

A task reads in one read-only transaction with a fixed snapshot, so what it shows is one moment. Different
tasks have different moments, unless the option `snapshot` names one that somebody holds open. Ids are never
given twice, and the ranges end where the queue ended when the read was planned: no message comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ._access import explained
from ._database import calls, literal, rows
from ._shape import Shape
from .options import Options
from .schema import refuse_foreign

IDS_PER_TASK = 200_000
MOST_TASKS = 200  # unless the option asks for more
IDS_PER_STATEMENT = 20_000  # the server keeps so many rows at a time
WORK_MEMORY = "64MB"  # in which the server keeps them

Range = tuple[int, int]


class Ranges(InputPartition):
    """The ids that one task reads: from the first to before the second of each pair."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))


class MessageReader(DataSourceReader):
    """Reads the messages of one queue that are in one state."""

    def __init__(self, options: Options, schema: StructType) -> None:
        refuse_foreign(schema)
        self._options = options
        self._shape = Shape(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Which ids each task reads."""
        options = self._options
        with explained("scan"), calls(options.url) as connection, connection.transaction():
            for statement in self._snapshot_statements():
                connection.execute(statement.encode())
            found = connection.execute(
                "select lo, hi from holdfast.scan_bounds(%s, %s, %s, %s) order by 1",
                [options.queue, options.state, options.since, options.until],
            ).fetchall()
        return [Ranges(part) for part in shared_out(found, options.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        if not isinstance(partition, Ranges):
            return
        with self._snapshot() as cursor:
            for lo, hi in partition.value:
                yield from self._range(cursor, lo, hi)

    @contextmanager
    def _snapshot(self) -> Iterator[Any]:
        with rows(self._options.url, autocommit=False) as cursor:
            for statement in self._snapshot_statements():
                cursor.execute(statement)
            yield cursor

    def _snapshot_statements(self) -> Iterator[str]:
        yield "set transaction isolation level repeatable read, read only"
        if self._options.snapshot:
            yield f"set transaction snapshot '{self._options.snapshot}'"
        yield f"set local work_mem = '{WORK_MEMORY}'"

    def _range(self, cursor: Any, lo: int, hi: int) -> Iterator[pa.RecordBatch]:
        while lo < hi:
            end = min(lo + IDS_PER_STATEMENT, hi)
            cursor.execute(self._statement(lo, end))
            found = 0
            for batch in cursor.fetch_record_batch():
                found += batch.num_rows
                yield from self._shape.fitted(batch)
            # Where nothing is, much may be missing: of a long-lived queue only the last ids are left.
            lo = end if found or end >= hi else self._next(cursor, end, hi)

    def _statement(self, lo: int, hi: int) -> str:
        options = self._options
        given = map(literal, [options.queue, options.state, lo, hi, options.since, options.until])
        condition = f" where ({options.where}\n)" if options.where else ""
        return f"select {self._shape.selection} from holdfast.scan({', '.join(given)}) m{condition}"

    def _next(self, cursor: Any, lo: int, hi: int) -> int:
        options = self._options
        given = map(literal, [options.queue, options.state, options.since, options.until, lo])
        cursor.execute(
            f"select min(lo) from holdfast.scan_bounds({', '.join(given)}) where lo >= {lo} and lo < {hi}"
        )
        (found,) = cursor.fetchone()
        return hi if found is None else int(found)


def shared_out(ranges: Sequence[Range], wanted: int | None) -> list[list[Range]]:
    """The ranges cut into as many parts as are wanted, or sensible, with about as many ids in each."""
    total = sum(hi - lo for lo, hi in ranges)
    parts = max(1, min(wanted or min(-(-total // IDS_PER_TASK), MOST_TASKS), total))
    share = -(-total // parts)
    shared: list[list[Range]] = [[]]
    room = share
    for lo, hi in ranges:
        while lo < hi:
            if room == 0:
                shared.append([])
                room = share
            end = min(lo + room, hi)
            shared[-1].append((lo, end))
            room -= end - lo
            lo = end
    return shared
