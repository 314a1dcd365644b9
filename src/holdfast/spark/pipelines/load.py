"""The pipeline load: rows of files or tables become messages of a queue, each once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from holdfast.spark._database import DatabaseError
from holdfast.spark._outgoing import EXCLUSIVE, check_columns
from holdfast.spark.options import Options, Use
from holdfast.spark.transforms import load as transforms
from holdfast.spark.transforms.load import OPTIONS, OUTCOME, OfColumns, OfJson, Rows

from . import _files
from ._chunks import Chunks, Staged
from ._needs import Finds, Need, Sends
from ._pipeline import PipelineError, Run, fingerprint
from ._sample import sample

MIB = 1024 * 1024
SHOWN = 5  # reasons that an error names
PLACE = re.compile(r"all|[0-9]+-[0-9]+/[0-9]{6,}")  # the layout, and the number of a chunk
LONGEST_NAME = 150  # characters of a write_id: chunks add their numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Files, a table or a query into a queue."""

    name: ClassVar[str] = "load"
    summary: ClassVar[str] = "Files or tables into a queue, validated, nothing twice"

    to: str
    paths: list[str] = field(default_factory=list)
    table: str | None = None
    query: str | None = None
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    schema: str | None = None
    mapping: dict[str, str] = field(default_factory=dict)
    payload: str | None = None
    text: bool = False
    drop_mapped: bool = False
    quarantine: str | None = None
    chunk: int = 64 * MIB
    atomic: bool = False
    write_id: str | None = None

    @property
    def exclusive(self) -> str:
        """Two loads of the same would only hinder each other."""
        return f"load {self.write_id or fingerprint(self.to, self.paths, self.table, self.query)}"

    def check(self) -> None:
        """Refuse parameters that contradict one another."""
        given = [name for name in ("paths", "table", "query") if getattr(self, name)]
        if len(given) != 1:
            got = " and ".join(given) or "nothing to load"
            raise PipelineError(f"got {got}; expected paths, --table or --query")
        if self.format is not None and self.format not in _files.FORMATS:
            raise PipelineError(f"--format: got {self.format}; expected one of {', '.join(_files.FORMATS)}")
        for option in self.mapping:
            if option not in OPTIONS:
                raise PipelineError(f"--map: got {option}; expected some of {', '.join(OPTIONS)}")
        for one, other in EXCLUSIVE:
            if {one, other} <= {*self.mapping, *(["payload"] if self.payload else [])}:
                raise PipelineError(f"got {one} and {other}; expected one of them")
        if self.text and self.payload is None:
            raise PipelineError("--text: got no column that is text; expected --payload COLUMN with it")
        if self.drop_mapped and (not self.mapping or self.payload is not None):
            raise PipelineError("--drop-mapped: got no row to take out of; expected --map, and no --payload")
        if self.write_id is not None and not 1 <= len(self.write_id) <= LONGEST_NAME:
            raise PipelineError(f"--write-id: expected 1 to {LONGEST_NAME} characters")

    @property
    def needs(self) -> Sequence[Need]:
        """The files, and the queue."""
        return [*map(Finds, self.paths), Sends(self.to)]

    def run(self, run: Run) -> Mapping[str, Any]:
        """List, read, stage, and send what is good."""
        spark = _steady(run.spark, self.chunk)
        with run.step("listing files" if self.paths else "looking at the table"):
            files = _files.listed(spark, self.paths) if self.paths else []
            frame = self._messages(spark, files)
            check_columns(StructType([each for each in frame.schema.fields if each.name not in OUTCOME]))
            work = Work(self, run, frame, self._identity(frame, files))
        figures: dict[str, Any] = {"queue": self.to}
        if files:
            figures |= {"files": len(files), "bytes": sum(file.size for file in files)}
        return {**figures, **(work.previewed() if run.dry_run else work.done())}

    def _identity(self, frame: DataFrame, files: Sequence[_files.File]) -> str:
        """The same for the same content, whatever paths it is called by, and wherever bad rows go."""
        if self.write_id is not None:
            return self.write_id
        content = [(file.path, file.size, file.modified) for file in files]
        rows = [self.format, self.options, self.schema, frame.schema.simpleString()]
        messages = [self.mapping, self.payload, self.text, self.drop_mapped]
        known = fingerprint(self.to, content, self.table, self.query, rows, messages)
        return f"load-{known}"

    def _messages(self, spark: SparkSession, files: Sequence[_files.File]) -> DataFrame:
        """Rows as messages, with reasons where they are none."""
        frame, rows = self._rows(spark, files)
        if self.schema is not None:
            schema = _schema(self.schema)
            if isinstance(rows, OfColumns):
                _refuse_missing("--schema", schema.names, rows)
            frame = transforms.typed(frame, rows, schema)
            rows = OfColumns(frame.schema)
        if isinstance(rows, OfJson) and not self.mapping and self.payload is None:
            return transforms.whole(frame)
        if isinstance(rows, OfColumns):
            _refuse_missing("--map", list(self.mapping.values()), rows)
            _refuse_missing("--payload", [self.payload] if self.payload else [], rows)
        return transforms.messages(
            frame,
            rows,
            self.mapping,
            payload=self.payload,
            text=self.text,
            drop_mapped=self.drop_mapped,
        )

    def _rows(self, spark: SparkSession, files: Sequence[_files.File]) -> tuple[DataFrame, Rows]:
        if not files:
            frame = spark.table(self.table) if self.table else spark.sql(str(self.query))
            nowhere = F.lit(None).cast("string").alias(transforms.FILE)
            return frame.select("*", nowhere), OfColumns(frame.schema)
        kind = self.format or _files.format_of(files)
        frame = _files.read(spark, kind, files, self.paths, self.options)
        if kind in ("csv", "parquet"):
            return frame, OfColumns(frame.schema)
        needed = self.schema is not None or self.mapping or self.payload is not None
        return transforms.objects(frame) if needed else frame, OfJson()


