"""Origins of messages that were moved: ids in them are text, and times end in Z, wherever they are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from msgspec import Raw

from holdfast import Holdfast, HttpHoldfast
from holdfast.wire.provenance import IDS, TIMES, read_origin, write_origin
from tests.fix_http import Caller
from tests.http.streams import Stream

Conn = psycopg.Connection[Any]
ORDERS, GRAVE = "/v1/queues/orders", "/v1/queues/orders.dlq"
FAR = {"from": "2020-01-01T00:00:00Z"}


def die(engine: Holdfast, *payloads: Any, **config: Any) -> list[int]:
    """Let messages die at their first delivery; returns the ids that they had in life."""
    engine.create_queue("orders", {"max_deliveries": 1, **config})
    ids = engine.send_batch("orders", list(payloads))
    engine.nack("orders", engine.claim("orders", len(payloads))[0].token)
    return ids


def check(origin: Any, id: int, *times: str) -> None:
    """What an origin looks like on the wire."""
    assert (origin["id"], origin["root_id"]) == (str(id), str(id))
    assert times
    for name in times:
        assert origin[name].endswith("Z")
        assert datetime.fromisoformat(origin[name]).year >= 2026


def test_ids_and_times_of_an_origin_are_as_everywhere_else(http: Caller, engine: Holdfast) -> None:
    (id,) = die(engine, 1)

    (browsed,) = http.ok("GET", f"{ORDERS}/messages", params={"state": "dead"})["messages"]
    shown = http.ok("GET", f"{GRAVE}/messages/{browsed['id']}")
    with Stream(http, "orders.dlq") as stream:
        pushed = stream.message()
        (held,) = http.ok("GET", f"{GRAVE}/held", params={"token": pushed["token"]})["messages"]

    check(browsed["origin"], id, "died_at", "enqueued_at", "sent_at")
    assert shown["origin"] == pushed["origin"] == held["origin"] == browsed["origin"]
    assert (browsed["origin"]["queue"], browsed["origin"]["deliveries"]) == ("orders", 1)


def test_of_what_is_kept_and_sent_once_more_too(http: Caller, engine: Holdfast) -> None:
    (id,) = die(engine, 1, keep=["done"], keep_for="1 day")
    (redriven,) = engine.redrive("orders")
    engine.ack("orders", engine.claim("orders")[0].token)

    (ended,) = http.ok("GET", f"{ORDERS}/archive", params=FAR)["messages"]
    http.ok("POST", f"{ORDERS}/replay", {**FAR, "to": "2999-01-01T00:00:00Z"})
    (claimed,) = http.claim("orders")

    check(ended["origin"], id, "died_at", "enqueued_at", "redriven_at")
    again = claimed["origin"]
    times = ("sent_at", "died_at", "redriven_at", "ended_at", "replayed_at")
    check({**again, "id": again["root_id"]}, id, *times)
    assert again["id"] == str(redriven.new_id)


def test_of_dead_letters_in_a_log_too(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("graves", {"kind": "log"})
    (id,) = die(engine, 1, dead_letter="graves")

    (record,) = http.ok("GET", "/v1/queues/graves/records")["records"]

    check(record["origin"], id, "died_at", "enqueued_at")


def test_the_client_has_the_same_values_as_over_sql(http: Caller, engine: Holdfast) -> None:
    die(engine, 1)
    engine.redrive("orders")
    engine.nack("orders", engine.claim("orders")[0].token)

    with HttpHoldfast(http.address) as client:
        assert client.browse("orders", "dead") == engine.browse("orders", "dead")


def test_a_time_of_another_zone_is_told_in_utc(http: Caller, engine: Holdfast, conn: Conn) -> None:
    engine.create_queue("orders", {"max_deliveries": 1})
    (id,) = engine.send_batch("orders", [1])
    conn.execute("set timezone = 'Asia/Kolkata'")
    conn.execute(
        "select holdfast.nack(queue => 'orders', token => %s)", [engine.claim("orders")[0].token]
    ).fetchall()

    (browsed,) = http.ok("GET", f"{ORDERS}/messages", params={"state": "dead"})["messages"]

    stored = conn.execute("select origin ->> 'died_at' from holdfast.browse('orders', 'dead')").fetchall()
    check(browsed["origin"], id, "died_at", "enqueued_at")
    assert stored[0][0].endswith("+05:30")
    assert datetime.fromisoformat(browsed["origin"]["died_at"]) == datetime.fromisoformat(stored[0][0])


# --- what is no origin of the engine's -------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"id":null,"root_id":1.5,"died_at":null,"ended_at":"soon","replayed_at":3,"price":1.10}',
        '{"id":"seven","died_at":"infinity","enqueued_at":"12000-01-01T00:00:00+05:30"}',
        '{"died_at":"0001-01-01T00:00:00+05:30"}',
        "[null,{}]",
        "7",
        '{"id":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=["values", "texts", "year", "list", "number", "deep"],
)
def test_what_is_none_stays_as_it_is(text: str) -> None:
    written = write_origin(Raw(text.encode()))

    fields = written.items() if isinstance(written, dict) else []
    told = "{" + ",".join(f'"{name}":{bytes(value).decode()}' for name, value in fields) + "}"
    assert (told if isinstance(written, dict) else bytes(written).decode()) == text


def test_an_origin_is_read_as_it_was_written() -> None:
    moment = datetime(2040, 1, 1, 12, 0, 0, 120_000, UTC).isoformat().replace("120000", "12")
    origin = {**dict.fromkeys(IDS, 1 << 62), **dict.fromkeys(TIMES, moment), "key": "2040Z", "error": None}

    written = {
        name: json.loads(bytes(value))
        for name, value in write_origin(Raw(json.dumps(origin).encode())).items()
    }

    assert {written[name] for name in TIMES} == {"2040-01-01T12:00:00.12Z"}
    assert {written[name] for name in IDS} == {str(1 << 62)}
    assert read_origin(written) == origin
    assert read_origin([1]) == [1]
