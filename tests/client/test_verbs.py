"""Every verb through the client: its arguments arrive, and its answer comes back as a value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

from holdfast import AsyncHoldfast, NewMessage, Purged, Redriven, Settlement

START = datetime(2030, 1, 1, tzinfo=UTC)


def set_clock(conn: psycopg.Connection[Any], at: datetime) -> None:
    conn.execute("select holdfast.set_clock(%s)", [at])


async def test_create_queue_says_whether_it_was_made(client: AsyncHoldfast) -> None:
    assert await client.create_queue("orders", {"lease": "60 s"}) is True
    assert await client.create_queue("orders", {"lease": "60 s"}) is False


async def test_configure_queue_returns_what_is_in_force(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    effective = await client.configure_queue("orders", {"max_deliveries": 3})

    assert effective["max_deliveries"] == 3
    assert effective["dead_letter"] == "orders.dlq"


async def test_configure_queue_with_none_goes_back_to_the_default(client: AsyncHoldfast) -> None:
    await client.create_queue("orders", {"max_deliveries": 3})

    effective = await client.configure_queue("orders", {"max_deliveries": None})

    assert effective["max_deliveries"] == 5


async def test_configure_defaults_counts_for_queues_that_say_nothing(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    defaults = await client.configure_defaults({"max_deliveries": 7})

    assert defaults["max_deliveries"] == 7
    assert [info.effective["max_deliveries"] for info in await client.queues()] == [7]


async def test_queues_lists_what_was_configured(client: AsyncHoldfast) -> None:
    await client.create_queue("orders", {"max_deliveries": 3})

    (info,) = await client.queues()

    assert (info.queue, info.paused, info.config) == ("orders", False, {"max_deliveries": 3})
    assert info.created_at.tzinfo is not None


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", {"n": 1})

    assert await client.pause_queue("orders") is True
    assert await client.pause_queue("orders") is False
    assert await client.claim("orders") == []
    assert await client.resume_queue("orders") is True
    assert [delivery.payload for delivery in await client.claim("orders")] == [{"n": 1}]


async def test_drop_queue_says_whether_there_was_one(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    assert await client.drop_queue("orders") is True
    assert await client.drop_queue("orders") is False


async def test_a_message_arrives_with_everything_it_was_sent_with(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    correlation = uuid4()

    id = await client.send(
        "orders",
        {"order": 1, "items": ["é", None, 1.5]},
        content_type="application/json",
        headers={"trace": "abc"},
        priority=3,
        ttl=timedelta(hours=1),
        correlation_id=correlation,
        tag="urgent",
        max_deliveries=2,
    )
    (delivery,) = await client.claim("orders", lease=timedelta(seconds=30), consumer="test")

    assert delivery.id == id
    assert delivery.queue == "orders"
    assert delivery.payload == {"order": 1, "items": ["é", None, 1.5]}
    assert delivery.body is None
    assert delivery.content_type == "application/json"
    assert delivery.headers == {"trace": "abc"}
    assert delivery.priority == 3
    assert delivery.correlation_id == correlation
    assert delivery.tag == "urgent"
    assert (delivery.deliveries, delivery.max_deliveries) == (1, 2)
    assert delivery.deadline > delivery.enqueued_at
    assert (delivery.key, delivery.ordering_key, delivery.last_error, delivery.origin) == (None,) * 4


async def test_a_body_arrives_as_the_same_bytes(client: AsyncHoldfast) -> None:
    await client.create_queue("files")

    await client.send("files", body=b"\x00\xff\n'\\", content_type="application/octet-stream")
    (delivery,) = await client.claim("files")

    assert (delivery.payload, delivery.body) == (None, b"\x00\xff\n'\\")


async def test_any_json_value_is_a_payload(client: AsyncHoldfast) -> None:
    await client.create_queue("values")
    values: list[Any] = [0, False, "", [], {}, "text", 1.5, [1, {"a": None}]]

    for value in values:
        await client.send("values", value)

    assert [delivery.payload for delivery in await client.claim("values", 10)] == values


async def test_none_is_no_payload_and_jsonb_none_is_json_null(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    await client.create_queue("values")

    await client.send("values", None)
    await client.send("values", Jsonb(None))

    stored = conn.execute("select payload::text from holdfast.message order by id").fetchall()
    assert stored == [(None,), ("null",)]


async def test_durations_are_timedeltas_or_seconds(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    set_clock(conn, START)
    await client.create_queue("later")

    await client.send("later", 1, delay=90.5)
    await client.send("later", 2, delay=timedelta(seconds=90, milliseconds=500))

    due = [entry.due_at for entry in await client.browse("later", "scheduled")]
    assert due == [START + timedelta(seconds=90.5)] * 2


async def test_deliver_at_holds_a_message_back_until_then(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    set_clock(conn, START)
    await client.create_queue("later")
    await client.send("later", 1, deliver_at=START + timedelta(minutes=1))

    assert await client.claim("later") == []
    set_clock(conn, START + timedelta(minutes=2))

    assert [delivery.payload for delivery in await client.claim("later")] == [1]


async def test_send_batch_returns_ids_in_order(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    ids = await client.send_batch("orders", ({"n": n} for n in range(5)), tag="batch")
    deliveries = await client.claim("orders", 10)

    assert ids == sorted(ids)
    assert [(d.id, d.payload, d.tag) for d in deliveries] == [
        (id, {"n": n}, "batch") for n, id in enumerate(ids)
    ]


async def test_send_batch_of_nothing_sends_nothing(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    assert await client.send_batch("orders", []) == []


async def test_send_many_gives_each_message_its_own_options(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    correlation = uuid4()

    ids = await client.send_many(
        "orders",
        [
            {"plain": True},
            NewMessage(payload={"n": 1}, tag="a", headers={"h": 1}, correlation_id=correlation),
            NewMessage(body=b"\x00\x01", content_type="image/png", max_deliveries=9),
            NewMessage(payload="later", delay=timedelta(hours=1), ttl=7200),
            NewMessage(payload="later", deliver_at=datetime(2035, 1, 1, tzinfo=UTC)),
        ],
    )
    plain, full, binary = await client.claim("orders", 10)
    scheduled = await client.browse("orders", "scheduled")

    assert [plain.id, full.id, binary.id, *(entry.id for entry in scheduled)] == ids
    assert plain.payload == {"plain": True}
    assert (full.tag, full.headers, full.correlation_id) == ("a", {"h": 1}, correlation)
    assert (binary.body, binary.content_type, binary.max_deliveries) == (b"\x00\x01", "image/png", 9)
    assert scheduled[0].expires_at is not None
    assert scheduled[1].due_at == datetime(2035, 1, 1, tzinfo=UTC)


async def test_ack_ends_messages_and_skips_what_the_token_does_not_hold(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    ids = await client.send_batch("orders", [1, 2, 3])
    token = (await client.claim("orders", 10))[0].token

    first = await client.ack("orders", token, [ids[0]])
    again = await client.ack("orders", token, (ids[0], ids[1]))
    rest = await client.ack("orders", token)

    assert first == Settlement(settled=[ids[0]], skipped=[])
    assert again == Settlement(settled=[ids[1]], skipped=[ids[0]])
    assert rest == Settlement(settled=[ids[2]], skipped=[])


async def test_ack_of_an_empty_list_settles_nothing(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1)
    (delivery,) = await client.claim("orders")

    assert await client.ack("orders", delivery.token, []) == Settlement(settled=[], skipped=[])
    assert [held.id for held in await client.held("orders", delivery.token)] == [delivery.id]


async def test_nack_delivers_again_with_the_error(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1)
    (first,) = await client.claim("orders")

    await client.nack("orders", first.token, delay=0, error="no stock")
    (second,) = await client.claim("orders")

    assert (second.id, second.deliveries, second.last_error) == (first.id, 2, "no stock")


async def test_release_does_not_count_as_a_delivery(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1)
    (first,) = await client.claim("orders")

    await client.release("orders", first.token)
    (second,) = await client.claim("orders")

    assert (second.id, second.deliveries) == (first.id, 1)


async def test_extend_moves_the_deadline(client: AsyncHoldfast, conn: psycopg.Connection[Any]) -> None:
    set_clock(conn, START)
    await client.create_queue("orders")
    await client.send("orders", 1)
    (delivery,) = await client.claim("orders", lease=10)

    settlement = await client.extend("orders", delivery.token, 60)
    (held,) = await client.held("orders", delivery.token)

    assert settlement == Settlement(settled=[delivery.id], skipped=[])
    assert (delivery.deadline, held.deadline) == (
        START + timedelta(seconds=10),
        START + timedelta(seconds=60),
    )


async def test_next_acks_and_claims_in_one_call(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send_batch("orders", [1, 2])
    (first,) = await client.claim("orders")

    (second,) = await client.next("orders", first.token)

    assert second.payload == 2
    assert await client.message("orders", first.id) is None


async def test_holders_and_leases_name_the_consumer(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    ids = await client.send_batch("orders", [1, 2])
    deliveries = await client.claim("orders", 2, consumer="anna")

    holders = await client.holders("orders", ids)
    (lease,) = await client.leases("orders")

    token, deadline = deliveries[0].token, deliveries[0].deadline
    found = [(holder.id, holder.token, holder.consumer, holder.deadline) for holder in holders]
    assert sorted(found) == [(id, token, "anna", deadline) for id in ids]
    assert (lease.consumer, lease.messages, lease.deadline) == ("anna", 2, deadline)


async def test_browse_pages_through_each_state(client: AsyncHoldfast) -> None:
    await client.create_queue("orders", {"max_deliveries": 1})
    dead_id = await client.send("orders", "dead")
    (delivery,) = await client.claim("orders")
    await client.nack("orders", delivery.token)
    held_id = await client.send("orders", "held")
    await client.claim("orders")
    later_id = await client.send("orders", "later", delay=3600)
    ready_ids = await client.send_batch("orders", [1, 2, 3])

    first_page = await client.browse("orders", limit=2)
    second_page = await client.browse("orders", limit=2, after=first_page[-1].id)
    (dead,) = await client.browse("orders", "dead")

    assert [entry.id for entry in first_page + second_page] == ready_ids
    assert {entry.state for entry in first_page} == {"ready"}
    assert [entry.id for entry in await client.browse("orders", "in_flight")] == [held_id]
    assert [entry.id for entry in await client.browse("orders", "scheduled")] == [later_id]
    assert (dead.payload, dead.state) == ("dead", "dead")
    assert dead.origin is not None
    assert str(dead.origin["root_id"]) == str(dead_id)


async def test_browse_shows_a_message_in_flight_for_the_second_time(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    id = await client.send("orders", 1)
    (first,) = await client.claim("orders")
    await client.nack("orders", first.token, delay=0)
    await client.claim("orders")

    (entry,) = await client.browse("orders", "in_flight")
    message = await client.message("orders", id)

    assert (entry.id, entry.state, entry.deliveries) == (id, "in_flight", 1)
    assert message == entry


async def test_message_is_none_for_an_id_that_is_not_there(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    id = await client.send("orders", 1)

    found = await client.message("orders", id)

    assert found is not None
    assert (found.id, found.payload, found.state) == (id, 1, "ready")
    assert await client.message("orders", id + 1) is None


async def test_discard_returns_the_ids_that_were_there(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    id = await client.send("orders", 1)

    assert await client.discard("orders", [id, id + 1]) == [id]


async def test_redrive_sends_dead_letters_back(client: AsyncHoldfast) -> None:
    await client.create_queue("orders", {"max_deliveries": 1})
    await client.send_batch("orders", [1, 2])
    for delivery in await client.claim("orders", 2):
        await client.nack("orders", delivery.token, [delivery.id], error=f"failed {delivery.payload}")
    dead = {entry.payload: entry.id for entry in await client.browse("orders", "dead")}

    (filtered,) = await client.redrive("orders", filter={"error": "failed 2"}, limit=10)
    (by_id,) = await client.redrive("orders", [dead[1]])

    assert isinstance(filtered, Redriven)
    assert (filtered.id, by_id.id) == (dead[2], dead[1])
    back = {delivery.id: delivery.payload for delivery in await client.claim("orders", 10)}
    assert back == {filtered.new_id: 2, by_id.new_id: 1}


async def test_purge_ends_messages_by_state_and_counts_them(client: AsyncHoldfast) -> None:
    await client.create_queue("orders", {"keep": ["discarded"]})
    await client.send_batch("orders", [1, 2, 3])
    await client.send("orders", 4, delay=3600)

    first = await client.purge("orders", ["ready"], limit=2)
    rest = await client.purge("orders", ("ready", "scheduled"))

    assert (first, rest) == (Purged(purged=2, more=True), Purged(purged=2, more=False))
    kept = await client.browse("orders", "archive")
    assert [(entry.payload, entry.state) for entry in kept] == [(n, "discarded") for n in (1, 2, 3, 4)]
    assert all(entry.ended_at is not None for entry in kept)


async def test_replay_sends_what_is_kept_once_more(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    set_clock(conn, START)
    await client.create_queue("orders", {"keep": ["done"]})
    ids = await client.send_batch("orders", ["a", "b"])
    (delivery, _) = await client.claim("orders", 2)
    await client.ack("orders", delivery.token)

    first = await client.replay("orders", START, START + timedelta(seconds=1), limit=1)
    rest = await client.replay("orders", first[-1].ended_at, outcomes=["done"], after=first[-1].id)

    assert [replayed.id for replayed in (*first, *rest)] == ids
    back = await client.claim("orders", 10)
    assert [delivery.id for delivery in back] == [replayed.new_id for replayed in (*first, *rest)]
    assert [delivery.payload for delivery in back] == ["a", "b"]


async def test_queue_stats_counts_every_state(client: AsyncHoldfast) -> None:
    await client.create_queue("orders", {"max_deliveries": 1})
    await client.send_batch("orders", ["dead", "held"])
    dead, _ = await client.claim("orders", 2)
    await client.nack("orders", dead.token, [dead.id])
    await client.send("orders", "later", delay=3600)
    await client.send_batch("orders", [1, 2, 3])

    stats = await client.queue_stats("orders")

    assert (stats.queue, stats.ready, stats.scheduled, stats.in_flight, stats.dead) == ("orders", 3, 1, 1, 1)
    assert (stats.blocked, stats.exact, stats.paused) == (0, True, False)
    assert stats.oldest_age is not None
    assert stats.oldest_age >= timedelta(0)
    assert isinstance(stats.counters, dict)


async def test_sweep_takes_back_what_an_expired_lease_held(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    set_clock(conn, START)
    await client.create_queue("orders")
    await client.send("orders", 1)
    await client.claim("orders", lease=10)
    set_clock(conn, START + timedelta(seconds=11))

    assert await client.sweep("orders") == 1
    assert (await client.queue_stats("orders")).in_flight == 0


async def test_maintain_and_repair_report_what_they_did(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1)

    assert isinstance(await client.maintain(), dict)
    assert await client.repair("orders") >= 1
    assert await client.repair() >= 1


async def test_now_is_the_clock_of_holdfast(client: AsyncHoldfast, conn: psycopg.Connection[Any]) -> None:
    set_clock(conn, START)

    assert await client.now() == START


async def test_listen_returns_the_channel(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    assert await client.listen("orders", 5) == "holdfast"
