"""Sealed messages over HTTP, and where else they might be in clear.

1. Nothing of what was sent to a sealed queue is in a dump of the database, in its log, in that of the server,
   in spans or in Redis: not of messages that wait, nor of dead letters, the archive, or what was refused.
2. Nor is what plaintexts are hashed with, but in the dump.
3. A key that is set at one server counts at the other, which remembers that there is none.
4. One that is refused fails none of its neighbours; all that meet a new key on their way are sealed.
5. What other APIs send is sealed too.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Holdfast, HoldfastError, NewMessage, is_sealed, open_sealed
from holdfast.embedded import EmbeddedPostgres
from holdfast.server import configs
from tests.fault.dumps import Tools
from tests.fix_http import Caller, Serve
from tests.fix_redis import RedisServer
from tests.seals.plainly import pair
from tests.waiting import eventually

KEYS = pair()
SECRET = "Heiligenstadt"
MESSAGES = "/v1/queues/orders/messages"
LOG_ALL = """
do $$ begin execute format('alter database %I set log_statement = ''all''', current_database()); end $$
"""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What spans there were."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def orders(conn: psycopg.Connection[Any]) -> str:
    """A queue with a key, that keeps what ends."""
    conn.execute("""select holdfast.create_queue('orders', '{"keep": ["done"], "max_deliveries": 1}')""")
    conn.execute("select holdfast.set_seal_key('orders', %s)", [KEYS.public])
    return "orders"


def forms(text: str) -> list[bytes]:
    """A text as it may be written somewhere: as it is, in hex, or in base64 wherever it begins."""
    data = text.encode()
    shifted = (b64encode(b"\0" * shift + data)[4 * bool(shift) :].rstrip(b"=")[:-2] for shift in range(3))
    return [data, data.hex().encode(), *shifted]


def everything(client: Holdfast, caller: Caller) -> None:
    """Send the secret in every way there is; let some of it die, and end."""
    client.send("orders", {SECRET: SECRET}, idempotency_key="a")
    client.send("orders", body=SECRET.encode())
    client.send_batch("orders", [SECRET, [SECRET]])
    client.send_many("orders", [NewMessage(payload=SECRET, key="b"), SECRET])
    client.bulk_send("orders", [SECRET, NewMessage(body=SECRET.encode())])
    sealed_body = b64encode(SECRET.encode()).decode()
    messages = [{"payload": {SECRET: SECRET}}, {"body": sealed_body, "content_type": "text/plain"}]
    caller.ok("POST", MESSAGES, {"messages": messages}, status=201)
    for bad in ({"payload": 1, "body": sealed_body}, {"payload": SECRET + "2", "idempotency_key": "a"}):
        assert caller.call("POST", MESSAGES, {"messages": [bad]}).is_error
    client.set_schema("orders", {"type": "object"})
    for refuse in (client.send, lambda queue, payload: client.bulk_send(queue, [payload])):
        with pytest.raises(HoldfastError):
            refuse("orders", SECRET)
    caller.refused("POST", MESSAGES, {"messages": [{"payload": SECRET}]}, status=422, code="QH240")
    client.drop_schema("orders")
    done, dead = client.claim("orders", 2), client.claim("orders", 2)
    client.ack("orders", done[0].token)
    client.nack("orders", dead[0].token, error="no")


def test_nothing_is_anywhere_in_clear(
    server: EmbeddedPostgres,
    database_url: str,
    conn: psycopg.Connection[Any],
    orders: str,
    serve: Serve,
    spans: InMemorySpanExporter,
    redis_server: RedisServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    conn.execute(LOG_ALL)
    caplog.set_level(logging.DEBUG)
    caller = serve(redis_url=redis_server.url)
    with Holdfast(database_url) as client:
        everything(client, caller)
    redis = redis_server.client

    def kept_in_redis() -> bytes:
        caller.send("orders", SECRET)
        return " ".join(str(redis.get(key)) for key in redis.scan_iter("*:entry:*")).encode()

    eventually(lambda: b"BEGIN PUBLIC KEY" in kept_in_redis(), what="the key is in Redis")
    kept = kept_in_redis()
    dump = Tools.of(server).dump(database_url, tmp_path / "dump.sql").read_bytes()
    log = server.log_path.read_bytes()
    told = " ".join([*(record.getMessage() for record in caplog.records), caplog.text]).encode()
    spanned = b" ".join(span.to_json().encode() for span in spans.get_finished_spans())
    ((secret,),) = conn.execute("select encode(secret, 'hex') from holdfast.seal_secret").fetchall()
    assert (b"HFE1".hex().encode() in dump, b"send_many" in log, bool(spanned)) == (True, True, True)
    for place in (dump, log, told, spanned, kept):
        assert [form for form in forms(SECRET) if form in place] == []
    for place in (told, spanned, kept, log):
        assert [form for form in (secret.encode(), b64encode(bytes.fromhex(secret))) if form in place] == []
    with Holdfast(database_url) as client:
        states = ("ready", "dead", "archive")
        found = [entry for state in states for entry in client.browse("orders", state, limit=100)]
    assert len(found) >= 10
    contents = [opened_again(entry) for entry in found]
    assert all(SECRET in json.dumps([each.payload, str(each.body)]) for each in contents)


def opened_again(message: Any) -> Any:
    return open_sealed(message, KEYS.private)


def test_a_key_that_is_set_elsewhere_counts_at_once(
    database_url: str, conn: psycopg.Connection[Any], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "FRESH_SECONDS", 3600.0)
    conn.execute("select holdfast.create_queue('orders', '{\"notify\": false}')")
    one, other = serve(listen=False), serve(listen=False)
    one.send("orders", 0)
    other.send("orders", 0)  # both remember that there is no key, and nobody tells them

    one.ok("POST", "/v1/queues/orders/seal-keys", {"public_key": KEYS.public})
    for caller in (one, other):
        caller.send("orders", 1)
        caller.send("orders", 2, 3)

    entries = one.ok("GET", MESSAGES)["messages"]
    assert [is_sealed(entry) for entry in entries] == [False] * 2 + [True] * 6
    assert [opened_again(entry).payload for entry in entries[2:]] == [1, 2, 3, 1, 2, 3]


def test_one_that_is_refused_fails_none_of_its_neighbours(
    conn: psycopg.Connection[Any], orders: str, serve: Serve
) -> None:
    caller = serve()
    strange = b64encode(b"HFE1" + b"\0\2{}" + b"x" * 32).decode()
    bodies = [{"messages": [{"body": strange} if nth % 4 == 0 else {"payload": nth}]} for nth in range(40)]

    async def together() -> list[int]:
        async with httpx.AsyncClient(base_url=caller.address) as client:
            answers = await asyncio.gather(*(client.post(MESSAGES, json=body) for body in bodies))
            return [answer.status_code for answer in answers]

    assert asyncio.run(together()) == [422 if nth % 4 == 0 else 201 for nth in range(40)]


def test_senders_together_are_all_sealed_when_a_key_comes(
    database_url: str, conn: psycopg.Connection[Any], serve: Serve
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    caller = serve()

    async def together() -> list[int]:
        async with httpx.AsyncClient(base_url=caller.address, timeout=60) as client:
            sends = [client.post(MESSAGES, json={"messages": [{"payload": nth}]}) for nth in range(100)]
            asked = {"public_key": KEYS.public}
            key = client.post("/v1/queues/orders/seal-keys", json=asked)
            answers = await asyncio.gather(*sends[:50], key, *sends[50:])
            return [answer.status_code for answer in answers]

    statuses = asyncio.run(together())

    assert sorted(set(statuses)) == [200, 201]
    with Holdfast(database_url) as client:
        entries = client.browse("orders", limit=200)
    payloads = [opened_again(entry).payload if is_sealed(entry) else entry.payload for entry in entries]
    assert sorted(payloads) == list(range(100))


def test_what_other_apis_send_is_sealed(
    database_url: str, conn: psycopg.Connection[Any], serve: Serve
) -> None:
    caller = serve(dialects=("topics", "queue-ti"))
    conn.execute("select holdfast.create_queue('log', '{\"kind\": \"log\"}')")
    conn.execute("select holdfast.create_queue('mails')")
    for name in ("log", "mails"):
        conn.execute("select holdfast.set_seal_key(%s, %s)", [name, KEYS.public])
    twice = {"records": [{"data": SECRET}], "idempotency_key": "once"}

    first = caller.client.post("/v0/topics/log", json=twice)
    again = caller.client.post("/v0/topics/log", json=twice)
    other = caller.client.post("/v0/topics/log", json={**twice, "records": [{"data": "x"}]})
    mail = {"topic": "mails", "payload": b64encode(SECRET.encode()).decode()}
    sent = caller.client.post("/api/messages", json=mail)

    assert (first.status_code, again.json()["deduped"]) == (200, True)
    assert again.json()["seqs"] == first.json()["seqs"]
    assert (other.is_error, sent.is_success) == (True, True), sent.text
    with Holdfast(database_url) as client:
        (record,), (entry,) = client.read("log"), client.browse("mails")
    assert opened_again(record).payload == SECRET
    assert SECRET.encode() == opened_again(entry).body
