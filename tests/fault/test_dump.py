"""Dumps, restores and copies. Claims pinned here:

1. A dump of a busy queue, plain or custom, restored into another database of the same cluster or of another
   one, holds what its snapshot held: every message sent before it and not acked by then, no rolled-back one;
   and there each of them is claimable exactly once.
2. Leases of the old database are not honoured in the new one, and its tokens settle nothing there, with any
   verb, whether or not a claim has come first. The same for `pg_restore --clean` into the same database, and
   for a copy by CREATE DATABASE … TEMPLATE.
3. What is sent in the new database gets no id that a message there already has.
4. After `pg_restore --clean` queues and priorities that were made since the dump can be made again.
5. A data-only restore and then repair() is a fresh start too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.embedded import EmbeddedPostgres
from tests.fault.audit import Audit
from tests.fault.crew import Crew, rows
from tests.fault.dumps import Tools
from tests.fault.journal import Event, read_journals
from tests.fix_database import Connect, fresh_database, with_database
from tests.waiting import eventually

VERBS = ("ack", "nack", "release", "extend")
LATER = "select payload from holdfast.claim('later', 10, '1 hour')"
KEYS = "select payload ->> 'key' from holdfast.claim('{}', 1000, '1 hour')"
TEN = "select holdfast.send_batch('jobs', array(select to_jsonb(n) from generate_series(1, 10) n))"
NUMBERS = "select (payload #>> '{}')::int from holdfast.claim('jobs', 100, '1 hour')"
HELD = """
select m.payload ->> 'key' from holdfast.message m join holdfast.queue q on q.id = m.queue_id
where q.name in ('work', 'orders')
"""
STALE = """
select t, (a.answer).settled from unnest(%s::bigint[]) t cross join unnest(array['work', 'orders']) q
  cross join lateral (select holdfast.ack(q, t) as answer) a
where (a.answer).settled <> '{}'
"""
EMPTY_EVERYTHING = """
truncate holdfast.message, holdfast.lease, holdfast.gap, holdfast.boot, holdfast.tally, holdfast.inbox,
  holdfast.sample, holdfast.rollup, holdfast.probe, holdfast.log, holdfast.tombstone, holdfast.limiter,
  holdfast.archive, holdfast.stage, holdfast.staged, holdfast.write, holdfast.lane, holdfast.queue,
  holdfast.receipt, holdfast.defaults, holdfast.pipeline_run, holdfast.lake, holdfast.lake_batch,
  holdfast.schedule, holdfast.seal_key, holdfast.seal_secret, holdfast.migration,
  holdfast.endpoint, holdfast.endpoint_secret, holdfast.endpoint_breaker, holdfast.endpoint_event,
  holdfast.attempt, holdfast.event_type, holdfast.subscription, holdfast.service, holdfast.service_queue,
  holdfast.service_task, holdfast.hook, holdfast.hook_slug, holdfast.hook_secret, holdfast.hook_call
