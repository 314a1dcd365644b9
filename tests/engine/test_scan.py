"""Scanning: everything in a state, by ranges of ids.

1. Each live message is in one state, and the states together are all of them.
2. Dead letters are found by the queue they came from, the archive by when they ended, records by their log.
3. Ranges that share a queue out show each message once.
4. In a transaction with a fixed snapshot nothing changes, whatever others do meanwhile.
5. The statement of a scan shows the same rows, by index, whatever the planner believes of the leases.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row, ids, payloads


def bounds(engine: Engine, state: str = "live", **options: Any) -> list[tuple[int, int]]:
    rows = engine.rows("scan_bounds", queue="q", state=state, **options)
    return sorted((row["lo"], row["hi"]) for row in rows)


def scan(engine: Engine, state: str = "live", **options: Any) -> list[Row]:
    return [
        row
        for lo, hi in bounds(engine, state, **options)
        for row in engine.rows("scan", queue="q", state=state, lo=lo, hi=hi, **options)
    ]


@pytest.fixture
def mixed(engine: Engine) -> Engine:
    """A queue with a message in every state."""
    engine.create("q", ordering="key", max_deliveries=1, keep=["done"])
    engine.create("other")
    engine.send("foreign", queue="other")
    engine.send("done")
    engine.settle("ack", engine.claim_one()["token"])
    engine.kill(engine.send("dead"), error="broken")
    engine.send("flying", ordering_key="a")
    engine.send("blocked", ordering_key="a")
    engine.claim(2)
    engine.send("later", delay="1 h", priority=5)
    engine.send("ready")
    engine.send("due", delay="1 min")
    engine.at(T0 + timedelta(minutes=2))
    return engine


def test_every_live_message_is_in_one_state(mixed: Engine) -> None:
    found = {row["payload"]: row["state"] for row in scan(mixed)}

    assert found == {
        "flying": "in_flight",
        "blocked": "blocked",
        "later": "scheduled",
        "ready": "ready",
        "due": "ready",
    }


@pytest.mark.parametrize("state", ["ready", "scheduled", "blocked", "in_flight", "dead", "archive"])
def test_a_scan_shows_what_browse_shows(mixed: Engine, state: str) -> None:
    found = scan(mixed, state)

    assert len(found) > 0
    assert sorted(found, key=lambda row: row["id"]) == sorted(
        mixed.rows("browse", queue="q", state=state), key=lambda row: row["id"]
    )


def test_the_archive_is_scanned_by_when_a_message_ended(queue: Engine) -> None:
    queue.value("configure_queue", queue="q", config={"keep": ["done"]})
    for minute in range(3):
        queue.at(T0 + timedelta(minutes=minute))
        queue.send(minute)
        queue.settle("ack", queue.claim_one()["token"])

    found = scan(queue, "archive", since=T0 + timedelta(minutes=1), until=T0 + timedelta(minutes=2))

    assert payloads(found) == [1]


def test_a_log_is_scanned_as_a_log_only(engine: Engine) -> None:
    engine.create("q", kind="log")
    engine.send_numbers(3)

    assert [(row["payload"], row["state"]) for row in scan(engine, "log")] == [(n, "log") for n in range(3)]
    with pytest.raises(psycopg.Error, match="QH602"):
        bounds(engine, "ready")


def test_a_queue_is_no_log(queue: Engine) -> None:
    with pytest.raises(psycopg.Error, match="QH603"):
        bounds(queue, "log")


def test_ranges_share_a_queue_out(queue: Engine) -> None:
    sent = queue.send_numbers(10) + queue.send_numbers(10, priority=9)

    found = [
        row["id"]
        for lo, hi in bounds(queue)
        for step in range(lo, hi, 3)
        for row in queue.rows("scan", queue="q", state="live", lo=step, hi=min(step + 3, hi))
    ]

    assert sorted(found) == sorted(sent)


def test_bounds_can_start_further_on(queue: Engine) -> None:
    sent = queue.send_numbers(10)

    assert bounds(queue, first=sent[4]) == [(sent[4], sent[9] + 1)]
    assert bounds(queue, first=sent[9] + 1) == []


def test_ids_of_another_queue_are_not_shown(queue: Engine) -> None:
    queue.create("other")
    lo = queue.send(1, queue="other")

    assert queue.rows("scan", queue="q", state="live", lo=lo, hi=lo + 1) == []


def test_a_fixed_snapshot_shows_one_moment(queue: Engine, open_engine: Open) -> None:
    sent = queue.send_numbers(4)
    reader = open_engine()

    with reader.conn.transaction():
        reader.conn.execute("set transaction isolation level repeatable read, read only")
        before = scan(reader)
        queue.settle("ack", queue.claim_one()["token"])
        queue.claim(2)
        queue.send(9)
        after = scan(reader)

    assert before == after
    assert (ids(before), {row["state"] for row in before}) == (sent, {"ready"})
    assert sorted(row["state"] for row in scan(queue)) == ["in_flight", "in_flight", "ready", "ready"]


def test_what_an_overdue_lease_holds_is_in_flight_until_it_is_swept(queue: Engine) -> None:
    queue.send(1)
    queue.claim(1, lease="1 s")
    queue.at(T0 + timedelta(seconds=2))

    held = [row["state"] for row in scan(queue)]
    queue.value("sweep", queue="q")

    assert (held, [row["state"] for row in scan(queue)]) == (["in_flight"], ["ready"])


def source(engine: Engine, state: str, lo: int, hi: int, **options: Any) -> Row:
    (row,) = engine.rows("scan_source", queue="q", state=state, lo=lo, hi=hi, **options)
    return row


@pytest.mark.parametrize("state", ["ready", "scheduled", "blocked", "in_flight", "live", "dead", "archive"])
def test_the_statement_of_a_scan_shows_what_the_scan_shows(mixed: Engine, state: str) -> None:
    found: list[Row] = []
    for lo, hi in bounds(mixed, state):
        row = source(mixed, state, lo, hi)
        rows = mixed.conn.cursor(row_factory=dict_row).execute(f"{row['source']} order by m.id".encode())
        shown = rows.fetchall()
        assert all({name: each[name] for name in row["fixed"]} == row["fixed"] for each in shown)
        found += shown

    assert found == scan(mixed, state)


def test_columns_that_no_message_of_a_range_uses_are_named(queue: Engine) -> None:
    looked_for = ["id", "payload", "tag", "body", "key", "headers", "origin", "nonsense"]
    queue.send_numbers(3)
    (lo, hi) = bounds(queue)[0]

    plain = source(queue, "ready", lo, hi, columns=looked_for)["fixed"]
    few = source(queue, "ready", lo, hi, columns=["tag", "body"])["fixed"]
    queue.send(4, tag="t")
    (lo, hi) = bounds(queue)[0]
    tagged = source(queue, "ready", lo, hi, columns=looked_for)["fixed"]

    always = {
        "queue": "q",
        "state": "ready",
        "priority": 0,
        "ended_at": None,
        "consumer": None,
        "claimed_at": None,
    }
    assert few == always
    assert plain == always | dict.fromkeys(["tag", "body", "key", "headers", "origin"])
    assert tagged == always | dict.fromkeys(["body", "key", "headers", "origin"])


def test_the_statement_of_a_scan_goes_by_the_index_when_the_leases_are_believed_to_be_few(
    queue: Engine,
) -> None:
    queue.conn.execute("analyze holdfast.message, holdfast.lease")
    queue.send_numbers(2000)
    queue.claim(1000)
    (lo, hi) = bounds(queue, "live")[0]
    statement = source(queue, "ready", lo, hi)["source"]

    with queue.conn.transaction():
        queue.conn.execute("set local enable_seqscan = off; set local enable_sort = off")
        plan = "\n".join(
            row[0] for row in queue.conn.execute(f"explain (costs off) {statement} order by m.id".encode())
        )

    assert "Index Scan using message_pkey on message" in plan
    assert "hashed SubPlan" in plan
    assert "Sort" not in plan
    assert len(queue.conn.execute(statement.encode()).fetchall()) == 1000
