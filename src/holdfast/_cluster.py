"""The PostgreSQL cluster of a folder: made, started, reached and stopped by who holds the folder's lock."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from holdfast._postmaster import Postmaster
from holdfast._programs import find_programs, reachable, serving_account
from holdfast.client._errors import EmbeddedError

DATABASE = "holdfast"
USER = "holdfast"
ELSEWHERE = Path("/var/lib/holdfast")
POLL = 0.02  # seconds between two looks at the server
LOG_LINES = 20
LOG_LIMIT = 8 * 1024 * 1024  # bytes: a longer log is put aside at the next start
PORT_ATTEMPTS = 5
HIGHEST_PORT = 65535
LINE_ENDS = "\n\r"  # in PostgreSQL's pid file a path is a line

# For a queue: many short transactions, steady WAL, tables that fill and empty all the time.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # its path would be too long in a deep folder
    "max_connections": "200",
    "shared_buffers": "256MB",
    "wal_buffers": "16MB",
    "max_wal_size": "4GB",
    "min_wal_size": "256MB",
    "wal_compression": "on",
    "checkpoint_timeout": "15min",
    "max_parallel_workers_per_gather": "0",  # short queries; and /dev/shm is tiny in containers
    "jit": "off",
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_cost_delay": "0",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "search_path": "public",  # or users' tables would land in the schema called holdfast
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user of an embedded server chose."""

    data_dir: Path
    port: int | None
    settings: Mapping[str, str]
    start_timeout: float  # seconds
    stop_timeout: float  # seconds

    @property
    def link(self) -> Path:
        """The folder that PostgreSQL reaches, or a link to it."""
        return self.data_dir / "server"

    @property
    def log(self) -> Path:
        """PostgreSQL's log."""
        return self.link / "server.log"

    @property
    def data(self) -> Path:
        """PostgreSQL's data folder, with no links in its path."""
        return self.link.resolve() / "data"


