"""holdfast queue purge and holdfast replay: in steps, until nothing is left."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast.cli import archive
from tests.cli.conftest import Run

KEEPING = '{"keep": ["done"]}'


def finish(conn: psycopg.Connection[Any], count: int) -> None:
    """Messages that were acked and are kept."""
    conn.execute("select holdfast.create_queue('orders', %s)", [KEEPING])
    conn.execute(
        "select holdfast.send_batch('orders', array(select to_jsonb(n) from generate_series(1, %s) n))",
        [count],
    )
    conn.execute(
        "select holdfast.ack('orders', (select min(token) from holdfast.claim('orders', %s)))", [count]
    )


def test_purge_goes_on_until_nothing_is_left(
    run: Run, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "CHUNK", 2)
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("select holdfast.send_batch('orders', array['1', '2', '3', '4', '5']::jsonb[])")
    conn.execute("select holdfast.send('orders', delay => '1 h')")

    answer = run("queue", "purge", "orders", "--state", "ready", "--yes", "--json")

    assert answer.document == {"queue": "orders", "purged": 5, "more": False}
    assert run("stats", "orders", "--json").document["scheduled"] == 1
    assert run("queue", "purge", "orders", "--all", "-y").out == "Purged 1 message of orders.\n"


def test_purge_wants_to_know_which_and_asks(run: Run, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("select holdfast.send('orders')")

    unsaid = run("queue", "purge", "orders", "--yes")
    unasked = run("queue", "purge", "orders", "--state", "ready", "--json")
    unknown = run("queue", "purge", "orders", "--state", "asleep", "--yes")

    assert unsaid.code == unasked.code == 2
    assert "QH410" in unknown.err
    assert run("stats", "orders", "--json").document["ready"] == 1


def test_replay_goes_in_pages_up_to_its_limit(
    run: Run, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "PAGE", 2)
    finish(conn, 7)

    first = run("replay", "orders", "--limit", "5", "--outcome", "done", "--json").document
    rest = run("replay", "orders", "--from", first["ended_at"], "--after", first["after"], "--json").document

    assert (first["replayed"], rest["replayed"]) == (5, 2)
    assert run("stats", "orders", "--json").document["ready"] == 7
    shown = run("peek", "orders", "--state", "archive", "--json").lines
    assert [line["state"] for line in shown] == ["done"] * 7


def test_replay_says_how_to_go_on(run: Run, conn: psycopg.Connection[Any]) -> None:
    finish(conn, 2)

    text = run("replay", "orders", "--limit", "1", "--all").out

    assert text.startswith("Sent 1 message of orders once more. To go on: --from ")
    assert run("replay", "orders", "--to", "2020-01-01").out == "Sent 0 messages of orders once more.\n"


def test_replay_wants_to_know_which(run: Run, conn: psycopg.Connection[Any]) -> None:
    finish(conn, 2)

    unsaid = run("replay", "orders")

    assert (unsaid.code, unsaid.out) == (2, "")
    assert run("stats", "orders", "--json").document["ready"] == 0


def test_a_duration_is_so_long_ago(run: Run, conn: psycopg.Connection[Any]) -> None:
    finish(conn, 3)

    recent = run("replay", "orders", "--from", "6h", "--limit", "2", "--json").document
    before = run("replay", "orders", "--to", "1 hour", "--json").document
    wrong = run("replay", "orders", "--from", "yesterday")

    assert (recent["replayed"], before["replayed"], wrong.code) == (2, 0, 2)
    assert "neither a time" in wrong.err


def test_the_archive_shows_when_messages_ended(run: Run, conn: psycopg.Connection[Any]) -> None:
    finish(conn, 1)
    ended = conn.execute("select ended_at from holdfast.browse('orders', 'archive')").fetchall()[0][0]

    table = run("peek", "orders", "--state", "archive").out.splitlines()
    run("queue", "purge", "orders", "--state", "archive", "--yes")
    empty = run("peek", "orders", "--state", "archive")

    assert table[0].split()[4:6] == ["enqueued_at", "ended_at"]
    assert ended.isoformat(sep=" ", timespec="seconds") in table[1]
    assert empty.err == "No message in the archive of orders.\n"
