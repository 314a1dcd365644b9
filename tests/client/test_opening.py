"""What happens on first use: the schema is checked, and a failure says why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import AsyncHoldfast, Holdfast, SchemaMissingError, SchemaTooNewError
from holdfast.client._schema import KNOWN_VERSION, check_schema
from holdfast.migrate import Sources
from tests.client.conftest import Bind, Open


def add_migration(conn: psycopg.Connection[Any], version: int, *, breaking: bool) -> None:
    conn.execute(
        "insert into holdfast.migration (version, name, checksum, breaking) values (%s, 'later', 'x', %s)",
        [version, breaking],
    )


async def test_a_database_without_holdfast_is_refused(empty_database_url: str, open_client: Open) -> None:
    client = open_client(empty_database_url)

    with pytest.raises(SchemaMissingError) as caught:
        await client.queues()

    assert (caught.value.code, caught.value.hint) == ("QH502", "Run: holdfast migrate")


async def test_a_newer_breaking_schema_is_refused(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    add_migration(conn, KNOWN_VERSION + 1, breaking=True)

    with pytest.raises(SchemaTooNewError) as caught:
        await client.queues()

    assert caught.value.code == "QH501"
    assert str(KNOWN_VERSION + 1) in (caught.value.detail or "")


async def test_a_newer_schema_that_breaks_nothing_is_fine(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    add_migration(conn, KNOWN_VERSION + 1, breaking=False)

    assert await client.queues() == []


async def test_a_client_that_was_refused_works_once_the_schema_is_there(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    add_migration(conn, KNOWN_VERSION + 1, breaking=True)
    with pytest.raises(SchemaTooNewError):
        await client.queues()

    conn.execute("delete from holdfast.migration where version > %s", [KNOWN_VERSION])

    assert await client.queues() == []


def test_this_client_knows_the_newest_migration() -> None:
    assert Sources.read().version == KNOWN_VERSION


def test_the_check_leaves_an_open_transaction_intact(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        with pytest.raises(SchemaMissingError):
            check_schema(connection)

        assert connection.execute("select 1").fetchone() == (1,)


async def test_a_producer_may_check_the_schema_and_send(
    database_url: str, conn: psycopg.Connection[Any], open_client: Open
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("create role client_test_producer login password 'secret' in role holdfast_producer")
    try:
        host = database_url.rpartition("@")[2]
        client = open_client(f"postgresql://client_test_producer:secret@{host}")

        await client.send("orders", 1)
        await client.bulk_send("orders", [2, 3])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await client.claim("orders")
        await client.close()
    finally:
        conn.execute("drop role client_test_producer")

    assert conn.execute("select ready from holdfast.queue_stats('orders')").fetchone() == (3,)


async def test_a_server_that_is_not_there_is_reported_at_once(open_client: Open) -> None:
    client = open_client("postgresql://nobody@127.0.0.1:1/nothing")

    async with asyncio.timeout(10):
        with pytest.raises(psycopg.OperationalError, match="connection"):
            await client.queues()


@pytest.fixture
def crowded(database_url: str, conn: psycopg.Connection[Any]) -> Iterator[str]:
    """The URL of a user who may open two connections; client_test_crowded."""
    conn.execute(
        "create role client_test_crowded login password 'secret' connection limit 2 in role holdfast_admin"
    )
    yield f"postgresql://client_test_crowded:secret@{database_url.rpartition('@')[2]}"
    conn.execute("drop role client_test_crowded")


async def test_a_client_whose_pool_did_not_open_in_time_works_later(
    crowded: str, conn: psycopg.Connection[Any], open_client: Open
) -> None:
    client = open_client(crowded, min_size=3, max_size=3, timeout=1)
    with pytest.raises(psycopg.OperationalError):
        await client.queues()

    conn.execute("alter role client_test_crowded connection limit -1")

    assert await client.queues() == []
    await client.close()


async def test_a_client_whose_first_call_was_cancelled_works_later(
    crowded: str, conn: psycopg.Connection[Any]
) -> None:
    async with AsyncHoldfast(crowded, min_size=3, max_size=3) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.queues()

        conn.execute("alter role client_test_crowded connection limit -1")

        assert await client.queues() == []


async def test_concurrent_first_calls_open_one_pool(client: AsyncHoldfast) -> None:
    answers = await asyncio.gather(*(client.queues() for _ in range(8)))

    assert answers == [[]] * 8


@pytest.mark.parametrize(("prepare", "expected"), [(False, 0), (True, 1)])
def test_prepared_statements_are_used_only_on_request(
    database_url: str, conn: psycopg.Connection[Any], prepare: bool, expected: int
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    prepared = "select count(*) from pg_prepared_statements where statement like '%holdfast.send(%'"

    with Holdfast(database_url, prepare=prepare, max_size=1) as client:
        for number in range(8):
            client.send("orders", number)
        with client.transaction() as transaction:
            found = transaction.connection.execute(prepared).fetchone()

    assert found == (expected,)


def test_exactly_one_source_of_connections_must_be_given(database_url: str) -> None:
    with pytest.raises(ValueError, match="exactly one of: url, pool, connection"):
        Holdfast()
    with psycopg.connect(database_url) as connection, pytest.raises(ValueError, match="exactly one of"):
        Holdfast(database_url, connection=connection)


async def test_a_callers_connection_is_not_checked_nor_closed(bind: Bind) -> None:
    client, connection = await bind()

    await client.close()

    assert not connection.closed


@pytest.mark.parametrize("used", [True, False])
async def test_a_closed_client_says_so(client: AsyncHoldfast, used: bool) -> None:
    if used:
        await client.queues()

    await client.close()
    await client.close()

    with pytest.raises(RuntimeError, match="this client is closed: make a new one"):
        await client.queues()
    with pytest.raises(RuntimeError, match="this client is closed: make a new one"):
        await client.bulk_send("orders", [1])
