"""Work streams under load: many connections, messages sent at a steady rate, each pushed once and acked.

The client speaks HTTP by hand over asyncio's streams: a library would need more CPU than the server. It is a
process of its own, and counts what came by id.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from bench import payload
from bench.contenders.contender import QUEUE

IN_FLIGHT = 100  # on a stream
SENDERS = 4  # connections that send, and as many that ack
BATCH = 50  # messages of one request
DRAIN_S = 30.0  # for what was sent to come
SETTLE_S = 0.05  # between two acks of a stream
EVENT = re.compile(rb'data: \{"token":"(\d+)","id":"(\d+)"')
BODY = json.dumps(
    {"messages": [{"payload": json.loads(payload.document(n))} for n in range(BATCH)]}
).encode()


@dataclass(slots=True)
class Tally:
    """What the streams saw."""

    sent: int = 0
    seconds: float = 0.0  # until the last one came
    came: Counter[bytes] = field(default_factory=Counter)

    def told(self) -> Pushed:
        lost = self.sent - len(self.came)
        return Pushed(self.sent, lost, self.came.total() - len(self.came), self.sent / self.seconds)


@dataclass(frozen=True, slots=True)
class Pushed:
    """How many messages were sent, how many never came, how many came once more, and how many a second."""

    sent: int
    lost: int
    repeated: int
    per_second: float


class Connection:
    """One connection that is kept, for requests one after the other."""

    def __init__(self, host: str, port: int) -> None:
        self._at = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> bytes:
        """The body of the answer; anything but success is an error."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._at)
        reader, writer = self._streams
        writer.write(_head("POST", path, self._at) + b"content-length: %d\r\n\r\n" % len(body) + body)
        status, length = await _answer_head(reader)
        text = await reader.readexactly(length)
        if not 200 <= status < 300:
            raise RuntimeError(f"{path} answered {status}: {text[:500]!r}")
        return text


def _head(method: str, path: str, at: tuple[str, int]) -> bytes:
    lines = f"{method} {path} HTTP/1.1\r\nhost: {at[0]}:{at[1]}\r\ncontent-type: application/json\r\n"
    return lines.encode()


async def _answer_head(reader: asyncio.StreamReader) -> tuple[int, int]:
    """Status and length."""
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return int(head.split(b" ", 2)[1]), int(found[1]) if found else 0


class Bench:
    """Streams, senders and acks on one event loop."""

    def __init__(self, url: str, streams: int, rate: int, seconds: float) -> None:
        parts = urlsplit(url)
        self._at = (parts.hostname or "", parts.port or 80)
        self._streams = streams
        self._rate = rate
        self._seconds = seconds
        self._tally = Tally()
        self._acks: asyncio.Queue[bytes] = asyncio.Queue()

    async def run(self) -> Pushed:
        tasks = [asyncio.create_task(self._listen()) for _ in range(self._streams)]
        tasks += [asyncio.create_task(self._ack()) for _ in range(SENDERS)]
        begun = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for place in range(SENDERS):
                    group.create_task(self._send(place))
            await self._await_all(tasks)
            self._tally.seconds = time.perf_counter() - begun
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._tally.told()

    async def _send(self, place: int) -> None:
        """This sender's share, a batch whenever it is time for one."""
        connection = Connection(*self._at)
        pause = BATCH * SENDERS / self._rate
        batches = round(self._rate * self._seconds / BATCH / SENDERS)
        due = time.perf_counter() + pause * place / SENDERS
        for _ in range(batches):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await connection.post(f"/v1/queues/{QUEUE}/messages", BODY)
            self._tally.sent += BATCH
            due += pause

    async def _await_all(self, tasks: list[asyncio.Task[None]]) -> None:
        until = time.perf_counter() + DRAIN_S
        while time.perf_counter() < until and len(self._tally.came) < self._tally.sent:
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(SETTLE_S)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_connection(*self._at)
        writer.write(_head("GET", f"/v1/queues/{QUEUE}/work?max={IN_FLIGHT}", self._at) + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        rest = b""
        while size := int(await reader.readline(), 16):
            rest += (await reader.readexactly(size + 2))[:-2]
            whole, _, rest = rest.rpartition(b"\n\n")
            self._take(EVENT.findall(whole))

    def _take(self, found: list[tuple[bytes, bytes]]) -> None:
        by_token: dict[bytes, list[bytes]] = {}
        for token, id in found:
            self._tally.came[id] += 1
            by_token.setdefault(token, []).append(id)
        for token, ids in by_token.items():
            self._acks.put_nowait(b'{"token": "%b", "ids": ["%b"]}' % (token, b'", "'.join(ids)))

    async def _ack(self) -> None:
        connection = Connection(*self._at)
        while True:
            await connection.post(f"/v1/queues/{QUEUE}/ack", await self._acks.get())


def main() -> None:
    """URL, streams, messages a second and seconds by argument; the figures on stdout, as JSON."""
    url, streams, rate, seconds = sys.argv[1:]
    print(json.dumps(asdict(asyncio.run(Bench(url, int(streams), int(rate), float(seconds)).run()))))


if __name__ == "__main__":
    main()
