"""Sending: every option arrives, every value that JSON has, and keys count."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import (
    AsyncHoldfast,
    IdempotencyConflictError,
    InvalidPriorityError,
    NewMessage,
    QueueFullError,
    UnreadableJson,
)
from tests.conformance.conftest import HTTP_SYNC, SQL_SYNC, Clock, MakeQueue, OpenClient

TRACE = UUID("6f1c2c9e-6f57-4b0e-9d0e-0c8a5a3f7a11")
VALUES: list[Any] = [0, -1, 12345678901234567890, 1.5, -0.25, 1e-7, False, True, "", "text"]
VALUES += [[], {}, [1, {"a": None}]]
TEXTS = [
    "käse",
    "日本語",
    "👩‍👩‍👧",
    "a\u2028b\u2029c\u0085d",
    "\t\n\r\x0b\x0c\x1f\x7f",
    "\"'\\/%",
    "data: x\n\nevent: error",
    "\ufeff\ufffd\U0010ffff",
    "%s $1 {queue}",
]


async def test_a_message_arrives_with_everything_it_was_sent_with(client: AsyncHoldfast, queue: str) -> None:
    id = await client.send(
        queue,
        {"order": 1, "items": ["é", None, 1.5]},
        content_type="application/json",
        headers={"trace": "abc", "n": 7, "deep": {"a": [None, True]}},
        priority=3,
        ttl=timedelta(hours=1),
        correlation_id=TRACE,
        tag="urgent",
        max_deliveries=2,
        key="order-1",
    )
    (delivery,) = await client.claim(queue, lease=timedelta(seconds=30), consumer="test")

    assert (delivery.id, delivery.queue) == (id, queue)
    assert delivery.payload == {"order": 1, "items": ["é", None, 1.5]}
    assert delivery.body is None
    assert delivery.content_type == "application/json"
    assert delivery.headers == {"trace": "abc", "n": 7, "deep": {"a": [None, True]}}
    assert (delivery.priority, delivery.correlation_id, delivery.tag) == (3, TRACE, "urgent")
    assert (delivery.deliveries, delivery.max_deliveries) == (1, 2)
    assert (delivery.key, delivery.ordering_key, delivery.last_error, delivery.origin) == (
        "order-1",
        None,
        None,
        None,
    )
    assert delivery.deadline > delivery.enqueued_at
    assert isinstance(delivery.correlation_id, UUID)


async def test_ids_and_tokens_are_whole_numbers_of_63_bits(client: AsyncHoldfast, queue: str) -> None:
    id = await client.send(queue, 1)
    (delivery,) = await client.claim(queue)
    largest = 2**63 - 1

    settlement = await client.ack(queue, delivery.token, [largest, id])

    assert (type(id), type(delivery.id), type(delivery.token)) == (int, int, int)
    assert delivery.token > 2**53
    assert (settlement.settled, settlement.skipped) == ([id], [largest])
    assert (await client.ack(queue, largest, [id])).skipped == [id]
    assert await client.message(queue, largest) is None
    assert await client.browse(queue, after=largest) == []
    assert await client.discard(queue, [largest]) == []


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_any_json_value_is_a_payload(client: AsyncHoldfast, queue: str, value: Any) -> None:
    await client.send(queue, value)
    await client.send_batch(queue, [value])
    await client.send_many(queue, [value])

    payloads = [delivery.payload for delivery in await client.claim(queue, 10)]

    assert payloads == [value] * 3
    assert {type(payload) for payload in payloads} == {type(value)}


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
async def test_any_text_arrives_as_it_is(client: AsyncHoldfast, queue: str, text: str) -> None:
    options: dict[str, Any] = {"headers": {text: text}, "tag": text, "content_type": text, "key": text}

    await client.send(queue, {text: [text]}, **options)
    (delivery,) = await client.claim(queue, consumer=text)
    await client.nack(queue, delivery.token, delay=0, error=text)
    (again,) = await client.claim(queue, consumer=text)

    assert (delivery.payload, delivery.headers) == ({text: [text]}, {text: text})
    assert (delivery.tag, delivery.content_type, delivery.key) == (text, text, text)
    assert again.last_error == text
    assert [(claim.token, claim.messages) for claim in await client.claims(queue, text)] == [(again.token, 1)]
    assert await client.discard_key(queue, text) == [delivery.id]


@pytest.mark.parametrize("body", [b"", b"\x00\xff\n'\\", bytes(range(256)) * 40], ids=len)
async def test_a_body_arrives_as_the_same_bytes(client: AsyncHoldfast, queue: str, body: bytes) -> None:
    await client.send(queue, body=body, content_type="application/octet-stream")
    await client.send_many(queue, [NewMessage(body=body)])

    deliveries = await client.claim(queue, 2)

    assert [(delivery.payload, delivery.body) for delivery in deliveries] == [(None, body)] * 2


async def test_none_is_no_payload_and_jsonb_none_is_json_null(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    await client.send(queue)
    await client.send(queue, None)
    await client.send(queue, Jsonb(None))
    await client.send_batch(queue, [None, Jsonb(None)])
    await client.send_many(queue, [None, NewMessage(payload=Jsonb(None))])

    ids = [delivery.id for delivery in await client.claim(queue, 10)]
    stored = conn.execute(
        "select payload::text from holdfast.message where id = any(%s) and queue_id = "
        "(select id from holdfast.queue where name = %s) order by id",
        [ids, queue],
    ).fetchall()
    assert [text for (text,) in stored] == [None, None, "null", None, "null", None, "null"]


async def test_digits_are_kept(open_client: OpenClient, queue: str, conn: psycopg.Connection[Any]) -> None:
    text = '{"n": 12345678901234567890.12345678901234567890, "big": 123456789012345678901234567890}'
    conn.execute("select holdfast.send(%s, %s::jsonb, headers => %s::jsonb)", [queue, text, text])
    exact, plain = open_client(parse_float=Decimal), open_client()

    (precise,), (rounded,) = await exact.browse(queue), await plain.browse(queue)

    number = Decimal("12345678901234567890.12345678901234567890")
    assert precise.payload == precise.headers == {"n": number, "big": 123456789012345678901234567890}
    assert rounded.payload == {"n": float(number), "big": 123456789012345678901234567890}


async def test_what_python_cannot_read_spoils_nothing_else(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    deep = "[" * 5000 + "]" * 5000
    for text in ('"good"', "1e5000", deep, '"too"'):
        conn.execute("select holdfast.send(%s, %s::jsonb)", [queue, text])

    payloads = [delivery.payload for delivery in await client.claim(queue, max=10)]

    assert payloads == ["good", Decimal("1" + "0" * 5000), UnreadableJson(deep), "too"]


# --- when ----------------------------------------------------------------------------------------


async def test_delays_are_timedeltas_or_seconds(client: AsyncHoldfast, queue: str, clock: Clock) -> None:
    now = clock.stop()

    await client.send(queue, 1, delay=90.5)
    await client.send(queue, 2, delay=timedelta(seconds=90, microseconds=500_001))
    await client.send_many(queue, [NewMessage(delay=90), NewMessage(delay=0.000001), NewMessage(delay=0)])

    scheduled = await client.browse(queue, "scheduled")
    waits = [90.5, 90.500001, 90, 0.000001]
    assert [entry.due_at for entry in scheduled] == [now + timedelta(seconds=wait) for wait in waits]
    assert len(await client.browse(queue, "ready")) == 1


async def test_a_message_is_held_back_until_its_time(client: AsyncHoldfast, queue: str, clock: Clock) -> None:
    now = clock.stop()
    far = now.astimezone(timezone(timedelta(hours=5, minutes=45))) + timedelta(minutes=1)
    await client.send(queue, 1, deliver_at=far)

    before = await client.claim(queue)
    (entry,) = await client.browse(queue, "scheduled")
    clock.forward(minutes=2)

    assert (before, entry.due_at) == ([], now + timedelta(minutes=1))
    assert [delivery.payload for delivery in await client.claim(queue)] == [1]


async def test_a_message_expires(client: AsyncHoldfast, queue: str, clock: Clock) -> None:
    now = clock.stop()
    await client.send(queue, 1, ttl=60)
    await client.send(queue, 2, expires_at=now + timedelta(seconds=61))
    await client.send(queue, 3, ttl=timedelta(days=3600))

    shown = [entry.expires_at for entry in await client.browse(queue)]
    clock.forward(seconds=60.5)

    assert shown == [now + timedelta(seconds=wait) for wait in (60, 61, 3600 * 86_400)]
    assert [delivery.payload for delivery in await client.claim(queue, 10)] == [2, 3]


@pytest.mark.parametrize(
    "at",
    [datetime(2040, 1, 1, 0, 0, 0, 123456, UTC), datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))],
)
async def test_any_time_that_python_has_is_taken(
    client: AsyncHoldfast, queue: str, clock: Clock, at: datetime
) -> None:
    clock.stop()

    assert await client.send(queue, 1, deliver_at=at)


# --- many ----------------------------------------------------------------------------------------


async def test_send_batch_returns_ids_in_order(client: AsyncHoldfast, queue: str) -> None:
    ids = await client.send_batch(
        queue, ({"n": n} for n in range(5)), tag="batch", headers={"h": 1}, correlation_id=TRACE
    )
    deliveries = await client.claim(queue, 10)

    assert ids == sorted(ids)
    assert [(d.id, d.payload, d.tag, d.headers, d.correlation_id) for d in deliveries] == [
        (id, {"n": n}, "batch", {"h": 1}, TRACE) for n, id in enumerate(ids)
    ]


async def test_nothing_can_be_sent(client: AsyncHoldfast, queue: str) -> None:
    assert await client.send_batch(queue, []) == []
    assert await client.send_many(queue, ()) == []
    assert await client.bulk_send(queue, iter([])) == 0


async def test_send_many_gives_each_message_its_own_options(
    client: AsyncHoldfast, queue: str, clock: Clock
) -> None:
    now = clock.stop()
    correlation = uuid4()

    ids = await client.send_many(
        queue,
        [
            {"plain": True},
            NewMessage(payload={"n": 1}, tag="a", headers={"h": 1}, correlation_id=correlation),
            NewMessage(body=b"\x00\x01", content_type="image/png", max_deliveries=9),
            NewMessage(payload="later", delay=timedelta(hours=1), ttl=7200),
            NewMessage(payload="later", deliver_at=now + timedelta(days=9)),
        ],
    )
    plain, full, binary = await client.claim(queue, 10)
    scheduled = await client.browse(queue, "scheduled")

    assert [plain.id, full.id, binary.id, *(entry.id for entry in scheduled)] == ids
    assert plain.payload == {"plain": True}
    assert (full.tag, full.headers, full.correlation_id) == ("a", {"h": 1}, correlation)
    assert (binary.body, binary.content_type, binary.max_deliveries) == (b"\x00\x01", "image/png", 9)
    assert scheduled[0].expires_at == now + timedelta(hours=2)
    assert scheduled[1].due_at == now + timedelta(days=9)


async def test_many_are_sent_all_or_none(client: AsyncHoldfast, queue: str) -> None:
    with pytest.raises(InvalidPriorityError):
        await client.send_many(queue, [1, 2, NewMessage(payload=3, priority=11)])
    with pytest.raises(InvalidPriorityError):
        await client.bulk_send(queue, [1, 2, NewMessage(payload=3, priority=11)])

    assert (await client.queue_stats(queue)).depth == 0


async def test_bulk_send_takes_any_iterable_and_tells_how_far_it_is(
    client: AsyncHoldfast, queue: str
) -> None:
    told: list[int] = []
    messages = (NewMessage(payload=n, tag="bulk") for n in range(7))

    sent = await client.bulk_send(queue, messages, chunk=3, progress=told.append, atomic=False)

    assert (sent, told) == (7, [3, 6, 7])
    assert [(d.payload, d.tag) for d in await client.claim(queue, 10)] == [(n, "bulk") for n in range(7)]


async def test_bulk_send_without_atomic_keeps_what_went_before_an_error(
    client: AsyncHoldfast, queue: str, door: str
) -> None:
    def plain() -> Iterator[Any]:
        yield from (1, 2, 3)
        raise KeyError("no more")

    async def later() -> AsyncIterator[Any]:
        for message in plain():
            yield message

    messages: Any = plain() if door in (SQL_SYNC, HTTP_SYNC) else later()
    with pytest.raises(KeyError):
        await client.bulk_send(queue, messages, chunk=2, atomic=False)

    assert [delivery.payload for delivery in await client.claim(queue, 10)] == [1, 2]


# --- keys ----------------------------------------------------------------------------------------


async def test_of_a_key_only_the_latest_waits(client: AsyncHoldfast, queue: str) -> None:
    first = await client.send(queue, {"version": 1}, key="page/7 ä")
    second = await client.send(queue, {"version": 2}, key="page/7 ä")
    other = await client.send(queue, {"version": 1}, key="page/8")

    assert second == first != other
    assert [d.payload["version"] for d in await client.claim(queue, 10)] == [2, 1]


async def test_an_idempotency_key_sends_once(client: AsyncHoldfast, queue: str) -> None:
    first = await client.send(queue, {"n": 1}, idempotency_key="a")
    again = await client.send(queue, {"n": 1}, idempotency_key="a")
    many = await client.send_many(queue, [NewMessage(payload={"n": 1}, idempotency_key="a")])

    with pytest.raises(IdempotencyConflictError) as caught:
        await client.send(queue, {"n": 2}, idempotency_key="a")

    assert [again, *many] == [first, first]
    assert caught.value.code == "QH222"
    assert len(await client.claim(queue, 10)) == 1


async def test_discard_key_ends_what_has_it(client: AsyncHoldfast, queue: str) -> None:
    id = await client.send(queue, 1, key="a/b?c#d%2F..", delay=60)

    assert await client.discard_key(queue, "a/b?c#d%2F..") == [id]
    assert await client.discard_key(queue, "a/b?c#d%2F..") == []


async def test_a_full_queue_takes_no_more_and_says_so_at_once(
    client: AsyncHoldfast, make_queue: MakeQueue
) -> None:
    queue = await make_queue(max_depth=2)
    await client.send_batch(queue, [1, 2])

    with pytest.raises(QueueFullError) as caught:
        await client.send(queue, 3)

    assert caught.value.detail == "It holds 2 of at most 2 messages (max_depth); 1 more do not fit."
