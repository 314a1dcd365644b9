"""The quarantine: rows that cannot be sent, with the reason, as Parquet; a file for each part of a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

REASONS = (pa.field("row", pa.int64()), pa.field("reason", pa.string()))


class Quarantine:
    """The folder of one write in the quarantine."""

    def __init__(self, place: str, write_id: str) -> None:
        if "://" in place:
            self._files, root = fs.FileSystem.from_uri(place)
        else:
            self._files, root = fs.LocalFileSystem(), place
        self._folder = f"{root.rstrip('/')}/write_id={quote(write_id, safe='')}"

    def part(self, number: int) -> QuarantinePart:
        """The file of one part, which is there when the part is done, and only if it has rows."""
        return QuarantinePart(self._files, self._folder, f"part-{number:05}.parquet")

    def keep(self, names: Sequence[str]) -> None:
        """Remove what attempts have left that do not count."""
        for found in self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True)):
            if found.base_name not in names:
                self._files.delete_file(found.path)


class Aside(Protocol):
    """Where the bad rows of one part go."""

    name: str
    rows: int

    def add(self, batch: pa.RecordBatch, refused: Mapping[int, str], first: int) -> None:
        """Set some rows of a batch aside, which are named by their place in it."""
        ...


class QuarantinePart:
    """Writes the file of one part; nothing is made before the first row."""

    def __init__(self, files: fs.FileSystem, folder: str, name: str) -> None:
        self.name = name
        self.rows = 0
        self._files = files
        self._path = f"{folder}/{name}"
        # Spark passes over names that begin with a dot.
        self._draft = f"{folder}/.{name}.{uuid4().hex}"
        self._folder = folder
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch, refused: Mapping[int, str], first: int) -> None:
        """Set some rows of a batch aside, which are named by their place in it."""
        places = sorted(refused)
        own = [name for name in batch.schema.names if name not in {field.name for field in REASONS}]
        taken = batch.select(own).take(pa.array(places, pa.int64()))
        schema = pa.schema([*REASONS, *taken.schema])
        numbers = pa.array([first + place for place in places], pa.int64())
        reasons = pa.array([refused[place] for place in places], pa.string())
        if self._writer is None:
            self._files.create_dir(self._folder, recursive=True)
            self._writer = pq.ParquetWriter(self._draft, schema, filesystem=self._files, compression="zstd")
        rows = pa.RecordBatch.from_arrays([numbers, reasons, *taken.columns], schema=schema)
        self._writer.write_batch(rows)
        self.rows += len(places)

    def __enter__(self) -> QuarantinePart:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if error is None:
            self._files.move(self._draft, self._path)
        else:
            self._files.delete_file(self._draft)
