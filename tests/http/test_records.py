"""Routes of logs: read, delete, figures."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from tests.fix_http import Caller

EVENTS = "/v1/queues/events"


@pytest.fixture
def events(http: Caller, engine: Holdfast) -> Caller:
    """A server with a log of five records."""
    engine.create_queue("events", {"kind": "log"})
    engine.send_batch("events", [{"n": n} for n in range(5)])
    return http


def test_records_are_read_in_their_order_page_by_page(events: Caller) -> None:
    first = events.ok("GET", f"{EVENTS}/records", params={"limit": 2})["records"]
    rest = events.ok("GET", f"{EVENTS}/records", params={"after": first[-1]["seq"]})["records"]

    assert [record["payload"]["n"] for record in [*first, *rest]] == [0, 1, 2, 3, 4]
    assert {record["kind"] for record in first} == {"record"}
    assert all(isinstance(record["seq"], str) for record in first)


def test_the_figures_of_a_log(events: Caller) -> None:
    records = events.ok("GET", f"{EVENTS}/records")["records"]

    found = events.ok("GET", f"{EVENTS}/records/stats")

    assert (found["records"], found["trimmed"]) == (5, 0)
    assert (found["first_seq"], found["last_seq"]) == (records[0]["seq"], records[-1]["seq"])


def test_records_are_deleted(events: Caller) -> None:
    seqs = [record["seq"] for record in events.ok("GET", f"{EVENTS}/records")["records"]]

    assert events.ok("POST", f"{EVENTS}/records/delete", {"seqs": [seqs[4]]}) == {"deleted": 1}
    assert events.ok("POST", f"{EVENTS}/records/delete", {"before": seqs[2]}) == {"deleted": 2}

    left = [
        record for record in events.ok("GET", f"{EVENTS}/records")["records"] if record["kind"] == "record"
    ]
    assert [record["payload"]["n"] for record in left] == [2, 3]


def test_records_are_deleted_by_their_tag(events: Caller, engine: Holdfast) -> None:
    engine.send("events", 1, tag="Käse/1")

    assert events.ok("POST", f"{EVENTS}/records/delete", {"tag": "Käse/1"}) == {"deleted": 1}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "QH605"),
        ({"seqs": ["1"], "tag": "a"}, "QH605"),
        ({"before": "1", "limit": 0}, "QH402"),
        ({"seqs": ["x"]}, "QH911"),
        ({"tag": "a\0"}, "QH911"),
        ({"all": True}, "QH911"),
    ],
)
def test_a_bad_deletion_is_refused(events: Caller, body: Any, code: str) -> None:
    events.refused("POST", f"{EVENTS}/records/delete", body, status=422, code=code)


@pytest.mark.parametrize(
    ("query", "code"), [("limit=0", "QH402"), ("after=x", "QH911"), ("after=9223372036854775807", "QH605")]
)
def test_a_bad_question_about_records_is_refused(events: Caller, query: str, code: str) -> None:
    events.refused("GET", f"{EVENTS}/records?{query}", status=422, code=code)


def test_what_is_the_business_of_logs_alone_is_refused_for_queues(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders", {"shards": 2})

    http.refused("GET", "/v1/queues/orders/records", status=409, code="QH603")
    http.refused("GET", "/v1/queues/orders/records/stats", status=409, code="QH603")
    http.refused("POST", "/v1/queues/orders/records/delete", {"before": "1"}, status=409, code="QH603")
