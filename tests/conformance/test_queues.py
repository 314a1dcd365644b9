"""Queues: made, configured, paused, dropped, listed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import (
    AsyncHoldfast,
    InvalidConfigError,
    InvalidQueueNameError,
    KindFixedError,
    OrderingChangeError,
    QueueExistsError,
    QueueNotEmptyError,
    QueueNotFoundError,
)
from tests.conformance.conftest import MakeQueue

LONGEST = "q" * 200


async def test_create_queue_says_whether_it_was_made(client: AsyncHoldfast, name: str) -> None:
    assert await client.create_queue(name, {"lease": "60 s"}) is True
    assert await client.create_queue(name, {"lease": "60 s"}) is False


async def test_a_queue_that_is_there_with_another_configuration_is_refused(
    client: AsyncHoldfast, name: str
) -> None:
    await client.create_queue(name, {"max_deliveries": 3})

    with pytest.raises(QueueExistsError) as caught:
        await client.create_queue(name, {"max_deliveries": 4})

    assert (caught.value.code, caught.value.message) == (
        "QH102",
        f'queue "{name}" exists with another configuration',
    )
    assert caught.value.detail == "max_deliveries is 3, not 4."
    assert caught.value.hint


async def test_configure_queue_changes_what_it_names_and_returns_what_is_in_force(
    client: AsyncHoldfast, make_queue: MakeQueue
) -> None:
    queue = await make_queue(lease="5 s")

    effective = await client.configure_queue(queue, {"max_deliveries": 3, "dead_letter": False})

    assert (effective["lease"], effective["max_deliveries"]) == ("5 s", 3)
    assert effective["dead_letter"] is False
    assert await client.configure_queue(queue, {}) == effective


async def test_none_goes_back_to_the_default(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(max_deliveries=3)

    assert (await client.configure_queue(queue, {"max_deliveries": None}))["max_deliveries"] == 5


async def test_durations_of_a_configuration_may_be_timedeltas(client: AsyncHoldfast, name: str) -> None:
    await client.create_queue(name, {"lease": timedelta(minutes=2)})

    assert await client.create_queue(name, {"lease": 120}) is False
    effective = await client.configure_queue(
        name, {"backoff": {"base": timedelta(milliseconds=1500), "factor": 3, "cap": timedelta(hours=1)}}
    )
    assert effective["lease"] == 120
    assert (effective["backoff"]["base"], effective["backoff"]["cap"]) == (1.5, 3600)


async def test_a_configuration_may_be_wrapped_json(client: AsyncHoldfast, name: str) -> None:
    assert await client.create_queue(name, Jsonb({"max_deliveries": 3})) is True  # type: ignore[arg-type]
    assert await client.create_queue(name, {"max_deliveries": 3}) is False


async def test_the_defaults_count_for_queues_that_say_nothing(
    client: AsyncHoldfast, make_queue: MakeQueue
) -> None:
    plain, own = await make_queue(), await make_queue(max_deliveries=2)

    defaults = await client.configure_defaults({"max_deliveries": 7})
    in_force = {info.queue: info.effective["max_deliveries"] for info in await client.queues()}
    again = await client.configure_defaults({"max_deliveries": None})

    assert (defaults["max_deliveries"], again["max_deliveries"]) == (7, 5)
    assert (in_force[plain], in_force[own]) == (7, 2)


async def test_queues_tells_what_was_configured(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(max_deliveries=3)
    await client.pause_queue(queue)

    (info,) = [info for info in await client.queues() if info.queue == queue]

    assert (info.queue, info.paused, info.config) == (queue, True, {"max_deliveries": 3})
    assert (info.effective["max_deliveries"], info.effective["dead_letter"]) == (3, f"{queue}.dlq")
    assert info.created_at.utcoffset() is not None
    assert isinstance(info.created_at, datetime)
    assert info.created_at > datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(
    client: AsyncHoldfast, queue: str
) -> None:
    await client.send(queue, {"n": 1})

    assert await client.pause_queue(queue) is True
    assert await client.pause_queue(queue) is False
    assert await client.claim(queue) == []
    assert await client.resume_queue(queue) is True
    assert await client.resume_queue(queue) is False
    assert [delivery.payload for delivery in await client.claim(queue)] == [{"n": 1}]


async def test_drop_queue_says_whether_there_was_one(client: AsyncHoldfast, queue: str) -> None:
    assert await client.drop_queue(queue) is True
    assert await client.drop_queue(queue) is False
    assert queue not in [info.queue for info in await client.queues()]


async def test_drop_queue_if_empty_leaves_what_has_messages(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)

    with pytest.raises(QueueNotEmptyError) as caught:
        await client.drop_queue(queue, if_empty=True)
    (held,) = await client.claim(queue)
    with pytest.raises(QueueNotEmptyError):
        await client.drop_queue(queue, if_empty=True)
    await client.ack(queue, held.token)

    assert (caught.value.code, caught.value.message) == ("QH109", f'queue "{queue}" is not empty')
    assert await client.drop_queue(queue, if_empty=True) is True
    assert await client.drop_queue(queue, if_empty=True) is False


@pytest.mark.parametrize("queue", ["a", "A.b_c:d-0", LONGEST, "..", ".", "-"])
async def test_a_name_has_letters_digits_and_a_few_signs(
    client: AsyncHoldfast, conn: psycopg.Connection[Any], queue: str
) -> None:
    assert await client.create_queue(queue) is True
    await client.send(queue, 1)

    assert [delivery.queue for delivery in await client.claim(queue)] == [queue]
    assert await client.drop_queue(queue) is True


@pytest.mark.parametrize(
    "queue", ["", "a b", "a/b", "/", "a%2Fb", "a?b", "a#b", "käse", "x" * 201, "a\0b", "\n"], ids=ascii
)
async def test_another_name_is_refused(client: AsyncHoldfast, queue: str) -> None:
    with pytest.raises(InvalidQueueNameError) as caught:
        await client.create_queue(queue)

    assert caught.value.code == "QH103"
    assert caught.value.detail
    assert caught.value.hint


@pytest.mark.parametrize(
    "config",
    [
        {"colour": "red"},
        {"lease": "soon"},
        {"lease": "1 ms"},
        {"lease": -1},
        {"max_deliveries": 1001},
        {"max_deliveries": "3"},
        {"max_deliveries": 1.5},
        {"backoff": {"base": 1, "colour": "red"}},
        {"backoff": 7},
        {"ordering": "chaos"},
        {"keep": ["done", "lost"]},
        {"dead_letter": 7},
        {"throughput_limit": 0},
        {"kind": "stack"},
        {"max_deliveries": float("nan")},
        {"dead_letter": "\0"},
        {"\0": 1},
        {"dead_letter": "\ud800"},
        [1],
        7,
    ],
    ids=ascii,
)
async def test_a_bad_configuration_is_refused_and_changes_nothing(
    client: AsyncHoldfast, queue: str, name: str, config: Any
) -> None:
    before = await client.configure_queue(queue, {})

    for call in (client.create_queue(name, config), client.configure_queue(queue, config)):
        with pytest.raises(InvalidConfigError) as caught:
            await call
        assert caught.value.code == "QH104"
        assert caught.value.hint

    assert await client.configure_queue(queue, {}) == before
    assert name not in [info.queue for info in await client.queues()]


async def test_what_a_queue_is_can_not_be_changed(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)

    with pytest.raises(KindFixedError):
        await client.configure_queue(queue, {"kind": "log"})
    with pytest.raises(OrderingChangeError):
        await client.configure_queue(queue, {"ordering": "strict"})


async def test_a_queue_that_is_not_there_is_named(client: AsyncHoldfast) -> None:
    calls = [
        client.configure_queue("nowhere", {}),
        client.pause_queue("nowhere"),
        client.resume_queue("nowhere"),
        client.queue_stats("nowhere"),
        client.purge("nowhere", ["ready"]),
        client.send("nowhere", 1),
        client.send_batch("nowhere", []),
        client.send_many("nowhere", []),
        client.claim("nowhere"),
        client.claim("nowhere", wait=0.01),
        client.ack("nowhere", 1),
        client.held("nowhere", 1),
        client.browse("nowhere"),
        client.message("nowhere", 1),
        client.why("nowhere"),
        client.redrive("nowhere"),
        client.replay("nowhere"),
        client.sweep("nowhere"),
        client.read("nowhere"),
        client.samples("nowhere"),
        client.rollups("nowhere"),
        client.read_archive("nowhere"),
        client.discard("nowhere", [1]),
        client.discard_key("nowhere", "a"),
        client.holders("nowhere", [1]),
        client.claims("nowhere", "anna"),
        client.leases("nowhere"),
        client.blocked_keys("nowhere"),
        client.unblock("nowhere", "a"),
        client.log_stats("nowhere"),
        client.log_delete("nowhere", [1]),
        client.repair("nowhere"),
    ]
    for call in calls:
        with pytest.raises(QueueNotFoundError) as caught:
            await call
        assert (caught.value.code, caught.value.message) == ("QH101", 'queue "nowhere" does not exist')
        assert caught.value.detail
        assert caught.value.hint
