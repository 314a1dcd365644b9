"""PgBouncer in transaction mode in front of the test's database: Debian's, run as an unprivileged user."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

from holdfast._programs import serving_account
from tests.waiting import eventually

POOL_SIZE = 4
STOP_TIMEOUT = 10.0  # seconds

CONFIGURATION = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users.txt
logfile = {folder}/pgbouncer.log
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture
def pgbouncer_url(database_url: str) -> Iterator[str]:
    """The test's database by way of PgBouncer, which spreads a session's transactions over a few servers."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert program, "pgbouncer is missing: `make test` as root installs it, or: apt-get install pgbouncer"
    parts = conninfo.conninfo_to_dict(database_url)
    with tempfile.TemporaryDirectory(prefix="holdfast-pgbouncer-") as name:
        port = _free_port()
        folder = _configured(Path(name), parts, port)
        with _running(program, folder):
            url = f"postgresql://{parts['user']}:{parts['password']}@127.0.0.1:{port}/{parts['dbname']}"
            eventually(lambda: _answers(url), what=f"PgBouncer answers: {_log(folder)}")
            yield url


class _running:
    """PgBouncer's process, for as long as the context lasts."""

    def __init__(self, program: str, folder: Path) -> None:
        account = serving_account(folder)
        dropped = None if account.is_current else account
        self._process = subprocess.Popen(
            [program, "--quiet", str(folder / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            user=dropped.uid if dropped else None,
            group=dropped.gid if dropped else None,
            extra_groups=[] if dropped else None,
        )

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT)


def _configured(folder: Path, parts: Mapping[str, object], port: int) -> Path:
    account = serving_account(folder)
    text = CONFIGURATION.format(
        host=parts["host"], port=parts["port"], listen_port=port, folder=folder, pool_size=POOL_SIZE
    )
    (folder / "pgbouncer.ini").write_text(text)
    (folder / "users.txt").write_text(f'"{parts["user"]}" "{parts["password"]}"\n')
    for path in (folder, *folder.iterdir()):
        account.own(path)
    return folder


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _log(folder: Path) -> str:
    path = folder / "pgbouncer.log"
    return path.read_text()[-2000:] if path.exists() else "no log"
