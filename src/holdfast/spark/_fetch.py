"""Rows of PostgreSQL as Arrow, a whole answer at a time: a retry can't take back what was handed on."""

from __future__ import annotations

from collections.abc import Iterator

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from ._retry import retried
from .options import Secret


class Fetcher:
    """Answers of one task's queries, over one connection that is opened anew when it breaks."""

    def __init__(self, url: Secret, *, patience: float) -> None:
        self._url = url
        self._patience = patience
        self._connection: adbc.Connection | None = None

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def table(self, query: str) -> pa.Table:
        """The rows of a query; it may be asked more than once."""
        return retried(
            lambda: self._ask(query), patience=self._patience, recover=self._close, describe=self._url.redact
        )

    def _ask(self, query: str) -> pa.Table:
        if self._connection is None:
            self._connection = adbc.connect(self._url.reveal(), autocommit=True)
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def literal(text: str) -> str:
    """Text as it is written in SQL."""
    return "'" + text.replace("'", "''") + "'"


def batches(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in Spark's types."""
    yield from table.cast(schema).to_batches()
