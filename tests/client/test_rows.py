"""Rows become values by the names of their columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from holdfast import Holdfast, Settlement, UnreadableJson
from holdfast.client._rows import record


def test_columns_may_come_in_any_order_and_with_others_between(conn: psycopg.Connection[Any]) -> None:
    cursor = conn.cursor(row_factory=record(Settlement))

    row = cursor.execute("select array[2::int8] as skipped, 1 as news, array[1::int8] as settled").fetchone()

    assert row == Settlement(settled=[1], skipped=[2])


def test_a_missing_column_is_an_error(conn: psycopg.Connection[Any]) -> None:
    cursor = conn.cursor(row_factory=record(Settlement))

    with pytest.raises(TypeError, match="skipped"):
        cursor.execute("select array[1::int8] as settled").fetchone()


def test_values_can_not_be_changed() -> None:
    settlement = Settlement(settled=[1], skipped=[])

    with pytest.raises(AttributeError):
        settlement.settled = []  # type: ignore[misc]  # that it is refused is the point


def test_one_payload_that_python_cannot_read_spoils_no_other(database_url: str) -> None:
    deep = "[" * 5000 + "]" * 5000
    with Holdfast(database_url) as client, psycopg.connect(database_url, autocommit=True) as conn:
        client.create_queue("q")
        for text in ('"good"', "1e5000", deep, '"too"'):
            conn.execute("select holdfast.send('q', %s::jsonb)", [text])

        payloads = [delivery.payload for delivery in client.claim("q", max=10)]

    assert payloads == ["good", Decimal("1" + "0" * 5000), UnreadableJson(deep), "too"]


def test_parse_float_says_what_numbers_with_a_fraction_become(database_url: str) -> None:
    number = "12345678901234567890.12345"
    with Holdfast(database_url, parse_float=Decimal) as exact, Holdfast(database_url) as plain:
        exact.create_queue("q")
        with exact.transaction() as transaction:
            transaction.connection.execute("select holdfast.send('q', %s::jsonb)", [number])
            (inside,) = transaction.browse("q")
        (outside,) = exact.browse("q")
        (rounded,) = plain.browse("q")

    assert (inside.payload, outside.payload) == (Decimal(number), Decimal(number))
    assert (rounded.payload, type(rounded.payload)) == (float(number), float)


def test_parse_float_counts_for_pools_and_connections_too(database_url: str) -> None:
    with Holdfast(database_url) as client:
        client.create_queue("q")
        client.send("q", 0.1)
    with ConnectionPool(database_url) as pool, psycopg.connect(database_url) as connection:
        by_pool = Holdfast(pool=pool, parse_float=str).browse("q")
        by_connection = Holdfast(connection=connection, parse_float=str).browse("q")

    assert (by_pool[0].payload, by_connection[0].payload) == ("0.1", "0.1")
