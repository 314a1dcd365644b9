"""After each step: does what is there equal the model, but for what the engine may do in its own time?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tests.property.engine import Row, Session
from tests.property.model import GRAVE, UNLIMITED, Content, Hand, Held, Message, Model, Queue

ORIGIN = (
    "queue",
    "id",
    "root_id",
    "deliveries",
    "failures",
    "error",
    "priority",
    "max_deliveries",
    "redrives",
)
DELIVERED = ("payload", "body", "content_type", "headers", "tag", "correlation_id")


@dataclass(slots=True, kw_only=True)
class Licence:
    """What a step may do beside its own effect: sweep leases that ran out, end what expired, audit."""

    sweep: bool = False
    expire: bool = False
    audit: bool = False
    taken: dict[int, Row] = field(default_factory=dict)
    born: list[Message] = field(default_factory=list)


def same_content(row: Row, content: Content) -> bool:
    return all(row[name] == getattr(content, name) for name in DELIVERED)


def mark_of(row: Row) -> int:
    """Every message carries a number that stays with it through all moves."""
    if row["body"] is not None:
        return int(row["body"].split(b":")[0])
    return int(row["payload"]["n"])


def same_origin(row: Row, expected: Any) -> bool:
    if row["origin"] is None or expected is None:
        return row["origin"] is None and expected is None
    return all(row["origin"].get(name) == expected.get(name) for name in ORIGIN)


class Observer:
    """Compares a session's whole view with the model's, and lets the model follow what it allowed."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def observe(self, session: Session, rows: Iterable[Row], licence: Licence) -> None:
        hand = self.model.hands[session.name]
        actual: dict[int, Row] = {}
        for row in rows:
            assert row["id"] not in actual, f"G3: {row['id']} is in two leases: {row} and {actual[row['id']]}"
            actual[row["id"]] = row
        expected = self.model.view(hand)
        unknown = licence.taken.keys() - expected.keys()
        assert not unknown, (
            f"G2: delivered, but not live (ended, rolled back or never sent): {sorted(unknown)}"
        )
        for message in expected.values():
            self._compare(hand, message, actual.get(message.id), licence)
        self._welcome(hand, [row for i, row in actual.items() if i not in expected], licence)

    def _compare(self, hand: Hand, message: Message, row: Row | None, licence: Licence) -> None:
        if message.overdue(self.model.now) and licence.sweep and self._let_go(message, row, licence):
            message = self._swept(hand, message)
            if self.model.queues[message.queue].spent(message):
                assert row is None, f"G5: used up its deliveries, and is still there: {message}"
                self.bury(hand, message, licence)
                return
        delivered = licence.taken.get(message.id)
        if delivered is not None:
            handed = sum(row["token"] == delivered["token"] for row in licence.taken.values())
            message = self._taken(hand, message, delivered, handed)
        if row is None:
            over = message.held is None and message.expired(self.model.now) and licence.expire
            assert over, f"G1: lost: {message}"
            self.model.end(hand, message.id)
            return
        self._same(hand, message, row, licence)

    def _let_go(self, message: Message, row: Row | None, licence: Licence) -> bool:
        """Has the engine ended this overdue lease? It may be that it has not yet looked."""
        assert message.held is not None
        return message.id in licence.taken or row is None or row["token"] != message.held.token

    def _swept(self, hand: Hand, message: Message) -> Message:
        model = self.model
        assert message.id not in model.touched_by_others(hand), (
            f"swept, but somebody else has it locked: {message}"
        )
        back = model.returned(message, failed=False, delay=timedelta(0), error=None)
        model.put(hand, back)
        return back

    def bury(self, hand: Hand, message: Message, licence: Licence) -> None:
        """A spent message ends here; its dead letter is to turn up."""
        dead = self.model.buried(message)
        if dead is not None:
            licence.born.append(dead)
            self.model.queues.setdefault(GRAVE, Queue(GRAVE, max_deliveries=0, dead_letter=None))
        self.model.end(hand, message.id)

    def _taken(self, hand: Hand, message: Message, delivered: Row, handed: int) -> Message:
        model, now = self.model, self.model.now
        limit = model.queues[message.queue].limit(message)
        assert message.held is None, f"G3: somebody holds it: {message}, delivered as {delivered}"
        assert message.id not in model.touched_by_others(hand), (
            f"G3: claimed in an open transaction: {message}"
        )
        assert message.due(now), f"delivered before its time: {message}"
        assert not message.expired(now), f"delivered after its time to live: {message}"
        assert same_content(delivered, message.content), f"changed: {delivered}, sent as {message.content}"
        assert same_origin(delivered, message.origin), (
            f"origin {delivered['origin']}, expected {message.origin}"
        )
        assert delivered["deliveries"] == message.deliveries + 1, (
            f"{delivered['deliveries']} deliveries: {message}"
        )
        assert delivered["max_deliveries"] == limit, f"limit {delivered['max_deliveries']}, expected {limit}"
        most = max(limit or UNLIMITED, message.allowed)
        queue = model.queues[message.queue]
        # What came back under another budget was measured by that one.
        if message.budget in (None, queue.budget):
            used = queue.used(message)
            assert used < most, f"G5: used {used} of at most {most} before this delivery: {message}"
        assert delivered["priority"] == message.priority
        assert delivered["enqueued_at"] == message.enqueued_at
        assert delivered["last_error"] == message.last_error
        held = Held(delivered["token"], delivered["deadline"], handed)
        message = replace(message, held=held, after_crash=False)
        model.put(hand, message)
        return message

    def _same(self, hand: Hand, message: Message, row: Row, licence: Licence) -> None:
        for name in (
            "queue",
            "priority",
            "enqueued_at",
            "expires_at",
            "deliveries",
            "failures",
            "last_error",
        ):
            assert row[name] == getattr(message, name), f"{name} is {row[name]}, expected {message}"
        assert row["max_deliveries"] == message.max_deliveries, f"{row['max_deliveries']}, expected {message}"
        assert same_content(row, message.content), f"content is {row}, expected {message}"
        assert same_origin(row, message.origin), f"origin is {row['origin']}, expected {message.origin}"
        if message.held:
            assert row["token"] == message.held.token, f"held under {row['token']}, expected {message}"
            assert row["deadline"] == message.held.deadline, f"until {row['deadline']}, expected {message}"
        else:
            self._same_due(hand, message, row, licence)

    def _same_due(self, hand: Hand, message: Message, row: Row, licence: Licence) -> None:
        assert row["token"] is None, f"held under {row['token']}, but it should be free: {message}"
        if row["parked"]:
            assert message.after_crash, f"G9: in no lease, and not claimable: {message}"
        elif row["due_at"] != message.due_at:
            found = licence.audit or message.after_crash
            sooner = found and message.due_at is None and row["due_at"] == self.model.now
            assert sooner, f"due {row['due_at']}, expected {message}"
            self.model.put(hand, replace(message, due_at=row["due_at"], after_crash=False))

    def _welcome(self, hand: Hand, rows: list[Row], licence: Licence) -> None:
        """Rows that were not there before: each is one that the step was to bring, and none is missing."""
        expected = {message.content.mark: message for message in licence.born}
        for row in rows:
            message = expected.pop(mark_of(row), None)
            assert message is not None, f"came from nowhere: {row}"
            message = replace(message, id=row["id"])
            assert message.id not in self.model.drawn, f"this id was there before: {message}"
            self.model.drawn.add(message.id)
            self._same(hand, message, row, licence)
            self.model.put(hand, message)
        assert not expected, f"G1: did not turn up: {list(expected.values())}"