class Cluster:
    """The cluster of a folder. Only for who holds the folder's lock."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._account = serving_account(options.data)
        programs = find_programs()
        self._home = self._find_home()
        self._data = options.data
        self._require_plain_name()
        self._postmaster = Postmaster(self._data)
        self._programs = reachable(programs, self._account, beside=self._home)
        self._ports_tried = 0

    def run(self, deadline: float) -> str:
        """Bring the server to where it answers, from whatever state it is in; its URL."""
        self._prepare()
        problem = "It never was."
        while time.monotonic() < deadline:
            state = self._postmaster.state()
            if state == "absent":
                self._start(deadline)
            elif state == "ready":
                try:
                    return self._greet()
                except psycopg.OperationalError as error:
                    self._refuse_wrong_password(error)
                    problem = str(error)
            time.sleep(POLL)
        raise self._failure(f"PostgreSQL was not ready within {self._options.start_timeout:g} s", problem)

    def stop(self) -> None:
        """Stop the server in order, or at least at once: its data is safe either way."""
        seconds = max(1, round(self._options.stop_timeout))
        self._postmaster.await_sight()
        for mode in ("fast", "immediate"):
            if self._postmaster.pid is None:
                return
            order = ("stop", "-D", self._data, "-m", mode, "-w", "-t", str(seconds))
            self._account.run(self._programs["pg_ctl"], *order)
        if self._postmaster.pid is not None:
            raise self._failure("PostgreSQL does not stop", f"Process {self._postmaster.pid} is still there.")

    # --- where it lives ---

    def _find_home(self) -> Path:
        link = self._options.link
        if link.is_dir():
            self._require_reach(link.resolve())
        elif link.is_symlink():
            raise EmbeddedError("QH504", f"{link} points to {os.readlink(link)}, which is gone")
        elif self._account.reaches(self._options.data_dir):
            link.mkdir()
            link.chmod(0o755)
        else:
            link.symlink_to(self._make_elsewhere())
        return link.resolve()

    def _require_plain_name(self) -> None:
        if found := set(LINE_ENDS) & set(str(self._data)):
            raise EmbeddedError(
                "QH504",
                f"no server can run in {str(self._data)!r}",
                detail=f"The name has {' and '.join(map(repr, sorted(found)))} in it.",
                hint="Choose another folder.",
            )

    def _require_reach(self, home: Path) -> None:
        if self._account.reaches(home):
            return
        barrier = self._account.barrier(home)
        raise EmbeddedError(
            "QH504",
            f"user {self._account.name}, who runs PostgreSQL, can't reach {home}",
            detail=f"{barrier} is closed to others.",
            hint=f"chmod o+x {barrier}, or move the folder.",
        )

    def _make_elsewhere(self) -> Path:
        """Root is in a folder that is closed to others, as /root is: the data goes where its owner can be."""
        try:
            ELSEWHERE.mkdir(parents=True, exist_ok=True)
            home = Path(tempfile.mkdtemp(prefix="server-", dir=ELSEWHERE))
            home.chmod(0o755)
            (home / "belongs-to").write_text(f"{self._options.data_dir}\n")
            self._require_reach(home)
        except OSError as error:
            raise EmbeddedError(
                "QH504",
                f"user {self._account.name}, who runs PostgreSQL, can't reach {self._options.data_dir}",
                detail=f"Nor could a folder be made in {ELSEWHERE}: {error}",
                hint="Choose a folder that is open to others.",
            ) from error
        return home

    # --- making it ---

    def _prepare(self) -> None:
        major = self._programs.major(self._account)
        if not self._data.exists():
            self._initialise()
        made_by = (self._data / "PG_VERSION").read_text().strip()
        if made_by != str(major):
            raise EmbeddedError(
                "QH504",
                f"the data in {self._data} was made by PostgreSQL {made_by}",
                detail=f"The programs in {self._programs.folder} are of version {major}.",
                hint="Use programs of that version (HOLDFAST_PG_BIN), another folder, or pg_upgrade.",
            )
        self._password()  # without it the server would start, and nobody could use it

    def _initialise(self) -> None:
        """initdb, under another name until it is complete: killed half-way, it leaves nothing that counts."""
        draft = self._home / "data.new"
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        self._account.own(draft)
        self._initdb(draft)
        with open(draft / "postgresql.conf", "a", opener=_no_follow) as file:
            file.write("\ninclude_dir = '../conf.d'  # Holdfast writes one there at every start\n")
        draft.rename(self._data)

    def _initdb(self, draft: Path) -> None:
        secret = self._home / "password.new"
        _write_secret(secret, self._password())
        self._account.own(secret)
        try:
            answer = self._account.run(
                *(self._programs["initdb"], "-D", draft, "--username", USER, "--pwfile", secret),
                *("--auth", "scram-sha-256", "--data-checksums", "--encoding", "UTF8", "--no-locale"),
                *(["--no-sync"] if self._options.settings.get("fsync") == "off" else []),
            )
        finally:
            secret.unlink()
        if answer.returncode:
            raise EmbeddedError("QH504", "initdb failed", detail=answer.stdout.strip())

    def _password(self) -> str:
        path = self._options.data_dir / "password"
        known = path.read_text().strip() if path.exists() else ""
        if known:
            return known
        if self._data.exists():
            raise EmbeddedError(
                "QH504",
                f"the server's password is gone: {path} is {'empty' if path.exists() else 'not there'}",
                hint="Bring that file back, from a backup say.",
            )
        _write_secret(path, secret := secrets.token_urlsafe(24))
        return secret

    # --- starting it ---

    def _start(self, deadline: float) -> None:
        if not self._postmaster.clear_the_way():
            raise self._failure(
                "a server of this folder is still alive, but out of reach",
                f"Some process holds {self._postmaster.alive}. Is it in another container?",
            )
        port = self._choose_port()
        self._configure(port)
        log = self._open_log()
        mark = log.stat().st_size
        held = self._postmaster.hold()
        try:
            self._account.launch(self._programs["postgres"], "-D", self._data, log=log, keep=held)
        finally:
            os.close(held)
        while time.monotonic() < deadline and self._postmaster.state() != "ready":
            if self._postmaster.is_gone():
                return self._judge(_since(log, mark), port)
            time.sleep(POLL)

    def _judge(self, said: str, port: int) -> None:
        """It did not start. Return if that is worth another try."""
        if "pre-existing shared memory block" in said:
            return  # of a server that was killed: its processes are on their way out
        if "Address already in use" in said and self._options.port is None:
            (self._options.data_dir / "port").unlink(missing_ok=True)
            if self._ports_tried < PORT_ATTEMPTS:
                return
        raise self._failure(f"PostgreSQL did not start on port {port}", "What it said is below.")

    def _choose_port(self) -> int:
        """The one asked for, else that of the last time if it is free, else any that is."""
        self._ports_tried += 1
        if self._options.port is not None:
            return self._options.port
        path = self._options.data_dir / "port"
        with suppress(FileNotFoundError, ValueError):
            port = int(path.read_text())
            if 1 <= port <= HIGHEST_PORT and _is_free(port):
                return port
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
        path.write_text(f"{port}\n")
        return port

    def _configure(self, port: int) -> None:
        folder = self._home / "conf.d"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        chosen = {**SETTINGS, **self._options.settings, "port": str(port)}
        head = "# Written by Holdfast at every start. Your own settings go into another file beside it.\n"
        path = folder / "00-holdfast.conf"
        path.write_text(head + "".join(f"{name} = '{_quoted(value)}'\n" for name, value in chosen.items()))
        path.chmod(0o644)

    def _open_log(self) -> Path:
        log = self._home / "server.log"
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.rename(log.with_suffix(".log.old"))
        os.close(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        self._account.own(log)
        return log

    # --- reaching it ---

    def _greet(self) -> str:
        """Connect, see to it that our database exists, and tell its URL."""
        with psycopg.connect(self._url("postgres"), autocommit=True, connect_timeout=5) as connection:
            found = connection.execute("select 1 from pg_database where datname = %s", [DATABASE])
            if not found.fetchone():
                connection.execute(f"create database {DATABASE}")
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password()}@127.0.0.1:{self._postmaster.port}/{database}"

    def _refuse_wrong_password(self, error: psycopg.OperationalError) -> None:
        if "password authentication failed" in str(error):
            path = self._options.data_dir / "password"
            raise EmbeddedError(
                "QH504", f"the server refuses the password in {path}", detail=str(error)
            ) from error

    def _failure(self, message: str, problem: str) -> EmbeddedError:
        tried = f"as user {self._account.name}, programs in {self._programs.folder}, data in {self._data}"
        log = f"End of {self._options.log}:\n{tail(self._options.log)}"
        return EmbeddedError("QH504", message, detail=f"{problem}\nTried: {tried}.\n{log}")


def tail(log: Path, lines: int = LOG_LINES) -> str:
    """The last lines of a log; empty if there is none."""
    try:
        return "\n".join(_since(log, max(0, log.stat().st_size - 16_384)).splitlines()[-lines:])
    except OSError:
        return ""


def _since(log: Path, mark: int) -> str:
    with open(log, "rb") as file:
        file.seek(mark)
        return file.read().decode(errors="replace")


def _write_secret(path: Path, secret: str) -> None:
    """Under another name until it is on the disk: a full one leaves no half of it."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _no_follow(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW)


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")
