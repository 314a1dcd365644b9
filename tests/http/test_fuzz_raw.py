"""Bytes, headers, JSON and text that nobody would send: the server answers in its one shape, and goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import ERRORS, Holdfast
from holdfast.server.settings import Patience, Settings
from tests.contract import check_answer
from tests.fix_database import fresh_database
from tests.fix_http import Caller, check_error, served

FEW, MANY = 100, 3_000
SILENCE = 0.3  # seconds after which nothing more is to come
HASTE = Patience(head=0.1, body=0.1)
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
ORDERS = "/v1/queues/orders"

# What PostgreSQL stores: all of Unicode but NUL and halves of surrogate pairs.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e15, 1e15) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
KNOWN_HEADERS = (
    *("accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-type"),
    *("cookie", "expect", "host", "idempotency-key", "if-match", "last-event-id", "origin", "range"),
    *("te", "trailer", "transfer-encoding", "upgrade", "x-api-key", "x-forwarded-for", "x-request-id"),
)
PIECES = (
    *(b"GET ", b"POST ", b"/", b"/healthz", ORDERS.encode(), b"/claim", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"),
    *(
        b"Host: 127.0.0.1\r\n",
        b"Content-Length: ",
        b"5",
        b"-1",
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b":",
        b" ",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"ffffffff\r\n", b"Expect: 100-continue\r\n", b"{}"),
    *(
        b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\n",
        b"\0",
        b"\xff",
        b"%00",
        b"%",
        b"?",
    ),
)
REQUESTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=5), max_size=25).map(b"".join)


@pytest.fixture(scope="module")
def hasty(server_url: str, template_database: str) -> Iterator[Caller]:
    """One server for the whole module, which does not wait long, with a queue."""
    with fresh_database(server_url, template_database) as url, serving(url, patience=HASTE) as caller:
        yield caller


@pytest.fixture(scope="module")
def patient(server_url: str, template_database: str) -> Iterator[Caller]:
    """The same for requests that are whole: it waits for them as servers do."""
    with fresh_database(server_url, template_database) as url, serving(url) as caller:
        yield caller


@contextmanager
def serving(url: str, **settings: Any) -> Iterator[Caller]:
    """A server, with a queue."""
    with Holdfast(url) as engine, served(Settings(database_url=url, port=0, **settings)) as caller:
        engine.create_queue("orders")
        yield caller


def said(http: Caller, request: bytes) -> bytes:
    """What the server says to some bytes, until it hangs up or falls silent."""
    answer = b""
    with (
        socket.create_connection(http.place, timeout=SILENCE) as connection,
        suppress(BrokenPipeError, ConnectionResetError, TimeoutError),
    ):
        connection.sendall(request)
        while chunk := connection.recv(65_536):
            answer += chunk
    return answer


def check_raw(http: Caller, request: bytes) -> None:
    """Whatever was sent: what comes back is HTTP, an error is one of ours, and the server goes on."""
    answer = said(http, request)
    if answer:
        assert answer.startswith(b"HTTP/1.1 "), answer
        status = int(answer[9:12])
        assert status < 500, answer
        if status >= 400:
            body = answer.partition(b"\r\n\r\n")[2].partition(b"HTTP/1.1 ")[0]
            assert ERRORS[json.loads(body)["error"]["code"]].http_status == status
    http.ok("GET", "/healthz")


@given(REQUESTS)
@settings(max_examples=FEW // 2, suppress_health_check=SLOW, derandomize=True)
def test_bytes_that_are_nearly_http(hasty: Caller, request: bytes) -> None:
    check_raw(hasty, request)


@pytest.mark.verify
@given(REQUESTS)
@settings(max_examples=MANY, suppress_health_check=SLOW)
def test_many_bytes_that_are_nearly_http(hasty: Caller, request: bytes) -> None:
    check_raw(hasty, request)


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(KNOWN_HEADERS) | NAMES,
        st.text(st.characters(max_codepoint=255, exclude_characters="\0\r\n"), max_size=40),
    ),
    max_size=6,
)


def check_headers(http: Caller, headers: list[tuple[str, str]]) -> None:
    """No header, or several, lead to anything but an answer of ours."""
    lines = [f"{name}: {value}".encode("latin-1") for name, value in headers]
    body = b'{"max": 1}'
    head = [f"POST {ORDERS}/claim HTTP/1.1".encode(), b"Host: 127.0.0.1", *lines]
    head += [b"Content-Length: %d" % len(body), b"Connection: close"]
    check_raw(http, b"\r\n".join([*head, b"", body]))


@given(HEADERS)
@settings(max_examples=FEW, suppress_health_check=SLOW, derandomize=True)
def test_headers_of_all_kinds(hasty: Caller, headers: list[tuple[str, str]]) -> None:
    check_headers(hasty, headers)


@pytest.mark.verify
@given(HEADERS)
@settings(max_examples=MANY, suppress_health_check=SLOW)
def test_many_headers_of_all_kinds(hasty: Caller, headers: list[tuple[str, str]]) -> None:
    check_headers(hasty, headers)


def check_body(http: Caller, path: str, body: bytes) -> None:
    """A body that is no request is refused, in JSON's words or in the route's."""
    response = http.client.post(
        f"{ORDERS}/{path}", content=body, headers={"Content-Type": "application/json"}
    )
    if not response.is_success:
        check_error(response)
    check_answer(response)
    assert response.status_code < 500


ROUTES = st.sampled_from(["messages", "claim", "ack", "nack", "redrive", "purge", "holders"])
FIELDS = st.sampled_from(["messages", "payload", "max", "lease", "token", "ids", "states", "filter", "error"])
BODIES = st.dictionaries(FIELDS | TEXT, JSON, max_size=4).map(lambda value: json.dumps(value).encode())


@given(ROUTES, BODIES | st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=FEW, suppress_health_check=SLOW, derandomize=True)
def test_bodies_of_all_kinds(hasty: Caller, path: str, body: bytes) -> None:
    check_body(hasty, path, body)


@pytest.mark.verify
@given(ROUTES, BODIES | st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=MANY, suppress_health_check=SLOW)
def test_many_bodies_of_all_kinds(hasty: Caller, path: str, body: bytes) -> None:
    check_body(hasty, path, body)


def check_message(http: Caller, payload: Any, headers: dict[str, Any], tag: str, consumer: str) -> None:
    """What a message is sent with is what it is delivered with."""
    body = {"messages": [{"payload": payload, "headers": headers, "tag": tag}]}
    sent = http.ok("POST", f"{ORDERS}/messages", body, status=201)["ids"]
    (found,) = http.claim("orders", consumer=consumer)
    done = http.ok("POST", f"{ORDERS}/ack", {"token": found["token"]})
    assert [found["id"]] == sent == done["settled"]
    assert (found["payload"], found["headers"], found["tag"]) == (payload, headers, tag)


@given(JSON, st.dictionaries(TEXT, JSON, max_size=3), TEXT, TEXT)
@settings(max_examples=FEW, suppress_health_check=SLOW, derandomize=True)
def test_text_and_numbers_of_all_kinds_come_out_as_they_went_in(
    patient: Caller, payload: Any, headers: dict[str, Any], tag: str, consumer: str
) -> None:
    check_message(patient, payload, headers, tag, consumer)


@pytest.mark.verify
@given(JSON, st.dictionaries(TEXT, JSON, max_size=3), TEXT, TEXT)
@settings(max_examples=MANY, suppress_health_check=SLOW)
def test_much_text_and_many_numbers_come_out_as_they_went_in(
    patient: Caller, payload: Any, headers: dict[str, Any], tag: str, consumer: str
) -> None:
    check_message(patient, payload, headers, tag, consumer)


@given(st.text(st.characters(), max_size=30))
@settings(max_examples=FEW, suppress_health_check=SLOW, derandomize=True)
def test_names_of_all_kinds_in_the_path(patient: Caller, name: str) -> None:
    with suppress(httpx.InvalidURL, UnicodeEncodeError):
        path = httpx.URL(f"{patient.address}/v1/queues/").copy_with(path=f"/v1/queues/{name}/stats")
        response = patient.client.get(path)
        assert response.status_code in (200, 404, 405, 422), response.text
