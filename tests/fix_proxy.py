"""A TCP proxy in front of PostgreSQL, or of another server, that can stop, start again, or go deaf."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from psycopg import conninfo

T = TypeVar("T")

CHUNK = 65_536  # bytes
BACKLOG = 100  # connections
PATIENCE = 10.0  # seconds for the proxy's own thread to do as told


class Proxy:
    """Passes bytes between its own port and a server's."""

    def __init__(self, *, target_url: str) -> None:
        parts = conninfo.conninfo_to_dict(target_url)
        self._target = (str(parts["host"]), int(str(parts["port"])))
        self._login = f"{parts['user']}:{parts['password']}"
        self._database = parts["dbname"]
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listener: socket.socket | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._hearing = asyncio.Event()

    @property
    def url(self) -> str:
        """The test's database, by way of this proxy."""
        return f"postgresql://{self._login}@127.0.0.1:{self._port}/{self._database}"

    @property
    def port(self) -> int:
        """Where it listens, on loopback."""
        return self._port

    @property
    def connections(self) -> int:
        """How many connections it has taken and not closed."""
        return len(self._serving)

    def open(self) -> None:
        """Begin."""
        self._thread.start()
        self.start()

    def close(self) -> None:
        """End, and close all connections."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def start(self) -> None:
        """Listen, on the same port as before, and pass bytes on."""
        self._do(self._start())

    def stop(self) -> None:
        """Refuse new connections and cut those there are: the server seems to have died."""
        self._do(self._stop())

    def restart(self) -> None:
        """Stop, then start."""
        self.stop()
        self.start()

    def deafen(self) -> None:
        """Take connections and bytes, and pass nothing on: the network seems to have swallowed the server."""
        self._loop.call_soon_threadsafe(self._hearing.clear)
        self._do(asyncio.sleep(0))

    def hear(self) -> None:
        """Pass bytes on again, those held back too."""
        self._loop.call_soon_threadsafe(self._hearing.set)
        self._do(asyncio.sleep(0))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _start(self) -> None:
        self._hearing.set()
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _stop(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection, in one step of the loop: a stop finds it outside, or among those to cut.

        asyncio's own server takes several steps, and forgets a connection if it is closed between them.
        """
        with suppress(BlockingIOError, ConnectionAbortedError):
            taken, _ = listener.accept()
            task = self._loop.create_task(self._serve(taken))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            task.add_done_callback(lambda _: taken.close())  # also if it was cut before its first step

    async def _serve(self, taken: socket.socket) -> None:
        ends: list[asyncio.StreamWriter] = []
        try:
            reader, writer = await asyncio.open_connection(sock=taken)
            ends.append(writer)
            there, back = await asyncio.open_connection(*self._target)
            ends.append(back)
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        except OSError:
            pass  # there is no server behind: the client learns it by being cut
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await source.read(CHUNK):
                await self._hearing.wait()
                sink.write(chunk)
                await sink.drain()
        sink.close()
        with suppress(ConnectionError):
            await sink.wait_closed()


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A proxy in front of the test's database, passing bytes on."""
    proxy = Proxy(target_url=database_url)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()
