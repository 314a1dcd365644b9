"""A crew: producers, consumers and movers at work in processes of their own, and the audit of their work."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from holdfast.migrate import migrate
from tests.fault.audit import Audit, Figures
from tests.fault.journal import Journal
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
DRAIN = 25.0  # seconds without any progress: a queue does not run empty any more
STOP = 15.0  # seconds for a worker to end when asked
LEASE = 0.8  # seconds

SETUP = """
create table public.effect (key text primary key);
select holdfast.create_queue('work', '{"max_deliveries": 0, "dead_letter": false}');
select holdfast.create_queue('orders', '{"max_deliveries": 0, "dead_letter": false}');
select holdfast.create_queue('lines', '{"max_deliveries": 0, "ordering": "key"}');
select holdfast.create_queue('strict', '{"max_deliveries": 0, "ordering": "strict"}');
select holdfast.create_queue('done');
"""
REMAINING = """
select m.payload ->> 'key' from holdfast.message m join holdfast.queue q on q.id = m.queue_id
where q.name = any (%s)
"""


def prepare(url: str) -> None:
    """Make the queues and the table that a crew works with."""
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SETUP.encode())


class Crew:
    """Workers on one database: work → consumers; orders → movers → done and the table effect."""

    def __init__(self, *, folder: Path, url: str, seed: int) -> None:
        self.url = url
        self.dice = random.Random(seed)
        self.tolerated: tuple[str, ...] = ()  # SQLSTATEs that this test's fault may bring
        self.max_deliveries = 10**6
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._route = folder / "route"
        self._numbers = itertools.count(1)
        self.journal = Journal(folder / "test.jsonl")
        self.route_by(url)

    def point_to(self, url: str) -> None:
        """From now on the database is there."""
        self.route_by(url)
        self.url = url

    def route_by(self, url: str) -> None:
        """From now on workers connect there; the audit does not."""
        draft = self._folder / "route.new"
        draft.write_text(url)
        draft.rename(self._route)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Change the queue `work`. A limit of deliveries is audited from then on."""
        self.max_deliveries = config.get("max_deliveries", self.max_deliveries)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("select holdfast.configure_queue('work', %s)", [Jsonb(config)])

    def hire(self, *, producers: int = 2, consumers: int = 2, movers: int = 1, lease: float = LEASE) -> None:
        """Start workers; half of the producers, rounded down, serve the movers."""
        for number in range(producers):
            self.start("producer", queue="orders" if number % 2 and movers else "work", lease=lease)
        for role, count, queue in (("consumer", consumers, "work"), ("mover", movers, "orders")):
            for _ in range(count):
                self.start(role, queue=queue, lease=lease)

    def hire_liners(self, *, liners: int, consumers: int, lease: float = LEASE) -> None:
        """Start so many for the ordered queue and for the strict one."""
        for queue in ("lines", "strict"):
            for role, count in (("liner", liners), ("consumer", consumers)):
                for _ in range(count):
                    self.start(role, queue=queue, lease=lease)

    def start(self, role: str, *, queue: str, lease: float = LEASE) -> str:
        """Start one worker; its name."""
        name = f"{role}-{queue}-{next(self._numbers)}"
        order = [sys.executable, "-m", "tests.fault.worker", role, "--queue", queue, "--lease", str(lease)]
        order += ["--route", str(self._route), "--journal", str(self._folder / f"{name}.jsonl")]
        order += ["--seed", str(self.dice.randrange(2**31)), "--tolerate", *self.tolerated]
        with open(self._folder / f"{name}.err", "wb") as error:
            self.workers[name] = subprocess.Popen(order, cwd=ROOT, stderr=error, stdin=subprocess.DEVNULL)
        return name

    def kill_one(self) -> str:
        """kill -9 of any worker, and another of its kind in its place; the kind."""
        name = self.dice.choice(sorted(self.workers))
        role, queue, _ = name.split("-")
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait(STOP)
        self.start(role, queue=queue)
        return role

    @contextmanager
    def outage(self, kind: str) -> Iterator[None]:
        """Journal that a server was down within this block."""
        began = time.time()
        yield
        self.journal.write("outage", kind=kind, began=began, upto=time.time())

    def wait_for_traffic(self, acks: int = 20) -> None:
        """Until this many acks were confirmed from now on: the crew is under way."""
        target = self._count("settled") + acks
        eventually(lambda: self._count("settled") >= target, what=f"{acks} settlements", timeout=60.0)

    def finish(self) -> Audit:
        """End the producers, let the queues run empty, end the others; the audit, also if they did not."""
        self._stop("producer")
        self._stop("liner")
        self._drain()
        self._stop("")
        return self.audit()

    def audit(self) -> Audit:
        """Hold the journals against the database as it is now."""
        remaining = self.remaining("work", "work.dlq", "orders", "lines", "strict")
        return Audit(self._folder, remaining=remaining, max_deliveries=self.max_deliveries)

    def remaining(self, *queues: str) -> list[str]:
        """The keys of the messages in these queues, whatever state they are in."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return [row[0] for row in connection.execute(REMAINING, [list(queues)])]

    def effects(self) -> list[str]:
        """The keys that movers left in the user's table."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return sorted(row[0] for row in connection.execute("select key from public.effect"))

    def close(self) -> None:
        """End whoever is left, at once."""
        while self.workers:
            _, worker = self.workers.popitem()
            worker.kill()
            worker.wait(STOP)

    def _stop(self, role: str) -> None:
        leaving = [name for name in self.workers if name.startswith(role)]
        for name in leaving:
            self.workers[name].terminate()
        for name in leaving:
            code = self.workers.pop(name).wait(STOP)
            said = (self._folder / f"{name}.err").read_text()
            # A worker that was started a moment ago has not yet learnt what SIGTERM means.
            assert code in (0, -signal.SIGTERM), f"{name} ended with {code}: {said[-2000:]}"

    def _drain(self) -> None:
        """Until the queues are empty, or stay as they are: there may be much that nobody had the time for."""
        fewest, since = sys.maxsize, time.monotonic()
        while fewest and time.monotonic() < since + DRAIN:
            time.sleep(0.1)
            with suppress(psycopg.OperationalError):
                left = len(self.remaining("work", "orders", "lines", "strict"))
                if left < fewest:
                    fewest, since = left, time.monotonic()

    def _count(self, event: str) -> int:
        time.sleep(0.05)
        mark = f'{{"event": "{event}"'.encode()
        return sum(path.read_bytes().count(mark) for path in self._folder.glob("*.jsonl"))


