# Made from ../_async/listener.py by tools/generate_sync.py: change that file, then run make generate.
"""One LISTEN connection for a client: it wakes the claims that wait, and is never more than a hint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection, sql

from holdfast.client._concurrency import Background, Signal

RECONNECT_SECONDS = 1.0
CHANGES = "holdfast_config"
ATTENTION_SECONDS = 0.5  # a thread looks this often whether it should end


class Listener:
    """Listens from the first wait until the client closes, and again after a lost connection."""

    def __init__(self, url: str, changed: Callable[[str], None]) -> None:
        """changed: is told which queue is no longer as it was, or ""."""
        self._url = url
        self._changed = changed
        self._channel: str | None = None
        self._signals: dict[str, set[Signal]] = {}
        self._lock = threading.Lock()
        self._background: Background | None = None
        self._closed = Signal()
        self._closing = False

    @contextmanager
    def subscription(self, queue: str) -> Iterator[Signal]:
        """A signal that is set whenever something was sent to the queue, for as long as the block lasts."""
        signal = Signal()
        with self._lock:
            self._signals.setdefault(queue, set()).add(signal)
        try:
            yield signal
        finally:
            self._forget(queue, signal)

    def _forget(self, queue: str, signal: Signal) -> None:
        with self._lock:
            signals = self._signals[queue]
            signals.discard(signal)
            if not signals:
                del self._signals[queue]

    def start(self, channel: str) -> None:
        """Listen on the channel from now on; calling it again changes nothing."""
        with self._lock:
            if self._background is None and not self._closing:
                self._channel = channel
                self._background = Background(self._run, "holdfast-listen")

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            self._closing = True
            background, self._background = self._background, None
        self._closed.set()
        if background is not None:
            background.end()

    def _run(self) -> None:
        while not self._closing:
            try:
                self._listen()
            except psycopg.Error:
                # Claims go on polling meanwhile; the connection is tried again until the client closes.
                self._closed.wait(RECONNECT_SECONDS)

    def _listen(self) -> None:
        with Connection.connect(self._url, autocommit=True, prepare_threshold=None) as connection:
            connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel or "")))
            connection.execute(f"listen {CHANGES}")
            self._wake_all()
            self._changed("")
            while not self._closing:
                for notification in connection.notifies(timeout=ATTENTION_SECONDS):
                    hear = self._changed if notification.channel == CHANGES else self._wake
                    hear(notification.payload)

    def _wake(self, queue: str) -> None:
        with self._lock:
            for signal in self._signals.get(queue, ()):
                signal.set()

    def _wake_all(self) -> None:
        """Whatever was sent while nobody listened has to be looked for."""
        with self._lock:
            for signals in self._signals.values():
                for signal in signals:
                    signal.set()
