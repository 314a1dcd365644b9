"""Claims that wait: they wake at a send, whoever sends, and lose nothing when their client goes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.cli.conftest import environment, execute
from tests.fix_http import Caller, Serve
from tests.waiting import eventually

ORDERS = "/v1/queues/orders"


class Claiming:
    """A claim in a thread of its own."""

    def __init__(self, http: Caller, **options: Any) -> None:
        self.messages: list[Any] | None = None
        self._http = http
        self._options = options
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with Caller(self._http.address) as caller:
            self.messages = caller.claim("orders", **self._options)

    def answer(self) -> list[Any]:
        """What it was answered with."""
        self._thread.join(40)
        assert self.messages is not None
        return self.messages


@contextmanager
def hanging(http: Caller, body: bytes) -> Iterator[socket.socket]:
    """A connection on which a claim waits for its answer."""
    with socket.create_connection(http.place, timeout=20) as connection:
        head = (
            b"POST /v1/queues/orders/claim HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        connection.sendall(head + body)
        yield connection


@pytest.fixture
def orders(http: Caller, engine: Holdfast) -> Caller:
    """A server with an empty queue."""
    engine.create_queue("orders")
    return http


def test_a_claim_that_waits_answers_with_nothing_when_its_time_is_up(orders: Caller) -> None:
    began = time.monotonic()

    assert orders.claim("orders", wait=1) == []

    assert time.monotonic() - began >= 1


def test_a_claim_wakes_at_a_send_from_another_process(orders: Caller, database_url: str) -> None:
    waiting = Claiming(orders, wait=30, max=10)

    sent = execute("send", "orders", '{"from": "elsewhere"}', env=environment(database_url))

    assert sent.code == 0, sent.err
    assert [message["payload"] for message in waiting.answer()] == [{"from": "elsewhere"}]


@pytest.mark.parametrize("listen", [True, False])
def test_many_claims_that_wait_get_a_message_each(serve: Serve, engine: Holdfast, listen: bool) -> None:
    engine.create_queue("orders")
    http = serve(listen=listen)
    waiting = [Claiming(http, wait=30) for _ in range(20)]

    engine.send_batch("orders", list(range(20)))

    got = [message["payload"] for each in waiting for message in each.answer()]
    assert sorted(got) == list(range(20))


def test_a_claim_wakes_when_a_message_is_released(orders: Caller, engine: Holdfast) -> None:
    id = engine.send("orders", 1)
    (held,) = engine.claim("orders")
    waiting = Claiming(orders, wait=30)

    engine.release("orders", held.token)

    assert [message["id"] for message in waiting.answer()] == [str(id)]


def test_a_message_whose_claimer_has_gone_is_there_for_others_at_once(
    orders: Caller, engine: Holdfast
) -> None:
    with hanging(orders, b'{"wait": 30, "lease": "1 h", "consumer": "gone"}'):
        orders.claim("orders", wait=0.2)  # by then the other one waits

    id = engine.send("orders", 1)

    eventually(
        lambda: [claimed.id for claimed in engine.claim("orders", consumer="other")] == [id],
        what="another consumer gets the message",
    )


def test_an_error_ends_the_wait(orders: Caller, engine: Holdfast) -> None:
    outcome: list[Any] = []

    def claim() -> None:
        with Caller(orders.address) as caller:
            outcome.append(caller.call("POST", f"{ORDERS}/claim", {"wait": 30}))

    thread = threading.Thread(target=claim, daemon=True)
    thread.start()
    eventually(lambda: orders.claim("orders", wait=0.1) == [], what="the other one waits")
    engine.drop_queue("orders")
    thread.join(40)

    assert (outcome[0].status_code, outcome[0].json()["error"]["code"]) == (404, "QH101")


def test_a_wait_costs_no_connection_to_the_database(
    serve: Serve, engine: Holdfast, conn: psycopg.Connection[Any]
) -> None:
    engine.create_queue("orders")
    http = serve(pool_size=2)
    waiting = [Claiming(http, wait=5) for _ in range(30)]

    assert http.ok("GET", f"{ORDERS}/stats")["ready"] == 0
    row = conn.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    ).fetchone()
    engine.send_batch("orders", list(range(30)))

    assert sum(len(each.answer()) for each in waiting) == 30
    assert row is not None
    assert row[0] <= 2 + 2 + 2  # the pool, what listens and keeps house, and this test's client