@contextmanager
def crew_at(url: str, folder: Path, *, seed: int = 1) -> Iterator[Crew]:
    """A crew on a database with its queues made; nobody is left of it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    prepare(url)
    crew = Crew(folder=folder, url=url, seed=seed)
    try:
        yield crew
    finally:
        crew.close()
        crew.journal.close()


def assert_kept(crew: Crew) -> Figures:
    """End the crew's work: no guarantee was broken; effects, acks and messages came together or not."""
    audit = crew.finish()
    violations, effects, orders = audit.violations(), crew.effects(), audit.sent_to("orders")
    assert not violations, "\n".join(violations)
    stranded = crew.remaining("work", "orders", "lines", "strict")
    assert not stranded, f"never delivered again: {stranded[:10]}"
    apart = (
        set(crew.remaining("done")) ^ set(effects) | (orders - set(effects)) | (set(effects) - audit.possible)
    )
    assert not apart, f"an effect without its message, a message without its effect, or neither: {apart}"
    twice = len(crew.remaining("done")) - len(effects)
    assert not twice, f"{twice} messages were sent on twice"
    return audit.figures


def rows(connection: psycopg.Connection[Any], query: str, *values: object) -> list[Any]:
    """The rows of a query."""
    return connection.execute(query.encode(), values).fetchall()
