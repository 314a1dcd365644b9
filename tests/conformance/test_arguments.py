"""What arguments may be. Claims pinned here:

1. A duration is a timedelta or a number of seconds.
2. A value of the wrong type is a TypeError that names the argument and what it takes; nothing is sent.
3. JSON and text that PostgreSQL cannot store have a code of Holdfast's.
4. A single text or object is not taken for many messages, nor a NewMessage for a payload.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, datetime
from typing import Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from holdfast import ERRORS, AsyncHoldfast, NewMessage

Scenario = Callable[[AsyncHoldfast, str], Awaitable[Any]]
TRACE = "6f1c2c9e-6f57-4b0e-9d0e-0c8a5a3f7a11"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"delay": "5 min"}, "delay takes a timedelta or a number of seconds, not the str '5 min'"),
    ({"delay": True}, "delay takes a timedelta or a number of seconds, not the bool True"),
    ({"ttl": "1 day"}, "ttl takes a timedelta or a number of seconds, not the str '1 day'"),
    ({"body": "text"}, r"body takes bytes \(text is a payload, or has to be encoded\), not the str 'text'"),
    ({"content_type": b"image/png"}, r"content_type takes text \(str\), not the bytes b'image/png'"),
    ({"tag": 7}, r"tag takes text \(str\), not the int 7"),
    ({"priority": "high"}, "priority takes a whole number, not the str 'high'"),
    ({"priority": 1.5}, "priority takes a whole number, not the float 1.5"),
    ({"max_deliveries": True}, "max_deliveries takes a whole number, not the bool True"),
    ({"deliver_at": "tomorrow"}, "deliver_at takes a datetime with a time zone, not the str 'tomorrow'"),
    ({"deliver_at": datetime(2040, 1, 1)}, "deliver_at takes a datetime with a time zone, not the datetime"),
    ({"expires_at": date(2040, 1, 1)}, "expires_at takes a datetime with a time zone, not the date"),
    ({"expires_at": datetime(2040, 1, 1)}, "expires_at takes a datetime with a time zone, not the datetime"),
    ({"correlation_id": "4711"}, "correlation_id takes a UUID, not the str '4711'"),
]
# Each is JSON to Python's json module.
UNSTORABLE = [float("nan"), {"a": [float("inf")]}, "a\0b", {"\0": 1}, "\ud800"]


# --- 1. durations --------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [float("inf"), float("nan"), 1e300])
async def test_a_number_that_is_no_length_of_time_is_refused(
    client: AsyncHoldfast, queue: str, delay: float
) -> None:
    with pytest.raises(ValueError, match="delay is no length of time"):
        await client.send(queue, 1, delay=delay)


# --- 2. types ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[next(iter(options)) for options, _ in WRONG])
async def test_a_message_with_an_option_of_the_wrong_type_is_refused_unsent(
    client: AsyncHoldfast, queue: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        await client.send(queue, **options)
    with pytest.raises(TypeError, match=message):
        await client.send_many(queue, [1, NewMessage(**options)])
    with pytest.raises(TypeError, match=message):
        await client.bulk_send(queue, [1, NewMessage(**options)])

    assert (await client.queue_stats(queue)).depth == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, q: c.claim(q, "ten"), "max takes a whole number"),
        (lambda c, q: c.claim(q, lease="1 min"), "lease takes a timedelta or a number of seconds"),
        (lambda c, q: c.claim(q, wait="1 min"), "wait takes a timedelta or a number of seconds"),
        (lambda c, q: c.claim(b"q"), "queue takes text"),
        (lambda c, q: c.send(q, 1, pri=3), r"^send\(\) got an unexpected keyword argument 'pri'"),
        (lambda c, q: c.ack(q, "1"), "token takes a whole number, not the str '1'"),
        (lambda c, q: c.ack(q, 1, 7), "ids takes whole numbers, such as a list of ids, not the int 7"),
        (lambda c, q: c.ack(q, 1, "123"), "ids takes whole numbers"),
        (lambda c, q: c.ack(q, 1, ["1"]), "each of ids takes a whole number, not the str '1'"),
        (lambda c, q: c.ack(q, 1, strict="no"), "strict takes True or False"),
        (lambda c, q: c.nack(q, 1, error=ValueError("x")), "error takes text"),
        (lambda c, q: c.browse(q, limit="20"), "limit takes a whole number"),
        (lambda c, q: c.create_queue(None), r"queue takes text \(str\), not None"),
        (lambda c, q: c.ack(q, None), "token takes a whole number, not None"),
        (lambda c, q: c.message(q, None), "id takes a whole number, not None"),
        (lambda c, q: c.discard(q, None), "ids takes whole numbers, such as a list of ids, not None"),
    ],
)
async def test_an_argument_of_the_wrong_type_is_named(
    client: AsyncHoldfast, queue: str, call: Scenario, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        await call(client, queue)


async def test_other_kinds_of_bytes_whole_numbers_and_uuids_are_taken(
    client: AsyncHoldfast, queue: str
) -> None:
    class Three:
        def __index__(self) -> int:
            return 3

    options: dict[str, Any] = {"body": bytearray(b"\x00\xff"), "priority": Three(), "correlation_id": TRACE}
    await client.send(queue, **options)
    await client.send_many(queue, [NewMessage(**options)])
    await client.bulk_send(queue, [NewMessage(**options)])

    deliveries = await client.claim(queue, 10)
    assert [(d.body, d.priority, d.correlation_id) for d in deliveries] == [(b"\x00\xff", 3, UUID(TRACE))] * 3


# --- 3. what PostgreSQL cannot store -----------------------------------------------------------------


@pytest.mark.parametrize("value", UNSTORABLE, ids=ascii)
async def test_json_that_postgresql_cannot_store_is_an_invalid_message(
    client: AsyncHoldfast, queue: str, value: Any
) -> None:
    ways: list[Awaitable[Any]] = [
        client.send(queue, value),
        client.send(queue, Jsonb(value)),
        client.send(queue, 1, headers={"h": value}),
        client.send_batch(queue, [1, value]),
        client.send_many(queue, [1, value]),
        client.bulk_send(queue, [1, value]),
    ]

    for way in ways:
        with pytest.raises(ERRORS["QH203"]) as caught:
            await way
        assert caught.value.code == "QH203"
        assert caught.value.detail
        assert "NaN" in (caught.value.hint or "")

    assert (await client.queue_stats(queue)).depth == 0


async def test_a_number_of_too_many_digits_is_an_invalid_message(client: AsyncHoldfast, queue: str) -> None:
    huge = Jsonb(0, dumps=lambda _: '{"a": [1e131073]}')

    for way in (client.send(queue, huge), client.send_batch(queue, [1, huge])):
        with pytest.raises(ERRORS["QH203"]) as caught:
            await way
        assert "131,072 digits" in (caught.value.hint or "")

    assert (await client.queue_stats(queue)).depth == 0


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("QH104", lambda c, q: c.create_queue(f"{q}.r", {"max_deliveries": float("nan")})),
        ("QH104", lambda c, q: c.configure_queue(q, None)),
        ("QH104", lambda c, q: c.configure_queue(q, {"dead_letter": "\0"})),
        ("QH104", lambda c, q: c.configure_defaults({"lease": float("inf")})),
        ("QH403", lambda c, q: c.redrive(q, filter={"error": "\0"})),
        ("QH103", lambda c, q: c.create_queue("a\0b")),
        ("QH103", lambda c, q: c.redrive(q, target="a\0b")),
        ("QH401", lambda c, q: c.browse(q, "\0")),
        ("QH203", lambda c, q: c.send(q, 1, tag="a\0b")),
        ("QH203", lambda c, q: c.bulk_send(q, [NewMessage(tag="\ud800")])),
        ("QH203", lambda c, q: c.nack(q, 1, error="a\0b")),
    ],
)
async def test_other_things_that_postgresql_cannot_store_have_the_code_of_what_they_were_to_be(
    client: AsyncHoldfast, queue: str, code: str, call: Scenario
) -> None:
    with pytest.raises(ERRORS[code]) as caught:
        await call(client, queue)

    assert caught.value.code == code
    assert caught.value.hint


# --- 4. one is not many ----------------------------------------------------------------------------


@pytest.mark.parametrize("single", ["text", b"bytes", {"order": 1}, 7])
async def test_a_single_text_or_object_is_not_many_messages(
    client: AsyncHoldfast, queue: str, single: Any
) -> None:
    with pytest.raises(TypeError, match="payloads takes several messages, such as a list, not the"):
        await client.send_batch(queue, single)
    with pytest.raises(TypeError, match="messages takes several messages, such as a list, not the"):
        await client.send_many(queue, single)
    with pytest.raises(TypeError, match="messages takes several messages, such as a list, not the"):
        await client.bulk_send(queue, single)


async def test_a_new_message_is_no_payload(client: AsyncHoldfast, queue: str) -> None:
    with pytest.raises(TypeError, match="payloads takes JSON values, not a NewMessage: use send_many"):
        await client.send_batch(queue, [1, NewMessage(payload=2)])
    with pytest.raises(TypeError, match="payload takes JSON values, not a NewMessage: use send_many"):
        await client.send(queue, NewMessage(payload=2))

    assert (await client.queue_stats(queue)).depth == 0


async def test_an_object_that_looks_like_a_message_is_a_payload(client: AsyncHoldfast, queue: str) -> None:
    await client.send_many(queue, [{"payload": 1, "delay": 30}, NewMessage(payload=1, delay=30)])

    assert [entry.payload for entry in await client.browse(queue, "ready")] == [{"payload": 1, "delay": 30}]
    assert [entry.payload for entry in await client.browse(queue, "scheduled")] == [1]
