"""Claiming: how many, in which order, for how long, and waiting for the first."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import AsyncHoldfast, InvalidLeaseError, InvalidMaxError, NotAQueueError, TextTooLongError
from tests.conformance.conftest import Clock, MakeQueue

PATIENCE = 20.0  # seconds a test waits at most


async def test_a_claim_takes_up_to_max_under_one_token(client: AsyncHoldfast, queue: str) -> None:
    await client.send_batch(queue, [1, 2, 3])

    first = await client.claim(queue, 2)
    rest = await client.claim(queue, 10)

    assert ([d.payload for d in first], [d.payload for d in rest]) == ([1, 2], [3])
    assert len({delivery.token for delivery in first}) == 1
    assert first[0].token != rest[0].token
    assert await client.claim(queue) == []


async def test_a_thousand_are_claimed_at_once(client: AsyncHoldfast, queue: str) -> None:
    await client.send_batch(queue, list(range(1000)))

    deliveries = await client.claim(queue, 1000)

    assert [delivery.payload for delivery in deliveries] == list(range(1000))
    assert len((await client.ack(queue, deliveries[0].token)).settled) == 1000


async def test_higher_priorities_come_first(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(priority_default=1)
    for payload, priority in (("usual", None), ("urgent", 10), ("later", 0), ("also urgent", 10)):
        await client.send(queue, payload, priority=priority)

    order = [delivery.payload for _ in range(4) for delivery in await client.claim(queue)]

    assert order == ["urgent", "also urgent", "usual", "later"]


async def test_a_lease_is_the_queues_or_the_claims(
    client: AsyncHoldfast, make_queue: MakeQueue, clock: Clock
) -> None:
    now = clock.stop()
    queue = await make_queue(lease="7 s")
    await client.send_batch(queue, [1, 2, 3])

    usual, short, long = (
        await client.claim(queue),
        await client.claim(queue, lease=0.1),
        await client.claim(queue, lease=timedelta(hours=24)),
    )

    leases = [7, 0.1, 86_400]
    assert [d.deadline for d in (*usual, *short, *long)] == [now + timedelta(seconds=s) for s in leases]


async def test_what_nobody_settles_comes_back_when_the_lease_ends(
    client: AsyncHoldfast, queue: str, clock: Clock
) -> None:
    clock.stop()
    await client.send(queue, 1)
    (first,) = await client.claim(queue, lease=10)
    clock.forward(seconds=9)
    assert await client.claim(queue) == []

    clock.forward(seconds=2)
    (second,) = await client.claim(queue)

    assert (second.id, second.deliveries) == (first.id, 2)
    assert (await client.ack(queue, first.token)).settled == []


@pytest.mark.parametrize("max", [0, -1, 10_001])
async def test_a_claim_that_takes_too_few_or_too_many_is_refused(
    client: AsyncHoldfast, queue: str, max: int
) -> None:
    with pytest.raises(InvalidMaxError) as caught:
        await client.claim(queue, max)

    assert caught.value.code == "QH301"


@pytest.mark.parametrize("lease", [0, 0.05, -1, timedelta(days=2)])
async def test_a_lease_that_is_too_short_or_too_long_is_refused(
    client: AsyncHoldfast, queue: str, lease: Any
) -> None:
    await client.send(queue, 1)

    with pytest.raises(InvalidLeaseError) as caught:
        await client.claim(queue, lease=lease)

    assert caught.value.code == "QH302"
    assert (await client.queue_stats(queue)).in_flight == 0


async def test_a_consumers_name_has_up_to_200_characters(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    assert len(await client.claim(queue, consumer="é" * 200)) == 1

    with pytest.raises(TextTooLongError):
        await client.claim(queue, consumer="é" * 201)


async def test_a_log_is_not_claimed(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    log = await make_queue(kind="log")

    with pytest.raises(NotAQueueError):
        await client.claim(log)


async def test_a_waiting_claim_gets_what_is_there_at_once(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)

    deliveries = await client.claim(queue, wait=timedelta(hours=1))

    assert [delivery.payload for delivery in deliveries] == [1]


async def test_a_waiting_claim_gets_what_is_sent_meanwhile(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    claim = asyncio.ensure_future(client.claim(queue, 10, consumer="anna", wait=PATIENCE))
    await asyncio.sleep(0.1)
    conn.execute("select holdfast.send(%s, '1')", [queue])

    (delivery,) = await asyncio.wait_for(claim, PATIENCE)

    assert delivery.payload == 1
    assert [lease.consumer for lease in await client.leases(queue)] == ["anna"]


@pytest.mark.parametrize("wait", [0, 0.05, -1])
async def test_a_waiting_claim_gives_up_when_its_time_is_over(
    client: AsyncHoldfast, queue: str, wait: float
) -> None:
    assert await client.claim(queue, wait=wait) == []


async def test_a_throughput_limit_counts_for_every_door(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(throughput_limit=3)
    await client.send_batch(queue, list(range(10)))

    assert len(await client.claim(queue, 10)) == 3
