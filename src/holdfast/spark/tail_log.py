"""Tail of a log. The place is a batch's last sequence number; how far is safe is holdfast.read's to say.

A place also tells which log it is, by the lane and the time of the record there: one day there may be another
under the same name and number. A place before the first batch tells neither.
"""

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
HERE = """
select r.from_seq, r.id >> 40, (extract(epoch from r.enqueued_at) * 1000000)::bigint
from holdfast.read(%s, %s, 1) r
"""
EXTENT = "select trimmed, coalesce(last_seq, trimmed) from holdfast.log_stats(%s)"


class MissedError(RuntimeError):
    """Records that the stream has not read are gone."""

    def __init__(self, queue: str, first: int, last: int) -> None:
        super().__init__(
            f'log "{queue}": the records {first} to {last} were removed before this stream read them; raise'
            " the log's retention, or set the option on_gap to skip, to go on without them"
        )


class ReplacedError(RuntimeError):
    """The log is not the one that the stream has read."""

    def __init__(self, queue: str, seq: int) -> None:
        super().__init__(
            f'log "{queue}": the record {seq}, which this stream has read, is not there, or another has its'
            " number: the log was dropped and made anew, restored from a backup, or lost its last records in"
            " a crash; begin a new checkpoint, with the option start at the first record that is wanted"
        )


class Range(InputPartition):
    """Records after one number, up to another."""

    def __init__(self, after: int, upto: int) -> None:
        super().__init__((after, upto))


class LogFollower(Follower):
    """Follows the records of a log."""

    KEYS: ClassVar = {"queue", "seq"}
    LATER_KEYS: ClassVar = {"lane", "at"}
    _target = LAST
    _announced = False

    def first(self) -> Place:
        """From the start of the log, from its end, or from a number on."""
        trimmed, last = self._extent()
        start = self.options.start
        if start.isdigit():
            return self._before(max(0, int(start) - 1))
        return self._before(trimmed if start == "earliest" else last)

    def finish(self) -> None:
        """Go no further than what is there now."""
        self._target = self._extent()[1]

    def ahead(self, place: Place, most: int | None) -> Place:
        """Page after page, up to the first number that may still come."""
        self._prove(place)
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
        return place if seq == place["seq"] else self._behind(place, seq)

    def doze(self, seconds: float) -> None:
        """Until somebody appends: first say so; then, after one more look, sleep."""
        self._announced = not self._announced
        if self._announced:
            self.announce(seconds)
        else:
            self.await_send(min(seconds, LONGEST_DOZE))

    def parts(self, start: Place, end: Place) -> Sequence[InputPartition]:
        """Even ranges of numbers."""
        self._prove(end)
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

    def _before(self, seq: int) -> Place:
        """A place where nothing was read yet: the log need not have come so far."""
        return {"queue": self._queue, "seq": seq, "lane": None, "at": None}

    def _behind(self, place: Place, seq: int) -> Place:
        """The place of a record that was found after another place."""
        lane, at = self._here(seq)
        known = place.get("lane")
        if known is not None and lane not in (None, known):
            raise ReplacedError(self._queue, place["seq"])
        return {"queue": self._queue, "seq": seq, "lane": known if lane is None else lane, "at": at}

    def _prove(self, place: Place) -> None:
        """Refuse a log that has not, or never had, what the stream has read up to this place."""
        if "lane" in place and place["lane"] is None:
            return
        for name, found in zip(("lane", "at"), self._here(place["seq"]), strict=True):
            if found is not None and place.get(name) not in (None, found):
                raise ReplacedError(self._queue, place["seq"])

    def _here(self, seq: int) -> tuple[int | None, int | None]:
        """Lane and time of the record with a number that was read; of one that was removed since, neither."""
        row = self.connection.execute(HERE, [self._queue, seq - 1]).fetchone()
        if row is None or row[0] != seq:
            raise ReplacedError(self._queue, seq)
        return row[1], row[2]


def ranges(start: int, end: int, wanted: int | None) -> list[Range]:
    """The numbers after start up to end, in even parts."""
    span = end - start
    parts = min(wanted or min(PARTITIONS, -(-span // PAGE)), span)
    return [Range(lo, hi) for lo, hi in even(start, end, parts)]
