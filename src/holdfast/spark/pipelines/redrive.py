"""The pipeline redrive: dead letters are filtered, repaired and sent back, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4

from pyspark.sql import DataFrame

from holdfast.spark._database import DatabaseError
from holdfast.spark._intake import Repairing
from holdfast.spark._outgoing import check_types
from holdfast.spark.options import Options, Use
from holdfast.spark.transforms import redrive as transforms

from ._call import called, found
from ._chunks import Staged
from ._needs import Need, Reads, Redrives, Selects
from ._pace import Pace, check_rate
from ._pipeline import PipelineError, Run, identity
from ._repairs import Repairs, Sender

MOST = 1_000  # dead letters that go in one transaction
SAMPLE = 5  # dead letters of which a dry run shows what changes
SHOWN = 5  # reasons that an error names
STAYS = ("gone", "held", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Dead letters of a queue, back to it or to another."""

    name: ClassVar[str] = "redrive"
    summary: ClassVar[str] = "Dead letters, repaired and sent back, nothing twice"

    queue: str
    where: str | None = None
    assignments: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    function: str | None = None
    target: str | None = None
    rate: float | None = None
    quarantine: str | None = None

    @property
    def exclusive(self) -> str:
        """Two of the same would only take each other's dead letters away."""
        return identity(self)

    def check(self) -> None:
        """Refuse a repair that cannot be understood."""
        check_rate(self.rate)
        if self.function is not None:
            if self.assignments or self.removed:
                raise PipelineError("got --function and --set or --unset; expected one of them")
            found(self.function)
        assignments, removed = self._repair
        transforms.check_places([*(each.place for each in assignments), *removed])
        for place in removed:
            if not place.path:
                raise PipelineError(f"--unset: got {place}; expected a field, such as payload.country")

    @property
    def needs(self) -> Sequence[Need]:
        """The queues, and a condition that can be asked."""
        selected = Selects(self.queue, "dead", self.where)
        return [Reads(self.queue, "dead"), selected, Redrives(self.queue, self.target)]

    def run(self, run: Run) -> Mapping[str, Any]:
        """Read, repair, stage, check and send back."""
        with run.step(f"reading the dead letters of {self.queue}"):
            letters = transforms.letters(run.messages(self.queue, **self._selection))
            mended = self._mended(letters)
            check_types(mended.select(*transforms.replaced(mended)).schema)
        work = Work(self, run, letters, mended)
        figures = work.previewed() if run.dry_run else work.done()
        return {"queue": self.queue, "target": self.target or self.queue, **figures}

    @property
    def _repair(self) -> tuple[list[transforms.Assignment], list[transforms.Place]]:
        assignments = [transforms.assignment(text) for text in self.assignments]
        return assignments, [transforms.place("--unset", text) for text in self.removed]

    @property
    def _selection(self) -> dict[str, str]:
        read = {"state": "dead", "columns": ",".join(transforms.READ)}
        return read if self.where is None else read | {"where": self.where}

    def _mended(self, letters: DataFrame) -> DataFrame:
        if self.function is not None:
            answer = called(found(self.function), letters, self.function)
            return transforms.returned(answer, letters.columns)
        return transforms.repaired(letters, *self._repair)


class Work:
    """The dead letters of one run."""

    def __init__(self, redrive: Redrive, run: Run, letters: DataFrame, mended: DataFrame) -> None:
        self._redrive = redrive
        self._run = run
        self._letters = letters
        self._mended = mended
        self._columns = transforms.replaced(mended)

    def done(self) -> Mapping[str, Any]:
        """Send back what can be."""
        repairs = self._repairs(identity(self._redrive), self._redrive.quarantine)
        try:
            staged = self._staged(repairs, self._mended)
            if self._redrive.quarantine is None:
                _refuse_refused(staged)
            tally = self._sent(repairs, staged)
        finally:
            with suppress(DatabaseError):
                repairs.drop()
        refused = sum(each.refused for each in staged)
        figures = {"found": sum(each.messages for each in staged) + refused, "sent": tally[None]}
        stayed = {reason: tally[reason] for reason in STAYS}
        where = self._redrive.quarantine if refused else None
        return figures | stayed | {"refused": refused, "quarantine": where}

    def previewed(self) -> Mapping[str, Any]:
        """Stage all of it, to hear what the engine says of it; send nothing, and show what would change."""
        letters = self._letters.persist()
        repairs = self._repairs(f"dry-run-{uuid4().hex}", None)
        try:
            staged = self._staged(repairs, self._mended)
            changes = transforms.changes(letters, self._mended).persist()
            counts = changes.groupBy("column").count().orderBy("column").collect()
            sample = changes.orderBy("id", "column").limit(SAMPLE * max(1, len(counts))).collect()
            changes.unpersist()
        finally:
            repairs.drop()
            letters.unpersist()
        return {
            "found": sum(each.messages + each.refused for each in staged),
            "would_be_sent": sum(each.messages for each in staged),
            "refused": sum(each.refused for each in staged),
            "reasons": _reasons(staged),
            "changed": {row["column"]: row["count"] for row in counts},
            "sample": [row.asDict() for row in sample],
        }

    def _repairs(self, name: str, quarantine: str | None) -> Repairs:
        redrive = self._redrive
        options = Options.parse({"url": self._run.url.reveal(), "queue": redrive.queue}, Use.WRITE)
        intake = Repairing(redrive.queue, redrive.target, tuple(self._columns))
        return Repairs(options, name, uuid4().hex, intake, quarantine)

    def _staged(self, repairs: Repairs, mended: DataFrame) -> list[Staged]:
        with self._run.step("staging and checking"):
            return repairs.stage(mended)

    def _sent(self, repairs: Repairs, staged: Sequence[Staged]) -> Counter[str | None]:
        """Send step by step; returns how many went (None), and how many stayed, by the reason."""
        total = sum(each.messages for each in staged)
        tally: Counter[str | None] = Counter()
        repairs.keep(staged)
        to = self._redrive.target or self._redrive.queue
        with self._run.step(f"sending to {to}"), closing(Sender(repairs)) as sender:
            stage = sender.gather(staged)
            pace, after = Pace(self._redrive.rate), 0
            while stage is not None and (moved := sender.send(stage, after, pace.size(MOST))):
                after = moved[-1][0]
                tally.update(stays for _, stays in moved)
                self._run.advance(tally.total(), total)
                if tally.total() < total:
                    self._run.pause(pace.wait(sum(stays is None for _, stays in moved)))
        return tally


def _refuse_refused(staged: Sequence[Staged]) -> None:
    refused = sum(each.refused for each in staged)
    if refused:
        rows = refused + sum(each.messages for each in staged)
        raise PipelineError(
            f"{refused:,} of {rows:,} dead letters cannot be sent back, so none was: "
            f"{'; '.join(_reasons(staged))}. Change the repair, or name a folder for them with --quarantine"
        )


def _reasons(staged: Sequence[Staged]) -> list[str]:
    return [reason for each in staged for reason in each.reasons][:SHOWN]
