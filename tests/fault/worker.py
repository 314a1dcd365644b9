"""A producer, a liner, a consumer or a mover: a process of its own, made to be killed.

    python -m tests.fault.worker ROLE --route FILE --journal FILE --seed N [--queue NAME] [--lease SECONDS] …

The route is a file with the database's URL, read at every connect. SIGTERM: finish what you are at, and end.
Plain psycopg and SQL, no client of ours: what is under test is the engine.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.fault.journal import Journal

Connection = psycopg.Connection[Any]

# What a fault may answer: no answer at all, cancelled, shutting down, starting, a lost lease, a standby.
EXPECTED = {None, "57014", "57P01", "57P02", "57P03", "QH304", "25006", "08006", "08003", "25P03"}
BROKEN_REGISTER = "bad magic number in sequence"
PAUSE = 0.02  # seconds before another try
DIE_WITH_PARENT = 1  # of prctl(2): a test that is killed leaves no workers behind


class Rollback(Exception):
    """The worker changed its mind."""


class Worker:
    """What all roles share: a journal, a route, dice."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.queue: str = options.queue
        self.lease: float = options.lease
        self.dice = random.Random(options.seed)
        self.journal = Journal(options.journal)
        self.name = Path(options.journal).stem
        self.numbers = itertools.count(1)
        self._route = Path(options.route)
        self._expected = EXPECTED | set(options.tolerate)
        self._going = True
        signal.signal(signal.SIGTERM, self._end)
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)

    def run(self, step: Callable[[Connection], None]) -> None:
        """Take steps until told to end, connecting again as often as it takes."""
        while self._going:
            try:
                with self.connected() as connection:
                    while self._going:
                        step(connection)
            except psycopg.Error as error:
                self._judge(error)
                time.sleep(PAUSE)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """One more connection, for a while."""
        url = self._route.read_text()
        # A producer has two sessions at once: what waits for one of them must not make it wait for ever.
        limits = "-c lock_timeout=2s"
        connection = psycopg.connect(url, autocommit=True, connect_timeout=2, options=limits)
        try:
            yield connection
        finally:
            connection.close()

    def _judge(self, error: psycopg.Error) -> None:
        if error.sqlstate in self._expected or BROKEN_REGISTER in str(error):
            return
        self.journal.write("surprise", text=f"{self.name}: {error.sqlstate} {error}")

    def _end(self, *_: object) -> None:
        self._going = False


class Producer(Worker):
    """Sends in every way there is."""

    def step(self, connection: Connection) -> None:
        """Send something."""
        ways = [self.one, self.batch, self.many, self.copy, self.transaction]
        self.dice.choices(ways, [4, 2, 2, 1, 3])[0](connection)
        time.sleep(self.dice.random() * 0.01)

    def one(self, connection: Connection) -> None:
        """One message, on its own."""
        keys = self._keys(1)
        self.journal.write("committing", keys=keys)
        self._send(connection, keys[0])
        self.journal.write("sent", keys=keys)

    def batch(self, connection: Connection) -> None:
        """Several payloads in one call."""
        keys = self._keys(self.dice.randint(1, 20))
        self.journal.write("committing", keys=keys)
        payloads = [Jsonb({"key": key}) for key in keys]
        connection.execute(
            "select holdfast.send_batch(queue => %s, payloads => %s::jsonb[])", [self.queue, payloads]
        )
        self.journal.write("sent", keys=keys)

    def many(self, connection: Connection) -> None:
        """Several messages in one call, some of them for later or urgent."""
        keys = self._keys(self.dice.randint(1, 10))
        messages = [{"payload": {"key": key}, **self._options()} for key in keys]
        self.journal.write("committing", keys=keys)
        connection.execute(
            "select holdfast.send_many(queue => %s, messages => %s)", [self.queue, Jsonb(messages)]
        )
        self.journal.write("sent", keys=keys)

    def copy(self, connection: Connection) -> None:
        """By COPY into the inbox."""
        keys = self._keys(self.dice.randint(1, 10))
        self.journal.write("committing", keys=keys)
        with connection.cursor().copy("copy holdfast.inbox (queue, payload) from stdin") as copy:
            for key in keys:
                copy.write_row((self.queue, Jsonb({"key": key})))
        self.journal.write("sent", keys=keys)

    def transaction(self, connection: Connection) -> None:
        """Several calls in one transaction, while other sends overtake it; every third is rolled back."""
        keys = self._keys(self.dice.randint(1, 5))
        self.journal.write("intent", keys=keys)
        doomed = self.dice.random() < 0.3
        try:
            with self.connected() as other, other.transaction():
                for key in keys:
                    self._send(other, key)
                for _ in range(self.dice.choice([0, 1, 3])):
                    self.one(connection)
                    time.sleep(self.dice.choice([0, 0.02, 0.05]))
                if doomed:
                    raise Rollback
                self.journal.write("committing", keys=keys)
        except Rollback:
            self.journal.write("undone", keys=keys)
        else:
            self.journal.write("sent", keys=keys)

    def _send(self, connection: Connection, key: str) -> None:
        connection.execute(
            "select holdfast.send(queue => %s, payload => %s)", [self.queue, Jsonb({"key": key})]
        )

    def _options(self) -> dict[str, Any]:
        return self.dice.choice([{}, {}, {"delay": 0.2}, {"priority": 5}])

    def _keys(self, count: int) -> list[str]:
        return [f"{self.name}:{number}" for number in itertools.islice(self.numbers, count)]


