"""Ends: whatever is sent, claimed, settled, expired, purged and replayed, each message ends exactly once.

1. A message is there until it ends, and it ends by what the model says, once, with the right outcome.
2. The archive holds exactly the ends that the queue keeps, with their time and deliveries.
3. After upkeep nothing that has expired is there any more: in flight only where the queue says so.
4. A lease holds no message that has ended; one with a range holds all of it.
5. A replay sends exactly what ended in its period, in that order, and leaves the archive as it is.
6. In the end everything that is left comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from tests.fix_database import Connect
from tests.waiting import eventually

START = datetime(2030, 1, 1, tzinfo=UTC)
OUTCOMES = ("done", "expired", "failed", "discarded")
STATES = ("ready", "scheduled", "in_flight")
BUDGET = 2
QUICK = settings(
    max_examples=80,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=400, stateful_step_count=40, derandomize=False)

ARCHIVE = """
select id, outcome, ended_at, coalesce(deliveries, 0) as deliveries from holdfast.archive
where queue_id = (select id from holdfast.queue where name = 'q') order by ended_at, id
"""
seconds = st.sampled_from((1, 4, 9, 30))
picks = st.integers(1, 31)
verbs = st.sampled_from(("ack", "ack", "nack", "release"))
maybe_seconds = st.sampled_from((None, 5, 20))


@dataclass(slots=True)
class Message:
    """What the model knows of a living message."""

    id: int
    due_at: datetime
    expires_at: datetime | None
    root: int
    deliveries: int = 0
    token: int | None = None
    deadline: datetime = START

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def state(self, now: datetime) -> str:
        if self.token is not None:
            return "in_flight"
        return "scheduled" if self.due_at > now else "ready"


@dataclass(frozen=True, slots=True)
class End:
    """How a message ended."""

    id: int
    outcome: str
    ended_at: datetime
    deliveries: int


class EndingMachine(RuleBasedStateMachine):
    """One queue, one session, and a model of who lives and who ended how."""

    conn: ClassVar[psycopg.Connection[Any]]

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.alive: dict[int, Message] = {}
        self.ends: dict[int, End] = {}
        self.roots: dict[int, int] = {}
        self.keep: set[str] = set()
        self.ttl: int | None = None
        self.hasty = False

    @initialize(keep=st.sets(st.sampled_from(OUTCOMES)), hasty=st.booleans(), ttl=st.sampled_from((None, 10)))
    def create(self, keep: set[str], hasty: bool, ttl: int | None) -> None:
        self.keep, self.hasty, self.ttl = keep, hasty, ttl
        config = {"keep": sorted(keep), "expire_in_flight": hasty, "ttl": ttl} | {
            "dead_letter": False,
            "max_deliveries": BUDGET,
        }
        self.ask("select holdfast.drop_queue('q')")
        self.at(START)
        self.ask("select holdfast.create_queue('q', %s)", Jsonb(config))
        note(f"{config}")

    # What happens

    @rule(ttl=maybe_seconds, delay=maybe_seconds, priority=st.integers(0, 1), count=st.integers(1, 4))
    def send(self, ttl: int | None, delay: int | None, priority: int, count: int) -> None:
        call = "select holdfast.send('q', ttl => %s, delay => %s, priority => %s)"
        for _ in range(count):
            id = self.ask(call, span(ttl), span(delay), priority)[0][0]
            self.born(id, id, ttl, delay)
        self.check()

    send_more = send_still_more = send

    @rule(most=st.integers(1, 5), lease=st.sampled_from((3, 60)))
    def claim(self, most: int, lease: int) -> None:
        rows = self.ask(
            "select id, token, deliveries from holdfast.claim('q', %s, lease => %s)", most, span(lease)
        )
        for id, token, deliveries in rows:
            message = self.alive[id]
            assert message.state(self.now) == "ready"
            assert not message.expired(self.now)
            assert deliveries == message.deliveries + 1
            message.token, message.deadline = token, self.now + timedelta(seconds=lease)
        self.check()

    claim_more = claim

    @rule(
        nth=picks, picked=picks, whole=st.booleans(), verb=st.sampled_from(("ack", "ack", "nack", "release"))
    )
    def settle(self, nth: int, picked: int, whole: bool, verb: str) -> None:
        held = [m for m in self.alive.values() if m.token is not None]
        if not held:
            return
        token = held[nth % len(held)].token
        mine = sorted(m.id for m in held if m.token == token)
        ids = None if whole else some_of(mine, picked)
        ((settled, _),) = self.ask(f"select * from holdfast.{verb}('q', %s, %s::bigint[])", token, ids)
        wanted = [self.alive[id] for id in (ids or mine)]
        good = [m for m in wanted if not (self.hasty and m.expired(self.now))]
        assert sorted(settled) == sorted(m.id for m in good)
        for message in wanted:
            if message not in good:
                self.end(message, "expired")
            elif verb == "ack":
                self.end(message, "done")
            else:
                self.give_back(message, counted=verb == "nack")
        self.check()

    settle_more = settle

    @rule(step=seconds)
    def pass_time(self, step: int) -> None:
        """Leases that are over by then end at once, so that the model knows."""
        self.at(self.now + timedelta(seconds=step))
        eventually(self.swept, what="leases that are over end")
        for message in list(self.alive.values()):
            if message.token is not None and message.deadline <= self.now:
                if self.hasty and message.expired(self.now):
                    self.end(message, "expired")
                else:
                    self.give_back(message, counted=True)
        self.check()

    def swept(self) -> bool:
        """A sweep that finds its walk dear may leave some for the next."""
        self.ask("select holdfast.sweep('q')")
        return not self.ask("select from holdfast.lease where ids <> '{}' and deadline <= %s", self.now)

    @rule()
    def maintain(self) -> None:
        def upkeep() -> bool:
            self.ask("select holdfast.maintain()")
            self.check()
            return not any(
                m.expired(self.now) and (m.token is None or self.hasty) for m in self.alive.values()
            )

        eventually(upkeep, what="expired messages end")

    @rule(states=st.lists(st.sampled_from(STATES), min_size=1, unique=True), limit=st.sampled_from((2, 1000)))
    def purge(self, states: list[str], limit: int) -> None:
        meant = {m.id for m in self.alive.values() if m.state(self.now) in states}
        purged, more = self.ask("select * from holdfast.purge('q', %s, %s)", states, limit)[0]
        gone = self.alive.keys() - {id for (id,) in self.ask("select id from holdfast.message")}
        assert gone <= meant
        assert len(gone) == purged <= limit
        assert more or gone == meant
        for id in gone:
            self.end(self.alive[id], "discarded")
        self.check()

    @rule(picked=picks)
    def discard(self, picked: int) -> None:
        if self.alive:
            some = some_of(sorted(self.alive), picked)
            assert self.ask("select holdfast.discard('q', %s)", some)[0][0] == sorted(some)
            for id in some:
                self.end(self.alive[id], "discarded")
        self.check()

    @rule(since=seconds, outcomes=st.none() | st.lists(st.sampled_from(OUTCOMES), min_size=1, unique=True))
    def replay(self, since: int, outcomes: list[str] | None) -> None:
        begin = self.now - timedelta(seconds=since)
        wanted = [
            e.id
            for e in sorted(self.kept(), key=lambda e: (e.ended_at, e.id))
            if e.ended_at >= begin and (outcomes is None or e.outcome in outcomes)
        ][:5]
        call = "select id, new_id from holdfast.replay('q', %s, outcomes => %s, \"limit\" => 5)"
        rows = self.ask(call, begin, outcomes)
        assert [old for old, _ in rows] == wanted
        for old, new in rows:
            self.born(new, self.roots[old], None, None)
            ((origin,),) = self.ask("select origin from holdfast.message where id = %s", new)
            assert (origin["id"], origin["root_id"]) == (old, self.roots[old])
        self.check()

    # The model

    def born(self, id: int, root: int, ttl: int | None, delay: int | None) -> None:
        life = ttl or self.ttl
        expires = self.now + timedelta(seconds=life) if life else None
        assert id not in self.roots, "an id twice"
        self.roots[id] = root
        self.alive[id] = Message(id, self.now + timedelta(seconds=delay or 0), expires, root)

    def give_back(self, message: Message, *, counted: bool) -> None:
        message.deliveries += counted
        message.token = None
        message.due_at = self.now
        if counted and message.deliveries >= BUDGET:
            self.end(message, "failed")

    def end(self, message: Message, outcome: str) -> None:
        assert message.id not in self.ends, "ended twice"
        del self.alive[message.id]
        last = outcome == "done"
        self.ends[message.id] = End(message.id, outcome, self.now, message.deliveries + last)

    def kept(self) -> set[End]:
        return {end for end in self.ends.values() if end.outcome in self.keep}

    def check(self) -> None:
        """Who is there, who is held, and what is kept: as the model says."""
        there = {id for (id,) in self.ask("select id from holdfast.message")}
        for message in list(self.alive.values()):
            if message.id not in there:
                # Claims and upkeep end what has expired in their own time.
                assert message.expired(self.now), f"lost: {message}"
                assert message.token is None or self.hasty, f"expired in flight: {message}"
                self.end(message, "expired")
        assert there == self.alive.keys()
        assert {End(*row) for row in self.ask(ARCHIVE)} == self.kept()
        for ids, lo, upto in self.ask("select ids, lo, upto from holdfast.lease where ids <> '{}'"):
            assert set(ids) <= there
            assert lo is None or ids == list(range(lo, upto))

    # The engine

    def ask(self, statement: str, *parameters: Any) -> list[Any]:
        with self.conn.cursor(row_factory=namedtuple_row) as cursor:
            cursor.execute(statement.encode(), parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def at(self, now: datetime) -> None:
        self.now = now
        note(f"    at {now - START}")
        self.ask("select holdfast.set_clock(%s)", now)

    def teardown(self) -> None:
        """Everything that is left comes out, or expires."""
        self.pass_time(3600)

        def drained() -> bool:
            for _, token in self.ask("select id, token from holdfast.claim('q', 10)"):
                self.ask("select holdfast.ack('q', %s)", token)
            return not self.ask("select from holdfast.message")

        eventually(drained, what="the queue is drained")


def some_of(ids: list[int], picked: int) -> list[int]:
    """Some of the ids, by the bits of a number; drawn so, an example is the same whatever the engine does."""
    return [id for n, id in enumerate(ids) if picked >> (n % 5) & 1] or ids[:1]


def span(number: int | None) -> timedelta | None:
    return None if number is None else timedelta(seconds=number)


def run(connect: Connect, profile: settings) -> None:
    class Machine(EndingMachine):
        conn = connect()

    run_state_machine_as_test(Machine, settings=profile)


@pytest.mark.timeout(300)
def test_every_message_ends_once_and_is_kept_as_the_queue_says(connect: Connect) -> None:
    run(connect, QUICK)


@pytest.mark.verify
@pytest.mark.timeout(7200)
def test_every_message_ends_once_in_thousands_of_orders(connect: Connect) -> None:
    run(connect, LONG)
