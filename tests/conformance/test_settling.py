"""Settling: ack, nack, release, extend and next; the token is a fence; and who holds what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    AsyncHoldfast,
    Delivery,
    Holder,
    InvalidDelayError,
    InvalidLeaseError,
    LeaseLostError,
    Settlement,
)
from tests.conformance.conftest import Clock, MakeQueue

VERBS = ["ack", "nack", "release", "extend"]


async def claimed(client: AsyncHoldfast, queue: str, payloads: list[Any]) -> list[Delivery]:
    """Messages, sent and claimed under one token."""
    await client.send_batch(queue, payloads)
    return await client.claim(queue, len(payloads))


@pytest.mark.parametrize("verb", VERBS)
async def test_some_or_all_are_settled_and_what_is_not_held_is_skipped(
    client: AsyncHoldfast, queue: str, verb: str
) -> None:
    deliveries = await claimed(client, queue, [1, 2, 3])
    token, ids = deliveries[0].token, [delivery.id for delivery in deliveries]
    settle = getattr(client, verb)

    first = await settle(queue, token, ids=[ids[0]])
    unknown = await settle(queue, token, ids=(7, ids[1]))
    rest = await settle(queue, token)
    nothing = await settle(queue, token, ids=[])

    assert first == Settlement(settled=[ids[0]], skipped=[])
    assert unknown == Settlement(settled=[ids[1]], skipped=[7])
    assert set(rest.settled) == ({*ids} if verb == "extend" else {ids[2]})
    assert nothing == Settlement(settled=[], skipped=[])


@pytest.mark.parametrize("verb", VERBS)
async def test_another_token_settles_nothing(client: AsyncHoldfast, queue: str, verb: str) -> None:
    (delivery,) = await claimed(client, queue, [1])
    settle = getattr(client, verb)

    by_id = await settle(queue, delivery.token + 1, ids=[delivery.id])
    all_of_it = await settle(queue, delivery.token + 1)

    assert (by_id, all_of_it) == (
        Settlement(settled=[], skipped=[delivery.id]),
        Settlement(settled=[], skipped=[]),
    )
    assert [held.id for held in await client.held(queue, delivery.token)] == [delivery.id]


@pytest.mark.parametrize("verb", VERBS)
async def test_a_strict_settlement_is_all_or_nothing(client: AsyncHoldfast, queue: str, verb: str) -> None:
    deliveries = await claimed(client, queue, [1, 2])
    token, ids = deliveries[0].token, [delivery.id for delivery in deliveries]
    settle = getattr(client, verb)

    with pytest.raises(LeaseLostError) as caught:
        await settle(queue, token, ids=[*ids, 7], strict=True)
    held = await client.held(queue, token)
    done = await settle(queue, token, ids=ids, strict=True)

    assert (caught.value.code, caught.value.message) == ("QH304", "the lease is lost")
    assert caught.value.detail == "This token does not hold 1 of the 3 messages: 7."
    assert [delivery.id for delivery in held] == ids
    assert done == Settlement(settled=ids, skipped=[])


async def test_ack_ends_messages(client: AsyncHoldfast, queue: str) -> None:
    (delivery,) = await claimed(client, queue, [1])

    await client.ack(queue, delivery.token)

    assert await client.message(queue, delivery.id) is None
    assert (await client.queue_stats(queue)).counters["done"] == 1


async def test_nack_delivers_again_with_the_error(client: AsyncHoldfast, queue: str, clock: Clock) -> None:
    clock.stop()
    (first,) = await claimed(client, queue, [1])

    await client.nack(queue, first.token, delay=timedelta(seconds=5), error="no stock")
    before = await client.claim(queue)
    clock.forward(seconds=6)
    (second,) = await client.claim(queue)

    assert before == []
    assert (second.id, second.deliveries, second.last_error) == (first.id, 2, "no stock")


async def test_a_long_error_is_taken(client: AsyncHoldfast, queue: str) -> None:
    (first,) = await claimed(client, queue, [1])

    await client.nack(queue, first.token, delay=0, error="é" * 50_000)
    (second,) = await client.claim(queue)

    assert second.last_error is not None
    assert second.last_error.startswith("ééé")


async def test_release_does_not_count_as_a_delivery(client: AsyncHoldfast, queue: str) -> None:
    (first,) = await claimed(client, queue, [1])

    await client.release(queue, first.token)
    (second,) = await client.claim(queue)

    assert (second.id, second.deliveries) == (first.id, 1)


async def test_extend_moves_the_deadline(client: AsyncHoldfast, make_queue: MakeQueue, clock: Clock) -> None:
    now = clock.stop()
    queue = await make_queue(lease="20 s")
    (delivery,) = await claimed(client, queue, [1])

    await client.extend(queue, delivery.token, 60)
    (longer,) = await client.held(queue, delivery.token)
    await client.extend(queue, delivery.token)
    (usual,) = await client.held(queue, delivery.token)

    assert [d.deadline - now for d in (delivery, longer, usual)] == [
        timedelta(seconds=20),
        timedelta(seconds=60),
        timedelta(seconds=20),
    ]


async def test_next_acks_and_claims_in_one_call(client: AsyncHoldfast, queue: str, clock: Clock) -> None:
    now = clock.stop()
    (first,) = await claimed(client, queue, [1])
    await client.send_batch(queue, [2, 3])

    second = await client.next(queue, first.token, 2, lease=99, consumer="anna")

    assert [delivery.payload for delivery in second] == [2, 3]
    assert {delivery.deadline for delivery in second} == {now + timedelta(seconds=99)}
    assert await client.message(queue, first.id) is None
    assert await client.next(queue, second[0].token) == []
    assert (await client.queue_stats(queue)).depth == 0


async def test_a_strict_next_with_a_lost_lease_claims_nothing(client: AsyncHoldfast, queue: str) -> None:
    (first,) = await claimed(client, queue, [1])
    await client.send(queue, 2)
    await client.ack(queue, first.token)

    with pytest.raises(LeaseLostError):
        await client.next(queue, first.token, strict=True)

    assert (await client.queue_stats(queue)).in_flight == 0
    assert [delivery.payload for delivery in await client.next(queue, first.token)] == [2]


@pytest.mark.parametrize("delay", [-1, timedelta(days=5000)])
async def test_a_delay_that_is_out_of_range_is_refused(client: AsyncHoldfast, queue: str, delay: Any) -> None:
    (delivery,) = await claimed(client, queue, [1])

    with pytest.raises(InvalidDelayError):
        await client.nack(queue, delivery.token, delay=delay)
    with pytest.raises(InvalidLeaseError):
        await client.extend(queue, delivery.token, 0.01)

    assert len(await client.held(queue, delivery.token)) == 1


# --- who holds what ------------------------------------------------------------------------------


async def test_held_shows_the_deliveries_once_more(client: AsyncHoldfast, queue: str) -> None:
    deliveries = await claimed(client, queue, [{"n": 1}, {"n": 2}])
    await client.ack(queue, deliveries[0].token, [deliveries[0].id])

    assert await client.held(queue, deliveries[0].token) == deliveries[1:]
    assert await client.held(queue, 7) == []


async def test_holders_say_who_holds_a_message_and_until_when(client: AsyncHoldfast, queue: str) -> None:
    ids = await client.send_batch(queue, [1, 2, 3])
    deliveries = await client.claim(queue, 2, consumer="anna")

    holders = await client.holders(queue, [*ids, 7])

    token, deadline = deliveries[0].token, deliveries[0].deadline
    assert sorted(holders, key=lambda holder: holder.id) == [
        Holder(id=id, token=token, consumer="anna", deadline=deadline) for id in ids[:2]
    ]
    assert await client.holders(queue, []) == []


async def test_thousands_of_holders_can_be_asked_for(client: AsyncHoldfast, queue: str) -> None:
    (delivery,) = await claimed(client, queue, [1])

    (holder,) = await client.holders(queue, [delivery.id, *range(5000)])

    assert (holder.id, holder.consumer) == (delivery.id, None)


async def test_claims_and_leases_are_the_open_claims(client: AsyncHoldfast, queue: str) -> None:
    ids = await client.send_batch(queue, [1, 2, 3])
    two = await client.claim(queue, 2, consumer="anna")
    (one,) = await client.claim(queue, consumer="ben")

    (claim,) = await client.claims(queue, "anna")
    leases = await client.leases(queue)

    assert (claim.token, claim.messages, claim.first_id, claim.last_id, claim.deadline) == (
        two[0].token,
        2,
        ids[0],
        ids[1],
        two[0].deadline,
    )
    assert {(lease.consumer, lease.messages, lease.deadline) for lease in leases} == {
        ("anna", 2, two[0].deadline),
        ("ben", 1, one.deadline),
    }
    assert len(await client.leases(queue, 1)) == 1
    assert await client.claims(queue, "nobody") == []
