"""The inbox: COPY and INSERT as a way to send.

1. Each statement's rows become messages, in their order, and the inbox is empty afterwards.
2. One statement may fill several queues.
3. Checks and errors are those of send_many; one bad row refuses the statement.
4. It is part of the caller's transaction.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, payloads

TRACE = UUID("01234567-89ab-cdef-0123-456789abcdef")
LATER = T0 + timedelta(seconds=10)


def copied(engine: Engine, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    listed = psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, columns))
    statement = psycopg.sql.SQL("copy holdfast.inbox ({}) from stdin").format(listed)
    with engine.conn.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def test_copied_rows_become_messages_in_their_order(queue: Engine) -> None:
    copied(queue, ["queue", "payload"], [("q", Jsonb(n)) for n in range(1000)])

    assert payloads(queue.claim(1000)) == list(range(1000))
    assert queue.look("select count(*) from holdfast.inbox") == 0


def test_every_column_arrives(queue: Engine) -> None:
    columns = ["queue", "body", "content_type", "headers", "priority", "deliver_at", "expires_at"]
    columns += ["correlation_id", "tag", "max_deliveries"]

    copied(
        queue,
        columns,
        [("q", b"\x00x", "t", Jsonb({"h": 1}), 4, LATER, T0 + timedelta(days=1), TRACE, "g", 2)],
    )

    assert queue.claim(1) == []
    queue.at(LATER)
    row = queue.claim_one()
    assert (row["body"], row["content_type"], row["headers"], row["priority"]) == (b"\x00x", "t", {"h": 1}, 4)
    assert (row["correlation_id"], row["tag"], row["max_deliveries"]) == (TRACE, "g", 2)
    assert row["enqueued_at"] == T0


def test_insert_works_as_copy_does(queue: Engine) -> None:
    queue.conn.execute("insert into holdfast.inbox (queue, payload) values ('q', '1'), ('q', '2')")

    assert payloads(queue.claim(10)) == [1, 2]


def test_one_statement_may_fill_several_queues(queue: Engine) -> None:
    queue.create("r")

    copied(queue, ["queue", "payload"], [("r", Jsonb(1)), ("q", Jsonb(2)), ("r", Jsonb(3)), ("q", Jsonb(4))])

    assert payloads(queue.claim(10)) == [2, 4]
    assert payloads(queue.claim(10, queue="r")) == [1, 3]
    assert queue.look("select count(*) from holdfast.inbox") == 0


def test_a_statement_without_rows_sends_nothing(queue: Engine) -> None:
    queue.conn.execute("insert into holdfast.inbox (queue) select 'q' where false")

    assert queue.claim(1) == []


def test_the_queues_ttl_holds_and_an_own_expiry_goes_before_it(engine: Engine) -> None:
    engine.create("q", ttl="10 s")

    copied(
        engine,
        ["queue", "payload", "expires_at"],
        [("q", Jsonb(1), None), ("q", Jsonb(2), T0 + timedelta(hours=1))],
    )
    engine.at(T0 + timedelta(seconds=30))

    assert payloads(engine.claim(10)) == [2]


def test_a_rolled_back_copy_sends_nothing(queue: Engine) -> None:
    with queue.conn.transaction(force_rollback=True):
        copied(queue, ["queue", "payload"], [("q", Jsonb(1))])

    assert queue.claim(1) == []
    assert queue.look("select count(*) from holdfast.message") == 0


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("queue", "nowhere", "QH101"),
        ("queue", None, "QH101"),
        ("payload", Jsonb("x" * 1048576), "QH201"),
        ("body", b"both", "QH203"),
        ("headers", Jsonb({"x": "y" * 65536}), "QH202"),
        ("headers", Jsonb([]), "QH203"),
        ("priority", 11, "QH204"),
        ("deliver_at", T0 + timedelta(days=4000), "QH205"),
        ("expires_at", T0 + timedelta(days=4000), "QH206"),
        ("tag", "x" * 201, "QH207"),
        ("content_type", "x" * 201, "QH207"),
        ("max_deliveries", 1001, "QH210"),
    ],
)
def test_one_bad_row_refuses_the_statement(refusing: Engine, column: str, value: Any, code: str) -> None:
    rows: list[dict[str, Any]] = [{"queue": "q", "payload": Jsonb(1)}, {"queue": "q", "payload": Jsonb(1)}]
    rows[1][column] = value
    columns = list(rows[1])
    before = refusing.state()

    with pytest.raises(psycopg.Error) as caught:
        copied(refusing, columns, [tuple(row.get(name) for name in columns) for row in rows])

    assert caught.value.sqlstate == code
    assert refusing.state() == before


def test_max_depth_holds_for_the_inbox(engine: Engine) -> None:
    engine.create("q", max_depth=2)

    with pytest.raises(psycopg.Error) as caught:
        copied(engine, ["queue", "payload"], [("q", Jsonb(n)) for n in range(3)])
    copied(engine, ["queue", "payload"], [("q", Jsonb(n)) for n in range(2)])

    assert caught.value.sqlstate == "QH209"
    assert payloads(engine.claim(10)) == [0, 1]
