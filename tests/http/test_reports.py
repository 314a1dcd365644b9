"""Routes of reports: figures, reasons, dead letters, the archive, runs of pipelines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.fix_http import Caller

ORDERS = "/v1/queues/orders"
AGO = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


@pytest.fixture
def orders(http: Caller, engine: Holdfast) -> Caller:
    """A server with a queue that keeps what is done, and gives up after one failure."""
    engine.create_queue("orders", {"max_deliveries": 1, "keep": ["done"]})
    return http


def bury(engine: Holdfast, payload: Any, error: str) -> None:
    """Make a dead letter."""
    engine.send("orders", payload)
    (claimed,) = engine.claim("orders")
    engine.nack("orders", claimed.token, error=error)


def test_the_figures_of_a_queue(orders: Caller, engine: Holdfast) -> None:
    bury(engine, 0, "no")
    engine.send_batch("orders", [1, 2, 3])
    engine.send("orders", 4, delay=3600)
    engine.claim("orders")

    found = orders.ok("GET", f"{ORDERS}/stats")

    names = ("queue", "kind", "ready", "scheduled", "in_flight", "dead", "paused")
    assert tuple(found[name] for name in names) == ("orders", "queue", 2, 1, 1, 1, False)
    assert found["oldest_age"] >= 0


def test_why_nothing_moves(orders: Caller, engine: Holdfast) -> None:
    engine.send("orders", 1)
    engine.pause_queue("orders")

    found = orders.ok("GET", f"{ORDERS}/why")["findings"]

    assert "paused" in [finding["finding"] for finding in found]
    assert all(finding["remedy"] for finding in found)


def test_samples_of_each_minute(orders: Caller, engine: Holdfast, conn: psycopg.Connection[Any]) -> None:
    engine.maintain()
    engine.send_batch("orders", [1, 2])
    conn.execute("select holdfast.set_clock(now() + interval '2 min')")
    engine.maintain()

    found = orders.ok("GET", f"{ORDERS}/samples", params={"since": AGO, "until": SOON})["samples"]

    assert (sum(sample["sent"] for sample in found), found[-1]["ready"]) == (2, 2)
    assert all(sample["began"] < sample["ended"] for sample in found)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("samples?since=2040-01-02T00:00:00Z&until=2040-01-01T00:00:00Z", "QH421"),
        ("samples?since=yesterday", "QH911"),
        ("samples?since=1893456000", "QH911"),
        ("samples?since=null", "QH911"),
        ("archive?limit=null", "QH911"),
        ("samples?since=2040-01-01T00:00:00", "QH911"),
        ("rollups?bucket=7+s", "QH803"),
        ("rollups?bucket=soon", "QH911"),
        ("rollups?limit=0", "QH402"),
        ("rollups?since=2040-01-02T00:00:00Z&until=2040-01-01T00:00:00Z", "QH421"),
        ("archive?limit=0", "QH402"),
        ("archive?from=2040-01-02T00:00:00Z&to=2040-01-01T00:00:00Z", "QH411"),
        ("archive?after=x", "QH911"),
    ],
)
def test_a_bad_question_is_refused(refusing: Caller, path: str, code: str) -> None:
    refusing.refused("GET", f"{ORDERS}/{path}", status=422, code=code)


def test_rollups_of_a_queue(orders: Caller) -> None:
    assert orders.ok("GET", f"{ORDERS}/rollups", params={"bucket": "1 hour", "limit": 5}) == {"rollups": []}


def test_runs_of_pipelines(http: Caller, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.begin_run('load', '{\"path\": \"a\"}')")

    (run,) = http.ok("GET", "/v1/pipelines/runs")["runs"]

    assert (run["pipeline"], run["state"], run["parameters"]) == ("load", "running", {"path": "a"})
    assert http.ok("GET", "/v1/pipelines/runs", params={"pipeline": "other"}) == {"runs": []}
    http.refused("GET", "/v1/pipelines/runs?limit=0", status=422, code="QH402")


def test_what_is_kept_is_read_page_by_page(orders: Caller, engine: Holdfast) -> None:
    ids = orders.send("orders", 1, 2, 3)
    for _ in ids:
        engine.ack("orders", engine.claim("orders")[0].token)

    first = orders.ok("GET", f"{ORDERS}/archive", params={"limit": 2, "from": AGO, "to": SOON})["messages"]
    rest = orders.ok(
        "GET", f"{ORDERS}/archive", params={"from": first[-1]["ended_at"], "after": first[-1]["id"]}
    )["messages"]

    assert [entry["id"] for entry in [*first, *rest]] == ids
    assert {entry["state"] for entry in first} == {"done"}
    assert orders.ok("GET", f"{ORDERS}/messages/{ids[0]}")["state"] == "done"


def test_dead_letters_are_sent_back(orders: Caller, engine: Holdfast) -> None:
    bury(engine, 1, "timeout at noon")
    bury(engine, 2, "bad address")
    dead = {entry.payload: str(entry.id) for entry in engine.browse("orders", "dead")}

    (by_error,) = orders.ok("POST", f"{ORDERS}/redrive", {"filter": {"error": "timeout"}})["messages"]
    (by_id,) = orders.ok("POST", f"{ORDERS}/redrive", {"ids": [dead[2]]})["messages"]

    assert (by_error["id"], by_id["id"]) == (dead[1], dead[2])
    found = {message["id"]: message["payload"] for message in orders.claim("orders", max=10)}
    assert found == {by_error["new_id"]: 1, by_id["new_id"]: 2}
    assert orders.ok("POST", f"{ORDERS}/redrive") == {"messages": []}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"filter": {"size": 1}}, "QH403"),
        ({"filter": {"dead_before": "noon"}}, "QH403"),
        ({"filter": {"tag": "a\0"}}, "QH403"),
        ({"filter": []}, "QH911"),
        ({"limit": 0}, "QH402"),
        ({"target": "nowhere"}, "QH105"),
        ({"target": "a\0b"}, "QH911"),
        ({"ids": ["x"]}, "QH911"),
    ],
)
def test_a_bad_redrive_is_refused(refusing: Caller, body: Any, code: str) -> None:
    refusing.refused("POST", f"{ORDERS}/redrive", body, status=422, code=code)


def test_a_redrive_of_a_queue_without_dead_letters_is_refused(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders", {"dead_letter": False})

    http.refused("POST", f"{ORDERS}/redrive", status=422, code="QH105")


def test_what_is_kept_is_sent_once_more(orders: Caller, engine: Holdfast) -> None:
    engine.create_queue("again")
    (id,) = orders.send("orders", {"n": 1})
    engine.ack("orders", engine.claim("orders")[0].token)

    body = {"from": AGO, "to": SOON, "outcomes": ["done"], "limit": 10, "target": "again"}
    (repeated,) = orders.ok("POST", f"{ORDERS}/replay", body)["messages"]

    assert repeated["id"] == id
    (claimed,) = engine.claim("again")
    assert (str(claimed.id), claimed.payload) == (repeated["new_id"], {"n": 1})
    assert claimed.origin is not None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"outcomes": ["lost"]}, "QH411"),
        ({"target": "nowhere"}, "QH411"),
        ({"from": SOON, "to": AGO}, "QH411"),
        ({"limit": 10_001}, "QH402"),
        ({"from": "noon"}, "QH911"),
        ({"outcomes": "done"}, "QH911"),
        ({"after": -1}, "QH911"),
    ],
)
def test_a_bad_replay_is_refused(refusing: Caller, body: Any, code: str) -> None:
    refusing.refused("POST", f"{ORDERS}/replay", body, status=422, code=code)
