"""Gaps: whatever senders commit, roll back, or keep open, each committed message comes out exactly once.

1. any interleaving of senders, claims of any size and acks delivers each committed message once, and no other
2. afterwards no gap is left: nothing keeps looking for ids that nobody owns
3. messages of one sender's transaction come out in the order in which they were sent
4. an idle open writer keeps back nothing but its own messages
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.fix_database import Connect
from tests.waiting import eventually

SENDERS = 4
QUICK = settings(max_examples=50, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=500, derandomize=False)

Event = tuple[str, int, int]

who = st.integers(0, SENDERS - 1)


@st.composite
def rounds(draw: st.DrawFn) -> list[Event]:
    """Some senders draw ids in turn, some of them end, and a claim comes by: that is how gaps are made."""
    events: list[Event] = [
        ("send", draw(who), draw(st.integers(1, 3))) for _ in range(draw(st.integers(1, 5)))
    ]
    if draw(st.integers(0, 3)) == 0:
        events.append((draw(st.sampled_from(("savepoint", "back"))), draw(who), 0))
    events += [
        (draw(st.sampled_from(("commit", "commit", "rollback"))), draw(who), 0)
        for _ in range(draw(st.integers(0, 3)))
    ]
    events.append(("wait", 0, draw(st.sampled_from((1, 11, 300)))))
    events += [
        (draw(st.sampled_from(("claim", "acked claim", "undone claim"))), 0, draw(st.integers(1, 6)))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return events


stories = st.lists(rounds(), min_size=2, max_size=8).map(
    lambda drawn: [event for events in drawn for event in events]
)


@dataclass(slots=True)
class Sender:
    """A connection, and what its open transaction has sent so far, savepoint by savepoint."""

    connection: psycopg.Connection[Any]
    layers: list[list[int]] = field(default_factory=list)

    def send(self, count: int) -> None:
        if not self.layers:
            self.connection.execute("begin")
            self.layers.append([])
        sent = self.connection.execute(
            "select holdfast.send_batch('gaps', array_fill('1'::jsonb, array[%s::int]))", (count,)
        )
        self.layers[-1] += (sent.fetchone() or ([],))[0]

    def savepoint(self) -> None:
        if self.layers:
            self.connection.execute("savepoint here")
            self.layers.append([])

    def back(self) -> None:
        if len(self.layers) > 1:
            self.connection.execute("rollback to savepoint here")
            self.layers[-1] = []

    def end(self, how: str) -> list[int]:
        """Commit or roll back; returns what is in the queue for good."""
        layers, self.layers = self.layers, []
        if layers:
            self.connection.execute(how)
        return [message for layer in layers for message in layer] if how == "commit" else []


class Story:
    """Plays what Hypothesis drew, and keeps count."""

    def __init__(self, senders: list[Sender], consumer: psycopg.Connection[Any]) -> None:
        self.senders = senders
        self.consumer = consumer
        self.committed: list[int] = []
        self.delivered: list[int] = []
        self.clock = 0
        consumer.execute("select holdfast.drop_queue('gaps')")
        self.wait(0)
        consumer.execute("select holdfast.create_queue('gaps', '{\"lease\": \"24 hours\"}')")

    def wait(self, milliseconds: int) -> None:
        self.clock += milliseconds
        at = "timestamptz '2030-01-01 00:00Z' + make_interval(secs => %s / 1000.0)"
        self.consumer.execute(f"select holdfast.set_clock({at})", (self.clock,))

    def claim(self, most: int, *, then_ack: bool = False) -> list[int]:
        rows = self.consumer.execute("select id, token from holdfast.claim('gaps', %s)", (most,)).fetchall()
        if rows and then_ack:
            self.consumer.execute("select holdfast.ack('gaps', %s, strict => true)", (rows[0][1],))
        return [row[0] for row in rows]

    def play(self, event: str, who: int, number: int) -> None:
        sender = self.senders[who]
        match event:
            case "send":
                sender.send(number)
            case "commit" | "rollback":
                self.committed += sender.end(event)
            case "savepoint":
                sender.savepoint()
            case "back":
                sender.back()
            case "claim":
                self.delivered += self.claim(number)
            case "acked claim":
                self.delivered += self.claim(number, then_ack=True)
            case "undone claim":
                self.consumer.execute("begin")
                note(f"undone: {self.claim(number)}")
                self.consumer.execute("rollback")
            case "wait":
                self.wait(number)

    def finish(self) -> None:
        """Every sender commits, and the queue is claimed empty."""
        for sender in self.senders:
            self.committed += sender.end("commit")
        self.claim_until_complete(self.committed)

    def claim_until_complete(self, wanted: list[int]) -> None:
        def complete() -> bool:
            self.delivered += self.claim(3)
            return len(self.delivered) >= len(wanted)

        eventually(complete, what=f"delivered {sorted(self.delivered)} of {sorted(wanted)}", timeout=5)
        self.delivered += self.claim(10)

    def gaps(self) -> int:
        return int((self.consumer.execute("select count(*) from holdfast.gap").fetchone() or (0,))[0])

    def forgets_gaps(self) -> bool:
        self.delivered += self.claim(1)
        return self.gaps() == 0


def sends_and_claims(connect: Connect, profile: settings) -> None:
    senders = [Sender(connect()) for _ in range(SENDERS)]
    consumer = connect()

    @profile
    @given(stories)
    def tell(events: list[Event]) -> None:
        story = Story(senders, consumer)
        for event in events:
            story.play(*event)

        story.finish()

        assert sorted(story.delivered) == sorted(story.committed)
        eventually(story.forgets_gaps, what="gaps that nobody can fill are dropped")
        assert len(story.delivered) == len(story.committed)

    tell()


def test_each_committed_message_is_delivered_once_whatever_the_senders_do(connect: Connect) -> None:
    sends_and_claims(connect, QUICK)


@pytest.mark.verify
@pytest.mark.timeout(3600)
def test_each_committed_message_is_delivered_once_in_thousands_of_stories(connect: Connect) -> None:
    sends_and_claims(connect, LONG)


def test_an_idle_open_writer_keeps_back_only_its_own_messages(connect: Connect) -> None:
    idle, busy = Sender(connect()), Sender(connect())
    consumer = connect()

    @QUICK
    @given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(("commit", "rollback"))), max_size=10))
    def tell(batches: list[tuple[int, str]]) -> None:
        story = Story([idle, busy], consumer)
        idle.send(1)
        for count, how in batches:
            busy.send(count)
            story.committed += busy.end(how)

        story.claim_until_complete(story.committed)
        at_first = sorted(story.delivered)
        others = sorted(story.committed)
        story.finish()

        assert at_first == others
        assert sorted(story.delivered) == sorted(story.committed)

    tell()


def test_messages_of_one_transaction_come_out_in_order(connect: Connect) -> None:
    senders = [Sender(connect()) for _ in range(2)]
    consumer = connect()

    @QUICK
    @given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), max_size=12), st.integers(1, 5))
    def tell(turns: list[tuple[int, int]], most: int) -> None:
        story = Story(senders, consumer)
        for who, count in turns:
            senders[who].send(count)
        first, second = (sender.end("commit") for sender in senders)
        story.wait(11)

        while batch := story.claim(most):
            story.delivered += batch

        assert [i for i in story.delivered if i in first] == first
        assert [i for i in story.delivered if i in second] == second
        assert len(story.delivered) == len(first) + len(second)

    tell()