"""


@pytest.fixture
def tools(server: EmbeddedPostgres) -> Tools:
    return Tools.of(server)


@pytest.fixture
def another_url(server_url: str) -> Iterator[str]:
    """An empty database of the same cluster."""
    with fresh_database(server_url) as url:
        yield url


@dataclass(frozen=True, slots=True)
class Passage:
    """By which kind of dump into which database."""

    file: Path
    destination: str


@pytest.fixture(
    params=[
        pytest.param(("dump.sql", "another_url"), id="plain, same cluster"),
        pytest.param(("dump.custom", "durable_url"), id="custom, another cluster"),
        pytest.param(("dump.custom", "another_url"), id="custom, same cluster", marks=pytest.mark.verify),
        pytest.param(("dump.sql", "durable_url"), id="plain, another cluster", marks=pytest.mark.verify),
    ]
)
def passage(request: pytest.FixtureRequest, tmp_path: Path) -> Passage:
    name, destination = request.param
    return Passage(tmp_path / name, str(request.getfixturevalue(destination)))


@pytest.fixture
def held_token(connect: Connect) -> int:
    """The queue `jobs` with the messages 1 to 10 in it; the token under which six of them are held."""
    admin = connect()
    admin.execute("select holdfast.create_queue('jobs', '{\"max_deliveries\": 0}')")
    admin.execute(TEN)
    ((released,), *_) = rows(admin, "select token from holdfast.claim('jobs', 3, '1 hour')")
    rows(admin, "select holdfast.release('jobs', %s)", released)
    ((token,), *others) = rows(admin, "select token from holdfast.claim('jobs', 6, '1 hour')")
    assert len(others) == 5
    return int(token)


def settled_by(connection: psycopg.Connection[Any], token: int) -> list[Any]:
    """What a token settles, with every verb."""
    return [rows(connection, f"select settled from holdfast.{verb}('jobs', %s)", token) for verb in VERBS]


def assert_fresh_start(url: str, token: int) -> None:
    """All ten messages are claimable, once; the token from before settles nothing, before and after that."""
    with psycopg.connect(url, autocommit=True) as connection:
        early = settled_by(connection, token)
        held = rows(connection, "select * from holdfast.held('jobs', %s)", token)
        got = rows(connection, NUMBERS) + rows(connection, NUMBERS) + rows(connection, NUMBERS)
        late = settled_by(connection, token)
        ((fresh,),) = rows(connection, "select holdfast.send('jobs', '11')")
        known = rows(connection, "select id from holdfast.message where id <> %s", fresh)
    assert early == [[([],)]] * 4
    assert held == []
    assert sorted(got) == [(number,) for number in range(1, 11)]
    assert late == [[([],)]] * 4
    assert fresh > max(known)[0]


def test_tokens_settle_nothing_in_a_restored_database(
    held_token: int, database_url: str, tools: Tools, passage: Passage
) -> None:
    tools.dump(database_url, passage.file)

    tools.restore(passage.file, passage.destination)

    assert_fresh_start(passage.destination, held_token)
    with psycopg.connect(database_url) as connection:
        still_held = rows(connection, "select count(*) from holdfast.held('jobs', %s)", held_token)
    assert still_held == [(6,)]


def test_next_with_a_token_from_another_database_acks_nothing(
    held_token: int, database_url: str, another_url: str, tools: Tools, tmp_path: Path
) -> None:
    tools.restore(tools.dump(database_url, tmp_path / "dump.custom"), another_url)

    with psycopg.connect(another_url, autocommit=True) as connection:
        rows(connection, "select id from holdfast.next('jobs', %s, lease => '100 ms')", held_token)
        there = rows(connection, "select count(*) from holdfast.message")

    assert there == [(10,)]


@pytest.mark.parametrize("strategy", ["wal_log", "file_copy"])
def test_a_copy_by_template_is_a_fresh_start(
    held_token: int, database_url: str, server_url: str, strategy: str
) -> None:
    name = database_url.rsplit("/", 1)[1]
    making = f"create database {name}_copy template {name} strategy {strategy}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        eventually(lambda: _is_free(admin, name), what="nobody uses the original")
        admin.execute(making.encode())
        try:
            assert_fresh_start(with_database(server_url, f"{name}_copy"), held_token)
        finally:
            admin.execute(f"drop database {name}_copy with (force)".encode())


def _is_free(admin: psycopg.Connection[Any], name: str) -> bool:
    return rows(admin, "select count(*) from pg_stat_activity where datname = %s", name) == [(0,)]


def test_restore_clean_into_the_same_database_is_a_fresh_start(
    held_token: int, database_url: str, tools: Tools, tmp_path: Path
) -> None:
    dump = tools.dump(database_url, tmp_path / "dump.custom")

    said = tools.restore(dump, database_url, "--clean", "--if-exists")

    # pg_restore also wants to drop the primary keys of partitions, which go with their table's.
    errors = [line for line in said.splitlines() if "error: " in line]
    assert [line for line in errors if "cannot drop inherited constraint" not in line] == []
    assert_fresh_start(database_url, held_token)


def test_queues_and_priorities_made_since_the_dump_can_be_made_again_after_restore_clean(
    held_token: int, database_url: str, tools: Tools, tmp_path: Path, connect: Connect
) -> None:
    dump = tools.dump(database_url, tmp_path / "dump.custom")
    before = connect()
    before.execute("select holdfast.create_queue('later', '{\"shards\": 3}')")
    before.execute("select holdfast.send('jobs', '99', priority => 3)")
    before.close()

    tools.restore(dump, database_url, "--clean", "--if-exists")

    with connect() as connection:
        connection.execute("select holdfast.send('jobs', '11', priority => 3)")
        made = rows(connection, "select holdfast.create_queue('later', '{\"shards\": 3}')")
        connection.execute("select holdfast.send('later', '1')")
        later = [row for _ in range(4) for row in rows(connection, LATER)]  # a boot takes one round a lane
        got = [row for _ in range(3) for row in rows(connection, NUMBERS)]
    assert made == [(True,)]
    assert later == [(1,)]
    assert sorted(got) == [(number,) for number in range(1, 12)]


def test_a_sequence_that_lags_behind_its_messages_is_raised_by_the_first_claim(
    held_token: int, database_url: str, another_url: str, tools: Tools, tmp_path: Path
) -> None:
    tools.restore(tools.dump(database_url, tmp_path / "dump.custom"), another_url)

    with psycopg.connect(another_url, autocommit=True) as connection:
        rows(connection, "select setval(ids, 3 + (id::bigint << 40)) from holdfast.lane")
        got = rows(connection, NUMBERS) + rows(connection, NUMBERS)
        ((fresh,),) = rows(connection, "select holdfast.send('jobs', '11') & 1099511627775")

    assert sorted(got) == [(number,) for number in range(1, 11)]
    assert fresh == 11


def test_a_data_only_restore_and_repair_is_a_fresh_start(
    held_token: int, database_url: str, tools: Tools, tmp_path: Path, connect: Connect
) -> None:
    dump = tools.dump(database_url, tmp_path / "dump.custom", "--schema=holdfast", "--data-only")
    with connect() as connection:
        ((token,), *_) = rows(connection, "select token from holdfast.claim('jobs', 10, '1 hour')")
        connection.execute(EMPTY_EVERYTHING.encode())

    tools.restore(dump, database_url)
    with connect() as connection:
        mended = rows(connection, "select holdfast.repair()")

    assert mended == [(1,)]
    with connect() as connection:
        assert settled_by(connection, token) == [[([],)]] * 4
    assert_fresh_start(database_url, held_token)


def claim_all(url: str, queue: str) -> list[str]:
    """Claim until nothing more is to come, under leases that outlast the test; the keys."""
    got: list[str] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(5):  # boots take one round a lane, delayed messages 0.2 s
            while some := rows(connection, KEYS.format(queue)):
                got += [row[0] for row in some]
            time.sleep(0.1)
    return got


def keys_of(events: list[Event], kind: str, before: float, verb: str | None = None) -> set[str]:
    """The keys in events of a kind that were journalled before a moment."""
    chosen = (e for e in events if e["event"] == kind and e["at"] < before and e.get("verb") == verb)
    return {key for event in chosen for key in event["keys"]}


def assert_snapshot(url: str, folder: Path, began: float, ended: float) -> None:
    """The database holds what was there at one moment between these times, and hands it out once."""
    events = read_journals(folder)
    tokens = [event["token"] for event in events if event["event"] == "delivered"]
    with psycopg.connect(url, autocommit=True) as connection:
        held = [row[0] for row in rows(connection, HELD)]
        stale = rows(connection, STALE, tokens)

    got = claim_all(url, "work") + claim_all(url, "orders")

    assert len(tokens) > 20
    assert stale == []
    assert sorted(got) == sorted(held)
    assert len(set(got)) == len(got)
    assert keys_of(events, "sent", began) - keys_of(events, "settling", ended, "ack") <= set(got)
    assert not keys_of(events, "settled", began, "ack") & set(got)
    assert set(got) <= Audit(folder, remaining=[]).possible


def test_a_dump_of_a_busy_queue_is_a_snapshot_that_is_handed_out_once(
    crew: Crew, database_url: str, tools: Tools, passage: Passage, tmp_path: Path
) -> None:
    crew.hire(producers=3, consumers=1, movers=1)
    crew.wait_for_traffic(30)
    began = time.time()
    tools.dump(database_url, passage.file)
    ended = time.time()
    crew.wait_for_traffic(20)
    crew.close()

    tools.restore(passage.file, passage.destination)

    assert_snapshot(passage.destination, tmp_path / "journals", began, ended)


@pytest.mark.verify
def test_restoring_over_a_busy_database_takes_it_back_to_the_dump(
    crew: Crew, database_url: str, tools: Tools, tmp_path: Path
) -> None:
    crew.hire(producers=3, consumers=1, movers=1)
    crew.wait_for_traffic(30)
    began = time.time()
    dump = tools.dump(database_url, tmp_path / "dump.custom")
    ended = time.time()
    crew.wait_for_traffic(20)
    crew.close()

    said = tools.restore(dump, database_url, "--clean", "--if-exists")

    assert "error" not in said
    assert_snapshot(database_url, tmp_path / "journals", began, ended)
