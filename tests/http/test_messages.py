"""Routes of messages: send, look, delete."""

from __future__ import annotations

from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.fix_http import Caller
from tests.waiting import WAITING, eventually

ORDERS = "/v1/queues/orders"
MESSAGES = ORDERS + "/messages"
TOMORROW = datetime.now(UTC) + timedelta(days=1)
ROOT = "0d3f5e0e-6a53-4f5b-9c0e-0a1b2c3d4e5f"


@pytest.fixture
def orders(http: Caller, engine: Holdfast) -> Caller:
    """A server with a queue."""
    engine.create_queue("orders", {"priorities": [0, 5], "ordering": "key"})
    return http


def send(http: Caller, *messages: dict[str, Any], **options: Any) -> list[str]:
    """Send messages with options; returns their ids."""
    ids: list[str] = http.ok("POST", MESSAGES, {"messages": list(messages)}, status=201, **options)["ids"]
    return ids


def test_every_option_of_a_message_arrives(orders: Caller, engine: Holdfast) -> None:
    (id,) = send(
        orders,
        {
            "payload": {"n": 1},
            "headers": {"trace": "abc"},
            "priority": 5,
            "ttl": "1 h",
            "correlation_id": ROOT,
            "tag": "eu",
            "max_deliveries": 7,
            "ordering_key": "customer-7",
            "idempotency_key": "once",
        },
    )

    found = engine.message("orders", int(id))
    assert found is not None
    assert (found.payload, found.headers, found.priority, found.tag) == ({"n": 1}, {"trace": "abc"}, 5, "eu")
    assert (str(found.correlation_id), found.max_deliveries, found.ordering_key) == (ROOT, 7, "customer-7")
    assert found.expires_at is not None
    assert (found.expires_at - found.enqueued_at).total_seconds() == 3600


@pytest.mark.parametrize(
    "message",
    [{"delay": 3600}, {"delay": "1 h"}, {"deliver_at": TOMORROW.isoformat()}],
    ids=["seconds", "text", "time"],
)
def test_a_message_may_wait_for_its_time(orders: Caller, engine: Holdfast, message: dict[str, Any]) -> None:
    (id,) = send(orders, {"payload": 1, **message})

    found = engine.message("orders", int(id))
    assert found is not None
    assert found.state == "scheduled"


def test_bytes_travel_as_base64(orders: Caller, engine: Holdfast) -> None:
    octets = bytes(range(256))

    send(orders, {"body": b64encode(octets).decode(), "content_type": "image/png"})

    (delivery,) = orders.claim("orders")
    assert (delivery["payload"], delivery["content_type"]) == (None, "image/png")
    assert delivery["body"] == b64encode(octets).decode()
    assert engine.held("orders", int(delivery["token"]))[0].body == octets


@pytest.mark.parametrize("payload", [None, False, 0, "", [], {}, "text", [1, [2, {"3": None}]], 1.5])
def test_any_json_value_is_a_payload(orders: Caller, payload: Any) -> None:
    orders.send("orders", payload)

    assert orders.claim("orders")[0]["payload"] == payload


def test_the_messages_of_a_request_are_sent_all_or_none(orders: Caller, engine: Holdfast) -> None:
    batch = [{"payload": 1}, {"payload": 2, "priority": 99}, {"payload": 3}]

    orders.refused("POST", MESSAGES, {"messages": batch}, status=422, code="QH204")

    assert engine.queue_stats("orders").ready == 0


