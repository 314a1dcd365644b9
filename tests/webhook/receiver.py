"""A receiver of deliveries on loopback, in a thread: it keeps what came, and is as rude as it is told to be.

It speaks HTTP/1.1 by hand, since no library would send what some of its answers are.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import time

PATIENCE = 10.0  # seconds for its own thread to do as told
LINGER_NOT = struct.pack("ii", 1, 0)  # a close is a reset
MOST_HEAD = 1 << 20


@dataclass(frozen=True, slots=True)
class Received:
    """A request that came, whole."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int
    at: float

    @property
    def id(self) -> str:
        """What names the message."""
        return self.headers["webhook-id"]


@dataclass(frozen=True, slots=True)
class Reply:
    """How a request is answered; or not."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: float = 0.0  # seconds until the answer begins
    reset: bool = False  # no answer, and the connection is reset
    raw: bytes | None = None  # exactly this, and the connection is closed
    drip: float | None = None  # seconds between two bytes of the body


Answering = Callable[[Received], Reply]


class Receiver:
    """Takes requests until it is closed."""

    def __init__(self, answering: Answering | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.answering = answering or (lambda _: Reply())
        self.received: list[Received] = []
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self._tls = tls
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="receiver", daemon=True)
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """Its port."""
        return self._port

    def bodies(self) -> list[bytes]:
        """What came, in order."""
        return [received.body for received in self.received]

    def open(self) -> None:
        """Begin."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(PATIENCE)

    def close(self) -> None:
        """End, and cut every connection."""
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def restart(self) -> None:
        """Take connections again, where they were taken before."""
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(PATIENCE)

    def pause(self) -> None:
        """Take no connections, as if nobody was there."""
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result(PATIENCE)

    async def start(self) -> None:
        """Listen, on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self._port), backlog=1_000)
        self._port = listener.getsockname()[1]
        self._server = await asyncio.start_server(
            self._serve, sock=listener, ssl=self._tls, limit=MOST_HEAD, backlog=1_000
        )

    async def stop(self) -> None:
        """Cut everything."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        number = self.connections
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                while (received := await read_request(reader, number)) is not None:
                    self.received.append(received)
                    self.at_once += 1
                    self.most_at_once = max(self.most_at_once, self.at_once)
                    try:
                        kept = await answer(writer, self.answering(received))
                    finally:
                        self.at_once -= 1
                    if not kept:
                        return
        except asyncio.CancelledError:
            pass  # cut by stop(), or with the loop
        finally:
            self._serving.discard(task)
            writer.transport.abort()


async def read_request(reader: asyncio.StreamReader, connection: int) -> Received | None:
    """The next request; None if the connection has ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body, connection, time())


async def answer(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Answer as told; whether the connection is kept."""
    await asyncio.sleep(reply.after)
    if reply.reset:
        line: socket.socket = writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        return False
    if reply.raw is not None:
        writer.write(reply.raw)
        await writer.drain()
        return False
    headers = {"content-length": str(len(reply.body)), **reply.headers}
    if reply.status == 204:
        headers.pop("content-length")
    lines = [f"HTTP/1.1 {reply.status} ?", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    if reply.drip is None:
        writer.write(reply.body)
    else:
        for place in range(len(reply.body)):
            writer.write(reply.body[place : place + 1])
            await writer.drain()
            await asyncio.sleep(reply.drip)
    await writer.drain()
    return True


@contextmanager
def receiving(answering: Answering | None = None, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver, for as long as the block lasts."""
    receiver = Receiver(answering, tls)
    receiver.open()
    try:
        yield receiver
    finally:
        receiver.close()
