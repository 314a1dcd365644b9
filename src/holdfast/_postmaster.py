"""The processes of one PostgreSQL server, as its pid file, a kernel lock and the process table show them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PROC = Path("/proc/self").exists()
PATIENCE = 1.0  # seconds for the processes of a killed server: to end by themselves, then to obey each signal
LAUNCH = 10.0  # seconds from the launch of a server to its pid file, at most
POLL = 0.02  # seconds

State = Literal["absent", "starting", "ready", "stopping"]


@dataclass(frozen=True, slots=True)
class Postmaster:
    """PostgreSQL's main process for one data folder, and its children. The folder's path has no links in it.

    All of them inherit a lock on the file `alive`, so the kernel tells whether any is left, wherever it runs.
    """

    data: Path

    @property
    def alive(self) -> Path:
        """The file that the server's processes hold a lock on."""
        return self.data.parent / "alive"

    @property
    def pid(self) -> int | None:
        """The main process, if it lives."""
        lines = self._lines()
        pid = int(lines[0]) if lines and lines[0].isdigit() else None
        return pid if pid is not None and self._serves(pid) else None

    @property
    def port(self) -> int:
        """The port it listens on; 0 if it is gone."""
        lines = self._lines()
        return int(lines[3]) if len(lines) > 3 else 0

    def state(self) -> State:
        """How far it is with starting or stopping."""
        if self.pid is None:
            return "absent"
        lines = self._lines()
        said = lines[7].strip() if len(lines) > 7 else "starting"
        return "ready" if said == "ready" else "stopping" if said == "stopping" else "starting"

    def await_sight(self) -> None:
        """One that was launched a moment ago has no pid file yet: wait until it has, or is gone."""
        deadline = time.monotonic() + LAUNCH
        while self.pid is None and not self.is_gone() and time.monotonic() < deadline:
            time.sleep(POLL)

    def is_gone(self) -> bool:
        """Whether nobody holds `alive`. A server started by other means never did: it is in the table."""
        descriptor = self._open_alive()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return not self._processes()

    def hold(self) -> int:
        """Lock `alive`, for a server that is about to start and inherits the descriptor."""
        descriptor = self._open_alive()
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def clear_the_way(self) -> bool:
        """After a kill -9: wait for the server's other processes; True once none is left.

        They hold shared memory, and may still be writing. Most notice at once that the postmaster is gone;
        one that computes does not, so after a while it is told. Only then may the pid file go, which guards
        against them; and then it must, for PostgreSQL takes any process of that number for a rival.
        """
        if not any(self._gone_after(kind) for kind in (None, signal.SIGQUIT, signal.SIGKILL)):
            return False
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        return True

    def _gone_after(self, kind: signal.Signals | None) -> bool:
        for process in self._processes() if kind is not None else []:
            with suppress(ProcessLookupError):
                os.kill(process, kind or 0)
        deadline = time.monotonic() + PATIENCE
        while not (gone := self.is_gone()) and time.monotonic() < deadline:
            time.sleep(POLL)
        return gone

    def _open_alive(self) -> int:
        return os.open(self.alive, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _processes(self) -> list[int]:
        """The server's processes, as far as we can see any."""
        if not PROC:
            return []
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [number for number in numbers if self._serves(number)]

    def _serves(self, pid: int) -> bool:
        """Whether a process is PostgreSQL at work in this folder, which is then where it stands."""
        if not PROC:
            return f"-D {self.data}" in _command(pid)
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
            program = os.readlink(f"/proc/{pid}/exe")
        except OSError:  # ended, a zombie, or another user's
            return False
        return folder == str(self.data) and Path(program).name.removesuffix(" (deleted)") == "postgres"

    def _lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []


def _command(pid: int) -> str:
    listing = ["ps", "-o", "command=", "-p", str(pid)]
    return subprocess.run(listing, capture_output=True, text=True, check=False).stdout
