"""FoundryDB: who may call, what is refused in its words, and messages that go through other doors."""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, InvalidServiceError
from holdfast.dialects import DIALECTS
from holdfast.dialects.foundrydb.errors import message
from tests.dialects.foundrydb import FoundryDb
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi, content_of
from tests.dialects.test_foundrydb_sql import ACK, Shop
from tests.dialects.topics import Topics
from tests.docs.pages import DOCS, prose, quoted, rows, sections
from tests.fix_http import Caller, Serve
from tests.waiting import eventually

NOTHING = "00000000-0000-4000-8000-000000000000"  # an id that is nobody's

# --- who may -------------------------------------------------------------------------------------

ROUTES: list[tuple[str, str, Any, str]] = [
    ("POST", "", {"name": "orders"}, "admin"),
    ("GET", "", None, "read"),
    ("GET", "/orders", None, "read"),
    ("POST", "/orders/messages", {"messages": [{"payload": 1}]}, "send"),
    ("GET", f"/orders/messages?task_id={NOTHING}", None, "send or read"),
    ("POST", "/orders/stats", None, "read"),
    ("GET", f"/orders/stats?task_id={NOTHING}", None, "read"),
    ("DELETE", "/orders", None, "admin"),
]


def closed(http: Caller) -> None:
    """Wait until the server knows that there are keys."""
    path = "/managed-services/local/queues"
    eventually(lambda: http.client.get(path).status_code == 401, what="the server is closed")


def test_each_route_takes_the_scope_that_is_told(serve: Serve, engine: Holdfast) -> None:
    http = serve()
    scopes = ("send", "consume", "read", "admin")
    keys = {scope: engine.create_key(scope, scopes=[scope]).key for scope in scopes}
    closed(http)

    allowed: dict[str, set[str]] = {}
    for scope, key in keys.items():
        with FoundryDb(http.address, key=key) as caller:
            for method, path, body, _ in ROUTES:
                status = caller.call(method, path, body).status_code
                assert status in (200, 201, 202, 403, 404, 409), (path, status)
                if status != 403:
                    allowed.setdefault(f"{method} {path}", set()).add(scope)

    assert allowed == {
        f"{method} {path}": {*scope.split(" or "), "admin"} for method, path, _, scope in ROUTES
    }


def test_every_route_is_in_the_list_above() -> None:
    told = {
        (method, "any" if " or " in scope else scope, path.partition("?")[0].replace("orders", "{queue}"))
        for method, path, _, scope in ROUTES
    }

    endpoints = DIALECTS["foundrydb"].endpoints
    assert told == {
        (one.method, one.scope, one.path.removeprefix("/managed-services/{service}/queues"))
        for one in endpoints
    }


def test_a_key_reaches_its_queues_alone(serve: Serve, engine: Holdfast) -> None:
    http = serve()
    made = engine.create_key("k", scopes=["send", "read", "admin"], queues=["mine*"])
    other = engine.create_key("o", scopes=["admin"])
    closed(http)

    with FoundryDb(http.address, key=made.key) as mine, FoundryDb(http.address, key=other.key) as admin:
        mine.opened("mine-1")
        admin.opened("theirs")
        task = admin.ask("theirs", {"payload": 1})

        for method, path, body in (
            ("POST", "", {"name": "theirs-2"}),
            # Another database of the service is not for whoever has a few queues.
            ("POST", "", {"name": "mine-2", "database_name": "postgres"}),
            ("GET", "/theirs", None),
            ("DELETE", "/theirs", None),
            ("POST", "/theirs/messages", {"messages": [{"payload": 1}]}),
            ("GET", f"/theirs/messages?task_id={task}", None),
            ("POST", "/theirs/stats", None),
            ("GET", "/nobody-s", None),
        ):
            text = mine.refused(method, path, body, status=403, code="QH921")
            assert text.startswith("this key may not do that"), path
        assert (mine.names(), admin.names()) == (["mine-1"], ["mine-1", "theirs"])
        # Nor does it learn of a task by way of a queue of its own.
        mine.refused("GET", f"/mine-1/messages?task_id={task}", status=404, code="QH868")


