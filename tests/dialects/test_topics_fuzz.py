"""Topics: whatever is sent, the answer is one of the dialect's own, and none is the server's fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dialects.topics import Topics

PROFILE = settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))

texts = st.text(max_size=5) | st.sampled_from(["n", "\x00", "lease_", "queue", "x" * 300, "\ud7ff", "*"])
whole = st.sampled_from([0, 1, -1, 1000, 1001, 2**31, 2**40, 2**53 - 1, 2**53, 2**63, 2**64])
numbers = whole | st.sampled_from([1.5, -0.0, 1e308])
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)

FIELDS: dict[str, list[str]] = {
    "PUT ": [
        "type", "ttl_ms", "cap_records", "cap_bytes", "discard", "durable", "durability", "priority",
        "auto_create", "idempotency_window_ms", "dedupe_node", "lease_ms", "claim_jitter_ms",
        "max_deliveries", "dead_letter", "leases_durable",
    ],
    "POST ": ["records", "node", "idempotency_key", "create", "config"],
    "POST /diff": ["from_seq", "limit", "node", "include_tags", "include_meta"],
    "POST /delete": ["before_seq", "match"],
    "POST /claim": ["node", "max", "lease_ms"],
    "POST /ack": ["node", "seqs", "lease_ids"],
    "POST /nack": ["node", "seqs", "lease_ids", "delay_ms"],
    "POST /extend": ["node", "seqs", "lease_ids", "lease_ms"],
}  # fmt: skip
SENSE: dict[str, Any] = {
    "node": "n", "seqs": [1], "records": [{"data": 1}], "lease_ms": 1000, "type": "queue", "match": "x",
}  # fmt: skip


def bodies(fields: list[str]) -> st.SearchStrategy[Any]:
    """Bodies with these fields, of which some make sense."""
    some = {
        field: st.just(SENSE[field]) | values if field in SENSE else values for field in fields
    }
    return st.fixed_dictionaries({}, optional=some) | values


@pytest.mark.parametrize("route", FIELDS)
def test_no_body_is_the_fault_of_the_server(topics: Topics, name: str, route: str) -> None:
    topics.queue(name)
    method, _, path = route.partition(" ")

    @PROFILE
    @given(bodies(FIELDS[route]))
    def send(body: Any) -> None:
        response = topics.call(method, f"/v0/topics/{name}{path}", body)

        assert response.status_code in (200, 201, 400, 404, 409, 415, 422), (body, response.text)

    send()

    assert topics.get(name)["type"] == "queue"


@PROFILE
@given(st.dictionaries(st.sampled_from(["node", "max", "lease_ms", "token", "x"]), texts, min_size=1))
def test_no_query_is_the_fault_of_the_server(topics: Topics, query: dict[str, str]) -> None:
    response = topics.call("HEAD", "/v0/topics/nowhere/work", params=query)

    assert response.status_code in (200, 400, 404)


@PROFILE
@given(st.fixed_dictionaries({}, optional={"topics": values, "limit": values, "heartbeat_ms": values}))
def test_no_watch_is_the_fault_of_the_server(topics: Topics, body: Any) -> None:
    assert topics.call("POST", "/v0/watch", body).status_code in (400, 404)


@PROFILE
@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", max_size=40))
def test_no_name_of_a_watch_is_the_fault_of_the_server(topics: Topics, wid: str) -> None:
    assert topics.call("HEAD", f"/v0/watch/wid_{wid}").status_code == 404
