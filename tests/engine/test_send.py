"""send: one message, with every option.

1. send returns the message's id; what was sent is what is delivered, field for field.
2. Ids rise in the order of sends within a priority, and the id names its lane.
3. delay and deliver_at hold a message back until then; a time that is past means now.
4. ttl and expires_at end a message that nobody took in time; a queue's ttl is the default.
5. A higher priority goes first; within one, first in first out.
6. max_deliveries of the message goes before the queue's.
7. Payload and body exclude each other; a message may have neither.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, ids, payloads

SECOND = timedelta(seconds=1)
TRACE = UUID("01234567-89ab-cdef-0123-456789abcdef")


def test_every_option_arrives_as_it_was_sent(queue: Engine) -> None:
    sent = queue.send(
        {"a": [1, None]},
        content_type="application/vnd.x+json",
        headers={"h": {"deep": True}},
        priority=3,
        correlation_id=TRACE,
        tag="blue",
        max_deliveries=7,
        ttl="1 h",
    )

    row = queue.claim_one(lease="10 s", consumer="c")

    token = row.pop("token")
    assert token > 0
    assert row == {
        "id": sent,
        "queue": "q",
        "payload": {"a": [1, None]},
        "body": None,
        "content_type": "application/vnd.x+json",
        "headers": {"h": {"deep": True}},
        "priority": 3,
        "key": None,
        "ordering_key": None,
        "correlation_id": TRACE,
        "tag": "blue",
        "deliveries": 1,
        "max_deliveries": 7,
        "enqueued_at": T0,
        "deadline": T0 + 10 * SECOND,
        "last_error": None,
        "origin": None,
    }


def test_a_body_arrives_as_bytes(queue: Engine) -> None:
    queue.value("send", queue="q", body=b"\x00\xff\x00", content_type="image/png")

    row = queue.claim_one()

    assert (row["payload"], row["body"], row["content_type"]) == (None, b"\x00\xff\x00", "image/png")


def test_a_message_may_have_neither_payload_nor_body(queue: Engine) -> None:
    queue.value("send", queue="q", tag="signal")

    row = queue.claim_one()

    assert (row["payload"], row["body"], row["tag"]) == (None, None, "signal")


def test_ids_rise_and_carry_their_lane(queue: Engine) -> None:
    first, second = queue.send(1), queue.send(2)
    urgent = queue.send(3, priority=9)

    lanes = dict(queue.conn.execute("select priority, id from holdfast.lane").fetchall())

    assert second == first + 1
    assert (first >> 40, urgent >> 40) == (lanes[0], lanes[9])
    assert first == (lanes[0] << 40) + 1


def test_messages_of_one_priority_come_first_in_first_out(queue: Engine) -> None:
    queue.send_numbers(5)

    assert payloads(queue.claim(3)) == [0, 1, 2]
    assert payloads(queue.claim(3)) == [3, 4]


def test_higher_priorities_come_first(queue: Engine) -> None:
    for priority in (0, 10, 5, 10, 0):
        queue.send(priority, priority=priority)

    assert payloads(queue.claim(10)) == [10, 10, 5, 0, 0]


@pytest.mark.parametrize(
    "when", [{"delay": "10 s"}, {"delay": 10 * SECOND}, {"deliver_at": T0 + 10 * SECOND}]
)
def test_a_delayed_message_is_not_claimable_before_its_time(queue: Engine, when: dict[str, Any]) -> None:
    queue.send("later", **when)

    queue.at(T0 + 10 * SECOND - timedelta(microseconds=1))
    early = queue.claim(1)
    queue.at(T0 + 10 * SECOND)
    due = queue.claim(1)

    assert early == []
    assert payloads(due) == ["later"]


def test_a_delayed_message_does_not_hold_up_those_behind_it(queue: Engine) -> None:
    queue.send("tomorrow", delay="1 day")
    queue.send("today")

    assert payloads(queue.claim(10)) == ["today"]


def test_messages_due_come_in_the_order_they_became_due(queue: Engine) -> None:
    queue.send("second", delay="2 s")
    queue.send("third", delay="3 s")
    queue.send("first", delay="1 s")

    queue.at(T0 + 3 * SECOND)

    assert payloads(queue.claim(10)) == ["first", "second", "third"]


@pytest.mark.parametrize("when", [{"delay": "0 s"}, {"deliver_at": T0 - 99 * SECOND}, {"deliver_at": T0}])
def test_a_time_of_delivery_that_is_past_means_now(queue: Engine, when: dict[str, Any]) -> None:
    queue.send("now", **when)

    assert payloads(queue.claim(1)) == ["now"]


@pytest.mark.parametrize("life", [{"ttl": "10 s"}, {"expires_at": T0 + 10 * SECOND}])
def test_an_expired_message_ends_undelivered(queue: Engine, life: dict[str, Any]) -> None:
    queue.send("old", **life)
    queue.send("fresh")

    queue.at(T0 + 10 * SECOND)

    assert payloads(queue.claim(10)) == ["fresh"]
    assert queue.look("select count(*) from holdfast.message where payload = '\"old\"'") == 0


def test_a_message_can_be_claimed_until_its_last_moment(queue: Engine) -> None:
    queue.send("just", ttl="10 s")

    queue.at(T0 + 10 * SECOND - timedelta(microseconds=1))

    assert payloads(queue.claim(1)) == ["just"]


def test_a_delayed_message_can_expire_before_it_is_due(queue: Engine) -> None:
    queue.send("never", delay="20 s", ttl="10 s")

    queue.at(T0 + 20 * SECOND)

    assert queue.claim(1) == []
    assert queue.look("select count(*) from holdfast.message") == 0


def test_an_expired_message_in_flight_can_still_be_acked(queue: Engine) -> None:
    sent = queue.send("held", ttl="10 s")
    held = queue.claim_one()

    queue.at(T0 + 11 * SECOND)

    assert queue.settle("ack", held["token"]) == ([sent], [])


def test_the_queues_ttl_is_the_default_of_its_messages(engine: Engine) -> None:
    engine.create("q", ttl="10 s")
    engine.send("default")
    engine.send("longer", ttl="60 s")

    engine.at(T0 + 30 * SECOND)

    assert payloads(engine.claim(10)) == ["longer"]


def test_the_messages_max_deliveries_goes_before_the_queues(engine: Engine) -> None:
    engine.create("q", max_deliveries=3)
    engine.send("own", max_deliveries=1)
    engine.send("queue's")
    engine.send("unlimited", max_deliveries=0)

    rows = engine.claim(3)

    assert [row["max_deliveries"] for row in rows] == [1, 3, 0]


def test_sends_to_one_queue_are_not_seen_in_another(queue: Engine) -> None:
    queue.create("other")
    sent = queue.send("here")

    assert queue.claim(10, queue="other") == []
    assert ids(queue.claim(10)) == [sent]


def test_shards_deliver_everything_once(engine: Engine) -> None:
    engine.create("q", shards=4)
    sent = engine.send_numbers(10)

    got = ids(engine.claim(4)) + ids(engine.claim(4)) + ids(engine.claim(4))

    assert sorted(got) == sent


def test_all_but_the_queue_can_be_left_out_or_null(queue: Engine) -> None:
    content = ["payload", "body", "content_type", "headers", "priority", "correlation_id", "tag"]
    times = ["delay", "deliver_at", "ttl", "expires_at"]
    nothing: dict[str, Any] = dict.fromkeys([*content, *times, "max_deliveries"])

    queue.value("send", queue="q", **nothing)
    queue.value("send", queue="q")

    assert len(queue.claim(10)) == 2


def test_arguments_have_their_documented_order(queue: Engine) -> None:
    queue.conn.execute("select holdfast.send('q', %s, null, 'text/x', %s, 4)", [Jsonb(1), Jsonb({"a": "b"})])

    row = queue.claim_one()

    assert (row["content_type"], row["headers"], row["priority"]) == ("text/x", {"a": "b"}, 4)
