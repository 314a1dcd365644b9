"""One attempt, to receivers of all kinds: it ends in bounded time, reads little, and goes nowhere else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from holdfast.webhook.connect import Connecting, GuardedBackend
from holdfast.webhook.deliver import READ_LIMIT, Answer, Line
from holdfast.webhook.guard import Address, Guard
from holdfast.webhook.policy import Outcome, outcome_of
from holdfast.webhook.request import request_for
from tests.waiting import comes
from tests.webhook.http2 import http2_receiver
from tests.webhook.receiver import Answering, Receiver, Reply, receiving
from tests.webhook.sample import SECRET, delivery, target

SIGNED_FOR = "https://" + "hooks.example.com"  # a signature does not say for whom
METADATA = "169.254.169.254"
NO_HTTP = [
    b"",
    b"rubbish\r\n\r\n",
    b"HTTP/1.1 200",
    b"SSH-2.0-x\r\n",
    b"HTTP/1.1 200 x\r\nA: " + b"b" * 200_000,
]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """One that says 204, until it is told otherwise."""
    with receiving() as receiver:
        yield receiver


class Contacts:
    """Every address that was about to be connected to."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Address, int]] = []

    def note(self, host: str, address: Address, port: int) -> None:
        self.all.append((host, address, port))


@asynccontextmanager
async def line_to(
    url: str,
    *allow: str,
    connecting: Connecting | None = None,
    tls: ssl.SSLContext | None = None,
    **config: Any,
) -> AsyncIterator[Line]:
    backend = GuardedBackend(Guard(allow or ["127.0.0.1"]), connecting=connecting)
    line = Line(target(url, SECRET, **config), backend, tls)
    try:
        yield line
    finally:
        await line.close()


async def sent(line: Line, payload: str = '{"n": 1}') -> Answer:
    return await line.send(request_for(target(SIGNED_FOR, SECRET), delivery(payload), 1.0))


async def answered(receiver: Receiver, answering: Answering, **config: Any) -> Answer:
    receiver.answering = answering
    async with line_to(receiver.url, **config) as line:
        return await sent(line)


async def test_a_message_arrives_with_host_length_and_body(receiver: Receiver) -> None:
    async with line_to(f"{receiver.url}/in?a=b") as line:
        answer = await sent(line)

    (got,) = receiver.received
    assert (answer.status, answer.error, answer.excerpt) == (204, None, b"")
    assert (got.method, got.target, got.body) == ("POST", "/in?a=b", b'{"n": 1}')
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["accept-encoding"] == "identity"
    assert "cookie" not in got.headers


async def test_a_connection_is_kept_for_the_next_message(receiver: Receiver) -> None:
    async with line_to(receiver.url) as line:
        for _ in range(5):
            await sent(line)

    assert (len(receiver.received), receiver.connections) == (5, 1)


async def test_a_proxy_of_the_environment_is_not_asked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert (await answered(receiver, lambda _: Reply())).status == 204


async def test_a_cookie_is_not_sent_back(receiver: Receiver) -> None:
    receiver.answering = lambda _: Reply(headers={"set-cookie": "a=b"})
    async with line_to(receiver.url) as line:
        await sent(line)
        await sent(line)

    assert not any("cookie" in got.headers for got in receiver.received)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_metadata_address_is_not_followed(receiver: Receiver, status: int) -> None:
    contacts = Contacts()
    receiver.answering = lambda _: Reply(status, {"location": f"http://{METADATA}/latest"})

    async with line_to(receiver.url, connecting=contacts.note) as line:
        answer = await sent(line)

    assert (answer.status, outcome_of(answer.status)) == (status, Outcome.DEAD)
    assert contacts.all == [("127.0.0.1", ip_address("127.0.0.1"), receiver.port)]


async def test_an_address_that_is_not_allowed_is_not_connected_to(receiver: Receiver) -> None:
    contacts = Contacts()

    async with line_to(receiver.url, "10.0.0.0/8", connecting=contacts.note) as line:
        answer = await sent(line)

    assert answer.status is None
    assert answer.error == "refused: 127.0.0.1 is no address of the public internet, and not allowed"
    assert (contacts.all, receiver.connections) == ([], 0)


async def test_nobody_at_the_port_is_a_failure_of_the_connection(receiver: Receiver) -> None:
    receiver.pause()
    async with line_to(receiver.url) as line:
        answer = await sent(line)
    receiver.restart()

    assert answer.status is None
    assert (answer.error or "").startswith("connect: ")


async def test_a_reset_is_a_failure_that_is_tried_again(receiver: Receiver) -> None:
    answer = await answered(receiver, lambda _: Reply(reset=True))

    assert (answer.status, outcome_of(answer.status)) == (None, Outcome.RETRY)
    assert answer.error == "network: the connection was lost"


