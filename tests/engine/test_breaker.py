"""Circuit breakers of endpoints.

1. Closed it admits all; so many failures in a row open it, and a success starts the count anew.
2. Open it admits nothing until the cooldown is over; then one of all who ask gets a probe, which decides.
3. A probe that nobody tells of is followed by another; one that is given back too. Only the probe moves a
   half-open breaker.
4. Every move is written down and announced.
5. A closed breaker that has nothing to learn is not written.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row

SECOND = timedelta(seconds=1)


@pytest.fixture
def shop(engine: Engine) -> Engine:
    """An endpoint `shop`, whose breaker opens after three failures, for 30 seconds."""
    config = {"url": "https://example.com", "breaker": {"threshold": 3}}
    assert engine.value("create_endpoint", endpoint="shop", config=config)
    return engine


def report(engine: Engine, *outcomes: str, **fields: Any) -> Row:
    attempts = [{"message": n + 1, "outcome": outcome} | fields for n, outcome in enumerate(outcomes)]
    return engine.row("record_attempts", endpoint="shop", attempts=Jsonb(attempts))


def admit(engine: Engine, want: int = 5) -> tuple[int, str]:
    row = engine.row("admit", endpoint="shop", want=want)
    return row["granted"], row["state"]


def opened(engine: Engine) -> None:
    assert report(engine, "retry", "retry", "retry")["state"] == "open"


def probe(engine: Engine) -> int:
    row = engine.row("admit", endpoint="shop")
    assert (row["granted"], row["state"]) == (1, "half_open")
    return int(row["probe"])


def moves(engine: Engine) -> list[str]:
    return [row["event"] for row in engine.rows("endpoint_events", endpoint="shop")][::-1]


def test_failures_in_a_row_open_it(shop: Engine) -> None:
    seen = [
        report(shop, *outcomes)["state"]
        for outcomes in (["retry", "retry"], ["done"], ["retry", "retry"], ["retry"])
    ]

    assert seen == ["closed", "closed", "closed", "open"]
    assert admit(shop) == (0, "open")
    assert [row["reason"] for row in shop.rows("endpoint_events", endpoint="shop")] == [
        "3 deliveries failed in a row, the last with: no error text."
    ]


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        (["retry", "done", "retry", "retry"], "closed"),
        (["done", "retry", "retry", "retry"], "open"),
        (["retry", "retry", "retry", "done"], "closed"),
        (["retry", "dead", "retry", "dead"], "closed"),
        (["retry", "dead", "retry", "retry"], "open"),
        (["dead"] * 5, "closed"),
    ],
)
def test_attempts_of_one_call_count_in_their_order(shop: Engine, outcomes: list[str], state: str) -> None:
    assert report(shop, *outcomes)["state"] == state


def test_an_open_one_admits_one_probe_after_the_cooldown(shop: Engine) -> None:
    opened(shop)

    closed_out = shop.row("admit", endpoint="shop")
    shop.at(T0 + 30 * SECOND)
    found = probe(shop)
    other = shop.row("admit", endpoint="shop")

    assert (closed_out["granted"], closed_out["retry_in"], closed_out["probe"]) == (0, 30 * SECOND, None)
    assert (other["granted"], other["state"], other["retry_in"]) == (0, "half_open", 25 * SECOND)
    assert found > 0


def test_of_many_who_ask_at_once_one_gets_the_probe(shop: Engine, open_engine: Open) -> None:
    opened(shop)
    shop.at(T0 + 30 * SECOND)
    engines = [open_engine() for _ in range(8)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: admit(each)[0], engines))

    assert sorted(found) == [0] * 7 + [1]


def test_whoever_is_about_to_move_it_is_not_waited_for(shop: Engine, open_engine: Open) -> None:
    opened(shop)
    shop.at(T0 + 30 * SECOND)
    other = open_engine()

    with other.conn.transaction():
        assert admit(other)[0] == 1
        shop.conn.execute("set lock_timeout = '1ms'")
        assert admit(shop)[0] == 0


@pytest.mark.parametrize(("outcome", "state"), [("done", "closed"), ("dead", "closed"), ("retry", "open")])
def test_the_probe_decides(shop: Engine, outcome: str, state: str) -> None:
    opened(shop)
    shop.at(T0 + 30 * SECOND)
    number = probe(shop)

    late = [report(shop, "done")["state"], report(shop, "retry")["state"]]
    told = report(shop, outcome, probe=number)

    assert late == ["half_open", "half_open"]
    assert told["state"] == state
    assert told["retry_in"] == (30 * SECOND if state == "open" else None)
    assert moves(shop) == ["opened", "half_opened", "opened" if state == "open" else "closed"]
    assert admit(shop) == ((0, "open") if state == "open" else (5, "closed"))


def test_a_late_success_leaves_it_open(shop: Engine) -> None:
    opened(shop)

    assert report(shop, "done")["state"] == "open"
    assert admit(shop) == (0, "open")


def test_a_probe_that_nobody_tells_of_is_followed_by_another(shop: Engine) -> None:
    opened(shop)
    shop.at(T0 + 30 * SECOND)
    lost = probe(shop)

    shop.at(T0 + 55 * SECOND)
    found = probe(shop)

    assert report(shop, "done", probe=lost)["state"] == "half_open"
    assert report(shop, "done", probe=found)["state"] == "closed"
    assert moves(shop) == ["opened", "half_opened", "closed"]


def test_a_probe_that_is_given_back_goes_to_the_next(shop: Engine) -> None:
    opened(shop)
    shop.at(T0 + 30 * SECOND)
    given = probe(shop)

    back = [shop.value("yield_probe", endpoint="shop", probe=number) for number in (given + 1, given, given)]
    found = probe(shop)

    assert back == [False, True, False]
    assert report(shop, "retry", probe=given)["state"] == "half_open"
    assert report(shop, "done", probe=found)["state"] == "closed"
    assert moves(shop) == ["opened", "half_opened", "closed"]


def test_it_can_be_reset(shop: Engine) -> None:
    untouched = shop.value("reset_breaker", endpoint="shop")
    report(shop, "retry", "retry")
    counted = shop.value("reset_breaker", endpoint="shop")
    after = report(shop, "retry", "retry")["state"]
    report(shop, "retry")
    reset = shop.value("reset_breaker", endpoint="shop")

    assert (untouched, counted, after, reset) == (False, True, "closed", True)
    assert admit(shop) == (5, "closed")
    assert moves(shop) == ["opened", "closed"]


def test_a_disabled_endpoint_admits_nothing(shop: Engine) -> None:
    opened(shop)
    shop.value("disable_endpoint", endpoint="shop")
    shop.at(T0 + 60 * SECOND)

    assert admit(shop) == (0, "disabled")


@pytest.mark.parametrize("want", [-1, 10_001, None])
def test_a_bad_number_is_refused(shop: Engine, want: Any) -> None:
    with pytest.raises(psycopg.Error) as error:
        admit(shop, want)
    assert error.value.sqlstate == "QH301"


def test_who_looks_with_no_want_gets_no_probe(shop: Engine) -> None:
    opened(shop)
    shop.at(T0 + 30 * SECOND)

    assert admit(shop, 0) == (0, "open")
    assert admit(shop) == (1, "half_open")


def test_moves_are_announced(shop: Engine, open_engine: Open) -> None:
    listener = open_engine().conn
    listener.execute("listen holdfast_endpoint")

    opened(shop)
    shop.at(T0 + 30 * SECOND)
    report(shop, "done", probe=probe(shop))

    assert len(list(listener.notifies(timeout=10, stop_after=3))) == 3


def test_it_is_not_written_while_all_goes_well(shop: Engine) -> None:
    report(shop, "done")
    before = shop.look("select ctid::text from holdfast.endpoint_breaker")

    for _ in range(5):
        report(shop, "done", "done", "dead")
    same = shop.look("select ctid::text from holdfast.endpoint_breaker")
    shop.at(T0 + 2 * SECOND)
    report(shop, "done")

    assert same == before
    assert shop.look("select last_success_at from holdfast.endpoint_breaker") == T0 + 2 * SECOND
