"""budget, lapse_is_failure and a message's own max_deliveries: what makes a message dead.

1. Under budget deliveries every delivery that ended counts; under failures only nacks do, and leases may run
   out for ever.
2. With lapse_is_failure a lease that ran out is a failure too.
3. A message's own max_deliveries goes before the queue's, under both budgets; 0 means no limit. It outlives
   death and redrive.
4. release counts as neither. A change of budget holds for messages that are there already.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine

SECOND = timedelta(seconds=1)


def nack(engine: Engine) -> None:
    engine.settle("nack", engine.claim_one()["token"], delay="0 s")


def lapse(engine: Engine) -> None:
    """Take the message and let the lease run out."""
    row = engine.claim_one(lease="1 s")
    engine.at(row["deadline"])
    engine.value("sweep", queue="q")


def alive(engine: Engine) -> bool:
    return bool(engine.stats()["depth"])


def lives(engine: Engine, *fates: Any) -> list[bool]:
    """Whether the one message is still there after each of these."""
    found = []
    for fate in fates:
        fate(engine)
        found.append(alive(engine))
    return found


def test_every_delivery_counts_by_default(engine: Engine) -> None:
    engine.create("q", max_deliveries=3)
    engine.send(1)

    assert lives(engine, lapse, nack, lapse) == [True, True, False]


def test_under_failures_only_nacks_count(engine: Engine) -> None:
    engine.create("q", max_deliveries=2, budget="failures")
    engine.send(1)

    assert lives(engine, lapse, lapse, lapse, nack, lapse, nack) == [True] * 5 + [False]
    assert engine.look("select origin ->> 'failures' from holdfast.message") == "2"
    assert engine.look("select origin ->> 'deliveries' from holdfast.message") == "6"


def test_a_lapse_is_a_failure_where_said(engine: Engine) -> None:
    engine.create("q", max_deliveries=2, budget="failures", lapse_is_failure=True)
    engine.send(1)

    assert lives(engine, lapse, lapse) == [True, False]


def test_a_lapse_that_is_a_failure_is_counted_as_one_under_deliveries_too(engine: Engine) -> None:
    engine.create("q", lapse_is_failure=True)
    sent = engine.send(1)

    lapse(engine)

    row = engine.row("message", queue="q", id=sent)
    assert (row["deliveries"], row["failures"]) == (1, 1)


@pytest.mark.parametrize("budget", ["deliveries", "failures"])
@pytest.mark.parametrize(("own", "expected"), [(1, [False]), (3, [True, True, False]), (None, [True, False])])
def test_a_messages_own_limit_goes_first(
    engine: Engine, budget: str, own: int | None, expected: list[bool]
) -> None:
    engine.create("q", max_deliveries=2, budget=budget)
    engine.send(1, max_deliveries=own)

    assert lives(engine, *[nack] * len(expected)) == expected


@pytest.mark.parametrize("budget", ["deliveries", "failures"])
def test_a_limit_of_zero_is_none(engine: Engine, budget: str) -> None:
    engine.create("q", max_deliveries=1, budget=budget)
    engine.send(1, max_deliveries=0)

    assert lives(engine, *[nack] * 7) == [True] * 7


@pytest.mark.parametrize("budget", ["deliveries", "failures"])
def test_a_redriven_message_has_its_own_limit_again(engine: Engine, budget: str) -> None:
    engine.create("q", budget=budget)
    engine.send(1, max_deliveries=2)
    assert lives(engine, nack, nack) == [True, False]

    engine.rows("redrive", queue="q")

    assert engine.claim_one()["max_deliveries"] == 2
    engine.at(T0 + timedelta(hours=1))
    engine.value("sweep", queue="q")
    assert lives(engine, nack)[:1] == [budget == "failures"]


@pytest.mark.parametrize("budget", ["deliveries", "failures"])
def test_a_release_counts_as_neither(engine: Engine, budget: str) -> None:
    engine.create("q", max_deliveries=1, budget=budget)
    sent = engine.send(1)

    for _ in range(3):
        engine.settle("release", engine.claim_one()["token"])

    row = engine.row("message", queue="q", id=sent)
    assert (row["deliveries"], row["failures"]) == (0, 0)


def test_a_change_of_budget_holds_for_messages_that_are_there(engine: Engine) -> None:
    engine.create("q", max_deliveries=2)
    engine.send(1)
    lapse(engine)

    engine.value("configure_queue", queue="q", config={"budget": "failures"})

    assert lives(engine, nack, nack) == [True, False]


def test_without_a_dead_letter_queue_the_last_failure_ends_the_message(engine: Engine) -> None:
    engine.create("q", max_deliveries=1, budget="failures", dead_letter=False)
    engine.send(1)

    assert lives(engine, lapse, nack) == [True, False]
    assert engine.look("select count(*) from holdfast.message") == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("budget", "luck"), ("budget", 1), ("lapse_is_failure", "yes"), ("durability", "slow")],
)
def test_other_values_are_refused(refusing: Engine, field: str, value: Any) -> None:
    before = refusing.state()

    with pytest.raises(psycopg.Error) as caught:
        refusing.value("configure_queue", queue="q", config={field: value})

    assert caught.value.sqlstate == "QH104"
    assert refusing.state() == before
