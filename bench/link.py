"""One PostgreSQL connection with prepared statements, as thin as libpq allows.

The client must not be what is measured: psycopg's libpq layer is called directly, rows stay bytes, and the
interpreter's lock is free while the server works, so that 64 consumers in threads behave like 64 clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from psycopg import pq

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

FINE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class LinkError(Exception):
    """The server refused a statement or the connection."""


class Link:
    def __init__(self, url: str, statements: Mapping[str, str] | None = None) -> None:
        self._statements = dict(statements or {})
        self._conn: PGconn = pq.PGconn.connect(url.encode())
        if self._conn.status != pq.ConnStatus.OK:
            raise LinkError(self._conn.get_error_message())
        self.run("set client_min_messages = warning")

    @property
    def pid(self) -> int:
        """The process id of the backend that serves this connection."""
        return self._conn.backend_pid

    def call(self, name: str, *params: bytes) -> PGresult:
        """Run one of the statements, prepared when first used; its own transaction unless one is open."""
        if name in self._statements:
            self._checked(self._conn.prepare(name.encode(), self._statements.pop(name).encode()))
        return self._checked(self._conn.exec_prepared(name.encode(), params))

    def run(self, sql: str) -> PGresult:
        return self._checked(self._conn.exec_(sql.encode()))

    def value(self, sql: str) -> str:
        """The first column of the first row."""
        return (self.run(sql).get_value(0, 0) or b"").decode()

    def close(self) -> None:
        self._conn.finish()

    def _checked(self, result: PGresult) -> PGresult:
        if result.status not in FINE:
            raise LinkError(result.get_error_message())
        return result


def column(result: PGresult, number: int) -> list[bytes]:
    return [result.get_value(row, number) or b"" for row in range(result.ntuples)]


def array(items: Sequence[bytes]) -> bytes:
    """An array literal of items that need no quotes."""
    return b"{" + b",".join(items) + b"}"