class Liner(Producer):
    """Sends its messages as one line, numbered: by its own ordering key, or to a strict queue."""

    def step(self, connection: Connection) -> None:
        """Send something; one after the other, or the order would not be known."""
        self.dice.choice([self.one, self.many, self.in_turn])(connection)
        time.sleep(self.dice.random() * (0.6 if self.queue == "strict" else 0.15))  # what consumers can take

    def in_turn(self, connection: Connection) -> None:
        """Several sends in one transaction; every third is rolled back."""
        keys = self._keys(self.dice.randint(1, 4))
        self.journal.write("intent", keys=keys)
        try:
            with connection.transaction():
                for key in keys:
                    self._send(connection, key)
                time.sleep(self.dice.choice([0, 0.02]))
                if self.dice.random() < 0.3:
                    raise Rollback
                self.journal.write("committing", keys=keys)
        except Rollback:
            self.journal.write("undone", keys=keys)
        else:
            self.journal.write("sent", keys=keys)

    def many(self, connection: Connection) -> None:
        """Several messages in one call, with different priorities where there are any."""
        keys = self._keys(self.dice.randint(1, 4))
        messages = [{"payload": {"key": key}, **self._options()} for key in keys]
        self.journal.write("committing", keys=keys)
        connection.execute(
            "select holdfast.send_many(queue => %s, messages => %s)", [self.queue, Jsonb(messages)]
        )
        self.journal.write("sent", keys=keys)

    def _send(self, connection: Connection, key: str) -> None:
        connection.execute(
            "select holdfast.send(queue => %s, payload => %s, ordering_key => %s)",
            [self.queue, Jsonb({"key": key}), self._options().get("ordering_key")],
        )

    def _options(self) -> dict[str, Any]:
        if self.queue == "strict":
            return {}
        return {"ordering_key": self.name, "priority": self.dice.choice([0, 0, 5])}


class Taker(Worker):
    """What consumers and movers share: claiming and settling, with a line before and after each."""

    def claim(self, connection: Connection, *, held: bool) -> tuple[int, dict[int, str]]:
        """Claim; the token, and the keys by id. held: this call is its own transaction."""
        asked, size = time.time(), self.dice.choice([1, 1, 5, 20])
        rows = connection.execute(
            "select token, id, payload ->> 'key', deliveries, deadline"
            " from holdfast.claim(queue => %s, max => %s, lease => make_interval(secs => %s),"
            " consumer => %s, alone => %s)",
            [self.queue, size, self.lease, self.name, held],
        ).fetchall()
        if rows:
            self.journal.write(
                "delivered",
                queue=self.queue,
                token=rows[0][0],
                lease=self.lease,
                items=[[key, id, count, deadline.timestamp()] for _, id, key, count, deadline in rows],
                held=held,
                asked=asked,
            )
        return (rows[0][0] if rows else 0), {row[1]: row[2] for row in rows}

    def settling(self, verb: str, token: int, keys: list[str]) -> dict[str, Any]:
        """Journal that a settlement may take effect from now on; what to journal when it is confirmed."""
        number = f"{self.name}:{next(self.numbers)}"
        self.journal.write("settling", verb=verb, token=token, keys=keys, of=number)
        return {"verb": verb, "token": token, "of": number, "asked": time.time()}


