"""Topics under load: 200 work streams, and a server that is killed. Nothing is lost, nothing is held twice.

The streams are sockets of one thread, so that the reader is not what is measured. How many jobs went through
in a second is told, and not judged: that is the machine's.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.dialects.pins import pins
from tests.dialects.topics import Topics
from tests.fix_http import ServeProcess, ServerProcess

STREAMS = 200
DEPTH = 50  # jobs in flight on a stream
JOBS = 60_000
BATCH = 500
PATIENCE = 240.0
LENGTH = re.compile(rb"[Cc]ontent-[Ll]ength: (\d+)")
DATA = re.compile(rb"^data: (.*)$", re.MULTILINE)
LEASE_MS = 120_000  # longer than the test: a job that comes twice comes twice within a live lease


@dataclass(slots=True)
class Tally:
    """What came."""

    deliveries: Counter[int] = field(default_factory=Counter)  # by data
    acked: int = 0
    skipped: list[int] = field(default_factory=list)


class Connection:
    """A connection that is kept, and requests on it one after the other: no more than a client must do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> Connection:
        """A new connection."""
        url = httpx.URL(address)
        return cls(*await asyncio.open_connection(url.host, url.port, limit=1 << 24))

    async def post(self, path: str, body: Any) -> Any:
        """The document of an answer."""
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        size = int(LENGTH.findall(answer)[0])
        document = json.loads(await self._reader.readexactly(size))
        assert b" 200 " in answer[:20], document
        return document

    async def follow(self, path: str) -> None:
        """Open an event stream."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer[:20], answer

    async def events(self) -> list[Any]:
        """The data of the events that have come, at least one; none after a while without any."""
        try:
            async with asyncio.timeout(1.0):
                text = await self._reader.readuntil(b"}\n\n\r\n")
        except TimeoutError:
            return []
        return [json.loads(found) for found in DATA.findall(text)]

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def produce(address: str, name: str, count: int) -> None:
    """Append jobs, a batch at a time."""
    connection = await Connection.open(address)
    for first in range(0, count, BATCH):
        records = [{"data": n} for n in range(first, min(first + BATCH, count))]
        await connection.post(f"/v0/topics/{name}", {"records": records})
    connection.close()


async def work(address: str, name: str, node: str, tally: Tally, total: int) -> None:
    """Take what is pushed, and ack it half a stream's depth at a time, until all is acked."""
    stream, connection = await Connection.open(address), await Connection.open(address)
    await stream.follow(f"/v0/topics/{name}/work?node={node}&max={DEPTH}")
    pending: list[int] = []
    while tally.acked < total:
        jobs = await stream.events()
        tally.deliveries.update(job["data"] for job in jobs)
        pending += [job["$seq"] for job in jobs]
        if pending and (len(pending) >= DEPTH // 2 or not jobs):
            done = await connection.post(f"/v0/topics/{name}/ack", {"node": node, "seqs": pending})
            tally.acked += done["acked"]
            tally.skipped += done["skipped"]
            pending = []
    stream.close()
    connection.close()


@pins(40, 77)
@pytest.mark.verify
def test_two_hundred_streams_lose_and_repeat_nothing(
    serve_process: ServeProcess, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve_process()
    with Topics(server.address) as topics:
        topics.queue(name, lease_ms=LEASE_MS)
    tally = Tally()

    async def run() -> float:
        started = time.monotonic()
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for nth in range(STREAMS):
                group.create_task(work(server.address, name, f"node-{nth}", tally, JOBS))
            group.create_task(produce(server.address, name, JOBS))
        return JOBS / (time.monotonic() - started)

    rate = asyncio.run(run())

    with capsys.disabled():
        sys.stderr.write(f"\n{STREAMS} work streams: {rate:,.0f} jobs/s sent, pushed and acked\n")
    assert tally.skipped == []
    assert (len(tally.deliveries), set(tally.deliveries.values())) == (JOBS, {1})


# --- a server that is killed ---------------------------------------------------------------------

ROUNDS = 4
WORKERS = 8


@pytest.fixture
def restarted(serve_process: ServeProcess) -> Callable[[], ServerProcess]:
    """Starts a server, after killing the one before."""
    running: list[ServerProcess] = []

    def start() -> ServerProcess:
        if running:
            running[-1].kill()
        running.append(serve_process())
        return running[-1]

    return start


@pins(12, 17, 86)
@pytest.mark.verify
def test_a_server_that_is_killed_under_load_loses_nothing(
    restarted: Callable[[], ServerProcess], name: str
) -> None:
    sent: set[int] = set()
    done: Counter[int] = Counter()
    doubtful: set[int] = set()  # whose ack has had no answer: it has happened or not
    held: dict[int, tuple[str, float]] = {}  # by number: who holds it, until when by the server
    trouble: list[str] = []

    async def send(client: httpx.AsyncClient, worker: int) -> None:
        for n in range(1_000_000):
            data = worker * 1_000_000 + n
            body = {"records": [{"data": data}], "idempotency_key": str(data)}
            if (await client.post(f"/v0/topics/{name}", json=body)).status_code == 200:
                sent.add(data)

    async def consume(client: httpx.AsyncClient, node: str) -> None:
        while True:
            answer = await client.post(f"/v0/topics/{name}/claim", json={"node": node, "max": 20})
            jobs = answer.json()["claimed"]
            for job in jobs:
                note(job, node)
            body = {"node": node, "seqs": [job["$seq"] for job in jobs]}
            if not jobs:
                continue
            acking = {job["data"] for job in jobs}
            doubtful.update(acking)
            answer = await client.post(f"/v0/topics/{name}/ack", json=body)
            skipped = set(answer.json()["skipped"])
            done.update(job["data"] for job in jobs if job["$seq"] not in skipped)
            doubtful.difference_update(acking)

    def note(job: dict[str, Any], node: str) -> None:
        before = held.get(job["$seq"])
        if before is not None and before[0] != node and before[1] > job["deadline"] - 2_000:
            trouble.append(f"{job['$seq']} was held by {before[0]}")
        held[job["$seq"]] = (node, job["deadline"])

    async def until_killed(server: ServerProcess, generation: int) -> None:
        async with httpx.AsyncClient(base_url=server.address, timeout=10, trust_env=False) as client:
            crew = [send(client, generation * WORKERS + nth) for nth in range(WORKERS)]
            crew += [consume(client, f"node-{generation}-{nth}") for nth in range(WORKERS)]
            tasks = [asyncio.create_task(member) for member in crew]
            goal = len(sent) + 300
            async with asyncio.timeout(60):
                while len(sent) < goal:
                    await asyncio.sleep(0)
                    assert not any(task.done() for task in tasks), [
                        task.exception() for task in tasks if task.done()
                    ]
            server.kill()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(error, httpx.TransportError) for error in ended), ended

    server = restarted()
    with Topics(server.address) as topics:
        topics.queue(name, lease_ms=2_000)
    for generation in range(ROUNDS):
        asyncio.run(until_killed(server, generation))
        server = restarted()

    with Topics(server.address) as topics:
        until = time.monotonic() + 60
        while topics.get(name)["count"] and time.monotonic() < until:
            for job in topics.claim(name, "last", max=1000):
                note(job, "last")
                if topics.settle("ack", name, [job["$seq"]], node="last")["acked"]:
                    done[job["data"]] += 1
        assert topics.get(name)["count"] == 0
    assert trouble == []
    assert set(done.values()) == {1}
    assert sent - done.keys() <= doubtful
    assert len(done) > 100
