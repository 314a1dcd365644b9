"""The database goes away, or says nothing more, while a server runs. Claims pinned here:

1. Meanwhile requests are refused with 503 and Retry-After, /readyz too; /healthz answers. Afterwards the
   server works again by itself, and does not stumble over connections from before.
2. A network that swallows everything does not hang the server: calls of the database are broken off.
3. A send whose answer was lost is not repeated: it is there once, also among others in one call.
4. Sleepers are woken by notifications again, once the database is back.
5. If all connections are in use, others wait for a bounded time. A database that only reads is no database.
6. A server does not start without its database, unless it is told to wait.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast.server import claims, configs, connections
from tests.cli.conftest import PATIENCE, PROGRAM, environment, execute
from tests.fix_database import Connect
from tests.fix_http import Caller, Serve
from tests.fix_proxy import Proxy
from tests.http.streams import Stream
from tests.waiting import eventually

Conn = psycopg.Connection[Any]
WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


@pytest.fixture
def orders(conn: Conn) -> Conn:
    """A connection to a database with the queue `orders`, beside the proxy."""
    conn.execute("select holdfast.create_queue('orders')")
    return conn


@pytest.fixture
def far(serve: Serve, orders: Conn, proxy: Proxy) -> Caller:
    """A server whose database is behind the proxy, and that has used it."""
    caller = serve(database_url=proxy.url, statement_timeout=0.5)
    for number in range(5):
        caller.send("orders", number)
    return caller


def status(caller: Caller, path: str = "/readyz") -> int:
    return caller.call("GET", path).status_code


def claims_waiting(caller: Caller) -> float:
    figures = caller.call("GET", "/metrics").text
    return float(figures.partition("\nholdfast_claims_waiting ")[2].partition("\n")[0])


def comes_back(caller: Caller) -> None:
    """It is ready by itself, and from then on stays so."""
    eventually(lambda: status(caller) == 200, what="it is ready again")
    for number in range(20):
        caller.send("orders", number)


def test_without_a_database_all_is_refused_but_the_question_of_health(far: Caller, proxy: Proxy) -> None:
    proxy.stop()

    refused = [far.call("GET", "/v1/queues/orders/stats") for _ in range(10)]
    ready, health = status(far), far.ok("GET", "/healthz")

    assert {response.status_code for response in refused} == {503}
    assert {response.headers["retry-after"] for response in refused} == {"1"}
    assert {response.json()["error"]["code"] for response in refused} <= {"QH930", "QH932"}
    assert (ready, health["status"]) == (503, "ok")
    proxy.start()
    comes_back(far)


def test_a_database_that_was_gone_for_a_moment_leaves_no_dead_connections(far: Caller, proxy: Proxy) -> None:
    proxy.restart()

    comes_back(far)


def test_who_waits_is_told_also_where_a_queue_s_configuration_is_looked_up_just_then(
    serve: Serve, orders: Conn, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "FRESH_SECONDS", 0.0)
    far = serve(database_url=proxy.url)
    with (
        ThreadPoolExecutor(1) as pool,
        far.with_key(None) as another,
        Stream(far, "orders") as stream,
    ):
        waiting = pool.submit(another.call, "POST", "/v1/queues/orders/claim", {"wait": 20})
        eventually(lambda: claims_waiting(far) == 2, what="both wait")
        assert stream.event() == ("retry", "1000")
        proxy.stop()

        event = stream.event()
        assert event is not None
        assert event[0] == "error"
        assert event[1]["error"]["code"] in {"QH930", "QH932"}
        assert stream.event() is None
        assert waiting.result().status_code == 503
    proxy.start()
    comes_back(far)


@pytest.mark.verify
def test_a_deaf_network_does_not_hang_the_server(far: Caller, proxy: Proxy) -> None:
    proxy.deafen()

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: status(far, "/v1/queues/orders/stats"), range(10)))
        health = far.ok("GET", "/healthz")

    assert set(found) == {503}
    assert health["status"] == "ok"
    proxy.hear()
    comes_back(far)


@pytest.mark.verify
def test_a_deaf_network_that_drops_what_it_held_back_does_no_harm(far: Caller, proxy: Proxy) -> None:
    proxy.deafen()
    assert status(far) == 503

    proxy.restart()

    comes_back(far)


def test_a_statement_that_takes_too_long_is_cancelled(far: Caller, orders: Conn, connect: Connect) -> None:
    other = connect(autocommit=False)
    other.execute("select holdfast.send('orders', '\"other\"', key => 'same')")

    error = far.refused(
        "POST",
        "/v1/queues/orders/messages",
        {"messages": [{"payload": "mine", "key": "same"}]},
        status=503,
        code="QH930",
    )

    assert error["message"] == "the database cannot do this now"
    assert orders.execute(WAITING).fetchone() == (0,)
    other.commit()
    found = orders.execute("select payload from holdfast.browse('orders') where key = 'same'").fetchall()
    assert found == [("other",)]


def sleepers(orders: Conn, count: int) -> bool:
    return orders.execute(WAITING).fetchone() == (count,)


def test_sends_whose_answers_were_lost_took_effect_once(
    serve: Serve, orders: Conn, proxy: Proxy, connect: Connect
) -> None:
    far = serve(database_url=proxy.url)
    other = connect(autocommit=False)
    orders.execute("""select holdfast.create_queue('lines', '{"ordering": "key"}')""")
    other.execute("select holdfast.send('lines', '0', ordering_key => 'line')")

    def send(number: int) -> int:
        messages = [{"payload": number, "ordering_key": "line"}]
        return far.call("POST", "/v1/queues/lines/messages", {"messages": messages}).status_code

    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(send, number) for number in range(1, 21)]
        eventually(lambda: sleepers(orders, 2), what="two calls wait in the database, the rest behind them")
        proxy.deafen()
        other.commit()
        eventually(lambda: sleepers(orders, 0), what="the database has done what it was asked")
        proxy.restart()
        statuses = [each.result(PATIENCE) for each in asked]

    found = orders.execute("select payload from holdfast.message where payload <> '0'").fetchall()
    sent = {number for number, code in enumerate(statuses, 1) if code == 201}
    assert set(statuses) <= {201, 503}
    assert 503 in statuses
    assert len(found) == len(set(found))
    assert sent <= {row[0] for row in found}
    assert {row[0] for row in found} - sent, "what was lost were answers, not sends"


def test_sleepers_are_woken_by_notifications_after_an_outage(
    serve: Serve, orders: Conn, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "POLL_SECONDS", 1000.0)
    far = serve(database_url=proxy.url)
    assert far.claim("orders", wait=0.1) == []

    proxy.restart()
    eventually(lambda: status(far) == 200, what="it is ready again")
    with ThreadPoolExecutor(1) as pool:
        claimed = pool.submit(far.claim, "orders", wait=25)
        eventually(lambda: is_asleep(orders), what="the claim waits")
        orders.execute("select holdfast.send('orders', '\"wake up\"')")

        assert [each["payload"] for each in claimed.result(PATIENCE)] == ["wake up"]


def is_asleep(conn: Conn) -> bool:
    """Whether a consumer has asked to be notified of messages of the queue orders."""
    row = conn.execute("select pg_sequence_last_value(asleep) from holdfast.queue where name = 'orders'")
    return bool((row.fetchone() or (0,))[0])


def test_who_finds_all_connections_in_use_is_refused_after_a_while(
    serve: Serve, orders: Conn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.2)
    small = serve(pool_size=1)
    eventually(lambda: small.call("GET", "/readyz").status_code == 200, what="it is connected")
    other = connect(autocommit=False)
    other.execute("select holdfast.send('orders', '1', key => 'same')")

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(small.call, "POST", "/v1/queues/orders/keys/discard", {"key": "same"})
        eventually(lambda: sleepers(orders, 1), what="the only connection is in use")
        error = small.refused("GET", "/v1/queues/orders/stats", status=503, code="QH930")
        other.rollback()
        assert holding.result(PATIENCE).status_code == 200

    assert error["message"] == "no connection to the database is free"
    small.ok("GET", "/v1/queues/orders/stats")


@pytest.fixture
def reading_only(orders: Conn, database_url: str) -> Iterator[None]:
    """New sessions may read and nothing else, as on a standby."""
    name = orders.info.dbname
    orders.execute(f"alter database {name} set default_transaction_read_only = on".encode())
    yield
    orders.execute(f"alter database {name} reset default_transaction_read_only".encode())


def test_a_database_that_only_reads_is_unavailable(reading_only: None, serve: Serve) -> None:
    body = {"messages": [{"payload": 1}]}

    serve().refused("POST", "/v1/queues/orders/messages", body, status=503, code="QH930")


def test_a_server_does_not_start_without_its_database(proxy: Proxy) -> None:
    proxy.stop()

    answer = execute("serve", "--port", "0", "--json", env=environment(proxy.url))

    error = json.loads(answer.err)["error"]
    assert (answer.code, answer.out) == (3, "")
    assert error["message"].startswith("can't connect to the database")


def test_a_server_that_is_told_to_waits_for_its_database(proxy: Proxy) -> None:
    proxy.stop()
    order = [str(PROGRAM), "serve", "--port", "0", "--json", "--wait", "1h"]
    with subprocess.Popen(order, env=environment(proxy.url), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            proxy.start()
            with Caller(json.loads(process.stdout.readline())["address"]) as caller:
                caller.ok("GET", "/readyz")
        finally:
            process.terminate()
            assert process.wait(PATIENCE) == 0
