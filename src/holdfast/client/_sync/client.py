# Made from ../_async/client.py by tools/generate_sync.py: change that file, then run make generate.
"""The client: Holdfast over a URL, a pool or a connection; Transaction inside a transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic
from types import TracebackType
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

from holdfast.client._arguments import seconds
from holdfast.client._concurrency import Signal
from holdfast.client._json import reader
from holdfast.client._rules import KnownRules
from holdfast.client._sync.listener import Listener
from holdfast.client._sync.session import (
    ConnectionSession,
    OwnPoolSession,
    PoolSession,
    Reader,
    SqlSession,
)
from holdfast.client._sync.sql_verbs import SqlVerbs
from holdfast.client._types import Delivery, Duration

FIRST_POLL_SECONDS = 0.05
POLL_SECONDS = 0.5
PATIENCE_SECONDS = 30.0
NO_WAIT = (
    "wait is refused inside a transaction, where the claim would keep other consumers out; "
    "claim without wait, or use a client with its own pool"
)


class Transaction(SqlVerbs):
    """Holdfast's verbs inside one transaction: they take effect with it, or not at all."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        parse_float: Callable[[str], Any] = float,
        known: KnownRules | None = None,
    ) -> None:
        super().__init__(ConnectionSession(connection, reader(parse_float)), known)
        self.connection = connection
        self._parse_float = parse_float

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A savepoint: an error inside undoes only what was done inside."""
        with self._session.transaction() as connection:
            yield Transaction(connection, parse_float=self._parse_float, known=self._known)

    def claim(
        self,
        queue: str,
        max: int = 1,
        *,
        lease: Duration | None = None,
        consumer: str | None = None,
        wait: Duration | None = None,
    ) -> list[Delivery]:
        """Take up to `max` messages; `wait` is refused here."""
        if wait is not None:
            raise ValueError(NO_WAIT)
        return super().claim(queue, max, lease=lease, consumer=consumer)


class Holdfast(SqlVerbs):
    """A client of Holdfast.

    Give it one of: a database URL, for which it keeps a pool of its own; a psycopg pool; or a connection,
    which it never commits or rolls back, so that sends and acks belong to the caller's transaction.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        pool: ConnectionPool[Any] | None = None,
        connection: Connection[Any] | None = None,
        min_size: int = 1,
        max_size: int = 10,
        timeout: float = 30.0,
        prepare: bool = False,
        listen: bool = True,
        listen_url: str | None = None,
        poll: float = POLL_SECONDS,
        parse_float: Callable[[str], Any] = float,
    ) -> None:
        """Nothing is connected yet: that happens on first use.

        min_size, max_size, timeout: of the client's own pool; timeout is the wait for a free connection.
        prepare: server-side prepared statements; only for connections that do not go through PgBouncer.
        listen: whether waiting claims may use LISTEN; listen_url: where, if not at `url`.
        poll: the longest pause, in seconds, between two looks of a claim that waits.
        parse_float: makes what a JSON number with a fraction becomes; Decimal keeps every digit.
        """
        if sum(source is not None for source in (url, pool, connection)) != 1:
            raise ValueError("give exactly one of: url, pool, connection")
        read = reader(parse_float)
        if url is not None:
            own = OwnPoolSession(
                url, read, min_size=min_size, max_size=max_size, timeout=timeout, prepare=prepare
            )
            super().__init__(own)
        else:
            super().__init__(given_session(pool, connection, read))
        self._poll = poll
        self._parse_float = parse_float
        where = listen_url or url
        self._listener = None
        if listen and where is not None:
            self._listener = Listener(where, self._known.forget)

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what the client opened itself; a pool or connection of the caller's stays open.

        A client with a URL is of no use afterwards: its calls raise RuntimeError.
        """
        if self._listener is not None:
            self._listener.close()
        self._session.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All verbs of the block, and your own statements on its `connection`, in one transaction.

        On a connection of the caller's that is in a transaction, it is a savepoint.
        """
        with self._session.transaction() as connection:
            yield Transaction(connection, parse_float=self._parse_float, known=self._known)

    def claim(
        self,
        queue: str,
        max: int = 1,
        *,
        lease: Duration | None = None,
        consumer: str | None = None,
        wait: Duration | None = None,
    ) -> list[Delivery]:
        """Take up to `max` messages; with `wait`, stay for so long until there is at least one."""
        if wait is not None and not self._session.may_wait:
            raise ValueError(NO_WAIT)
        patience = 0.0 if wait is None else seconds("wait", wait)
        deliveries = super().claim(queue, max, lease=lease, consumer=consumer)
        if deliveries or wait is None:
            return deliveries
        until = monotonic() + patience
        with self._subscription(queue) as signal:
            return self._claim_until(until, signal, queue, max, lease, consumer)

    def _claim_until(
        self,
        until: float,
        signal: Signal,
        queue: str,
        max: int,
        lease: Duration | None,
        consumer: str | None,
    ) -> list[Delivery]:
        """Register, look, sleep; polling alone would do, a notification only shortens the sleep."""
        pause = self._poll if self._listener is not None else min(FIRST_POLL_SECONDS, self._poll)
        registered_until = 0.0
        while (left := until - monotonic()) > 0:
            if monotonic() >= registered_until:
                registered_until = self._register(queue, min(left + self._poll, PATIENCE_SECONDS))
            deliveries = super().claim(queue, max, lease=lease, consumer=consumer)
            if deliveries:
                return deliveries
            signal.wait(min(pause * random.uniform(0.5, 1.0), left))
            pause = min(pause * 2, self._poll)
        return super().claim(queue, max, lease=lease, consumer=consumer)

    def _subscription(self, queue: str) -> Any:
        """A signal that a notification sets, or one that nobody sets where there is no LISTEN."""
        return nullcontext(Signal()) if self._listener is None else self._listener.subscription(queue)

    def _register(self, queue: str, patience: float) -> float:
        """Ask for notifications where they can reach this client; returns when to ask again."""
        if self._listener is None:
            return float("inf")
        self._listener.start(self.listen(queue, patience))
        return monotonic() + patience / 2


def given_session(
    pool: ConnectionPool[Any] | None, connection: Connection[Any] | None, read: Reader
) -> SqlSession:
    """The session over what the caller gave."""
    if pool is not None:
        return PoolSession(pool, read)
    assert connection is not None
    return ConnectionSession(connection, read)
