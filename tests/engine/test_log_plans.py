"""Plans of logs and limits: every statement reaches messages and tombstones by an index, within a lane.

1. No verb scans them sequentially, or walks an index without a condition: not when the planner believes them
   empty, not when it knows them full.
2. Positions bound every walk: the primary key of messages, (lane, number) of tombstones, (lane, tag) of tags.
3. This would be noticed: without one of the indexes, some verb breaks a rule.
4. What a read touches does not grow with the log, with what was removed from it, or with its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine
from tests.engine.plans import Access, planned
from tests.engine.test_plans import drop_index
from tests.fix_database import fresh_database

BIG = {"message", "tombstone"}
# The tag is asked for with the lane, and its numbers come in order.
POSITIONS = {"tombstone_pkey": (1,), "message_tag": (1, 2)}


def read(engine: Engine) -> None:
    for after in (0, 500, 2500, 9000):
        engine.rows("read", queue="log", after=after)
    engine.rows("read", queue="q")


VERBS: dict[str, Callable[[Engine], object]] = {
    "append": lambda engine: engine.send(1, queue="log", tag="x"),
    "read": read,
    "log_stats": lambda engine: engine.row("log_stats", queue="log"),
    "log_delete seqs": lambda engine: engine.value("log_delete", queue="log", seqs=[2000, 2002]),
    "log_delete tag": lambda engine: engine.value("log_delete", queue="log", tag="x", limit=3),
    "log_delete before": lambda engine: engine.value("log_delete", queue="log", before=2003, limit=3),
    "maintain": lambda engine: engine.value("maintain"),
    "take_rate": lambda engine: engine.row("take_rate", limiter="a", rate=1),
}


def filled(engine: Engine) -> None:
    engine.at(T0)
    engine.create("q")
    engine.send_numbers(100)
    engine.create("log", kind="log", retention={"count": 2000})
    engine.conn.execute(
        "do $$ begin for i in 1 .. 50 loop perform holdfast.send('log', tag => 'x'); rollback;"
        " perform holdfast.send('log', tag => 'x'); commit; end loop; end $$"
    )
    engine.value("send_batch", queue="log", payloads=[Jsonb(1)] * 3000)
    engine.value("maintain")
    engine.value("log_delete", queue="log", seqs=list(range(1500, 3000, 7)))


# A chunk of 2,000 is removed as a whole.
WHOLE = {"maintain"}


def faults(verb: str, found: set[Access]) -> list[str]:
    return [
        str(access)
        for access in sorted(found)
        if access.table in BIG
        and (
            not access.columns
            or (access.eager and verb not in WHOLE)
            or not set(POSITIONS.get(access.index, ())) <= set(access.columns)
        )
    ]


@pytest.fixture(params=["thought empty", "known full"])
def session(request: pytest.FixtureRequest, server_url: str, template_database: str) -> Iterator[Engine]:
    """A new session in a filled database, of which the planner knows or not."""
    with fresh_database(server_url, template_database) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter table holdfast.message set (autovacuum_enabled = off)")
            connection.execute("alter table holdfast.tombstone set (autovacuum_enabled = off)")
            connection.execute("analyze holdfast.message, holdfast.tombstone, holdfast.log")
            filled(Engine(connection))
            if request.param == "known full":
                connection.execute("analyze")
        with psycopg.connect(url, autocommit=True) as connection:
            yield Engine(connection)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reaches_its_tables_by_index(session: Engine, verb: str) -> None:
    assert faults(verb, planned(session.conn, lambda: VERBS[verb](session))) == []


@pytest.mark.parametrize("session", ["thought empty"], indirect=True)
@pytest.mark.parametrize(
    ("index", "verb"),
    [("message_pkey", "read"), ("tombstone_pkey", "read"), ("tombstone_pkey", "log_stats")],
)
def test_a_missing_index_is_noticed(session: Engine, index: str, verb: str) -> None:
    drop_index(session.conn, index)

    assert faults(verb, planned(session.conn, lambda: VERBS[verb](session))) != []


def test_a_tag_is_found_by_its_index(session: Engine) -> None:
    found = planned(session.conn, lambda: VERBS["log_delete tag"](session))

    assert Access("message", "message_tag", (1, 2, 3)) in found


def touched(conn: psycopg.Connection[Any]) -> int:
    """Blocks of messages, tombstones and their indexes that this session has reached so far."""
    conn.execute("select pg_stat_force_next_flush()")
    (row,) = conn.execute(
        "select coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read), 0)::bigint"
        " from pg_statio_user_tables where relname in ('message', 'tombstone')"
    ).fetchall()
    return int(row[0])


def test_what_a_read_touches_does_not_grow_with_the_log(engine: Engine) -> None:
    engine.create("log", kind="log")
    engine.conn.execute("alter table holdfast.message set (autovacuum_enabled = off)")
    costs = []
    for size in (2_000, 20_000):
        engine.value("send_batch", queue="log", payloads=[Jsonb(1)] * size)
        engine.rows("read", queue="log", after=1_000)
        before = touched(engine.conn)
        for _ in range(10):
            assert len(engine.rows("read", queue="log", after=1_000)) == 100
        costs.append(touched(engine.conn) - before)

    assert costs[1] <= costs[0] * 1.5 + 20