class Consumer(Taker):
    """Claims, and mostly acks."""

    def step(self, connection: Connection) -> None:
        """Claim, and do something with what came."""
        token, keys = self.claim(connection, held=True)
        if not keys:
            time.sleep(PAUSE)
            return
        if self.dice.random() < 0.1:
            self._extend(connection, token, keys)
        verb = self.dice.choices(["ack", "nack", "release", None], [80, 8, 7, 5])[0]
        if verb is not None:
            self._settle(connection, verb, token, keys)

    def _settle(self, connection: Connection, verb: str, token: int, keys: dict[int, str]) -> None:
        ids = sorted(keys)
        if len(ids) > 1 and self.dice.random() < 0.3:  # the others stay until the lease runs out
            ids = ids[: len(ids) // 2]
        facts = self.settling(verb, token, [keys[number] for number in ids])
        row = connection.execute(
            f"select settled from holdfast.{verb}(queue => %s, token => %s, ids => %s)",
            [self.queue, token, ids],
        ).fetchone()
        assert row is not None
        self.journal.write("settled", keys=[keys[number] for number in row[0]], **facts)

    def _extend(self, connection: Connection, token: int, keys: dict[int, str]) -> None:
        deadline = time.time() + self.lease
        row = connection.execute(
            "select settled from holdfast.extend(queue => %s, token => %s,"
            " lease => make_interval(secs => %s))",
            [self.queue, token, self.lease],
        ).fetchone()
        assert row is not None
        self.journal.write(
            "extended", token=token, keys=[keys[number] for number in row[0]], deadline=deadline
        )


class Mover(Taker):
    """Does its work in one transaction: a strict ack, an effect in a table, a message to another queue."""

    def step(self, connection: Connection) -> None:
        """Claim before the transaction, or within it."""
        if self.dice.random() < 0.5:
            token, keys = self.claim(connection, held=True)
            if keys:
                if self.dice.random() < 0.1:  # too slow: another has it by now, and strict must say so
                    time.sleep(self.lease * 1.5)
                self._move(connection, token, keys)
            else:
                time.sleep(PAUSE)
        else:
            self._move(connection, 0, {})

    def _move(self, connection: Connection, token: int, keys: dict[int, str]) -> None:
        facts: dict[str, Any] = {}
        try:
            with connection.transaction():
                if not keys:
                    token, keys = self.claim(connection, held=False)
                if not keys or self.dice.random() < 0.1:
                    raise Rollback
                connection.execute(
                    "select holdfast.ack(queue => %s, token => %s, strict => true)", [self.queue, token]
                )
                for key in keys.values():
                    connection.execute("insert into public.effect (key) values (%s)", [key])
                    connection.execute(
                        "select holdfast.send(queue => 'done', payload => %s)", [Jsonb({"key": key})]
                    )
                facts = self.settling("ack", token, list(keys.values()))
        except Rollback:
            time.sleep(PAUSE)
            return
        self.journal.write("settled", keys=list(keys.values()), **facts)


ROLES: dict[str, type[Producer | Consumer | Mover]] = {
    "producer": Producer,
    "liner": Liner,
    "consumer": Consumer,
    "mover": Mover,
}


def main() -> None:
    """Work until told to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--route", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--queue", default="work")
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--tolerate", nargs="*", default=[], help="more SQLSTATEs that are to be expected")
    options = parser.parse_args()
    worker = ROLES[options.role](options)
    worker.run(worker.step)
    worker.journal.close()


if __name__ == "__main__":
    main()