@pins(7)
def test_a_key_comes_as_password_as_bearer_or_as_x_api_key(serve: Serve, engine: Holdfast) -> None:
    http = serve()
    key = engine.create_key("k", scopes=["admin"]).key
    closed(http)

    with FoundryDb(http.address) as nobody:
        nobody.refused("GET", status=401, code="QH920")
    for options in ({"auth": ("admin", key)}, {"auth": ("ada", key)}, {"key": key}):
        with FoundryDb(http.address, **options) as caller:
            assert caller.names() == []
    with FoundryDb(http.address) as caller:
        assert caller.ok("GET", headers={"x-api-key": key}) == {"queues": []}
    with FoundryDb(http.address, auth=("admin", "password")) as stranger:
        stranger.refused("GET", status=401, code="QH920")


def test_a_server_without_the_dialect_says_so(serve: Serve) -> None:
    error = serve(dialects=("topics",)).refused(
        "GET", "/managed-services/local/queues", status=404, code="QH914"
    )

    assert error["hint"] == "The dialect foundrydb is off here: HOLDFAST_DIALECTS=foundrydb offers it."


# --- what is refused -----------------------------------------------------------------------------


@pins(11, 12, 13, 14, 15)
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": "Orders"}, "name"),
        ({"name": "a.b"}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": 5}, "name"),
        ({"name": "a\x00"}, "name"),
        ({"database_name": ""}, "database_name"),
        ({"database_name": 5}, "database_name"),
        ({"database_name": "x" * 100}, "database_name"),
        ({"visibility_timeout_seconds": 0}, "visibility_timeout_seconds"),
        ({"visibility_timeout_seconds": 43_201}, "visibility_timeout_seconds"),
        ({"visibility_timeout_seconds": 1.5}, "visibility_timeout_seconds"),
        ({"visibility_timeout_seconds": "60"}, "visibility_timeout_seconds"),
        ({"visibility_timeout_seconds": 2**70}, "visibility_timeout_seconds"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 101}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"dlq_enabled": 1}, "dlq_enabled"),
        ({"dlq_enabled": "false"}, "dlq_enabled"),
        ({"visibility_timeout": 60}, "visibility_timeout"),
    ],
)
def test_a_bad_queue_is_refused_and_none_is_made(foundrydb: FoundryDb, body: Any, field: str) -> None:
    before = foundrydb.names()
    wanted = body if not body or "name" in body else {"name": "never", **body}

    response = foundrydb.call("POST", "", wanted)

    assert response.status_code == 400, response.text
    assert field in response.json()["error"]
    assert foundrydb.names() == before


GOOD = {"payload": 1}


@pins(23, 24, 25)
@pytest.mark.parametrize(
    ("messages", "told", "where"),
    [
        ([], "messages", ""),
        ([GOOD] * 101, "messages", ""),
        ("x", "messages", ""),
        ([GOOD, 5], "messages[1]", ""),
        ([GOOD, {}], "payload", "messages[1]"),
        ([GOOD, {"payload": None}], "payload", "messages[1]"),
        ([GOOD, {"payload": 1, "delay_seconds": -1}], "messages[1].delay_seconds", ""),
        ([GOOD, {"payload": 1, "delay_seconds": 43_201}], "messages[1].delay_seconds", ""),
        ([GOOD, {"payload": 1, "delay_seconds": 2**70}], "messages[1].delay_seconds", ""),
        ([GOOD, {"payload": 1, "delay_seconds": 1.5}], "messages[1].delay_seconds", ""),
        ([GOOD, {"payload": 1, "delay_seconds": "1"}], "messages[1].delay_seconds", ""),
        ([{"payload": "a\x00"}], "\\u0000", "leave them out"),
        ([GOOD, {"payload": 1, "priority": 1}], "messages[1].priority", ""),
        ([GOOD, {"payload": "x" * (262_144 - 1)}], "payload", "messages[1]"),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_sent(
    foundrydb: FoundryDb, crossing: Crossing, messages: Any, told: str, where: str
) -> None:
    response = foundrydb.call("POST", f"/{crossing.queue}/messages", {"messages": messages})

    assert response.status_code == 400, response.text
    assert told in response.json()["error"]
    assert where in response.json()["error"]
    assert crossing.holdfast.claim(crossing.queue) == []


def test_an_error_is_one_text_whose_sentences_end_once() -> None:
    error = InvalidServiceError("QH850", "this is none", "Is it running?", "Look there.")

    assert message(error) == "this is none. Is it running? Look there"


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {"content-type": "application/json"}, 400),
        (b"", {"content-type": "application/json"}, 400),
        (b"\xff", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"[" * 5000, {"content-type": "application/json"}, 400),
    ],
)
def test_a_body_that_is_none_is_refused(
    foundrydb: FoundryDb, content: bytes, headers: dict[str, str], status: int
) -> None:
    for path in ("", "/nowhere/messages"):
        answer = foundrydb.call("POST", path, content=content, headers=headers)
        assert answer.status_code == status


