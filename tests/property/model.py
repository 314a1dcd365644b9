"""The model: what a queue holds, as plain values, and what each session sees of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

START = datetime(2030, 1, 1, tzinfo=UTC)
MAIN = "q"
GRAVE = "q.dlq"
UNLIMITED = 1_000_000
FOR_GOOD = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What the sender put in: it comes out unchanged, however often the message moves."""

    mark: int
    payload: Any = None
    body: bytes | None = None
    content_type: str | None = None
    headers: Mapping[str, Any] | None = None
    tag: str | None = None
    correlation_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Under which token a message is held, until when, and how many were handed out under it, not settled."""

    token: int
    deadline: datetime
    handed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One live message. `due_at` None: at once. `after_crash`: its lease was lost, and nobody looked yet."""

    id: int
    queue: str
    content: Content
    priority: int
    enqueued_at: datetime
    due_at: datetime | None = None
    expires_at: datetime | None = None
    max_deliveries: int | None = None
    deliveries: int = 0
    failures: int = 0
    last_error: str | None = None
    origin: Mapping[str, Any] | None = None
    held: Held | None = None
    allowed: int = UNLIMITED
    budget: str | None = None
    after_crash: bool = False

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def due(self, now: datetime) -> bool:
        return self.due_at is None or self.due_at <= now

    def overdue(self, now: datetime) -> bool:
        return self.held is not None and self.held.deadline <= now

    def claimable(self, now: datetime) -> bool:
        return self.held is None and self.due(now) and not self.expired(now)

    def state(self, now: datetime) -> str:
        if self.held:
            return "in_flight"
        return "ready" if self.due(now) else "scheduled"


@dataclass(slots=True)
class Queue:
    """What the model needs to know of a queue's configuration."""

    name: str
    lease: timedelta = timedelta(seconds=30)
    max_deliveries: int = 5
    dead_letter: str | None = None
    backoff_base: float = 0.0
    backoff_factor: float = 2.0
    backoff_cap: float = 300.0
    ttl: timedelta | None = None
    shards: int = 1
    paused: bool = False
    budget: str = "deliveries"
    lapse_is_failure: bool = False

    def limit(self, message: Message) -> int:
        own = message.max_deliveries
        return self.max_deliveries if own is None else own

    def spent(self, message: Message) -> bool:
        return 0 < self.limit(message) <= self.used(message)

    def used(self, message: Message) -> int:
        """What of its budget a message has used up: deliveries or failures that have ended."""
        return message.failures if self.budget == "failures" else message.deliveries

    def backoff(self, failures: int) -> timedelta:
        return timedelta(seconds=min(self.backoff_cap, self.backoff_base * self.backoff_factor**failures))


Layer = dict[int, Message | None]


@dataclass(slots=True)
class Hand:
    """One session as the model sees it: what its open transaction has changed, and what it has locked."""

    name: str
    layers: list[Layer] = field(default_factory=list)
    tokens: set[int] = field(default_factory=set)
    lanes: set[tuple[str, int, int]] = field(default_factory=set)
    claimed_from: set[str] = field(default_factory=set)

    @property
    def open(self) -> bool:
        return bool(self.layers)

    def touched(self) -> set[int]:
        return {i for layer in self.layers for i in layer}


