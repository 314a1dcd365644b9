"""queue-ti: what is sent is what is taken; keys; what is refused."""

from __future__ import annotations

from tests.dialects.queue_ti import QueueTi, content_of


def test_what_is_sent_is_taken_byte_by_byte(queue_ti: QueueTi, name: str) -> None:
    content = bytes(range(256))
    id = queue_ti.send(name, content, metadata={"a": "1"})

    (message,) = queue_ti.dequeue(name)

    assert content_of(message) == content
    assert (message["id"], message["topic"], message["status"]) == (id, name, "processing")
    assert (message["metadata"], message["key"], message["retry_count"]) == ({"a": "1"}, None, 0)


def test_a_topic_that_is_not_there_is_empty(queue_ti: QueueTi, name: str) -> None:
    assert queue_ti.dequeue(name) == []
