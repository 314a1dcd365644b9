"""Order against a model, whatever the order of events.

G6  a message is handed out only when it is the first of its line: across priorities, nacks, releases,
    leases and times to live that run out, dead letters, blocked lines, discards, redrives,
    crashes and undone work
G9  an empty claim means that no line has a first that can be had; in the end every line comes out, in order
and of a replaceable key one message waits, with the payload that was sent last.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.engine.engine import T0, Engine
from tests.fix_database import Connect

LEASE = timedelta(seconds=30)
BUDGET = 2  # deliveries
FOR_GOOD = timedelta(days=30)
_numbers = itertools.count()

keys = st.sampled_from(("a", "b", "c", None))
spans = st.sampled_from((None, None, None, timedelta(seconds=5), timedelta(seconds=40)))


@dataclass(slots=True)
class Message:
    """One live message of the model."""

    id: int
    line: str | None
    payload: int
    due_at: datetime
    expires_at: datetime | None = None
    key: str | None = None
    deliveries: int = 0
    token: int | None = None
    deadline: datetime = T0
    blocks: bool = False
    died_at: datetime = T0

    @property
    def name(self) -> tuple[object, ...]:
        """What can be sent back once."""
        return (self.payload,) if self.key is None else (self.key, self.line)

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now and not self.blocks

    def retry(self, now: datetime) -> None:
        """Its time to live has stood still; if none was left, it has none any more."""
        if self.expires_at:
            left = self.expires_at - self.died_at
            self.expires_at = now + left if left > timedelta() else None
        self.blocks, self.deliveries, self.due_at = False, 0, now

    def free(self, now: datetime) -> bool:
        return self.token is None and not self.blocks and self.due_at <= now


@dataclass(slots=True)
class Model:
    """Live messages in the order of their lines, and dead letters by id."""

    now: datetime = T0
    live: list[Message] = field(default_factory=list)
    dead: list[Message] = field(default_factory=list)
    payloads: int = 0

    def line(self, message: Message) -> list[Message]:
        same = [m for m in self.live if m.line == message.line]
        return [message] if message.line is None else same

    def first(self, message: Message) -> bool:
        return self.line(message)[0] is message

    def named(self, id: int) -> Message | None:
        return next((m for m in self.live if m.id == id), None)


class OrderMachine(RuleBasedStateMachine):
    """What producers, consumers and operators do with one queue."""

    engine: Engine

    @initialize(
        on_dead=st.sampled_from(("continue", "block")),
        ordering=st.sampled_from(("key", "key", "strict")),
        replaces=st.sampled_from(("unclaimed", "waiting")),
    )
    def begin(self, on_dead: str, ordering: str, replaces: str) -> None:
        self.queue = f"q{next(_numbers)}"
        self.blocking, self.strict = on_dead == "block", ordering == "strict"
        self.model = Model()
        self.engine.at(T0)
        self.replaces_any = replaces == "waiting"
        config = {"ordering": ordering, "on_dead": on_dead, "replaces": replaces}
        self.engine.create(self.queue, max_deliveries=BUDGET, **config)

    # --- sending

    @rule(
        line=keys,
        priority=st.sampled_from((0, 0, 5)),
        delay=spans,
        ttl=spans,
        undone=st.integers(0, 4),
        key=st.sampled_from((None, None, "x")),
    )
    def send(
        self,
        line: str | None,
        priority: int,
        delay: timedelta | None,
        ttl: timedelta | None,
        undone: int,
        key: str | None,
    ) -> None:
        model = self.model
        options: dict[str, Any] = {"delay": delay, "ttl": ttl, "key": key}
        if not self.strict:
            options |= {"ordering_key": line, "priority": priority}
        model.payloads += 1
        with self.engine.conn.transaction(force_rollback=undone == 0):
            id = self.engine.send(model.payloads, queue=self.queue, **options)
        if undone == 0:
            return
        sent = Message(
            id,
            "" if self.strict else line,
            model.payloads,
            model.now + (delay or timedelta()),
            model.now + ttl if ttl else None,
            key,
        )
        before = model.named(id)
        if before is None:
            waiting = [m for m in model.live if self._replaceable(m, sent)]
            assert not waiting, "one that waits was not replaced"
            model.live.append(sent)
        else:
            assert self._replaceable(before, sent), "this one could not be replaced"
            before.payload, before.expires_at = sent.payload, sent.expires_at
            before.due_at = sent.due_at if delay else min(before.due_at, model.now)

    def _replaceable(self, waiting: Message, sent: Message) -> bool:
        same = (waiting.key, waiting.line) == (sent.key, sent.line) and sent.key is not None
        fits = self.replaces_any or waiting.deliveries == 0
        return same and fits and waiting.token is None and not waiting.blocks

    # --- receiving

    @rule(most=st.sampled_from((1, 2, 10)), undone=st.integers(0, 4))
    def claim(self, most: int, undone: int) -> None:
        """An empty-handed claim is asked again: what it ended or swept may have moved a line."""
        taken = 0
        for _ in range(4):
            self._expire_leases()
            with self.engine.conn.transaction(force_rollback=undone == 0):
                rows = self.engine.claim(most, queue=self.queue)
                there = self._there()
            self._forget_expired()
            self._check(rows, there, held=undone > 0)
            taken += len(rows)
            if undone == 0:
                # What it had swept is undone too, and in the model it is not.
                self.engine.value("sweep", queue=self.queue)
            if rows or undone == 0:
                return
        wanted = [m for m in self.model.live if self.model.first(m) and m.free(self.model.now)]
        assert taken or not wanted, f"G9: nothing came, but {wanted[:3]} can be had"

    def _check(self, rows: list[dict[str, Any]], there: set[int], *, held: bool) -> None:
        """there: what had not ended where the rows were claimed, in a transaction that may be undone."""
        lines = [row["ordering_key"] for row in rows if row["ordering_key"]]
        assert len(lines) == len(set(lines)), f"two of a line at once: {rows}"
        assert len(rows) <= 1 or not self.strict
        found = [(row, self.model.named(row["id"])) for row in rows]
        for row, message in found:
            assert message is not None, f"handed out, but not there: {row}"
            first = next(m for m in self.model.line(message) if m.id in there)
            assert first is message, f"G6: {message} before {first}"
            assert message.free(self.model.now), f"{message} was held, blocked or not due"
            assert (row["payload"], row["key"]) == (message.payload, message.key)
        for row, message in found:
            if held and message:
                message.token, message.deadline = row["token"], self.model.now + LEASE

    def _expire_leases(self) -> None:
        """What the sweep of the next claim does."""
        for message in list(self.model.live):
            if message.token is not None and message.deadline <= self.model.now:
                self._back(message, self.model.now)

    def _forget_expired(self) -> None:
        """Claims end what has expired when they meet it: the model asks which are gone."""
        there = self._there()
        gone = [m for m in self.model.live if m.id not in there]
        assert all(m.expired(self.model.now) and m.token is None for m in gone), f"lost: {gone}"
        self.model.live = [m for m in self.model.live if m.id in there]

    def _there(self) -> set[int]:
        return {id for (id,) in self.engine.conn.execute("select id from holdfast.message").fetchall()}

    # --- settling

    def _held(self, data: st.DataObject) -> Message | None:
        held = [m for m in self.model.live if m.token is not None and m.deadline > self.model.now]
        return data.draw(st.sampled_from(held)) if held else None

    @rule(data=st.data(), verb=st.sampled_from(("ack", "ack", "nack", "release")), undone=st.integers(0, 4))
    def settle(self, data: st.DataObject, verb: str, undone: int) -> None:
        message = self._held(data)
        if message is None or message.token is None:
            return
        delay = data.draw(spans) if verb == "nack" else None
        options = {"delay": delay or timedelta()} if verb == "nack" else {}
        with self.engine.conn.transaction(force_rollback=undone == 0):
            settled, _ = self.engine.settle(verb, message.token, [message.id], queue=self.queue, **options)
        assert settled == [message.id]
        if undone == 0:
            return
        if verb == "ack":
            self.model.live.remove(message)
        elif verb == "nack":
            self._back(message, self.model.now + (delay or timedelta()))
        else:
            message.token, message.due_at = None, self.model.now

    def _back(self, message: Message, due_at: datetime) -> None:
        message.token, message.due_at = None, due_at
        message.deliveries += 1
        if message.deliveries < BUDGET:
            return
        if self.blocking and message.line is not None:
            message.blocks, message.died_at = True, self.model.now
        else:
            self.model.live.remove(message)
            self.model.dead.append(message)

    # --- operators

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        if not self.model.live:
            return
        chosen = data.draw(st.lists(st.sampled_from(self.model.live), max_size=3, unique_by=lambda m: m.id))
        gone = self.engine.value("discard", queue=self.queue, ids=[m.id for m in chosen])
        assert sorted(gone) == sorted(m.id for m in chosen)
        self.model.live = [m for m in self.model.live if m not in chosen]

    @rule()
    def redrive(self) -> None:
        """Of each key one goes back, unless a message of it lives."""
        self._forget_expired()
        moved = self.engine.rows("redrive", queue=self.queue)
        entries = {m.payload: m for m in self.model.dead}
        living = {(m.key, m.line) for m in self.model.live}
        wanted = {m.name for m in self.model.dead if m.key is None or (m.key, m.line) not in living}
        names = []
        for row in moved:
            entry = self.engine.row("message", queue=self.queue, id=row["new_id"])
            old = entries[entry["payload"]]
            names.append(old.name)
            self.model.dead.remove(old)
            self.model.live.append(Message(row["new_id"], old.line, old.payload, self.model.now, key=old.key))
        assert len(names) == len(set(names))
        assert set(names) == wanted

    @rule(data=st.data(), how=st.sampled_from(("retry", "skip")))
    def unblock(self, data: st.DataObject, how: str) -> None:
        listed = {r["head"] for r in self._blocked_keys() if r["reason"] == "dead"}
        blocking = [m for m in self.model.live if m.blocks]
        assert listed == {m.id for m in blocking}
        if not blocking:
            return
        message = data.draw(st.sampled_from(blocking))
        self.engine.value("unblock", queue=self.queue, key=message.line or None, how=how)
        message.retry(self.model.now)
        if how == "skip":
            self.model.live.remove(message)
            self.model.dead.append(message)

    def _blocked_keys(self) -> list[dict[str, Any]]:
        return self.engine.rows("blocked_keys", queue=self.queue)

    @rule(span=st.sampled_from((timedelta(seconds=3), timedelta(seconds=31))))
    def pass_time(self, span: timedelta) -> None:
        self.model.now += span
        self.engine.at(self.model.now)

    @rule()
    def crash(self) -> None:
        self.engine.value("repair", queue=self.queue)
        for message in self.model.live:
            if message.token is not None:
                message.token, message.due_at = None, self.model.now

    @rule()
    def maintain(self) -> None:
        """Nothing is ever found: what is parked has somebody before it."""
        parked = "select count(*) from holdfast.message m where m.due_at = 'infinity'"
        before = self.engine.look(parked)
        self._expire_leases()
        self.engine.value("sweep", queue=self.queue)
        answer = self.engine.value("maintain")
        self._forget_expired()
        assert answer["found"] == 0 or before == 0

    def teardown(self) -> None:
        """Everything comes out, each line in order."""
        if not hasattr(self, "model"):
            return
        self.model.now += FOR_GOOD
        self.engine.at(self.model.now)
        for message in [m for m in self.model.live if m.blocks]:
            self.engine.value("unblock", queue=self.queue, key=message.line or None)
            message.retry(self.model.now)
        empty = 0
        while empty < 4:
            self._expire_leases()
            for message in [m for m in self.model.live if m.blocks]:
                self.engine.value("sweep", queue=self.queue)
                self.engine.value("unblock", queue=self.queue, key=message.line or None)
                message.retry(self.model.now)
            rows = self.engine.claim(10, queue=self.queue)
            self._forget_expired()
            self._check(rows, self._there(), held=False)
            for row in rows:
                self.engine.settle("ack", row["token"], [row["id"]], queue=self.queue)
                self.model.live = [m for m in self.model.live if m.id != row["id"]]
            empty = 0 if rows else empty + 1
        assert self.model.live == [], f"G9: stranded: {self.model.live}"
        self.engine.value("drop_queue", queue=self.queue)
        self.engine.value("drop_queue", queue=f"{self.queue}.dlq")


QUICK = settings(
    max_examples=25,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=300, stateful_step_count=60, derandomize=False)


def run(connect: Connect, how: settings) -> None:
    class Machine(OrderMachine):
        engine = Engine(connect())

    run_state_machine_as_test(Machine, settings=how)


@pytest.mark.timeout(300)
def test_every_order_of_events_keeps_lines_in_order(connect: Connect) -> None:
    run(connect, QUICK)


@pytest.mark.verify
@pytest.mark.timeout(7200)
def test_thousands_of_orders_of_events_keep_lines_in_order(connect: Connect) -> None:
    run(connect, LONG)
