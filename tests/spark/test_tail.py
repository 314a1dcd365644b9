"""Tail mode, driven by a fake engine.

1. Each record of a log is in exactly one batch, in order, wherever the engine crashes; also those that commit
   late.
2. A batch that is run again has the same records.
3. Records that retention has removed before they were read are an error, or are passed if the options say so.
4. start says where a new stream begins; a drain ends at what was there.
5. What ends in a queue and is kept is in exactly one batch, also if its transaction commits late.
6. A queue that is no log, or a checkpoint of something else, is refused with a clear error.
7. The first batch begins where it began, however often it is run: also if that was the end of the time.
8. Another log under the same name is refused: one that was dropped and made anew, or set back. An archive
   goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from psycopg.types.json import Jsonb
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast import NotALogError
from holdfast.spark.options import OptionError
from holdfast.spark.tail_log import MissedError, ReplacedError, ranges
from tests.engine.engine import Engine
from tests.fix_database import Connect
from tests.spark.fake_engine import POINTS, Crashed, Disk, FakeEngine, finish, tell, tell_many
from tests.spark.streams import reader


class Machine(RuleBasedStateMachine):
    """A log, writers that commit when they like, and a stream that crashes."""

    url: ClassVar[str]
    writers: ClassVar[list[psycopg.Connection[Any]]]
    logs: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).logs += 1
        self.log = f"log{self.logs}"
        self.writers[0].execute('select holdfast.create_queue(%s, \'{"kind": "log"}\')', [self.log])
        self.writers[0].commit()
        self.disk = Disk()
        self.run: FakeEngine | None = None
        self.open: dict[int, list[int]] = {}
        self.appended: list[int] = []

    @rule(writer=st.integers(0, 2), count=st.integers(1, 20))
    def append(self, writer: int, count: int) -> None:
        payloads = [Jsonb(n) for n in range(count)]
        found = self.writers[writer].execute("select holdfast.send_batch(%s, %s)", [self.log, payloads])
        self.open.setdefault(writer, []).extend(found.fetchall()[0][0])

    @rule(writer=st.integers(0, 2), commits=st.booleans())
    def end(self, writer: int, commits: bool) -> None:
        ids = self.open.pop(writer, [])
        if commits:
            self.writers[writer].commit()
            self.appended += ids
        else:
            self.writers[writer].rollback()

    @rule(crash=st.sampled_from([None, None, *POINTS]), limit=st.sampled_from([1, 7, 1000]))
    def step(self, crash: str | None, limit: int) -> None:
        engine = self.run or FakeEngine(self.reader, self.disk)
        self.run = None
        with suppress(Crashed):
            engine.step(crash, limit=ReadMaxRows(limit))
            self.run = engine
        assert {row["id"] for row in self.disk.rows()} <= set(self.appended)

    def reader(self) -> Any:
        return reader(self.url, self.log, mode="tail", partitions=3)

    def teardown(self) -> None:
        for writer in list(self.open):
            self.end(writer, True)
        engine = self.run or FakeEngine(self.reader, self.disk)
        engine.drain()
        engine.stop()

        assert [row["id"] for row in self.disk.rows()] == sorted(self.appended)


@pytest.fixture
def machine(database_url: str, connect: Connect) -> type[Machine]:
    Machine.url, Machine.logs = database_url, 0
    Machine.writers = [connect(autocommit=False) for _ in range(3)]
    return Machine


def test_each_record_is_in_one_batch_in_order_whatever_happens(machine: type[Machine]) -> None:
    tell(machine, stories=8)


@pytest.mark.verify
@pytest.mark.timeout(1800)
def test_each_record_is_in_one_batch_over_many_stories(machine: type[Machine]) -> None:
    tell_many(machine, stories=300)


def tail(url: str, queue: str = "log", **options: object) -> Any:
    return lambda: reader(url, queue, mode="tail", **options)


def read(disk: Disk) -> list[int]:
    return [row["id"] for row in disk.rows()]


def test_a_batch_that_is_run_again_has_the_same_records(database_url: str, engine: Engine) -> None:
    engine.create("log", kind="log")
    sent, disk = engine.send_numbers(10, queue="log"), Disk()
    with pytest.raises(Crashed):
        FakeEngine(tail(database_url), disk).step("read")
    engine.send_numbers(5, queue="log")

    run = FakeEngine(tail(database_url), disk)
    run.step()
    run.stop()

    assert read(disk) == sent
    assert [row["seq"] for row in disk.rows()] == list(range(1, 11))


def followed_past(make: Any, disk: Disk, late: Engine) -> None:
    """Follow while somebody's transaction is open, which shows nothing; then when it has committed."""
    run = FakeEngine(make, disk)
    assert run.step() is False
    late.conn.commit()
    run.drain()
    run.stop()


