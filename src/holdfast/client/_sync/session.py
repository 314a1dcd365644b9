# Made from ../_async/session.py by tools/generate_sync.py: change that file, then run make generate.
"""Where a verb goes; and over SQL, where the connections come from: a pool, or the caller's own one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool

from holdfast.client._calls import call
from holdfast.client._concurrency import Lock
from holdfast.client._errors import is_broken_register, is_replaced_register, translated
from holdfast.client._explain import admitted, explained
from holdfast.client._json import read_json
from holdfast.client._rows import Factory, record, scalar
from holdfast.client._schema import check_schema
from holdfast.client._traces import traced

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
Reader = Callable[[str | bytes], Any]
REPAIR = "select holdfast.repair(unreadable_only => true)"


class Session(Protocol):
    """Takes verbs to Holdfast, and brings back what they return."""

    @property
    def alone(self) -> bool:
        """Whether each call is a transaction of its own."""

    def records(self, kind: type[D], verb: str, arguments: Mapping[str, Any]) -> list[D]:
        """Call a verb that returns values of this kind."""

    def value(self, kind: type[T], verb: str, arguments: Mapping[str, Any]) -> T:
        """Call a verb that returns one plain value."""

    def close(self) -> None:
        """Give back what this session made itself."""


class SqlSession(Session, Protocol):
    """Runs statements over connections: a verb is the call of a SQL function."""

    def records(self, kind: type[D], verb: str, arguments: Mapping[str, Any]) -> list[D]:
        statement, parameters = call(verb, arguments)
        with explained(verb):
            return self.fetch(statement, parameters, record(kind))

    def value(self, kind: type[T], verb: str, arguments: Mapping[str, Any]) -> T:
        statement, parameters = call(verb, traced(verb, arguments))
        with explained(verb):
            return (self.fetch(statement, parameters, scalar(kind)))[0]

    @property
    def may_wait(self) -> bool:
        """Whether a claim may be repeated here without an open transaction keeping others out."""

    def fetch(self, statement: bytes, parameters: list[Any], factory: Factory[T]) -> list[T]:
        """Run one statement and return its rows."""

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """A connection on which all that is done in the block takes effect, or nothing."""


def run(
    connection: Connection[Any],
    statement: bytes,
    parameters: list[Any],
    factory: Factory[T],
    reader: Reader = read_json,
) -> list[T]:
    """Run one statement on a connection, with Holdfast's own errors."""
    with translated(), connection.cursor(row_factory=factory) as cursor:
        set_json_loads(reader, context=cursor)
        cursor.execute(statement, parameters)
        return cursor.fetchall()


class PoolSession(SqlSession):
    """Connections from a pool: every statement is its own transaction, and a broken register is mended."""

    alone: ClassVar[bool] = True
    may_wait: ClassVar[bool] = True

    def __init__(self, pool: ConnectionPool[Any], reader: Reader = read_json) -> None:
        self._pool = pool
        self._reader = reader

    def fetch(self, statement: bytes, parameters: list[Any], factory: Factory[T]) -> list[T]:
        repaired = False
        # Where many repair at once, a call may meet both: what is broken, and then what was replaced.
        for _ in range(2):
            try:
                return self._fetch(statement, parameters, factory)
            except psycopg.Error as error:
                if is_broken_register(error) and not repaired:
                    self._repair(error)
                    repaired = True
                elif not is_replaced_register(error):
                    raise
        return self._fetch(statement, parameters, factory)

    def _fetch(self, statement: bytes, parameters: list[Any], factory: Factory[T]) -> list[T]:
        with self.connection() as connection:
            return run(connection, statement, parameters, factory, self._reader)

    def _repair(self, broken: psycopg.Error) -> None:
        """Recreate the registers that a failover left unreadable; who may not do so sees the first error."""
        try:
            with self.connection() as connection:
                connection.execute(REPAIR)
        except psycopg.errors.InsufficientPrivilege:
            raise broken from None

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """One connection for a while; leaving the block commits where the pool does not do so itself."""
        with self._pool.connection() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection[Any]]:
        with self.connection() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        """The pool is the caller's: it stays open."""


class OwnPoolSession(PoolSession):
    """A pool of the client's own, opened on first use, when the schema is checked too."""

    def __init__(
        self, url: str, reader: Reader, *, min_size: int, max_size: int, timeout: float, prepare: bool
    ) -> None:
        settings = {"autocommit": True, "prepare_threshold": 5 if prepare else None}

        def make() -> ConnectionPool[Any]:
            return ConnectionPool(
                url, open=False, min_size=min_size, max_size=max_size, timeout=timeout, kwargs=settings
            )

        super().__init__(make(), reader)
        self._make = make
        self._url = url
        self._ready = False
        self._closed = False
        self._opening = Lock()

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        if self._closed:
            raise RuntimeError("this client is closed: make a new one")
        if not self._ready:
            self.open()
        with self._pool.connection() as connection:
            yield connection

    def open(self) -> None:
        """Connect once by hand, so that a failure says why, check the schema, and open the pool."""
        with self._opening:
            if self._ready:
                return
            with (
                Connection.connect(self._url, autocommit=True, prepare_threshold=None) as connection,
                admitted(),
            ):
                check_schema(connection)
            try:
                # Waiting keeps the first call from finding the pool empty and having it grow for nothing.
                self._pool.open(wait=True, timeout=self._pool.timeout)
            except BaseException:
                # Timed out, or cancelled: such a pool cannot be opened again.
                broken, self._pool = self._pool, self._make()
                broken.close()
                raise
            self._ready = True

    def close(self) -> None:
        self._closed = True
        self._pool.close()


class ConnectionSession(SqlSession):
    """The caller's connection: never committed, never rolled back here."""

    alone: ClassVar[bool] = False

    def __init__(self, connection: Connection[Any], reader: Reader = read_json) -> None:
        self._connection = connection
        self._reader = reader

    @property
    def may_wait(self) -> bool:
        """Between the statements of an open transaction a claim would keep its lane locked."""
        return self._connection.autocommit and self._idle

    @property
    def _idle(self) -> bool:
        return self._connection.info.transaction_status == TransactionStatus.IDLE

    def fetch(self, statement: bytes, parameters: list[Any], factory: Factory[T]) -> list[T]:
        return run(self._connection, statement, parameters, factory, self._reader)

    @contextmanager
    def transaction(self) -> Iterator[Connection[Any]]:
        if self._idle and not self._connection.autocommit:
            # Opens the caller's transaction, so that the block below is a savepoint in it and ends nothing.
            self._connection.execute("select")
        with self._connection.transaction():
            yield self._connection

    def close(self) -> None:
        """The connection is the caller's: it stays open."""