def test_what_is_not_there_is_told_apart(foundrydb: FoundryDb, crossing: Crossing) -> None:
    batch = {"messages": [GOOD]}
    task = {"params": {"task_id": NOTHING}}
    for service in (NOTHING, "nowhere", "x" * 5000, "%00", "ä"):
        with foundrydb.of(service) as elsewhere:
            for answer in (elsewhere.call("POST", "", {"name": "a"}), elsewhere.call("GET")):
                assert answer.status_code == (400 if service == "%00" else 404)
    with foundrydb.of("nowhere") as elsewhere:
        for method, path, body, options in (
            ("POST", "", {"name": "a"}, {}),
            ("GET", "", None, {}),
            ("GET", "/a", None, {}),
            ("DELETE", "/a", None, {}),
            ("POST", "/a/messages", batch, {}),
            ("GET", "/a/messages", None, task),
            ("POST", "/a/stats", None, {}),
            ("GET", "/a/stats", None, task),
        ):
            text = elsewhere.refused(method, path, body, status=404, code="QH851", **options)
            assert "nowhere" in text
    for method, path, body in (
        ("GET", "/nowhere", None),
        ("DELETE", "/nowhere", None),
        ("POST", "/nowhere/messages", batch),
        ("POST", "/nowhere/stats", None),
    ):
        assert "nowhere" in foundrydb.refused(method, path, body, status=404, code="QH861")
    for unknown in (NOTHING, "task-uuid", "", "5", "x" * 5000):
        for path in ("messages", "stats"):
            options = {"params": {"task_id": unknown}}
            foundrydb.refused("GET", f"/{crossing.queue}/{path}", status=404, code="QH868", **options)
    for path in ("messages", "stats"):
        text = foundrydb.refused("GET", f"/{crossing.queue}/{path}", status=400, code="QH911")
        assert "task_id" in text


def test_a_task_is_found_by_way_of_its_queue_and_its_kind_alone(
    foundrydb: FoundryDb, crossing: Crossing, name: str
) -> None:
    queue = crossing.queue
    foundrydb.opened(name)
    enqueued = foundrydb.ask(name, {"payload": 1})
    counted = foundrydb.ok("POST", f"/{name}/stats", status=202)["task_id"]

    for path, task in (
        (f"/{queue}/messages", enqueued),
        (f"/{queue}/stats", counted),
        (f"/{name}/stats", enqueued),
        (f"/{name}/messages", counted),
    ):
        text = foundrydb.refused("GET", path, params={"task_id": task}, status=404, code="QH868")
        assert task in text
    foundrydb.result(f"/{name}/messages", enqueued)
    foundrydb.result(f"/{name}/stats", counted)


