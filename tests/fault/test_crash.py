"""PostgreSQL dies, and comes back. Claims pinned here, on a server with fsync:

1. kill -9 of the postmaster and all its children, immediate shutdown, and kill -9 of one session's process
   lose no confirmed send and bring back no confirmed ack, under load and several times in a row.
2. After a crash every lease has ended: what was held is claimable at once, and a token from before settles
   nothing, with any verb.
3. After a crash no id is given out a second time.
4. A send or an ack that was prepared (two-phase) before a crash is there after it: delivered once it commits.
5. A clean restart keeps leases and tokens: nobody else gets what is held, and its holder can settle it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast.embedded import EmbeddedPostgres
from holdfast.migrate import migrate
from tests.fault.crew import Crew, assert_kept, rows
from tests.fault.servers import answers, kill_one_backend, kill_server, stop_at_once, stop_in_order
from tests.waiting import eventually

Fault = Callable[[EmbeddedPostgres], None]
CRASHES = [kill_server, stop_at_once]
TEN = "select holdfast.send_batch('jobs', array(select to_jsonb(n) from generate_series(1, 10) n))"
SETTLING = (
    "select settled from holdfast.ack('jobs', %s)",
    "select settled from holdfast.nack('jobs', %s)",
    "select settled from holdfast.release('jobs', %s)",
    "select settled from holdfast.extend('jobs', %s)",
)
NUMBERS = "select (payload #>> '{}')::int from holdfast.claim('jobs', 100, '1 hour')"


def connected(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


def restart(server: EmbeddedPostgres, fault: Fault, url: str) -> None:
    """Break the server, start it again."""
    fault(server)
    server.ensure_running()
    eventually(lambda: answers(url), what="the server answers")


def crash_under_load(crew: Crew, server: EmbeddedPostgres, fault: Fault, url: str) -> None:
    crew.wait_for_traffic()
    with crew.outage(fault.__name__):
        restart(server, fault, url)


@pytest.fixture
def jobs_url(durable_url: str) -> str:
    """A database on the server that may be killed, with a queue `jobs` that holds the messages 1 to 10."""
    migrate(durable_url)
    with connected(durable_url) as connection:
        connection.execute("select holdfast.create_queue('jobs')")
        connection.execute(TEN)
    return durable_url


def test_a_killed_server_loses_no_confirmed_send_and_no_confirmed_ack(
    durable_crew: Crew, durable_server: EmbeddedPostgres, durable_url: str
) -> None:
    durable_crew.hire(producers=2, consumers=2, movers=1)

    for fault in (kill_server, stop_at_once, kill_server):
        crash_under_load(durable_crew, durable_server, fault, durable_url)

    figures = assert_kept(durable_crew)
    assert figures.outages == 3
    assert figures.sent > 50
    assert figures.acked > 30


@pytest.mark.verify
@pytest.mark.parametrize("seed", [21, 22])
def test_a_server_killed_fifteen_times_loses_nothing(
    durable_crew: Crew, durable_server: EmbeddedPostgres, durable_url: str, seed: int
) -> None:
    durable_crew.dice.seed(seed)
    durable_crew.hire(producers=3, consumers=3, movers=2)

    for number in range(15):
        time.sleep(durable_crew.dice.random() * 2)
        crash_under_load(durable_crew, durable_server, CRASHES[number % 2], durable_url)

    figures = assert_kept(durable_crew)
    assert figures.outages == 15


@pytest.mark.verify
def test_a_killed_session_takes_all_leases_along_but_no_message(
    durable_crew: Crew, durable_server: EmbeddedPostgres, durable_url: str
) -> None:
    durable_crew.hire(producers=2, consumers=2, movers=1)

    for _ in range(2):
        durable_crew.wait_for_traffic()
        with durable_crew.outage("session killed"):
            with connected(durable_url) as victim:
                kill_one_backend(durable_server, victim.info.backend_pid)
                eventually(lambda: _is_lost(victim), what="the postmaster ended every session")
            eventually(lambda: answers(durable_url), what="the server answers again")

    figures = assert_kept(durable_crew)
    assert figures.outages == 2


def _is_lost(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("select 1")
    except psycopg.OperationalError:
        return True
    return False


@pytest.mark.parametrize("crash", CRASHES)
def test_after_a_crash_what_was_held_is_claimable_and_stale_tokens_settle_nothing(
    jobs_url: str, durable_server: EmbeddedPostgres, crash: Fault
) -> None:
    with connected(jobs_url) as connection:
        (token, *_), *others = rows(connection, "select token, id from holdfast.claim('jobs', 6, '1 hour')")
        assert len(others) == 5

    restart(durable_server, crash, jobs_url)

    with connected(jobs_url) as connection:
        early = [rows(connection, verb, token) for verb in SETTLING]
        booted = rows(connection, NUMBERS)  # the claim that boots a lane hands out nothing
        again = rows(connection, NUMBERS)
        late = [rows(connection, verb, token) for verb in SETTLING]
        held = rows(connection, "select count(*) from holdfast.held('jobs', %s)", token)
    assert early == [[([],)]] * 4
    assert sorted(booted + again) == [(number,) for number in range(1, 11)]
    assert late == [[([],)]] * 4
    assert held == [(0,)]


def test_due_messages_that_were_held_at_a_crash_are_claimable_after_it(
    jobs_url: str, durable_server: EmbeddedPostgres
) -> None:
    with connected(jobs_url) as connection:
        ((token, *_), *_) = rows(connection, "select token from holdfast.claim('jobs', 10)")
        rows(connection, "select holdfast.release('jobs', %s)", token)
        assert len(rows(connection, NUMBERS)) == 10  # by the due path

    restart(durable_server, kill_server, jobs_url)

    with connected(jobs_url) as connection:
        got = rows(connection, NUMBERS) + rows(connection, NUMBERS)
    assert sorted(got) == [(number,) for number in range(1, 11)]


def test_after_a_crash_no_id_is_drawn_again(jobs_url: str, durable_server: EmbeddedPostgres) -> None:
    with connected(jobs_url) as connection:
        ((token,), *_) = rows(connection, "select token from holdfast.claim('jobs', 10)")
        rows(connection, "select holdfast.ack('jobs', %s)", token)
        ((before,),) = rows(connection, "select holdfast.send('jobs', '11')")

    restart(durable_server, kill_server, jobs_url)

    with connected(jobs_url) as connection:
        ((after,),) = rows(connection, "select holdfast.send('jobs', '12')")
        rows(connection, NUMBERS)
        ((later,),) = rows(connection, "select holdfast.send('jobs', '13')")
    assert before < after < later


def test_a_prepared_send_survives_a_crash_and_is_delivered_once_it_commits(
    jobs_url: str, durable_server: EmbeddedPostgres
) -> None:
    with psycopg.connect(jobs_url) as connection:
        connection.execute("select holdfast.send('jobs', '11')")
        connection.execute("prepare transaction 'sent'")
        connection.rollback()
    with connected(jobs_url) as connection:
        connection.execute("select holdfast.send('jobs', '12')")

    restart(durable_server, kill_server, jobs_url)

    with connected(jobs_url) as connection:
        before = rows(connection, NUMBERS) + rows(connection, NUMBERS)
        connection.execute("commit prepared 'sent'")
        after = eventually(lambda: rows(connection, NUMBERS), what="the prepared message turns up")
    assert sorted(before) == [(number,) for number in (*range(1, 11), 12)]
    assert after == [(11,)]


def test_a_prepared_ack_survives_a_crash(jobs_url: str, durable_server: EmbeddedPostgres) -> None:
    with psycopg.connect(jobs_url) as connection:
        ((token,),) = rows(connection, "select token from holdfast.claim('jobs', 1, '1 hour')")
        connection.commit()
        rows(connection, "select holdfast.ack('jobs', %s, strict => true)", token)
        connection.execute("prepare transaction 'acked'")
        connection.rollback()

    restart(durable_server, kill_server, jobs_url)

    with connected(jobs_url) as connection:
        connection.execute("commit prepared 'acked'")
        got = rows(connection, NUMBERS) + rows(connection, NUMBERS)
    assert sorted(got) == [(number,) for number in range(2, 11)]


def test_a_prepared_claim_blocks_its_lane_across_a_crash_and_then_gives_everything_back(
    jobs_url: str, durable_server: EmbeddedPostgres
) -> None:
    with psycopg.connect(jobs_url) as connection:
        assert len(rows(connection, "select id from holdfast.claim('jobs', 3, '1 hour')")) == 3
        connection.execute("prepare transaction 'claimed'")
        connection.rollback()

    restart(durable_server, kill_server, jobs_url)

    with connected(jobs_url) as connection:
        blocked = rows(connection, NUMBERS)
        connection.execute("commit prepared 'claimed'")
        got = rows(connection, NUMBERS) + rows(connection, NUMBERS)
    assert blocked == []
    assert sorted(got) == [(number,) for number in range(1, 11)]


def test_a_crash_in_the_first_send_of_a_priority_leaves_the_queue_whole(
    jobs_url: str, durable_server: EmbeddedPostgres
) -> None:
    open_session = psycopg.connect(jobs_url)
    open_session.execute("select holdfast.send('jobs', '11', priority => 7)")

    restart(durable_server, kill_server, jobs_url)

    open_session.close()
    with connected(jobs_url) as connection:
        connection.execute("select holdfast.send('jobs', '12', priority => 7)")
        got = rows(connection, NUMBERS) + rows(connection, NUMBERS)
    assert sorted(got) == [(number,) for number in (*range(1, 11), 12)]


def test_a_clean_restart_keeps_leases_and_tokens(jobs_url: str, durable_server: EmbeddedPostgres) -> None:
    with connected(jobs_url) as connection:
        ((token, *_), *_) = rows(connection, "select token from holdfast.claim('jobs', 6, '1 hour')")

    restart(durable_server, stop_in_order, jobs_url)

    with connected(jobs_url) as connection:
        held = rows(connection, "select (payload #>> '{}')::int from holdfast.held('jobs', %s)", token)
        others = rows(connection, NUMBERS) + rows(connection, NUMBERS)
        ack = "select * from holdfast.ack('jobs', %s, strict => true)"
        ((settled, skipped),) = rows(connection, ack, token)
        left = rows(connection, "select in_flight from holdfast.queue_stats('jobs')")
    assert held == [(number,) for number in range(1, 7)]
    assert others == [(7,), (8,), (9,), (10,)]
    assert len(settled) == 6
    assert skipped == []
    assert left == [(4,)]


@pytest.mark.verify
def test_a_clean_restart_under_load_breaks_no_live_lease(
    durable_crew: Crew, durable_server: EmbeddedPostgres, durable_url: str
) -> None:
    durable_crew.hire(producers=2, consumers=2, movers=1, lease=3.0)

    for _ in range(2):
        durable_crew.wait_for_traffic()
        restart(durable_server, stop_in_order, durable_url)  # no outage: leases must hold

    figures = assert_kept(durable_crew)
    assert figures.outages == 0
    assert figures.sent > 20