class Work:
    """The chunks of one load: which are left, and what becomes of them."""

    def __init__(self, load: Load, run: Run, frame: DataFrame, identity: str) -> None:
        self._load = load
        self._run = run
        self._frame = frame
        self._identity = identity
        self._count = frame.rdd.getNumPartitions()
        # A table has no order that would be the same next time: it is one chunk.
        self._atomic = load.atomic or not load.paths
        self._chunks = self._named(f"{identity}/{self._layout}", load.quarantine)

    def done(self) -> Mapping[str, Any]:
        """Send what was not sent before."""
        sent = self._sent_before()
        left = [number for number in range(self._count) if self._chunks.name(number) not in sent]
        try:
            staged, messages = self._sent(left)
        except BaseException:
            with suppress(DatabaseError):
                self._chunks.drop()
            raise
        figures = {"sent": messages, "sent_before": sum(sent.values()), "chunks": self._count}
        rejected = sum(each.rejected for each in staged)
        where = self._load.quarantine if rejected else None
        return figures | {"rejected": rejected, "quarantine": where, "write_id": self._identity}

    def previewed(self) -> Mapping[str, Any]:
        """Stage all, to hear what the engine says of it, and send nothing."""
        trial = self._named(f"dry-run-{uuid4().hex}", None)
        try:
            staged = [each for wave in self._waves(range(self._count)) for each in self._staged(trial, wave)]
        finally:
            trial.drop()
        good = self._frame.where(F.col(transforms.REASON).isNull()).drop(*OUTCOME)
        return {
            "rows": sum(each.messages + each.rejected for each in staged),
            "would_be_sent": sum(each.messages for each in staged),
            "rejected": sum(each.rejected for each in staged),
            "reasons": _reasons(staged),
            "sent_before": sum(self._sent_before().values()),
            "chunks": self._count,
            "schema": good.schema.simpleString(),
            "sample": sample(good),
            "write_id": self._identity,
        }

    @property
    def _layout(self) -> str:
        """What has to be the same for chunks to be the same."""
        return "all" if self._atomic else f"{self._load.chunk}-{self._count}"

    def _named(self, write_id: str, quarantine: str | None) -> Chunks:
        known = {"url": self._run.url.reveal(), "queue": self._load.to}
        options = Options.parse(known, Use.WRITE)
        return Chunks(options, write_id, uuid4().hex, self._atomic, quarantine)

    def _sent_before(self) -> dict[str, int]:
        begun = self._run.writes(self._load.to, f"{self._identity}/")
        found = {name: count for name, count in begun.items() if is_chunk(name, self._identity)}
        others = [name for name in found if not self._is_ours(name)]
        if others:
            began = others[0].removeprefix(f"{self._identity}/").partition("/")[0].partition("-")[0]
            how = "--atomic" if began == "all" else f"--chunk {began}"
            expected = "the files of that time" if began == str(self._load.chunk) else how
            raise PipelineError(
                f"a part of this was loaded with other chunks: expected {expected}, to go on."
                " To send all of it again, name it anew with --write-id"
            )
        return found

    def _is_ours(self, name: str) -> bool:
        """Whether a write is one of these chunks: 1048576-12 is not 1048576-1, though it begins so."""
        whole = f"{self._identity}/{self._layout}"
        return name == whole if self._atomic else name.startswith(f"{whole}/")

    def _sent(self, left: Sequence[int]) -> tuple[list[Staged], int]:
        """Stage and send. Without a quarantine nothing is sent before all of it has been looked at."""
        at_once = self._load.quarantine is not None and not self._atomic
        staged: list[Staged] = []
        messages = done = 0
        with self._run.step(f"sending to {self._load.to}" if at_once else "staging and checking"):
            for wave in self._waves(left):
                found = self._staged(self._chunks, wave)
                staged += found
                messages += self._chunks.send(found) if at_once else 0
                done += len(wave)
                self._run.advance(self._count - len(left) + done, self._count)
        if at_once:
            return staged, messages
        if self._load.quarantine is None:
            _refuse_rejected(staged)
        return staged, self._sent_in_turn(staged)

    def _sent_in_turn(self, staged: Sequence[Staged]) -> int:
        with self._run.step(f"sending to {self._load.to}"):
            if self._atomic:
                return self._chunks.send(staged) if staged else 0
            messages = 0
            for done, each in enumerate(sorted(staged, key=lambda each: each.number), 1):
                messages += self._chunks.send([each])
                self._run.advance(done, len(staged))
            return messages

    def _staged(self, chunks: Chunks, wave: Sequence[int]) -> list[Staged]:
        self._run.check()
        return chunks.stage(self._frame, wave)

    def _waves(self, numbers: Sequence[int]) -> list[Sequence[int]]:
        """As many chunks at a time as Spark has something to do with."""
        size = 2 * self._run.spark.sparkContext.defaultParallelism
        return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def is_chunk(name: str, identity: str) -> bool:
    """Whether a write is a chunk of this load, in any layout: names of others may begin alike."""
    return name.startswith(f"{identity}/") and PLACE.fullmatch(name, len(identity) + 1) is not None


