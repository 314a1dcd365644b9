"""A TCP proxy in front of PostgreSQL that can stop, start again, or go deaf."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from psycopg import conninfo

T = TypeVar("T")

CHUNK = 65_536  # bytes
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
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._hearing = asyncio.Event()

    @property
    def url(self) -> str:
        """The test's database, by way of this proxy."""
        return f"postgresql://{self._login}@127.0.0.1:{self._port}/{self._database}"

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
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await source.read(CHUNK):
                await self._hearing.wait()
                sink.write(chunk)
                await sink.drain()
        self._writers.discard(sink)
        sink.close()


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A proxy in front of the test's database, passing bytes on."""
    proxy = Proxy(target_url=database_url)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()
