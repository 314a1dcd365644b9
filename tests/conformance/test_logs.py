"""Logs and rate limiters."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from holdfast import (
    Allowance,
    AsyncHoldfast,
    InvalidAppendError,
    InvalidLimiterError,
    InvalidRateError,
    InvalidSequenceError,
    LogStats,
    NotALogError,
    Record,
)
from tests.conformance.conftest import Clock, MakeQueue

TRACE = UUID("6f1c2c9e-6f57-4b0e-9d0e-0c8a5a3f7a11")


@pytest.fixture
async def log(client: AsyncHoldfast, make_queue: MakeQueue) -> str:
    """A log with five records, of which three are to be kept."""
    log = await make_queue(kind="log", retention={"count": 3})
    await client.send_batch(log, [0, 1, 2], tag="early")
    await client.send_batch(log, [3, 4])
    return log


async def test_a_record_tells_everything_that_was_appended(
    client: AsyncHoldfast, make_queue: MakeQueue, clock: Clock
) -> None:
    now = clock.stop()
    log = await make_queue(kind="log")
    id = await client.send(log, {"n": 1.5}, headers={"h": "é"}, tag="t", correlation_id=TRACE)
    await client.send(log, body=b"\x00", content_type="x/y")

    first, second = await client.read(log)

    assert first == Record(
        kind="record",
        seq=1,
        from_seq=1,
        to_seq=1,
        id=id,
        payload={"n": 1.5},
        body=None,
        content_type=None,
        headers={"h": "é"},
        correlation_id=TRACE,
        tag="t",
        enqueued_at=now,
        last_error=None,
        origin=None,
    )
    assert (second.body, second.content_type, second.payload) == (b"\x00", "x/y", None)


async def test_a_reader_goes_on_behind_the_last_seq(client: AsyncHoldfast, log: str) -> None:
    first = await client.read(log, limit=3)
    second = await client.read(log, first[-1].seq)

    assert [record.payload for record in first + second] == [0, 1, 2, 3, 4]
    assert await client.read(log, 5) == []


async def test_a_reader_is_told_what_is_gone(client: AsyncHoldfast, log: str) -> None:
    assert await client.log_delete(log, [4]) == 1
    assert await client.log_delete(log, tag="early", before=2) == 1
    await client.maintain(timedelta(seconds=10))

    shown = [(record.kind, record.from_seq, record.to_seq) for record in await client.read(log)]
    figures = await client.log_stats(log)

    assert shown == [("gap", 1, 2), ("record", 3, 3), ("deleted", 4, 4), ("record", 5, 5)]
    assert isinstance(figures, LogStats)
    assert (figures.first_seq, figures.last_seq, figures.records, figures.trimmed) == (3, 5, 2, 2)
    gap = (await client.read(log))[0]
    assert (gap.id, gap.payload, gap.enqueued_at) == (None, None, None)


async def test_an_empty_log_has_no_first_record(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    log = await make_queue(kind="log")

    figures = await client.log_stats(log)

    assert (figures.first_seq, figures.last_seq, figures.records, figures.oldest_age) == (None, 0, 0, None)


async def test_what_a_log_has_not_is_refused(client: AsyncHoldfast, log: str, queue: str) -> None:
    with pytest.raises(InvalidAppendError):
        await client.send(log, 1, delay=1)
    with pytest.raises(NotALogError):
        await client.log_stats(queue)
    for call in (client.read(log, -1), client.read(log, 2**62), client.log_delete(log)):
        with pytest.raises(InvalidSequenceError):
            await call


async def test_a_limiter_grants_and_says_when_to_come_again(client: AsyncHoldfast, name: str) -> None:
    limiter = f"a/b? {name} ä"

    granted = await client.take_rate(limiter, 0.001, 5, 5)
    refused = await client.take_rate(limiter, 0.001, 5)
    partial = await client.take_rate(f"{limiter}2", 0.001, 5, 9, partial=True)

    assert granted == Allowance(granted=5, remaining=0, retry_after=None)
    assert refused.granted == 0
    assert refused.retry_after is not None
    assert timedelta(minutes=15) < refused.retry_after <= timedelta(seconds=1000)
    assert partial.granted == 5


@pytest.mark.parametrize("rate", [0, -1, 1e9])
async def test_a_limiter_that_cannot_be_is_refused(client: AsyncHoldfast, rate: float) -> None:
    with pytest.raises(InvalidRateError):
        await client.take_rate("a", rate)
    for name in ("", "x" * 201):
        with pytest.raises(InvalidLimiterError):
            await client.take_rate(name, 1)
