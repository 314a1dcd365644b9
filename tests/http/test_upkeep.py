"""Upkeep by servers. Claims pinned here:

1. A server calls maintain() by itself; one that is told not to does not.
2. Several servers share it: all together call it as often as one would.
3. Through PgBouncer in transaction mode too.
4. What fails is tried again; it is told once, and its end too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from holdfast.server.engine import Engine
from holdfast.server.settings import Settings
from holdfast.server.upkeep import Upkeep
from tests.fix_http import Serve
from tests.fix_proxy import Proxy
from tests.waiting import eventually

Conn = psycopg.Connection[Any]


def expire_a_lease(conn: Conn) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("select holdfast.send('orders', '1')")
    conn.execute("select holdfast.claim('orders', lease => '100 ms')")


def is_taken_back(conn: Conn) -> bool:
    return conn.execute("select count(*) from holdfast.lease").fetchone() == (0,)


def maintained_at(conn: Conn) -> int:
    row = conn.execute("select last_value from holdfast.maintained_at").fetchone()
    assert row is not None
    return int(row[0])


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    every = [record.getMessage() for record in caplog.records]
    return [line for line in every if line.startswith("maintain()")]


async def told(caplog: pytest.LogCaptureFixture, line: str) -> None:
    await asyncio.to_thread(eventually, lambda: line in lines(caplog), what=line)


def test_a_server_takes_back_what_leases_held_that_ran_out(serve: Serve, conn: Conn) -> None:
    expire_a_lease(conn)

    serve(upkeep=0.1)

    eventually(lambda: is_taken_back(conn), what="maintain() took it back")


def test_a_server_without_upkeep_calls_nothing(serve: Serve, conn: Conn) -> None:
    quiet = serve(upkeep=0.0)
    for _ in range(20):
        quiet.ok("GET", "/readyz")

    assert maintained_at(conn) == 0


def test_it_works_through_pgbouncer(serve: Serve, conn: Conn, pgbouncer_url: str) -> None:
    expire_a_lease(conn)

    serve(upkeep=0.1, database_url=pgbouncer_url, listen=False)

    eventually(lambda: is_taken_back(conn), what="maintain() took it back")


async def test_two_servers_call_it_as_often_as_one(database_url: str, conn: Conn) -> None:
    settings = Settings(database_url=database_url)
    engines = [Engine(settings), Engine(settings)]
    for engine in engines:
        await engine.open()
    first, second = (Upkeep(engine, 3600.0) for engine in engines)

    pauses = [await first.run_once(3600.0)]
    called_at = maintained_at(conn)
    pauses += [await second.run_once(3600.0), await first.run_once(3600.0)]

    assert pauses[0] == 3600.0
    assert 3500.0 < pauses[2] <= pauses[1] < 3600.0
    assert maintained_at(conn) == called_at
    for engine in engines:
        await engine.close()


async def test_a_failure_is_told_once_and_its_end_too(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(Settings(database_url=proxy.url))
    await engine.open()
    upkeep = Upkeep(engine, 0.2)
    caplog.set_level(logging.WARNING, logger="holdfast.server")

    proxy.stop()
    failed = [await upkeep.run_once(0.0) for _ in range(3)]
    proxy.start()
    going = asyncio.create_task(upkeep.run())
    async with asyncio.timeout(30):
        await told(caplog, "maintain() works again")
    going.cancel()
    await engine.close()

    first, last = lines(caplog)
    assert failed == [0.2, 0.2, 0.2]
    assert first.startswith("maintain() failed, and is tried again every 0.2 s: ")
    assert last == "maintain() works again"
