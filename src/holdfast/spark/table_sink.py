"""Batches of a stream into a table of PostgreSQL, each once.

Tasks copy their rows into a stage: an unlogged table beside the target, with its types. One transaction then
notes the batch in the ledger and moves the rows. A row of the ledger says which batch of a query, known by
Spark's id of it, a table has last; so a batch that is run again writes nothing. A name that the user gives
would not do: under a new checkpoint, batch 0 would count as written.

    SCHEMA.holdfast_batch          the ledger, for all tables of the schema
    SCHEMA.holdfast_stage_…        the stage of one query
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
from psycopg import sql
from pyspark.sql import DataFrame

from ._database import calls
from ._retry import retried
from ._table import LEDGER, PART, Target, ledger_statement
from .options import Secret
from .stream_sink import QUERY_ID
from .transforms.stream import as_text

PATIENCE = 300.0  # seconds for a database that is away
STAGED = "part string, rows bigint"
ARROW = pa.schema([("part", pa.string()), ("rows", pa.int64())])
# All that is there is quoted, so that an empty text is not taken for a null.
QUOTED = csv.WriteOptions(include_header=False, quoting_style="all_valid")


class MissingRowsError(RuntimeError):
    """Rows that tasks have staged are gone: the database has crashed since."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one task has staged."""

    part: str
    rows: int


class TableWriter:
    """Writes batches of one query to one table; what foreachBatch calls."""

    def __init__(
        self, url: Secret, target: Target, *, columns: Sequence[str], key: Sequence[str], replace: bool
    ) -> None:
        self._url = url
        self._target = target
        self._columns = tuple(columns)
        self._key = tuple(key)
        self._replace = replace
        self._staging: Staging | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch, unless it was written before."""
        query = str(frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID))
        if self._staging is None:
            self._staging = Staging(self._url, self._target, self._target.stage(query), self._columns)
            retried(lambda: self._prepare(query), patience=PATIENCE)
        if retried(lambda: self._known(query, batch), patience=PATIENCE):
            return
        rows = as_text(frame).mapInArrow(self._staging.fill, STAGED).collect()
        parts = [Part(row.part, row.rows) for row in rows]
        retried(lambda: self._move(query, batch, parts), patience=PATIENCE)

    def close(self) -> None:
        """Remove the stage: the query has ended."""
        if self._staging is not None:
            with calls(self._url) as connection:
                connection.execute(sql.SQL("drop table if exists {}").format(self._staging.stage))

    def _prepare(self, query: str) -> None:
        """Make the ledger, and the stage anew: tasks of an earlier run must not write to it."""
        assert self._staging is not None
        stage, target = self._staging.stage, self._target
        with calls(self._url) as connection, connection.transaction():
            # Another query may do the same at this moment.
            connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [f"{target.schema}.{LEDGER}"])
            connection.execute(ledger_statement(target))
            connection.execute(sql.SQL("drop table if exists {}").format(stage))
            connection.execute(target.stage_statement(stage, self._columns))

    def _known(self, query: str, batch: int) -> bool:
        with calls(self._url) as connection:
            found = connection.execute(
                sql.SQL("select batch_id from {} where table_name = %s and query_id = %s").format(
                    self._target.ledger
                ),
                [self._target.name, query],
            ).fetchone()
        return found is not None and int(found[0]) >= batch

    def _move(self, query: str, batch: int, parts: Sequence[Part]) -> None:
        assert self._staging is not None
        stage = self._staging.stage
        with calls(self._url) as connection, connection.transaction():
            if not self._noted(connection, query, batch, sum(part.rows for part in parts)):
                return
            if self._replace:
                connection.execute(sql.SQL("delete from {}").format(self._target.place))
            moved = connection.execute(
                self._target.move_statement(stage, self._columns, self._key), [[part.part for part in parts]]
            ).rowcount
            if moved != sum(part.rows for part in parts):
                raise MissingRowsError("staged rows are gone: the database crashed. Start the stream again")
            connection.execute(sql.SQL("truncate {}").format(stage))

    def _noted(self, connection: psycopg.Connection[Any], query: str, batch: int, rows: int) -> bool:
        """Note the batch; False if it is noted already."""
        noted = connection.execute(
            sql.SQL(
                "insert into {} as b (table_name, query_id, batch_id, rows) values (%s, %s, %s, %s)"
                " on conflict (table_name, query_id) do update"
                " set batch_id = excluded.batch_id, rows = excluded.rows, written_at = now()"
                " where b.batch_id < excluded.batch_id"
            ).format(self._target.ledger),
            [self._target.name, query, batch, rows],
        )
        return noted.rowcount == 1


@dataclass(frozen=True, slots=True)
class Staging:
    """The way of a task's rows into the stage."""

    url: Secret
    target: Target
    stage: sql.Identifier
    columns: tuple[str, ...]

    def fill(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy the rows of one task, all or none. Each attempt of a task has a name of its own."""
        part, rows = uuid4().hex, 0
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        names = sql.SQL(", ").join(map(sql.Identifier, (PART, *self.columns)))
        statement = sql.SQL("copy {} ({}) from stdin (format csv)").format(self.stage, names)
        with (
            calls(self.url) as connection,
            connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            for batch in (first, *batches):
                copy.write(_lines(batch, part))
                rows += batch.num_rows
        yield pa.RecordBatch.from_pylist([{"part": part, "rows": rows}], schema=ARROW)


def _lines(batch: pa.RecordBatch, part: str) -> memoryview:
    arrays = [pa.repeat(pa.scalar(part), batch.num_rows), *batch.columns]
    named = pa.RecordBatch.from_arrays(arrays, names=[PART, *batch.schema.names])
    lines = io.BytesIO()
    csv.write_csv(named, lines, QUOTED)
    return lines.getbuffer()
