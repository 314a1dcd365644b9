"""FoundryDB: whatever is sent, nothing is the fault of the server, and what is refused changes nothing."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dialects.conftest import Rows
from tests.dialects.foundrydb import FoundryDb

PROFILE = settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))

texts = st.text(max_size=5) | st.sampled_from(["eA==", "\x00", "a.dlq", "x" * 300, "\ud7ff", "*", "a b"])
whole = st.sampled_from([0, 1, -1, 100, 101, 43_200, 43_201, 2**31, 2**53, 2**63, 2**64])
scalars = st.none() | st.booleans() | whole | st.sampled_from([1.5, -0.0, 1e308]) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
SETTINGS = ["database_name", "visibility_timeout_seconds", "max_attempts", "dlq_enabled"]
WRONG = ["id", "status", "visibility_timeout", "attempts"]


def bodies(fields: list[str], required: list[str]) -> st.SearchStrategy[Any]:
    """Bodies with some of these fields."""
    return st.fixed_dictionaries(
        dict.fromkeys(required, values), optional=dict.fromkeys(fields, values)
    )


@pytest.fixture(scope="module")
def queue(foundrydb: FoundryDb) -> str:
    """A queue that is there."""
    foundrydb.opened("fuzzed")
    return "fuzzed"


@pytest.fixture(scope="module")
def empty(foundrydb: FoundryDb) -> str:
    """One that nothing ever comes to."""
    foundrydb.opened("empty")
    return "empty"


@PROFILE
@given(bodies(["name", *SETTINGS], []) | values)
def test_no_body_makes_a_queue_by_the_fault_of_the_server(foundrydb: FoundryDb, body: Any) -> None:
    # Nothing is to be made by chance: its name would be left behind.
    if isinstance(body, dict) and isinstance(body.get("name"), str):
        body["name"] = "X" + body["name"]

    assert foundrydb.call("POST", "", body).status_code in (400, 413, 415)


@PROFILE
@given(st.data())
def test_what_is_refused_makes_no_queue(foundrydb: FoundryDb, data: st.DataObject) -> None:
    wrong = data.draw(st.sampled_from(WRONG))
    body = data.draw(bodies(SETTINGS, [wrong])) | {"name": "never"}

    foundrydb.refused("POST", "", body, status=400, code="QH911")

    assert "never" not in foundrydb.names()


messages = st.lists(bodies(["payload", "delay_seconds", "priority"], []) | values, max_size=3)


@PROFILE
@given(bodies([], ["messages"]) | st.fixed_dictionaries({"messages": messages}) | values)
def test_no_batch_is_the_fault_of_the_server(foundrydb: FoundryDb, queue: str, body: Any) -> None:
    assert foundrydb.call("POST", f"/{queue}/messages", body).status_code in (202, 400, 413, 415)


@PROFILE
@given(st.data())
def test_a_batch_is_refused_for_one_of_its_messages_and_none_is_sent(
    foundrydb: FoundryDb, empty: str, rows: Rows, data: st.DataObject
) -> None:
    good: Any = {"payload": 1}
    bad = data.draw(
        bodies(["delay_seconds"], [])  # without a payload
        | bodies([], ["payload", "priority"])
        | st.fixed_dictionaries({"payload": values, "delay_seconds": st.sampled_from([-1, 43_201, 1.5, "1"])})
    )
    batch = [good, good]
    batch.insert(data.draw(st.integers(0, 2)), bad)

    assert foundrydb.call("POST", f"/{empty}/messages", {"messages": batch}).status_code == 400

    assert rows("select id from mdb_queue.messages where queue_name = %s", empty) == []


@PROFILE
@given(st.dictionaries(st.sampled_from(["task_id", "limit", "x"]), texts, min_size=1))
def test_no_query_is_the_fault_of_the_server(
    foundrydb: FoundryDb, queue: str, query: dict[str, str]
) -> None:
    for path in ("messages", "stats"):
        assert foundrydb.call("GET", f"/{queue}/{path}", params=query).status_code in (400, 404)


@PROFILE
@given(texts.filter(lambda text: text not in ("", ".", "..")), st.uuids() | texts)
def test_no_name_is_the_fault_of_the_server(foundrydb: FoundryDb, name: str, task: Any) -> None:
    part = quote(name, safe="")

    for method, path in (
        ("GET", f"/{part}"),
        ("DELETE", f"/{part}"),
        ("POST", f"/{part}/stats"),
        ("GET", f"/{part}/stats"),
    ):
        options = {"params": {"task_id": str(task)}} if path.endswith("stats") and method == "GET" else {}
        assert foundrydb.call(method, path, **options).status_code in (400, 404), (method, path)
    with foundrydb.of(part) as elsewhere:
        assert elsewhere.call("GET").status_code in (400, 404)
