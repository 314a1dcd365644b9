"""A standby takes over. Claims pinned here, with a real base backup, streaming, and kill -9 of the primary:

1. With synchronous replication no confirmed send is lost and no confirmed ack comes back when the standby is
   promoted under load; producers and consumers go on there.
2. Registers that the promotion left unreadable (queues, priorities, or the whole schema made after the
   standby's last restartpoint) are mended by repair(), after which every message is claimable once. Clients
   do so by themselves, also many at once, and none then loses a lease that it got.
3. Tokens from before the promotion settle nothing after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.embedded import EmbeddedPostgres, temporary_postgres
from holdfast.migrate import migrate
from tests.fault.crew import Crew, assert_kept, crew_at, rows
from tests.fault.servers import DURABLE, Standby, answers, kill_server, standby_of
from tests.waiting import eventually

SYNCHRONOUS = "alter system set synchronous_standby_names = 'standby'"
IN_STEP = "select count(*) from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"
NUMBERS = "select (payload #>> '{{}}')::int from holdfast.claim('{}', 100, '1 hour')"


@pytest.fixture
def primary() -> Iterator[EmbeddedPostgres]:
    with temporary_postgres(settings=DURABLE) as server:
        server.ensure_running()
        yield server


def follow(primary_url: str, standby: Standby) -> None:
    """Make every commit on the primary wait for the standby."""
    with psycopg.connect(primary_url, autocommit=True) as connection:
        connection.execute(SYNCHRONOUS)
        connection.execute("select pg_reload_conf()")
        eventually(lambda: rows(connection, IN_STEP) == [(1,)], what="the standby is in step")
    eventually(lambda: answers(standby.url), what="the standby answers")


def restartpoint(primary_url: str, standby: Standby) -> None:
    """Let the standby make a restartpoint, after which what was made before is on its disk."""
    with psycopg.connect(primary_url, autocommit=True) as connection:
        connection.execute("checkpoint")
        ((at,),) = rows(connection, "select pg_current_wal_insert_lsn()")
    with psycopg.connect(standby.url, autocommit=True) as connection:
        replayed = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        eventually(lambda: rows(connection, replayed, at) == [(True,)], what="the checkpoint is replayed")
        connection.execute("checkpoint")


def fill(connection: psycopg.Connection[Any], queue: str) -> int:
    """A queue with the messages 1 to 10 in it; the token under which six of them are held."""
    rows(connection, "select holdfast.create_queue(%s)", queue)
    statement = "select holdfast.send_batch(%s, array(select to_jsonb(n) from generate_series(1, 10) n))"
    rows(connection, statement, queue)
    ((token,), *_) = rows(connection, "select token from holdfast.claim(%s, 6, '1 hour')", queue)
    return int(token)


def is_readable(url: str, queue: str) -> bool:
    """Whether a claim works; the one that boots a lane hands out nothing, and this one is rolled back."""
    with psycopg.connect(url) as connection:
        try:
            rows(connection, f"select id from holdfast.claim('{queue}', 1)")
        except psycopg.errors.InternalError_:
            return False
        finally:
            connection.rollback()
    return True


def assert_fresh_start(url: str, queue: str, token: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        stale = [
            rows(connection, f"select settled from holdfast.{verb}('{queue}', %s)", token)
            for verb in ("ack", "nack", "release", "extend")
        ]
        got = [row for _ in range(3) for row in rows(connection, NUMBERS.format(queue))]
        ((sent,),) = rows(connection, f"select holdfast.send('{queue}', '11')")
        known = rows(connection, "select id from holdfast.message where id >> 40 = %s >> 40", sent)
    assert stale == [[([],)]] * 4
    assert sorted(got) == [(number,) for number in range(1, 11)]
    assert sent == max(known)[0]
    assert len(known) == 11


def test_repair_mends_queues_made_after_the_last_restartpoint(primary: EmbeddedPostgres) -> None:
    url = primary.ensure_running()
    migrate(url)
    with standby_of(primary, url) as standby, psycopg.connect(url, autocommit=True) as connection:
        follow(url, standby)
        before = fill(connection, "before")
        restartpoint(url, standby)
        after = fill(connection, "after")

        kill_server(primary)
        standby.promote()

        readable = is_readable(standby.url, "before"), is_readable(standby.url, "after")
        with psycopg.connect(standby.url, autocommit=True) as promoted:
            mended = rows(promoted, "select holdfast.repair()")
        assert readable[0]
        assert len(mended) == 1
        assert_fresh_start(standby.url, "before", before)
        assert_fresh_start(standby.url, "after", after)


@pytest.mark.verify
def test_repair_mends_a_schema_made_after_the_last_restartpoint(primary: EmbeddedPostgres) -> None:
    url = primary.ensure_running()
    with standby_of(primary, url) as standby:
        follow(url, standby)
        migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            token = fill(connection, "jobs")

        kill_server(primary)
        standby.promote()

        with psycopg.connect(standby.url, autocommit=True) as promoted:
            rows(promoted, "select holdfast.repair()")
        assert_fresh_start(standby.url, "jobs", token)
        with psycopg.connect(standby.url, autocommit=True) as promoted:
            promoted.execute("insert into holdfast.inbox (queue, payload) values ('jobs', '12')")
            swept = rows(promoted, "select (holdfast.maintain() ->> 'done')::boolean")
            arrived = rows(promoted, NUMBERS.format("jobs"))
        assert swept == [(True,)]
        assert arrived == [(11,), (12,)]


def test_clients_that_all_repair_at_once_take_nothing_from_each_other(primary: EmbeddedPostgres) -> None:
    url = primary.ensure_running()
    with standby_of(primary, url) as standby:
        follow(url, standby)
        migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            fill(connection, "jobs")
        kill_server(primary)
        standby.promote()

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: claim_by_client(standby.url, "jobs"), range(4)))

        got = [number for answer in answers for number in answer]
        assert sorted(got) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def claim_by_client(url: str, queue: str) -> list[int]:
    """Claim with the client, which repairs unreadable registers by itself, until two claims bring nothing."""
    got: list[int] = []
    with Holdfast(url) as client:
        for _ in range(6):
            got += [int(message.payload) for message in client.claim(queue, max=2, lease=timedelta(hours=1))]
            time.sleep(0.05)
    return got


def take_over(crew: Crew, primary: EmbeddedPostgres, standby: Standby) -> None:
    """Kill the primary, promote the standby, repair it once, and send the crew there."""
    with crew.outage("promotion"):
        kill_server(primary)
        standby.promote()
        with psycopg.connect(standby.url, autocommit=True) as promoted:
            promoted.execute("select holdfast.repair()")
    crew.point_to(standby.url)


def run_promotion(crew: Crew, primary: EmbeddedPostgres, url: str, seconds: float) -> None:
    with standby_of(primary, url) as standby:
        follow(url, standby)
        crew.hire(producers=2, consumers=2, movers=1)
        crew.wait_for_traffic(40)
        restartpoint(url, standby)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("select holdfast.send('done', '{\"key\": null}', priority => 9)")
        time.sleep(seconds)

        take_over(crew, primary, standby)
        crew.wait_for_traffic(40)

        with psycopg.connect(standby.url, autocommit=True) as promoted:
            promoted.execute("delete from holdfast.message where payload ->> 'key' is null")
        figures = assert_kept(crew)
        assert figures.outages == 1
        assert figures.sent > 60
        crew.close()


def test_a_standby_promoted_under_load_loses_nothing_confirmed(
    primary: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = primary.ensure_running()
    with crew_at(url, tmp_path_factory.mktemp("journals")) as crew:
        run_promotion(crew, primary, url, 0.0)


@pytest.mark.verify
@pytest.mark.parametrize("seed", [31, 32, 33])
def test_a_standby_promoted_under_long_load_loses_nothing_confirmed(
    primary: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    url = primary.ensure_running()
    with crew_at(url, tmp_path_factory.mktemp("journals"), seed=seed) as crew:
        run_promotion(crew, primary, url, 15.0)
