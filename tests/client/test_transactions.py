"""Transactions: sends and acks that take effect with the caller's own changes, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast import AsyncHoldfast, AsyncTransaction, LeaseLostError, QueueNotFoundError
from tests.client.conftest import Bind, BindPool


class OwnError(Exception):
    """Raised by the scenarios."""


def ready(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("select ready from holdfast.queue_stats('orders')").fetchone()
    assert row is not None
    return int(row[0])


async def test_a_transaction_commits_sends_with_the_callers_rows(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("create table invoice (id int)")
    await client.create_queue("orders")

    async with client.transaction() as transaction:
        await transaction.connection.execute("insert into invoice values (1)")
        await transaction.send("orders", {"invoice": 1})
        assert ready(conn) == 0

    assert ready(conn) == 1
    assert conn.execute("select id from invoice").fetchall() == [(1,)]


async def test_a_transaction_that_fails_sends_nothing(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    await client.create_queue("orders")

    async def fail() -> None:
        async with client.transaction() as transaction:
            await transaction.send("orders", 1)
            await transaction.bulk_send("orders", [2, 3])
            raise OwnError

    with pytest.raises(OwnError):
        await fail()

    assert await client.claim("orders", 10) == []


async def test_an_ack_is_undone_with_its_transaction(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1)
    (delivery,) = await client.claim("orders")

    async def fail() -> None:
        async with client.transaction() as transaction:
            await transaction.ack("orders", delivery.token)
            raise OwnError

    with pytest.raises(OwnError):
        await fail()

    assert [held.id for held in await client.held("orders", delivery.token)] == [delivery.id]


async def test_a_strict_ack_of_a_lost_lease_undoes_the_callers_rows(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("create table result (id int)")
    await client.create_queue("orders")
    await client.send("orders", 1)
    (delivery,) = await client.claim("orders")
    await client.release("orders", delivery.token)

    async def work() -> None:
        async with client.transaction() as transaction:
            await transaction.connection.execute("insert into result values (1)")
            await transaction.ack("orders", delivery.token, [delivery.id], strict=True)

    with pytest.raises(LeaseLostError):
        await work()

    assert conn.execute("select * from result").fetchall() == []


async def test_an_inner_transaction_is_a_savepoint(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    async def fail_inside(outer: AsyncTransaction) -> None:
        async with outer.transaction() as inner:
            await inner.send("orders", "undone")
            await inner.send("nowhere", 1)

    async with client.transaction() as outer:
        await outer.send("orders", "kept")
        with pytest.raises(QueueNotFoundError):
            await fail_inside(outer)

    assert [delivery.payload for delivery in await client.claim("orders", 10)] == ["kept"]


async def test_the_callers_connection_is_never_committed(bind: Bind, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    client, connection = await bind()

    await client.send("orders", 1)
    await client.bulk_send("orders", [2, 3])
    await client.bulk_send("orders", [4, 5], chunk=1, atomic=False)
    async with client.transaction() as savepoint:
        await savepoint.send("orders", 6)
    await client.close()

    assert connection.info.transaction_status == TransactionStatus.INTRANS
    assert ready(conn) == 0
    await connection.commit()
    assert ready(conn) == 6


async def test_a_transaction_on_a_fresh_connection_of_the_callers_ends_nothing(
    bind: Bind, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    client, connection = await bind()

    async with client.transaction() as savepoint:
        await savepoint.send("orders", 1)

    assert connection.info.transaction_status == TransactionStatus.INTRANS
    await connection.rollback()
    assert ready(conn) == 0


async def test_an_error_leaves_the_callers_transaction_to_the_caller(bind: Bind) -> None:
    client, connection = await bind()

    with pytest.raises(QueueNotFoundError):
        await client.send("nowhere", 1)

    assert connection.info.transaction_status == TransactionStatus.INERROR
    await connection.rollback()


async def test_every_send_on_an_autocommit_connection_takes_effect(
    bind: Bind, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    client, connection = await bind(autocommit=True)

    async def fail() -> None:
        async with client.transaction() as transaction:
            await transaction.send("orders", 2)
            raise OwnError

    await client.send("orders", 1)
    with pytest.raises(OwnError):
        await fail()

    assert connection.info.transaction_status == TransactionStatus.IDLE
    assert ready(conn) == 1


async def test_only_a_client_with_a_pool_promises_to_be_alone(
    bind: Bind, bind_pool: BindPool, client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("create sequence seen")
    conn.execute("create table promise (n int default nextval('seen'), alone boolean)")
    conn.execute(
        "create or replace function holdfast.claim(queue text, max int default 1, "
        "lease interval default null, consumer text default null, alone boolean default false) "
        "returns setof holdfast.delivery "
        "language plpgsql as 'begin insert into promise (alone) values (claim.alone); end'"
    )
    caller, connection = await bind(autocommit=True)
    pooled = await bind_pool(autocommit=False)

    for each in (client, pooled, caller):
        await asyncio.wait_for(first_claim(each), 20)
    async with client.transaction() as transaction:
        await transaction.claim("orders")

    promises = conn.execute("select alone from promise order by n").fetchall()
    assert promises == [(True,), (True,), (False,), (False,)]
    assert connection.info.transaction_status == TransactionStatus.IDLE


async def first_claim(client: AsyncHoldfast) -> None:
    await client.claim("orders")


@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_pool_of_the_callers_commits_each_call(
    bind_pool: BindPool, conn: psycopg.Connection[Any], autocommit: bool
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    client = await bind_pool(autocommit=autocommit)

    await client.send("orders", 1)
    async with client.transaction() as transaction:
        await transaction.send("orders", 2)

    assert [delivery.payload for delivery in await client.claim("orders", 10)] == [1, 2]
    assert conn.execute("select in_flight from holdfast.queue_stats('orders')").fetchone() == (2,)


async def test_a_pool_of_the_callers_stays_open_when_the_client_closes(bind_pool: BindPool) -> None:
    client = await bind_pool(autocommit=True)

    await client.close()

    assert await client.queues() == []


async def test_a_claim_that_is_rolled_back_never_happened(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    await client.create_queue("orders")
    await client.send("orders", 1)

    async def fail() -> None:
        async with client.transaction() as transaction:
            assert len(await transaction.claim("orders")) == 1
            raise OwnError

    with pytest.raises(OwnError):
        await fail()

    assert [delivery.deliveries for delivery in await client.claim("orders")] == [1]
