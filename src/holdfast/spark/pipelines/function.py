"""The user's own pipeline: messages of a queue, through a function, to a queue or a folder of Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from ._call import called, found
from ._counting import Counting
from ._needs import Makes, Need, Reads, Selects, Sends, in_the_way
from ._pipeline import Run
from ._sample import sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A batch read, a function DataFrame → DataFrame, and a write."""

    name: ClassVar[str] = "function"
    summary: ClassVar[str] = "Messages of a queue through a function of yours, to a queue or a folder"

    function: str
    source: str
    state: str = "ready"
    where: str | None = None
    payload_schema: str | None = None
    to: str
    write_id: str | None = None
    overwrite: bool = False

    def check(self) -> None:
        """Refuse a function that is not there."""
        found(self.function)

    @property
    def needs(self) -> Sequence[Need]:
        """The source, and a place to write to."""
        source: list[Need] = [Reads(self.source, self.state), Selects(self.source, self.state, self.where)]
        if not is_folder(self.to):
            return [*source, Sends(self.to)]
        return source if self.overwrite else [*source, Makes(self.to)]

    def run(self, run: Run) -> Mapping[str, Any]:
        """Read, call the function, and write what it returns."""
        function = found(self.function)
        with run.step(f"reading {self.source}"):
            source = Counting(run.messages(self.source, **self._options()))
            frame = called(function, source.frame, self.function)
        if run.dry_run:
            return self._previewed(run, frame)
        with run.step(f"writing to {self.to}"):
            written = self._saved(frame) if is_folder(self.to) else self._sent(run, frame)
        known = {"from": self.source, "to": self.to, "columns": frame.columns}
        return {**known, "read": source.rows(), **written}

    def _options(self) -> dict[str, str]:
        options = {"state": self.state}
        if self.where is not None:
            options["where"] = self.where
        if self.payload_schema is not None:
            options["payload_schema"] = self.payload_schema
        return options

    def _previewed(self, run: Run, frame: DataFrame) -> Mapping[str, Any]:
        with run.step("counting"):
            known = {"from": self.source, "to": self.to, "schema": frame.schema.simpleString()}
            return {**known, "rows": frame.count(), "sample": sample(frame)}

    def _sent(self, run: Run, frame: DataFrame) -> dict[str, int]:
        write_id = self.write_id or f"{self.name}-run-{run.id}"
        before = self._known(run, write_id)
        run.send(frame, self.to, write_id=write_id)
        if before is not None:
            return {"sent": 0, "sent_before": before}
        return {"sent": self._known(run, write_id) or 0}

    def _known(self, run: Run, write_id: str) -> int | None:
        """How many messages the write of this name had, if it was sent."""
        with run.database() as connection:
            # In the order of names, the one that is the prefix is the first.
            row = connection.execute(
                "select write_id, messages from holdfast.writes(%s, %s, 1)", [self.to, write_id]
            ).fetchone()
        return int(row[1]) if row and row[0] == write_id else None

    def _saved(self, frame: DataFrame) -> dict[str, int | None]:
        rows = Counting(frame)
        mode = "overwrite" if self.overwrite else "errorifexists"
        try:
            rows.frame.write.parquet(self.to, mode=mode, compression="zstd")
        except Exception as error:
            if "PATH_ALREADY_EXISTS" in str(error):
                raise in_the_way(self.to) from error
            raise
        return {"saved": rows.rows()}


def is_folder(place: str) -> bool:
    """Whether a target is a folder: no queue has a slash in its name."""
    return "/" in place
