"""Answers get lost, statements are cancelled, sessions are ended. Claims pinned here:

1. A network that goes deaf, drops connections, or swallows answers in the middle of send, claim and ack under
   load loses no confirmed send, delivers no rolled-back one, and keeps every lease.
2. A claim whose answer was lost comes back when its lease runs out; an ack whose answer was lost took effect,
   and asking again is harmless.
3. pg_cancel_backend and pg_terminate_backend at any moment leave nothing half done.
4. A lost session in a transaction that had claimed gives back both messages and lane.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest

from tests.fault.crew import Crew, assert_kept, rows
from tests.fix_database import Connect
from tests.fix_proxy import Proxy
from tests.waiting import eventually

ASLEEP = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
DISTURB = """
select pg_{}_backend(pid) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend' and {}
order by random() limit 1
"""
CLAIM = "select payload, deliveries from holdfast.claim('jobs', 10)"
CANCEL = DISTURB.format("cancel", "state = 'active'")
TERMINATE = DISTURB.format("terminate", "state in ('active', 'idle in transaction')")


def disturb_network(crew: Crew, proxy: Proxy, *, times: int) -> None:
    for number in range(times):
        time.sleep(0.1 + crew.dice.random() * 0.3)
        if number % 3:
            proxy.deafen()
            time.sleep(crew.dice.random() * 0.5)
        if number % 3 == 1:
            proxy.hear()  # what was held back arrives late
        else:
            proxy.restart()  # and here it is lost


def disturb_sessions(crew: Crew, statement: str, *, seconds: float, every: float) -> int:
    """Cancel or end one session after the other; how many were hit."""
    hit, deadline = 0, time.monotonic() + seconds
    with psycopg.connect(crew.url, autocommit=True) as admin:
        while time.monotonic() < deadline:
            hit += len(rows(admin, statement))
            time.sleep(crew.dice.random() * 2 * every)
    return hit


def test_a_deaf_and_dropping_network_loses_nothing(crew: Crew, proxy: Proxy) -> None:
    crew.route_by(proxy.url)
    crew.hire(producers=2, consumers=2, movers=2)
    crew.wait_for_traffic()

    disturb_network(crew, proxy, times=9)

    figures = assert_kept(crew)
    assert figures.sent > 50
    assert figures.in_doubt > 0


@pytest.mark.verify
def test_a_deaf_and_dropping_network_loses_nothing_for_a_minute(crew: Crew, proxy: Proxy) -> None:
    crew.route_by(proxy.url)
    crew.hire(producers=3, consumers=3, movers=3)
    crew.wait_for_traffic()

    disturb_network(crew, proxy, times=120)

    figures = assert_kept(crew)
    assert figures.sent > 500


@pytest.mark.verify
def test_cancelled_statements_and_terminated_sessions_leave_nothing_half_done(crew: Crew) -> None:
    crew.hire(producers=2, consumers=2, movers=2)
    crew.wait_for_traffic()

    cancelled = disturb_sessions(crew, CANCEL, seconds=2.5, every=0.005)
    terminated = disturb_sessions(crew, TERMINATE, seconds=2.5, every=0.05)

    figures = assert_kept(crew)
    assert cancelled > 10
    assert terminated > 5
    assert figures.acked > 20


@pytest.mark.verify
@pytest.mark.parametrize(("statement", "every"), [(CANCEL, 0.003), (TERMINATE, 0.03)])
def test_a_minute_of_cancelled_and_terminated_sessions_leaves_nothing_half_done(
    crew: Crew, statement: str, every: float
) -> None:
    crew.hire(producers=3, consumers=3, movers=3)
    crew.wait_for_traffic()

    disturb_sessions(crew, statement, seconds=60.0, every=every)

    figures = assert_kept(crew)
    assert figures.acked > 500


@contextmanager
def swallowed(connect: Connect, proxy: Proxy, statement: str, *values: object) -> Iterator[None]:
    """Run a statement by way of the proxy: the server does it, and its answer is lost."""
    outcome: list[str] = []

    def run() -> None:
        try:
            with psycopg.connect(proxy.url, autocommit=True) as connection:
                rows(connection, f"select 1 from pg_sleep(0.5) cross join lateral {statement}", *values)
            outcome.append("answered")
        except psycopg.OperationalError:
            outcome.append("lost")

    admin = connect()
    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: rows(admin, ASLEEP) == [(1,)], what="the statement has reached the server")
    proxy.deafen()
    eventually(lambda: rows(admin, ASLEEP) == [(0,)], what="the server is past its pause")
    time.sleep(0.2)
    proxy.restart()
    thread.join(10)
    assert outcome == ["lost"]
    yield


def fill(connection: psycopg.Connection[Any], count: int) -> None:
    rows(connection, "select holdfast.create_queue('jobs', '{\"lease\": \"1 s\"}')")
    statement = "select holdfast.send_batch('jobs', array(select to_jsonb(n) from generate_series(1, %s) n))"
    rows(connection, statement, count)


def test_a_claim_whose_answer_was_lost_comes_back_after_its_lease(connect: Connect, proxy: Proxy) -> None:
    connection = connect()
    fill(connection, 3)

    with swallowed(connect, proxy, "holdfast.claim('jobs', 2, '2 s')"):
        others = rows(connection, "select payload from holdfast.claim('jobs', 10)")

    back = eventually(
        lambda: rows(connection, f"{CLAIM} where id & 7 < 3"),
        what="the lease runs out",
    )
    assert others == [(3,)]
    assert back == [(1, 2), (2, 2)]


def test_an_ack_whose_answer_was_lost_took_effect_and_can_be_repeated(connect: Connect, proxy: Proxy) -> None:
    connection = connect()
    fill(connection, 2)
    claim = "select token, id from holdfast.claim('jobs', 2, '1 hour')"
    ((token, first), (_, second)) = rows(connection, claim)

    with swallowed(connect, proxy, "holdfast.ack('jobs', %s, array[%s::bigint])", token, first):
        again = rows(connection, "select * from holdfast.ack('jobs', %s)", token)
        late = rows(connection, "select * from holdfast.ack('jobs', %s, %s)", token, [first, second])

    assert again == [([second], [])]
    assert [(settled, sorted(skipped)) for settled, skipped in late] == [([], [first, second])]


def test_a_send_whose_answer_was_lost_is_delivered_once(connect: Connect, proxy: Proxy) -> None:
    connection = connect()
    fill(connection, 0)

    with swallowed(connect, proxy, "holdfast.send('jobs', '\"sent\"')"):
        got = rows(connection, "select payload from holdfast.claim('jobs', 10, '1 hour')")
        more = rows(connection, "select payload from holdfast.claim('jobs', 10, '1 hour')")

    assert got == [("sent",)]
    assert more == []


def test_a_terminated_session_gives_back_messages_and_lane(connect: Connect) -> None:
    connection, victim = connect(), connect(autocommit=False)
    fill(connection, 3)
    assert len(rows(victim, "select id from holdfast.claim('jobs', 2, '1 hour')")) == 2

    rows(connection, "select pg_terminate_backend(%s, 5000)", victim.info.backend_pid)

    with suppress(psycopg.OperationalError):
        victim.execute("select 1")
    got = rows(connection, "select payload, deliveries from holdfast.claim('jobs', 10, '1 hour')")
    assert got == [(1, 1), (2, 1), (3, 1)]
