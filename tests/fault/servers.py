"""Servers to break: killing one, stopping one at once, copying one as a standby and promoting it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
from psycopg import conninfo

from holdfast._programs import Account, Programs, find_programs, reachable, serving_account
from holdfast.embedded import EmbeddedPostgres

# Durable: what these servers confirm must survive. The rest keeps a restart short.
DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "max_prepared_transactions": "10",
    "autovacuum_naptime": "1s",
    "log_min_messages": "warning",
}
PATIENCE = 30.0  # seconds for a server to do as told
POLL = 0.02  # seconds


def kill_server(server: EmbeddedPostgres) -> None:
    """kill -9 of the postmaster and all its children, and wait until they are gone."""
    _kill_tree(server.pid)


def stop_at_once(server: EmbeddedPostgres) -> None:
    """Immediate shutdown: every process ends without saving anything; the next start recovers."""
    _signal(server, signal.SIGQUIT)


def stop_in_order(server: EmbeddedPostgres) -> None:
    """Fast shutdown: sessions are ended, then everything is written."""
    _signal(server, signal.SIGINT)


def kill_one_backend(server: EmbeddedPostgres, pid: int) -> None:
    """kill -9 of one session's process: the postmaster then restarts all the others, with recovery."""
    assert server.pid is not None
    assert pid in {child.pid for child in psutil.Process(server.pid).children()}
    os.kill(pid, signal.SIGKILL)


def programs_of(server: EmbeddedPostgres) -> tuple[Account, Programs]:
    """The account and the programs that a server runs with."""
    data = (server.data_dir / "server").resolve() / "data"
    account = serving_account(data)
    return account, reachable(find_programs(), account, data.parent)


class Standby:
    """A streaming copy of a server in a folder of its own, on loopback."""

    def __init__(self, *, primary: EmbeddedPostgres, primary_url: str, folder: Path) -> None:
        self._account, self._programs = programs_of(primary)
        self._primary_url = primary_url
        self._folder = folder
        self._data = folder / "data"
        self._port = _free_port()

    @property
    def url(self) -> str:
        """The same database as the primary's URL, here."""
        parts = conninfo.conninfo_to_dict(self._primary_url)
        return f"postgresql://{parts['user']}:{parts['password']}@127.0.0.1:{self._port}/{parts['dbname']}"

    def copy(self, name: str) -> None:
        """Take a base backup, and follow the primary under this application name."""
        self._folder.chmod(0o755)
        self._account.own(self._folder)
        source = conninfo.make_conninfo(self._primary_url, dbname="replication", application_name=name)
        order = ("-d", source, "-D", self._data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._run("pg_basebackup", *order)
        settings = self._folder / "conf.d"
        settings.mkdir()
        text = "".join(f"{key} = '{value}'\n" for key, value in self._settings().items())
        (settings / "00-standby.conf").write_text(text)
        settings.chmod(0o755)

    def start(self) -> None:
        """Start following."""
        self._run("pg_ctl", "start", "-D", self._data, "-l", self._folder / "log", "-w", "-t", "30")

    def promote(self) -> None:
        """Become a server of its own."""
        self._run("pg_ctl", "promote", "-D", self._data, "-w", "-t", "30")

    def kill(self) -> None:
        """End, at once."""
        with suppress(FileNotFoundError, IndexError):
            _kill_tree(int((self._data / "postmaster.pid").read_text().split()[0]))

    def log(self) -> str:
        """What the server said."""
        return (self._folder / "log").read_text()

    def _settings(self) -> Mapping[str, str]:
        own = {"port": str(self._port), "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        return {**DURABLE, **own, "max_connections": "200", "hot_standby": "on", "timezone": "UTC"}

    def _run(self, program: str, *order: str | Path) -> None:
        answer = self._account.run(self._programs[program], *order, timeout=PATIENCE * 2)
        assert answer.returncode == 0, f"{program}: {answer.stdout}"


@contextmanager
def standby_of(primary: EmbeddedPostgres, primary_url: str, name: str = "standby") -> Iterator[Standby]:
    """A standby that follows a server; its folder lies beside the server's, and is removed at the end."""
    folder = primary.data_dir.parent / name
    folder.mkdir()
    standby = Standby(primary=primary, primary_url=primary_url, folder=folder)
    try:
        standby.copy(name)
        standby.start()
        yield standby
    finally:
        standby.kill()
        shutil.rmtree(folder, ignore_errors=True)


def answers(url: str) -> bool:
    """Whether a server takes connections."""
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _signal(server: EmbeddedPostgres, kind: signal.Signals) -> None:
    pid = server.pid
    assert pid is not None, "the server is not there"
    os.kill(pid, kind)
    deadline = time.monotonic() + PATIENCE
    while server.pid is not None:
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(POLL)


def _kill_tree(pid: int | None) -> None:
    assert pid is not None, "the server is not there"
    with suppress(psutil.NoSuchProcess):
        postmaster = psutil.Process(pid)
        postmaster.suspend()  # it must not see its children go, and begin to tidy up
        processes = [*postmaster.children(recursive=True), postmaster]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=PATIENCE)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
