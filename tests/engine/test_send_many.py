"""send_batch and send_many: many messages in one call.

1. Both return the ids in the order of the messages given.
2. send_batch gives all messages the same options; send_many gives each its own.
3. An empty batch sends nothing and returns an empty array.
4. Durations in send_many are interval text or a number of seconds; bodies are base64.
5. One bad message refuses the whole call, and nothing is stored.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, ids, payloads

TRACE = UUID("01234567-89ab-cdef-0123-456789abcdef")

# Messages that send_many refuses, and why.
BAD: list[tuple[Any, str]] = [
    (5, "QH203"),
    (None, "QH203"),
    ([], "QH203"),
    ({"colour": "red"}, "QH203"),
    ({"payload": 1, "body": "AA=="}, "QH203"),
    ({"body": "not base64!"}, "QH203"),
    ({"body": 5}, "QH203"),
    ({"headers": []}, "QH203"),
    ({"headers": "x"}, "QH203"),
    ({"priority": "high"}, "QH203"),
    ({"priority": 1.5}, "QH203"),
    ({"priority": 99999999999}, "QH203"),
    ({"delay": "soon"}, "QH203"),
    ({"deliver_at": "soon"}, "QH203"),
    ({"correlation_id": "x"}, "QH203"),
    ({"max_deliveries": "many"}, "QH203"),
    *(
        ({field: value}, "QH203")
        for field in ("content_type", "tag", "ordering_key", "key", "idempotency_key")
        for value in (5, True, {"a": 1}, ["a"])
    ),
    ({"body": 1234}, "QH203"),
    ({"deliver_at": 20300102}, "QH203"),
    ({"deliver_at": 20290102}, "QH203"),
    ({"expires_at": 20300102}, "QH203"),
    ({"headers": {"x": "y" * 65536}}, "QH202"),
    ({"payload": "x" * 1048576}, "QH201"),
    ({"priority": 11}, "QH204"),
    ({"priority": -1}, "QH204"),
    ({"delay": -1}, "QH205"),
    ({"delay": 1, "deliver_at": "2031-01-01T00:00:00Z"}, "QH205"),
    ({"delay": "11 years"}, "QH205"),
    ({"deliver_at": "infinity"}, "QH205"),
    ({"ttl": 0}, "QH206"),
    ({"ttl": 1, "expires_at": "2031-01-01T00:00:00Z"}, "QH206"),
    ({"tag": "x" * 201}, "QH207"),
    ({"content_type": "x" * 201}, "QH207"),
    ({"max_deliveries": 1001}, "QH210"),
]


def test_a_batch_returns_its_ids_in_order(queue: Engine) -> None:
    sent = queue.send_numbers(100)

    rows = queue.claim(100)

    assert sent == list(range(sent[0], sent[0] + 100))
    assert ids(rows) == sent
    assert payloads(rows) == list(range(100))


def test_the_options_of_a_batch_are_those_of_each_message(queue: Engine) -> None:
    queue.send_numbers(
        2,
        content_type="t",
        headers={"h": 1},
        priority=4,
        delay="5 s",
        ttl="1 h",
        correlation_id=TRACE,
        tag="g",
        max_deliveries=2,
    )

    early = queue.claim(10)
    queue.at(T0 + timedelta(seconds=5))
    rows = queue.claim(10)

    assert early == []
    fields = ("content_type", "headers", "priority", "correlation_id", "tag", "max_deliveries")
    assert [tuple(row[field] for field in fields) for row in rows] == [("t", {"h": 1}, 4, TRACE, "g", 2)] * 2
    expiry = queue.look("select array_agg(expires_at) from holdfast.message")
    assert expiry == [T0 + timedelta(hours=1)] * 2


def test_a_null_in_a_batch_is_a_message_without_a_payload(queue: Engine) -> None:
    queue.value("send_batch", queue="q", payloads=[Jsonb(None), None, Jsonb(1)])

    nulls = queue.conn.execute(
        "select payload is null, payload = 'null' from holdfast.message order by id"
    ).fetchall()

    assert nulls == [(False, True), (True, None), (False, False)]


@pytest.mark.parametrize("nothing", [[], None])
def test_an_empty_batch_sends_nothing(queue: Engine, nothing: list[Any] | None) -> None:
    assert queue.value("send_batch", queue="q", payloads=nothing) == []
    assert queue.value("send_many", queue="q", messages=Jsonb([])) == []
    assert queue.claim(1) == []


def test_many_gives_each_message_its_own_options(queue: Engine) -> None:
    sent = queue.value(
        "send_many",
        queue="q",
        messages=Jsonb(
            [
                {"payload": {"n": 1}, "tag": "a", "headers": {"h": "v"}, "content_type": "t"},
                {"body": "AP8=", "priority": 2, "correlation_id": str(TRACE), "max_deliveries": 9},
                {
                    "payload": None,
                    "headers": None,
                    "priority": None,
                    "delay": None,
                    "ttl": None,
                    "body": None,
                },
                {},
            ]
        ),
    )

    rows = {row["id"]: row for row in queue.claim(10)}

    first, second, third, fourth = (rows[i] for i in sent)
    assert (first["payload"], first["tag"], first["headers"], first["content_type"]) == (
        {"n": 1},
        "a",
        {"h": "v"},
        "t",
    )
    assert (second["body"], second["priority"], second["correlation_id"], second["max_deliveries"]) == (
        b"\x00\xff",
        2,
        TRACE,
        9,
    )
    assert (third["payload"], third["headers"], third["priority"], third["body"]) == (None, None, 0, None)
    assert (fourth["payload"], fourth["body"]) == (None, None)


def test_many_returns_ids_in_order_across_priorities(queue: Engine) -> None:
    priorities = [0, 5, 0, 5, 3]

    sent = queue.value(
        "send_many",
        queue="q",
        messages=Jsonb([{"payload": n, "priority": p} for n, p in enumerate(priorities)]),
    )

    by_id = dict(queue.conn.execute("select id, payload from holdfast.message").fetchall())
    assert [by_id[i] for i in sent] == [0, 1, 2, 3, 4]
    assert payloads(queue.claim(10)) == [1, 3, 4, 0, 2]


@pytest.mark.parametrize("delay", [90, 90.0, "90 s", "1 min 30 s", "00:01:30"])
def test_durations_are_seconds_or_text(queue: Engine, delay: Any) -> None:
    queue.value("send_many", queue="q", messages=Jsonb([{"payload": 1, "delay": delay, "ttl": delay}]))

    times = queue.conn.execute("select due_at, expires_at from holdfast.message").fetchall()

    assert times == [(T0 + timedelta(seconds=90), T0 + timedelta(seconds=90))]


def test_times_in_many_are_iso(queue: Engine) -> None:
    message = {"deliver_at": "2030-01-01T01:00:00+01:00", "expires_at": "2030-01-02T00:00:00Z"}

    queue.value("send_many", queue="q", messages=Jsonb([message]))

    times = queue.conn.execute("select due_at, expires_at from holdfast.message").fetchall()
    assert times == [(None, T0 + timedelta(days=1))]


@pytest.mark.parametrize(("message", "code"), BAD)
def test_one_bad_message_refuses_the_whole_call(refusing: Engine, message: Any, code: str) -> None:
    before = refusing.state()

    with pytest.raises(psycopg.Error) as caught:
        refusing.value("send_many", queue="q", messages=Jsonb([{"payload": "good"}, message]))

    assert caught.value.sqlstate == code
    assert refusing.state() == before


@pytest.mark.parametrize("messages", [{}, "x", 5, None])
def test_messages_must_be_an_array(refusing: Engine, messages: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.value("send_many", queue="q", messages=Jsonb(messages))

    assert caught.value.sqlstate == "QH203"


def test_a_null_instead_of_messages_is_refused(refusing: Engine) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.value("send_many", queue="q", messages=None)

    assert caught.value.sqlstate == "QH203"


def test_the_queues_ttl_holds_for_batches_too(engine: Engine) -> None:
    engine.create("q", ttl="10 s")

    engine.send_numbers(1)
    engine.value("send_many", queue="q", messages=Jsonb([{}, {"ttl": 60}]))

    lives = engine.look(
        "select array_agg(extract(epoch from expires_at - enqueued_at)::int order by id)"
        " from holdfast.message"
    )
    assert lives == [10, 10, 60]


def test_many_takes_its_json_as_text(queue: Engine) -> None:
    sent = queue.look("select holdfast.send_many('q', %s::jsonb)", json.dumps([{"payload": 1}]))

    assert ids(queue.claim(1)) == sent
