"""queue-ti: whatever is sent, nothing is the fault of the server, and what is refused changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dialects.queue_ti import QueueTi

PROFILE = settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))

texts = st.text(max_size=5) | st.sampled_from(["eA==", "\x00", "a.dlq", "x" * 300, "\ud7ff", "*", "a b"])
whole = st.sampled_from([0, 1, -1, 1000, 1001, 2**31, 2**40, 2**53, 2**63, 2**64])
scalars = st.none() | st.booleans() | whole | st.sampled_from([1.5, -0.0, 1e308]) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)

# What is refused for one of these fields, whatever is in it.
BAD: dict[str, list[str]] = {
    "POST /messages": ["payload_", "priority", "delay"],
    "POST /messages/dequeue": ["max", "consumer"],
    "POST /topics/NAME/purge": ["status"],
    "PUT /topic-configs/NAME": ["replayable", "ttl"],
    "PUT /topic-schemas/NAME": ["schema"],
    "PUT /admin/settings": ["retries"],
    "PUT /admin/delete-reaper/schedule": ["cron"],
}
FIELDS: dict[str, list[str]] = {
    "POST /messages": ["payload", "metadata", "key"],
    "POST /messages/dequeue": ["count", "visibility_timeout_seconds", "consumer_group"],
    "POST /topics/NAME/purge": ["statuses"],
    "PUT /topic-configs/NAME": ["max_retries", "message_ttl_seconds", "max_depth", "throughput_limit"],
    "PUT /topic-schemas/NAME": ["schema_json", "kind"],
    "PUT /admin/settings": ["visibility_timeout_seconds", "max_retries"],
    "PUT /admin/delete-reaper/schedule": ["schedule"],
}


def bodies(fields: list[str], required: list[str]) -> st.SearchStrategy[Any]:
    """Bodies with some of these fields."""
    return st.fixed_dictionaries(
        dict.fromkeys(required, values), optional=dict.fromkeys(fields, values)
    )


@pytest.mark.parametrize("route", FIELDS)
def test_no_body_is_the_fault_of_the_server(queue_ti: QueueTi, name: str, route: str) -> None:
    queue_ti.configure(name)
    usual = queue_ti.ok("GET", "/admin/settings")
    method, _, path = route.replace("NAME", name).partition(" ")

    @PROFILE
    @given(bodies(FIELDS[route], []) | values)
    def send(body: Any) -> None:
        if isinstance(body, dict) and path.startswith("/messages"):
            body = {"topic": name, **body}
        status = queue_ti.call(method, path, body).status_code

        assert status in (200, 201, 400, 413, 415, 422), body

    send()

    queue_ti.set(**usual)
    queue_ti.ok("PUT", "/admin/delete-reaper/schedule", {"schedule": ""})


@pytest.mark.parametrize("route", BAD)
def test_what_is_refused_changes_nothing(queue_ti: QueueTi, name: str, route: str) -> None:
    queue_ti.configure(name, max_retries=2)
    queue_ti.send(name, "x", key="k")
    method, _, path = route.replace("NAME", name).partition(" ")
    looks = ("/messages", f"/topic-configs/{name}", "/admin/settings", "/admin/delete-reaper/schedule")

    def state() -> list[Any]:
        return [queue_ti.ok("GET", look, params={"topic": name}) for look in looks]

    before = state()

    @PROFILE
    @given(st.data())
    def send(data: st.DataObject) -> None:
        wrong = data.draw(st.sampled_from(BAD[route]))
        body = data.draw(bodies(FIELDS[route], [wrong]))
        if path.startswith("/messages"):
            body["topic"] = name
        queue_ti.refused(method, path, body, status=400)

    send()

    assert state() == before


@PROFILE
@given(st.dictionaries(st.sampled_from(["topic", "status", "limit", "offset", "x"]), texts, min_size=1))
def test_no_query_is_the_fault_of_the_server(queue_ti: QueueTi, query: dict[str, str]) -> None:
    assert queue_ti.call("GET", "/messages", params=query).status_code in (200, 400)


@PROFILE
@given(st.uuids() | st.text("0123456789abcdef-", min_size=1, max_size=40))
def test_no_id_is_the_fault_of_the_server(queue_ti: QueueTi, id: Any) -> None:
    queue_ti.refused("POST", f"/messages/{id}/ack", status=404)
