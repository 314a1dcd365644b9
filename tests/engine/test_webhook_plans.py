"""What webhooks cost does not grow with what is remembered of them.

1. Every verb reaches attempts and events by an index, whatever the planner believes of the tables.
2. Asking the breaker, reports and health touch as many pages whether few or many attempts are kept.
3. This would be noticed: without any one of the indexes, some verb reads a table as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine
from tests.engine.plans import Access, planned
from tests.engine.test_bounds import SLACK, buffers
from tests.fix_database import fresh_database

Work = Callable[[Engine], object]

BIG = {"attempt", "endpoint_event"}
MANY = 20_000
FILL = """
insert into holdfast.attempt (endpoint_id, queue_id, root_id, message_id, at, keep_until, outcome)
select e.id, e.queue_id, n, n, '2030-01-01Z'::timestamptz + n * interval '1 s', '2030-02-01Z', 'done'
from generate_series(1, {}) n, holdfast.endpoint e where e.name = 'shop';
insert into holdfast.endpoint_event (endpoint_id, at, event)
select e.id, '2030-01-01Z', 'opened' from generate_series(1, {}) n, holdfast.endpoint e where e.name = 'shop';
"""


def report(engine: Engine) -> None:
    for outcome in ("done", "retry", "dead"):
        held = engine.claim_one(queue="shop")
        attempt = {"message": held["id"], "token": held["token"], "outcome": outcome}
        engine.row("record_attempts", endpoint="shop", attempts=Jsonb([attempt]))


def failing(engine: Engine) -> None:
    """Open the breaker, ask for the probe, and close it."""
    attempts = [{"message": n + 1, "outcome": "retry"} for n in range(10)]
    engine.row("record_attempts", endpoint="shop", attempts=Jsonb(attempts))
    engine.at(T0 + timedelta(minutes=1))
    probe = engine.row("admit", endpoint="shop")["probe"]
    assert probe is not None
    attempt = {"message": 1, "outcome": "done", "probe": probe}
    engine.row("record_attempts", endpoint="shop", attempts=Jsonb([attempt]))


def forgotten(engine: Engine) -> None:
    engine.at(T0 + timedelta(days=60))
    engine.value("maintain")


VERBS: dict[str, Work] = {
    "admit": lambda engine: engine.row("admit", endpoint="shop"),
    "record_attempts": report,
    "breaker": failing,
    "attempts": lambda engine: engine.rows("attempts", queue="shop", id=7),
    "endpoint_attempts": lambda engine: [
        engine.rows("endpoint_attempts", endpoint="shop", outcomes=outcomes) for outcomes in (None, ["retry"])
    ],
    "endpoint_health": lambda engine: engine.rows("endpoint_health"),
    "endpoint_events": lambda engine: engine.rows("endpoint_events", endpoint="shop"),
    "publish": lambda engine: engine.rows("publish", event_type="made", payload=Jsonb(1)),
    "forget": forgotten,
}


def filled(engine: Engine, many: int) -> None:
    engine.at(T0)
    engine.value("create_endpoint", endpoint="shop", config={"url": "https://example.com"})
    engine.value("create_event_type", name="made")
    engine.value("subscribe", event_type="made", endpoint="shop")
    engine.send_numbers(100, queue="shop")
    engine.conn.execute(FILL.format(many, many).encode())


@pytest.fixture(scope="module", params=["thought empty", "known full"])
def database(request: pytest.FixtureRequest, server_url: str, template_database: str) -> Iterator[str]:
    """A filled database, of which the planner knows nothing or all."""
    with fresh_database(server_url, template_database) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "alter table holdfast.attempt set (autovacuum_enabled = off);"
                "alter table holdfast.endpoint_event set (autovacuum_enabled = off);"
                "analyze holdfast.attempt, holdfast.endpoint_event"
            )
            filled(Engine(connection), MANY)
            if request.param == "known full":
                connection.execute("analyze")
        yield url


def whole(found: set[Access]) -> list[str]:
    """The accesses that read a big table, or an index, from end to end."""
    return sorted(str(access) for access in found if access.table in BIG and 1 not in access.columns)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reaches_its_tables_by_index(database: str, verb: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        engine = Engine(connection)
        engine.at(T0)

        found = planned(connection, lambda: VERBS[verb](engine))

    assert whole(found) == []


@pytest.mark.parametrize(
    ("index", "verb"),
    [
        ("attempt_by_root", "attempts"),
        ("attempt_by_endpoint", "endpoint_attempts"),
        ("attempt_by_endpoint", "endpoint_health"),
        ("attempt_by_end", "forget"),
        ("endpoint_event_by_time", "forget"),
    ],
)
def test_a_missing_index_is_noticed(server_url: str, template_database: str, index: str, verb: str) -> None:
    with (
        fresh_database(server_url, template_database) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        engine = Engine(connection)
        filled(engine, 10)
        connection.execute(sql.SQL("drop index {}").format(sql.Identifier("holdfast", index)))

        assert whole(planned(connection, lambda: VERBS[verb](engine))) != []


def test_what_verbs_touch_does_not_grow_with_what_is_kept(server_url: str, template_database: str) -> None:
    statements = [
        "select * from holdfast.admit('shop')",
        """select * from holdfast.record_attempts('shop', '[{"message": 7, "outcome": "done"}]')""",
        "select * from holdfast.attempts('shop', 7)",
        "select * from holdfast.endpoint_attempts('shop', \"limit\" => 10)",
        "select * from holdfast.endpoint_health('shop', '10 s')",
    ]
    touched = []
    for many in (100, MANY):
        with (
            fresh_database(server_url, template_database) as url,
            psycopg.connect(url, autocommit=True) as connection,
        ):
            engine = Engine(connection)
            filled(engine, many)
            connection.execute("vacuum analyze holdfast.attempt")
            engine.at(T0 + timedelta(seconds=many))
            touched.append([buffers(connection, statement) for statement in statements])

    few, much = touched
    assert [b <= a + SLACK for a, b in zip(few, much, strict=True)] == [True] * len(statements), touched
