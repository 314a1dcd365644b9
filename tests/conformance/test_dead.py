"""What has ended: dead letters and how they come back, the archive, and what is deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import (
    AsyncHoldfast,
    InvalidDeadLetterError,
    InvalidFilterError,
    InvalidLimitError,
    InvalidPurgeError,
    InvalidReplayError,
    Purged,
)
from tests.conformance.conftest import Clock, MakeQueue


async def fail(client: AsyncHoldfast, queue: str, *errors: str, **options: Any) -> list[int]:
    """Let messages become dead letters, each with its error as payload; returns their ids there."""
    await client.send_batch(queue, list(errors), **options)
    for delivery in await client.claim(queue, len(errors)):
        await client.nack(queue, delivery.token, [delivery.id], error=delivery.payload)
    return [entry.id for entry in await client.browse(queue, "dead")]


async def finish(client: AsyncHoldfast, queue: str, *payloads: Any) -> list[int]:
    """Send, claim and ack messages; returns their ids."""
    ids = await client.send_batch(queue, list(payloads))
    deliveries = await client.claim(queue, len(payloads), consumer="anna")
    await client.ack(queue, deliveries[0].token)
    return ids


# --- dead letters --------------------------------------------------------------------------------


async def test_a_message_that_failed_too_often_becomes_a_dead_letter(
    client: AsyncHoldfast, make_queue: MakeQueue
) -> None:
    queue = await make_queue(max_deliveries=2)
    id = await client.send(queue, {"n": 1}, tag="t", headers={"h": 1})
    for _ in range(2):
        (delivery,) = await client.claim(queue)
        await client.nack(queue, delivery.token, delay=0, error="no\nstock")

    (dead,) = await client.browse(queue, "dead")
    (delivered,) = await client.claim(f"{queue}.dlq")

    assert (dead.payload, dead.state, dead.tag, dead.headers) == ({"n": 1}, "dead", "t", {"h": 1})
    assert dead.last_error == "no\nstock"
    assert dead.origin is not None
    assert (dead.origin["queue"], dead.origin["id"], dead.origin["root_id"]) == (queue, id, id)
    assert dead.origin["died_at"].endswith("+00:00")
    assert delivered.origin == dead.origin
    assert (await client.queue_stats(queue)).dead == 1


async def test_redrive_sends_dead_letters_back(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(max_deliveries=1)
    first, second, third = await fail(client, queue, "no stock", "no address", "no money")

    (by_filter,) = await client.redrive(queue, filter={"error": "no address"}, limit=10)
    (by_id,) = await client.redrive(queue, [third, 7])
    (rest,) = await client.redrive(queue, limit=1)
    none = await client.redrive(queue)

    assert (by_filter.id, by_id.id, rest.id, none) == (second, third, first, [])
    back = {delivery.id: delivery.payload for delivery in await client.claim(queue, 10)}
    assert back == {by_filter.new_id: "no address", by_id.new_id: "no money", rest.new_id: "no stock"}


async def test_dead_letters_can_go_to_another_queue(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue, target = await make_queue(max_deliveries=1), await make_queue()
    await fail(client, queue, "a", tag="x")

    (moved,) = await client.redrive(queue, filter={"tag": "x"}, target=target)

    assert [(d.id, d.payload) for d in await client.claim(target)] == [(moved.new_id, "a")]


async def test_discard_deletes_messages_dead_or_not(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(max_deliveries=1)
    (dead,) = await fail(client, queue, "a")
    id = await client.send(queue, 1)

    assert await client.discard(queue, [id, 7]) == [id]
    assert await client.discard(queue, [dead]) == [dead]
    assert await client.discard(queue, []) == []
    assert (await client.queue_stats(queue)).dead == 0


async def test_what_cannot_be_redriven_is_refused(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue, without = await make_queue(), await make_queue(dead_letter=False)

    with pytest.raises(InvalidDeadLetterError):
        await client.redrive(without)
    with pytest.raises(InvalidDeadLetterError):
        await client.redrive(queue, target="nowhere")
    for bad in ({"colour": "red"}, {"error": "\0"}, {"dead_before": "soon"}):
        with pytest.raises(InvalidFilterError):
            await client.redrive(queue, filter=bad)
    with pytest.raises(InvalidLimitError):
        await client.redrive(queue, limit=0)


# --- the archive ---------------------------------------------------------------------------------


async def test_what_ended_is_kept_and_read_in_its_order(
    client: AsyncHoldfast, make_queue: MakeQueue, clock: Clock
) -> None:
    start = clock.stop()
    queue = await make_queue(keep=["done", "discarded"])
    ids = await finish(client, queue, "a", "b")
    later = clock.forward(minutes=1)
    thrown = await client.send(queue, "c")
    await client.discard(queue, [thrown])
    clock.forward(minutes=1)

    first = await client.read_archive(queue, limit=1)
    rest = await client.read_archive(queue, first[-1].ended_at, after=first[-1].id)
    period = await client.read_archive(queue, later, later + timedelta(seconds=1))

    assert [(entry.id, entry.payload, entry.state) for entry in (*first, *rest)] == [
        (ids[0], "a", "done"),
        (ids[1], "b", "done"),
        (thrown, "c", "discarded"),
    ]
    assert [entry.ended_at for entry in (*first, *rest)] == [start, start, later]
    assert [entry.id for entry in period] == [thrown]
    assert [entry.id for entry in await client.browse(queue, "archive")] == [*ids, thrown]
    found = await client.message(queue, ids[0])
    assert found is not None
    assert (found.state, found.ended_at, found.consumer, found.claimed_at) == ("done", start, "anna", start)


async def test_replay_sends_what_is_kept_once_more(
    client: AsyncHoldfast, make_queue: MakeQueue, clock: Clock
) -> None:
    now = clock.stop()
    queue, target = await make_queue(keep=["done"]), await make_queue()
    ids = await finish(client, queue, "a", "b", "c")

    first = await client.replay(queue, now, now + timedelta(seconds=1), limit=1)
    second = await client.replay(queue, first[-1].ended_at, outcomes=["done"], after=first[-1].id, limit=1)
    third = await client.replay(queue, after=second[-1].id, from_=now, target=target)

    assert [replayed.id for replayed in (*first, *second, *third)] == ids
    assert {replayed.ended_at for replayed in (*first, *second, *third)} == {now}
    back = [(d.id, d.payload) for d in (*await client.claim(queue, 9), *await client.claim(target, 9))]
    assert back == [
        (replayed.new_id, text) for replayed, text in zip((*first, *second, *third), "abc", strict=True)
    ]


async def test_a_replay_that_makes_no_sense_is_refused(client: AsyncHoldfast, queue: str) -> None:
    now = await client.now()

    for call in (
        client.replay(queue, outcomes=["lost"]),
        client.replay(queue, now, now - timedelta(days=1)),
        client.read_archive(queue, now, now - timedelta(days=1)),
    ):
        with pytest.raises(InvalidReplayError):
            await call


async def test_purge_ends_messages_by_state_and_counts_them(
    client: AsyncHoldfast, make_queue: MakeQueue
) -> None:
    queue = await make_queue(keep=["discarded"])
    await client.send_batch(queue, [1, 2, 3])
    await client.send(queue, 4, delay=3600)

    first = await client.purge(queue, ["ready"], limit=2)
    rest = await client.purge(queue, ("ready", "scheduled"))

    assert (first, rest) == (Purged(purged=2, more=True), Purged(purged=2, more=False))
    kept = await client.browse(queue, "archive")
    assert [(entry.payload, entry.state) for entry in kept] == [(n, "discarded") for n in (1, 2, 3, 4)]
    assert all(isinstance(entry.ended_at, datetime) for entry in kept)


async def test_a_purge_of_no_state_or_of_another_is_refused(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)

    for states in ([], ["asleep"], ["ready", "asleep"], ["\0"]):
        with pytest.raises(InvalidPurgeError):
            await client.purge(queue, states)

    assert (await client.queue_stats(queue)).ready == 1