class Model:
    """All that is committed, and the layers that open transactions lay over it."""

    def __init__(self, names: list[str]) -> None:
        self.now = START
        self.queues = {MAIN: Queue(MAIN, dead_letter=GRAVE)}
        self.committed: dict[int, Message] = {}
        self.hands = {name: Hand(name) for name in names}
        self.tokens: list[tuple[str, int]] = []
        self.drawn: set[int] = set()
        self.faults = 0
        self.marks = 0

    def view(self, hand: Hand) -> dict[int, Message]:
        """What a session sees: the committed messages, under what its own transaction did."""
        seen: dict[int, Message | None] = dict(self.committed)
        for layer in hand.layers:
            seen.update(layer)
        return {i: m for i, m in seen.items() if m is not None}

    def put(self, hand: Hand, message: Message) -> None:
        if hand.layers:
            hand.layers[-1][message.id] = message
        else:
            self.committed[message.id] = message

    def end(self, hand: Hand, message_id: int) -> None:
        if hand.layers:
            hand.layers[-1][message_id] = None
        else:
            del self.committed[message_id]

    def others(self, hand: Hand) -> Iterator[Hand]:
        return (other for other in self.hands.values() if other is not hand)

    def touched_by_others(self, hand: Hand) -> set[int]:
        return {i for other in self.others(hand) for i in other.touched()}

    def busy(self) -> bool:
        return any(hand.open for hand in self.hands.values())

    def begin(self, hand: Hand) -> None:
        hand.layers.append({})

    def undo_layer(self, hand: Hand) -> None:
        hand.layers[-1] = {}

    def merge_layer(self, hand: Hand) -> None:
        top = hand.layers.pop()
        hand.layers[-1].update(top)

    def finish(self, hand: Hand, commit: bool) -> None:
        """The transaction is over: what it did is there for all, or never was."""
        if commit:
            for layer in hand.layers:
                for message_id, message in layer.items():
                    if message is None:
                        self.committed.pop(message_id, None)
                    else:
                        self.committed[message_id] = message
        hand.layers, hand.tokens, hand.lanes, hand.claimed_from = [], set(), set(), set()

    def crash(self) -> None:
        """Open transactions never were; every lease is forgotten."""
        for hand in self.hands.values():
            self.finish(hand, commit=False)
        self.forget_leases()

    def forget_leases(self) -> None:
        self.faults += 1
        for message in list(self.committed.values()):
            if message.held:
                self.committed[message.id] = replace(message, held=None, due_at=None, after_crash=True)

    def holding(self, hand: Hand, queue: str, token: int) -> dict[int, Message]:
        """What a session sees held under a token, unless its queue is another one."""
        return {
            i: m
            for i, m in self.view(hand).items()
            if m.held is not None and m.held.token == token and m.queue == queue
        }

    def whole(self, mine: Mapping[int, Message]) -> bool:
        """Is this all that was handed out under its token, but for what was settled?"""
        return {m.held.handed for m in mine.values() if m.held} == {len(mine)}

    def settle(self, hand: Hand, queue: str, token: int, count: int) -> None:
        """So many were settled under a token: what is left of it is whole without them."""
        for message in self.holding(hand, queue, token).values():
            assert message.held is not None
            self.put(hand, replace(message, held=replace(message.held, handed=message.held.handed - count)))

    def locked_tokens(self, hand: Hand) -> set[int]:
        """Tokens that an open transaction of somebody else has its hands on: settling them would wait."""
        locked = {token for other in self.others(hand) for token in other.tokens}
        touched = self.touched_by_others(hand)
        return locked | {m.held.token for i, m in self.committed.items() if i in touched and m.held}

    def returned(
        self, message: Message, *, failed: bool, delay: timedelta | None, error: str | None
    ) -> Message:
        """A delivery that did not work out: counted, and due again."""
        queue = self.queues[message.queue]
        wait = queue.backoff(message.failures) if delay is None else delay
        limit = queue.limit(message)
        return replace(
            message,
            held=None,
            after_crash=False,
            deliveries=message.deliveries + 1,
            failures=message.failures + (failed or queue.lapse_is_failure),
            last_error=message.last_error if error is None else error,
            due_at=self.now + wait,
            allowed=limit or UNLIMITED,
            budget=queue.budget,
        )

    def buried(self, message: Message) -> Message | None:
        """The dead letter that a spent message becomes; None: it ends. Its id is still to be seen."""
        queue = self.queues[message.queue]
        if queue.dead_letter is None:
            return None
        origin = {
            "queue": queue.name,
            "id": message.id,
            "root_id": (message.origin or {}).get("root_id", message.id),
            "deliveries": message.deliveries,
            "failures": message.failures,
            "error": message.last_error,
            "priority": message.priority,
            "max_deliveries": message.max_deliveries,
            "redrives": (message.origin or {}).get("redrives"),
        }
        return Message(
            id=0,
            queue=queue.dead_letter,
            content=message.content,
            priority=0,
            enqueued_at=self.now,
            last_error=message.last_error,
            origin={name: value for name, value in origin.items() if value is not None},
        )

    def redriven(self, dead: Message, new_id: int) -> Message:
        """A dead letter that went back to where it came from."""
        origin = dict(dead.origin or {})
        queue = self.queues[origin["queue"]]
        return Message(
            id=new_id,
            queue=queue.name,
            content=dead.content,
            priority=origin["priority"],
            enqueued_at=self.now,
            expires_at=self.now + queue.ttl if queue.ttl else None,
            max_deliveries=origin.get("max_deliveries"),
            last_error=dead.last_error,
            origin=origin | {"redrives": origin.get("redrives", 0) + 1},
        )
