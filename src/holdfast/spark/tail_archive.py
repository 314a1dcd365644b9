"""Tail of the archive. The place is (ended_at, id) of a batch's last row.

A message ends a moment before its transaction commits, so what ended earlier may turn up later: how far it is
safe to read is holdfast.read_archive's to say.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ._database import literal
from ._fetch import Fetcher
from ._parts import PARTITIONS, even
from ._shape import Shape
from .options import Options
from .schema import COLUMNS
from .tail import PAGE, Follower, Place

ENDED = {name: COLUMNS[name] for name in COLUMNS if name not in {"due_at", "seq"}}
POLL = 0.2  # seconds: nobody is told of an end
FOREVER = 1 << 52  # microseconds since 1970: after all that can end

MICROSECONDS = "(extract(epoch from e.ended_at) * 1000000)::bigint"
AFTER = "\"from\" => timestamptz 'epoch' + {at} * interval '1 microsecond', after => {id}"
BEFORE = "\"to\" => timestamptz 'epoch' + {at} * interval '1 microsecond' + interval '1 microsecond'"


class Spot(NamedTuple):
    """A place in the archive: microseconds since 1970, and an id."""

    at: int
    id: int


class Stretch(InputPartition):
    """Rows after one spot, up to another."""

    def __init__(self, after: Spot, upto: Spot) -> None:
        super().__init__((after, upto))


class ArchiveFollower(Follower):
    """Follows what ends in a queue and is kept."""

    KEYS: ClassVar = {"queue", "ended_at", "id"}

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._target = FOREVER
        self._seen: list[Spot] = []  # the ends of the pages of the last look: they cut the batch

    def first(self) -> Place:
        """From the beginning, or from now on."""
        return self._place(Spot(0, 0) if self.options.start == "earliest" else Spot(self._now(), 0))

    def finish(self) -> None:
        """Go no further than what has ended by now."""
        self._target = self._now()

    def ahead(self, place: Place, most: int | None) -> Place:
        """Page after page, up to a time before which none can turn up any more."""
        spot, left = self._spot(place), most
        self._seen = [spot]
        while left is None or left > 0:
            found = self._look(spot, PAGE if left is None else min(left, PAGE), None)
            if found is None:
                break
            spot, rows = found
            self._seen.append(spot)
            left = None if left is None else left - rows
        return self._place(spot)

    def doze(self, seconds: float) -> None:
        """A moment."""
        time.sleep(min(seconds, POLL))

    def parts(self, start: Place, end: Place) -> Sequence[InputPartition]:
        """Pages, some together if there are many."""
        after, upto = self._spot(start), self._spot(end)
        if after == upto:
            return []
        if self._seen[:1] != [after] or self._seen[-1:] != [upto]:
            self._seen = [after]
            while self._seen[-1] < upto and (found := self._look(self._seen[-1], PAGE, upto)):
                self._seen.append(min(found[0], upto))
        pages = list(pairwise(self._seen))
        parts = min(self.options.partitions or PARTITIONS, len(pages))
        return [Stretch(pages[lo][0], pages[hi - 1][1]) for lo, hi in even(0, len(pages), parts)]

    def pages(self, fetcher: Fetcher, shape: Shape, part: Any) -> Iterator[pa.Table]:
        """The rows of a stretch."""
        after, upto = Spot(*part[0]), Spot(*part[1])
        while after < upto:
            call = self._call(after, PAGE, upto)
            page = fetcher.table(
                f"select {MICROSECONDS} as _at, e.id as _id, m.* from {call} e"
                f" cross join lateral (select {shape.selection} from (select e.*) m) m"
                f" where ({MICROSECONDS}, e.id) <= ({upto.at}, {upto.id}) order by 1, 2"
            )
            if page.num_rows == 0:
                return
            after = Spot(page["_at"][-1].as_py(), page["_id"][-1].as_py())
            yield page

    def _look(self, after: Spot, limit: int, upto: Spot | None) -> tuple[Spot, int] | None:
        row = self.connection.execute(
            (
                f"select {MICROSECONDS}, e.id, count(*) over () from {self._call(after, limit, upto)} e"
                f" where {MICROSECONDS} <= {self._target} order by e.ended_at desc, e.id desc limit 1"
            ).encode()
        ).fetchone()
        return None if row is None else (Spot(row[0], row[1]), row[2])

    def _call(self, after: Spot, limit: int, upto: Spot | None) -> str:
        until = "" if upto is None else ", " + BEFORE.format(at=upto.at)
        start = AFTER.format(at=after.at, id=after.id)
        return f'holdfast.read_archive({literal(self._queue)}, {start}, "limit" => {limit}{until})'

    def _now(self) -> int:
        return int(self.now().timestamp() * 1_000_000)

    def _spot(self, place: Place) -> Spot:
        return Spot(int(place["ended_at"]), int(place["id"]))

    def _place(self, spot: Spot) -> Place:
        return {"queue": self._queue, "ended_at": spot.at, "id": spot.id}
