"""A trace goes with the message, whichever way it is sent. Promises pinned here:

1. What is sent in a trace carries its traceparent, and tracestate, for the consumer to go on with.
2. What has headers of its own for that keeps them; outside of a trace nothing is added.
3. A send once is the same send in another trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

from holdfast import AsyncHoldfast, InvalidMessageError, NewMessage, trace_headers

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
CARRIED = {"traceparent": f"00-{TRACE:032x}-{SPAN:016x}-01", "tracestate": "shop=1"}


@contextmanager
def in_trace(trace: int = TRACE, state: str = "1") -> Iterator[None]:
    """Code that runs in a span, which came from somewhere else."""
    context = SpanContext(trace, SPAN, True, TraceFlags(TraceFlags.SAMPLED), TraceState([("shop", state)]))
    with use_span(NonRecordingSpan(context)):
        yield


async def headers(client: AsyncHoldfast, queue: str) -> list[Any]:
    return [delivery.headers for delivery in await client.claim(queue, max=10)]


async def test_whatever_sends_carries_the_trace(client: AsyncHoldfast, queue: str) -> None:
    with in_trace():
        await client.send(queue, 1)
        await client.send(queue, 2, headers={"shop": "a"})
        await client.send_batch(queue, [3, 4])
        await client.send_many(queue, [5, NewMessage(payload=6, headers={"shop": "b"})])
        await client.bulk_send(queue, [7, NewMessage(payload=8, headers={"shop": "c"})])

    shops = [None, "a", None, None, None, "b", None, "c"]
    expected = [CARRIED if shop is None else {"shop": shop, **CARRIED} for shop in shops]
    assert await headers(client, queue) == expected


async def test_outside_of_a_trace_nothing_is_carried(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    await client.send_many(queue, [2])
    await client.bulk_send(queue, [3])

    assert await headers(client, queue) == [None, None, None]


@pytest.mark.parametrize("own", [{"traceparent": "mine"}, {"tracestate": "mine"}, {"big": "x" * 65_000}])
async def test_headers_with_a_trace_or_without_room_stay_as_they_are(
    client: AsyncHoldfast, queue: str, own: dict[str, Any]
) -> None:
    with in_trace():
        await client.send(queue, 1, headers=own)
        await client.send_many(queue, [NewMessage(payload=2, headers=own)])

    assert await headers(client, queue) == [own, own]


async def test_a_state_that_is_too_long_is_left_behind(client: AsyncHoldfast, queue: str) -> None:
    with in_trace(state="y" * 250):
        await client.send(queue, 1)
    states = TraceState([(f"s{number}", "x" * 250) for number in range(3)])
    with use_span(NonRecordingSpan(SpanContext(TRACE, SPAN, True, TraceFlags(1), states))):
        await client.send(queue, 2)

    (short, long) = await headers(client, queue)
    assert short == {**CARRIED, "tracestate": "shop=" + "y" * 250}
    assert long == {"traceparent": CARRIED["traceparent"]}


async def test_a_send_once_is_the_same_in_another_trace(client: AsyncHoldfast, queue: str) -> None:
    with in_trace():
        first = await client.send(queue, 1, idempotency_key="a")
    with in_trace(trace=1):
        second = await client.send(queue, 1, idempotency_key="a")
    third = await client.send(queue, 1, idempotency_key="a")

    assert first == second == third
    assert await headers(client, queue) == [CARRIED]


@pytest.mark.parametrize("unfit", [None, {}, {"traceparent": 5}, {"tracestate": "shop=1"}, {"shop": "a"}])
def test_headers_that_are_no_trace_are_not_taken_for_one(unfit: dict[str, Any] | None) -> None:
    assert trace_headers(unfit) == {}


def test_the_trace_is_picked_out_of_other_headers() -> None:
    assert trace_headers({"shop": "a", **CARRIED}) == CARRIED
    assert trace_headers({**CARRIED, "tracestate": 5}) == {"traceparent": CARRIED["traceparent"]}


async def test_bad_headers_are_refused_as_ever(client: AsyncHoldfast, queue: str) -> None:
    bad: Any = {"a": float("nan")}
    with in_trace(), pytest.raises(InvalidMessageError) as within:
        await client.send(queue, 1, headers=bad)
    with pytest.raises(InvalidMessageError) as outside:
        await client.send(queue, 1, headers=bad)

    assert (type(within.value), str(within.value)) == (type(outside.value), str(outside.value))
