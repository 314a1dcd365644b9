"""Queues that are dropped under those who use them.

1. Who waits for a queue that is being dropped learns that there is none (QH101): verbs that configure, make a
   lane, report, or redrive. Other internal errors are told as they are.
2. Sends to a lane that is there, settlements and listen have no time to ask: they get that error, or
   PostgreSQL's own for a sequence that is gone. Repeated, they get QH101.
3. A burial waits for whoever drops the dead-letter queue, and then makes it anew.
4. A drop gives way: whoever it would have a deadlock with goes on, and the drop follows.
5. drop_queue heeds the caller's lock_timeout, and leaves it as it was, whatever it had to wait for.
6. The clock can be set meanwhile.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.isolation.scene import Scene, Session

NO_QUEUE = "QH101"
DROP = "select holdfast.drop_queue('q')"

TOLD = {
    "send with a new priority": "select holdfast.send('q', priority => 7)",
    "configure": """select holdfast.configure_queue('q', '{"lease": "5 s"}')""",
    "pause": "select holdfast.pause_queue('q')",
    "resume": "select holdfast.resume_queue('q')",
    "repair": "select holdfast.repair('q')",
    "redrive": "select * from holdfast.redrive('q')",
    "queue_stats": "select * from holdfast.queue_stats('q')",
    "browse": "select * from holdfast.browse('q')",
}
HOT = {
    "send": "select holdfast.send('q')",
    "send_many": """select holdfast.send_many('q', '[{"payload": 1}]')""",
    "ack": "select * from holdfast.ack('q', 1)",
    "nack": "select * from holdfast.nack('q', 1)",
    "listen": "select holdfast.listen('q')",
}


def told_while_dropping(scene: Scene, statement: str) -> BaseException | None:
    """What a statement fails with that waited for an open drop, which then commits."""
    waiter, admin = scene.session("waiter"), scene.session("admin")
    admin.begin().execute(DROP)
    waiting = waiter.start(lambda: waiter.execute(statement))
    waiting.settles_or_blocks_on(admin)
    admin.commit()
    return waiting.error()


@pytest.mark.parametrize("call", TOLD)
def test_who_waits_for_a_queue_that_is_dropped_is_told_that_there_is_none(scene: Scene, call: str) -> None:
    error = told_while_dropping(scene, TOLD[call])

    assert isinstance(error, psycopg.Error)
    assert error.sqlstate == NO_QUEUE, str(error)


@pytest.mark.parametrize("call", HOT)
def test_a_hot_verb_that_waited_for_a_drop_is_told_so_when_it_is_repeated(scene: Scene, call: str) -> None:
    error = told_while_dropping(scene, HOT[call])

    if error is not None:
        assert isinstance(error, psycopg.Error)
        gone = error.sqlstate == "XX000" and "could not open relation with OID" in str(error)
        assert gone or error.sqlstate == NO_QUEUE, str(error)
    with pytest.raises(psycopg.Error) as again:
        scene.watcher.execute(HOT[call])
    assert again.value.sqlstate == NO_QUEUE


def test_a_report_tells_other_internal_errors_as_they_are(scene: Scene) -> None:
    scene.watcher.execute(
        "create or replace function holdfast._figures(lane holdfast.lane, at timestamptz)"
        " returns holdfast._figures language plpgsql stable as"
        " $$ begin raise exception using errcode = 'XX000', message = 'bad magic number'; end $$"
    )

    with pytest.raises(psycopg.errors.InternalError_, match="bad magic number"):
        scene.watcher.execute(TOLD["queue_stats"])


def dying(scene: Scene) -> tuple[Session, int, int]:
    """A message in its last delivery; its dead letter would go to `grave`. Who holds it, its id and token."""
    mortal = """select holdfast.configure_queue('q', '{"max_deliveries": 1, "dead_letter": "grave"}')"""
    scene.watcher.execute(mortal)
    scene.watcher.execute("select holdfast.create_queue('grave')")
    worker = scene.session("worker")
    id = worker.send()
    (delivery,) = worker.claim()
    return worker, id, delivery.token


def test_a_burial_waits_for_whoever_drops_the_grave_and_makes_it_anew(scene: Scene) -> None:
    worker, id, token = dying(scene)
    admin = scene.session("admin")
    admin.begin().execute("select holdfast.drop_queue('grave')")
    burying = worker.start(lambda: worker.nack(token)).blocked_by(admin)

    admin.commit()

    assert burying.result().settled == [id]
    roots = "select origin ->> 'id' from holdfast.browse('q', 'dead')"
    assert scene.watcher.execute(roots) == [(str(id),)]


def test_who_drops_the_grave_waits_for_an_open_burial(scene: Scene) -> None:
    worker, _, token = dying(scene)
    admin = scene.session("admin")
    worker.begin().nack(token)
    dropping = admin.start(lambda: admin.value("select holdfast.drop_queue('grave')")).blocked_by(worker)

    worker.commit()

    assert dropping.result() is True
    assert scene.messages() == 0


@pytest.mark.parametrize("then", ["send with a new priority", "configure", "pause"])
def test_a_drop_gives_way_to_a_sender_that_wants_more_of_the_queue(scene: Scene, then: str) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.begin().send()
    dropping = admin.start(lambda: admin.value(DROP)).blocked_by(sender)

    sender.execute(TOLD[then])
    sender.commit()

    assert dropping.result() is True
    assert scene.messages() == 0


def test_a_drop_does_not_wait_longer_for_a_lock_than_its_caller_wants(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.begin().send()
    admin.execute("set lock_timeout = '50ms'")

    with pytest.raises(psycopg.errors.LockNotAvailable):
        admin.execute(DROP)

    sender.commit()
    assert admin.value(DROP) is True


def test_a_drop_keeps_the_callers_lock_timeout(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.begin().send()
    admin.begin().execute("set local lock_timeout = '21s'")
    dropping = admin.start(lambda: admin.value(DROP)).blocked_by(sender)
    sender.commit()

    dropped = dropping.result()

    assert (dropped, admin.value("show lock_timeout")) == (True, "21s")
    admin.commit()


def test_the_clock_can_be_set_while_a_queue_is_dropped(scene: Scene) -> None:
    setter, admin = scene.session("setter"), scene.session("admin")
    admin.begin().execute(DROP)
    setting = setter.start(lambda: setter.execute("select holdfast.set_clock(holdfast.now())"))
    setting.settles_or_blocks_on(admin)
    admin.commit()

    assert setting.error() is None
