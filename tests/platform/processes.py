"""Other processes that use an embedded server, and users without privileges to run them as."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from holdfast._programs import WHEEL_FOLDER, WHEEL_PACKAGE, Account, _wheel_site, find_programs

TIMEOUT = 60.0  # seconds

# It imports all it needs before it drops its privileges: the interpreter itself may lie in a closed folder.
USER = """
import encodings.idna, getpass, locale, os, sys
import psycopg, psycopg_binary
from holdfast.embedded import EmbeddedError, EmbeddedPostgres
if len(sys.argv) > 2:
    os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2]))
server = EmbeddedPostgres(data_dir=sys.argv[1], settings={"fsync": "off"}, start_timeout=30)
try:
    print("url", server.ensure_running(), flush=True)
except EmbeddedError as error:
    print("error", repr(str(error)), flush=True)
    sys.exit(1)
for line in sys.stdin:
    server.release()
    break
print("left", flush=True)
"""


class Neighbour:
    """Another process that uses the server of a folder until it is told to leave, or killed."""

    def __init__(self, data_dir: Path, account: Account | None = None) -> None:
        identity = [] if account is None else [str(account.uid), str(account.gid)]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", USER, str(data_dir), *identity],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):
            self._pipe(self._process.stdin).close()
        self._process.kill()
        self._process.wait(TIMEOUT)
        self._pipe(self._process.stdout).close()

    def url(self) -> str:
        """The URL it was given; waits until it has one."""
        word, _, rest = self._pipe(self._process.stdout).readline().strip().partition(" ")
        assert word == "url", rest
        return rest

    def error(self) -> str:
        """The error it met."""
        word, _, rest = self._pipe(self._process.stdout).readline().strip().partition(" ")
        assert word == "error", rest
        return rest

    def leave(self) -> None:
        """Let it release the server and end."""
        self._pipe(self._process.stdin).write("leave\n")
        self._pipe(self._process.stdin).flush()
        assert self._pipe(self._process.stdout).readline() == "left\n"
        assert self._process.wait(TIMEOUT) == 0

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(TIMEOUT)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def interrupt_until_it_ends(self) -> None:
        """Ctrl-C, and again if it does not help: Python drops one that comes while it destroys an object."""
        self.interrupt()
        try:
            self._process.wait(TIMEOUT / 2)
        except subprocess.TimeoutExpired:
            self.interrupt()
            self.wait()

    def runs_no_program(self) -> bool:
        """Whether it waits for none of PostgreSQL's programs."""
        return not psutil.Process(self._process.pid).children()

    def has_open(self, path: Path) -> bool:
        """Whether it has this file open."""
        return str(path) in {file.path for file in psutil.Process(self._process.pid).open_files()}

    def wait(self) -> None:
        """Until it has ended."""
        self._process.wait(TIMEOUT)

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


@contextmanager
def stranger(account: Account) -> Iterator[int]:
    """A process of an account's that has nothing to do with PostgreSQL; its number."""
    become = None if account.is_current else account.uid
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd="/", user=become) as process:
        yield process.pid  # cat ends when its input does


def nobody() -> Account:
    """A user without privileges."""
    entry = pwd.getpwnam("nobody")
    return Account("nobody", entry.pw_uid, entry.pw_gid)


def copy_programs(folder: Path) -> Path:
    """A copy of the wheel's programs below a folder; the path of its bin."""
    site, inside = _wheel_site(), Path(WHEEL_PACKAGE, WHEEL_FOLDER)
    shutil.copytree(site / inside, folder / inside, symlinks=True, ignore=shutil.ignore_patterns("include"))
    libraries = f"{WHEEL_PACKAGE}.libs"
    if (site / libraries).exists():
        shutil.copytree(site / libraries, folder / libraries, symlinks=True)
    return folder / inside / "bin"


def gated_programs(folder: Path) -> Path:
    """Programs whose server makes the file `launched`, then starts only once a line is written to `gate`."""
    real = find_programs().folder
    folder.mkdir()
    folder.chmod(0o777)
    os.mkfifo(folder / "gate")
    (folder / "gate").chmod(0o666)
    for name in ("initdb", "pg_ctl"):
        (folder / name).symlink_to(real / name)
    (folder / "postgres").write_text(
        f"""#!/bin/sh
case "$1" in -V|--version) ;; *) touch {folder}/launched; read line < {folder}/gate ;; esac
exec {real}/postgres "$@"
"""
    )
    (folder / "postgres").chmod(0o755)
    return folder


def is_root() -> bool:
    """Whether this process may become other users."""
    return os.geteuid() == 0


def failing_programs(folder: Path, failing: str) -> Path:
    """Programs of which one says that it can't, and fails."""
    real = find_programs().folder
    folder.mkdir()
    for name in ("initdb", "pg_ctl", "postgres"):
        (folder / name).symlink_to(real / name)
    (folder / failing).unlink()
    (folder / failing).write_text(
        f"""#!/bin/sh
case "$1" in -V|--version) exec {real}/{failing} "$@" ;; esac
echo "no {failing} today" >&2
exit 1
"""
    )
    (folder / failing).chmod(0o755)
    return folder
