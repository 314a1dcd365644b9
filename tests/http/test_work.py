"""Work streams: at most so many in flight, refilled when settled, given back when the connection ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.server.service import Service
from holdfast.server.settings import Settings
from holdfast.server.streams import Stream as WorkStream
from holdfast.server.streams import Wanted
from tests.fix_http import Caller, Serve, ServeProcess
from tests.http.streams import Stream
from tests.waiting import eventually

ORDERS = "/v1/queues/orders"


@pytest.fixture
def orders(http: Caller, engine: Holdfast) -> Caller:
    """A server with a queue that holds ten messages."""
    engine.create_queue("orders")
    engine.send_batch("orders", list(range(10)))
    return http


def free(engine: Holdfast) -> int:
    """How many messages are there for others."""
    return engine.queue_stats("orders").ready


def test_a_stream_says_what_it_is(orders: Caller) -> None:
    with Stream(orders, "orders") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.event() == ("retry", "1000")


def test_messages_are_pushed_as_a_claim_answers_with_them(orders: Caller) -> None:
    with Stream(orders, "orders", "max=2&lease=2+min&consumer=me") as stream:
        first, second = stream.message(), stream.message()
        (held,) = orders.ok("GET", f"{ORDERS}/held", params={"token": first["token"]})["messages"][:1]

    assert (first["payload"], second["payload"]) == (0, 1)
    assert held == first


def test_at_most_max_are_in_flight(orders: Caller, engine: Holdfast) -> None:
    with Stream(orders, "orders", "max=3") as stream:
        assert [stream.message()["payload"] for _ in range(3)] == [0, 1, 2]
        assert stream.is_quiet(1.5)
        assert engine.queue_stats("orders").in_flight == 3


def ack_by_http(http: Caller, engine: Holdfast, message: Any) -> None:
    http.ok("POST", f"{ORDERS}/ack", {"token": message["token"], "ids": [message["id"]]})


def nack_by_http(http: Caller, engine: Holdfast, message: Any) -> None:
    body = {"token": message["token"], "ids": [message["id"]], "delay": "1 h"}
    http.ok("POST", f"{ORDERS}/nack", body)


def ack_by_sql(http: Caller, engine: Holdfast, message: Any) -> None:
    engine.ack("orders", int(message["token"]), [int(message["id"])])


def discard_by_sql(http: Caller, engine: Holdfast, message: Any) -> None:
    engine.discard("orders", [int(message["id"])])


@pytest.mark.parametrize("settle", [ack_by_http, nack_by_http, ack_by_sql, discard_by_sql])
def test_what_is_settled_through_any_door_makes_room(
    orders: Caller, engine: Holdfast, settle: Callable[[Caller, Holdfast, Any], None]
) -> None:
    with Stream(orders, "orders", "max=2") as stream:
        held = [stream.message(), stream.message()]
        for expected in range(2, 5):
            settle(orders, engine, held.pop(0))
            held.append(stream.message())
            assert held[-1]["payload"] == expected
        assert engine.queue_stats("orders").in_flight == 2


def test_a_lease_that_runs_out_makes_room(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    with Stream(http, "orders", "max=1&lease=300+ms") as stream:
        first, again = stream.message(), stream.message()

    assert (again["id"], again["deliveries"]) == (first["id"], 2)


async def test_no_token_is_remembered_for_longer_than_its_stream(database_url: str, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    async with Service(Settings(database_url=database_url)).running() as service:
        wanted = Wanted(queue="orders", max=2, lease=timedelta(milliseconds=200), consumer=None)
        stream = WorkStream(service, wanted, nobody_minds)
        await stream.begin()
        events = stream.events()
        said = [event async for event in until_twice(events)]
        await events.aclose()  # type: ignore[attr-defined]  # it is a generator
        stream.close()

        assert said[0][:12] == b"retry: 1000\n"
        assert len(service.streams) == 0


async def until_twice(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Events of a stream, until there were two with a message."""
    pushed = 0
    while pushed < 2:
        yield (event := await anext(events))
        pushed += event.startswith(b"event: message")


async def nobody_minds() -> None:
    """Whoever has the stream may go on."""


