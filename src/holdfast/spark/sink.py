"""The batch write: tasks stage their rows, and one transaction sends them all.

Each attempt of a task puts its rows into a stage of its own. The driver's commit names the stages of the
attempts that count; the engine sends them, in the order of the partitions, and remembers the write by its
id, in one transaction. So a write is sent whole or not at all, and a second one of the same id sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ._access import check_sendable
from ._database import DatabaseError, arrow_errors, calls
from ._fetch import ingestion
from ._intake import Intake, Sending
from ._outgoing import IN_JSON, check_columns, text_of, unstorable
from ._quarantine import Aside, Quarantine
from ._retry import retried
from ._worker import settle
from .options import OptionError, Options, Secret

SHOWN = 5  # bad rows that an error names
TWICE = "23505"  # a number that is there already


class BadRowsError(ValueError):
    """Some rows cannot be sent."""


@dataclass(frozen=True, slots=True)
class Part(WriterCommitMessage):
    """What one task has staged; stage None: the write was sent before."""

    number: int
    stage: int | None
    messages: int
    refused: int
    file: str | None


class MessageWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame to one queue."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode", "overwrite", "append: a queue is added to, never replaced")
        check_columns(schema)
        check_sendable(options.url, options.queue)
        self._run = uuid4().hex
        self._stage = Stage(options, options.write_id or self._run, self._run)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        context = TaskContext.get()
        return self._stage.fill(iterator, 0 if context is None else context.partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Send what the tasks have staged."""
        self._stage.send([part for part in messages if isinstance(part, Part)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged."""
        self._stage.drop([part for part in messages if isinstance(part, Part)])


class Stage:
    """One write's way into a queue: filled by tasks, sent or dropped by the driver."""

    def __init__(self, options: Options, write_id: str, run: str, intake: Intake | None = None) -> None:
        self._options = options
        self._write_id = write_id
        self._run = run
        self._intake = intake or Sending(options.queue)

    def fill(
        self, batches: Iterator[pa.RecordBatch], number: int, aside: Aside | None = None
    ) -> Part:
        """Stage the rows of one part. Bad rows go aside, if not otherwise then to the quarantine."""
        settle()
        options = self._options
        with calls(options.url) as connection:
            stage: int | None = _value(
                connection,
                "select holdfast.open_stage(%s, %s, %s, %s)",
                [options.queue, self._write_id, self._run, number],
            )
            if stage is None:
                return Part(number, None, 0, 0, None)
            with ExitStack() as stack:
                if options.quarantine and aside is None:
                    aside = stack.enter_context(Quarantine(options.quarantine, self._write_id).part(number))
                cursor = stack.enter_context(ingestion(options.url))
                filler = _Filler(options.url, self._intake, connection, cursor, stage, number, aside)
                for batch in batches:
                    filler.add(batch)
        file = aside.name if aside and aside.rows else None
        return Part(number, stage, filler.staged, filler.refused, file)

    def send(self, parts: Sequence[Part]) -> int:
        """Send all parts in their order, unless that has been done; returns how many messages went out."""
        ordered = sorted((part for part in parts if part.stage is not None), key=lambda part: part.number)
        stages = [part.stage for part in ordered]
        messages = sum(part.messages for part in ordered)
        sent, repeated = retried(lambda: self._send(stages, messages), patience=self._options.retry_for)
        if self._options.quarantine and not repeated:
            files = [part.file for part in ordered if part.file]
            Quarantine(self._options.quarantine, self._write_id).keep(files)
        return 0 if repeated else sent

    def drop(self, parts: Sequence[Part]) -> None:
        """Remove what was staged, as far as the database can be reached; maintain() removes the rest."""
        if self._options.quarantine and any(part.file for part in parts):
            Quarantine(self._options.quarantine, self._write_id).keep([])
        with suppress(DatabaseError), calls(self._options.url) as connection:
            connection.execute("select holdfast.drop_staged(%s)", [self._run])

    def _send(self, stages: Sequence[int | None], messages: int) -> tuple[int, bool]:
        with calls(self._options.url) as connection:
            found = connection.execute(
                f"select sent, repeated from holdfast.{self._intake.verb}(%s, %s, %s::bigint[], %s)".encode(),
                [self._options.queue, self._write_id, list(stages), messages],
            ).fetchall()
        return int(found[0][0]), bool(found[0][1])


class _Filler:
    """Puts batches into one stage, and sets bad rows aside."""

    def __init__(
        self,
        url: Secret,
        intake: Intake,
        connection: psycopg.Connection[Any],
        cursor: Any,
        stage: int,
        number: int,
        aside: Aside | None,
    ) -> None:
        self.staged = 0
        self.refused = 0
        self._url = url
        self._intake = intake
        self._connection = connection
        self._cursor = cursor
        self._stage = stage
        self._number = number
        self._aside = aside
        self._seen = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Stage a batch."""
        first = self._seen + 1
        self._seen += batch.num_rows
        found = self._intake.stored(batch, self._stage, first)
        unsound = unstorable(found)
        found, refused = self._intake.taken(self._connection, batch, found)
        refused = unsound | refused
        if not self._ingested(found, refused):
            refused |= self._unreadable(found, refused)
            if not self._ingested(found, refused, last=True):
                return
        refused |= self._intake.judged(self._connection, self._stage, batch, first)
        if refused:
            self._set_aside(batch, refused, first)
        self.staged += batch.num_rows - len(refused)

    def _ingested(self, found: pa.RecordBatch, refused: Mapping[int, str], *, last: bool = False) -> bool:
        """Copy all rows but some. False: a value cannot be read, and nothing was copied."""
        if refused:
            found = found.take(pa.array([n for n in range(found.num_rows) if n not in refused], pa.int64()))
        if found.num_rows:
            try:
                with arrow_errors(self._url):
                    self._cursor.adbc_ingest("staged", found, mode="append", db_schema_name="holdfast")
            except DatabaseError as error:
                if error.sqlstate == TWICE:
                    raise BadRowsError("two rows have the same id; expected one for each message") from None
                if last or not (error.sqlstate or "").startswith("22"):
                    raise
                return False
        return True

    def _unreadable(self, found: pa.RecordBatch, refused: Mapping[int, str]) -> dict[int, str]:
        reasons: dict[int, str] = {}
        for name in IN_JSON & set(found.schema.names):
            texts = text_of(found, name).to_pylist()
            asked = [None if place in refused else text for place, text in enumerate(texts)]
            for place, message in self._connection.execute(
                "select n - 1, message from holdfast.json_errors(%s)", [asked]
            ):
                reasons.setdefault(place, f"{name}: {message}")
        return reasons

    def _set_aside(self, batch: pa.RecordBatch, refused: Mapping[int, str], first: int) -> None:
        if self._aside is None:
            shown = "; ".join(f"row {first + place}: {refused[place]}" for place in sorted(refused)[:SHOWN])
            raise BadRowsError(
                f"{len(refused):,} of {self._seen:,} rows of partition {self._number} are refused ({shown}); "
                "so none was. Mend them, or name a folder for them with the option quarantine"
            )
        self._aside.add(batch, refused, first)
        self.refused += len(refused)


def _value(connection: psycopg.Connection[Any], statement: str, parameters: Sequence[Any]) -> Any:
    (row,) = connection.execute(statement.encode(), parameters).fetchall()
    return row[0]