def test_a_full_queue_takes_nothing(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders", {"max_depth": 2})

    body = {"messages": [{"payload": n} for n in range(3)]}
    answer = http.call("POST", MESSAGES, body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "QH209")
    assert int(answer.headers["retry-after"]) >= 1
    assert engine.queue_stats("orders").ready == 0


@pytest.mark.parametrize(
    ("config", "message", "status", "code"),
    [
        ({"max_payload": 1024}, {"payload": "x" * 2000}, 413, "QH201"),
        ({}, {"payload": 1, "headers": {"a": "x" * 70_000}}, 413, "QH202"),
        ({}, {"payload": 1, "delay": 1, "deliver_at": "2090-01-01T00:00:00Z"}, 422, "QH205"),
        ({}, {"payload": 1, "ttl": 1, "expires_at": "2090-01-01T00:00:00Z"}, 422, "QH206"),
        ({}, {"payload": 1, "key": ""}, 422, "QH220"),
        ({}, {"payload": 1, "key": "a", "idempotency_key": "b"}, 422, "QH220"),
        ({}, {"payload": 1, "ordering_key": "a"}, 422, "QH221"),
        ({"kind": "log"}, {"payload": 1, "delay": 1}, 422, "QH604"),
    ],
)
def test_what_the_queue_does_not_take_is_refused(
    http: Caller, engine: Holdfast, config: dict[str, Any], message: dict[str, Any], status: int, code: str
) -> None:
    engine.create_queue("orders", config)

    http.refused("POST", MESSAGES, {"messages": [message]}, status=status, code=code)


def test_the_header_idempotency_key_sends_once(orders: Caller, engine: Holdfast) -> None:
    key = {"Idempotency-Key": "4711"}

    first = send(orders, {"payload": 1}, headers=key)
    again = send(orders, {"payload": 1}, headers=key)
    body = {"messages": [{"payload": 2}]}
    orders.refused("POST", MESSAGES, body, status=409, code="QH222", headers=key)

    assert first == again
    assert engine.queue_stats("orders").ready == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/queues/orders/claim"),
        ("POST", "/v1/queues/orders/ack"),
        ("PUT", "/v1/queues/orders"),
        ("GET", "/v1/queues"),
        ("POST", "/v1/keys"),
    ],
)
def test_an_idempotency_key_is_never_passed_over(orders: Caller, method: str, path: str) -> None:
    error = orders.refused(method, path, status=422, code="QH911", headers={"Idempotency-Key": "k"})

    assert error["message"] == f"{method} of this path takes no Idempotency-Key"


def test_the_header_idempotency_key_sends_each_of_several_once(orders: Caller, engine: Holdfast) -> None:
    batch = [{"payload": n} for n in range(12)]

    first = send(orders, *batch, headers={"Idempotency-Key": "4711"})
    again = send(orders, *batch, headers={"Idempotency-Key": "4711"})

    assert len(set(first)) == 12
    assert first == again
    assert engine.queue_stats("orders").ready == 12


@pytest.mark.parametrize(
    ("key", "message", "code"),
    [
        ("", {"payload": 1}, "QH911"),
        ("x" * 191, {"payload": 1}, "QH911"),
        ("a", {"payload": 1, "idempotency_key": "b"}, "QH911"),
        ("a", {"payload": 1, "key": "b"}, "QH220"),
    ],
    ids=["empty", "too long", "given twice", "beside a key"],
)
def test_a_bad_idempotency_key_is_refused(refusing: Caller, key: str, message: Any, code: str) -> None:
    refusing.refused(
        "POST", MESSAGES, {"messages": [message]}, status=422, code=code, headers={"Idempotency-Key": key}
    )


def test_messages_are_looked_at_by_state_page_by_page(orders: Caller, engine: Holdfast) -> None:
    ids = orders.send("orders", *range(5))
    (claimed,) = orders.claim("orders")

    first = orders.ok("GET", MESSAGES, params={"state": "ready", "limit": 2})["messages"]
    rest = orders.ok("GET", MESSAGES, params={"state": "ready", "after": first[-1]["id"]})["messages"]
    flying = orders.ok("GET", MESSAGES, params={"state": "in_flight"})["messages"]

    assert [entry["id"] for entry in [*first, *rest]] == ids[1:]
    assert [(entry["id"], entry["state"]) for entry in flying] == [(claimed["id"], "in_flight")]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("state=gone", "QH401"),
        ("limit=0", "QH402"),
        ("limit=10001", "QH402"),
        ("limit=99999999999", "QH911"),
        ("limit=x", "QH911"),
        ("after=x", "QH911"),
        ("after=9999999999999999999", "QH911"),
        ("state=a%00", "QH911"),
    ],
)
def test_a_bad_question_about_messages_is_refused(refusing: Caller, query: str, code: str) -> None:
    refusing.refused("GET", f"{MESSAGES}?{query}", status=422, code=code)