def test_an_extended_lease_holds_on(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    with Stream(http, "orders", "max=1&lease=500+ms") as stream:
        token = stream.message()["token"]
        http.ok("POST", f"{ORDERS}/extend", {"token": token, "lease": "1 h"})
        assert stream.is_quiet(2)


def test_a_stream_takes_what_is_sent_later(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    with Stream(http, "orders", "max=5") as stream:
        assert stream.event() == ("retry", "1000")
        engine.send("orders", "by SQL")
        http.send("orders", "by HTTP")

        assert {stream.message()["payload"] for _ in range(2)} == {"by SQL", "by HTTP"}


def test_heartbeats_show_that_a_stream_is_alive(serve: Serve, engine: Holdfast) -> None:
    engine.create_queue("orders")
    http = serve(heartbeat=0.2)
    with Stream(http, "orders") as stream:
        assert [stream.event() for _ in range(3)] == [("retry", "1000"), ("comment", "hb"), ("comment", "hb")]
        engine.send("orders", 1)
        stream.message()
        assert [stream.event() for _ in range(2)] == [("comment", "hb"), ("comment", "hb")]  # it is full


def test_a_last_event_id_is_tolerated(orders: Caller) -> None:
    for id in ("1099511627777", "x", ""):
        with Stream(orders, "orders", "max=1", f"Last-Event-ID: {id}", "Accept: text/event-stream") as stream:
            assert stream.message()["queue"] == "orders"


def test_who_hangs_up_gives_everything_back_at_once(orders: Caller, engine: Holdfast) -> None:
    with Stream(orders, "orders", "max=7&lease=1+h") as stream:
        for _ in range(4):
            stream.message()
        eventually(lambda: free(engine) == 3, what="seven are in flight")

    eventually(lambda: free(engine) == 10, what="all are free", timeout=5)
    assert {claimed.deliveries for claimed in engine.claim("orders", 10, consumer="other")} == {1}


def test_who_hangs_up_while_it_waits_takes_nothing(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    with Stream(http, "orders", "max=7&lease=1+h") as stream:
        assert stream.event() == ("retry", "1000")

    engine.send("orders", 1)

    eventually(lambda: len(engine.claim("orders", consumer="other")) == 1, what="another one gets it")


def test_streams_share_the_work(orders: Caller, engine: Holdfast) -> None:
    with Stream(orders, "orders", "max=5") as first, Stream(orders, "orders", "max=5") as second:
        got = [stream.message()["payload"] for stream in (first, second) for _ in range(5)]

        assert sorted(got) == list(range(10))
        first.close()
        eventually(lambda: free(engine) == 5, what="what the first held is free")


@pytest.mark.parametrize("query", ["max=0", "max=-1"])
def test_what_is_wrong_from_the_start_is_an_ordinary_error(refusing: Caller, query: str) -> None:
    refusing.refused("GET", f"{ORDERS}/work?{query}", status=422, code="QH301")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("lease=1+ms", "QH302"),
        ("lease=never", "QH911"),
        ("consumer=" + "x" * 201, "QH207"),
        ("wait=1", "QH911"),
    ],
)
def test_a_bad_stream_is_refused(refusing: Caller, query: str, code: str) -> None:
    refusing.refused("GET", f"{ORDERS}/work?{query}", status=422, code=code)


@pytest.mark.parametrize("accept", ["application/json", "text/html, image/*", "text/event-streams"])
def test_a_client_that_takes_no_events_is_told_so(refusing: Caller, accept: str) -> None:
    refusing.refused("GET", f"{ORDERS}/work", status=406, code="QH916", headers={"Accept": accept})


@pytest.mark.parametrize(
    "accept", ["text/event-stream", "text/*", "*/*", "TEXT/Event-Stream;q=0.5, text/html"]
)
def test_a_client_that_takes_events_is_served(orders: Caller, accept: str) -> None:
    with Stream(orders, "orders", "", f"Accept: {accept}") as stream:
        assert stream.status == 200


def test_an_error_that_ends_a_stream_is_its_last_event(orders: Caller, engine: Holdfast) -> None:
    with Stream(orders, "orders", "max=20") as stream:
        for _ in range(10):
            stream.message()
        engine.drop_queue("orders")

        last = stream.event()
        assert last is not None
        assert (last[0], last[1]["error"]["code"]) == ("error", "QH101")
        assert stream.event() is None


def test_what_a_killed_server_held_is_free_when_the_leases_run_out(
    serve_process: ServeProcess, engine: Holdfast
) -> None:
    engine.create_queue("orders")
    engine.send_batch("orders", list(range(3)))
    server = serve_process()
    with server.caller() as http, Stream(http, "orders", "max=3&lease=2+s") as stream:
        for _ in range(3):
            stream.message()

        server.kill()

    assert engine.claim("orders", 3) == []
    again = [eventually(lambda: engine.claim("orders"), what="another one gets it")[0] for _ in range(3)]
    assert sorted(claimed.payload for claimed in again) == [0, 1, 2]
