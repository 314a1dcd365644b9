"""Consume mode, driven by a fake engine.

1. Each message is in exactly one committed batch, wherever the engine crashes, however often it asks or
   reads, as long as no lease runs out.
2. If leases run out, no message is lost; only one that the sink had, unacked, when its lease ran out is
   delivered again.
3. A message that another consumer has is never read.
4. A batch is acked when the next one is asked for, not before; a stream that has caught up has acked all.
5. A restart goes on with what was claimed before: the same messages, delivered no more often.
6. A drain ends, with an empty queue, though others go on sending.
7. Limits hold; waiting is bounded and ends with a send.
8. Told to stop, a stream works off what it has claimed, acks it, and claims no more.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.engine.engine import T0, Engine
from tests.fix_database import Connect
from tests.spark.fake_engine import POINTS, Crashed, Disk, FakeEngine, finish, tell, tell_many
from tests.spark.streams import reader
from tests.waiting import eventually

HOUR = timedelta(hours=1)


class Machine(RuleBasedStateMachine):
    """A queue, a stream that crashes, and another consumer."""

    url: ClassVar[str]
    conn: ClassVar[psycopg.Connection[Any]]
    queues: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).queues += 1
        self.queue = f"q{self.queues}"
        self.engine = Engine(self.conn)
        self.time = T0
        self.engine.at(T0)
        self.engine.create(self.queue, max_deliveries=0)
        self.disk = Disk()
        self.run: FakeEngine | None = None
        self.sent: list[int] = []
        self.taken: dict[int, list[int]] = {}  # the other consumer's claims
        self.acked: Counter[int] = Counter()  # by the other consumer
        self.doubtful: set[int] = set()

    @rule(count=st.integers(1, 30), priority=st.sampled_from([None, 0, 9]))
    def send(self, count: int, priority: int | None) -> None:
        options = {} if priority is None else {"priority": priority}
        self.sent += self.engine.send_numbers(count, queue=self.queue, **options)

    @rule(
        crash=st.sampled_from([None, None, *POINTS]),
        limit=st.sampled_from([1, 7, 1000]),
        asks=st.integers(1, 2),
        reads=st.integers(1, 2),
    )
    def step(self, crash: str | None, limit: int, asks: int, reads: int) -> None:
        engine = self.run or FakeEngine(lambda: reader(self.url, self.queue, partitions=3), self.disk)
        self.run = None
        with suppress(Crashed):
            engine.step(crash, limit=ReadMaxRows(limit), asks=asks, reads=reads)
            self.run = engine

    @rule()
    def restart(self) -> None:
        if self.run is not None:
            self.run.stop()
            self.run = None

    @rule(most=st.integers(1, 10))
    def compete(self, most: int) -> None:
        if rows := self.engine.claim(most, queue=self.queue, lease="10 min"):
            ids = [row["id"] for row in rows]
            assert not set(ids) & set(self.sunk()) - self.doubtful
            self.taken[rows[0]["token"]] = ids

    @rule(data=st.data(), verb=st.sampled_from(["ack", "release"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        if self.taken:
            token = data.draw(st.sampled_from(sorted(self.taken)))
            del self.taken[token]
            settled, _ = self.engine.settle(verb, token, queue=self.queue)
            self.acked.update(settled if verb == "ack" else [])

    @rule()
    def expire(self) -> None:
        """All leases run out. What the sink has and the queue too is delivered again."""
        live = self.conn.execute("select id from holdfast.message").fetchall()
        self.doubtful |= set(self.sunk()) & {id for (id,) in live}
        self.time += HOUR
        self.engine.at(self.time)
        self.taken.clear()

    def sunk(self) -> Counter[int]:
        return Counter(row["id"] for row in self.disk.rows())

    def teardown(self) -> None:
        for token in list(self.taken):
            self.engine.settle("release", token, queue=self.queue)
        engine = self.run or FakeEngine(lambda: reader(self.url, self.queue), self.disk)
        # What a first batch that was never logged has claimed comes back when its lease is over.
        for _ in range(3):
            engine.drain()
            if self.engine.stats(self.queue)["depth"]:
                self.expire()
        engine.stop()

        processed = self.sunk() + self.acked
        assert self.engine.stats(self.queue)["depth"] == 0
        assert set(processed) == set(self.sent)
        assert {id for id, times in processed.items() if times > 1} <= self.doubtful


@pytest.fixture
def machine(database_url: str, connect: Connect) -> type[Machine]:
    Machine.url, Machine.conn, Machine.queues = database_url, connect(), 0
    return Machine


def test_no_message_is_lost_or_in_two_batches_whatever_happens(machine: type[Machine]) -> None:
    tell(machine, stories=25)


@pytest.mark.verify
@pytest.mark.timeout(1800)
def test_no_message_is_lost_or_in_two_batches_over_many_stories(machine: type[Machine]) -> None:
    tell_many(machine, stories=400)


@pytest.fixture
def engine(engine: Engine) -> Engine:
    engine.create(max_deliveries=0)
    return engine


def ids(disk: Disk) -> list[int]:
    return sorted(row["id"] for row in disk.rows())


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_is_followed_by_the_same_messages_once(
    database_url: str, engine: Engine, point: str
) -> None:
    sent, disk = engine.send_numbers(10), Disk()
    first = FakeEngine(lambda: reader(database_url, max_messages=5), disk)
    first.step()
    with pytest.raises(Crashed):
        first.step(point)

    finish(lambda: reader(database_url, max_messages=5), disk)

    assert ids(disk) == sent
    assert {row["deliveries"] for row in disk.rows()} == {1}
    assert engine.stats()["depth"] == 0


def test_a_batch_is_acked_when_the_next_one_is_asked_for(database_url: str, engine: Engine) -> None:
    engine.send_numbers(3)
    run = FakeEngine(lambda: reader(database_url), Disk())
    run.step()
    before = engine.stats()

    idle = run.step()
    after = engine.stats()

    assert (before["in_flight"], after["depth"], idle) == (3, 0, False)
    run.stop()


def test_a_restart_does_not_count_as_a_delivery(database_url: str, engine: Engine) -> None:
    engine.send_numbers(3)
    disk = Disk()
    for _ in range(3):
        with pytest.raises(Crashed):
            FakeEngine(lambda: reader(database_url), disk).step("read")

    finish(lambda: reader(database_url), disk)

    assert [row["deliveries"] for row in disk.rows()] == [1, 1, 1]


def test_what_ran_out_during_a_batch_is_left_to_whoever_has_it(database_url: str, engine: Engine) -> None:
    engine.at(T0)
    sent, disk = engine.send_numbers(4), Disk()
    with pytest.raises(Crashed):
        FakeEngine(lambda: reader(database_url), disk).step("planned")
    engine.at(T0 + HOUR)
    theirs = engine.claim(3, lease="1 min")

    finish(lambda: reader(database_url), disk)

    assert ids(disk) == [sent[3]]
    assert engine.settle("ack", theirs[0]["token"])[0] == sent[:3]


def test_a_drain_ends_empty_and_acked(database_url: str, engine: Engine) -> None:
    sent, disk = engine.send_numbers(25), Disk()
    run = FakeEngine(lambda: reader(database_url, max_messages=10), disk, available_now=True)

    batches = run.drain()

    assert (batches, ids(disk)) == (3, sent)
    assert engine.stats()["depth"] == 0
    run.stop()


def test_a_drain_ends_though_others_go_on_sending(database_url: str, engine: Engine) -> None:
    sent, disk = engine.send_numbers(2), Disk()
    run = FakeEngine(lambda: reader(database_url), disk, available_now=True)

    batches = 0
    while run.step():
        engine.send(batches)
        batches += 1

    assert batches <= 2
    assert set(sent) <= set(ids(disk))
    run.stop()


def test_all_that_is_available_is_one_batch_if_the_engine_says_so(database_url: str, engine: Engine) -> None:
    engine.send_numbers(30)
    disk = Disk()
    run = FakeEngine(lambda: reader(database_url, max_messages=10), disk)

    run.step(limit=ReadAllAvailable())

    assert len(disk.sink[1]) == 30
    run.stop()


def test_an_idle_reader_waits_and_is_woken_by_a_send(database_url: str, engine: Engine) -> None:
    run = FakeEngine(lambda: reader(database_url, wait="30 s"), Disk())
    found: list[bool] = []
    began = time.monotonic()
    waiting = threading.Thread(target=lambda: found.append(run.step()), daemon=True)
    waiting.start()
    eventually(
        lambda: engine.look("select count(*) from pg_stat_activity where query ~* '^listen|holdfast.claim'"),
        what="the reader has asked",
    )

    engine.send(1)
    waiting.join(timeout=25)

    assert found == [True]
    assert time.monotonic() - began < 25
    run.stop()


def test_an_idle_reader_answers_after_its_time(database_url: str, engine: Engine) -> None:
    run = FakeEngine(lambda: reader(database_url, wait="200 ms"), Disk())
    began = time.monotonic()

    assert run.step() is False

    assert 0.2 <= time.monotonic() - began < 5
    run.stop()


def test_a_broken_connection_is_no_reason_to_fail(database_url: str, engine: Engine) -> None:
    sent, disk = engine.send_numbers(6), Disk()
    run = FakeEngine(lambda: reader(database_url, max_messages=3), disk)
    run.step()
    engine.conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast spark'"
    )

    run.drain()
    run.stop()

    assert ids(disk) == sent
    assert engine.stats()["depth"] == 0


def test_an_offset_shows_the_claim(database_url: str, engine: Engine) -> None:
    engine.send_numbers(2)
    disk = Disk()
    run = FakeEngine(lambda: reader(database_url), disk)
    run.step()

    offset = json.loads(disk.offsets[0])

    (claim,) = offset["claims"]
    assert (offset["queue"], offset["batch"], claim["messages"]) == ("q", 1, 2)
    assert len(engine.rows("held", queue="q", token=int(claim["token"]))) == 2
    run.stop()


def test_a_stream_that_is_told_to_stop_acks_what_is_done_and_claims_no_more(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    engine.send_numbers(30)
    disk = Disk()
    told = tmp_path / "stop"
    run = FakeEngine(lambda: reader(database_url, stop_file=told), disk)
    run.step(limit=ReadMaxRows(10))

    told.touch()
    batches = run.drain()
    run.stop()

    assert batches == 0
    assert len(list(disk.rows())) == 10
    assert (engine.stats()["in_flight"], engine.stats()["ready"]) == (0, 20)


def test_a_stream_that_is_told_to_stop_works_off_what_was_claimed_for_it(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    engine.send_numbers(30)
    disk = Disk()
    told = tmp_path / "stop"

    def make() -> DataSourceStreamReader:
        return reader(database_url, stop_file=told)

    first = FakeEngine(make, disk)
    first.step(limit=ReadMaxRows(10))
    first.stop()
    with pytest.raises(Crashed):
        FakeEngine(make, disk).step("asked", limit=ReadMaxRows(10))

    told.touch()
    finish(make, disk)

    assert len(list(disk.rows())) == 20
    assert (engine.stats()["in_flight"], engine.stats()["ready"]) == (0, 10)
