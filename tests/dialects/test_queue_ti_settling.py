"""queue-ti: ack, nack and requeue by id; dead letters; leases that run out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi
from tests.fix_http import Serve, ServeProcess
from tests.waiting import eventually


@pins(14)
def test_an_acked_message_is_gone_and_cannot_be_acked_again(queue_ti: QueueTi, name: str) -> None:
    id = queue_ti.send(name, "x")
    queue_ti.dequeue(name)

    queue_ti.ack(id)

    assert queue_ti.dequeue(name) == []
    for verb in ("ack", "nack", "requeue"):
        queue_ti.refused("POST", f"/messages/{id}/{verb}", {}, status=404)


def test_a_message_that_waits_can_be_settled_by_nobody(queue_ti: QueueTi, name: str) -> None:
    id = queue_ti.send(name, "x")

    for verb in ("ack", "nack"):
        text = queue_ti.refused("POST", f"/messages/{id}/{verb}", status=404)
        assert text == f"message {id} is not processing"

    assert queue_ti.contents(name) == [b"x"]


@pins(3, 15)
def test_a_nacked_message_is_there_again_with_its_error(queue_ti: QueueTi, name: str) -> None:
    id = queue_ti.send(name, "x")
    queue_ti.fail(name, 1, "the address is unknown")

    (again,) = queue_ti.dequeue(name)

    assert (again["id"], again["retry_count"], again["max_retries"]) == (id, 1, 3)
    assert again["last_error"] == "the address is unknown"


@pins(10, 11, 12, 13)
def test_a_visibility_timeout_that_is_over_returns_the_message_without_counting(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    id = queue_ti.send(name, "x")
    (first,) = queue_ti.dequeue(name, visibility_timeout_seconds=60)
    at(59)
    assert queue_ti.dequeue(name) == []
    at(61)

    (again,) = queue_ti.dequeue(name)

    assert (first["id"], again["id"], again["retry_count"]) == (id, id, 0)
    assert again["visibility_timeout"] == "2030-01-01T00:01:31Z"


@pins(12)
def test_a_server_that_is_killed_loses_no_message(
    serve: Serve, serve_process: ServeProcess, name: str
) -> None:
    killed = serve_process()
    with QueueTi(killed.address) as there, QueueTi(serve().address) as here:
        ids = [there.send(name, content) for content in "123"]
        there.dequeue(name, visibility_timeout_seconds=1)
        (held,) = there.dequeue(name)

        killed.kill()

        back: list[str] = []

        def is_all_back() -> bool:
            back.extend(message["id"] for message in here.dequeue(name, 3))
            return len(back) == 2

        eventually(is_all_back, what="what waits, and what has waited for its time, is there")
        here.ack(held["id"])
        assert (sorted(back), held["id"]) == ([ids[0], ids[2]], ids[1])


@pins(6, 16, 29)
def test_at_the_threshold_a_message_moves_to_the_dead_letter_topic_and_back(
    queue_ti: QueueTi, name: str
) -> None:
    id = queue_ti.send(name, "x", key="k", metadata={"a": "1"})
    queue_ti.fail(name, 3, "no")
    assert queue_ti.dequeue(name) == []

    (dead,) = queue_ti.dequeue(f"{name}.dlq")

    assert (dead["id"], dead["retry_count"], dead["max_retries"]) == (id, 0, 0)
    assert (dead["original_topic"], dead["last_error"], dead["key"]) == (name, "no", "k")
    assert dead["dlq_moved_at"] >= dead["created_at"]
    text = queue_ti.refused("POST", f"/messages/{id}/requeue", status=409)
    assert text == f"message {id} cannot be requeued now. Somebody is processing it"
    queue_ti.nack(id)
    for verb in ("requeue", "ack"):
        text = queue_ti.refused("POST", f"/messages/{id}/{verb}", status=404)
        assert text == f"message {id} has failed for good"


def test_requeue_says_that_a_message_with_the_key_is_in_the_way(queue_ti: QueueTi, name: str) -> None:
    id = queue_ti.send(name, "x", key="k")
    queue_ti.fail(name, 3)
    queue_ti.send(name, "newer", key="k")

    text = queue_ti.refused("POST", f"/messages/{id}/requeue", status=409)

    assert text == f"message {id} cannot be requeued now. {name} has a message with its key"


def test_what_has_failed_for_good_can_be_sent_once_more_natively(
    queue_ti: QueueTi, holdfast: Holdfast, name: str
) -> None:
    id = queue_ti.send(name, "x", key="k")
    queue_ti.fail(name, 3)
    queue_ti.fail(f"{name}.dlq", 1)

    holdfast.replay(f"{name}.dlq", outcomes=["failed"], target=name)

    (again,) = queue_ti.dequeue(name)
    assert (again["id"], again["key"], again["retry_count"], again["original_topic"]) == (id, None, 0, None)


@pins(17, 30)
def test_requeue_restores_a_dead_letter_under_its_id(queue_ti: QueueTi, name: str) -> None:
    id = queue_ti.send(name, "x", key="k", metadata={"a": "1"})
    queue_ti.fail(name, 3)

    queue_ti.requeue(id)

    (back,) = queue_ti.dequeue(name)
    assert (back["id"], back["topic"], back["retry_count"], back["max_retries"]) == (id, name, 0, 3)
    assert (back["original_topic"], back["dlq_moved_at"]) == (None, None)
    queue_ti.nack(id)
    queue_ti.fail(name, 2)
    (dead,) = queue_ti.dequeue(f"{name}.dlq")
    assert dead["id"] == id


@pins(30)
@pytest.mark.parametrize("then", [{"dead_letter": "graves"}, {"dead_letter": False}, None])
def test_requeue_works_when_the_topic_buries_elsewhere_by_then(
    queue_ti: QueueTi, holdfast: Holdfast, name: str, then: dict[str, Any] | None
) -> None:
    id = queue_ti.send(name, "x")
    queue_ti.fail(name, 3)
    if then is None:
        queue_ti.configure(name, max_retries=1)
    else:
        holdfast.configure_queue(name, then)

    queue_ti.requeue(id)

    assert queue_ti.contents(name) == [b"x"]


@pins(27)
def test_nothing_is_left_of_an_acked_message(queue_ti: QueueTi, name: str) -> None:
    id = queue_ti.send(name, "x")
    queue_ti.dequeue(name)

    queue_ti.ack(id)

    assert queue_ti.items(name) == queue_ti.items(name, status="deleted") == []


@pins(24)
def test_the_oldest_message_is_first(queue_ti: QueueTi, name: str) -> None:
    for content in "1234":
        queue_ti.send(name, content)
    queue_ti.fail(name, 1)

    assert queue_ti.contents(name) == [b"1", b"2", b"3", b"4"]


@pins(24)
def test_messages_with_a_key_are_before_the_others_each_the_oldest_first(
    queue_ti: QueueTi, name: str
) -> None:
    for number in "12":
        queue_ti.send(name, f"plain {number}")
        queue_ti.send(name, f"keyed {number}", key=number)

    taken = [queue_ti.contents(name, 1)[0] for _ in range(4)]

    assert taken == [b"keyed 1", b"keyed 2", b"plain 1", b"plain 2"]


@pins(25)
def test_consumers_that_come_together_get_different_messages(queue_ti: QueueTi, name: str) -> None:
    ids = [queue_ti.send(name, "x") for _ in range(40)]

    with ThreadPoolExecutor(8) as consumers:
        taken = list(consumers.map(lambda _: queue_ti.dequeue(name, 5), range(8)))

    assert sorted(message["id"] for messages in taken for message in messages) == sorted(ids)
