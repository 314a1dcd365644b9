"""fast_mode through the client; and who promises that a send is alone."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast import AsyncHoldfast, NewMessage

# Writes down with which setting each message was sent.
WITNESS = """
create table witness (setting text);
create function witness() returns trigger language plpgsql as $$
begin insert into public.witness values (current_setting('synchronous_commit')); return null; end $$;
create trigger witness after insert on holdfast.message for each statement execute function witness();
"""


@pytest.fixture
def witnessed(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A database that writes down how messages are sent."""
    conn.execute(WITNESS)
    return conn


def settings(conn: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in conn.execute("select setting from witness")]


async def test_sends_to_a_fast_queue_do_not_wait_unless_a_transaction_is_open(
    client: AsyncHoldfast, witnessed: psycopg.Connection[Any]
) -> None:
    await client.create_queue("orders", {"durability": "fast"})
    await client.send("orders", 1)
    await client.send_batch("orders", [1])
    await client.send_many("orders", [NewMessage(payload=1)])
    async with client.transaction() as transaction:
        await transaction.send("orders", 1)

    assert settings(witnessed) == ["off", "off", "off", "on"]


async def test_fast_mode_is_for_one_transaction(
    client: AsyncHoldfast, witnessed: psycopg.Connection[Any]
) -> None:
    await client.create_queue("orders")
    async with client.transaction() as transaction:
        await transaction.fast_mode()
        await transaction.send("orders", 1)
    await client.send("orders", 1)

    assert settings(witnessed) == ["off", "on"]
