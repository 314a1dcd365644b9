"""Logs and rate limiters through the client, asynchronous and synchronous."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Allowance, AsyncHoldfast, LogStats


@pytest.fixture
async def log(client: AsyncHoldfast) -> AsyncHoldfast:
    """A client, and a log `log` with five records."""
    await client.create_queue("log", {"kind": "log", "retention": {"count": 3}})
    await client.send_batch("log", [0, 1, 2], tag="early")
    await client.send_batch("log", [3, 4])
    return client


async def test_a_reader_goes_on_behind_the_last_seq(log: AsyncHoldfast) -> None:
    first = await log.read("log", limit=3)
    second = await log.read("log", first[-1].seq)

    assert [record.payload for record in first + second] == [0, 1, 2, 3, 4]
    assert {record.kind for record in first + second} == {"record"}
    assert await log.read("log", 5) == []


async def test_a_reader_is_told_what_is_gone(log: AsyncHoldfast) -> None:
    assert await log.log_delete("log", [4]) == 1
    assert await log.log_delete("log", tag="early", before=2) == 1
    await log.maintain()

    shown = [(record.kind, record.from_seq, record.to_seq) for record in await log.read("log")]
    figures = await log.log_stats("log")

    assert shown == [("gap", 1, 2), ("record", 3, 3), ("deleted", 4, 4), ("record", 5, 5)]
    assert isinstance(figures, LogStats)
    assert (figures.first_seq, figures.last_seq, figures.records, figures.trimmed) == (3, 5, 2, 2)


async def test_a_limiter_grants_and_says_when_to_come_again(client: AsyncHoldfast) -> None:
    granted = await client.take_rate("a", 0.001, 5, 5)
    refused = await client.take_rate("a", 0.001, 5)

    assert granted == Allowance(granted=5, remaining=0, retry_after=None)
    assert refused.granted == 0
    assert refused.retry_after is not None
    assert timedelta(minutes=15) < refused.retry_after <= timedelta(seconds=1000)


async def test_a_limiter_gives_what_it_has_where_that_will_do(client: AsyncHoldfast) -> None:
    assert (await client.take_rate("a", 0.001, 5, 9, partial=True)).granted == 5
