"""Queues and lanes that are made, changed and dropped while others use them.

1. Twenty sessions that create one queue at once: one makes it, the others find it; a creator that rolls back
   leaves it to the next.
2. Two first users of a priority: the second waits until the first has ended, then works, either way.
3. drop_queue waits for open sends, claims and acks; afterwards nothing of the queue is left.
4. Who waits for a queue that is then dropped gets an answer or an error, and leaves nothing behind.
5. A queue dropped and made again under its name has nothing of the old one.
6. Configuration changes at the same time do not undo each other.
7. Of two who name a queue for their dead letters and make it strict, the second is told.
8. drop_queue with if_empty waits for an open send, and refuses if it commits: nothing that was sent is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import psycopg
import pytest

from tests.isolation.scene import Scene, Session

NO_QUEUE = "QH101"
LEFT = """
select (select count(*) from holdfast.queue where name = 'q'), (select count(*) from holdfast.lane),
       (select count(*) from holdfast.message), (select count(*) from holdfast.lease),
       (select count(*) from holdfast.gap), (select count(*) from holdfast.boot)
"""


def create(session: Session, name: str, config: str = "{}") -> bool:
    """Create a queue; was it made now?"""
    made: bool = session.value("select holdfast.create_queue(%s, %s)", [name, config])
    return made


def drop(session: Session) -> bool:
    """Drop the queue; was it there?"""
    dropped: bool = session.value("select holdfast.drop_queue('q')")
    return dropped


def drop_if_empty(session: Session, queue: str) -> bool:
    """Drop a queue if it is empty; was it there?"""
    dropped: bool = session.value("select holdfast.drop_queue(%s, if_empty => true)", [queue])
    return dropped


@pytest.mark.parametrize("config", ["{}", '{"lease": "5 s", "priorities": [0, 3]}'])
def test_twenty_sessions_that_create_a_queue_at_once_make_it_once(scene: Scene, config: str) -> None:
    sessions = scene.sessions("creator", 20)
    sessions[0].begin()
    made = [create(sessions[0], "new", config)]
    pending = [session.start(partial(create, session, "new", config)) for session in sessions[1:]]
    for creation in pending:
        creation.waiting_for("transactionid")

    sessions[0].commit()
    made += [creation.result() for creation in pending]

    assert made == [True] + 19 * [False]
    assert scene.session("consumer").send("new") == scene.first_id("new")


def test_a_creator_that_rolls_back_leaves_the_queue_to_the_next(scene: Scene) -> None:
    sessions = scene.sessions("creator", 6)
    create(sessions[0].begin(), "new")
    pending = [session.start(partial(create, session, "new")) for session in sessions[1:]]
    for creation in pending:
        creation.waiting_for("transactionid")

    sessions[0].rollback()
    made = [creation.result() for creation in pending]

    assert sorted(made) == [False, False, False, False, True]
    assert scene.session("consumer").send("new") == scene.first_id("new")


def test_the_second_first_user_of_a_priority_waits_and_then_works(scene: Scene) -> None:
    one, two = scene.sessions("sender", 2)
    one.begin()
    first = one.send(priority=7)
    sending = two.start(lambda: two.send(priority=7)).blocked_by(one)

    one.commit()

    assert sending.result() == first + 1
    assert scene.drain() == [first, first + 1]
    scene.journal.check_exactly_once()


def test_the_second_first_user_of_a_priority_makes_it_if_the_first_rolls_back(scene: Scene) -> None:
    one, two = scene.sessions("sender", 2)
    one.begin().send(priority=7)
    sending = two.start(lambda: two.send(priority=7)).blocked_by(one)

    one.rollback()

    assert scene.drain() == [sending.result()]
    scene.journal.check_exactly_once()


def test_a_first_use_of_a_priority_does_not_block_the_others(scene: Scene) -> None:
    one, two = scene.sessions("sender", 2)
    one.begin().send(priority=7)
    two.execute("set statement_timeout = '10s'")

    plain = two.send()
    taken = two.take()
    other = two.send(priority=3)
    one.commit()

    assert taken == [plain]
    assert len(two.take()) == 2
    assert other in scene.journal.delivered


def test_a_priority_made_ahead_blocks_nobody(scene: Scene) -> None:
    scene.watcher.execute("""select holdfast.configure_queue('q', '{"priorities": [0, 7]}')""")
    one, two = scene.sessions("sender", 2)
    one.begin().send(priority=7)
    two.execute("set statement_timeout = '10s'")

    id = two.send(priority=7)

    assert two.take() == [id]
    one.rollback()


def test_drop_waits_for_an_open_send_and_takes_its_message_along(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.begin().send()
    dropping = admin.start(lambda: drop(admin)).blocked_by(sender)

    sender.commit()

    assert dropping.result() is True
    assert scene.watcher.execute(LEFT) == [(0, 0, 0, 0, 0, 0)]


@pytest.mark.parametrize(("queue", "options"), [("q", {}), ("q", {"priority": 7}), ("log", {})])
def test_drop_if_empty_waits_for_an_open_send_and_leaves_its_message(
    scene: Scene, queue: str, options: dict[str, int]
) -> None:
    create(scene.watcher, "log", '{"kind": "log"}')
    sender, admin = scene.session("sender"), scene.session("admin")
    admin.execute("set lock_timeout = '21s'")
    id = sender.begin().send(queue, **options)
    dropping = admin.start(lambda: drop_if_empty(admin, queue)).blocked_by(sender)

    sender.commit()
    error = dropping.error()

    assert isinstance(error, psycopg.Error)
    assert (error.sqlstate, admin.value("show lock_timeout")) == ("QH109", "21s")
    assert scene.watcher.execute("select id from holdfast.message") == [(id,)]
    assert sender.send(queue, **options) == id + 1


def test_drop_if_empty_waits_for_an_open_send_that_rolls_back_and_drops(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.begin().send()
    dropping = admin.start(lambda: drop_if_empty(admin, "q")).blocked_by(sender)

    sender.rollback()

    assert dropping.result() is True
    assert scene.watcher.execute(LEFT) == [(0, 0, 0, 0, 0, 0)]


def test_drop_if_empty_refuses_what_has_messages_without_waiting(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.send()
    sender.begin().send()
    admin.execute("set statement_timeout = '10s'")

    with pytest.raises(psycopg.Error, match="is not empty"):
        drop_if_empty(admin, "q")

    sender.commit()
    assert scene.messages() == 2


def test_drop_waits_for_an_open_claim(scene: Scene) -> None:
    worker, admin = scene.session("worker"), scene.session("admin")
    worker.send()
    worker.begin().claim()
    dropping = admin.start(lambda: drop(admin)).blocked_by(worker)

    worker.commit()

    assert dropping.result() is True
    assert scene.watcher.execute(LEFT) == [(0, 0, 0, 0, 0, 0)]


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_drop_waits_for_an_open_settlement(scene: Scene, verb: str) -> None:
    worker, admin = scene.session("worker"), scene.session("admin")
    worker.send()
    (delivery,) = worker.claim()
    getattr(worker.begin(), verb)(delivery.token)
    dropping = admin.start(lambda: drop(admin)).blocked_by(worker)

    worker.commit()

    assert dropping.result() is True
    assert scene.watcher.execute(LEFT) == [(0, 0, 0, 0, 0, 0)]


def test_drop_waits_for_a_first_use_of_a_priority(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.begin().send(priority=7)
    dropping = admin.start(lambda: drop(admin)).blocked_by(sender)

    sender.commit()

    assert dropping.result() is True
    assert scene.watcher.execute(LEFT) == [(0, 0, 0, 0, 0, 0)]


WAITERS = {
    "send": "select holdfast.send('q')",
    "send with a new priority": "select holdfast.send('q', priority => 7)",
    "send_many": """select holdfast.send_many('q', '[{"payload": 1}]')""",
    "configure": """select holdfast.configure_queue('q', '{"lease": "5 s"}')""",
    "ack": "select * from holdfast.ack('q', %s)",
    "queue_stats": "select * from holdfast.queue_stats('q')",
}


@pytest.mark.parametrize("call", WAITERS)
def test_who_waits_for_a_queue_that_is_dropped_leaves_nothing_behind(scene: Scene, call: str) -> None:
    waiter, admin = scene.session("waiter"), scene.session("admin")
    scene.watcher.send()
    token = scene.watcher.claim()[0].token
    drop(admin.begin())
    statement = WAITERS[call].replace("%s", str(token))
    waiting = waiter.start(lambda: waiter.execute(statement))
    waiting.settles_or_blocks_on(admin)

    admin.commit()
    error = waiting.error()

    assert error is None or isinstance(error, psycopg.Error)
    assert scene.watcher.execute(LEFT) == [(0, 0, 0, 0, 0, 0)]


@pytest.mark.parametrize("call", ["select * from holdfast.claim('q')", "select holdfast.sweep('q')"])
def test_who_waits_for_a_lane_that_is_dropped_is_told_nothing_strange(scene: Scene, call: str) -> None:
    scene.patient()
    waiter, admin = scene.session("waiter"), scene.session("admin")
    drop(admin.begin())
    waiting = waiter.start(lambda: waiter.execute(call)).blocked_by(admin)

    admin.commit()
    error = waiting.error()

    assert error is None or isinstance(error, psycopg.Error)
    assert error is None or error.sqlstate == NO_QUEUE, str(error)
    assert scene.watcher.execute(LEFT) == [(0, 0, 0, 0, 0, 0)]


def test_a_drop_that_rolls_back_lets_the_waiters_go_on(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    first = sender.send()
    drop(admin.begin())
    sending = sender.start(sender.send).blocked_by(admin)

    admin.rollback()

    assert scene.drain() == [first, sending.result()]
    scene.journal.check_exactly_once()


def test_a_queue_made_again_has_nothing_of_the_old_one(scene: Scene) -> None:
    sender, worker, admin = scene.session("sender"), scene.session("worker"), scene.session("admin")
    old = sender.send()
    (delivery,) = worker.claim()
    drop(admin.begin())
    creating = sender.start(lambda: create(sender, "q")).blocked_by(admin)
    admin.commit()
    made = creating.result()
    scene.journal.sent.discard(old)
    del scene.journal.delivered[old]

    new = sender.send()
    stale = worker.ack(delivery.token, [old, new])

    assert made is True
    assert stale == ([], [old, new])
    assert scene.drain() == [new]


def test_changes_of_one_queue_at_the_same_time_add_up(scene: Scene) -> None:
    one, two = scene.sessions("admin", 2)
    change = "select holdfast.configure_queue('q', %s)"
    one.begin().execute(change, ['{"lease": "5 s"}'])
    changing = two.start(lambda: two.value(change, ['{"max_deliveries": 9}'])).blocked_by(one)

    one.commit()

    assert (changing.result()["lease"], changing.result()["max_deliveries"]) == ("5 s", 9)
    kept = scene.watcher.execute("select lease::text, max_deliveries from holdfast.queue where name = 'q'")
    assert kept == [("00:00:05", 9)]


def test_a_queue_made_while_the_defaults_change_has_the_new_ones(scene: Scene) -> None:
    one, two = scene.sessions("admin", 2)
    create(one.begin(), "new")
    changing = two.start(lambda: two.execute("""select holdfast.configure_defaults('{"lease": "5 s"}')"""))
    changing.settles_or_blocks_on(one)
    one.commit()
    changing.result()

    leases = scene.watcher.execute("select lease::text from holdfast.queue order by name")

    assert leases == [("00:00:05",), ("00:00:05",)]


def test_a_queue_that_is_paused_meanwhile_hands_out_nothing_more(scene: Scene) -> None:
    scene.patient()
    worker, other, admin = scene.session("worker"), scene.session("other"), scene.session("admin")
    ids = [worker.send() for _ in range(2)]
    taken = worker.begin().take(1)
    waiting = other.start(other.take).blocked_by(worker)
    admin.execute("select holdfast.pause_queue('q')")

    worker.commit()
    rest = waiting.result()  # it looked before the pause
    worker.send()
    after = other.take()

    assert (taken, rest) == (ids[:1], ids[1:])
    assert after == []


def name_it(session: Session) -> bool:
    return create(session, "orders", '{"dead_letter": "line"}')


def make_it_strict(session: Session) -> bool:
    return create(session, "line", '{"ordering": "strict"}')


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("calls", [(name_it, make_it_strict), (make_it_strict, name_it)])
def test_a_queue_is_named_for_dead_letters_or_made_strict(
    scene: Scene, calls: tuple[Callable[[Session], bool], Callable[[Session], bool]], commits: bool
) -> None:
    one, two = scene.sessions("admin", 2)
    calls[0](one.begin())
    second = two.start(partial(calls[1], two)).blocked_by(one)
    one.execute("commit" if commits else "rollback")

    if commits:
        error = second.error()
        assert isinstance(error, psycopg.Error)
        assert error.sqlstate == "QH104"
    else:
        assert second.result() is True


def test_queues_of_other_names_are_made_meanwhile(scene: Scene) -> None:
    one, two = scene.sessions("admin", 2)
    make_it_strict(one.begin())

    assert create(two, "other", '{"ordering": "strict"}') is True
    one.commit()


def test_a_change_of_nothing_keeps_others_from_changing_the_queue(scene: Scene) -> None:
    one, two = scene.sessions("session", 2)
    one.begin()
    seen = one.value("select holdfast.configure_queue('q', '{}')")

    other = two.start(lambda: two.value("""select holdfast.configure_queue('q', '{"lease": "9 s"}')"""))
    other.blocked_by(one)
    again = one.value("select holdfast.configure_queue('q', '{}')")
    one.commit()

    assert again == seen
    assert other.result() == seen | {"lease": "9 s"}


def test_a_change_of_nothing_keeps_the_defaults_from_changing_it_too(scene: Scene) -> None:
    one, two = scene.sessions("session", 2)
    one.begin()
    seen = one.value("select holdfast.configure_queue('q', '{}')")

    other = two.start(lambda: two.value("""select holdfast.configure_defaults('{"lease": "9 s"}')"""))
    other.blocked_by(one)
    again = one.value("select holdfast.configure_queue('q', '{}')")
    one.commit()
    other.result()

    assert again == seen
    assert one.value("select holdfast.configure_queue('q', '{}')") == seen | {"lease": "9 s"}
