"""Inbound hooks: what others post becomes messages.

1. A body is kept byte for byte, with its type and its headers, but for those that let the caller in or belong
   to the connection; the answer has the id and the number of a message that is stored.
2. The slug is all that lets a caller in; nobody learns from an answer which slugs there are.
3. What is too large, of another type, too much, or for a paused hook is refused, and nothing is stored.
4. With a secret, calls are verified as Standard Webhooks has it; one that comes again is taken once.
5. Numbers are in the order of commit, whoever takes the calls; limits count for all servers together.
6. Whatever was answered with 2xx is there after the server was killed.
7. Each call is told to who looks, and what became of it.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from standardwebhooks.webhooks import Webhook

from holdfast import Holdfast, open_sealed
from tests.fix_http import Caller, Serve, ServeProcess
from tests.seals.plainly import pair
from tests.waiting import eventually

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
EVERY_BYTE = bytes(range(256))
NO_SLUG = "wh_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

Headers = Callable[[], Mapping[str, str]]


class Sender:
    """Whoever posts: it knows the path of a hook, and has no key."""

    def __init__(self, caller: Caller, path: str) -> None:
        self.caller, self.path = caller, path

    def post(self, body: bytes = b"{}", headers: Any = None, *, status: int = 202) -> Mapping[str, Any]:
        """The answer, which must have this status."""
        given = {"content-type": "application/json"} if headers is None else headers
        response = self.caller.call("POST", self.path, content=body, headers=given)
        assert response.status_code == status, response.text
        found: Mapping[str, Any] = response.json()
        return found

    def refused(
        self, body: bytes = b"{}", headers: Any = None, *, status: int, code: str
    ) -> Mapping[str, Any]:
        """The error, which must have this status and code."""
        error: Mapping[str, Any] = self.post(body, headers, status=status)["error"]
        assert error["code"] == code, error
        return error


@pytest.fixture
def receiver(serve: Serve, tmp_path: Path) -> Caller:
    """A server that has a key for secrets."""
    return serve(key_folder=tmp_path)


def hook(server: Caller, name: str = "shop", slug: str | None = None, **config: Any) -> Sender:
    """A new hook."""
    asked = {"hook": name, "config": config} | ({} if slug is None else {"slug": slug})
    return Sender(server, server.ok("POST", "/v1/hooks", asked, status=201)["path"])


def bodies(url: str, queue: str = "shop") -> list[bytes | None]:
    """What is in the queue of a hook, in its order."""
    with Holdfast(url) as engine:
        return [entry.body for entry in engine.browse(queue)]


def signed(body: bytes, id: str = "msg_1", *, secret: str = SECRET, ago: float = 0) -> dict[str, str]:
    """Headers as a sender of Standard Webhooks makes them."""
    at = datetime.now(UTC) - timedelta(seconds=ago)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(id, at, body.decode()),
    }


@pytest.mark.parametrize(
    "body", [EVERY_BYTE, b"", b"\x00", b'{"a": 1}\n', "žluť 🐎".encode(), b"x" * 1_048_576], ids=len
)
def test_a_body_is_kept_byte_for_byte(receiver: Caller, database_url: str, body: bytes) -> None:
    sender = hook(receiver)

    answer = sender.post(body, {"content-type": "application/x-thing; v=1"})

    with Holdfast(database_url) as engine:
        (found,) = engine.claim("shop")
    assert (answer["id"], answer["sequence"], answer["duplicate"]) == (str(found.id), 1, False)
    assert (found.body, found.content_type, found.payload) == (body, "application/x-thing; v=1", None)


def test_a_body_without_a_length_or_a_type_is_taken(receiver: Caller, database_url: str) -> None:
    sender = hook(receiver)

    response = receiver.client.post(sender.path, content=iter([EVERY_BYTE, b"", EVERY_BYTE]))

    with Holdfast(database_url) as engine:
        (found,) = engine.claim("shop")
    assert response.status_code == 202
    assert (found.body, found.content_type) == (EVERY_BYTE * 2, None)


def test_what_is_packed_stays_packed(receiver: Caller, database_url: str) -> None:
    packed = gzip.compress(b"{}")
    sender = hook(receiver)

    sender.post(packed, {"content-type": "application/json", "content-encoding": "gzip"})

    with Holdfast(database_url) as engine:
        (found,) = engine.claim("shop")
    assert found.body == packed
    assert found.headers is not None
    assert found.headers["http"]["content-encoding"] == "gzip"


def test_headers_are_kept_but_for_those_that_let_in_or_are_of_the_connection(
    receiver: Caller, database_url: str
) -> None:
    sender = hook(receiver, drop_headers=["X-Token"])
    place = receiver.place
    lines = [
        f"POST {sender.path} HTTP/1.1".encode(),
        b"Host: example.com",
        b"Content-Length: 2",
        b"Connection: close, X-Hop",
        b"Authorization: Bearer secret",
        b"Proxy-Authorization: Basic secret",
        b"Cookie: a=secret",
        b"X-API-Key: secret",
        b"X-Token: secret",
        b"X-Hop: secret",
        b"TE: trailers",
        b"X-Name: " + "Žofie 🐎".encode(),
        b"X-Latin: \xe9",
        b"X-Many: 1",
        b"x-many: 2",
        b"X-Empty:",
    ]
    with socket.create_connection(place, timeout=30) as connection:
        connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n{}")
        while connection.recv(65_536):
            pass

    with Holdfast(database_url) as engine:
        (found,) = engine.claim("shop")
    assert found.headers == {
        "hook": "shop",
        "http": {
            "host": "example.com",
            "x-name": "Žofie 🐎",
            "x-latin": "é",
            "x-many": ["1", "2"],
            "x-empty": "",
        },
    }


def test_headers_that_are_too_large_are_refused(receiver: Caller, database_url: str) -> None:
    sender = hook(receiver)

    error = sender.refused(headers={"x-large": "x" * 17_000}, status=413, code="QH202")

    assert "16384" in error["hint"]
    assert bodies(database_url) == []


def test_a_body_beyond_the_limit_is_refused(receiver: Caller, database_url: str) -> None:
    sender = hook(receiver, max_body=3)

    sender.post(b"123")
    sender.refused(b"1234", status=413, code="QH912")
    chunked = receiver.client.post(sender.path, content=iter([b"12", b"34"]))

    assert chunked.status_code == 413
    assert bodies(database_url) == [b"123"]


@pytest.mark.parametrize("given", ["text/html", "application/jsonx", "", "json"])
def test_another_type_of_content_is_refused(receiver: Caller, database_url: str, given: str) -> None:
    sender = hook(receiver, content_types=["application/json", "image/*"])

    sender.refused(headers={"content-type": given} if given else {}, status=415, code="QH913")
    sender.post(headers={"content-type": "Application/JSON; charset=utf-8"})
    sender.post(headers={"content-type": "image/png"})

    assert len(bodies(database_url)) == 2


def test_nobody_learns_which_slugs_there_are(receiver: Caller) -> None:
    sender = hook(receiver)
    slug = sender.path.removeprefix("/wh/")
    guesses = [NO_SLUG, slug[:-1], slug + "a", slug.swapcase(), slug[:8], "x", "a" * 300, "%00" * 16, "é"]

    answers = [receiver.client.post(f"/wh/{guess}", content=b"{}") for guess in guesses]
    error = answers[0].json()["error"]

    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert (error["code"], error["detail"], error["hint"]) == ("QH880", None, None)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_other_methods_tell_nothing_of_slugs(receiver: Caller, method: str) -> None:
    sender = hook(receiver)

    answers = [receiver.client.request(method, path) for path in (sender.path, f"/wh/{NO_SLUG}")]

    assert [(each.status_code, each.headers["allow"]) for each in answers] == [(405, "OPTIONS, POST")] * 2
    assert answers[0].content == answers[1].content


def test_hooks_need_no_key_and_their_making_does(serve: Serve, database_url: str) -> None:
    server = serve()
    sender = hook(server)
    with Holdfast(database_url) as engine:
        engine.create_key("shop", scopes=["send", "consume", "read"], queues=["shop"])

        sender.post(b"x", {})
        server.refused("POST", "/v1/hooks", {"hook": "b"}, status=401, code="QH920")
        assert [entry.body for entry in engine.browse("shop")] == [b"x"]


def test_a_slug_is_stored_nowhere(
    receiver: Caller, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    sender = hook(receiver, slug="a-slug-that-somebody-chose")
    sender.post()

    with psycopg.connect(database_url) as conn:
        tables = conn.execute(
            "select c.oid::regclass::text from pg_class c "
            "where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')"
        ).fetchall()
        for (table,) in tables:
            query = f"select count(*) from {table} t where t::text like '%that-somebody-chose%'"
            assert conn.execute(query.encode()).fetchone() == (0,), table
    assert "somebody" not in caplog.text


def test_a_paused_hook_asks_to_come_again(receiver: Caller, database_url: str) -> None:
    sender = hook(receiver)
    receiver.ok("PATCH", "/v1/hooks/shop", {"enabled": False})

    response = receiver.call("POST", sender.path, content=b"1")
    receiver.ok("PATCH", "/v1/hooks/shop", {"enabled": None})
    sender.post(b"2")

    assert (response.status_code, response.headers["retry-after"]) == (503, "60")
    assert response.json()["error"]["code"] == "QH884"
    assert bodies(database_url) == [b"2"]


def test_a_dropped_hook_is_not_there(receiver: Caller) -> None:
    sender = hook(receiver)
    sender.post()

    receiver.ok("DELETE", "/v1/hooks/shop?with_queue=true")

    sender.refused(status=404, code="QH880")


def test_a_slug_is_replaced_with_an_overlap_or_at_once(receiver: Caller) -> None:
    first = hook(receiver)
    second = Sender(receiver, "/wh/" + receiver.ok("POST", "/v1/hooks/shop/rotate", {"slug": True})["slug"])

    assert [sender.post()["sequence"] for sender in (first, second)] == [1, 2]

    made = receiver.ok("POST", "/v1/hooks/shop/rotate", {"slug": True, "overlap": 0})
    third = Sender(receiver, "/wh/" + made["slug"])

    assert (third.post()["sequence"], made["until"]) == (3, None)
    for sender in (first, second):
        sender.refused(status=404, code="QH880")


def test_a_signed_call_is_taken_once(receiver: Caller, database_url: str) -> None:
    sender = hook(receiver, signing_secret=SECRET)

    first = sender.post(b"1", signed(b"1", ago=20))
    again = sender.post(b"1", signed(b"1"))
    other = sender.post(b"2", signed(b"2", "msg_2"))
    sender.refused(b"3", signed(b"3"), status=409, code="QH222")

    assert again == {**first, "duplicate": True}
    assert (first["duplicate"], other["sequence"]) == (False, 2)
    assert bodies(database_url) == [b"1", b"2"]


def altered(**changed: str | None) -> dict[str, str]:
    """Headers of a call of which these are others, or missing."""
    headers: dict[str, str | None] = {**signed(b"1")}
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: value for name, value in headers.items() if value is not None}


# Signed when it is their turn: a signature does not last.
@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (dict, "webhook-id is missing"),
        (lambda: altered(webhook_id=None), "webhook-id is missing"),
        (lambda: altered(webhook_timestamp=None), "webhook-timestamp is missing"),
        (lambda: altered(webhook_signature=None), "webhook-signature is missing"),
        (lambda: altered(webhook_id="msg_2"), "None of the signatures"),
        (lambda: altered(webhook_signature="v1,AAAA"), "None of the signatures"),
        (lambda: altered(webhook_signature="v1a," + "A" * 60_000), "None of the signatures"),
        (lambda: altered(webhook_signature="é"), "None of the signatures"),
        (lambda: altered(webhook_timestamp="yesterday"), "no number"),
        (lambda: altered(webhook_timestamp="-1"), "no number"),
        (lambda: altered(webhook_timestamp="9" * 400), "no number"),
        (lambda: altered(webhook_timestamp="²"), "no number"),
        (lambda: signed(b"2"), "None of the signatures"),
        (lambda: signed(b"1", secret=OTHER), "None of the signatures"),
        (lambda: signed(b"1", ago=400), "out of time"),
        (lambda: signed(b"1", ago=-400), "out of time"),
    ],
)
def test_a_bad_signature_is_refused(
    receiver: Caller, database_url: str, headers: Headers, told: str
) -> None:
    sender = hook(receiver, signing_secret=SECRET)
    raw = [(name.encode(), value.encode()) for name, value in headers().items()]

    error = sender.refused(b"1", raw, status=403, code="QH883")

    assert told in error["detail"]
    assert bodies(database_url) == []


def test_a_header_that_is_there_twice_is_refused(receiver: Caller) -> None:
    sender = hook(receiver, signing_secret=SECRET)
    twice = [*signed(b"1").items(), ("webhook-id", "msg_1")]

    assert "several times" in sender.refused(b"1", twice, status=403, code="QH883")["detail"]


def test_secrets_are_replaced_with_an_overlap(receiver: Caller, database_url: str) -> None:
    sender = hook(receiver, signing_secret=SECRET, tolerance=3600)
    made = receiver.ok("POST", "/v1/hooks/shop/rotate", {"secret": True})["secret"]

    sender.post(b"1", signed(b"1", "a", ago=3000))
    sender.post(b"2", signed(b"2", "b", secret=made))
    receiver.ok("POST", "/v1/hooks/shop/rotate", {"secret": OTHER, "overlap": 0})
    sender.refused(b"3", signed(b"3", "c", secret=made), status=403, code="QH883")
    sender.post(b"4", signed(b"4", "d", secret=OTHER))
    receiver.ok("PATCH", "/v1/hooks/shop", {"signing_secret": None})
    sender.post(b"5")

    assert bodies(database_url) == [b"1", b"2", b"4", b"5"]
    with psycopg.connect(database_url) as conn:
        stored = conn.execute("select string_agg(s::text, '') from holdfast.hook_secret s").fetchone()
    assert stored == (None,)


def test_a_header_of_choice_tells_what_comes_again(receiver: Caller, database_url: str) -> None:
    sender = hook(receiver, idempotency_header="X-Delivery")

    answers = [
        sender.post(b"1", {"x-delivery": "a", "x-try": "1"}),
        sender.post(b"1", {"x-delivery": "a", "x-try": "2"}),
        sender.post(b"1", {"x-delivery": "b" * 5_000}),
        sender.post(b"1", {}),
        sender.post(b"1", {}),
    ]

    assert [answer["duplicate"] for answer in answers] == [False, True, False, False, False]
    assert len(bodies(database_url)) == 4


def test_what_comes_again_at_once_is_taken_once(serve: Serve, database_url: str) -> None:
    one, other = serve(), serve()
    sender = hook(one, idempotency_header="x-id")
    senders = [sender, Sender(other, sender.path)] * 5

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda sender: sender.post(b"1", {"x-id": "a"}), senders))

    assert len({answer["id"] for answer in answers}) == 1
    assert sorted(answer["duplicate"] for answer in answers) == [False] + [True] * 9
    assert bodies(database_url) == [b"1"]


def test_numbers_are_in_the_order_of_commit(serve: Serve, database_url: str) -> None:
    one, other = serve(), serve()
    sender = hook(one)
    senders = [sender, Sender(other, sender.path)] * 40

    def post(nth: int) -> int:
        answer = senders[nth].post(str(nth).encode())
        return int(answer["sequence"])

    seen: list[int] = []
    with psycopg.connect(database_url, autocommit=True) as conn, ThreadPoolExecutor(8) as pool:
        posting = [pool.submit(post, nth) for nth in range(80)]
        while len(seen) < 80:
            # What is committed is a stretch from the first one on: nothing turns up before what was there.
            found = [row[0] for row in conn.execute("select m.id from holdfast.message m order by m.id")]
            assert found[: len(seen)] == seen
            seen = found
        numbers = [each.result() for each in posting]

    base = seen[0] - 1
    assert sorted(numbers) == list(range(1, 81))
    assert [id - base for id in seen] == list(range(1, 81))
    with Holdfast(database_url) as engine:
        told = {entry.id - base: int(entry.body or b"") for entry in engine.browse("shop", limit=100)}
    assert told == {number: nth for nth, number in enumerate(numbers)}


def test_the_limit_counts_for_all_servers_together(serve: Serve, database_url: str) -> None:
    one, other = serve(), serve()
    sender = hook(one, rate_limit=0.01, burst=4)
    senders = [sender, Sender(other, sender.path)] * 4

    answers = [each.caller.call("POST", each.path, content=b"1") for each in senders]

    assert [answer.status_code for answer in answers] == [202] * 4 + [429] * 4
    assert all(int(answer.headers["retry-after"]) > 1 for answer in answers[4:])
    assert len(bodies(database_url)) == 4


def test_a_plan_limits_calls(serve: Serve) -> None:
    server = serve()
    sender = hook(server, plan="free", burst=2)

    answers = [server.call("POST", sender.path, content=b"1").status_code for _ in range(2)]
    config = server.ok("GET", "/v1/hooks/shop")["config"]

    assert answers == [202, 202]
    assert (config["rate_limit"], config["ttl"], config["max_deliveries"]) == (10, 604_800, 3)


def test_another_server_hears_of_changes(serve: Serve) -> None:
    one, other = serve(), serve()
    sender = Sender(other, hook(one).path)
    sender.post()

    one.ok("POST", "/v1/hooks/shop/rotate", {"slug": True, "overlap": 0})

    def is_gone() -> bool:
        return other.client.post(sender.path, content=b"{}").status_code == 404

    eventually(is_gone, what="the slug ends there too")


def test_calls_are_told(receiver: Caller) -> None:
    sender = hook(receiver, signing_secret=SECRET, max_body=3)
    id = sender.post(b"1", signed(b"1"))["id"]
    sender.post(b"1", signed(b"1"))
    sender.post(b"12", {}, status=403)
    sender.post(b"1234", {}, status=413)

    def told() -> list[Any]:
        return list(receiver.ok("GET", "/v1/hooks/shop/calls")["calls"])

    eventually(lambda: len(told()) == 4, what="four calls are told")

    keys = ("outcome", "status", "size", "code", "message_id")
    assert [tuple(call[key] for key in keys) for call in told()] == [
        ("refused", 413, None, "QH912", None),
        ("refused", 403, 2, "QH883", None),
        ("duplicate", 202, 1, None, id),
        ("accepted", 202, 1, None, id),
    ]


def test_secrets_take_a_key_to_seal_them(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_SECRET_KEY", raising=False)
    server = serve()

    asked = {"hook": "shop", "config": {"signing_secret": SECRET}}
    error = server.refused("POST", "/v1/hooks", asked, status=503, code="QH840")

    assert SECRET not in str(error)
    assert server.ok("GET", "/v1/hooks")["hooks"] == []


def test_bodies_are_sealed_where_the_queue_has_a_key(receiver: Caller, database_url: str) -> None:
    keys = pair()
    sender = hook(receiver, idempotency_header="x-id")
    with Holdfast(database_url) as engine:
        engine.set_seal_key("shop", keys.public)

        first = sender.post(EVERY_BYTE, {"x-id": "a", "x-try": "1"})
        again = sender.post(EVERY_BYTE, {"x-id": "a", "x-try": "2"})
        sender.refused(b"other", {"x-id": "a"}, status=409, code="QH222")
        sender.post(b"x" * 1_048_576, {})

        small, large = engine.browse("shop")
    assert again == {**first, "duplicate": True}
    assert EVERY_BYTE not in (small.body or b"")
    assert open_sealed(small, keys.private).body == EVERY_BYTE
    assert open_sealed(large, keys.private).body == b"x" * 1_048_576


@pytest.fixture
def posting() -> Iterator[threading.Event]:
    """Ends those who post."""
    end = threading.Event()
    yield end
    end.set()


def test_what_was_answered_outlives_the_server(
    serve: Serve, serve_process: ServeProcess, database_url: str, posting: threading.Event
) -> None:
    path = hook(serve()).path
    victim = serve_process()
    accepted: dict[bytes, int] = {}

    def post(who: int) -> None:
        with httpx.Client(base_url=victim.address, trust_env=False, timeout=30) as client:
            for nth in range(100_000):
                body = f"{who}/{nth}".encode()
                try:
                    answer = client.post(path, content=body)
                except httpx.HTTPError:
                    return
                assert answer.status_code == 202, answer.text
                accepted[body] = answer.json()["sequence"]
                if posting.is_set():
                    return

    threads = [threading.Thread(target=post, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(accepted) >= 40, what="forty are accepted", timeout=60)
    victim.kill()
    for thread in threads:
        thread.join()

    with Holdfast(database_url) as engine:
        entries = engine.browse("shop", limit=10_000)
    numbers = {entry.body: entry.id - entries[0].id + 1 for entry in entries}
    assert accepted.items() <= numbers.items()
