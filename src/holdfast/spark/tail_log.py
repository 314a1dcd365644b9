"""Tail of a log. The place is a batch's last sequence number; how far is safe is holdfast.read's to say."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from ._database import literal
from ._fetch import Fetcher
from ._parts import PARTITIONS, even
from ._shape import Shape
from .schema import COLUMNS
from .tail import PAGE, Follower, Place

log = logging.getLogger("holdfast.spark")

UNRECORDED = {"state", "priority", "key", "ordering_key", "deliveries", "failures", "max_deliveries"} | {
    "due_at",
    "expires_at",
    "ended_at",
    "consumer",
    "claimed_at",
}
RECORDED = {name: COLUMNS[name] for name in COLUMNS if name not in UNRECORDED}
LAST = (1 << 40) - 1  # the highest sequence number there can be
LONGEST_DOZE = 0.5  # seconds: an append that was held up by another shows without a notification
POLL = 0.1  # seconds, between looks at a log whose horizon has to come back

LOOK = """
select coalesce(max(r.seq), 0), count(*), min(r.from_seq) filter (where r.kind = 'gap'),
       max(r.to_seq) filter (where r.kind = 'gap')
from holdfast.read(%s, %s, %s) r where r.seq <= %s
"""
EXTENT = "select trimmed, coalesce(last_seq, trimmed) from holdfast.log_stats(%s)"


class MissedError(RuntimeError):
    """Records that the stream has not read are gone."""

    def __init__(self, queue: str, first: int, last: int) -> None:
        super().__init__(
            f'log "{queue}": the records {first} to {last} were removed before this stream read them; raise'
            " the log's retention, or set the option on_gap to skip, to go on without them"
        )


class Range(InputPartition):
    """Records after one number, up to another."""

    def __init__(self, after: int, upto: int) -> None:
        super().__init__((after, upto))


class LogFollower(Follower):
    """Follows the records of a log."""

    KEYS: ClassVar = {"queue", "seq"}
    _target = LAST
    _announced = False

    def first(self) -> Place:
        """From the start of the log, from its end, or from a number on."""
        trimmed, last = self._extent()
        start = self.options.start
        if start.isdigit():
            return self._place(max(0, int(start) - 1))
        return self._place(trimmed if start == "earliest" else last)

    def finish(self) -> None:
        """Go no further than what is there now."""
        self._target = self._extent()[1]

    def ahead(self, place: Place, most: int | None) -> Place:
        """Page after page, up to the first number that may still come."""
        seq, left = place["seq"], most
        while left is None or left > 0:
            limit = PAGE if left is None else min(left, PAGE)
            row = self.connection.execute(LOOK, [self._queue, seq, limit, self._target]).fetchone()
            assert row is not None
            last, rows, gap_from, gap_to = row
            if rows == 0:
                break
            if gap_from is not None:
                self._missed(gap_from, gap_to)
            seq, left = last, None if left is None else left - rows
        return self._place(seq)

    def doze(self, seconds: float) -> None:
        """Until somebody appends: first say so; then, after one more look, sleep."""
        self._announced = not self._announced
        if self._announced:
            self.announce(seconds)
        else:
            self.await_send(min(seconds, LONGEST_DOZE))

    def parts(self, start: Place, end: Place) -> Sequence[InputPartition]:
        """Even ranges of numbers."""
        return ranges(start["seq"], end["seq"], self.options.partitions)

    def pages(self, fetcher: Fetcher, shape: Shape, part: Any) -> Iterator[pa.Table]:
        """The records of a range. A row at its end or behind it is there: so read until it shows."""
        after, upto = part
        queue = literal(self._queue)
        deadline = time.monotonic() + self.options.retry_for
        while after < upto:
            page = fetcher.table(
                f"select m.kind as _kind, m.seq as _seq, m.from_seq as _from, {shape.selection}"
                f" from (select r.*, {queue} as queue, 'log' as state"
                f" from holdfast.read({queue}, {after}, {PAGE}) r) m"
            )
            if page.num_rows == 0:
                # After a crash the server has to find out anew how far it is safe to read.
                if time.monotonic() > deadline:
                    raise MissedError(self._queue, after + 1, upto)
                time.sleep(POLL)
                continue
            if page["_kind"][0].as_py() == "gap":
                self._missed(page["_from"][0].as_py(), page["_seq"][0].as_py())
            after = page["_seq"][-1].as_py()
            wanted = pc.and_(pc.equal(page["_kind"], "record"), pc.less_equal(page["_seq"], upto))
            yield page.filter(wanted)

    def _missed(self, first: int, last: int) -> None:
        if self.options.on_gap == "fail":
            raise MissedError(self._queue, first, last)
        log.warning("the records %s to %s were removed before they were read", first, last)

    def _extent(self) -> tuple[int, int]:
        row = self.connection.execute(EXTENT, [self._queue]).fetchone()
        assert row is not None
        return row[0], row[1]

    def _place(self, seq: int) -> Place:
        return {"queue": self._queue, "seq": seq}


def ranges(start: int, end: int, wanted: int | None) -> list[Range]:
    """The numbers after start up to end, in even parts."""
    span = end - start
    parts = min(wanted or min(PARTITIONS, -(-span // PAGE)), span)
    return [Range(lo, hi) for lo, hi in even(start, end, parts)]
