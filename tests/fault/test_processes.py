"""Clients die. Claims pinned here, each under load and held against journals outside PostgreSQL:

1. kill -9 of producers and consumers loses no confirmed send, delivers no rolled-back one, hands out nothing
   that is held, and never brings back what was acked.
2. A consumer that claims, writes to a table, sends to another queue and acks strictly in one transaction has
   done all of it or nothing, wherever it was killed.
3. No message is delivered more often than max_deliveries: then it is a dead letter, whoever was killed.
4. A session whose process is gone while its transaction is open gives its lane back at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.crew import Crew, assert_kept
from tests.fix_database import Connect
from tests.waiting import eventually

CLAIM_AND_HANG = """
import sys, time, psycopg
connection = psycopg.connect(sys.argv[1])
rows = connection.execute("select id from holdfast.claim(queue => 'jobs', max => 10)").fetchall()
print(len(rows), flush=True)
time.sleep(600)
"""
TEN = "select holdfast.send_batch('jobs', array(select to_jsonb(n) from generate_series(1, 10) n))"


def kill_workers(crew: Crew, *, times: int, every: float) -> set[str]:
    """kill -9 that many workers, one after the other; the kinds that were hit."""
    hit = set()
    for _ in range(times):
        time.sleep(every * (0.5 + crew.dice.random()))
        hit.add(crew.kill_one())
    return hit


def test_killed_workers_lose_nothing_and_repeat_nothing(crew: Crew) -> None:
    crew.hire(producers=2, consumers=2, movers=2)
    crew.wait_for_traffic()

    hit = kill_workers(crew, times=14, every=0.25)

    figures = assert_kept(crew)
    assert hit == {"producer", "consumer", "mover"}
    assert figures.sent > 50
    assert figures.acked > 50
    assert figures.undone > 0


@pytest.mark.verify
@pytest.mark.parametrize("config", [{}, {"shards": 4}, {"priorities": [0, 5, 9], "backoff": {"base": 0.05}}])
def test_killed_workers_lose_nothing_for_a_minute(crew: Crew, config: dict[str, Any]) -> None:
    crew.configure(config)
    crew.hire(producers=3, consumers=3, movers=3)
    crew.wait_for_traffic()

    kill_workers(crew, times=150, every=0.4)

    figures = assert_kept(crew)
    assert figures.acked > 1000


@pytest.mark.verify
def test_killed_workers_never_see_a_message_more_often_than_max_deliveries(crew: Crew) -> None:
    crew.configure({"max_deliveries": 2, "dead_letter": "work.dlq"})
    crew.hire(producers=2, consumers=3, movers=0, lease=0.3)
    crew.wait_for_traffic()

    kill_workers(crew, times=8, every=0.25)

    figures = assert_kept(crew)
    assert figures.acked > 50
    assert len(crew.remaining("work.dlq")) > 0


@pytest.fixture
def hanging_claimer(database_url: str, connect: Connect) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed all ten messages of the queue jobs in a transaction that it keeps open."""
    admin = connect()
    admin.execute("select holdfast.create_queue('jobs')")
    admin.execute(TEN)
    order = [sys.executable, "-c", CLAIM_AND_HANG, database_url]
    process = subprocess.Popen(order, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    assert process.stdout is not None
    assert process.stdout.readline() == "10\n"
    yield process
    process.kill()
    process.wait(10)
    process.stdout.close()


def test_a_killed_claimer_gives_its_lane_back_at_once(
    hanging_claimer: subprocess.Popen[str], connect: Connect
) -> None:
    other = connect()
    blocked = other.execute("select count(*) from holdfast.claim('jobs', 10)").fetchone()

    os.kill(hanging_claimer.pid, signal.SIGKILL)

    freed = eventually(
        lambda: other.execute("select id & 1099511627775 from holdfast.claim('jobs', 10)").fetchall(),
        what="the lane is free",
        timeout=5.0,
    )
    assert blocked == (0,)
    assert [row[0] for row in freed] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
