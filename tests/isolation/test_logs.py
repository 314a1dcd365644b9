"""Logs: no reader passes a record that is still to come, and nobody waits for what never will.

1. A record behind an open append is not shown until that append has ended; what lies before it is.
2. Numbers of appends that rolled back, as a whole or to a savepoint, are passed, also while others go on
   appending.
3. An append that is open when a reader comes, and commits later, is shown first: also one that is prepared.
4. An idle writer elsewhere, in another queue or another log, keeps back nothing; nor does somebody who only
   looked at the log.
5. An open append that started after a hole was seen does not keep readers before the hole.
6. A reader that appends and reads in one transaction sees its own records, and no register moves past its
   numbers.
7. Retention and deletion never go past a record that is still to come, and a reader in between is told.
8. A reader waits for nobody: not for an open append, deletion or retention.
9. A queue that is read as a log keeps the same promises.
10. The lock on a log's marks is nobody else's: an open send with a key elsewhere stops no reader.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.isolation.scene import Scene, Session

LANE = 2**40
LOG = "log"


@pytest.fixture
def log(scene: Scene) -> Scene:
    """The scene, with a log."""
    scene.watcher.execute("select holdfast.create_queue('log', '{\"kind\": \"log\"}')")
    return scene


def append(session: Session, queue: str = LOG) -> int:
    seq: int = session.value("select holdfast.send(%s, '1') %% (1::bigint << 40)", [queue])
    return seq


def shown(session: Session, after: int = 0, queue: str = LOG, limit: int = 100) -> list[Any]:
    """The numbers of the records after one; ranges that are gone as (kind, from, to)."""
    rows = session.execute("select * from holdfast.read(%s, %s, %s)", [queue, after, limit])
    return [row[1] if row[0] == "record" else (row[0], row[2], row[3]) for row in rows]


def later(scene: Scene) -> None:
    """Nothing is young any more."""
    scene.watcher.execute("select holdfast.set_clock(now() + interval '1 hour')")


def opened(scene: Scene, name: str = "open") -> Session:
    """A session in whose open transaction one record has been appended."""
    session = scene.session(name).begin()
    append(session)
    return session


def test_a_record_behind_an_open_append_is_not_shown(log: Scene) -> None:
    reader, writer = log.session("reader"), log.session("writer")
    append(writer)
    late = opened(log)
    append(writer)

    before = shown(reader)
    late.commit()

    assert (before, shown(reader), shown(reader, 1)) == ([1], [1, 2, 3], [2, 3])


def test_a_reader_right_before_an_open_append_sees_nothing(log: Scene) -> None:
    reader, writer = log.session("reader"), log.session("writer")
    late = opened(log)
    append(writer)
    later(log)

    looks = [shown(reader) for _ in range(3)]
    late.rollback()

    assert looks == [[], [], []]
    assert shown(reader) == [2]


def test_numbers_of_a_savepoint_that_was_rolled_back_are_passed_when_its_transaction_ends(log: Scene) -> None:
    reader, writer, other = log.session("reader"), log.session("writer"), log.session("other")
    writer.begin()
    append(writer)
    writer.execute("savepoint s")
    append(writer)
    writer.execute("rollback to savepoint s")
    append(writer)
    append(other)
    later(log)

    before = shown(reader)
    writer.commit()

    assert (before, shown(reader)) == ([], [1, 3, 4])


def test_a_prepared_append_is_waited_for(log: Scene) -> None:
    reader, writer = log.session("reader"), opened(log)
    writer.prepare("p")
    append(log.watcher)
    later(log)

    before = shown(reader)
    writer.commit_prepared("p")

    assert (before, shown(reader)) == ([], [1, 2])


@pytest.mark.parametrize(
    "statement",
    [
        "select holdfast.send('q')",
        "select holdfast.send('other')",
        "select holdfast.create_queue('x')",
        "select holdfast.queue_stats('log'), pg_current_xact_id()",
        "select holdfast.read('log'), pg_current_xact_id()",
        "select holdfast.log_stats('log'), pg_current_xact_id()",
        "select holdfast.ack('q', (select token from holdfast.claim('q') limit 1))",
    ],
    ids=["a queue", "another log", "DDL", "figures", "a reader", "a watcher", "a consumer"],
)
def test_an_idle_writer_elsewhere_keeps_nothing_back(log: Scene, statement: str) -> None:
    log.watcher.execute("select holdfast.create_queue('other', '{\"kind\": \"log\"}')")
    log.watcher.execute("select holdfast.send('q')")
    append(log.watcher)
    reader, idle = log.session("reader"), log.session("idle").begin()
    idle.execute(statement)
    gone = opened(log, "gone")
    append(log.watcher)
    gone.rollback()
    later(log)

    assert shown(reader) == [1, 3]
    idle.rollback()


def test_an_append_that_started_after_the_hole_was_seen_keeps_nobody_before_it(log: Scene) -> None:
    reader = log.session("reader")
    shown(reader)
    append(log.watcher)
    gone, waits = opened(log, "gone"), opened(log, "waits")
    append(log.watcher)
    later(log)
    gone.rollback()
    first = shown(reader)  # somebody who may own 2 is still open
    young = opened(log, "young")
    waits.rollback()

    second = shown(reader)
    append(log.watcher)
    third = shown(reader)
    young.commit()

    assert (first, second, third) == ([1], [1, 4], [1, 4])
    assert shown(reader) == [1, 4, 5, 6]


def test_under_appends_that_always_overlap_holes_are_passed_one_round_later(log: Scene) -> None:
    reader = log.session("reader")
    append(log.watcher)
    shown(reader)
    later(log)
    running, seen, committed = opened(log, "s0"), [1], [1]
    for turn in range(1, 12):
        following = opened(log, f"s{turn}")
        if turn % 3 == 0:
            running.rollback()
        else:
            running.commit()
            committed.append(turn + 1)
        seen += shown(reader, seen[-1])
        running = following

    assert len(seen) >= len(committed) - 3
    assert seen == committed[: len(seen)]
    running.rollback()
    assert shown(reader) == committed


def test_a_commit_between_two_looks_is_never_lost(log: Scene) -> None:
    reader = log.session("reader")
    shown(reader)
    first, second = opened(log, "first"), opened(log, "second")
    append(log.watcher)
    later(log)
    looks = [shown(reader)]
    second.commit()
    looks.append(shown(reader))
    first.commit()

    assert looks == [[], []]
    assert shown(reader) == [1, 2, 3]


def test_a_transaction_that_appends_sees_its_own_and_moves_no_register(log: Scene) -> None:
    reader, both = log.session("reader"), log.session("both").begin()
    shown(reader)
    append(both)
    both.execute("savepoint s")
    append(both)
    both.execute("rollback to savepoint s")
    append(both)
    append(log.watcher)
    later(log)

    own = shown(both)
    others = shown(reader)
    both.commit()

    assert (own, others) == ([1, 3, 4], [])
    assert shown(reader) == [1, 3, 4]


def test_a_reader_in_an_old_transaction_learns_no_more_than_it_may(log: Scene) -> None:
    reader = log.session("reader").begin()
    reader.execute("select pg_current_xact_id()")
    late = opened(log)
    append(log.watcher)
    later(log)

    before = shown(reader)
    late.commit()

    assert (before, shown(reader)) == ([], [1, 2])
    reader.commit()


def test_retention_does_not_pass_an_open_append(log: Scene) -> None:
    log.watcher.execute("select holdfast.configure_queue('log', '{\"retention\": {\"count\": 1}}')")
    late = opened(log)
    for _ in range(5):
        append(log.watcher)
    later(log)
    log.watcher.execute("select holdfast.maintain() from generate_series(1, 3)")
    before = shown(log.watcher)
    late.commit()
    kept = shown(log.watcher)
    log.watcher.execute("select holdfast.maintain()")

    assert (before, kept) == ([], [1, 2, 3, 4, 5, 6])
    assert shown(log.watcher) == [("gap", 1, 5), 6]


def test_deletion_does_not_cover_an_open_append(log: Scene) -> None:
    append(log.watcher)
    late = opened(log)
    append(log.watcher)
    later(log)
    log.watcher.execute("select holdfast.log_delete('log', before => 10)")
    before = shown(log.watcher)
    late.commit()

    assert before == [("deleted", 1, 1)]
    assert shown(log.watcher) == [("deleted", 1, 1), 2, ("deleted", 3, 3)]


def test_a_reader_waits_for_neither_deletion_nor_retention(log: Scene) -> None:
    reader, deleter = log.session("reader"), log.session("deleter").begin()
    for _ in range(4):
        append(log.watcher)
    log.watcher.execute("select holdfast.configure_queue('log', '{\"retention\": {\"count\": 2}}')")
    deleter.execute("select holdfast.maintain()")
    deleter.execute("select holdfast.log_delete('log', '{3}')")

    during = shown(reader)
    deleter.commit()

    assert during == [1, 2, 3, 4]
    assert shown(reader) == [("gap", 1, 2), ("deleted", 3, 3), 4]


def test_two_deletions_take_turns_and_merge(log: Scene) -> None:
    for _ in range(6):
        append(log.watcher)
    first, second = log.session("first").begin(), log.session("second")
    first.execute("select holdfast.log_delete('log', '{2, 3}')")
    pending = second.start(lambda: second.execute("select holdfast.log_delete('log', '{3, 4, 5}')"))
    pending.blocked_by(first)
    first.commit()

    assert pending.result() == [(2,)]
    assert shown(log.watcher) == [1, ("deleted", 2, 5), 6]


def test_maintenance_leaves_a_log_alone_that_somebody_deletes_from(log: Scene) -> None:
    for _ in range(4):
        append(log.watcher)
    log.watcher.execute("select holdfast.configure_queue('log', '{\"retention\": {\"count\": 1}}')")
    deleter = log.session("deleter").begin()
    deleter.execute("select holdfast.log_delete('log', '{4}')")

    trimmed = log.watcher.value("select holdfast.maintain() ->> 'trimmed'")
    deleter.rollback()

    assert trimmed == "0"
    assert log.watcher.value("select holdfast.maintain() ->> 'trimmed'") == "3"


def test_figures_stop_before_what_may_still_come(log: Scene) -> None:
    append(log.watcher)
    late = opened(log)
    append(log.watcher)
    last = "select last_seq from holdfast.log_stats('log')"
    before = log.watcher.value(last)
    late.rollback()

    assert (before, log.watcher.value(last)) == (1, 3)


def test_a_queue_that_is_read_keeps_the_same_promises(scene: Scene) -> None:
    reader = scene.session("reader")
    append(scene.watcher, "q")
    late, gone = scene.session("late").begin(), scene.session("gone").begin()
    append(late, "q")
    append(gone, "q")
    append(scene.watcher, "q")
    later(scene)
    gone.rollback()
    before = shown(reader, queue="q")
    scene.watcher.execute("select holdfast.ack('q', token) from holdfast.claim('q', 1)")
    scene.watcher.execute("select holdfast.claim('q', 1)")
    passed = shown(reader, queue="q")
    late.commit()

    assert (before, passed) == ([1], [])
    assert shown(reader, queue="q") == [2, 4]


def test_an_open_send_with_a_key_elsewhere_stops_no_reader(scene: Scene) -> None:
    sender, reader = scene.session("sender").begin(), scene.session("reader")
    sender.execute("select holdfast.send('q', key => 'k')")
    bucket = scene.watcher.value("select max(objid::int) from pg_locks where locktype = 'advisory'")
    scene.watcher.execute("select setval(pg_get_serial_sequence('holdfast.lane', 'id'), %s, false)", [bucket])
    scene.watcher.execute("select holdfast.create_queue('log', '{\"kind\": \"log\"}')")
    opened(scene).rollback()
    seq = append(scene.watcher)

    reader.execute("set lock_timeout = '5s'")
    read = shown(reader)
    sender.rollback()

    assert scene.lane(LOG) == bucket
    assert read == [seq]
