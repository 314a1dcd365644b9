"""Schemas of queues, as the engine keeps them: versions, and who changes them.

1. Versions count from 1; the same definition once more is no new one; a number never comes twice.
2. A schema that was dropped is in force no more, and its versions are kept: the last 100.
3. Of two who change the same version one is refused; whoever waits for the other sees what it did.
4. Each change is announced with the queue's name; what changes nothing, or rolls back, is not.
5. A queue that is dropped takes its versions along. Plain sends, and moves, are not looked at.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row

FIRST: dict[str, Any] = {"type": "object"}
SECOND: dict[str, Any] = {"type": "object", "required": ["id"]}


@pytest.fixture
def schemas(engine: Engine) -> Engine:
    """An engine with a queue."""
    engine.at(T0)
    engine.create("q")
    return engine


def put(engine: Engine, definition: Any, **options: Any) -> int:
    return int(engine.value("set_schema", queue="q", definition=Jsonb(definition), **options))


def in_force(engine: Engine) -> int | None:
    rows = engine.rows("queue_schema", queue="q")
    return rows[0]["version"] if rows else None


def versions(engine: Engine) -> list[Row]:
    return engine.rows("schema_versions", queue="q")


def test_a_schema_is_what_was_set(schemas: Engine) -> None:
    assert in_force(schemas) is None

    assert put(schemas, FIRST) == 1

    assert schemas.rows("queue_schema", queue="q") == [
        {
            "version": 1,
            "kind": "json",
            "definition": FIRST,
            "compatibility": "backward",
            "created_at": T0,
            "dropped_at": None,
        }
    ]


def test_the_same_once_more_is_no_new_version(schemas: Engine) -> None:
    put(schemas, FIRST)

    assert put(schemas, FIRST) == 1
    assert put(schemas, FIRST, expected_version=0) == 1  # a second try after a lost answer
    assert put(schemas, FIRST, compatibility="full") == 1

    assert [(row["version"], row["compatibility"]) for row in versions(schemas)] == [(1, "full")]


def test_the_same_definition_of_another_kind_is_another_version(schemas: Engine) -> None:
    put(schemas, {"type": "string"})

    assert put(schemas, {"type": "string"}, kind="avro") == 2


def test_compatibility_is_kept_until_it_is_changed(schemas: Engine) -> None:
    put(schemas, FIRST, compatibility="forward")
    put(schemas, SECOND)
    put(schemas, FIRST, compatibility="none")

    assert [row["compatibility"] for row in versions(schemas)] == ["none", "forward", "forward"]


def test_a_dropped_schema_is_kept_and_its_number_is_not_used_again(schemas: Engine) -> None:
    put(schemas, FIRST)

    assert schemas.value("drop_schema", queue="q") is True
    assert schemas.value("drop_schema", queue="q") is False
    assert in_force(schemas) is None
    assert put(schemas, FIRST, expected_version=0) == 2

    assert [(row["version"], row["dropped_at"]) for row in versions(schemas)] == [(2, None), (1, T0)]


def test_a_queue_keeps_its_last_hundred_versions(schemas: Engine) -> None:
    for number in range(103):
        put(schemas, {"minimum": number})

    assert [row["version"] for row in versions(schemas)] == list(range(103, 3, -1))
    assert schemas.look("select count(*) from holdfast.schema_version") == 100


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_change_of_another_version_is_refused(schemas: Engine, expected: int) -> None:
    put(schemas, FIRST)
    put(schemas, SECOND)

    with pytest.raises(psycopg.Error) as caught:
        put(schemas, {}, expected_version=expected)

    assert caught.value.sqlstate == "QH107"
    assert put(schemas, {}, expected_version=2) == 3


def test_of_two_who_change_a_version_the_second_waits_and_is_refused(
    schemas: Engine, open_engine: Open
) -> None:
    put(schemas, FIRST)
    other = open_engine()

    with schemas.conn.transaction():
        put(schemas, SECOND, expected_version=1)
        other.conn.execute("set lock_timeout = '50 ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            put(other, {}, expected_version=1)

    with pytest.raises(psycopg.Error) as caught:
        put(other, {}, expected_version=1)
    assert caught.value.sqlstate == "QH107"


def test_changes_are_announced_and_nothing_else(schemas: Engine, open_engine: Open) -> None:
    listener = open_engine()
    listener.conn.execute("listen holdfast_config")

    def heard() -> list[str]:
        listener.conn.execute("select 1")
        return [notification.payload for notification in listener.conn.notifies(timeout=0)]

    put(schemas, FIRST)
    assert heard() == ["q"]
    put(schemas, FIRST)
    assert heard() == []
    with schemas.conn.transaction(force_rollback=True):
        put(schemas, SECOND)
    assert heard() == []
    schemas.value("drop_schema", queue="q")
    assert heard() == ["q"]
    schemas.value("drop_schema", queue="q")
    assert heard() == []
    schemas.value("configure_queue", queue="q", config={"notify": False})
    heard()
    put(schemas, SECOND)
    assert heard() == []


def test_a_queue_takes_its_versions_along(schemas: Engine) -> None:
    put(schemas, FIRST)

    schemas.value("drop_queue", queue="q")
    assert schemas.look("select count(*) from holdfast.schema_version") == 0
    schemas.create("q")

    assert in_force(schemas) is None
    assert put(schemas, SECOND) == 1


def test_a_log_has_a_schema_too(schemas: Engine) -> None:
    schemas.create("events", kind="log")

    assert schemas.value("set_schema", queue="events", definition=Jsonb(FIRST)) == 1
    assert schemas.row("queue_schema", queue="events")["version"] == 1


def test_plain_sends_and_moves_are_not_looked_at(schemas: Engine) -> None:
    put(schemas, False)
    schemas.value("configure_queue", queue="q", config={"max_deliveries": 1, "keep": ["done"]})

    dead = schemas.kill(schemas.send(1))

    assert len(schemas.rows("redrive", queue="q", ids=[dead])) == 1