@pytest.mark.parametrize("raw", NO_HTTP)
async def test_what_is_no_http_is_a_failure(receiver: Receiver, raw: bytes) -> None:
    answer = await answered(receiver, lambda _: Reply(raw=raw))

    assert answer.status is None
    assert answer.error is not None
    assert answer.error.startswith(("protocol: ", "network: "))


async def test_no_answer_in_time_is_a_failure(receiver: Receiver) -> None:
    answer = await answered(receiver, lambda _: Reply(after=60), timeout=0.2)

    assert (answer.status, answer.error) == (None, "no answer in time")


async def test_an_answer_of_ten_megabytes_is_cut_off(receiver: Receiver) -> None:
    big = b"x" * 10_000_000

    answer = await answered(receiver, lambda _: Reply(500, body=big), capture_response=True)

    assert (answer.status, len(answer.excerpt)) == (500, READ_LIMIT)


async def test_a_body_that_never_ends_holds_nobody(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.webhook.deliver.BODY_SECONDS", 0.2)
    receiver.answering = lambda _: Reply(200, body=b"x" * 1000, drip=0.05)
    began = perf_counter()

    async with line_to(receiver.url) as line:
        answers = await asyncio.gather(*(sent(line) for _ in range(5)))

    assert {(answer.status, answer.error) for answer in answers} == {(200, None)}
    assert perf_counter() - began < 40  # it would take 50 s


@pytest.mark.parametrize(
    ("config", "status", "excerpt"),
    [
        ({}, 200, b""),
        ({}, 400, b"e" * 1024),
        ({"capture_response": True, "capture_limit": 10}, 200, b"e" * 10),
        ({"capture_response": True}, 500, b"e" * 5000),
    ],
)
async def test_of_an_answer_as_much_is_kept_as_was_asked_for(
    receiver: Receiver, config: dict[str, Any], status: int, excerpt: bytes
) -> None:
    answer = await answered(receiver, lambda _: Reply(status, body=b"e" * 5000), **config)

    assert answer.excerpt == excerpt


async def test_retry_after_is_passed_on(receiver: Receiver) -> None:
    answer = await answered(receiver, lambda _: Reply(429, {"Retry-After": "7"}))

    assert (answer.status, answer.retry_after, answer.error) == (429, "7", "429 Too Many Requests")


async def test_a_certificate_that_nobody_trusts_is_refused(certificate: tuple[Path, Path]) -> None:
    with receiving(tls=server_tls(certificate)) as receiver:
        async with line_to(receiver.url) as line:
            answer = await sent(line)
        assert receiver.received == []

    assert answer.status is None
    assert "certificate verify failed" in (answer.error or "")


async def test_a_certificate_of_another_name_is_refused(certificate: tuple[Path, Path]) -> None:
    with receiving(tls=server_tls(certificate)) as receiver:
        url = f"https://localhost:{receiver.port}"
        async with line_to(url, "localhost", tls=trusting_only(certificate)) as line:
            answer = await sent(line)
        assert receiver.received == []

    assert "certificate" in (answer.error or "")


async def test_tls_with_a_certificate_that_fits_delivers(certificate: tuple[Path, Path]) -> None:
    with receiving(tls=server_tls(certificate)) as receiver:
        async with line_to(receiver.url, tls=trusting_only(certificate)) as line:
            answer = await sent(line)

        assert (answer.status, receiver.bodies()) == (204, [b'{"n": 1}'])


async def test_http_2_is_spoken_where_tls_negotiates_it(certificate: tuple[Path, Path]) -> None:
    async with http2_receiver(server_tls(certificate)) as receiver:
        async with line_to(receiver.url, tls=trusting_only(certificate)) as line:
            answers = await asyncio.gather(*(sent(line) for _ in range(10)))

        assert [answer.status for answer in answers] == [200] * 10
        assert (receiver.bodies, receiver.connections) == ([b'{"n": 1}'] * 10, 1)


async def test_an_answer_cut_off_over_http_2_keeps_nobody_waiting(certificate: tuple[Path, Path]) -> None:
    async with http2_receiver(server_tls(certificate), answer=b"x" * 10_000_000) as receiver:
        async with line_to(receiver.url, tls=trusting_only(certificate)) as line:
            answers = [await sent(line) for _ in range(5)]

        assert [answer.status for answer in answers] == [200] * 5
        assert receiver.connections == 5


async def test_a_delivery_that_is_cancelled_leaves_the_line_usable(receiver: Receiver) -> None:
    receiver.answering = lambda got: Reply(after=60 if b"slow" in got.body else 0)
    async with line_to(receiver.url, concurrency=1) as line:
        slow = asyncio.create_task(sent(line, '"slow"'))
        await comes(lambda: arrived(receiver), what="the request arrives")
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow

        assert (await sent(line)).status == 204


async def arrived(receiver: Receiver) -> bool:
    """Whether there was a request."""
    return bool(receiver.received)


def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def trusting_only(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A client that trusts this certificate."""
    return ssl.create_default_context(cafile=str(certificate[0]))
