"""Connections as sockets see them: slow, endless, malformed or pipelined requests."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from holdfast import ERRORS, Holdfast
from holdfast.server.settings import Patience
from tests.fix_http import Caller, Serve
from tests.waiting import eventually

TIMEOUT = 20.0  # seconds for the server to answer or hang up
HASTE = Patience(head=0.5, body=0.5, stall=0.5)
HEAD = b"POST /v1/queues/orders/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
ONE = b'{"messages": [{"payload": 1}]}'


@contextmanager
def connected(http: Caller) -> Iterator[socket.socket]:
    """A connection to the server."""
    with socket.create_connection(http.place, timeout=TIMEOUT) as connection:
        yield connection


def all_of(connection: socket.socket) -> bytes:
    """What the server says until it hangs up."""
    said = b""
    with suppress(ConnectionResetError):
        while chunk := connection.recv(65_536):
            said += chunk
    return said


def parted(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split(" ")[1]), headers, body


def refused(answer: bytes) -> tuple[int, str]:
    """Status and code of a refusal, which has the one shape and ends the connection."""
    status, headers, body = parted(answer)
    error: dict[str, Any] = json.loads(body)["error"]
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert set(error) == {"code", "name", "message", "detail", "hint"}
    assert ERRORS[error["code"]].http_status == status
    return status, error["code"]


def said_to(http: Caller, request: bytes) -> bytes:
    """What the server answers to some bytes, until it hangs up."""
    with connected(http) as connection:
        connection.sendall(request)
        return all_of(connection)


def trickle(connection: socket.socket, data: bytes) -> None:
    """Send bytes one by one, until the server has had enough."""
    with suppress(BrokenPipeError, ConnectionResetError):
        for byte in data:
            connection.send(bytes([byte]))
            time.sleep(0.01)


@pytest.fixture
def hasty(serve: Serve, engine: Holdfast) -> Caller:
    """A server that does not wait long."""
    engine.create_queue("orders")
    return serve(patience=HASTE)


def test_who_connects_and_says_nothing_is_hung_up_on(hasty: Caller) -> None:
    with connected(hasty) as connection:
        assert all_of(connection) == b""


@pytest.mark.parametrize("beginning", [b"GET /healthz HTT", b"\r\n\r\n", b"G"])
def test_a_head_that_does_not_go_on_is_refused(hasty: Caller, beginning: bytes) -> None:
    assert refused(said_to(hasty, beginning)) == (408, "QH918")


def test_a_head_that_trickles_is_refused_and_others_are_served_meanwhile(hasty: Caller) -> None:
    with connected(hasty) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        hasty.ok("GET", "/readyz")
        trickle(connection, b"x" * 1000)
        answer = all_of(connection)

    assert answer == b"" or refused(answer) == (408, "QH918")


def test_a_hundred_slow_connections_keep_nobody_from_being_served(hasty: Caller) -> None:
    slow = [socket.create_connection(hasty.place, timeout=TIMEOUT) for _ in range(100)]
    try:
        for connection in slow:
            connection.sendall(HEAD)

        hasty.send("orders", 1)

        assert {refused(all_of(connection)) for connection in slow} == {(408, "QH918")}
    finally:
        for connection in slow:
            connection.close()


def test_a_body_that_does_not_come_is_refused_and_sends_nothing(hasty: Caller, engine: Holdfast) -> None:
    answer = said_to(hasty, HEAD + b"Content-Length: 100\r\n\r\n" + ONE)

    assert refused(answer) == (408, "QH918")
    assert engine.queue_stats("orders").ready == 0


def test_a_client_that_goes_in_the_middle_of_its_body_has_sent_nothing(
    http: Caller, engine: Holdfast
) -> None:
    engine.create_queue("orders")
    with connected(http) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + ONE)

    http.ok("GET", "/readyz")
    assert engine.queue_stats("orders").ready == 0


def test_a_second_request_has_its_time_too(hasty: Caller) -> None:
    with connected(hasty) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in connection.recv(65_536)
        connection.sendall(b"GET /heal")
        answer = all_of(connection)

    assert refused(answer) == (408, "QH918")


def test_a_long_poll_outlasts_the_time_of_a_request(hasty: Caller) -> None:
    assert hasty.claim("orders", wait=1.5) == []


def test_who_does_not_read_is_hung_up_on_and_keeps_nothing(hasty: Caller, engine: Holdfast) -> None:
    engine.send_batch("orders", ["x" * 100_000] * 100)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(hasty.place)
        connection.sendall(b"GET /v1/queues/orders/work?max=100 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        eventually(lambda: engine.queue_stats("orders").in_flight > 0, what="messages are pushed")

        eventually(lambda: engine.queue_stats("orders").ready == 100, what="they are given back")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 70_000, id="a long header"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n" + b"X: x\r\n" * 40_000, id="many headers"),
        pytest.param(b"GET /" + b"x" * 70_000, id="a long path"),
        pytest.param(b"GET /healthz?" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", id="a long query"),
        pytest.param(b"X" * 70_000, id="a long method"),
    ],
)
def test_a_head_that_is_too_large_is_refused(refusing: Caller, head: bytes) -> None:
    answer = said_to(refusing, head + b"\r\n\r\n")

    assert refused(answer) in [(431, "QH917"), (400, "QH910")]


def test_a_head_of_sixty_thousand_bytes_is_taken(refusing: Caller) -> None:
    assert refusing.call("GET", "/healthz", headers={"X": "x" * 60_000}).status_code == 200


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="another version"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", id="TLS"),
        pytest.param(b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id="bytes in the path"),
        pytest.param(b"GET HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id="no path"),
        pytest.param(b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id="CONNECT"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n", id="a space before the colon"),
        pytest.param(b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n", id="NUL in a header"),
        pytest.param(HEAD + b"Content-Length: x\r\n\r\n", id="a length that is no number"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n", id="a length out of range"),
        pytest.param(HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", id="two lengths"),
        pytest.param(
            HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="length and chunks"
        ),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", id="a chunk without size"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n", id="a chunk that is longer"
        ),
        pytest.param(HEAD + b"Transfer-Encoding: gzip, identity\r\n\r\nabc", id="another transfer encoding"),
    ],
)
def test_what_is_not_http_is_refused(refusing: Caller, request_: bytes) -> None:
    assert refused(said_to(refusing, request_)) == (400, "QH910")


def test_a_chunked_body_is_taken(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in ONE)

    answer = said_to(
        http, HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks + b"0\r\n\r\n"
    )

    assert parted(answer)[0] == 201
    assert engine.queue_stats("orders").ready == 1


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(CHUNKED + b"0\r\n" + b"X: y\r\n" * 20_000, id="trailers"),
        pytest.param(CHUNKED + b"0\r\nX: " + b"y" * 140_000, id="one trailer"),
        pytest.param(CHUNKED + b"1;" + b"y" * 140_000, id="what a chunk says of itself"),
    ],
)
def test_what_is_beside_a_body_has_the_limit_of_a_head(refusing: Caller, endless: bytes) -> None:
    with connected(refusing) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            for place in range(0, len(endless), 10_000):
                connection.sendall(endless[place : place + 10_000])
        assert refused(all_of(connection)) == (431, "QH917")


def test_a_trailer_is_no_header(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    trailer = b"Idempotency-Key: late\r\nConnection: close\r\n\r\n"
    body = b"%x\r\n%b\r\n0\r\n" % (len(ONE), ONE)
    head = HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"

    answers = [said_to(http, head + body + trailer) for _ in range(2)]

    assert [parted(answer)[0] for answer in answers] == [201, 201]
    assert engine.queue_stats("orders").ready == 2


def test_a_request_to_another_protocol_is_answered_in_http(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"

    answer = said_to(
        http, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + upgrade + b"Connection: close\r\n\r\n"
    )

    assert parted(answer)[0] == 200


def test_a_client_that_expects_it_is_told_to_go_on(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    with connected(http) as connection:
        length = b"Content-Length: %d\r\n" % len(ONE)
        connection.sendall(HEAD + length + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(ONE)
        assert parted(all_of(connection))[0] == 201


def test_requests_that_are_sent_ahead_are_answered_in_their_order(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    send = HEAD + b"Content-Length: %d\r\n\r\n" % len(ONE) + ONE
    claim = b"POST /v1/queues/orders/claim HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"

    answers = said_to(http, send + claim + claim + last)

    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"201", b"200", b"200", b"404"]
    assert answers.count(b'"token"') == 1


def test_who_goes_while_requests_wait_behind_a_stream_keeps_nothing(serve: Serve, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    http = serve(heartbeat=0.2)
    with connected(http) as connection:
        work = b"GET /v1/queues/orders/work HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        connection.sendall(work + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        eventually(lambda: engine.queue_stats("orders").in_flight == 1, what="the message is pushed")

    eventually(lambda: engine.queue_stats("orders").ready == 1, what="it is given back")
