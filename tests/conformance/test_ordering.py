"""Ordering: lines by key, strict queues, and lines that a dead message blocks."""

from __future__ import annotations

import pytest

from holdfast import (
    AsyncHoldfast,
    InvalidUnblockError,
    KeyNotBlockedError,
    NewMessage,
    OrderingMismatchError,
)
from tests.conformance.conftest import MakeQueue

KEY = "Käse & Brot/7?"


async def test_of_an_ordering_key_one_is_in_flight_at_a_time(
    client: AsyncHoldfast, make_queue: MakeQueue
) -> None:
    queue = await make_queue(ordering="key")
    await client.send_batch(queue, ["a1", "a2"], ordering_key=KEY)
    await client.send_many(queue, [NewMessage(payload="b1", ordering_key="b"), "free"])

    first = await client.claim(queue, 10)
    blocked = await client.browse(queue, "blocked")
    await client.ack(queue, first[0].token)
    second = await client.claim(queue, 10)

    assert [(d.payload, d.ordering_key) for d in first] == [("a1", KEY), ("b1", "b"), ("free", None)]
    assert [(entry.payload, entry.state, entry.ordering_key) for entry in blocked] == [("a2", "blocked", KEY)]
    assert [delivery.payload for delivery in second] == ["a2"]


async def test_a_strict_queue_is_one_line(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(ordering="strict")
    await client.send_batch(queue, [1, 2])

    (first,) = await client.claim(queue, 10)
    none = await client.claim(queue, 10)
    (second,) = await client.next(queue, first.token, 10)

    assert (first.payload, none, second.payload) == (1, [], 2)


@pytest.mark.parametrize(("how", "left"), [("retry", ["first", "second"]), ("skip", ["second"])])
@pytest.mark.parametrize(("ordering", "key"), [("key", KEY), ("strict", None)])
async def test_a_dead_head_blocks_its_line_until_it_is_unblocked(
    client: AsyncHoldfast, make_queue: MakeQueue, ordering: str, key: str | None, how: str, left: list[str]
) -> None:
    queue = await make_queue(ordering=ordering, on_dead="block", max_deliveries=1)
    ids = await client.send_batch(queue, ["first", "second"], ordering_key=key)
    (head,) = await client.claim(queue)
    await client.nack(queue, head.token)

    (line,) = await client.blocked_keys(queue)
    nothing = await client.claim(queue)
    unblocked = await client.unblock(queue, key, how=how)

    assert (line.key, line.head, line.waiting, line.reason) == (key, ids[0], 1, "dead")
    assert line.since.utcoffset() is not None
    assert (nothing, unblocked) == ([], ids[0])
    done = []
    while deliveries := await client.claim(queue):
        done += [delivery.payload for delivery in deliveries]
        await client.ack(queue, deliveries[0].token)
    assert done == left
    assert await client.blocked_keys(queue) == []


async def test_blocked_keys_are_listed_up_to_a_limit(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(ordering="key")
    for key in ("a", "b"):
        await client.send_batch(queue, [1, 2, 3], ordering_key=key)
    await client.claim(queue, 10)

    assert {(line.key, line.waiting, line.reason) for line in await client.blocked_keys(queue)} == {
        ("a", 2, "in_flight"),
        ("b", 2, "in_flight"),
    }
    assert len(await client.blocked_keys(queue, 1)) == 1


async def test_what_is_not_blocked_is_not_unblocked(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(ordering="key", on_dead="block")

    with pytest.raises(KeyNotBlockedError):
        await client.unblock(queue, "a")
    with pytest.raises(InvalidUnblockError):
        await client.unblock(queue, "a", how="somehow")


async def test_an_ordering_key_needs_a_queue_that_has_lines(client: AsyncHoldfast, queue: str) -> None:
    with pytest.raises(OrderingMismatchError):
        await client.send(queue, 1, ordering_key="a")
