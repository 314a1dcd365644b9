"""why, samples, maintain and fast_mode through the client; and who promises that a send is alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import AsyncHoldfast, Finding, InvalidBudgetError, InvalidPeriodError, NewMessage

START = datetime(2030, 1, 1, tzinfo=UTC)
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


async def test_why_returns_findings(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")
    await client.send("orders")
    await client.pause_queue("orders")

    found = await client.why("orders")

    assert found == [
        Finding(
            finding="paused",
            severity="blocking",
            message="The queue is paused: claims get nothing.",
            details={"ready": 1},
            remedy="Resume it: select holdfast.resume_queue('orders').",
        )
    ]


async def test_samples_are_what_maintain_wrote_down(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.set_clock(%s)", [START])
    await client.create_queue("orders")
    await client.send_batch("orders", [1, 2, 3])
    did = await client.maintain(timedelta(seconds=10))

    (sample,) = await client.samples("orders")
    none = await client.samples("orders", START, START + timedelta(days=1))

    assert (did["sampled"], did["done"]) == (1, True)
    assert (sample.ended, sample.sent, sample.ready, sample.oldest_age) == (START, 3, 3, timedelta(0))
    assert sum(sample.waiting.values()) == sum(sample.processing.values()) == 0
    assert none == []


async def test_bad_periods_and_budgets_are_errors_of_their_own(client: AsyncHoldfast) -> None:
    await client.create_queue("orders")

    with pytest.raises(InvalidPeriodError):
        await client.samples("orders", START, START - timedelta(days=1))
    with pytest.raises(InvalidBudgetError):
        await client.maintain(60)


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