def test_a_queue_is_made_once_however_many_make_it(foundrydb: FoundryDb, name: str) -> None:
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: foundrydb.call("POST", "", {"name": name}), range(8)))

    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 7]
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"QH862"}
    foundrydb.becomes(name, "Active")


def test_other_paths_and_methods_are_refused_in_the_shape_of_the_dialect(foundrydb: FoundryDb) -> None:
    for path in ("", "/local", "/local/queue", "/local/queues/a/claim", "/local/queues/a/messages/1"):
        answer = foundrydb.client.get(f"/managed-services{path}")
        assert answer.status_code == 404
        assert answer.json()["code"] == "QH914"
        assert answer.json()["error"].startswith("nothing is at this path")
    text = foundrydb.refused("PATCH", status=405, code="QH915")
    assert text == "the path does not take this method. It takes GET, HEAD, OPTIONS, POST"


# --- other doors ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossing:
    """A queue, and everybody who knows it."""

    queue: str
    foundrydb: FoundryDb
    native: Caller
    holdfast: Holdfast
    shop: Shop
    queue_ti: QueueTi
    topics: Topics

    def send(self, door: str) -> int:
        """Send the same at a door; the id."""
        if door == HTTP:
            return self.foundrydb.enqueue(self.queue, VALUE)[0]
        if door == ROWS:
            return self.shop.enqueue(VALUE)
        if door == NATIVE:
            return int(self.native.send(self.queue, VALUE)[0])
        if door == BYTES:
            return self.holdfast.send(self.queue, body=CONTENT, content_type="a/b")
        return self.holdfast.send(self.queue, VALUE)

    def take(self, door: str) -> Any:
        """What is handed out at a door; it is settled there too."""
        if door == ROWS:
            ((id, payload, *_),) = self.shop.claim_rows()
            assert self.shop.count(ACK, id, "worker-1") == 1
            return payload
        if door == NATIVE:
            (message,) = self.native.claim(self.queue)
            self.native.ok("POST", f"/v1/queues/{self.queue}/ack", {"token": message["token"]})
            return message["payload"] if message["body"] is None else message["body"]
        if door == QUEUE_TI:
            (taken,) = self.queue_ti.dequeue(self.queue)
            self.queue_ti.ack(taken["id"])
            return content_of(taken)
        if door == TOPICS:
            (job,) = self.topics.claim(self.queue)
            self.topics.settle("ack", self.queue, [job["$seq"]])
            return job["data"]
        (delivery,) = self.holdfast.claim(self.queue)
        self.holdfast.ack(self.queue, delivery.token)
        return delivery.payload if delivery.body is None else delivery.body


HTTP, ROWS, NATIVE, SQL = "POST", "mdb_queue.messages", "native HTTP", "native SQL"
BYTES, QUEUE_TI, TOPICS = "bytes", "queue-ti", "topics"
SENDERS, TAKERS = (HTTP, ROWS, NATIVE, SQL, BYTES), (ROWS, NATIVE, SQL, QUEUE_TI, TOPICS)
VALUE, CONTENT = {"a": 1}, b"\x00\x01"
IN_BASE64 = b64encode(CONTENT).decode()
# What each door hands out, of JSON and of bytes.
HANDED_OUT: dict[str, tuple[Any, Any]] = {
    ROWS: (VALUE, {"body": IN_BASE64, "content_type": "a/b"}),
    NATIVE: (VALUE, IN_BASE64),
    SQL: (VALUE, CONTENT),
    QUEUE_TI: (b'{"a": 1}', CONTENT),
    TOPICS: (VALUE, {"body": IN_BASE64, "content_type": "a/b"}),
}


@pytest.fixture(scope="module")
def crossing(
    foundrydb: FoundryDb,
    native: Caller,
    holdfast: Holdfast,
    queue_ti: QueueTi,
    topics: Topics,
    module_url: str,
) -> Iterator[Crossing]:
    """A queue that was made here, empty at each test."""
    foundrydb.opened("crossing", visibility_timeout_seconds=600)
    shop = Shop(module_url, "crossing")
    yield Crossing("crossing", foundrydb, native, holdfast, shop, queue_ti, topics)
    shop.conn.close()


