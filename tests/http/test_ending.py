"""How a server ends. Claims pinned here, for one process and for several:

1. SIGTERM and Ctrl-C end it in order: exit code 0, nothing on stderr that looks like an error.
2. A claim that waits is answered with nothing, a stream with its end event, and what it held is free at once.
3. A request that is under way is finished, or broken off when the time for that is over.
4. A second signal ends it at once, with exit code 130.
5. With --drain it says that it is not ready, and goes on, before it takes no more connections.
6. A worker that dies is replaced; workers whose supervisor died end by themselves.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from tests.cli.conftest import PATIENCE, started
from tests.fix_database import Connect
from tests.fix_http import Caller, ServeProcess, ServerProcess, is_listening
from tests.waiting import eventually

Conn = psycopg.Connection[Any]
ASLEEP = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)
PROCESSES = pytest.mark.parametrize("workers", ["1", "2"])


@pytest.fixture
def orders(conn: Conn) -> Conn:
    """A connection to a database with the queue `orders`."""
    conn.execute("select holdfast.create_queue('orders', '{\"lease\": \"1 hour\"}')")
    return conn


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Some work in a thread, while the block lasts; whatever comes of it is looked at within the block."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def in_doubt(ask: Callable[[], httpx.Response]) -> int:
    """The status of a request; 0 if there was no answer."""
    try:
        return ask().status_code
    except httpx.TransportError:
        return 0


@contextmanager
def blocked_send(server: ServerProcess, connect: Connect) -> Iterator[tuple[Conn, Future[int]]]:
    """A send that waits for the transaction of another sender, which is given too."""
    other = connect(autocommit=False)
    other.execute("select holdfast.send('orders', '1', key => 'same')")
    body = {"messages": [{"payload": 2, "key": "same"}]}
    with (
        server.caller() as caller,
        beside(lambda: in_doubt(lambda: caller.call("POST", "/v1/queues/orders/messages", body))) as asked,
    ):
        watch = connect()
        eventually(lambda: watch.execute(ASLEEP).fetchone() == (1,), what="the send waits")
        try:
            yield other, asked
        finally:
            other.rollback()


def clean(err: str) -> bool:
    return "Traceback" not in err and "rror" not in err


@PROCESSES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(serve_process: ServeProcess, workers: str, number: signal.Signals) -> None:
    server = serve_process("--workers", workers)
    with server.caller() as caller:
        caller.ok("GET", "/readyz")

        code, err = server.end(number)

        assert not is_listening(caller.place)
    assert (code, clean(err)) == (0, True), err


@PROCESSES
def test_a_signal_to_the_whole_group_is_one_signal(
    serve_process: ServeProcess, orders: Conn, workers: str
) -> None:
    server = serve_process("--workers", workers)
    with server.caller() as caller, beside(lambda: caller.claim("orders", wait=30)) as claimed:
        eventually(lambda: is_asleep(orders), what="the claim waits")

        os.killpg(server.process.pid, signal.SIGTERM)

        assert claimed.result(PATIENCE) == []
        assert server.process.wait(PATIENCE) == 0


def is_asleep(conn: Conn) -> bool:
    """Whether a consumer has asked to be notified of messages of the queue orders."""
    row = conn.execute("select pg_sequence_last_value(asleep) from holdfast.queue where name = 'orders'")
    return bool((row.fetchone() or (0,))[0])


@PROCESSES
def test_a_waiting_claim_is_answered_with_nothing(
    serve_process: ServeProcess, orders: Conn, workers: str
) -> None:
    server = serve_process("--workers", workers)
    with server.caller() as caller, beside(lambda: caller.claim("orders", wait=30)) as claimed:
        eventually(lambda: is_asleep(orders), what="the claim waits")

        code, _ = server.end()

        assert claimed.result(PATIENCE) == []
    assert code == 0


@PROCESSES
@pytest.mark.parametrize("most", [1, 5])
def test_a_stream_ends_with_its_event_and_what_it_held_is_free(
    serve_process: ServeProcess, orders: Conn, workers: str, most: int
) -> None:
    orders.execute("select holdfast.send('orders', '1')")
    server = serve_process("--workers", workers)
    path = f"/v1/queues/orders/work?max={most}"
    with server.caller() as caller, caller.client.stream("GET", path) as stream:
        lines = stream.iter_lines()
        while next(lines) != "event: message":
            pass

        code, err = server.end()

        rest = list(lines)
    freed = orders.execute("select payload, deliveries from holdfast.claim('orders')").fetchall()
    assert rest[-3:] == ["event: end", "data: {}", ""]
    assert freed == [(1, 1)]
    assert (code, clean(err)) == (0, True), err


@PROCESSES
def test_a_request_that_is_under_way_is_finished(
    serve_process: ServeProcess, connect: Connect, orders: Conn, workers: str
) -> None:
    server = serve_process("--workers", workers)
    with blocked_send(server, connect) as (other, asked), server.caller() as caller:
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not is_listening(caller.place), what="it takes no more connections")
        other.rollback()

        assert asked.result(PATIENCE) == 201
        assert server.process.wait(PATIENCE) == 0


@PROCESSES
def test_a_request_that_does_not_end_is_broken_off(
    serve_process: ServeProcess, connect: Connect, orders: Conn, workers: str
) -> None:
    server = serve_process("--workers", workers, "--grace", "300ms")
    with blocked_send(server, connect) as (_, asked):
        code, err = server.end()

        assert asked.result(PATIENCE) == 503
    assert code == 0
    assert "Traceback" not in err


@PROCESSES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    serve_process: ServeProcess, connect: Connect, orders: Conn, workers: str, number: signal.Signals
) -> None:
    server = serve_process("--workers", workers, "--grace", "1h")
    with blocked_send(server, connect) as (_, asked), server.caller() as caller:
        server.process.send_signal(number)
        eventually(lambda: not is_listening(caller.place), what="it takes no more connections")

        code, err = server.end(number)

        assert asked.result(PATIENCE) in (0, 503)
    assert (code, "Traceback" in err) == (130, False), err


def test_while_it_drains_it_serves_and_is_not_ready(serve_process: ServeProcess, orders: Conn) -> None:
    server = serve_process("--drain", "1h")
    with server.caller() as caller:
        caller.ok("GET", "/readyz")
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: caller.call("GET", "/readyz").status_code == 503, what="it is not ready")

        caller.send("orders", 1)
        health = caller.ok("GET", "/healthz")
        code, _ = server.end()

    assert health["status"] == "ok"
    assert code == 130


def test_a_short_drain_ends_by_itself(serve_process: ServeProcess) -> None:
    server = serve_process("--drain", "100ms")
    with server.caller() as caller:
        caller.ok("GET", "/readyz")

    assert server.end()[0] == 0


def workers_of(server: ServerProcess) -> list[psutil.Process]:
    """The processes that serve: those that have connections to the database."""
    return [child for child in psutil.Process(server.process.pid).children() if is_connected(child)]


def is_connected(process: psutil.Process) -> bool:
    try:
        return any(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections())
    except psutil.NoSuchProcess:
        return False


def test_a_worker_that_dies_is_replaced(serve_process: ServeProcess, orders: Conn) -> None:
    server = serve_process("--workers", "2")
    victim = eventually(lambda: workers_of(server)[1:], what="both workers serve", timeout=PATIENCE)[0]

    victim.kill()

    eventually(
        lambda: len([each for each in workers_of(server) if each.pid != victim.pid]) == 2,
        what="there are two again",
        timeout=PATIENCE,
    )
    with server.caller() as caller:
        caller.send("orders", 1)
    code, err = server.end()
    assert code == 0
    assert f"worker {victim.pid} ended with -9" in err


def test_workers_end_when_their_supervisor_is_killed(serve_process: ServeProcess) -> None:
    server = serve_process("--workers", "2")
    workers = eventually(
        lambda: found if len(found := workers_of(server)) == 2 else [], what="both serve", timeout=PATIENCE
    )

    server.process.kill()

    _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert alive == []


def test_workers_whose_supervisor_is_killed_while_they_start_end_too(serve_process: ServeProcess) -> None:
    server = serve_process("--workers", "2")
    supervisor = psutil.Process(server.process.pid)
    started = eventually(
        lambda: found if len(found := supervisor.children()) == 3 else [],  # what Python itself starts, too
        what="it starts workers",
        timeout=PATIENCE,
    )

    server.process.kill()

    _, alive = psutil.wait_procs(started, timeout=PATIENCE)
    assert alive == []


def test_up_ends_its_streams_too(empty_database_url: str, tmp_path: Path) -> None:
    words = ("up", "--demo", "--json", "--port", "0")
    with started(*words, cwd=tmp_path, database_url=empty_database_url) as process:
        assert process.stdout is not None
        caller = Caller(json.loads(process.stdout.readline())["address"])
        with caller, caller.client.stream("GET", "/v1/queues/demo/work") as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = list(lines)
        _, err = process.communicate(timeout=PATIENCE)

    assert rest[-3:] == ["event: end", "data: {}", ""]
    assert (process.returncode, err) == (0, "")
