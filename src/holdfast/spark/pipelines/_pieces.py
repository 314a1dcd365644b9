"""Pieces: a frame in order goes to a queue in writes of a bounded size, named by where they end.

A name holds the place of a piece's last row, and pieces go one after the other: so the greatest name says how
far a replay is, whatever the sizes were, and wherever the rows came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame

from holdfast.spark._intake import Replaying
from holdfast.spark.options import Options
from holdfast.spark.sink import Part, Stage
from holdfast.spark.transforms.replay import SPOT, Spot

PLACE = re.compile(r"[0-9]{17}/[0-9]{17}-[0-9]{17}-[0-9]{19}")  # the range's end, and the spot
PIECE = "number bigint, nth bigint, name string, stage bigint, messages bigint"
ARROW = pa.schema(
    [
        ("number", pa.int64()),
        ("nth", pa.int64()),
        ("name", pa.string()),
        ("stage", pa.int64()),
        ("messages", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Rows that were staged together; stage None: they were sent before."""

    number: int
    nth: int
    name: str
    stage: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """The writes of one replay."""

    options: Options
    prefix: str
    run: str
    size: int

    def planned(self, frame: DataFrame) -> RDD[Any]:
        """The work of all partitions, for stage(): planned once, so that rows are sorted once."""
        return frame.mapInArrow(self._fill, PIECE).rdd

    def stage(self, planned: RDD[Any], numbers: Sequence[int]) -> list[Piece]:
        """Stage some partitions; returns their pieces in order."""
        found = planned.context.runJob(planned, _listed, list(numbers))
        return sorted(Piece(**row.asDict()) for row in found)

    def send(self, piece: Piece) -> int:
        """Send a piece, unless that was done before; returns how many messages went out."""
        if piece.stage is None:
            return 0
        part = Part(piece.number, piece.stage, piece.messages, 0, None)
        return self._stage(piece.name).send([part])

    def drop(self) -> None:
        """Remove what this run has staged and not sent."""
        self._stage(self.prefix).drop([])

    def _stage(self, name: str) -> Stage:
        return Stage(self.options, name, self.run, Replaying())

    def _fill(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a task does."""
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        for nth, rows in enumerate(cut(batches, self.size)):
            name = spot_name(self.prefix, Spot(*(rows[part][-1].as_py() for part in SPOT)))
            own = rows.select([column for column in rows.schema.names if column not in SPOT])
            part = self._stage(name).fill(iter([own]), number)
            piece = Piece(number, nth, name, part.stage, part.messages)
            yield pa.RecordBatch.from_pylist([asdict(piece)], schema=ARROW)


def cut(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of this size; the last one may be smaller."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        while batch.num_rows:
            room = size - sum(each.num_rows for each in waiting)
            waiting.append(batch.slice(0, room))
            batch = batch.slice(room)
            if sum(each.num_rows for each in waiting) == size:
                yield pa.concat_batches(waiting)
                waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def spot_name(prefix: str, spot: Spot) -> str:
    """The name of the piece that ends there; names sort as spots do."""
    return f"{prefix}/{spot.ended:017}-{spot.enqueued:017}-{spot.id:019}"


def is_piece(name: str, identity: str) -> bool:
    """Whether a write is a piece of this replay: other writes may have names that begin alike."""
    return name.startswith(f"{identity}/") and PLACE.fullmatch(name, len(identity) + 1) is not None


def spot_of(name: str) -> Spot:
    """Where a piece ends, by its name."""
    return Spot(*map(int, name.rpartition("/")[2].split("-")))


def _listed(rows: Iterable[Any]) -> list[Any]:
    return list(rows)