def test_a_record_that_commits_late_is_not_skipped(
    database_url: str, engine: Engine, connect: Connect
) -> None:
    engine.create("log", kind="log")
    late = Engine(connect(autocommit=False))
    first = late.send(1, queue="log")
    second = engine.send(2, queue="log")
    disk = Disk()

    followed_past(tail(database_url), disk, late)

    assert read(disk) == [first, second]


def trimmed_log(engine: Engine) -> None:
    engine.create("log", kind="log", retention={"count": 2})
    engine.send_numbers(5, queue="log")
    engine.value("maintain")


def test_records_that_are_gone_are_an_error(database_url: str, engine: Engine) -> None:
    trimmed_log(engine)
    run = FakeEngine(tail(database_url, start=1), Disk())

    with pytest.raises(MissedError, match="the records 1 to 3 were removed"):
        run.step()
    run.stop()


def test_records_that_are_gone_are_passed_if_wanted(database_url: str, engine: Engine) -> None:
    trimmed_log(engine)
    disk = Disk()
    run = FakeEngine(tail(database_url, start=1, on_gap="skip"), disk)

    run.drain()
    run.stop()

    assert [row["seq"] for row in disk.rows()] == [4, 5]


@pytest.mark.parametrize(("start", "expected"), [("earliest", [4, 5, 6]), ("latest", [6]), ("5", [5, 6])])
def test_a_new_stream_begins_where_start_says(
    database_url: str, engine: Engine, start: str, expected: list[int]
) -> None:
    trimmed_log(engine)
    disk = Disk()
    run = FakeEngine(tail(database_url, start=start), disk)
    engine.send(6, queue="log")

    run.drain()
    run.stop()

    assert [row["seq"] for row in disk.rows()] == expected


def test_a_drain_of_a_log_ends_at_what_was_there(database_url: str, engine: Engine) -> None:
    engine.create("log", kind="log")
    sent, disk = engine.send_numbers(5, queue="log"), Disk()
    run = FakeEngine(tail(database_url, max_messages=2), disk, available_now=True)
    engine.send(6, queue="log")

    run.drain()
    run.stop()

    assert read(disk) == sent


def test_a_large_range_is_read_page_by_page(database_url: str, engine: Engine) -> None:
    engine.create("log", kind="log")
    engine.value("send_batch", queue="log", payloads=["1"] * 25_000)
    disk = Disk()
    run = FakeEngine(tail(database_url, partitions=2, columns="seq"), disk)

    run.step()
    run.stop()

    assert [row["seq"] for row in disk.rows()] == list(range(1, 25_001))


@pytest.mark.parametrize("available_now", [False, True])
def test_what_ended_is_read_once_in_order(database_url: str, engine: Engine, available_now: bool) -> None:
    engine.create(keep=["done"])
    sent, disk = engine.send_numbers(7), Disk()
    token = engine.claim(7)[0]["token"]
    engine.settle("ack", token, sent[3:])
    engine.settle("ack", token, sent[:3])
    run = FakeEngine(
        tail(database_url, "q", state="archive", max_messages=2), disk, available_now=available_now
    )

    run.drain()
    run.stop()

    assert read(disk) == sent[3:] + sent[:3]
    assert {row["state"] for row in disk.rows()} == {"done"}


