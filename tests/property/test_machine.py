"""The engine against a model, whatever the order of events.

G1  a committed send is delivered, or ends as done, expired, discarded or dead: never lost, never changed
G2  a rolled-back send is never delivered, nor is anything that has ended
G3  while a lease is live, nobody else gets its messages
G4  a stale token settles nothing: after expiry, after a rolled-back claim, after a crash
G5  deliveries never exceed max_deliveries
G9  nothing is stranded: an empty claim means that nothing can be had; in the end everything comes out once
and the reports (queue_stats, browse, message, held, holders) tell what the model knows.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.fix_database import Connect
from tests.property.engine import Engine
from tests.property.machine import RowMachine, run_machine

QUICK = settings(
    max_examples=150,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=1000, stateful_step_count=60, derandomize=False)


@pytest.mark.timeout(900)
def test_every_order_of_events_keeps_the_guarantees(connect: Connect) -> None:
    run_machine(Engine(connect), QUICK)


@pytest.mark.verify
@pytest.mark.timeout(1800)
def test_so_does_every_order_of_events_where_messages_are_taken_by_their_ids(connect: Connect) -> None:
    run_machine(Engine(connect), QUICK, RowMachine)


@pytest.mark.verify
@pytest.mark.timeout(7200)
def test_thousands_of_orders_of_events_keep_the_guarantees(connect: Connect) -> None:
    run_machine(Engine(connect), LONG)
