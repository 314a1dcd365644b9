"""A table that a stream writes to: found, checked against rows, suggested where it is missing."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from pyspark.sql.types import (
    DayTimeIntervalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.spark._outgoing import ColumnError
from holdfast.spark._table import TableError, Target, find_table, suggestion

ROWS = StructType([StructField("name", StringType()), StructField("total", LongType())])
TABLE = "create table shop.totals (n int generated always as identity, name text not null, total bigint)"


def found(conn: psycopg.Connection[Any], name: str, statement: str = TABLE) -> Target:
    conn.execute("create schema shop")
    conn.execute(statement.encode())
    return find_table(conn, name, ROWS)


def test_a_table_is_found_by_its_name_in_sql(conn: psycopg.Connection[Any]) -> None:
    target = found(conn, 'shop."Totals"', 'create table shop."Totals" (name text)')

    assert (target.schema, target.name) == ("shop", "Totals")


def test_what_a_table_takes_and_needs(conn: psycopg.Connection[Any]) -> None:
    target = found(conn, "shop.totals")

    assert target.writable == {"name", "total"}
    assert target.needed == {"name"}
    target.check(ROWS, ["name"])


def test_a_table_that_is_missing_is_suggested(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(TableError) as refused:
        find_table(conn, "shop.totals", ROWS)

    assert str(refused.value) == (
        "table shop.totals does not exist. Make it, such as:"
        ' create table shop.totals ("name" text, "total" bigint)'
    )


def test_a_suggestion_knows_types(conn: psycopg.Connection[Any]) -> None:
    pairs = MapType(StringType(), LongType())
    schema = StructType([StructField("at", TimestampType()), StructField("x", pairs)])

    conn.execute(suggestion("made", schema).encode())

    assert suggestion("made", schema) == 'create table made ("at" timestamptz, "x" jsonb)'


def test_a_view_is_refused(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(TableError, match="expected a table, got another kind"):
        found(conn, "shop.totals", "create view shop.totals as select 1 as name")


@pytest.mark.parametrize(
    ("names", "key", "told"),
    [
        (["name", "colour"], [], "column colour is none that shop.totals takes; expected some of name"),
        (["name", "n"], [], "column n is none that shop.totals takes"),
        (["total"], [], "columns: got total; expected name too, for shop.totals"),
        (["name"], ["total"], "key: got total; expected some of name"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    conn: psycopg.Connection[Any], names: list[str], key: list[str], told: str
) -> None:
    target = found(conn, "shop.totals")

    with pytest.raises(ColumnError) as refused:
        target.check(StructType([StructField(name, StringType()) for name in names]), key)

    assert told in str(refused.value)


def test_an_interval_is_refused(conn: psycopg.Connection[Any]) -> None:
    target = found(conn, "shop.totals")
    schema = StructType([StructField("name", StringType()), StructField("total", DayTimeIntervalType())])

    with pytest.raises(ColumnError, match="column total: got an interval; expected a number"):
        target.check(schema, [])


def test_without_rights_on_the_schema_it_says_which(conn: psycopg.Connection[Any]) -> None:
    found(conn, "shop.totals")
    conn.execute("create role stranger_of_tables")
    conn.execute("grant usage on schema shop to stranger_of_tables")
    conn.execute("set role stranger_of_tables")
    try:
        with pytest.raises(TableError, match="to create tables in schema shop"):
            find_table(conn, "shop.totals", ROWS)
    finally:
        conn.execute("reset role")
        conn.execute("drop owned by stranger_of_tables")
        conn.execute("drop role stranger_of_tables")


def test_stages_of_two_queries_are_two_and_of_one_query_one(conn: psycopg.Connection[Any]) -> None:
    target = found(conn, "shop.totals")

    assert target.stage("a") == target.stage("a") != target.stage("b")