def test_what_ended_in_a_late_transaction_is_not_skipped(
    database_url: str, engine: Engine, connect: Connect
) -> None:
    engine.create(keep=["done"])
    first, second = engine.send_numbers(2)
    slow, quick = engine.claim_one()["token"], engine.claim_one()["token"]
    late, disk = Engine(connect(autocommit=False)), Disk()
    late.settle("ack", slow)
    engine.settle("ack", quick)

    followed_past(tail(database_url, "q", state="archive"), disk, late)

    assert read(disk) == [first, second]


def test_a_batch_of_the_archive_is_cut_the_same_after_a_crash(database_url: str, engine: Engine) -> None:
    engine.create(keep=["done"])
    sent = engine.value("send_batch", queue="q", payloads=["1"] * 12_000)
    for _ in range(2):
        engine.settle("ack", engine.claim(10_000)[0]["token"])
    disk = Disk()
    with pytest.raises(Crashed):
        FakeEngine(tail(database_url, "q", state="archive", columns="id"), disk).step("logged")

    finish(tail(database_url, "q", state="archive", columns="id"), disk)

    assert read(disk) == sent


def test_a_queue_that_is_no_log_is_refused(database_url: str, engine: Engine) -> None:
    engine.create()

    with pytest.raises(NotALogError, match="is no log"):
        FakeEngine(tail(database_url, "q"), Disk())


def test_a_checkpoint_of_another_mode_is_refused(database_url: str, engine: Engine) -> None:
    engine.create("log", kind="log")
    disk = Disk(offsets=['{"stream": "s", "batch": 1, "queue": "log", "claims": []}'], commits=1)

    run = FakeEngine(tail(database_url), disk)

    with pytest.raises(OptionError, match="a checkpoint of its own for each mode"):
        run.step()
    run.stop()


@pytest.mark.parametrize(
    ("span", "wanted", "expected"),
    [((0, 0), None, []), ((5, 6), 8, [(5, 6)]), ((0, 10), 3, [(0, 3), (3, 6), (6, 10)])],
)
def test_ranges_are_even_and_whole(
    span: tuple[int, int], wanted: int | None, expected: list[tuple[int, int]]
) -> None:
    assert [part.value for part in ranges(*span, wanted)] == expected


