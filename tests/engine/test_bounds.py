"""Bounded work: what a call costs does not grow with what the queue holds. Counted in buffers, not in time.

1. claim, ack, next, send, holders: the same with 10 or 50,000 waiting, 0 or 20,000 in flight.
2. Messages scheduled for tomorrow are passed once; claims after that cost what they did without them.
3. queue_stats is bounded: it counts at most 10,000 of anything.
4. A claim that finds nothing is cheap too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from tests.engine.engine import T0, Engine
from tests.fix_database import fresh_database

Conn = psycopg.Connection[Any]

# An index one level deeper, a page split, a full page: a constant, whatever there is.
SLACK = 40

LANE_OF: LiteralString = (
    "(select l.id from holdfast.lane l join holdfast.queue q on q.id = l.queue_id where q.name = %s)"
)
LOOP: LiteralString = (
    "do $$ begin for i in 1 .. {} loop perform holdfast.claim('{}', 1, '10 hours'); commit; end loop; end $$"
)


def buffers(conn: Conn, statement: str) -> int:
    """The pages that a statement touches, all its functions' included: the least of several runs."""
    return min(_buffers(conn, statement) for _ in range(7))


def _buffers(conn: Conn, statement: str) -> int:
    explained = conn.execute(
        f"explain (analyze, buffers, timing off, format json) {statement}".encode()
    ).fetchall()
    plan = explained[0][0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.fixture(scope="module")
def crowd(server_url: str, template_database: str) -> Iterator[Engine]:
    """Queues with little and much in them, side by side."""
    with (
        fresh_database(server_url, template_database) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        engine = Engine(connection)
        engine.at(T0)
        connection.execute("alter table holdfast.message set (autovacuum_enabled = off)")
        connection.execute("alter table holdfast.lease set (autovacuum_enabled = off)")
        for name in ("few", "many", "busy", "tomorrow", "empty", "drained"):
            engine.create(name)
        engine.send_numbers(200, queue="few")
        engine.send_numbers(50_000, queue="many")
        engine.send_numbers(20_200, queue="busy")
        connection.execute(LOOP.format(20_000, "busy").encode())
        engine.send_numbers(20_000, queue="tomorrow", delay="1 day")
        engine.send_numbers(200, queue="tomorrow")
        engine.claim(1, queue="tomorrow")
        engine.claim(1, queue="tomorrow")
        engine.claim(1, queue="tomorrow")
        connection.execute("vacuum holdfast.message")
        yield engine


@pytest.fixture(scope="module")
def cheap(crowd: Engine) -> int:
    """What a claim costs in a queue that holds little."""
    return buffers(crowd.conn, "select * from holdfast.claim('few', 1)")


def test_a_claim_costs_little(cheap: int) -> None:
    assert cheap < 150


@pytest.mark.parametrize("queue", ["many", "busy", "tomorrow"])
def test_a_claim_costs_the_same_whatever_the_queue_holds(crowd: Engine, cheap: int, queue: str) -> None:
    cost = buffers(crowd.conn, f"select * from holdfast.claim('{queue}', 1)")

    assert len(crowd.claim(1, queue=queue)) == 1
    assert cost <= cheap + SLACK


def test_a_claim_that_finds_nothing_costs_no_more(crowd: Engine, cheap: int) -> None:
    cost = buffers(crowd.conn, "select * from holdfast.claim('empty', 100)")

    assert cost <= cheap + SLACK


def test_scheduled_messages_are_passed_within_a_few_claims(crowd: Engine) -> None:
    crowd.create("passing")
    crowd.send_numbers(20_000, queue="passing", delay="1 day")
    crowd.send("today", queue="passing")

    costs = [_buffers(crowd.conn, "select * from holdfast.claim('passing', 1)") for _ in range(3)]

    held = crowd.look(
        f"select count(*) from holdfast.lease where ids <> '{{}}' and lane_id = {LANE_OF}", "passing"
    )
    assert held == 1
    assert costs[2] < 200


@pytest.mark.parametrize("queue", ["many", "busy", "tomorrow"])
def test_ack_and_next_cost_the_same_whatever_the_queue_holds(crowd: Engine, queue: str) -> None:
    costs = {}
    for name in ("few", queue):
        acks, nexts = [], []
        for _ in range(7):
            token = crowd.claim_one(queue=name)["token"]
            acks.append(_buffers(crowd.conn, f"select * from holdfast.ack('{name}', {token})"))
            token = crowd.claim_one(queue=name)["token"]
            nexts.append(_buffers(crowd.conn, f"select * from holdfast.next('{name}', {token})"))
        costs[name] = (min(acks), min(nexts))

    assert costs[queue][0] <= costs["few"][0] + SLACK
    assert costs[queue][1] <= costs["few"][1] + SLACK


@pytest.mark.parametrize("queue", ["many", "busy", "tomorrow"])
def test_a_send_costs_the_same_whatever_the_queue_holds(crowd: Engine, queue: str) -> None:
    little = buffers(crowd.conn, "select holdfast.send('few')")

    cost = buffers(crowd.conn, f"select holdfast.send('{queue}')")

    assert cost <= little + SLACK


def test_holders_costs_the_same_with_20_000_in_flight(crowd: Engine) -> None:
    few = crowd.claim_one(queue="few")["id"]
    busy = crowd.look(
        f"select ids[1] from holdfast.lease where lane_id = {LANE_OF} and ids <> '{{}}'"
        " order by upto offset 10000 limit 1",
        "busy",
    )
    little = buffers(crowd.conn, f"select * from holdfast.holders('few', array[{few}])")

    cost = buffers(crowd.conn, f"select * from holdfast.holders('busy', array[{busy}])")

    assert len(crowd.rows("holders", queue="busy", ids=[busy])) == 1
    assert cost <= little + SLACK


def test_holders_of_a_hundred_ids_costs_a_hundred_times_one(crowd: Engine) -> None:
    first = crowd.look(f"select min(ids[1]) from holdfast.lease where lane_id = {LANE_OF}", "busy")
    one = buffers(crowd.conn, f"select * from holdfast.holders('busy', array[{first + 5000}])")

    some = f"array(select generate_series({first + 5000}, {first + 5099}))"
    hundred = buffers(crowd.conn, f"select * from holdfast.holders('busy', {some})")

    assert hundred <= 100 * one


def test_queue_stats_counts_at_most_ten_thousand(crowd: Engine) -> None:
    costs = {
        name: buffers(crowd.conn, f"select * from holdfast.queue_stats('{name}')")
        for name in ("few", "many", "busy", "tomorrow")
    }

    assert costs["few"] < 500
    assert costs["many"] <= costs["few"] + 100
    # Up to 10,000 leases or index entries are looked at, never more: each is a page at worst.
    assert costs["busy"] < 25_000
    assert costs["tomorrow"] < 25_000


def test_queue_stats_does_not_grow_beyond_its_bound(crowd: Engine) -> None:
    before = buffers(crowd.conn, "select * from holdfast.queue_stats('tomorrow')")
    crowd.send_numbers(30_000, queue="tomorrow", delay="2 days")

    after = buffers(crowd.conn, "select * from holdfast.queue_stats('tomorrow')")

    assert after <= before * 1.2 + SLACK


def test_a_page_of_browse_costs_the_same_at_any_depth(crowd: Engine) -> None:
    first = crowd.look(f"select min(id) from holdfast.message where id >> 40 = {LANE_OF}", "many")
    little = buffers(crowd.conn, "select * from holdfast.browse('few', 'ready', 10)")

    head = buffers(crowd.conn, "select * from holdfast.browse('many', 'ready', 10)")
    deep = buffers(crowd.conn, f"select * from holdfast.browse('many', 'ready', 10, {first + 40_000})")

    assert head <= little + SLACK
    assert deep <= little + SLACK


def test_browsing_what_is_in_flight_does_not_walk_the_log(crowd: Engine) -> None:
    statement = "select * from holdfast.browse('busy', 'in_flight', 1)"

    # Up to 10,000 leases are read, in order of their deadlines; of the 70,000 messages, one.
    assert buffers(crowd.conn, statement) < 25_000
    assert len(crowd.conn.execute(statement.encode()).fetchall()) == 1
