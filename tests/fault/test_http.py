"""Servers of HTTP die, and their database does, under load. Claims pinned here:

1. What was answered with 201 is delivered, though one of two servers is killed, and PostgreSQL restarts or
   is killed.
2. What was acked, by an answer that says so, is never handed out again.
3. Both servers go on by themselves; nothing but 503 is answered meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from holdfast import Holdfast
from holdfast.embedded import EmbeddedPostgres
from holdfast.migrate import migrate
from tests.fault.servers import kill_server, stop_in_order
from tests.fix_http import PATIENCE, ServerProcess
from tests.waiting import eventually

MESSAGES = "/v1/queues/orders/messages"
PAUSE = 0.02  # seconds before somebody asks again who was refused
MORE = 100  # messages that are sent and acked after each fault


class Traffic:
    """Producers and consumers that ask either server, and what they were answered."""

    def __init__(self, servers: list[ServerProcess]) -> None:
        self.servers = servers
        self.sent: set[str] = set()
        self.seen: set[str] = set()
        self.acked: dict[str, float] = {}  # by id: when the answer had come
        self.risen: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.sending, self.consuming = threading.Event(), threading.Event()

    @contextmanager
    def flowing(self, producers: int, consumers: int) -> Iterator[None]:
        """All of them at work; afterwards nobody is."""
        works = [self._produce] * producers + [self._consume] * consumers
        threads = [threading.Thread(target=work, args=(number,)) for number, work in enumerate(works)]
        self.sending.set()
        self.consuming.set()
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.sending.clear()
            self.consuming.clear()
            for thread in threads:
                thread.join(PATIENCE)

    def goes_on(self) -> None:
        """Wait for more to be sent and acked."""
        sent, acked = len(self.sent), len(self.acked)
        eventually(
            lambda: len(self.sent) >= sent + MORE and len(self.acked) >= acked + MORE,
            what="messages flow again",
            timeout=PATIENCE,
        )

    def _produce(self, number: int) -> None:
        dice, count = random.Random(number), 0
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            while self.sending.is_set():
                payloads = [f"{number}-{count}-{place}" for place in range(dice.randint(1, 3))]
                messages = [{"payload": payload, "tag": dice.choice([None, "eu"])} for payload in payloads]
                count += 1
                if self._ask(client, dice, MESSAGES, {"messages": messages}) is not None:
                    self.sent.update(payloads)

    def _consume(self, number: int) -> None:
        dice = random.Random(number)
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            while self.consuming.is_set():
                started = time.monotonic()
                claimed = self._ask(client, dice, "/v1/queues/orders/claim", {"max": 10, "wait": 1})
                for message in claimed["messages"] if claimed else ():
                    self.seen.add(message["payload"])
                    if self.acked.get(message["id"], started) < started:
                        self.risen.append(message["id"])
                if claimed and claimed["messages"] and dice.random() < 0.95:
                    token = {"token": claimed["messages"][0]["token"]}
                    settled = self._ask(client, dice, "/v1/queues/orders/ack", token) or {"settled": []}
                    self.acked.update(dict.fromkeys(settled["settled"], time.monotonic()))

    def _ask(self, client: httpx.Client, dice: random.Random, path: str, body: object) -> Any:
        """The document of a good answer; None if it is another, or none comes."""
        try:
            response = client.post(dice.choice(self.servers).address + path, json=body)
        except httpx.TransportError:
            time.sleep(PAUSE)
            return None
        self.statuses[response.status_code] += 1
        if response.is_success:
            return response.json()
        time.sleep(PAUSE)
        return None


@contextmanager
def two_servers(url: str, *options: str) -> Iterator[list[ServerProcess]]:
    """Two servers of one database; those that are killed may be replaced in the list."""
    servers: list[ServerProcess] = []
    try:
        servers += [ServerProcess(url, *options)]
        servers += [ServerProcess(url)]
        yield servers
    finally:
        for server in servers:
            server.close()


def replace(servers: list[ServerProcess], url: str, kill: Callable[[ServerProcess], object]) -> None:
    """End the second server, and start another in its place."""
    port = servers[1].address.rpartition(":")[2]
    kill(servers[1])
    servers[1] = ServerProcess(url, "--port", port, "--wait", "30s")


def kill_a_worker(server: ServerProcess) -> None:
    """kill -9 of one of the processes that serve."""
    children = psutil.Process(server.process.pid).children()
    next(child for child in children if "spawn_main" in " ".join(child.cmdline())).kill()


def restart(durable: EmbeddedPostgres, end: Callable[[EmbeddedPostgres], None]) -> None:
    """End PostgreSQL, and start it again."""
    end(durable)
    durable.ensure_running()


def assert_nothing_is_lost(traffic: Traffic) -> None:
    """Everything that was sent comes, once nobody sends any more."""
    traffic.sending.clear()
    eventually(lambda: traffic.sent <= traffic.seen, what="all that was sent is delivered", timeout=PATIENCE)
    assert traffic.risen == []
    assert set(traffic.statuses) <= {200, 201, 503}


@pytest.fixture
def orders(durable_url: str) -> str:
    """A database on the server that may be killed, with a queue of short leases."""
    migrate(durable_url)
    with Holdfast(durable_url) as engine:
        engine.create_queue("orders", {"lease": "3 s", "max_deliveries": 0})
    return durable_url


def test_what_was_answered_with_201_is_delivered(durable_server: EmbeddedPostgres, orders: str) -> None:
    with two_servers(orders) as servers:
        traffic = Traffic(servers)
        with traffic.flowing(producers=3, consumers=3):
            traffic.goes_on()
            replace(servers, orders, ServerProcess.kill)
            traffic.goes_on()
            restart(durable_server, kill_server)
            traffic.goes_on()
            assert_nothing_is_lost(traffic)


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_what_was_answered_with_201_is_delivered_whatever_dies(
    durable_server: EmbeddedPostgres, orders: str
) -> None:
    with two_servers(orders, "--workers", "2") as servers:
        traffic = Traffic(servers)
        with traffic.flowing(producers=6, consumers=6):
            for _ in range(5):
                traffic.goes_on()
                kill_a_worker(servers[0])
                traffic.goes_on()
                restart(durable_server, kill_server)
                traffic.goes_on()
                replace(servers, orders, ServerProcess.kill)
                traffic.goes_on()
                restart(durable_server, stop_in_order)
                traffic.goes_on()
                replace(servers, orders, ServerProcess.end)
            assert_nothing_is_lost(traffic)
