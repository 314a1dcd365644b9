"""Routes of claims: claim, settle, who holds what, ordering keys that wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.fix_http import Caller
from tests.waiting import WAITING, eventually

ORDERS = "/v1/queues/orders"


@pytest.fixture
def orders(http: Caller, engine: Holdfast) -> Caller:
    """A server with a queue."""
    engine.create_queue("orders")
    return http


def settle(http: Caller, verb: str, **body: Any) -> tuple[list[str], list[str]]:
    """What a settlement settled, and what it skipped."""
    done = http.ok("POST", f"{ORDERS}/{verb}", body)
    return done["settled"], done["skipped"]


def test_a_claim_answers_with_messages_and_a_token(orders: Caller) -> None:
    ids = orders.send("orders", {"n": 1}, {"n": 2}, {"n": 3})

    claimed = orders.claim("orders", max=2, lease="2 min", consumer="me")

    assert [message["id"] for message in claimed] == ids[:2]
    assert len({message["token"] for message in claimed}) == 1
    first = claimed[0]
    assert (first["payload"], first["queue"], first["deliveries"], first["origin"]) == (
        {"n": 1},
        "orders",
        1,
        None,
    )
    held_for = datetime.fromisoformat(first["deadline"]) - datetime.fromisoformat(first["enqueued_at"])
    assert 120 <= held_for.total_seconds() < 150


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"max": 0}, "QH301"),
        ({"max": -1}, "QH301"),
        ({"max": 1001}, "QH301"),
        ({"max": "1"}, "QH911"),
        ({"lease": 0}, "QH302"),
        ({"lease": -1}, "QH302"),
        ({"lease": "25 h"}, "QH302"),
        ({"lease": "soon"}, "QH911"),
        ({"lease": 1e300}, "QH911"),
        ({"lease": True}, "QH911"),
        ({"wait": -1}, "QH911"),
        ({"wait": 30.1}, "QH911"),
        ({"wait": "31 s"}, "QH911"),
        ({"consumer": "x" * 201}, "QH207"),
        ({"consumer": "a\0b"}, "QH911"),
        ({"queue": "orders"}, "QH911"),
    ],
)
def test_a_bad_claim_is_refused(refusing: Caller, body: Any, code: str) -> None:
    refusing.refused("POST", f"{ORDERS}/claim", body, status=422, code=code)


def test_acked_messages_are_gone(orders: Caller, engine: Holdfast) -> None:
    first, second = orders.send("orders", 1, 2)
    token = orders.claim("orders", max=2)[0]["token"]

    assert settle(orders, "ack", token=token, ids=[first]) == ([first], [])
    assert settle(orders, "ack", token=token, ids=[first, second]) == ([second], [first])
    assert settle(orders, "ack", token=token) == ([], [])
    assert engine.queue_stats("orders").depth == 0


def test_released_messages_are_there_at_once_and_were_not_delivered(orders: Caller) -> None:
    (id,) = orders.send("orders", 1)
    token = orders.claim("orders")[0]["token"]

    assert settle(orders, "release", token=token) == ([id], [])
    assert [message["deliveries"] for message in orders.claim("orders")] == [1]


def test_nacked_messages_come_back_with_their_error(orders: Caller) -> None:
    ids = orders.send("orders", 1, 2)
    token = orders.claim("orders", max=2)[0]["token"]

    assert settle(orders, "nack", token=token, ids=[ids[0]], error="käse 😀") == ([ids[0]], [])
    assert settle(orders, "nack", token=token, ids=[ids[1]], delay="1 h") == ([ids[1]], [])

    (again,) = orders.claim("orders", max=2)
    assert (again["id"], again["deliveries"], again["last_error"]) == (ids[0], 2, "käse 😀")


def test_extended_messages_are_held_for_longer(orders: Caller) -> None:
    orders.send("orders", 1)
    (before,) = orders.claim("orders", lease="1 min")

    settled, _ = settle(orders, "extend", token=before["token"], lease="1 h")

    (after,) = orders.ok("GET", f"{ORDERS}/held", params={"token": before["token"]})["messages"]
    assert settled == [before["id"]]
    assert after["deadline"] > before["deadline"]


@pytest.mark.parametrize("verb", ["ack", "release", "nack", "extend"])
def test_strict_refuses_what_is_not_held_any_more(orders: Caller, verb: str) -> None:
    (id,) = orders.send("orders", 1)
    token = orders.claim("orders")[0]["token"]
    settle(orders, "ack", token=token)

    body = {"token": token, "ids": [id], "strict": True}
    orders.refused("POST", f"{ORDERS}/{verb}", body, status=409, code="QH304")


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [
        ("nack", {"delay": -1}, "QH305"),
        ("nack", {"delay": "20000 days"}, "QH305"),
        ("nack", {"delay": "never"}, "QH911"),
        ("nack", {"error": "a\0b"}, "QH911"),
        ("nack", {"error": "x" * 100_001}, "QH911"),
        ("extend", {"lease": "25 h"}, "QH302"),
        ("extend", {"lease": "never"}, "QH911"),
        ("ack", {"ids": ["1"] * 10_001}, "QH911"),
        ("ack", {"lease": 1}, "QH911"),
    ],
)
def test_a_bad_settlement_is_refused(refusing: Caller, verb: str, body: Any, code: str) -> None:
    refusing.refused("POST", f"{ORDERS}/{verb}", {"token": "1", **body}, status=422, code=code)


def test_next_acks_and_claims_in_one_call(orders: Caller, engine: Holdfast) -> None:
    first, second = orders.send("orders", 1, 2)
    token = orders.claim("orders")[0]["token"]

    (then,) = orders.ok("POST", f"{ORDERS}/next", {"token": token, "consumer": "me"})["messages"]

    assert then["id"] == second
    assert engine.message("orders", int(first)) is None
    again = {"token": token, "strict": True}
    orders.refused("POST", f"{ORDERS}/next", again, status=409, code="QH304")


def test_who_holds_what_is_told(orders: Caller) -> None:
    first, second = orders.send("orders", 1, 2)
    (claimed,) = orders.claim("orders", consumer="me")

    (held,) = orders.ok("GET", f"{ORDERS}/held", params={"token": claimed["token"]})["messages"]
    (holder,) = orders.ok("POST", f"{ORDERS}/holders", {"ids": [first, second]})["holders"]
    (claim,) = orders.ok("GET", f"{ORDERS}/claims", params={"consumer": "me"})["claims"]
    (lease,) = orders.ok("GET", f"{ORDERS}/leases")["leases"]

    assert held == claimed
    assert (holder["id"], holder["token"], holder["consumer"]) == (first, claimed["token"], "me")
    assert (claim["token"], claim["messages"], claim["first_id"]) == (claimed["token"], 1, first)
    assert (lease["consumer"], lease["messages"]) == ("me", 1)
    assert "token" not in lease


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("held", "QH911"),
        ("held?token=x", "QH911"),
        ("claims", "QH911"),
        ("leases?limit=0", "QH402"),
        ("blocked?limit=0", "QH402"),
        ("blocked?limit=1.5", "QH911"),
    ],
)
def test_a_bad_question_about_claims_is_refused(refusing: Caller, path: str, code: str) -> None:
    refusing.refused("GET", f"{ORDERS}/{path}", status=422, code=code)


def test_an_ordering_key_that_a_dead_message_blocks_goes_on_when_told(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders", {"ordering": "key", "on_dead": "block", "max_deliveries": 1})
    first = engine.send("orders", 1, ordering_key="a/b")
    second = engine.send("orders", 2, ordering_key="a/b")
    engine.nack("orders", engine.claim("orders")[0].token)

    (blocked,) = http.ok("GET", f"{ORDERS}/blocked")["keys"]
    unblocked = http.ok("POST", f"{ORDERS}/unblock", {"key": "a/b", "how": "skip"})

    assert (blocked["key"], blocked["head"], blocked["reason"], blocked["waiting"]) == (
        "a/b",
        str(first),
        "dead",
        1,
    )
    assert unblocked == {"id": str(first)}
    assert [message["id"] for message in http.claim("orders")] == [str(second)]
    http.refused("POST", f"{ORDERS}/unblock", {"key": "a/b"}, status=409, code="QH312")
    http.refused("POST", f"{ORDERS}/unblock", {"key": "a/b", "how": "so"}, status=422, code="QH311")


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_who_waits_for_an_open_transaction_keeps_no_neighbours_waiting(
    http: Caller, engine: Holdfast, conn: psycopg.Connection[Any], verb: str
) -> None:
    engine.create_queue("orders")
    http.send("orders", *range(12))
    kept, *others = [http.claim("orders")[0] for _ in range(12)]

    def settled(message: Any) -> list[str]:
        with http.with_key(None) as caller:
            return settle(caller, verb, token=message["token"])[0]

    with ThreadPoolExecutor(1) as pool:
        with engine.transaction() as transaction:
            transaction.ack("orders", int(kept["token"]))
            waiting = pool.submit(settled, kept)
            eventually(lambda: conn.execute(WAITING).fetchone() == (1,), what="it waits")
            assert [settled(message) for message in others] == [[message["id"]] for message in others]
            assert not waiting.done()
        assert waiting.result() == []
