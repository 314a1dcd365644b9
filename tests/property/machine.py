"""The state machine as a whole, and how every example ends: drained, with nothing left over."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta

import psycopg
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.property.administering import Administering
from tests.property.base import consumers
from tests.property.consuming import Consuming
from tests.property.engine import CONSUMERS, Engine, Session
from tests.property.model import GRAVE, MAIN, Message
from tests.property.observe import Licence
from tests.property.producing import Producing
from tests.property.strategies import Options, leases, maximums
from tests.property.taking import Taking
from tests.waiting import eventually

BATCH = 7
PATIENCE = 3.0  # seconds
ATTEMPTS = 3
SWEEPING = timedelta(milliseconds=300)  # a lane is swept every 250 ms


class QueueMachine(Producing, Consuming, Administering):
    """All verbs against the model."""

    # Hypothesis draws among all rules alike: what is listed again comes more often.
    send_more = send_still_more = send_yet_more = Producing.send
    send_batch_more = Producing.send_batch
    claim_more = claim_still_more = claim_yet_more = Consuming.claim
    settle_more = settle_still_more = settle_yet_more = settle_once_more = Consuming.settle
    transact_more = transact_still_more = Producing.transact
    redrive_more = redrive_still_more = Administering.redrive
    pass_more_time = pass_still_more_time = Producing.pass_time

    @rule(
        data=st.data(),
        who=consumers,
        deeds=st.lists(
            st.sampled_from(("claim", "claim", "settle", "send", "savepoint", "back")), min_size=2, max_size=6
        ),
        commit=st.booleans(),
    )
    def transaction(self, data: st.DataObject, who: str, deeds: list[str], commit: bool) -> None:
        """A consumer's transaction from begin to end: claims, work, settlements, sends of its own."""
        if not self.model.hands[who].open:
            self.transact(who=who, action="commit")
        for deed in deeds:
            if not self.model.hands[who].open:  # a strict settlement has failed
                return
            match deed:
                case "claim":
                    self.claim(
                        who=who, most=data.draw(maximums), lease=data.draw(leases), alone=False, dead=1
                    )
                case "settle":
                    verb = data.draw(st.sampled_from(("ack", "nack", "release", "extend")))
                    self.settle(data=data, who=who, verb=verb, strict=data.draw(st.booleans()))
                case "send":
                    self.send(who=who, value=None, how=Options())
                case _:
                    self.transact(who=who, action=deed)
        if self.model.hands[who].open:
            self.finish(who, commit)

    transaction_more = transaction

    @rule(who=st.sampled_from(("P1", "P3")), claimer=consumers, most=maximums, count=st.integers(1, 3))
    def overtake(self, who: str, claimer: str, most: int, count: int) -> None:
        """A sender stays open, one on the same shard commits after it, and a claim passes the ids between."""
        if not self.model.hands[who].open:
            self.transact(who=who, action="commit")
        self.send_batch(who=who, batch=[None] * count, how=Options())
        self.send(who="C2", value=None, how=Options())
        self.advance(timedelta(milliseconds=11))
        self.claim(who=claimer, most=most, lease=None, alone=False, dead=5)

    @rule(who=consumers, hold=st.booleans())
    def die(self, who: str, hold: bool) -> None:
        """A message fails for good; somebody may take its dead letter into hand."""
        session, hand = self.pair(who)
        queue = self.model.queues[MAIN]
        if hand.open or queue.paused or queue.dead_letter is None:
            return
        self.send(who=who, value=None, how=Options(max_deliveries=1))
        for token in {row["token"] for row in self.claim_once(session, MAIN, 20, None, False)}:
            failed = {"delay": None, "error": "boom"}
            mine = self.model.holding(hand, MAIN, token)
            (row,) = session.call("nack", queue=MAIN, token=token, **failed)
            assert set(row["settled"]) == set(mine)
            self._settled(session, "nack", list(mine.values()), failed)
        if hold and GRAVE in self.model.queues:
            self.claim_once(session, GRAVE, 1, None, False)

    @rule(who=consumers, times=st.integers(1, 3))
    def fall_silent(self, who: str, times: int) -> None:
        """A consumer takes messages and is not heard of, as often as one may be delivered, or more often."""
        session, hand = self.pair(who)
        if hand.open:
            return
        self.send(who=who, value=None, how=Options(max_deliveries=2))
        for _ in range(times):
            self.claim_once(session, MAIN, 20, timedelta(seconds=1), False)
            self.advance(timedelta(seconds=2))

    def teardown(self) -> None:
        error = sys.exc_info()[1]
        if error is None:  # after a failure the drain would only hide it
            try:
                self.end_transactions()
                self.drain()
            except (AssertionError, psycopg.Error) as found:
                self.remember(found)
                raise
        elif isinstance(error, (AssertionError, psycopg.Error)):
            self.remember(error)
        self.engine.reset(self.model.now)

    def remember(self, error: BaseException) -> None:
        """The first failure as it happened: real time plays a part, so a replay may go another way."""
        if self.engine.first_failure is None:
            self.engine.first_failure = "\n".join(
                ["The first failure, as it happened:", *self.engine.trace, repr(error)]
            )

    def end_transactions(self) -> None:
        for n, (name, hand) in enumerate(self.model.hands.items()):
            if hand.open:
                self.finish(name, self.endings[n % len(self.endings)])

    def drain(self) -> None:
        """First what can be had now; then, once every lease and delay is over, the rest; each just once."""
        if self.model.queues[MAIN].paused:
            self.pause_or_resume(pause=False)
        self.settle_fault()
        queues = [name for name in (MAIN, GRAVE) if name in self.model.queues]
        for queue in queues:
            self.empty(queue, lambda m: m.claimable(self.model.now), timedelta(0))
        self.advance(self._everything_is_over())
        for queue in (MAIN, GRAVE):
            if queue in self.model.queues:
                self.empty(queue, lambda m: True, SWEEPING)
        assert not self.model.committed
        (figures,) = self.engine.admin.call("queue_stats", queue=MAIN)
        assert (figures["depth"], figures["dead"], figures["exact"]) == (0, 0, True)

    def settle_fault(self) -> None:
        """After a crash, and only then, one audit is granted."""
        if self.model.faults:
            self.maintain()

    def _everything_is_over(self) -> timedelta:
        times = [m.due_at for m in self.model.committed.values() if m.due_at and not m.held]
        times += [m.held.deadline for m in self.model.committed.values() if m.held]
        return max([t - self.model.now for t in times] + [timedelta(0)]) + timedelta(seconds=1)

    def empty(self, queue: str, meant: Callable[[Message], bool], step: timedelta) -> None:
        """Claim and ack until the model has no such message in the queue."""
        session = self.engine.sessions[CONSUMERS[0]]

        def left() -> list[Message]:
            return [m for m in self.model.committed.values() if m.queue == queue and meant(m)]

        def progress() -> bool:
            self.advance(step)
            before = len(left())
            rows = self.claim_once(session, queue, BATCH, None, True)
            if rows:
                self.ack_all(session, queue, rows[0]["token"], {row["id"] for row in rows})
            return len(left()) < before

        while left():
            eventually(progress, what=f"G9: does not come out of {queue}: {left()}", timeout=PATIENCE)

    def ack_all(self, session: Session, queue: str, token: int, ids: set[int]) -> None:
        (row,) = session.call("ack", queue=queue, token=token, strict=True)
        assert set(row["settled"]) == ids
        for message_id in ids:
            self.model.end(self.model.hands[session.name], message_id)
        self.look(session, Licence())


class RowMachine(Taking, QueueMachine):
    """The same, where messages are taken by their ids too."""

    by_row = True
    take_more = take_still_more = Taking.take


def run_machine(
    database: Engine, profile: settings, machine: type[QueueMachine] = QueueMachine
) -> None:
    """Run the machine on a database; what it raises carries the trace of the first failure."""

    class Machine(machine):  # type: ignore[valid-type, misc]
        engine = database

    Machine.__name__ = Machine.__qualname__ = machine.__name__
    for attempt in range(ATTEMPTS):
        try:
            run_state_machine_as_test(Machine, settings=profile)
            return
        except BaseException as error:
            error.add_note(database.first_failure or "No example failed.")
            # No example failed, but real time made a replay go another way: that says nothing of the engine.
            if database.first_failure or not isinstance(error, Flaky) or attempt == ATTEMPTS - 1:
                raise
