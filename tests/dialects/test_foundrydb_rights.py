"""FoundryDB's SQL contract: what somebody with the role mdb_queue_user, and no other, can see and do.

1. Messages and dead letters of queues that are no rows stay out of sight, however one asks.
2. Of Holdfast itself nothing can be called or read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast
from holdfast.migrate import migrate
from tests.fix_database import holdfast_database

SPY = """
create function pg_temp.spy(text) returns boolean language plpgsql cost 0.0000001
as $$ begin raise notice '%', $1; return true; end $$
"""


@pytest.fixture(scope="module")
def rights_url(server_url: str, template_database: str) -> Iterator[str]:
    """A database with a native queue and one of rows, each with a dead letter and a message that failed."""
    with holdfast_database(server_url, template_database) as url:
        migrate(url, dialects=["foundrydb"])
        with psycopg.connect(url, autocommit=True) as connection, Holdfast(url, max_size=1) as holdfast:
            connection.execute("select mdb_queue.create_queue('rows', max_attempts => 2)")
            holdfast.create_queue("native", {"max_deliveries": 2})
            for queue in ("rows", "native"):
                for word in ("dead", "live"):
                    holdfast.send(queue, f"{word} of {queue}")
                    for _ in range(2 if word == "dead" else 1):
                        delivery = holdfast.claim(queue)[0]
                        holdfast.nack(queue, delivery.token, error=f"{word} error of {queue}")
        yield url


@pytest.fixture
def app(rights_url: str) -> Iterator[psycopg.Connection[Any]]:
    """An application, which is no more than a user of the contract."""
    with psycopg.connect(rights_url, autocommit=True) as connection:
        connection.execute("set session authorization default")
        name = f"app_{connection.info.backend_pid}"
        connection.execute(sql.SQL("create role {} in role mdb_queue_user").format(sql.Identifier(name)))
        connection.execute(sql.SQL("set role {}").format(sql.Identifier(name)))
        yield connection
        connection.execute("reset role")
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


def test_dead_letters_of_other_queues_are_not_to_be_had(app: psycopg.Connection[Any]) -> None:
    assert app.execute("select payload from mdb_queue._dead('native')").fetchall() == []
    assert app.execute("select payload from mdb_queue._dead('rows')").fetchall() == [("dead of rows",)]
    assert app.execute("select payload from mdb_queue.dead_messages").fetchall() == [("dead of rows",)]


@pytest.mark.parametrize("column", ["payload::text", "last_error", "queue_name", "claimed_by"])
def test_a_condition_that_tells_what_it_is_asked_learns_nothing_of_other_queues(
    app: psycopg.Connection[Any], column: str
) -> None:
    told: list[str] = []
    app.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    app.execute(SPY)
    for way in ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"):
        app.execute(f"set {way} = off".encode())

    seen = app.execute(f"select 1 from mdb_queue.messages where pg_temp.spy({column})".encode()).fetchall()

    assert len(seen) == 1
    assert [text for text in told if "native" in text] == []
    assert column == "claimed_by" or [text for text in told if "rows" in text]


@pytest.mark.parametrize(
    "statement",
    [
        "select * from holdfast.message",
        "select * from holdfast.row_message",
        "select * from holdfast.hold(1, null)",
        "select holdfast.claim('rows')",
        "select mdb_queue.create_queue('mine')",
        "select mdb_queue._grant_rights()",
        "insert into mdb_queue.queues (name) values ('mine')",
        "create table mdb_queue.trap (id int)",
    ],
)
def test_nothing_else_can_be_read_or_called(app: psycopg.Connection[Any], statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute(statement.encode())


def test_names_in_the_way_are_not_taken(app: psycopg.Connection[Any]) -> None:
    """Functions and tables of the caller, first in its search_path, are not what the contract calls."""
    app.execute(
        "create temporary table queue (name text); create temporary table message (id int);"
        "create function pg_temp.now() returns timestamptz language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$;"
        "create function pg_temp.format(text, variadic text[]) returns text language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$;"
        "set search_path = pg_temp, pg_catalog"
    )

    insert = "insert into mdb_queue.messages (queue_name, payload) values ('rows', '1') returning id"
    ids = app.execute(insert).fetchall()
    gone = app.execute("delete from mdb_queue.messages where id = %s", ids[0])

    assert gone.rowcount == 1
