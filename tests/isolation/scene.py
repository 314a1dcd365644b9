"""Sessions that act in a chosen order, and a journal of what they sent, took and ended.

A Session keeps what it did in its open transaction to itself, as PostgreSQL does: a commit writes it into the
journal, a rollback forgets it. So the journal knows what must be delivered without asking the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg

from tests.fix_database import Connect
from tests.waiting import eventually

T = TypeVar("T")

QUEUE = "q"
START = "2030-01-01 00:00:00+00"
BOUND = 30.0  # seconds: how long a session that must not wait for ever may take
EMPTY_IN_A_ROW = 3

FORGET_REGISTERS = """
select setval(c.oid::regclass, 0) from pg_class c
where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'S' and c.relpersistence = 'u'
  and c.relname ~ '_[0-9]+$'
"""


class Delivery(NamedTuple):
    """What a test looks at in a message that was handed out."""

    token: int
    id: int
    deliveries: int


class Settlement(NamedTuple):
    """The answer of ack, nack, release and extend."""

    settled: list[int]
    skipped: list[int]


class Effect(NamedTuple):
    """One message that a session sent, took, gave back or ended."""

    kind: str
    id: int


@dataclass(slots=True)
class Journal:
    """What was committed: by the clients' own account."""

    sent: set[int] = field(default_factory=set)
    never_sent: set[int] = field(default_factory=set)
    delivered: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)
    live: Counter[int] = field(default_factory=Counter)

    def write(self, effects: list[Effect]) -> None:
        """What a transaction did, now that it is committed."""
        for kind, id in effects:
            if kind == "sent":
                self.sent.add(id)
            elif kind == "taken":
                self.delivered[id] += 1
                self.live[id] += 1
            else:
                self.live[id] -= 1
                self.ended[id] += kind == "ended"

    def forget(self, effects: list[Effect]) -> None:
        """What a transaction did, now that it is rolled back: its sends must never be seen."""
        self.never_sent.update(id for kind, id in effects if kind == "sent")

    def expired(self, ids: list[int]) -> None:
        """Leases that ran out: whoever held these messages has no claim to them any more."""
        self.live.subtract(ids)

    def check(self) -> None:
        """Nothing rolled back was delivered, nothing ended twice, no message has two live leases."""
        assert not self.never_sent & self.delivered.keys()
        assert self.delivered.keys() <= self.sent
        assert all(times <= 1 for times in self.ended.values())
        assert all(holders <= 1 for holders in self.live.values())

    def check_exactly_once(self) -> None:
        """All that was committed was delivered, once, and ended, once."""
        self.check()
        assert self.delivered == Counter(self.sent)
        assert self.ended == Counter(self.sent)


class Pending(Generic[T]):
    """A call on its way in another thread."""

    def __init__(self, *, future: Future[T], session: Session) -> None:
        self._future = future
        self._session = session

    def settles_or_blocks_on(self, *others: Session) -> None:
        """Wait until the call is done, or PostgreSQL says that it waits for one of those sessions."""
        pids = {other.pid for other in others}
        eventually(lambda: self._done_or(pids), what=f"{self._session.name} waits for {pids}")

    def blocked_by(self, *others: Session) -> Pending[T]:
        """Wait until PostgreSQL says that this call waits for one of those sessions."""
        self.settles_or_blocks_on(*others)
        assert not self._future.done(), f"{self._session.name} did not wait: {self._future}"
        return self

    def waiting_for(self, event: str) -> Pending[T]:
        """Wait until the call waits for this kind of event (pg_stat_activity.wait_event)."""
        session = self._session
        eventually(lambda: self._future.done() or session.wait_event() == event, what=f"waits for {event}")
        assert not self._future.done(), f"{self._session.name} did not wait: {self._future}"
        return self

    def result(self) -> T:
        """The answer, within a bounded time."""
        return self._future.result(BOUND)

    def error(self) -> BaseException | None:
        """What it failed with, within a bounded time; None if it did not."""
        return self._future.exception(BOUND)

    def _done_or(self, pids: set[int]) -> bool:
        return self._future.done() or bool(pids & self._session.blockers())


