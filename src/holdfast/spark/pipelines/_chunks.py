"""Chunks: a frame goes to a queue partition by partition, and each partition is a write of its own.

Tasks stage the rows of their partition; rows that are no messages are set aside and counted. Sending is left
to the driver: it can look at all that was refused first, and sends the chunks in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from holdfast.spark._quarantine import Aside, Quarantine
from holdfast.spark.options import Options
from holdfast.spark.sink import Part, Stage
from holdfast.spark.transforms.load import CONTENT, FILE, OUTCOME, REASON

SHOWN = 5  # reasons that a chunk keeps
UNREADABLE, REFUSED = "unreadable", "refused"
STAGED = (
    "number bigint, stage bigint, messages bigint, unreadable bigint, refused bigint, file string,"
    " reasons array<string>"
)


@dataclass(frozen=True, slots=True)
class Staged:
    """What became of one partition; stage None: it was sent before."""

    number: int
    stage: int | None
    messages: int
    unreadable: int
    refused: int
    file: str | None
    reasons: tuple[str, ...]

    @property
    def rejected(self) -> int:
        """How many rows are no messages, for one reason or the other."""
        return self.unreadable + self.refused

    @property
    def part(self) -> Part:
        """The same as the sink sees it."""
        return Part(self.number, self.stage, self.messages, self.refused, self.file)


@dataclass(frozen=True, slots=True)
class Chunks:
    """A frame of messages with reasons, on its way to a queue."""

    options: Options
    write_id: str
    run: str
    atomic: bool
    quarantine: str | None

    def name(self, number: int) -> str:
        """The name of the write that a partition is, or is a part of."""
        return self.write_id if self.atomic else f"{self.write_id}/{number:06}"

    def stage(self, frame: DataFrame, numbers: Sequence[int]) -> list[Staged]:
        """Stage some partitions of a frame."""
        outcome = frame.mapInArrow(self._fill, STAGED).rdd
        return read_reports(frame.sparkSession.sparkContext.runJob(outcome, _listed, list(numbers)))

    def send(self, staged: Sequence[Staged]) -> int:
        """Send partitions in the order of their numbers; returns how many messages went out."""
        ordered = sorted(staged, key=lambda each: each.number)
        if self.atomic:
            return self._stage(0).send([each.part for each in ordered])
        return sum(self._stage(each.number).send([each.part]) for each in ordered if each.stage is not None)

    def drop(self) -> None:
        """Remove whatever this run has staged and not sent."""
        self._stage(0).drop([])

    def _stage(self, number: int) -> Stage:
        refused = f"{self.quarantine}/{REFUSED}" if self.quarantine else None
        return Stage(replace(self.options, quarantine=refused), self.name(number), self.run)

    def _fill(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a task does."""
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        with ExitStack() as stack:
            unreadable, refused = (self._aside(kind, number, stack) for kind in (UNREADABLE, REFUSED))
            part = self._stage(number).fill(readable(batches, unreadable), number, refused)
        yield reported(part, unreadable.rows, [*unreadable.reasons, *refused.reasons])

    def _aside(self, kind: str, number: int, stack: ExitStack) -> Reasons:
        place = f"{self.quarantine}/{kind}" if self.quarantine else None
        return reasons_aside(place, self.name(number), number, stack)


ARROW = pa.schema(
    [
        ("number", pa.int64()),
        ("stage", pa.int64()),
        ("messages", pa.int64()),
        ("unreadable", pa.int64()),
        ("refused", pa.int64()),
        ("file", pa.string()),
        ("reasons", pa.list_(pa.string())),
    ]
)


def reported(part: Part, unreadable: int, reasons: Sequence[str]) -> pa.RecordBatch:
    """What a task says of its partition."""
    known = {
        "number": part.number,
        "stage": part.stage,
        "messages": part.messages,
        "unreadable": unreadable,
        "refused": part.refused,
        "file": part.file or None,
        "reasons": list(reasons[:SHOWN]),
    }
    return pa.RecordBatch.from_pylist([known], schema=ARROW)


def read_reports(rows: Iterable[Any]) -> list[Staged]:
    """What tasks have said."""
    return [Staged(**{**row.asDict(), "reasons": tuple(row.reasons)}) for row in rows]


def reasons_aside(place: str | None, write_id: str, number: int, stack: ExitStack) -> Reasons:
    """Where the bad rows of a partition go: to a file of a quarantine, if there is one."""
    if place is None:
        return Reasons(None)
    return Reasons(stack.enter_context(Quarantine(place, write_id).part(number)))


class Reasons:
    """Counts rows that are set aside and keeps the first reasons; the rows go to a file, if there is one."""

    def __init__(self, aside: Aside | None) -> None:
        self.rows = 0
        self.reasons: list[str] = []
        self.name = aside.name if aside else ""
        self._aside = aside

    def add(self, batch: pa.RecordBatch, refused: Mapping[int, str], first: int) -> None:
        """Set some rows of a batch aside."""
        self.rows += len(refused)
        wanted = sorted(refused)[: SHOWN - len(self.reasons)]
        self.reasons += [f"{_where(batch, place)}{refused[place]}" for place in wanted]
        if self._aside is not None:
            self._aside.add(batch, refused, first)


def readable(batches: Iterator[pa.RecordBatch], aside: Reasons) -> Iterator[pa.RecordBatch]:
    """The rows without a reason, in the columns of a message; the others go aside."""
    first = 1
    for batch in batches:
        reasons = batch[REASON]
        bad = {place: reasons[place].as_py() for place in pc.indices_nonzero(reasons.is_valid()).to_pylist()}
        if bad:
            content = batch.select([FILE, CONTENT]).rename_columns(["file", "content"])
            aside.add(content, bad, first)
        good = batch.filter(reasons.is_null()) if bad else batch
        first += batch.num_rows
        if good.num_rows:
            yield good.select([name for name in batch.schema.names if name not in OUTCOME])


def _where(batch: pa.RecordBatch, place: int) -> str:
    """What a row looks like, for people."""
    if "id" in batch.schema.names:
        return f"{batch['id'][place]}: "
    if "content" not in batch.schema.names:
        shown = batch["payload"][place].as_py() if "payload" in batch.schema.names else None
        return f"{str(shown)[:80]}: " if shown is not None else ""
    file, content = (batch[name][place].as_py() for name in ("file", "content"))
    return (f"{file}: " if file else "") + f"{str(content)[:80]}: "


def _listed(rows: Iterable[Any]) -> list[Any]:
    return list(rows)
