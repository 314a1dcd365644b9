"""A receiver that does as little as one can: it says 204, and counts. A process of its own, over asyncio.

    python -m bench.webhook.receiver

It prints its port, and on each line that it reads how many deliveries it has got.
"""

from __future__ import annotations

import asyncio
import re
import sys

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Receiver(asyncio.Protocol):
    """One connection: requests one after the other."""

    count = 0

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(HEAD_END)) >= 0:
            found = LENGTH.search(self._data, 0, end)
            whole = end + len(HEAD_END) + (int(found[1]) if found else 0)
            if len(self._data) < whole:
                return
            self._data = self._data[whole:]
            Receiver.count += 1
            self._transport.write(ANSWER)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Receiver, "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        print(Receiver.count, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
