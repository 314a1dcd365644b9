"""holdfast log and holdfast rate: what they do, and what they print for people and machines."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Run


@pytest.fixture
def log(conn: psycopg.Connection[Any]) -> None:
    """A log with four records."""
    conn.execute("select holdfast.create_queue('events', '{\"kind\": \"log\"}')")
    conn.execute(
        "select holdfast.send('events', to_jsonb(n), tag => 't' || n % 2) from generate_series(1, 4) n"
    )


@pytest.mark.usefixtures("log")
def test_records_are_read_by_number(run: Run) -> None:
    records = run("log", "read", "events", "--after", "2", "--json").lines
    table = run("log", "read", "events", "--limit", "1").out

    assert [(record["seq"], record["payload"]) for record in records] == [(3, 3), (4, 4)]
    assert table.split()[:3] == ["kind", "seq", "from_seq"]


@pytest.mark.usefixtures("log")
def test_records_are_deleted_and_shown_as_such(run: Run) -> None:
    by_tag = run("log", "delete", "events", "--tag", "t1", "--yes", "--json").document
    by_number = run("log", "delete", "events", "2", "--yes").out
    records = run("log", "read", "events", "--json").lines

    assert by_tag == {"queue": "events", "deleted": 2}
    assert by_number == "Deleted 1 record of events.\n"
    assert [(record["kind"], record["from_seq"], record["to_seq"]) for record in records] == [
        ("deleted", 1, 3),
        ("record", 4, 4),
    ]


@pytest.mark.usefixtures("log")
def test_figures_of_a_log_are_shown(run: Run) -> None:
    figures = run("log", "stats", "events", "--json").document

    assert (figures["first_seq"], figures["last_seq"], figures["records"]) == (1, 4, 4)


def test_a_limiter_that_has_too_little_ends_with_4(run: Run) -> None:
    first = run("rate", "a", "0.001", "--burst", "2", "--want", "2", "--json")
    second = run("rate", "a", "0.001", "--burst", "2", "--partial")

    assert (first.code, first.document["granted"]) == (0, 2)
    assert second.code == 4
