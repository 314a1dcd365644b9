"""queue-ti: what is listed of messages, with every column, and how many there are."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi

T0 = "2030-01-01T00:00:00Z"
COLUMNS = [
    "id", "topic", "payload", "metadata", "key", "status", "retry_count", "max_retries", "last_error",
    "visibility_timeout", "expires_at", "original_topic", "dlq_moved_at", "created_at", "updated_at",
]  # fmt: skip


@pins(1, 2, 3, 4, 5, 7, 9)
def test_every_column_of_a_message_is_listed_through_its_life(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    id = queue_ti.send(name, "x", key="k", metadata={"a": "1"})
    fresh = queue_ti.item(name)
    at(1)
    queue_ti.dequeue(name)
    held = queue_ti.item(name)
    at(2)
    queue_ti.nack(id, "no")
    back = queue_ti.item(name)

    assert sorted(fresh) == sorted(COLUMNS)
    assert fresh == {
        "id": id,
        "topic": name,
        "payload": "eA==",
        "metadata": {"a": "1"},
        "key": "k",
        "status": "pending",
        "retry_count": 0,
        "max_retries": 3,
        "last_error": None,
        "visibility_timeout": None,
        "expires_at": "2030-01-02T00:00:00Z",
        "original_topic": None,
        "dlq_moved_at": None,
        "created_at": T0,
        "updated_at": T0,
    }
    taken = {"status": "processing", "visibility_timeout": "2030-01-01T00:00:31Z"}
    assert held == {**fresh, **taken, "updated_at": "2030-01-01T00:00:01Z"}
    failed = {"retry_count": 1, "last_error": "no", "updated_at": "2030-01-01T00:00:02Z"}
    assert back == {**fresh, **failed}


@pins(6, 16, 29)
def test_a_dead_letter_is_listed_in_its_topic_until_it_is_requeued(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    id = queue_ti.send(name, "x")
    at(1)
    queue_ti.fail(name, 3)
    assert queue_ti.items(name) == []

    dead = queue_ti.item(f"{name}.dlq")
    at(2)
    queue_ti.requeue(id)
    back = queue_ti.item(name)

    assert (dead["id"], dead["status"], dead["retry_count"], dead["max_retries"]) == (id, "pending", 0, 0)
    assert (dead["original_topic"], dead["dlq_moved_at"]) == (name, "2030-01-01T00:00:01Z")
    assert (dead["created_at"], dead["updated_at"]) == (T0, "2030-01-01T00:00:01Z")
    assert (dead["expires_at"], dead["last_error"]) == (None, "no")
    assert (back["id"], back["status"], back["retry_count"], back["max_retries"]) == (id, "pending", 0, 3)
    assert (back["original_topic"], back["dlq_moved_at"]) == (None, None)
    assert (back["created_at"], back["updated_at"]) == (T0, "2030-01-01T00:00:02Z")
    assert queue_ti.items(f"{name}.dlq") == []


@pins(2, 26)
def test_a_message_without_retries_and_below_the_threshold_ends_failed(
    queue_ti: QueueTi, name: str
) -> None:
    queue_ti.configure(name, max_retries=2)
    id = queue_ti.send(name, "x")

    queue_ti.fail(name, 2, "why")

    item = queue_ti.item(name)
    assert (item["id"], item["status"], item["retry_count"]) == (id, "failed", 2)
    assert (item["max_retries"], item["last_error"]) == (2, "why")
    assert (queue_ti.dequeue(name), queue_ti.items(f"{name}.dlq")) == ([], [])


@pins(10)
def test_a_visibility_timeout_that_is_over_is_listed_as_pending(queue_ti: QueueTi, name: str, at: At) -> None:
    queue_ti.send(name, "x")
    queue_ti.dequeue(name)
    at(31)

    assert (queue_ti.item(name)["status"], queue_ti.items(name, status="processing")) == ("pending", [])
    assert {"topic": name, "status": "pending", "count": 1} in queue_ti.ok("GET", "/stats")["topics"]


def test_pages_have_everything_once_and_the_total(queue_ti: QueueTi, name: str) -> None:
    ids = [queue_ti.send(name, str(number)) for number in range(5)]
    queue_ti.dequeue(name, 2)

    def page(**query: Any) -> tuple[list[str], int, int, int]:
        found = queue_ti.ok("GET", "/messages", params={"topic": name, **query})
        return [item["id"] for item in found["items"]], found["total"], found["limit"], found["offset"]

    assert page() == (ids, 5, 50, 0)
    assert page(limit=2) == (ids[:2], 5, 2, 0)
    assert page(limit=2, offset=4) == (ids[4:], 5, 2, 4)
    assert page(limit=1000, offset=9) == ([], 5, 200, 9)
    assert page(status="processing") == (ids[:2], 2, 50, 0)
    assert page(status="pending", offset=1) == (ids[3:], 3, 50, 1)


def test_without_a_topic_all_are_paged_one_after_the_other(queue_ti: QueueTi, name: str) -> None:
    topics = [f"{name}.a", f"{name}.b", f"{name}.c"]
    ids = [queue_ti.send(topic, "x") for topic in topics for _ in range(2)]
    total = queue_ti.ok("GET", "/messages")["total"]

    found: list[str] = []
    for offset in range(0, total, 3):
        document = queue_ti.ok("GET", "/messages", params={"limit": 3, "offset": offset})
        found += [item["id"] for item in document["items"] if item["topic"] in topics]

    assert found == ids


def test_stats_count_what_there_is_by_topic_and_status(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    queue_ti.configure(name, max_retries=1, message_ttl_seconds=60)
    for content in "1234":
        queue_ti.send(name, content)
    queue_ti.fail(name, 1)
    queue_ti.dequeue(name)

    def counts() -> dict[str, int]:
        every = queue_ti.ok("GET", "/stats")["topics"]
        return {one["status"]: one["count"] for one in every if one["topic"] == name}

    assert counts() == {"pending": 2, "processing": 1, "failed": 1}


def test_what_was_sent_natively_is_listed_too(queue_ti: QueueTi, holdfast: Holdfast, name: str) -> None:
    holdfast.create_queue(name, {"max_deliveries": 9})
    holdfast.send(name, {"b": 1}, headers={"n": 1})
    holdfast.send(name, {"later": True}, delay=60)

    first, second = queue_ti.items(name)

    assert (first["payload"], first["metadata"], first["max_retries"]) == ("eyJiIjogMX0=", {"n": 1}, 9)
    assert (first["status"], second["status"]) == ("pending", "pending")


@pytest.mark.parametrize(
    "origin",
    [
        5,
        [],
        {"root_id": "x"},
        {"root_id": -1},
        {"root_id": True},
        {"root_id": 2**63},
        {"queue": 5, "died_at": "x"},
        {"queue": "q"},
        {"queue": "q", "died_at": "0001-01-01T00:00:00+14:00"},
        {"enqueued_at": "9999-12-31T23:59:59-14:00"},
    ],
)
def test_an_origin_that_somebody_has_written_is_listed_as_none(
    queue_ti: QueueTi, module_url: str, name: str, origin: Any
) -> None:
    id = queue_ti.send(name, "x", key="k")
    with psycopg.connect(module_url, autocommit=True) as connection:
        connection.execute(
            "update holdfast.message set origin = %s where key = 'k' and queue_id = "
            "(select id from holdfast.queue where name = %s)",
            [Jsonb(origin), name],
        )

    assert (queue_ti.item(name)["original_topic"], queue_ti.dequeue(name)[0]["id"]) == (None, id)


def test_a_blocked_message_is_pending(queue_ti: QueueTi, holdfast: Holdfast, name: str) -> None:
    holdfast.create_queue(name, {"ordering": "key", "on_dead": "block", "max_deliveries": 1})
    for number in (1, 2):
        holdfast.send(name, number, ordering_key="k")
    (delivery,) = holdfast.claim(name, 2)
    holdfast.nack(name, delivery.token)

    assert [item["status"] for item in queue_ti.items(name)] == ["pending", "pending"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "offset=-1", "status=ready", "key=%00", "colour=red", "offset=1000001"]
)
def test_a_bad_page_is_refused(queue_ti: QueueTi, name: str, query: str) -> None:
    queue_ti.send(name, "x")

    queue_ti.refused("GET", f"/messages?topic={name}&{query}", status=400)