class Session:
    """One connection: it sends, claims and settles, and keeps account of it."""

    def __init__(self, *, name: str, connection: psycopg.Connection[Any], scene: Scene) -> None:
        self.name = name
        self.connection = connection
        self.pid = connection.info.backend_pid
        self._scene = scene
        self._effects: list[Effect] = []
        self._marks: dict[str, int] = {}

    # --- transactions ---------------------------------------------------------------------------

    def begin(self, mode: str = "") -> Session:
        """Open a transaction."""
        self.execute(f"begin {mode}")
        return self

    def commit(self) -> None:
        """Commit, and write into the journal what was done."""
        self.execute("commit")
        self._end(self._scene.journal.write)

    def rollback(self) -> None:
        """Roll back, and forget what was done."""
        self.execute("rollback")
        self._end(self._scene.journal.forget)

    def savepoint(self, name: str) -> None:
        """Set a savepoint."""
        self.execute(f"savepoint {name}")
        self._marks[name] = len(self._effects)

    def release_savepoint(self, name: str) -> None:
        """Keep what was done since the savepoint."""
        self.execute(f"release savepoint {name}")

    def rollback_to(self, name: str) -> None:
        """Undo what was done since the savepoint."""
        self.execute(f"rollback to savepoint {name}")
        self._scene.journal.forget(self._effects[self._marks[name] :])
        del self._effects[self._marks[name] :]

    def prepare(self, name: str) -> None:
        """The first half of a two-phase commit: the session goes on without the transaction."""
        self.execute(f"prepare transaction '{name}'")

    def commit_prepared(self, name: str) -> None:
        """Commit what this session prepared."""
        self.execute(f"commit prepared '{name}'")
        self._end(self._scene.journal.write)

    def rollback_prepared(self, name: str) -> None:
        """Roll back what this session prepared."""
        self.execute(f"rollback prepared '{name}'")
        self._end(self._scene.journal.forget)

    # --- the verbs ------------------------------------------------------------------------------

    def send(self, queue: str = QUEUE, **options: Any) -> int:
        """Send one message."""
        call = f"select holdfast.send({_arguments(queue, options)})"
        id: int = self.value(call, options | {"queue": queue})
        self._did([Effect("sent", id)])
        return id

    def claim(self, max: int = 100, queue: str = QUEUE, **options: Any) -> list[Delivery]:
        """Claim; the deliveries in order."""
        options |= {"max": max}
        return self._taken(f"holdfast.claim({_arguments(queue, options)})", options | {"queue": queue})

    def take_ids(self, ids: list[int], queue: str = QUEUE, **options: Any) -> list[int]:
        """Take these messages, of a queue with rows; the ids of those it got, in order."""
        return sorted(delivery.id for delivery in self.claim_of(ids, queue, **options))

    def claim_of(self, ids: list[int], queue: str = QUEUE, **options: Any) -> list[Delivery]:
        """Take these messages, of a queue with rows; the deliveries."""
        options |= {"ids": ids}
        return self._taken(f"holdfast.take({_arguments(queue, options)})", options | {"queue": queue})

    def claim_cohort(self, maxes: list[int], queue: str = QUEUE, **options: Any) -> list[Delivery]:
        """Claim for several; the deliveries in order, the first claimer's first."""
        options |= {"maxes": maxes}
        call = f"holdfast.claim_cohort({_arguments(queue, options)})"
        return self._taken(call, options | {"queue": queue})

    def take(self, max: int = 100, queue: str = QUEUE, **options: Any) -> list[int]:
        """Claim; only the ids, in order."""
        return [delivery.id for delivery in self.claim(max, queue, **options)]

    def next(self, token: int, max: int = 100, queue: str = QUEUE, **options: Any) -> list[Delivery]:
        """Ack everything under the token, and claim."""
        self._did([Effect("ended", id) for id in self._scene.held.get(token, [])])
        options |= {"token": token, "max": max}
        return self._taken(f"holdfast.next({_arguments(queue, options)})", options | {"queue": queue})

    def ack(self, token: int, ids: list[int] | None = None, queue: str = QUEUE, **options: Any) -> Settlement:
        """Ack."""
        return self._settle("ack", "ended", queue, options | {"token": token, "ids": ids})

    def nack(
        self, token: int, ids: list[int] | None = None, queue: str = QUEUE, **options: Any
    ) -> Settlement:
        """Nack."""
        return self._settle("nack", "returned", queue, options | {"token": token, "ids": ids})

    def release(self, token: int, ids: list[int] | None = None, queue: str = QUEUE) -> Settlement:
        """Release."""
        return self._settle("release", "returned", queue, {"token": token, "ids": ids})

    def extend(
        self, token: int, ids: list[int] | None = None, queue: str = QUEUE, **options: Any
    ) -> Settlement:
        """Extend."""
        return self._settle("extend", "", queue, options | {"token": token, "ids": ids})

    def discard(self, ids: list[int], queue: str = QUEUE) -> list[int]:
        """Discard."""
        gone: list[int] = self.value("select holdfast.discard(%s, %s)", [queue, ids])
        return gone

    def sweep(self, queue: str = QUEUE) -> int:
        """Sweep; how many messages that freed."""
        freed: int = self.value("select holdfast.sweep(%s)", [queue])
        return freed

    def account_sent(self, ids: list[int]) -> None:
        """Messages that this session has just sent by some other way."""
        self._did([Effect("sent", id) for id in ids])

    # --- plain SQL --------------------------------------------------------------------------------

    def execute(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement; its rows, if it has any."""
        cursor = self.connection.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def value(self, statement: str, parameters: Any = None) -> Any:
        """The first column of the first row."""
        return self.execute(statement, parameters)[0][0]

    # --- blocking -----------------------------------------------------------------------------------

    def start(self, call: Callable[[], T]) -> Pending[T]:
        """Do something that may block, in a thread of its own."""
        return Pending(future=self._scene.threads.submit(call), session=self)

    def blockers(self) -> set[int]:
        """The processes that this session waits for."""
        return set(self._scene.watcher.value("select pg_blocking_pids(%s)", [self.pid]))

    def wait_event(self) -> str | None:
        """What it waits for."""
        event: str | None = self._scene.watcher.value(
            "select wait_event from pg_stat_activity where pid = %s", [self.pid]
        )
        return event

    # --- the account --------------------------------------------------------------------------------

    def _taken(self, call: str, parameters: dict[str, Any]) -> list[Delivery]:
        rows = self.execute(f"select token, id, deliveries from {call}", parameters)
        deliveries = [Delivery(*row) for row in rows]
        for delivery in deliveries:
            self._scene.held.setdefault(delivery.token, []).append(delivery.id)
        self._did([Effect("taken", delivery.id) for delivery in deliveries])
        return deliveries

    def _settle(self, verb: str, kind: str, queue: str, options: dict[str, Any]) -> Settlement:
        call = f"select settled, skipped from holdfast.{verb}({_arguments(queue, options)})"
        settled, skipped = self.execute(call, options | {"queue": queue})[0]
        if kind:
            self._did([Effect(kind, id) for id in settled])
        return Settlement(sorted(settled), sorted(skipped))

    def _did(self, effects: list[Effect]) -> None:
        self._effects += effects
        if self.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            self._end(self._scene.journal.write)

    def _end(self, account: Callable[[list[Effect]], None]) -> None:
        account(self._effects)
        self._effects = []
        self._marks = {}


class Scene:
    """A database with one queue, the sessions on it, and their journal."""

    def __init__(self, *, connect: Connect, threads: ThreadPoolExecutor) -> None:
        self._connect = connect
        self.threads = threads
        self.journal = Journal()
        self.held: dict[int, list[int]] = {}
        self.watcher = self.session("watcher")
        self.watcher.execute("select holdfast.create_queue(%s)", [QUEUE])

    def session(self, name: str) -> Session:
        """One more session."""
        return Session(name=name, connection=self._connect(application_name=name), scene=self)

    def sessions(self, name: str, count: int) -> list[Session]:
        """Several more sessions."""
        return [self.session(f"{name}-{n}") for n in range(count)]

    def clock(self, after: str = "0 s") -> None:
        """Stop the clock, so long after START."""
        self.watcher.execute("select holdfast.set_clock(%s::timestamptz + %s::interval)", [START, after])

    def patient(self) -> None:
        """Let claims wait for a lane as long as the test needs: it is about what they do then."""
        self.watcher.execute("alter function holdfast._await_lane set lock_timeout = '25s'")

    def crash(self) -> None:
        """Do to the volatile state what a crash of PostgreSQL does."""
        self.watcher.execute(
            "truncate holdfast.lease, holdfast.gap, holdfast.boot, holdfast.tally, holdfast.probe"
        )
        self.watcher.execute(FORGET_REGISTERS)
        self.journal.live.clear()

    def lane(self, queue: str = QUEUE, priority: int = 0) -> int:
        """The id of a lane."""
        id: int = self.watcher.value(
            "select l.id from holdfast.lane l join holdfast.queue q on q.id = l.queue_id"
            " where q.name = %s and l.priority = %s and l.shard = 0",
            [queue, priority],
        )
        return id

    def first_id(self, queue: str = QUEUE, priority: int = 0) -> int:
        """The first id of a lane."""
        return (self.lane(queue, priority) << 40) + 1

    def register(self, name: str, queue: str = QUEUE) -> int:
        """What a register of the queue's first lane holds; 0 if nothing was ever written."""
        register = f"holdfast.{name}_{self.lane(queue)}"
        value: int = self.watcher.value("select coalesce(pg_sequence_last_value(%s), 0)", [register])
        return value

    def set_register(self, name: str, value: int, queue: str = QUEUE) -> None:
        """Write a register of the queue's first lane, and let the next claim look at all of them."""
        for register, content in ((name, value), ("care_at", 0)):
            named = f"holdfast.{register}_{self.lane(queue)}"
            self.watcher.execute("select setval(%s, %s)", [named, content])

    def gaps(self, queue: str = QUEUE) -> list[tuple[int, int]]:
        """The gaps of the queue's first lane."""
        found = "select lo, hi from holdfast.gap where lane_id = %s order by lo"
        return [(lo, hi) for lo, hi in self.watcher.execute(found, [self.lane(queue)])]

    def messages(self) -> int:
        """How many messages there are in the database."""
        count: int = self.watcher.value("select count(*) from holdfast.message")
        return count

    def drain(self, queue: str = QUEUE, consumer: Session | None = None) -> list[int]:
        """Claim and ack until nothing is left in the log, and nothing comes; the ids in order."""
        consumer = consumer or self.session("drainer")
        drained: list[int] = []

        def round() -> bool:
            taken = consumer.claim(queue=queue)
            for token in dict.fromkeys(delivery.token for delivery in taken):
                consumer.ack(token, queue=queue)
            drained.extend(delivery.id for delivery in taken)
            return not taken and not self._left(queue)

        eventually(round, what="the queue is drained")
        for _ in range(EMPTY_IN_A_ROW):
            assert consumer.claim(queue=queue) == []
        return drained

    def _left(self, queue: str) -> int:
        left: int = self.watcher.value(
            "select count(*) from holdfast.message m"
            " where m.queue_id = (select q.id from holdfast.queue q where q.name = %s)",
            [queue],
        )
        return left


def _arguments(queue: str, options: dict[str, Any]) -> str:
    casts = {"token": "::bigint", "ids": "::bigint[]", "lease": "::interval", "delay": "::interval"}
    return ", ".join(f"{name} => %({name})s{casts.get(name, '')}" for name in ["queue", *options])
