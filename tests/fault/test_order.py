"""Order, while clients and servers die. Each under load, and held against journals outside PostgreSQL:

1. kill -9 of senders and consumers: no message of a line is handed out before the one before it was
   acked, on a queue ordered by key, across priorities, and on a strict one; nothing is lost
   and nothing stays behind.
2. The same through crashes of PostgreSQL.
3. The auditor would notice.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.embedded import EmbeddedPostgres
from tests.fault.audit import Audit
from tests.fault.crew import Crew, assert_kept
from tests.fault.journal import Journal
from tests.fault.servers import kill_server
from tests.fault.test_crash import crash_under_load

DISORDER = "delivered before one that comes before it in its line was acked"


def kill_workers(crew: Crew, *, times: int, every: float) -> None:
    """kill -9 that many workers, one after the other."""
    for _ in range(times):
        time.sleep(every * (0.5 + crew.dice.random()))
        crew.kill_one()


@pytest.mark.verify
def test_killed_workers_keep_lines_in_order(crew: Crew) -> None:
    crew.hire_liners(liners=2, consumers=2, lease=0.3)
    crew.wait_for_traffic()

    kill_workers(crew, times=8, every=0.25)

    figures = assert_kept(crew)
    assert figures.acked > 30


@pytest.mark.verify
def test_killed_workers_keep_lines_in_order_for_a_minute(crew: Crew) -> None:
    crew.hire_liners(liners=3, consumers=4, lease=0.3)
    crew.wait_for_traffic()

    kill_workers(crew, times=150, every=0.4)

    figures = assert_kept(crew)
    assert figures.acked > 500


@pytest.mark.verify
def test_crashes_keep_lines_in_order(
    durable_crew: Crew, durable_server: EmbeddedPostgres, durable_url: str
) -> None:
    durable_crew.hire_liners(liners=2, consumers=2, lease=0.3)
    for _ in range(3):
        durable_crew.wait_for_traffic()
        crash_under_load(durable_crew, durable_server, kill_server, durable_url)
    durable_crew.wait_for_traffic()

    figures = assert_kept(durable_crew)
    assert figures.outages == 3


@pytest.mark.parametrize("acked", [True, False])
def test_the_auditor_notices_a_message_that_comes_too_early(tmp_path: Path, acked: bool) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    for number in (1, 2):
        keys = [f"liner-lines-1:{number}"]
        journal.write("committing", keys=keys)
        journal.write("sent", keys=keys)
    for number in (1, 2):
        key = f"liner-lines-1:{number}"
        journal.write("delivered", token=number, lease=1, asked=0, items=[[key, number, 1, 1]], held=True)
        if acked or number == 2:
            facts = {"verb": "ack", "token": number, "keys": [key], "of": key}
            journal.write("settling", **facts)
            journal.write("settled", asked=0, **facts)
    journal.close()

    remaining = [] if acked else ["liner-lines-1:1"]
    found = [violation.split(" (")[0] for violation in Audit(tmp_path, remaining=remaining).violations()]

    assert found == ([] if acked else [DISORDER])
