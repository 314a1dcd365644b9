"""Maintenance under load. Claims pinned here:

1. VACUUM, VACUUM FULL, ANALYZE, REINDEX, REINDEX CONCURRENTLY and CLUSTER of the engine's tables,
   holdfast.maintain, sweep and checkpoints, while producers and consumers run, lose and repeat nothing.
2. So does an old snapshot held open, and an open writer that has sent and does not end.
3. repair() of queues in use ends their leases, and loses nothing.
4. The functions can be applied again (an upgrade) under load.
"""

from __future__ import annotations

import itertools
import time

import psycopg
import pytest

from holdfast.migrate import Sources
from tests.fault.crew import Crew, assert_kept
from tests.fix_database import Connect

GENTLE = [
    "vacuum (freeze) holdfast.message",
    "vacuum (index_cleanup on, truncate on) holdfast.lease",
    "vacuum analyze holdfast.gap",
    "analyze holdfast.message",
    "analyze holdfast.lease",
    "reindex table concurrently holdfast.message",
    "reindex table concurrently holdfast.lease",
    "select holdfast.maintain()",
    "select holdfast.sweep('work')",
    "select holdfast.create_queue('fleeting')",
    "select holdfast.send('fleeting', '1', priority => 4)",
    "select holdfast.drop_queue('fleeting')",
    "checkpoint",
]
HARSH = [
    "vacuum full holdfast.message",
    "vacuum full holdfast.lease",
    "vacuum full holdfast.gap",
    "cluster holdfast.message using message_pkey",
    "reindex table holdfast.message",
    "reindex table holdfast.lease",
    "vacuum full holdfast.boot",
    "reindex schema holdfast",
    "vacuum full pg_catalog.pg_class",
]
# PostgreSQL's own: who reads a table and then writes to it deadlocks with a REINDEX or CLUSTER of it; and who
# has two sessions can stand in its own way, until lock_timeout.
LOCKED_OUT = ("40P01", "55P03")


PATIENCE = 120.0  # seconds for the fewest statements that a test wants


def maintain(crew: Crew, statements: list[str], *, seconds: float, at_least: int) -> int:
    """Run the statements in turn for a while; how many ran. A deadlock with a worker is passed over."""
    done, began = 0, time.monotonic()
    with psycopg.connect(crew.url, autocommit=True) as admin:
        for statement in itertools.cycle(statements):
            spent = time.monotonic() - began
            if spent > PATIENCE or (spent > seconds and done >= at_least):
                return done
            try:
                admin.execute(statement.encode())
                done += 1
            except psycopg.errors.DeadlockDetected:
                continue
    return done


@pytest.mark.verify
def test_maintenance_under_load_loses_nothing(crew: Crew) -> None:
    crew.tolerated = LOCKED_OUT
    crew.hire(producers=2, consumers=2, movers=1)
    crew.wait_for_traffic()

    gentle = maintain(crew, GENTLE, seconds=2.0, at_least=5)
    harsh = maintain(crew, HARSH, seconds=2.0, at_least=2)

    figures = assert_kept(crew)
    assert gentle >= 5
    assert harsh >= 2
    assert figures.acked > 50


@pytest.mark.verify
def test_concurrent_maintenance_never_deadlocks_with_the_engine(crew: Crew) -> None:
    crew.hire(producers=3, consumers=3, movers=2)
    crew.wait_for_traffic()

    done = maintain(crew, GENTLE, seconds=30.0, at_least=5)

    figures = assert_kept(crew)
    assert done > 3 * len(GENTLE)
    assert figures.acked > 200


@pytest.mark.verify
def test_a_minute_of_every_kind_of_maintenance_loses_nothing(crew: Crew) -> None:
    crew.tolerated = LOCKED_OUT
    crew.hire(producers=3, consumers=3, movers=2)
    crew.wait_for_traffic()

    maintain(crew, GENTLE + HARSH, seconds=60.0, at_least=5)

    figures = assert_kept(crew)
    assert figures.acked > 500


@pytest.mark.verify
def test_an_old_snapshot_and_an_open_writer_lose_nothing(crew: Crew, connect: Connect) -> None:
    snapshot, writer = connect(autocommit=False), connect(autocommit=False)
    snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    snapshot.execute("select count(*) from holdfast.message")
    writer.execute("select holdfast.send('work', '{\"key\": \"never\"}')")
    crew.hire(producers=2, consumers=2, movers=1)
    crew.wait_for_traffic(50)

    maintain(crew, GENTLE[:5], seconds=1.5, at_least=2)
    writer.rollback()
    snapshot.rollback()

    figures = assert_kept(crew)
    assert figures.acked > 50


@pytest.mark.verify
def test_repair_under_load_ends_leases_and_loses_nothing(crew: Crew) -> None:
    crew.tolerated = (*LOCKED_OUT, "XX000")  # "could not open relation": its registers were just made anew
    crew.hire(producers=2, consumers=2, movers=1)

    for _ in range(3):
        crew.wait_for_traffic()
        with crew.outage("repair"), psycopg.connect(crew.url, autocommit=True) as admin:
            admin.execute("select holdfast.repair()")

    figures = assert_kept(crew)
    assert figures.outages == 3
    assert figures.acked > 50


@pytest.mark.verify
def test_applying_the_functions_again_under_load_loses_nothing(crew: Crew) -> None:
    crew.hire(producers=2, consumers=2, movers=1)
    crew.wait_for_traffic()

    with psycopg.connect(crew.url) as admin:
        for _ in range(3):
            admin.execute(Sources.read().functions.sql.encode(), prepare=False)
            admin.commit()
            time.sleep(0.3)

    figures = assert_kept(crew)
    assert figures.acked > 50