def _steady(spark: SparkSession, chunk: int) -> SparkSession:
    """A session in which files are always cut in the same way, however many cores there are."""
    own = spark.newSession()
    own.conf.set("spark.sql.files.maxPartitionBytes", str(chunk))
    own.conf.set("spark.sql.files.minPartitionNum", "1")
    own.conf.set("spark.sql.files.openCostInBytes", str(min(chunk, MIB)))
    return own


def _schema(ddl: str) -> StructType:
    try:
        found = DataType.fromDDL(ddl)
        assert isinstance(found, StructType)
        return found
    except Exception as error:
        raise PipelineError(f"--schema: got {ddl!r}; expected columns as DDL, such as 'id BIGINT'") from error


def _refuse_missing(option: str, names: Sequence[str], rows: OfColumns) -> None:
    for name in names:
        if name not in rows.names:
            raise PipelineError(f"{option}: got {name}; expected some of {', '.join(rows.names)}")


def _refuse_rejected(staged: Sequence[Staged]) -> None:
    rejected = sum(each.rejected for each in staged)
    if rejected:
        rows = rejected + sum(each.messages for each in staged)
        raise PipelineError(
            f"{rejected:,} of {rows:,} rows are no messages, so none was sent: {'; '.join(_reasons(staged))}."
            " Mend them, or name a folder for them with --quarantine"
        )


def _reasons(staged: Sequence[Staged]) -> list[str]:
    return [reason for each in staged for reason in each.reasons][:SHOWN]