def test_one_message_is_looked_at_by_its_id(orders: Caller) -> None:
    (id,) = orders.send("orders", {"n": 1})

    found = orders.ok("GET", f"{MESSAGES}/{id}")

    assert (found["id"], found["state"], found["payload"], found["deliveries"]) == (id, "ready", {"n": 1}, 0)


def test_a_message_that_is_not_there_is_404(refusing: Caller) -> None:
    refusing.refused("GET", f"{MESSAGES}/1", status=404, code="QH924")
    refusing.refused("DELETE", f"{MESSAGES}/1", status=404, code="QH924")


@pytest.mark.parametrize(
    "id", ["x", "-1", "1.0", "9223372036854775808", "99999999999999999999", "%00", "%D9%A1"]
)
def test_an_id_that_is_none_is_refused(refusing: Caller, id: str) -> None:
    error = refusing.refused("GET", f"{MESSAGES}/{id}", status=422, code="QH911")

    assert error["message"] == "bad value for id"


def test_a_message_is_deleted_once(orders: Caller, engine: Holdfast) -> None:
    (id,) = orders.send("orders", 1)

    assert orders.ok("DELETE", f"{MESSAGES}/{id}") == {"ids": [id]}
    orders.refused("DELETE", f"{MESSAGES}/{id}", status=404, code="QH924")
    assert engine.queue_stats("orders").ready == 0


def test_of_several_messages_those_that_were_there_are_deleted(orders: Caller) -> None:
    first, second, third = orders.send("orders", 1, 2, 3)

    gone = orders.ok("POST", ORDERS + "/discard", {"ids": [first, "1", int(third)]})

    assert sorted(gone["ids"]) == sorted([first, third])
    assert [entry["id"] for entry in orders.ok("GET", MESSAGES)["messages"]] == [second]


@pytest.mark.parametrize("key", ["page-7", "a/b", "Käse & Brot", "%2F", "..", "discard"])
def test_messages_are_deleted_by_their_key(orders: Caller, key: str) -> None:
    (id,) = send(orders, {"payload": 1, "key": key})

    assert orders.ok("POST", ORDERS + "/keys/discard", {"key": key}) == {"ids": [id]}
    assert orders.ok("POST", ORDERS + "/keys/discard", {"key": key}) == {"ids": []}


def test_a_message_that_expired_in_year_one_can_be_looked_at(orders: Caller) -> None:
    long_ago = "0001-01-01T00:00:00+14:00"  # in UTC, the year before, which Python does not have
    (id,) = send(orders, {"payload": 1, "expires_at": long_ago})

    (found,) = orders.ok("GET", MESSAGES + "?state=ready")["messages"]
    assert found["id"] == id
    assert found["expires_at"] < TOMORROW.isoformat()


def test_who_waits_for_an_open_transaction_keeps_no_neighbours_waiting(
    orders: Caller, engine: Holdfast, conn: psycopg.Connection[Any]
) -> None:
    def send_of(key: str) -> list[str]:
        with orders.with_key(None) as caller:
            return send(caller, {"payload": 1, "ordering_key": key})

    with ThreadPoolExecutor(2) as pool:
        with engine.transaction() as transaction:
            transaction.send("orders", 1, ordering_key="kept")
            kept = [pool.submit(send_of, "kept") for _ in range(2)]
            eventually(lambda: conn.execute(WAITING).fetchone() == (2,), what="both wait")
            for number in range(10):
                send_of(f"other {number}")
            assert not any(waiting.done() for waiting in kept)
        assert all(waiting.result() for waiting in kept)
