"""maintain_in_turn(). Claims pinned here:

1. Of several callers one works at a time, and nobody waits for it.
2. All together they do so once in `every`; what is left over may be gone on with at once.
3. Who dies at it leaves its turn to the others.
4. Nothing is done while the clock is set, nor prevented by what was written while it was.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_database import Connect

Conn = psycopg.Connection[Any]


def turn(connection: Conn, every: str = "0", budget: str = "100 ms") -> dict[str, Any]:
    row = connection.execute("select holdfast.maintain_in_turn(%s, %s)", [every, budget]).fetchone()
    assert row is not None
    did: dict[str, Any] = row[0]
    return did


@pytest.fixture
def orders(conn: Conn) -> Conn:
    """A connection to a database with the queue `orders`."""
    conn.execute("select holdfast.create_queue('orders')")
    return conn


def test_the_first_caller_maintains_and_says_when_to_call_again(orders: Conn) -> None:
    did = turn(orders, "10 s")

    assert (did["ran"], did["done"], did["lanes"], did["due_in"]) == (True, True, 1, 10)


def test_a_second_caller_within_the_time_does_nothing_and_learns_how_long_it_is(orders: Conn) -> None:
    turn(orders, "1 hour")

    again = turn(orders, "1 hour")

    assert again.keys() == {"ran", "due_in"}
    assert again["ran"] is False
    assert 3500 < again["due_in"] < 3600


def test_it_is_called_again_when_the_time_is_over(orders: Conn) -> None:
    turn(orders)

    assert turn(orders)["ran"] is True


def test_while_one_has_its_turn_nobody_else_works_or_waits(connect: Connect, orders: Conn) -> None:
    with orders.transaction():
        first = turn(orders)
        second = turn(connect())

    assert first["ran"] is True
    assert second == {"ran": False, "due_in": 0}
    assert turn(connect())["ran"] is True


def test_who_dies_at_it_leaves_its_turn_to_the_others(connect: Connect, orders: Conn) -> None:
    dying = connect(autocommit=False)
    turn(dying)

    orders.execute("select pg_terminate_backend(%s, 5000)", [dying.info.backend_pid])

    assert turn(orders)["ran"] is True


def test_work_that_is_left_over_is_due_at_once(orders: Conn) -> None:
    for number in range(3):
        orders.execute("select holdfast.create_queue(%s)", [f"more-{number}"])
    orders.execute("select holdfast.create_queue('log', '{\"kind\": \"log\"}')")

    did = turn(orders, "10 s", "1 ms")
    while not did["done"]:
        assert did["due_in"] == 0
        did = turn(orders, "0", "1 ms")

    assert did["ran"] is True


def test_nothing_is_done_while_the_clock_is_set(orders: Conn) -> None:
    orders.execute("select holdfast.set_clock('2100-01-01Z')")
    stopped = turn(orders, "10 s")
    orders.execute("select holdfast.maintain()")
    orders.execute("select holdfast.set_clock(null)")

    going = turn(orders, "10 s")

    assert stopped == {"ran": False, "due_in": 10}
    assert going["ran"] is True


@pytest.mark.parametrize("every", ["-1 s", "25 hours", None])
def test_a_pause_that_is_out_of_range_is_refused(orders: Conn, every: str | None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        orders.execute("select holdfast.maintain_in_turn(%s)", [every])

    assert caught.value.sqlstate == "QH422"
