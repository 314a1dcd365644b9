"""why() and other sessions: who holds what, and since when.

1. A lane that a session has kept for over a second is named with its holder: an open claim, a lock of a
   stranger, a prepared transaction. A claim of this moment is not.
2. A transaction that has sent and stays open is named while ids of the queue are missing, and not otherwise.
3. An old snapshot is named with whoever holds it: a session or a prepared transaction; a young one is not.
4. why waits for nobody, and a user with nothing but the monitor's role sees all of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.isolation.scene import Scene, Session

LOCK = "select pg_advisory_lock(holdfast._lane_lock(), %s)"
# Seconds and minutes in real time would have to be waited for.
HURRY = (
    "do $$ declare f text; begin foreach f in array '{_why_lanes,_why_senders,_old_snapshots}'::text[] loop"
    " execute replace(replace(pg_get_functiondef(('holdfast.' || f)::regproc), '1 second', '0 seconds'),"
    " '5 minutes', '0 minutes'); end loop; end $$"
)


def found(session: Session, *wanted: str) -> list[dict[str, Any]]:
    """The findings of these kinds, with details beside the rest."""
    rows = session.execute("select finding, severity, message, details, remedy from holdfast.why('q')")
    return [
        {"finding": row[0], "severity": row[1], "message": row[2], "remedy": row[4], **row[3]}
        for row in rows
        if row[0] in wanted
    ]


@pytest.fixture
def hurried(scene: Scene) -> Scene:
    """A scene in which everything has lasted long enough."""
    scene.watcher.execute(HURRY)
    return scene


def test_an_open_claim_is_named_as_the_holder_of_its_lane(hurried: Scene) -> None:
    consumer = hurried.session("consumer")
    consumer.send()
    consumer.begin().claim()

    (held,) = found(hurried.watcher, "lane_held")
    consumer.commit()

    assert (held["severity"], held["pid"], held["application"]) == ("blocking", consumer.pid, "consumer")
    assert (held["priority"], held["state"]) == (0, "idle in transaction")
    assert f"pg_terminate_backend({consumer.pid})" in held["remedy"]
    assert found(hurried.watcher, "lane_held") == []


def test_a_claim_of_this_moment_is_not_named(scene: Scene) -> None:
    consumer = scene.session("consumer")
    consumer.begin().claim()

    rows = found(scene.watcher, "lane_held")

    assert rows == []
    consumer.rollback()


def test_a_stranger_who_locks_a_lane_is_named(hurried: Scene) -> None:
    stranger = hurried.session("stranger")
    stranger.execute(LOCK, [hurried.lane()])

    (held,) = found(hurried.watcher, "lane_held")

    assert (held["pid"], held["application"], held["state"]) == (stranger.pid, "stranger", "idle")
    assert stranger.value("select pg_advisory_unlock(holdfast._lane_lock(), %s)", [hurried.lane()]) is True


def test_a_prepared_transaction_is_named_by_its_name(hurried: Scene) -> None:
    consumer = hurried.session("consumer")
    consumer.begin().execute("select * from holdfast.claim('q')")
    consumer.execute("prepare transaction 'left behind'")

    rows = found(hurried.watcher, "lane_held", "old_snapshot")
    hurried.watcher.execute("rollback prepared 'left behind'")

    assert [row["finding"] for row in rows] == ["lane_held", "old_snapshot"]
    assert (rows[0]["prepared"], rows[1]["name"]) == ("left behind", "left behind")
    assert all("rollback prepared 'left behind'" in row["remedy"] for row in rows)


def test_a_sender_that_does_not_commit_is_named(hurried: Scene) -> None:
    sender = hurried.session("sender")
    sender.begin().send()

    (row,) = found(hurried.watcher, "open_transaction")
    empty = found(hurried.watcher, "empty")
    sender.commit()

    assert (row["severity"], row["pid"], row["missing"]) == ("warning", sender.pid, 1)
    assert len(empty) == 1
    assert found(hurried.watcher, "open_transaction", "empty") == []


def test_a_sender_that_the_cursor_has_passed_is_named(hurried: Scene) -> None:
    sender, other = hurried.sessions("sender", 2)
    sender.begin().send()
    other.send()
    hurried.watcher.execute("update holdfast.message set enqueued_at = enqueued_at - interval '1 minute'")
    taken = other.take()

    (row,) = found(hurried.watcher, "open_transaction")
    sender.rollback()

    assert len(taken) == len(hurried.gaps()) == 1
    assert (row["pid"], row["missing"]) == (sender.pid, 1)


def test_a_writer_elsewhere_is_not_named_while_nothing_is_missing_here(hurried: Scene) -> None:
    hurried.watcher.execute("select holdfast.create_queue('other')")
    sender = hurried.session("sender")
    sender.send()
    sender.begin().send(queue="other")

    rows = found(hurried.watcher, "open_transaction")

    assert rows == []
    sender.commit()
    hurried.drain("other")


def test_an_old_snapshot_is_named_with_its_session(hurried: Scene) -> None:
    reader = hurried.session("report")
    reader.begin("isolation level repeatable read").execute("select 1")

    (row,) = found(hurried.watcher, "old_snapshot")
    reader.rollback()

    assert (row["what"], row["pid"], row["application"]) == ("session", reader.pid, "report")
    assert found(hurried.watcher, "old_snapshot") == []


def test_a_young_snapshot_is_not_named(scene: Scene) -> None:
    reader = scene.session("report")
    reader.begin("isolation level repeatable read").execute("select 1")

    assert found(scene.watcher, "old_snapshot") == []


def test_why_waits_for_nobody(hurried: Scene) -> None:
    consumer, admin = hurried.session("consumer"), hurried.session("admin")
    consumer.send()
    consumer.begin().claim()
    admin.begin().execute("""select holdfast.configure_queue('q', '{"lease": "1 min"}')""")
    hurried.watcher.execute("set lock_timeout = '1ms'")

    rows = found(hurried.watcher, "lane_held")

    assert [row["pid"] for row in rows] == [consumer.pid]
    admin.rollback()
    consumer.commit()


def test_a_monitor_sees_who_it_is(hurried: Scene) -> None:
    consumer, monitor = hurried.session("consumer"), hurried.session("monitor")
    monitor.execute("create role only_monitor; grant holdfast_monitor to only_monitor")
    consumer.begin().claim()
    monitor.execute("set session authorization only_monitor")

    (held,) = found(monitor, "lane_held")
    monitor.execute("reset session authorization")
    monitor.execute("drop role only_monitor")
    consumer.commit()

    assert (held["pid"], held["application"]) == (consumer.pid, "consumer")
