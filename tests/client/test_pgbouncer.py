"""Behind PgBouncer in transaction mode everything works; only notifications need a direct connection."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from holdfast import AsyncHoldfast
from tests.client.conftest import Open

PATIENCE = 20.0  # seconds a test waits at most


async def work(client: AsyncHoldfast, rounds: int) -> list[int]:
    """Send, claim and ack some messages, one at a time."""
    done = []
    for number in range(rounds):
        await client.send("orders", number)
        for delivery in await client.claim("orders", 2):
            settlement = await client.ack("orders", delivery.token, [delivery.id])
            done += settlement.settled
    return done


async def test_many_tasks_share_few_server_connections(pgbouncer_url: str, open_client: Open) -> None:
    client = open_client(pgbouncer_url, max_size=16, listen=False)
    await client.create_queue("orders")

    done = await asyncio.gather(*(work(client, 20) for _ in range(16)))
    rest = await client.claim("orders", 1000)

    assert len({id for ids in done for id in ids} | {delivery.id for delivery in rest}) == 320
    assert sum(map(len, done)) + len(rest) == 320


async def test_transactions_and_bulk_sends_work_through_pgbouncer(
    pgbouncer_url: str, open_client: Open, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("create table invoice (id int)")
    client = open_client(pgbouncer_url, listen=False)
    await client.create_queue("orders")

    async with client.transaction() as transaction:
        await transaction.connection.execute("insert into invoice values (1)")
        await transaction.send("orders", 0)
    await client.bulk_send("orders", range(1, 12_001))

    assert conn.execute("select id from invoice").fetchall() == [(1,)]
    assert (await client.queue_stats("orders")).depth == 12_001


async def test_a_waiting_claim_polls_through_pgbouncer(
    pgbouncer_url: str, open_client: Open, conn: psycopg.Connection[Any]
) -> None:
    client = open_client(pgbouncer_url, listen=False)
    await client.create_queue("orders")
    claim = asyncio.ensure_future(client.claim("orders", wait=PATIENCE))

    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]


async def test_a_waiting_claim_polls_even_if_it_listens_in_vain(
    pgbouncer_url: str, open_client: Open, conn: psycopg.Connection[Any]
) -> None:
    client = open_client(pgbouncer_url)
    await client.create_queue("orders")
    claim = asyncio.ensure_future(client.claim("orders", wait=PATIENCE))

    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]


async def test_notifications_come_by_a_direct_connection_beside_pgbouncer(
    pgbouncer_url: str, open_client: Open, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    never = 3600.0
    client = open_client(pgbouncer_url, listen_url=database_url, poll=never)
    await client.create_queue("orders")
    claim = asyncio.ensure_future(client.claim("orders", wait=PATIENCE))

    conn.execute("select holdfast.send('orders', '1')")

    assert [delivery.payload for delivery in await asyncio.wait_for(claim, PATIENCE)] == [1]
