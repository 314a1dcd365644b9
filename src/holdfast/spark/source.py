"""The batch read: the ids of a queue, shared out among tasks; each fetches its ranges as Arrow.

A task reads in one read-only transaction with a fixed snapshot, so what it shows is one moment. Different
tasks have different moments, unless the option `snapshot` names one that somebody holds open. Ids are never
given twice, and the ranges end where the queue ended when the read was planned: no message comes twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ._access import explained
from ._database import calls, literal
from ._fetch import transaction
from ._shape import Shape
from ._worker import settle
from .options import Options
from .schema import refuse_foreign

IDS_PER_TASK = 200_000
MOST_TASKS = 200  # unless the option asks for more
BATCH_SIZE = 4 << 20  # bytes of an Arrow batch, about
MANY = 10_000  # ids
# By index, and in its order, whatever the server believes of its tables. The memory is for the ids that
# leases hold.
PLANNING = {
    "enable_seqscan": "off",
    "enable_sort": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "work_mem": "64MB",
}

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
        settle()
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
        settle()
        if not isinstance(partition, Ranges):
            return
        opening = [*self._snapshot_statements(), _planning()]
        with transaction(self._options.url, opening) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_SIZE)})
            for lo, hi in partition.value:
                yield from self._range(cursor, lo, hi)

    def _snapshot_statements(self) -> Iterator[str]:
        yield "set transaction isolation level repeatable read, read only"
        if self._options.snapshot:
            yield f"set transaction snapshot '{self._options.snapshot}'"

    def _range(self, cursor: Any, lo: int, hi: int) -> Iterator[pa.RecordBatch]:
        options = self._options
        # Columns that nobody uses cost as much as others. Looking for them pays where all rows are read.
        looked_for = self._shape.columns if options.where is None and hi - lo >= MANY else None
        given = map(
            literal, [options.queue, options.state, lo, hi, options.since, options.until, looked_for]
        )
        cursor.execute(f"select source, fixed::text from holdfast.scan_source({', '.join(given)})")
        found = cursor.fetchone()
        if found is None:
            return
        source, fixed = found
        # Only records of a log have a sequence number.
        shape = self._shape.given(json.loads(fixed) | ({} if options.state == "log" else {"seq": None}))
        condition = f" where ({options.where}\n)" if options.where else ""
        cursor.execute(f"select {shape.selection} from ({source}) m{condition} order by m.id")
        for batch in cursor.fetch_record_batch():
            yield from shape.fitted(batch)


def _planning() -> str:
    settings = (f"set_config('{name}', '{value}', true)" for name, value in PLANNING.items())
    return f"select {', '.join(settings)}"


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
