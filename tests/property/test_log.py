"""Logs: whatever writers do, every reader sees each committed record once, in order.

1. any interleaving of appends in several open transactions, savepoints, commits, rollbacks and reads of any
   size: each reader that passes its last seq on sees every committed record exactly once, in the order of
   the numbers
2. no reader ever sees what was rolled back, nor a record before one with a lower number
3. with deletions and retention, each number is shown to each reader as a record, or as deleted, or as a
   gap, or was never used; a record that was shown as gone is not shown afterwards
4. tombstones neither overlap nor touch, and retention removes no more than it may
5. a restart of the volatile state (a crash) in between changes nothing of this
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.fix_database import Connect

WRITERS = 3
READERS = 3
LANE = 2**40
QUICK = settings(
    max_examples=40,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=400, stateful_step_count=60, derandomize=False)

writers = st.integers(0, WRITERS - 1)
readers = st.integers(0, READERS - 1)


class Writer:
    """A connection, and what its open transaction has appended so far, savepoint by savepoint."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.layers: list[list[int]] = []

    def append(self, count: int) -> None:
        if not self.layers:
            self.connection.execute("begin")
            self.layers.append([])
        batch = "select holdfast.send_batch('log', array_fill('1'::jsonb, array[%s::int]), tag => 't' || %s)"
        ((ids,),) = self.connection.execute(batch, (count, count)).fetchall()
        self.layers[-1] += [id % LANE for id in ids]

    def savepoint(self) -> None:
        if self.layers:
            self.connection.execute("savepoint here")
            self.layers.append([])

    def back(self) -> list[int]:
        if len(self.layers) < 2:
            return []
        self.connection.execute("rollback to savepoint here")
        gone, self.layers[-1] = self.layers[-1], []
        return gone

    def end(self, how: str) -> list[int]:
        """Commit or roll back; returns what that was about."""
        layers, self.layers = self.layers, []
        if layers:
            self.connection.execute(how.encode())
        return [seq for layer in layers for seq in layer]


