"""What the state machine found, one story each.

1. a message discarded in flight is in no lease any more: not counted, not extended, held by nobody
2. a message committed late, after the cursor had passed it, is counted and shown before it is claimed
3. after a crash, what was held is counted and shown as ready, before anybody claims
4. a lane made in a transaction that is open while its queue is paused or resumed follows its queue
"""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from tests.fix_database import Connect
from tests.property.engine import CONSUMERS, PRODUCERS, Engine, Session
from tests.property.model import MAIN, START
from tests.waiting import eventually

FIGURES = ("ready", "scheduled", "in_flight", "depth", "exact")


def figures(session: Session) -> tuple[Any, ...]:
    (row,) = session.call("queue_stats", queue=MAIN)
    return tuple(row[name] for name in FIGURES)


def shown(session: Session, state: str) -> list[int]:
    return [row["id"] for row in session.call("browse", queue=MAIN, state=state)]


def fresh(connect: Connect) -> tuple[Engine, Session, Session]:
    engine = Engine(connect)
    engine.reset(START)
    engine.admin.value("create_queue", queue=MAIN)
    return engine, engine.sessions[PRODUCERS[0]], engine.sessions[CONSUMERS[0]]


class Switch(Thread):
    """Pauses or resumes in a thread of its own: it may wait for the open transaction, or not."""

    def __init__(self, session: Session, verb: str) -> None:
        super().__init__(daemon=True)
        self.session, self.verb = session, verb

    def run(self) -> None:
        self.session.value(self.verb, queue=MAIN)

    def start_and_wait_or_finish(self, watcher: Session) -> None:
        """Returns once it is done, or waits for a lock."""
        self.start()
        pid = self.session.connection.info.backend_pid
        waiting = "select wait_event_type = 'Lock' as waits from pg_stat_activity where pid = %s"
        eventually(
            lambda: not self.is_alive() or watcher.run(waiting, (pid,))[0]["waits"],
            what="pause_queue or resume_queue is done, or waits for a lock",
        )


def test_a_message_discarded_in_flight_is_in_no_lease_any_more(connect: Connect) -> None:
    engine, producer, consumer = fresh(connect)
    sent = producer.value("send", queue=MAIN, payload=1)
    (claimed,) = consumer.call("claim", queue=MAIN)

    gone = engine.admin.value("discard", queue=MAIN, ids=[sent])

    (extended,) = consumer.call("extend", queue=MAIN, token=claimed["token"])
    assert gone == [sent]
    assert figures(engine.admin) == (0, 0, 0, 0, True)
    assert extended["settled"] == []
    assert consumer.call("holders", queue=MAIN, ids=[sent]) == []


def test_a_message_committed_late_is_counted_and_shown_before_it_is_claimed(connect: Connect) -> None:
    engine, producer, consumer = fresh(connect)
    producer.say("begin")
    late = producer.value("send", queue=MAIN, payload=1)
    consumer.value("send", queue=MAIN, payload=2)
    consumer.call("claim", queue=MAIN, max=5)
    producer.say("commit")

    seen = figures(engine.admin)

    assert seen == (1, 0, 1, 2, True)
    assert shown(engine.admin, "ready") == [late]


def test_after_a_crash_what_was_held_is_ready_before_anybody_claims(connect: Connect) -> None:
    engine, producer, consumer = fresh(connect)
    sent = producer.value("send", queue=MAIN, payload=1)
    (first,) = consumer.call("claim", queue=MAIN)
    consumer.call("release", queue=MAIN, token=first["token"])
    consumer.call("claim", queue=MAIN)

    engine.crash(START)

    assert figures(engine.admin) == (1, 0, 0, 1, True)
    assert shown(engine.admin, "ready") == [sent]


@pytest.mark.parametrize("paused", [True, False])
def test_a_lane_made_in_an_open_transaction_is_paused_and_resumed_with_its_queue(
    connect: Connect, paused: bool
) -> None:
    engine, producer, consumer = fresh(connect)
    if not paused:
        engine.admin.value("pause_queue", queue=MAIN)
    producer.say("begin")
    sent = producer.value("send", queue=MAIN, payload=1, priority=9)
    switching = Switch(engine.admin, "pause_queue" if paused else "resume_queue")
    switching.start_and_wait_or_finish(consumer)
    producer.say("commit")
    switching.join()

    claimed = [row["id"] for row in consumer.call("claim", queue=MAIN)]

    assert claimed == ([] if paused else [sent])