@pins(1, 10, 18, 20, 35)
@pytest.mark.parametrize(("sent", "taken"), list(itertools.product(SENDERS, TAKERS)))
def test_a_message_crosses_from_every_door_to_every_other(crossing: Crossing, sent: str, taken: str) -> None:
    crossing.send(sent)

    assert crossing.take(taken) == HANDED_OUT[taken][sent == BYTES]
    assert crossing.holdfast.claim(crossing.queue) == []


@pins(38)
def test_claims_exclude_each_other_whichever_door_they_were_taken_at(crossing: Crossing) -> None:
    queue, shop, holdfast = crossing.queue, crossing.shop, crossing.holdfast
    ids = crossing.foundrydb.enqueue(queue, *range(5))
    (row,) = shop.claim(limit=1)
    (delivery,) = holdfast.claim(queue)
    (message,) = crossing.native.claim(queue)
    (dequeued,) = crossing.queue_ti.dequeue(queue)
    (job,) = crossing.topics.claim(queue)

    left = (shop.claim(), holdfast.claim(queue), crossing.native.claim(queue))
    stats = crossing.foundrydb.stats(queue)

    assert left == ([], [], [])
    assert (stats["ready_messages"], stats["inflight_messages"]) == (0, 5)
    assert [row, delivery.id, int(message["id"])] == ids[:3]
    # Who holds it settles it, and nobody else.
    assert shop.count(ACK, delivery.id, "worker-1") == 0
    assert shop.count(ACK, row, "worker-1") == 1
    holdfast.ack(queue, delivery.token)
    crossing.native.ok("POST", f"/v1/queues/{queue}/ack", {"token": message["token"]})
    crossing.queue_ti.ack(dequeued["id"])
    crossing.topics.settle("ack", queue, [job["$seq"]])
    assert shop.messages() == []


@pins(31)
def test_what_dies_at_another_door_is_counted_here(
    foundrydb: FoundryDb, holdfast: Holdfast, name: str
) -> None:
    foundrydb.opened(name, max_attempts=1)
    foundrydb.opened(f"{name}-none", max_attempts=1, dlq_enabled=False)
    for queue in (name, f"{name}-none"):
        foundrydb.enqueue(queue, 1)
        (delivery,) = holdfast.claim(queue)
        holdfast.nack(queue, delivery.token, delay=timedelta(0), error="no")

    assert [foundrydb.stats(queue)["dead_messages"] for queue in (name, f"{name}-none")] == [1, 0]


def test_a_batch_is_one_transaction(crossing: Crossing) -> None:
    shop = crossing.shop
    seen: set[int] = set()
    with ThreadPoolExecutor(1) as sender:
        sending = sender.submit(crossing.foundrydb.enqueue, crossing.queue, *range(100))
        while not sending.done():
            seen.add(len(shop.messages()))
        ids = sending.result()

    assert seen <= {0, 100}
    assert shop.messages() == ids
    assert crossing.holdfast.purge(crossing.queue, ["ready"]).purged == 100


# --- what it is made of --------------------------------------------------------------------------

PAGE = (DOCS / "dialects" / "foundrydb.md").read_text(encoding="utf-8")


def test_the_documentation_has_every_route_with_its_scope() -> None:
    table = sections(PAGE, 2)["HTTP"]
    told = {quoted(row[0])[0]: row[1] for row in rows(table[: table.index("| status |")])}

    assert told == {
        f"{one.method} {one.path}": "send or read" if one.scope == "any" else one.scope
        for one in DIALECTS["foundrydb"].endpoints
    }


def test_the_documentation_has_every_field_of_a_request() -> None:
    told = set(quoted(prose(PAGE)))

    kinds = {kind for one in DIALECTS["foundrydb"].endpoints for kind in (one.body, one.query) if kind}
    assert {name for kind in kinds for name in kind.__struct_fields__} <= told
