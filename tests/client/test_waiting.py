"""Waiting claims: woken by a notification, found by polling all the same, and never in others' way."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import AsyncHoldfast, Delivery, Holdfast
from tests.client.conftest import Bind, BindPool, Open
from tests.waiting import eventually

LISTENERS = """
select pid from pg_stat_activity where datname = current_database() and query like 'listen%'
"""
PATIENCE = 20.0  # seconds a test waits at most
NEVER = 3600.0  # a poll that long means: only a notification can have woken it


async def until(conn: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, once there are any."""
    return await asyncio.to_thread(
        eventually, lambda: conn.execute(query.encode()).fetchall(), what=query, timeout=PATIENCE
    )


async def asleep(conn: psycopg.Connection[Any], queue: str) -> None:
    """Wait until a consumer has registered on the queue and listens."""
    await until(conn, LISTENERS)
    registered = (
        f"select 1 from holdfast.queue q where name = '{queue}' and pg_sequence_last_value(asleep) > 0"
    )
    await until(conn, registered)


def waiting(client: AsyncHoldfast, **options: Any) -> asyncio.Task[list[Delivery]]:
    return asyncio.ensure_future(client.claim("orders", 10, wait=PATIENCE, **options))


async def test_a_waiting_claim_gets_what_is_there_at_once(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1)

    deliveries = await client.claim("orders", wait=timedelta(hours=1))

    assert [delivery.payload for delivery in deliveries] == [1]


async def test_a_waiting_claim_gives_up_when_its_time_is_over(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    began = time.monotonic()

    assert await client.claim("orders", wait=0.3) == []

    assert 0.3 <= time.monotonic() - began < PATIENCE


async def test_a_notification_wakes_a_claim_long_before_its_next_poll(
    open_client: Open, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    client = open_client(database_url, poll=NEVER)
    await client.create_queue("orders")
    claim = waiting(client)
    await asleep(conn, "orders")

    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]


async def test_polling_finds_messages_without_any_notification(
    open_client: Open, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    client = open_client(database_url, listen=False)
    await client.create_queue("orders")
    claim = waiting(client)

    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]
    assert conn.execute(LISTENERS.encode()).fetchall() == []


async def test_polling_finds_messages_of_a_queue_that_does_not_notify(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    await client.create_queue("orders", {"notify": False})
    claim = waiting(client)
    await until(conn, LISTENERS)

    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]


async def test_polling_finds_a_message_whose_delay_ran_out(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1, delay=0.3)

    deliveries = await client.claim("orders", wait=PATIENCE)

    assert [delivery.payload for delivery in deliveries] == [1]


async def test_many_waiting_claims_share_one_listening_connection(
    open_client: Open, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    client = open_client(database_url)
    await client.create_queue("orders")
    claims = [asyncio.ensure_future(client.claim("orders", wait=PATIENCE)) for _ in range(4)]
    await asleep(conn, "orders")

    listeners = conn.execute(LISTENERS.encode()).fetchall()
    for number in range(4):
        conn.execute("select holdfast.send('orders', to_jsonb(%s))", [number])
    got = [await asyncio.wait_for(claim, PATIENCE) for claim in claims]

    assert len(listeners) == 1
    assert sorted(delivery.payload for deliveries in got for delivery in deliveries) == [0, 1, 2, 3]


async def test_a_lost_listening_connection_is_replaced(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    await client.create_queue("orders")
    claim = waiting(client)
    ((pid,),) = await until(conn, LISTENERS)

    conn.execute("select pg_terminate_backend(%s)", [pid])
    await until(conn, f"{LISTENERS} and pid <> {pid}")
    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]


async def test_closing_the_client_ends_its_listening(
    open_client: Open, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    client = open_client(database_url)
    await client.create_queue("orders")
    await client.claim("orders", wait=0.1)
    await until(conn, LISTENERS)

    await client.close()

    await until(conn, f"select 1 where not exists ({LISTENERS})")
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-listen"]


async def test_a_cancelled_wait_leaves_the_client_usable(
    database_url: str, conn: psycopg.Connection[Any]
) -> None:
    async with AsyncHoldfast(database_url) as client:
        await client.create_queue("orders")
        claim = waiting(client)
        await asleep(conn, "orders")

        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        await client.send("orders", 1)

        assert [delivery.payload for delivery in await client.claim("orders")] == [1]


async def test_a_cancelled_call_gives_its_connection_back(
    database_url: str, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(
        "create or replace function holdfast.sweep(queue text) returns int language sql as "
        "'select 1 from pg_sleep(60)'"
    )
    async with AsyncHoldfast(database_url, max_size=1) as client:
        slow = asyncio.create_task(client.sweep("orders"))
        await until(conn, "select 1 from pg_stat_activity where wait_event = 'PgSleep'")

        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow

        assert await asyncio.wait_for(client.queues(), PATIENCE) == []


async def test_a_claim_in_an_open_transaction_refuses_to_wait(bind: Bind) -> None:
    client, _ = await bind()

    with pytest.raises(ValueError, match="wait is refused inside a transaction"):
        await client.claim("orders", wait=1)
    async with client.transaction() as transaction:
        with pytest.raises(ValueError, match="wait is refused inside a transaction"):
            await transaction.claim("orders", wait=1)


async def test_a_claim_on_an_autocommit_connection_may_wait(
    bind: Bind, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    client, _ = await bind(autocommit=True)
    claim = waiting(client)

    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]


async def test_a_client_over_a_pool_listens_where_it_is_told(
    bind_pool: BindPool, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    client = await bind_pool(autocommit=True, listen_url=database_url)
    claim = waiting(client)

    await asleep(conn, "orders")
    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]
    await client.close()


def test_a_wait_may_have_no_end(database_url: str, conn: psycopg.Connection[Any]) -> None:
    with Holdfast(database_url) as client:
        client.create_queue("orders")
        timer = threading.Timer(0.2, lambda: conn.execute("select holdfast.send('orders', '1')"))
        timer.start()

        deliveries = client.claim("orders", wait=math.inf)

        timer.join()
        assert [delivery.payload for delivery in deliveries] == [1]


async def test_listen_returns_the_channel(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    assert await client.listen("orders", 5) == "holdfast"
