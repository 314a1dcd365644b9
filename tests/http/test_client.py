"""The client over HTTP at a server: its key, its waits, its streams, and what only a database can do.

What the verbs do is in tests/conformance, for every door.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing
from decimal import Decimal
from itertools import islice
from typing import Any

import psycopg
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from psycopg.types.json import Jsonb

import holdfast
from holdfast import (
    AsyncHttpHoldfast,
    BatchTooLargeError,
    Holdfast,
    HttpHoldfast,
    NewMessage,
    QueueNotFoundError,
    UnauthorizedError,
    UnavailableError,
    UnreadableJson,
)
from tests.fix_http import Caller, Serve
from tests.fix_proxy import Proxy
from tests.http.scripted import Answer, Scripted, refusal
from tests.waiting import eventually

NO_CONNECTION = "needs a connection to the database, and over HTTP there is none"


@pytest.fixture
def client(http: Caller) -> Iterator[HttpHoldfast]:
    """A client of the server."""
    with HttpHoldfast(http.address) as client:
        yield client


@pytest.fixture
def relay(http: Caller) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    host, port = http.place
    proxy = Proxy(target_url=f"postgresql://nobody:none@{host}:{port}/none")
    proxy.open()
    yield proxy
    proxy.close()


# --- keys ----------------------------------------------------------------------------------------


def test_the_key_goes_with_every_request(serve: Serve, engine: Holdfast) -> None:
    key = engine.create_key("test", scopes=["admin"]).key

    with HttpHoldfast(serve().address, key=key) as client:
        assert client.create_queue("orders") is True
        stream = client.work("orders")
        client.send("orders", 1)
        assert next(stream).payload == 1
        stream.close()


def test_the_environment_gives_the_key(
    serve: Serve, engine: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", engine.create_key("test", scopes=["admin"]).key)

    with HttpHoldfast(serve().address) as client:
        assert client.create_queue("orders") is True


@pytest.mark.parametrize("key", [None, "hf_wrong"])
def test_without_a_valid_key_nothing_is_done(
    serve: Serve, engine: Holdfast, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_API_KEY", raising=False)
    engine.create_key("test", scopes=["admin"])

    with HttpHoldfast(serve().address, key=key) as client, pytest.raises(UnauthorizedError) as caught:
        client.create_queue("orders")

    assert caught.value.code == "QH920"
    assert engine.queues() == []


def test_a_limit_of_the_server_is_waited_for(client: HttpHoldfast, engine: Holdfast) -> None:
    client.create_queue("orders", {"rate_limits": {"send": 2}})

    ids = [client.send("orders", n) for n in range(4)]

    assert [entry.id for entry in engine.browse("orders")] == ids


# --- waiting -------------------------------------------------------------------------------------


def test_a_waiting_claim_gets_what_is_sent_meanwhile(client: HttpHoldfast, engine: Holdfast) -> None:
    client.create_queue("orders")
    timer = threading.Timer(0.2, engine.send, ["orders", 1])
    timer.start()

    (delivery,) = client.claim("orders", wait=30)

    assert delivery.payload == 1
    timer.join()


async def test_a_cancelled_wait_leaves_nothing_behind(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    async with AsyncHttpHoldfast(http.address) as client:
        for _ in range(5):
            waiting = asyncio.create_task(client.claim("orders", wait=30))
            await asyncio.wait({waiting}, timeout=0.05)
            waiting.cancel()
            await asyncio.wait({waiting})
        engine.send("orders", 1)

        (delivery,) = await client.claim("orders", wait=20)

    assert (delivery.payload, delivery.deliveries) == (1, 1)


def test_requests_name_the_trace_that_they_are_made_in() -> None:
    span = NonRecordingSpan(SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1)))
    answers = [Answer(200, {"messages": []}), refusal("QH101", 404), Answer(200, {"messages": []})]
    with Scripted(answers) as server, HttpHoldfast(server.url) as client:
        with use_span(span):
            client.claim("q")
            with pytest.raises(QueueNotFoundError):
                next(iter(client.work("q")))
        client.claim("q")

        named = [asked.headers.get("traceparent") for asked in server.asked]
    assert named == [f"00-{1:032x}-{2:016x}-01"] * 2 + [None]


def test_a_long_wait_is_asked_for_in_slices() -> None:
    nothing = Answer(200, {"messages": []})
    got = {"messages": [{**dict.fromkeys(fields()), "token": "1", "id": "2", "queue": "q"} | PLAIN]}
    with Scripted([nothing, nothing, Answer(200, got)]) as server, HttpHoldfast(server.url) as client:
        (delivery,) = client.claim("q", wait=3600)

        assert [asked.body["wait"] for asked in server.asked] == [20.0, 20.0, 20.0]
    assert (delivery.token, delivery.id) == (1, 2)


PLAIN: dict[str, Any] = {
    "priority": 0,
    "deliveries": 1,
    "max_deliveries": 5,
    "enqueued_at": "2030-01-01T00:00:00Z",
    "deadline": "2030-01-01T00:00:30Z",
}


def fields() -> list[str]:
    """The names of what a delivery has."""
    return list(holdfast.Delivery.__dataclass_fields__)


# --- streams -------------------------------------------------------------------------------------


def test_work_brings_messages_as_they_are_settled(client: HttpHoldfast) -> None:
    client.create_queue("orders")
    client.send_batch("orders", list(range(20)))
    done = []

    for delivery in client.work("orders", 3, consumer="test"):
        assert client.queue_stats("orders").in_flight <= 3
        client.ack("orders", delivery.token, [delivery.id])
        done.append(delivery.payload)
        if len(done) == 20:
            break

    assert done == list(range(20))


async def test_work_is_there_for_asyncio_too(http: Caller) -> None:
    async with AsyncHttpHoldfast(http.address) as client:
        await client.create_queue("orders")
        ids = await client.send_batch("orders", ["a", "b\u2028c"], headers={"é": 1.5})
        async with aclosing(client.work("orders", 2, lease=60)) as stream:
            found = [await anext(stream), await anext(stream)]

        assert [(d.id, d.payload, d.headers) for d in found] == [
            (ids[0], "a", {"é": 1.5}),
            (ids[1], "b\u2028c", {"é": 1.5}),
        ]


def test_leaving_the_loop_gives_back_what_is_in_flight(client: HttpHoldfast, engine: Holdfast) -> None:
    client.create_queue("orders")
    client.send_batch("orders", [1, 2, 3])

    for _ in client.work("orders", 3):
        break

    eventually(lambda: engine.queue_stats("orders").in_flight == 0, what="they are given back")
    assert [entry.deliveries for entry in engine.browse("orders")] == [0, 0, 0]


def test_a_stream_that_breaks_is_opened_again(
    relay: Proxy, engine: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    engine.create_queue("orders")
    engine.send_batch("orders", [1, 2])
    with HttpHoldfast(f"http://127.0.0.1:{relay.port}", patience=0.1) as client:
        stream = client.work("orders")
        first = next(stream)
        relay.restart()
        eventually(lambda: engine.queue_stats("orders").in_flight == 0, what="the first is given back")

        again = next(stream)
        client.ack("orders", again.token)
        second = next(stream)
        stream.close()

    assert (first.payload, again.payload, second.payload) == (1, 1, 2)
    assert "work on orders is interrupted" in caplog.text


def test_a_stream_lasts_longer_than_its_server(serve: Serve, engine: Holdfast, relay: Proxy) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    with HttpHoldfast(f"http://127.0.0.1:{relay.port}", patience=0.1) as client:
        stream = client.work("orders")
        next(stream)
        relay.stop()
        starting = threading.Timer(1.0, relay.start)
        starting.start()

        assert next(stream).payload == 1
        stream.close()
    starting.join()


def test_a_stream_of_a_queue_that_is_not_there_is_an_error(client: HttpHoldfast) -> None:
    with pytest.raises(QueueNotFoundError):
        next(client.work("nowhere"))


def test_a_stream_whose_queue_is_dropped_ends_with_an_error(client: HttpHoldfast, engine: Holdfast) -> None:
    client.create_queue("orders")
    client.send("orders", 1)
    stream = client.work("orders")
    delivery = next(stream)
    client.ack("orders", delivery.token)

    engine.drop_queue("orders")

    with pytest.raises(QueueNotFoundError):
        next(stream)


def test_a_stream_that_cannot_be_opened_is_an_error() -> None:
    with Scripted([]) as server:
        url = server.url

    with HttpHoldfast(url, patience=0.2) as client, pytest.raises(UnavailableError):
        next(client.work("orders"))


# --- many messages -------------------------------------------------------------------------------


def test_bulk_send_goes_in_requests_of_a_thousand(client: HttpHoldfast) -> None:
    client.create_queue("orders")
    told: list[int] = []

    sent = client.bulk_send("orders", (n for n in range(2500)), atomic=False, progress=told.append)

    assert (sent, told) == (2500, [1000, 2000, 2500])
    assert [delivery.payload for delivery in client.claim("orders", 1000)] == list(range(1000))


def test_bulk_send_of_more_than_one_request_is_not_atomic_and_says_so(client: HttpHoldfast) -> None:
    client.create_queue("orders")

    with pytest.raises(BatchTooLargeError, match="too many messages for one request"):
        client.bulk_send("orders", range(1001))
    assert client.bulk_send("orders", range(1000)) == 1000

    assert client.queue_stats("orders").ready == 1000


def test_what_bulk_send_sent_before_an_error_stays_sent(client: HttpHoldfast) -> None:
    client.create_queue("orders")
    messages = [*range(5), NewMessage(priority=11)]

    with pytest.raises(holdfast.InvalidPriorityError):
        client.bulk_send("orders", messages, chunk=2, atomic=False)

    assert client.queue_stats("orders").ready == 4


def test_one_call_takes_a_thousand_messages(client: HttpHoldfast) -> None:
    client.create_queue("orders")

    with pytest.raises(BatchTooLargeError):
        client.send_batch("orders", [1] * 1001)
    with pytest.raises(BatchTooLargeError):
        client.send_many("orders", [1] * 1001)

    assert client.queue_stats("orders").depth == 0


# --- JSON ----------------------------------------------------------------------------------------


def test_one_payload_that_python_cannot_read_spoils_no_other(
    client: HttpHoldfast, conn: psycopg.Connection[Any]
) -> None:
    deep = "[" * 5000 + "]" * 5000
    client.create_queue("q")
    for text in ('"good ]"', "1e5000", deep, '{"a": "[[["}'):
        conn.execute("select holdfast.send('q', %s::jsonb)", [text])

    payloads = [entry.payload for entry in client.browse("q")]
    streamed = [delivery.payload for delivery in islice(client.work("q", 4), 4)]

    assert payloads == ["good ]", Decimal("1" + "0" * 5000), UnreadableJson(deep), {"a": "[[["}]
    assert streamed == payloads


def test_json_is_written_as_its_wrapper_says(client: HttpHoldfast) -> None:
    client.create_queue("q")

    client.send("q", Jsonb({"n": 1}, dumps=lambda _: '{"n": 1.50}'))

    with HttpHoldfast(client._session._url, parse_float=Decimal) as exact:
        assert str(exact.browse("q")[0].payload["n"]) == "1.50"


# --- what only a database can do -----------------------------------------------------------------


def test_there_are_no_transactions_over_http(client: HttpHoldfast) -> None:
    with pytest.raises(RuntimeError, match=f"transaction {NO_CONNECTION}"):
        client.transaction()
    with pytest.raises(RuntimeError, match=f"fast_mode {NO_CONNECTION}"):
        client.fast_mode()
    with pytest.raises(RuntimeError, match=f"listen {NO_CONNECTION}"):
        client.listen("orders")


def test_a_closed_client_says_so(client: HttpHoldfast) -> None:
    client.close()

    with pytest.raises(RuntimeError, match="closed"):
        client.send("orders", 1)
