"""Sessions that keep a lane from everybody else.

1. Any user can take the advisory lock of a lane for a session. maintain() ends such a session once it has
   been idle with it for too long, as it ends an overdue claim; not before. Other locks do not count.
2. Whoever has held a lane for too long and is not ended is named by maintain(), with what is needed to act:
   queue, priority, process, user, application, since when; a prepared transaction by its name.
3. Where the owner of the schema may not see since when, or not end the session, it says so and ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

import holdfast
from tests.isolation.scene import Scene, Session
from tests.waiting import eventually

SQL = Path(holdfast.__file__).parent / "sql"
LOCK = "select pg_advisory_lock(holdfast._lane_lock(), %s)"
UNLOCK = "select pg_advisory_unlock(holdfast._lane_lock(), %s)"
HURRY = (
    "do $$ begin execute replace(pg_get_functiondef('holdfast._end_overdue_holders'::regproc),"
    " '5 minutes', '0 minutes'); end $$"
)


def maintained(session: Session) -> dict[str, Any]:
    """What maintain() says."""
    report: dict[str, Any] = session.value("select holdfast.maintain()")
    return report


def test_maintain_ends_an_idle_session_that_took_a_lane_for_itself(scene: Scene) -> None:
    stranger, consumer = scene.session("stranger"), scene.session("consumer")
    id = consumer.send()
    stranger.execute(LOCK, [scene.lane()])
    scene.watcher.execute(HURRY)

    report = maintained(consumer)
    taken = eventually(consumer.take, what="the lane is free again")

    assert (report["holders_ended"], report["holders"]) == (1, [])
    assert taken == [id]
    with pytest.raises(errors.OperationalError):
        stranger.execute("select 1")


def test_maintain_leaves_a_session_alone_that_is_not_overdue(scene: Scene) -> None:
    stranger = scene.session("stranger")
    stranger.execute(LOCK, [scene.lane()])

    report = maintained(scene.watcher)

    assert (report["busy"], report["holders_ended"], report["holders"]) == (1, 0, [])
    assert stranger.value(UNLOCK, [scene.lane()]) is True


def test_a_lock_on_something_else_is_nobodys_business(scene: Scene) -> None:
    stranger = scene.session("stranger")
    stranger.execute("select pg_advisory_lock(7), pg_advisory_lock(holdfast._lane_lock(), 4711)")
    scene.watcher.execute(HURRY)

    report = maintained(scene.watcher)

    assert (report["holders_ended"], report["holders"]) == (0, [])
    stranger.execute("select pg_advisory_unlock_all()")


def test_maintain_names_a_prepared_transaction_that_holds_a_lane(scene: Scene) -> None:
    consumer = scene.session("consumer")
    consumer.begin().execute("select * from holdfast.claim('q')")
    consumer.execute("prepare transaction 'left behind'")
    scene.watcher.execute(HURRY)

    report = maintained(scene.watcher)
    scene.watcher.execute("rollback prepared 'left behind'")

    (holder,) = report["holders"]
    since = holder.pop("since")
    user = scene.watcher.value("select current_user")
    assert holder == {"queue": "q", "priority": 0, "user": user, "prepared": "left behind"}
    assert since
    assert (report["holders_ended"], maintained(scene.watcher)["holders"]) == (0, [])


@pytest.fixture
def limited(empty_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session as the owner of a schema, who has no rights over other sessions; there is a queue `q`."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute("create role limited_owner")
        connection.execute(sql.SQL("grant create on database {} to limited_owner").format(name))
        connection.execute("set session authorization limited_owner")
        for source in [*sorted(SQL.glob("migrations/*.sql")), *sorted(SQL.glob("functions/*.sql"))]:
            connection.execute(source.read_bytes())
        connection.execute("select holdfast.create_queue('q')")
        yield connection
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("drop owned by limited_owner cascade")
        connection.execute("drop role limited_owner")


def reported(connection: psycopg.Connection[Any]) -> tuple[dict[str, Any], list[str]]:
    """What maintain() says, and its warnings."""
    warnings: list[str] = []
    connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    connection.execute("set client_min_messages = warning")
    row = connection.execute("select holdfast.maintain()").fetchone()
    assert row is not None
    return row[0], warnings


def test_an_owner_who_may_not_look_names_the_process_and_its_user(
    limited: psycopg.Connection[Any], empty_database_url: str
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as stranger:
        stranger.execute("select pg_advisory_lock(holdfast._lane_lock(), l.id) from holdfast.lane l")
        limited.execute(HURRY)

        report, warnings = reported(limited)

        assert report["holders"] == [
            {"queue": "q", "priority": 0, "pid": stranger.info.backend_pid, "user": stranger.info.user}
        ]
        assert (report["holders_ended"], warnings) == (0, [])


def test_an_owner_who_may_not_end_sessions_says_whom_to_end(
    limited: psycopg.Connection[Any], empty_database_url: str
) -> None:
    parameters: dict[str, Any] = {"application_name": "stranger"}
    with psycopg.connect(empty_database_url, autocommit=True, **parameters) as stranger:
        stranger.execute("grant pg_read_all_stats to limited_owner")
        stranger.execute("select pg_advisory_lock(holdfast._lane_lock(), l.id) from holdfast.lane l")
        limited.execute(HURRY)

        report, warnings = reported(limited)

        pid = stranger.info.backend_pid
        (holder,) = report["holders"]
        assert (holder["pid"], holder["application"], holder["state"]) == (pid, "stranger", "idle")
        assert holder["since"]
        assert report["holders_ended"] == 0
        assert warnings == [
            f"process {pid} has held a lane for over five minutes, and may not be ended by this user"
        ]
        assert stranger.execute("select 1").fetchone() == (1,)
