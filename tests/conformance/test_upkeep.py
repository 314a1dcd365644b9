"""Upkeep: sweep, maintain, repair, and the clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import AsyncHoldfast, InvalidBudgetError
from tests.conformance.conftest import Clock


async def test_sweep_takes_back_what_an_expired_lease_held(
    client: AsyncHoldfast, queue: str, clock: Clock
) -> None:
    clock.stop()
    await client.send(queue, 1)
    await client.claim(queue, lease=10)
    clock.forward(seconds=11)

    assert await client.sweep(queue) == 1
    assert await client.sweep(queue) == 0
    assert (await client.queue_stats(queue)).in_flight == 0


async def test_maintain_tells_what_it_did(client: AsyncHoldfast, queue: str) -> None:
    did = await client.maintain(timedelta(seconds=5))

    assert did["done"] is True
    assert did["queues"] >= 1
    assert isinstance(await client.maintain(), dict)


@pytest.mark.parametrize("budget", [0, 60, -1])
async def test_a_round_of_upkeep_is_short(client: AsyncHoldfast, budget: float) -> None:
    with pytest.raises(InvalidBudgetError):
        await client.maintain(budget)


async def test_repair_ends_every_lease(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    await client.claim(queue)

    assert await client.repair(queue, unreadable_only=True) == 0
    assert await client.repair(queue) == 1
    assert (await client.queue_stats(queue)).in_flight == 0
    assert await client.repair() >= 1


async def test_now_is_the_clock_of_holdfast(client: AsyncHoldfast, clock: Clock) -> None:
    at = clock.stop()

    assert await client.now() == at
    assert (await client.now()).utcoffset() is not None