class Reader:
    """Where a reader is, and what it was shown: for each number the kind of row it was in."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.after = 0
        self.shown: dict[int, str] = {}

    def read(self, limit: int) -> int:
        page = "select kind, seq, from_seq, to_seq from holdfast.read('log', %s, %s)"
        rows = self.connection.execute(page, (self.after, limit)).fetchall()
        assert len(rows) <= limit
        for kind, seq, from_seq, to_seq in rows:
            assert self.after < from_seq <= to_seq == seq, f"{kind} {from_seq}..{to_seq} after {self.after}"
            self.shown |= dict.fromkeys(range(from_seq, to_seq + 1), kind)
            self.after = seq
        return len(rows)


class LogMachine(RuleBasedStateMachine):
    """One log, writers with open transactions, readers that keep their place."""

    connections: ClassVar[list[psycopg.Connection[Any]]]

    def __init__(self) -> None:
        super().__init__()
        admin, *others = self.connections
        self.admin = admin
        self.writers = [Writer(connection) for connection in others[:WRITERS]]
        self.readers = [Reader(connection) for connection in others[WRITERS:]]
        self.committed: set[int] = set()
        self.never: set[int] = set()
        self.removed: set[int] = set()
        self.clock = 0
        self.count: int | None = None
        self.admin.execute("select holdfast.drop_queue('log')")
        self.pass_time(0)

    @initialize(count=st.one_of(st.none(), st.integers(3, 20)))
    def create(self, count: int | None) -> None:
        self.count = count
        retention = "" if count is None else f', "retention": {{"count": {count}}}'
        self.admin.execute("select holdfast.create_queue('log', %s)", ['{"kind": "log"' + retention + "}"])

    @rule(milliseconds=st.sampled_from((1, 11, 300)))
    def pass_time(self, milliseconds: int) -> None:
        self.clock += milliseconds
        at = "timestamptz '2030-01-01 00:00Z' + make_interval(secs => %s / 1000.0)"
        self.admin.execute(f"select holdfast.set_clock({at})", (self.clock,))

    @rule(who=writers, count=st.integers(1, 4))
    def append(self, who: int, count: int) -> None:
        self.writers[who].append(count)

    @rule(who=writers, how=st.sampled_from(("commit", "commit", "rollback")))
    def end(self, who: int, how: str) -> None:
        (self.committed if how == "commit" else self.never).update(self.writers[who].end(how))

    @rule(who=writers, how=st.sampled_from(("savepoint", "back")))
    def save(self, who: int, how: str) -> None:
        if how == "savepoint":
            self.writers[who].savepoint()
        else:
            self.never.update(self.writers[who].back())

    @rule(who=readers, limit=st.integers(1, 12))
    def read(self, who: int, limit: int) -> None:
        self.readers[who].read(limit)
        self.check(self.readers[who])

    @rule(first=writers, second=writers, who=readers)
    def overtake(self, first: int, second: int, who: int) -> None:
        """One append is open while a later one commits, and a reader comes by, twice."""
        self.append(first, 1)
        if first != second:
            self.append(second, 1)
            self.end(second, "commit")
        self.read(who, 12)
        self.read(who, 12)

    @rule(seqs=st.lists(st.integers(1, 40), min_size=1, max_size=6))
    def delete(self, seqs: list[int]) -> None:
        ((deleted,),) = self.admin.execute(
            "select holdfast.log_delete('log', %s::bigint[])", (seqs,)
        ).fetchall()
        gone = set(seqs) & (self.committed - self.removed)
        note(f"deleted {deleted}: {sorted(gone)}")
        self.removed |= gone
        assert deleted == len(gone)
        self.check_tombstones()

    @rule(tag=st.integers(1, 4), before=st.one_of(st.none(), st.integers(1, 30)))
    def delete_by_tag(self, tag: int, before: int | None) -> None:
        self.admin.execute("select holdfast.log_delete('log', tag => 't' || %s, before => %s)", (tag, before))
        self.removed = self.committed - self.present()
        self.check_tombstones()

    @rule()
    def maintain(self) -> None:
        self.admin.execute("select holdfast.maintain()")
        present = self.present()
        trimmed = {seq for seq in self.committed - self.removed if seq not in present}
        last = max(self.committed, default=0)
        assert all(self.count is not None and seq <= last - self.count for seq in trimmed)
        self.removed |= trimmed
        self.check_tombstones()

    @rule()
    def crash(self) -> None:
        """What a crash does to volatile state, while no transaction survives it."""
        for writer in self.writers:
            self.never.update(writer.end("rollback"))
        self.admin.execute("truncate holdfast.boot")
        self.admin.execute(
            "select setval(c.oid::regclass, 0) from pg_class c"
            " where relnamespace = 'holdfast'::regnamespace and relkind = 'S' and relpersistence = 'u'"
        )

    def present(self) -> set[int]:
        rows = self.admin.execute("select id & ((1::bigint << 40) - 1) from holdfast.message").fetchall()
        return {seq for (seq,) in rows}

    def check_tombstones(self) -> None:
        stones = self.admin.execute("select lo, hi from holdfast.tombstone order by lo").fetchall()
        assert all(lo <= hi for lo, hi in stones)
        assert all(hi + 1 < lo for (_, hi), (lo, _) in pairwise(stones))
        covered = {seq for lo, hi in stones for seq in range(lo, hi + 1)}
        assert not covered & (self.committed - self.removed)
        assert not covered & {seq for w in self.writers for layer in w.layers for seq in layer}

    def check(self, reader: Reader) -> None:
        """All up to where the reader stands was shown to it, if it was there to be shown."""
        passed = {seq for seq in self.committed if seq <= reader.after}
        records = {seq for seq, kind in reader.shown.items() if kind == "record"}
        assert records <= self.committed
        assert not self.never & records
        assert passed <= set(reader.shown), f"missed {sorted(passed - set(reader.shown))}"
        assert {seq for seq in passed if reader.shown[seq] != "record"} <= self.removed

    def teardown(self) -> None:
        for writer in self.writers:
            self.committed.update(writer.end("commit"))
        self.pass_time(60_000)
        for reader in self.readers:
            while reader.read(5):
                pass
            self.check(reader)
            assert reader.after >= max(self.committed - self.removed, default=0)


def told(connect: Connect, profile: settings) -> None:
    LogMachine.connections = [connect() for _ in range(1 + WRITERS + READERS)]
    run_state_machine_as_test(LogMachine, settings=profile)


def test_every_reader_sees_every_committed_record_once_in_order(connect: Connect) -> None:
    told(connect, QUICK)


@pytest.mark.verify
@pytest.mark.timeout(3600)
def test_every_reader_sees_every_committed_record_in_thousands_of_stories(connect: Connect) -> None:
    told(connect, LONG)
