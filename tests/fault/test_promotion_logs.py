"""A standby takes over while a log is written and read, and limits are asked. Claims pinned here:

1. With synchronous replication no confirmed append is lost; a reader that goes on from its place sees every
   record once, in order, and nothing that was never appended.
2. Limiters by name and the throughput limit of a queue go on: no call fails or blocks, also where the
   promotion left registers unreadable, without a repair() by hand. A bucket may be full again, no more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.embedded import EmbeddedPostgres, temporary_postgres
from holdfast.migrate import migrate
from tests.fault.servers import DURABLE, kill_server, standby_of
from tests.fault.test_promotion import follow, restartpoint
from tests.waiting import eventually

RATE = 40  # a second, and as many at once
SLOW = 5.0  # seconds: no call takes so long
LOAD = "select holdfast.send_batch('jobs', array(select to_jsonb(n) from generate_series(1, 5000) n))"
LOGGED = "select payload #>> '{}' from holdfast.message where id >> 40 = %s >> 40 order by id"
SETUP = (
    """select holdfast.create_queue('events', '{"kind": "log"}')""",
    f"""select holdfast.create_queue('jobs', '{{"throughput_limit": {RATE}}}')""",
    LOAD,
)

Deed = Callable[[Holdfast], object]


@dataclass
class Company:
    """Threads that each do one thing again and again, on the server of the day; and what they know."""

    url: str
    down: bool = False
    over: bool = False
    appended: list[str] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    read: list[tuple[int, str]] = field(default_factory=list)
    granted: int = 0
    claimed: list[int] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    errors: list[str] = field(default_factory=list)

    def append(self, client: Holdfast) -> None:
        what = f"{threading.current_thread().name} {len(self.tried)}"
        self.tried.add(what)
        client.send("events", what)
        self.appended.append(what)

    def follow(self, client: Holdfast) -> bool:
        place = self.read[-1][0] if self.read else 0
        rows = client.read("events", place, limit=20)
        self.read += [(row.seq, str(row.payload)) for row in rows]
        return bool(rows)

    def ask(self, client: Holdfast) -> None:
        self.granted += client.take_rate("door", rate=RATE, want=3, partial=True).granted

    def claim(self, client: Holdfast) -> None:
        deliveries = client.claim("jobs", max=5)
        if deliveries:
            client.ack("jobs", deliveries[0].token)
        self.claimed += [int(delivery.payload) for delivery in deliveries]

    def work(self, deed: Deed) -> None:
        """Do it until all is over; what fails while the server is gone is tried on the next one."""
        while not self.over:
            try:
                self._work_at(self.url, deed)
            except Exception as error:
                self.errors.append(repr(error))
                return

    def _work_at(self, url: str, deed: Deed) -> None:
        try:
            with Holdfast(url) as client:
                while self.url == url and not self.over:
                    self._timed(deed, client)
        except Exception:
            if self.url == url and not self.down:
                raise
            eventually(lambda: self.url != url or self.over, what="another server", timeout=60)

    def _timed(self, deed: Deed, client: Holdfast) -> None:
        began, down = time.monotonic(), self.down
        deed(client)
        if not down:
            self.slowest = max(self.slowest, time.monotonic() - began)
        name = threading.current_thread().name
        self.calls[name] = self.calls.get(name, 0) + 1
        time.sleep(0.002)

    def make_progress(self, calls: int) -> None:
        """Wait until everyone has done so much more, or one has failed."""
        before = dict(self.calls)

        def done() -> bool:
            return bool(self.errors) or all(self.calls[name] >= before[name] + calls for name in before)

        eventually(done, what=f"{calls} calls more than {before}: {self.calls}", timeout=60)
        assert self.errors == []


@contextmanager
def company(url: str) -> Iterator[Company]:
    """Two who append, one who reads, two who ask a limiter, two who claim."""
    works = Company(url)
    deeds: dict[str, Deed] = {
        **{f"append {n}": works.append for n in (1, 2)},
        **{f"ask {n}": works.ask for n in (1, 2)},
        **{f"claim {n}": works.claim for n in (1, 2)},
        "follow": works.follow,
    }
    threads = [threading.Thread(target=works.work, args=(deed,), name=name) for name, deed in deeds.items()]
    works.calls = {thread.name: 0 for thread in threads}
    for thread in threads:
        thread.start()
    try:
        yield works
    finally:
        works.over = True
        for thread in threads:
            thread.join(60)


def logged(url: str) -> list[str]:
    """All records of the log, as the table has them."""
    with psycopg.connect(url) as connection:
        lane: tuple[Any, ...] | None = connection.execute(
            "select l.id::bigint << 40 from holdfast.lane l join holdfast.queue q on q.id = l.queue_id"
            " where q.name = 'events'"
        ).fetchone()
        return [what for (what,) in connection.execute(LOGGED, lane)]


def run_promotion(primary: EmbeddedPostgres, *, checkpointed: bool, seconds: float) -> None:
    url = primary.ensure_running()
    migrate(url)
    with standby_of(primary, url) as standby:
        follow(url, standby)
        if not checkpointed:
            restartpoint(url, standby)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in SETUP:
                connection.execute(statement.encode())
        began = time.monotonic()
        with company(url) as works:
            works.make_progress(20)
            if checkpointed:
                restartpoint(url, standby)
            time.sleep(seconds)
            works.make_progress(20)

            works.down = True
            kill_server(primary)
            standby.promote()
            works.url, works.down = standby.url, False
            works.make_progress(40)
            time.sleep(seconds)
            works.make_progress(40)
        lasted = time.monotonic() - began
        records = logged(standby.url)
        with Holdfast(standby.url) as client:
            while len(works.read) < len(records) and works.follow(client):
                pass

    assert works.errors == []
    assert [what for _, what in works.read] == records
    assert len(set(records)) == len(records)
    assert set(works.appended) <= set(records) <= works.tried
    assert RATE < works.granted <= 2 * RATE + RATE * lasted
    assert RATE < len(works.claimed) <= 2 * RATE + RATE * lasted
    assert works.slowest < SLOW


@pytest.fixture
def primary() -> Iterator[EmbeddedPostgres]:
    with temporary_postgres(settings=DURABLE) as server:
        server.ensure_running()
        yield server


@pytest.mark.parametrize(
    ("checkpointed", "seconds"),
    [
        (False, 0.0),
        pytest.param(True, 0.0, marks=pytest.mark.verify),
        pytest.param(False, 10.0, marks=pytest.mark.verify),
        pytest.param(True, 10.0, marks=pytest.mark.verify),
    ],
)
def test_a_promotion_loses_no_append_skips_no_record_and_stops_no_limiter(
    primary: EmbeddedPostgres, checkpointed: bool, seconds: float
) -> None:
    run_promotion(primary, checkpointed=checkpointed, seconds=seconds)
