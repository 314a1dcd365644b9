"""queue-ti: expiry and its reapers, purges, and what is deleted by its key."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi


def statuses(queue_ti: QueueTi, topic: str) -> list[str]:
    """The statuses of the messages of a topic."""
    return [item["status"] for item in queue_ti.items(topic)]


@pins(18, 28, 33, 34, 36, 37)
def test_what_is_past_its_time_is_marked_without_a_dequeue_and_deleted_by_the_other_reaper(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    queue_ti.configure(name, message_ttl_seconds=60)
    waiting, held = queue_ti.send(name, "1"), queue_ti.send(name, "2")
    (taken,) = queue_ti.dequeue(name, visibility_timeout_seconds=600)
    at(61)
    queue_ti.send(name, "3")

    marked = queue_ti.ok("POST", "/admin/expiry-reaper/run")

    assert marked["expired"] >= 2
    expired = queue_ti.items(name, status="expired")
    assert sorted(item["id"] for item in expired) == sorted([waiting, held])
    assert {item["expires_at"] for item in expired} == {"2030-01-01T00:01:00Z"}
    queue_ti.refused("POST", f"/messages/{taken['id']}/ack", status=404)
    assert statuses(queue_ti, name) == ["pending", "expired", "expired"]

    assert queue_ti.ok("POST", "/admin/delete-reaper/run")["deleted"] >= 2
    assert statuses(queue_ti, name) == ["pending"]


@pins(24)
def test_a_message_past_its_time_is_not_handed_out_whether_it_is_marked_or_not(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    queue_ti.configure(name, message_ttl_seconds=60)
    queue_ti.send(name, "1")
    at(60)

    assert queue_ti.dequeue(name) == []


@pins(39)
def test_dead_letters_and_messages_without_a_ttl_do_not_expire(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    queue_ti.configure(f"{name}.a", message_ttl_seconds=0)
    queue_ti.send(f"{name}.a", "1")
    queue_ti.configure(f"{name}.b", message_ttl_seconds=60)
    queue_ti.send(f"{name}.b", "1")
    queue_ti.fail(f"{name}.b", 3)
    at(90 * 86_400)

    queue_ti.ok("POST", "/admin/expiry-reaper/run")

    assert statuses(queue_ti, f"{name}.a") == statuses(queue_ti, f"{name}.b.dlq") == ["pending"]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({}, ["failed"]),
        ({"statuses": ["pending"]}, ["processing", "expired", "failed"]),
        ({"statuses": ["processing"]}, ["pending", "expired", "failed"]),
        ({"statuses": ["expired"]}, ["pending", "processing", "failed"]),
        ({"statuses": ["expired", "pending"]}, ["processing", "failed"]),
    ],
)
def test_a_purge_deletes_what_has_the_statuses(
    queue_ti: QueueTi, name: str, at: At, body: Any, left: list[str]
) -> None:
    queue_ti.configure(name, max_retries=1, message_ttl_seconds=60)
    queue_ti.send(name, "expires")
    at(61)
    queue_ti.ok("POST", "/admin/expiry-reaper/run")
    queue_ti.send(name, "fails")
    queue_ti.fail(name, 1)
    queue_ti.send(name, "is taken")
    queue_ti.dequeue(name)
    queue_ti.send(name, "waits")
    assert sorted(statuses(queue_ti, name)) == ["expired", "failed", "pending", "processing"]

    deleted = queue_ti.ok("POST", f"/topics/{name}/purge", body)["deleted"]

    assert deleted == 4 - len(left)
    assert sorted(statuses(queue_ti, name)) == sorted(left)


def test_what_has_a_key_is_deleted_by_it_whatever_it_is_doing(queue_ti: QueueTi, name: str) -> None:
    for key in ("a/b c", "a/b c", "other"):
        queue_ti.send(name, "1", key=key)
    path = f"/topics/{name}/messages/by-key/a%2Fb%20c"

    assert queue_ti.ok("DELETE", path) == {"deleted": 1}
    assert queue_ti.ok("DELETE", path) == {"deleted": 0}
    assert [item["key"] for item in queue_ti.items(name)] == ["other"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/topics/NAME/purge", {"statuses": ["failed"]}, 400),
        ("POST", "/topics/NAME/purge", {"statuses": []}, 400),
        ("POST", "/topics/NAME/purge", {"status": "pending"}, 400),
        ("POST", "/topics/nowhere/purge", {}, 404),
        ("DELETE", "/topics/nowhere/messages/by-key/k", None, 404),
        ("DELETE", "/topics/NAME/messages/by-key/" + "k" * 201, None, 200),
        ("PUT", "/admin/delete-reaper/schedule", {"schedule": "every day"}, 400),
        ("PUT", "/admin/delete-reaper/schedule", {"schedule": 5}, 400),
        ("PUT", "/admin/delete-reaper/schedule", {}, 400),
    ],
)
def test_a_bad_removal_is_refused_and_removes_nothing(
    queue_ti: QueueTi, holdfast: Holdfast, name: str, method: str, path: str, body: Any, status: int
) -> None:
    queue_ti.send(name, "1")

    answer = queue_ti.call(method, path.replace("NAME", name), body)

    assert answer.status_code == status
    assert statuses(queue_ti, name) == ["pending"]
