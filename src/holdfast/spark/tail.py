"""Tail mode on a log: reads along, takes nothing. The place is the last sequence number of a batch.

How far it is safe to read is the engine's to say: holdfast.read stops before a number that may still come. What it has
shown once stays as it is, so a batch that is run again has the same records, unless retention or a deletion came by.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
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

log = logging.getLogger("holdfast.spark")

RECORDED = {
    name: COLUMNS[name]
    for name in COLUMNS
    if name not in {"state", "priority", "key", "ordering_key", "deliveries", "failures", "max_deliveries"}
    and name not in {"due_at", "expires_at", "ended_at"}
}
PAGE = 10_000  # rows: what the engine shows at once
PARTITIONS = 8  # at most, unless the option partitions says otherwise
POLL = 0.1  # seconds, between looks at a log whose horizon has to come back

LOOK = """
select coalesce(max(r.seq), 0), count(*), min(r.from_seq) filter (where r.kind = 'gap'),
       max(r.to_seq) filter (where r.kind = 'gap')
from holdfast.read(%s, %s, %s) r where r.seq <= %s
"""
LAST = (1 << 40) - 1  # the highest sequence number there can be


class MissedError(Exception):
    """Records that the stream has not read were removed by the log's retention."""

    def __init__(self, queue: str, first: int, last: int) -> None:
        super().__init__(
            f'log "{queue}": the records {first} to {last} were removed before this stream read them; raise the'
            " log's retention, or set the option on_gap to skip to go on without them"
        )


class Range(InputPartition):
    """Records after one number, up to another."""

    def __init__(self, after: int, upto: int) -> None:
        super().__init__((after, upto))


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream along a log."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._follower: Follower | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_follower": None}

    @property
    def follower(self) -> Follower:
        """What keeps the connection; made when the stream starts."""
        if self._follower is None:
            self._follower = Follower(self._options)
        return self._follower

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many records a batch as the options say."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """Up to what is there now."""
        self.follower.finish()

    def initialOffset(self) -> dict[str, Any]:
        """Where the option start says."""
        return {"queue": self._options.queue, "seq": self.follower.first()}

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As far as it is safe to read."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return {"queue": self._options.queue, "seq": self.follower.advance(self._place(start), most)}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Ranges of sequence numbers."""
        return ranges(self._place(start), self._place(end), self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range, page by page."""
        after, upto = partition.value
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        with Fetcher(self._options.url, patience=self._options.retry_for) as fetcher:
            for page in pages(fetcher, self._options, self._schema.names, after, upto):
                yield from batches(page, arrow)

    def stop(self) -> None:
        """Close the connection."""
        if self._follower is not None:
            self._follower.close()

    def _place(self, offset: Mapping[str, Any]) -> int:
        if set(offset) != {"queue", "seq"}:
            raise OptionError("mode", "a checkpoint with other offsets", "a checkpoint of its own for each mode")
        if offset["queue"] != self._options.queue:
            expected = f"{offset['queue']!r}, which the checkpoint is about, or a new checkpoint"
            raise OptionError("queue", repr(self._options.queue), expected)
        return int(offset["seq"])


@dataclass(frozen=True, slots=True)
class Look:
    """What a look ahead found: the last number, how many rows, and a range that is missing."""

    last: int
    rows: int
    gap: tuple[int, int] | None


class Follower(Session):
    """The look ahead, in the process that leads the stream."""

    def __init__(self, options: Options) -> None:
        super().__init__(url=options.url, queue=options.queue)
        self._options = options
        self._target: int | None = None

    def first(self) -> int:
        """The place before the first record that is wanted."""
        trimmed, last = self._retried(self._extent)
        match self._options.start:
            case "earliest":
                return trimmed
            case "latest":
                return last
            case number:
                return max(0, int(number) - 1)

    def finish(self) -> None:
        """Go no further than what is there now."""
        self._target = self._retried(self._extent)[1]

    def advance(self, place: int, most: int | None) -> int:
        """How far a batch from this place on goes; the place itself if there is nothing, for a bounded time."""
        found = self._retried(lambda: self._ahead(place, most))
        deadline = time.monotonic() + (0 if self._target is not None else self._options.wait)
        while found == place and (left := deadline - time.monotonic()) > 0:
            self._retried(lambda left=left: self.announce(left))
            found = self._retried(lambda: self._ahead(place, most))
            if found == place:
                self._retried(lambda left=left: self.await_send(left))
                found = self._retried(lambda: self._ahead(place, most))
        return found

    def _ahead(self, place: int, most: int | None) -> int:
        left = most
        while left is None or left > 0:
            look = self._look(place, PAGE if left is None else min(left, PAGE))
            if look.rows == 0:
                break
            if look.gap is not None:
                self._report(*look.gap)
            place = look.last
            left = None if left is None else left - look.rows
        return place

    def _look(self, after: int, limit: int) -> Look:
        target = LAST if self._target is None else self._target
        row = self.connection.execute(LOOK, [self._queue, after, limit, target]).fetchone()
        assert row is not None
        last, rows, gap_from, gap_to = row
        return Look(last, rows, None if gap_from is None else (gap_from, gap_to))

    def _report(self, first: int, last: int) -> None:
        if self._options.on_gap == "fail":
            raise MissedError(self._queue, first, last)
        log.warning("the records %s to %s were removed before they were read", first, last)

    def _extent(self) -> tuple[int, int]:
        row = self.connection.execute(
            "select trimmed, coalesce(last_seq, trimmed) from holdfast.log_stats(%s)", [self._queue]
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    def _retried(self, call: Callable[[], T]) -> T:
        return retried(
            call, patience=self._options.retry_for, recover=self.close, describe=self._options.url.redact
        )


def ranges(start: int, end: int, wanted: int | None) -> list[Range]:
    """The numbers after start up to end, in even parts."""
    span = end - start
    parts = min(wanted or min(PARTITIONS, -(-span // PAGE)), span)
    edges = [start + n * span // parts for n in range(parts)] + [end] if parts > 0 else []
    return [Range(lo, hi) for lo, hi in zip(edges, edges[1:], strict=False)]


def pages(
    fetcher: Fetcher, options: Options, names: Sequence[str], after: int, upto: int
) -> Iterator[pa.Table]:
    """The records after one number up to another. A row at or behind the last one is there: read until it shows."""
    queue = literal(options.queue)
    deadline = time.monotonic() + options.retry_for
    while after < upto:
        page = fetcher.table(
            f"select m.kind as _kind, m.seq as _seq, m.from_seq as _from, {selection(names)}"
            f" from (select r.*, {queue} as queue, 'log' as state from holdfast.read({queue}, {after}, {PAGE}) r) m"
        )
        if page.num_rows == 0:
            # After a crash the server has to find out anew how far it is safe to read.
            if time.monotonic() > deadline:
                raise MissedError(options.queue, after + 1, upto)
            time.sleep(POLL)
            continue
        gap = page.filter(pc.equal(page["_kind"], "gap"))
        if gap.num_rows and options.on_gap == "fail":
            raise MissedError(options.queue, gap["_from"][0].as_py(), gap["_seq"][0].as_py())
        after = pc.max(page["_seq"]).as_py()
        wanted = pc.and_(pc.equal(page["_kind"], "record"), pc.less_equal(page["_seq"], upto))
        yield page.filter(wanted).select(names)
