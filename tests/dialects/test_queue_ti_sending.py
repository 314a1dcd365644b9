"""queue-ti: what is sent is what is taken; keys; what is refused."""

from __future__ import annotations

import pytest

from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi, content_of


@pins(1)
def test_what_is_sent_is_taken_byte_by_byte(queue_ti: QueueTi, name: str) -> None:
    content = bytes(range(256))
    id = queue_ti.send(name, content, metadata={"a": "1"})

    (message,) = queue_ti.dequeue(name)

    assert content_of(message) == content
    assert (message["id"], message["topic"], message["status"]) == (id, name, "processing")
    assert (message["metadata"], message["key"], message["retry_count"]) == ({"a": "1"}, None, 0)


def test_a_topic_that_is_not_there_is_empty(queue_ti: QueueTi, name: str) -> None:
    assert queue_ti.dequeue(name) == []


@pins(19)
def test_without_a_key_each_message_is_another_one(queue_ti: QueueTi, name: str) -> None:
    first, second = queue_ti.send(name, "x"), queue_ti.send(name, "x", key=None)

    assert [item["id"] for item in queue_ti.items(name)] == [first, second]


@pins(20)
def test_a_key_that_nobody_has_sends_a_message_of_its_own(queue_ti: QueueTi, name: str) -> None:
    ids = [queue_ti.send(name, "x", key=key) for key in "ab"]
    other = queue_ti.send(f"{name}.other", "x", key="a")

    assert [item["id"] for item in queue_ti.items(name)] == ids
    assert queue_ti.item(f"{name}.other")["id"] == other


@pins(7, 8, 21)
def test_a_message_that_waits_is_replaced_where_it_lies(queue_ti: QueueTi, name: str, at: At) -> None:
    queue_ti.configure(name, message_ttl_seconds=60)
    id = queue_ti.send(name, "old", key="k", metadata={"a": "1"})
    at(50)

    assert queue_ti.send(name, "new", key="k", metadata={"b": "2"}) == id

    item = queue_ti.item(name)
    assert (content_of(item), item["metadata"]) == (b"new", {"b": "2"})
    assert item["expires_at"] == "2030-01-01T00:01:50Z"
    assert (item["created_at"], item["updated_at"]) == ("2030-01-01T00:00:00Z", "2030-01-01T00:00:50Z")


@pytest.mark.parametrize("how", ["nack", "timeout", "requeue"])
@pins(21)
def test_a_message_that_waits_again_is_replaced_too(
    queue_ti: QueueTi, name: str, at: At, how: str
) -> None:
    id = queue_ti.send(name, "old", key="k")
    if how == "requeue":
        queue_ti.fail(name, 3)
        queue_ti.requeue(id)
    else:
        queue_ti.dequeue(name)
    if how == "nack":
        queue_ti.nack(id)
    at(31)

    assert queue_ti.send(name, "new", key="k") == id
    assert queue_ti.contents(name) == [b"new"]


@pins(22)
def test_a_message_that_is_processed_is_never_replaced(queue_ti: QueueTi, name: str) -> None:
    id = queue_ti.send(name, "old", key="k")
    (taken,) = queue_ti.dequeue(name)

    newer = queue_ti.send(name, "new", key="k")

    assert (taken["id"], newer) == (id, newer)
    assert newer != id
    assert queue_ti.send(name, "newest", key="k") == newer
    queue_ti.ack(id)
    assert queue_ti.contents(name) == [b"newest"]