def test_a_tail_that_is_told_to_stop_reads_no_further(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    engine.create("log", kind="log")
    sent, disk = engine.send_numbers(10, queue="log"), Disk()
    told = tmp_path / "stop"
    run = FakeEngine(tail(database_url, stop_file=told), disk)
    run.step()
    engine.send_numbers(5, queue="log")

    told.touch()
    batches = run.drain()
    run.stop()

    assert batches == 0
    assert read(disk) == sent


def read_so_far(database_url: str, engine: Engine) -> Disk:
    """A log of ten records, all of them read."""
    engine.create("log", kind="log")
    engine.send_numbers(10, queue="log")
    disk = Disk()
    finish(tail(database_url), disk)
    return disk


def make_anew(engine: Engine) -> None:
    engine.value("drop_queue", queue="log")
    engine.create("log", kind="log")


def set_back(engine: Engine) -> None:
    """As a backup has it that was made when there were seven records."""
    engine.conn.execute("delete from holdfast.message m where m.id & ((1::bigint << 40) - 1) > 7")
    engine.conn.execute("select setval(l.ids, (l.id::bigint << 40) + 7) from holdfast.lane l")


@pytest.mark.parametrize("sent", [0, 5, 15])
@pytest.mark.parametrize("replace", [make_anew, set_back])
@pytest.mark.parametrize("available_now", [False, True])
def test_another_log_under_the_same_name_is_refused(
    database_url: str, engine: Engine, replace: Callable[[Engine], None], sent: int, available_now: bool
) -> None:
    disk = read_so_far(database_url, engine)
    replace(engine)
    engine.send_numbers(sent, queue="log")
    run = FakeEngine(tail(database_url), disk, available_now=available_now)

    with pytest.raises(ReplacedError, match=r'log "log": .*begin a new checkpoint'):
        run.step()
    run.stop()


@pytest.mark.parametrize("replace", [make_anew, set_back])
def test_a_log_that_is_replaced_while_it_is_read_is_refused(
    database_url: str, engine: Engine, replace: Callable[[Engine], None]
) -> None:
    disk = read_so_far(database_url, engine)
    run = FakeEngine(tail(database_url), disk)
    assert run.step() is False
    replace(engine)

    with pytest.raises(ReplacedError):
        run.step()
    run.stop()


@pytest.mark.parametrize("replace", [make_anew, set_back])
def test_a_batch_is_not_run_again_on_another_log(
    database_url: str, engine: Engine, replace: Callable[[Engine], None]
) -> None:
    disk = read_so_far(database_url, engine)
    engine.send_numbers(5, queue="log")
    with pytest.raises(Crashed):
        FakeEngine(tail(database_url), disk).step("logged")
    replace(engine)
    engine.send_numbers(20, queue="log")
    run = FakeEngine(tail(database_url), disk)

    with pytest.raises(ReplacedError):
        run.step()
    run.stop()


def test_a_log_whose_last_records_were_removed_is_still_the_same(database_url: str, engine: Engine) -> None:
    disk = read_so_far(database_url, engine)
    engine.value("log_delete", queue="log", seqs=[9, 10])
    finish(tail(database_url), disk)
    engine.value("configure_queue", queue="log", config={"retention": {"count": 1}})
    engine.send_numbers(1, queue="log")
    engine.value("maintain")

    finish(tail(database_url), disk)

    assert [row["seq"] for row in disk.rows()] == list(range(1, 12))


def test_offsets_that_do_not_say_which_log_are_accepted_as_far_as_it_goes(
    database_url: str, engine: Engine
) -> None:
    read_so_far(database_url, engine)
    disk = Disk(offsets=['{"queue": "log", "seq": 8}'], commits=1)
    finish(tail(database_url), disk)
    beyond = FakeEngine(tail(database_url), Disk(offsets=['{"queue": "log", "seq": 11}'], commits=1))

    with pytest.raises(ReplacedError):
        beyond.step()
    beyond.stop()

    assert [row["seq"] for row in disk.rows()] == [9, 10]


def test_a_new_stream_may_begin_beyond_what_is_there(database_url: str, engine: Engine) -> None:
    engine.create("log", kind="log")
    engine.send_numbers(2, queue="log")
    disk = Disk()
    run = FakeEngine(tail(database_url, start=5), disk)

    assert run.step() is False
    engine.send_numbers(3, queue="log")
    run.drain()
    run.stop()

    assert [row["seq"] for row in disk.rows()] == [5]


def test_the_first_batch_of_a_log_is_run_again_from_where_it_began(database_url: str, engine: Engine) -> None:
    engine.create("log", kind="log")
    engine.send_numbers(3, queue="log")
    disk, make = Disk(), tail(database_url, start="latest")
    run = FakeEngine(make, disk)
    sent = engine.send_numbers(5, queue="log")
    with pytest.raises(Crashed):
        run.step("read")
    sent += engine.send_numbers(2, queue="log")

    finish(make, disk)

    assert read(disk) == sent


def test_the_first_batch_of_an_archive_is_run_again_from_where_it_began(
    database_url: str, engine: Engine
) -> None:
    engine.create(keep=["done"])
    disk, make = Disk(), tail(database_url, "q", state="archive", start="latest")
    run = FakeEngine(make, disk)
    sent = engine.send_numbers(5)
    engine.settle("ack", engine.claim(5)[0]["token"])
    with pytest.raises(Crashed):
        run.step("read")

    finish(make, disk)

    assert read(disk) == sent


def test_between_a_place_and_itself_there_is_nothing(database_url: str, engine: Engine) -> None:
    place = json.loads(read_so_far(database_url, engine).offsets[-1])

    assert tail(database_url)().partitions(place, place) == []


def test_the_archive_of_a_queue_that_was_made_anew_is_read_on(database_url: str, engine: Engine) -> None:
    disk, sent = Disk(), []
    for _ in range(2):
        engine.value("drop_queue", queue="q")
        engine.create(keep=["done"])
        sent += engine.send_numbers(3)
        engine.settle("ack", engine.claim(3)[0]["token"])
        finish(tail(database_url, "q", state="archive"), disk)

    assert read(disk) == sent
