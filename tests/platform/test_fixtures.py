"""The fixtures do what they promise, since every other test leans on them."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import psycopg
import pytest
from psycopg import conninfo

from tests.fix_database import Connect
from tests.fix_proxy import Proxy
from tests.waiting import eventually


def test_every_connection_sees_the_same_fresh_migrated_database(connect: Connect) -> None:
    connect().execute("create table public.mark ()")

    count = connect().execute("select count(*) from public.mark").fetchone()
    migrations = connect().execute("select count(*) from holdfast.migration where version > 0").fetchone()

    assert count == (0,)
    assert migrations is not None
    assert migrations[0] >= 1


def test_a_test_finds_no_trace_of_another(connect: Connect) -> None:
    assert connect().execute("select to_regclass('public.mark')").fetchone() == (None,)


def test_the_proxy_passes_bytes_on(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url) as connection:
        assert connection.execute("select repeat('x', 1000000)").fetchone() == ("x" * 1_000_000,)


def test_a_stopped_proxy_cuts_and_refuses_until_it_starts_again(proxy: Proxy) -> None:
    connection = psycopg.connect(proxy.url)

    proxy.stop()

    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url, connect_timeout=2)
    proxy.start()
    psycopg.connect(proxy.url).close()


def test_a_deaf_proxy_keeps_bytes_until_it_hears_again(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url) as connection:
        connection.execute("select 1")
        proxy.deafen()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(proxy.url, connect_timeout=2)

        proxy.hear()

        assert connection.execute("select 2").fetchone() == (2,)


def test_a_proxy_that_is_stopped_while_it_takes_a_connection_cuts_that_one_too() -> None:
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        host, port = deaf.getsockname()
        for _ in range(3):  # fill the backlog: whoever comes next is left waiting
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        proxy = Proxy(target_url=f"postgresql://nobody:nothing@{host}:{port}/none")
        proxy.open()
        own = int(str(conninfo.conninfo_to_dict(proxy.url)["port"]))
        client = stack.enter_context(socket.create_connection(("127.0.0.1", own)))
        eventually(lambda: proxy.connections == 1, what="the proxy takes the connection")

        proxy.close()

        client.settimeout(10)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
        assert proxy.connections == 0


def test_pgbouncer_shares_few_servers_among_many_clients(pgbouncer_url: str) -> None:
    clients = [psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) for _ in range(20)]

    servers = {client.execute("select pg_backend_pid()").fetchone() for client in clients}

    assert len(servers) <= 4
    for client in clients:
        client.close()
