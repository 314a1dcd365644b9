"""Bulk sending: any number of messages by COPY, all or none, or chunk by chunk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import (
    AsyncHoldfast,
    InvalidPriorityError,
    InvalidScheduleError,
    InvalidTtlError,
    NewMessage,
    QueueNotFoundError,
)
from tests.client.conftest import BindPool

START = datetime(2030, 1, 1, tzinfo=UTC)


class OwnError(Exception):
    """Raised by a source of messages."""


async def test_fifty_thousand_messages_arrive_in_order(client: AsyncHoldfast) -> None:
    await client.create_queue("bulk")
    reports: list[int] = []

    sent = await client.bulk_send("bulk", ({"n": n} for n in range(50_000)), progress=reports.append)

    assert sent == 50_000
    assert reports == list(range(5_000, 50_001, 5_000))
    assert (await client.queue_stats("bulk")).depth == 50_000
    first = await client.claim("bulk", 10_000)
    assert [delivery.payload["n"] for delivery in first] == list(range(10_000))


async def test_bulk_messages_keep_their_options(client: AsyncHoldfast, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.set_clock(%s)", [START])
    await client.create_queue("bulk")
    correlation = uuid4()

    await client.bulk_send(
        "bulk",
        [
            NewMessage(
                payload={"a": "tab\t newline\n backslash\\ \\N"},
                content_type="application/json",
                headers={"h": [1]},
                priority=2,
                correlation_id=correlation,
                tag="t",
                max_deliveries=1,
                ttl=60,
            ),
            NewMessage(body=b"\x00\\\n\xff"),
            NewMessage(payload="delayed", delay=timedelta(minutes=5), expires_at=START + timedelta(hours=1)),
            NewMessage(payload="later", deliver_at=START + timedelta(minutes=9)),
        ],
    )
    full, binary = await client.claim("bulk", 10)
    delayed, later = await client.browse("bulk", "scheduled")

    assert full.payload == {"a": "tab\t newline\n backslash\\ \\N"}
    assert (full.content_type, full.headers, full.priority) == ("application/json", {"h": [1]}, 2)
    assert (full.correlation_id, full.tag, full.max_deliveries) == (correlation, "t", 1)
    assert binary.body == b"\x00\\\n\xff"
    assert (delayed.due_at, delayed.expires_at) == (START + timedelta(minutes=5), START + timedelta(hours=1))
    assert later.due_at == START + timedelta(minutes=9)


async def test_nothing_and_json_null_differ_in_bulk_too(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    await client.create_queue("bulk")

    await client.bulk_send("bulk", [None, Jsonb(None)])

    stored = conn.execute("select payload::text from holdfast.message order by id").fetchall()
    assert stored == [(None,), ("null",)]


async def test_bulk_sending_nothing_sends_nothing(client: AsyncHoldfast) -> None:
    await client.create_queue("bulk")

    assert await client.bulk_send("bulk", []) == 0


def breaks_after(number: int) -> Iterator[int]:
    yield from range(number)
    raise OwnError


async def test_a_source_that_breaks_leaves_nothing_behind(client: AsyncHoldfast) -> None:
    await client.create_queue("bulk")

    with pytest.raises(OwnError):
        await client.bulk_send("bulk", breaks_after(25), chunk=10)

    assert await client.claim("bulk", 100) == []


@pytest.mark.parametrize("autocommit", [True, False])
async def test_without_atomic_the_chunks_before_an_error_stay_sent(
    bind_pool: BindPool, autocommit: bool
) -> None:
    client = await bind_pool(autocommit=autocommit)
    await client.create_queue("bulk")
    reports: list[int] = []

    with pytest.raises(OwnError):
        await client.bulk_send("bulk", breaks_after(25), chunk=10, atomic=False, progress=reports.append)

    assert reports == [10, 20]
    assert [delivery.payload for delivery in await client.claim("bulk", 100)] == list(range(20))


async def test_one_bad_message_refuses_all(client: AsyncHoldfast) -> None:
    await client.create_queue("bulk")

    with pytest.raises(InvalidPriorityError):
        await client.bulk_send("bulk", [1, 2, NewMessage(payload=3, priority=99)], chunk=1)

    assert await client.claim("bulk", 100) == []


async def test_bulk_sending_to_a_queue_that_is_not_there_is_refused(client: AsyncHoldfast) -> None:
    with pytest.raises(QueueNotFoundError):
        await client.bulk_send("nowhere", [1])


async def test_a_chunk_has_at_least_one_message(client: AsyncHoldfast) -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        await client.bulk_send("bulk", [1], chunk=0)


async def test_the_async_client_takes_async_iterables(database_url: str) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(7):
            yield number

    async with AsyncHoldfast(database_url) as client:
        await client.create_queue("bulk")

        sent = await client.bulk_send("bulk", numbers(), chunk=3)

        assert sent == 7
        assert [delivery.payload for delivery in await client.claim("bulk", 10)] == list(range(7))


async def test_a_duration_beyond_the_calendar_is_out_of_range_in_bulk_too(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    with pytest.raises(InvalidScheduleError):
        await client.bulk_send("orders", [NewMessage(delay=timedelta.max)])
    with pytest.raises(InvalidTtlError):
        await client.bulk_send("orders", [NewMessage(ttl=timedelta.max)])
