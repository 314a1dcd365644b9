"""Rows of PostgreSQL as Arrow, a whole answer at a time: a retry can't take back what was handed on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructType

from ._database import arrow_errors
from ._payload import parse, refuse_unreadable
from ._retry import retried
from .options import Options, Secret
from .schema import payload_type, selection

# What the last task of this process has left, by process and database: opening a connection takes 50 ms, most
# of it for the driver's look at the catalog and for the server's first plans.
_spare: dict[tuple[int, str], adbc.Connection] = {}


class Fetcher:
    """Answers to one task's queries, over one connection that is opened anew when it breaks."""

    def __init__(self, url: Secret, *, patience: float) -> None:
        self._url = url
        self._patience = patience
        self._connection: adbc.Connection | None = None

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._connection is None:
            self._close()
            return
        close_spare()
        _spare[self._key] = self._connection
        self._connection = None

    def table(self, query: str) -> pa.Table:
        """The rows of a query; it may be asked more than once."""
        with arrow_errors(self._url):
            return retried(
                lambda: self._ask(query),
                patience=self._patience,
                recover=self._close,
                describe=self._url.redact,
            )

    def _ask(self, query: str) -> pa.Table:
        if self._connection is None:
            self._connection = _spare.pop(self._key, None)
        if self._connection is None:
            self._connection = adbc.connect(self._url.reveal(), autocommit=True)
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()

    @property
    def _key(self) -> tuple[int, str]:
        return os.getpid(), self._url.reveal()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def close_spare() -> None:
    """Close the connection that this process keeps for its next task."""
    for key in [key for key in _spare if key[0] == os.getpid()]:
        _spare.pop(key).close()


class Shape:
    """The columns that Spark wants: how they are asked for, and made to fit."""

    def __init__(self, options: Options, schema: StructType) -> None:
        kind = payload_type(schema)
        self._errors = options.payload_errors
        self._target: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._raw = isinstance(kind, BinaryType)
        self._parsed = kind is not None and not isinstance(kind, StringType | BinaryType)
        if self._parsed:
            refuse_unreadable(self._target.field("payload").type)

    @property
    def selection(self) -> str:
        """The select list over a row m."""
        # An error about a payload names its message.
        extra = ["id"] if self._parsed and "id" not in self._target.names else []
        return selection([*self._target.names, *extra], raw=self._raw)

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows in Spark's types; other columns are left out."""
        for batch in table.to_batches():
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(self._columns(batch), schema=self._target)

    def _columns(self, batch: pa.RecordBatch) -> Sequence[pa.Array]:
        return [
            parse(batch["payload"], batch["id"], field.type, errors=self._errors)
            if self._parsed and field.name == "payload"
            else batch[field.name].cast(field.type)
            for field in self._target
        ]


def literal(text: str) -> str:
    """Text as it is written in SQL."""
    return "'" + text.replace("'", "''") + "'"
