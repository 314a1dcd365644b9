"""The user's own pipeline: messages of a queue, through a function, to a queue or a folder of Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from ._call import called, found
from ._pipeline import PipelineError, Run

SAMPLE = 5  # rows that a dry run shows


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

    def run(self, run: Run) -> Mapping[str, Any]:
        """Read, call the function, and write what it returns."""
        function = found(self.function)
        with run.step(f"reading {self.source}"):
            frame = called(function, run.messages(self.source, **self._options()), self.function)
        if run.dry_run:
            return self._previewed(run, frame)
        with run.step(f"writing to {self.to}"):
            if is_folder(self.to):
                self._save(frame)
            else:
                run.send(frame, self.to, write_id=self.write_id or f"{self.name}-run-{run.id}")
        return {"from": self.source, "to": self.to, "columns": frame.columns}

    def _options(self) -> dict[str, str]:
        options = {"state": self.state}
        if self.where is not None:
            options["where"] = self.where
        if self.payload_schema is not None:
            options |= {"payload": "struct", "payload_schema": self.payload_schema}
        return options

    def _previewed(self, run: Run, frame: DataFrame) -> Mapping[str, Any]:
        with run.step("counting"):
            rows = frame.count()
            sample = [row.asDict(recursive=True) for row in frame.limit(SAMPLE).collect()]
        return {"from": self.source, "to": self.to, "schema": frame.schema.simpleString(), "rows": rows} | {
            "sample": [str(row) for row in sample]
        }

    def _save(self, frame: DataFrame) -> None:
        try:
            frame.write.parquet(
                self.to, mode="overwrite" if self.overwrite else "errorifexists", compression="zstd"
            )
        except Exception as error:
            if "PATH_ALREADY_EXISTS" in str(error):
                raise PipelineError(
                    f"there is something in {self.to}; name another folder, or add --overwrite"
                ) from error
            raise


def is_folder(place: str) -> bool:
    """Whether a target is a folder: no queue has a slash in its name."""
    return "/" in place
