"""The embedded PostgreSQL of one folder: its first user starts it, its last one stops it.

What lies in the folder (./.holdfast unless told otherwise):

    lock                held, alone, while someone starts or stops the server
    users               held, shared, by everyone who uses it; who can have it alone is the last, and stops it
    password, port      of the server; the password is readable by its owner only
    server/             what PostgreSQL itself must reach: data/, conf.d/, server.log, alive (held by all its
                        processes), where needed a copy of the programs. As root in a folder that is closed to
                        others, server is a link to a place that is not

Locks are the kernel's, so they end with their process, however it ends. A server that is left without users
is adopted by the next. Lock order: lock, users, alive.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from holdfast._cluster import Cluster, Options, tail
from holdfast._postmaster import Postmaster
from holdfast._programs import find_programs, serving_account
from holdfast.client._errors import EmbeddedError

__all__ = ["DEFAULT_DATA_DIR", "EmbeddedError", "EmbeddedPostgres", "temporary_postgres"]

DEFAULT_DATA_DIR = Path(".holdfast")
POLL = 0.02  # seconds between two looks at a lock


class EmbeddedPostgres:
    """A PostgreSQL server that belongs to a folder and is shared by all processes that open it there.

        with EmbeddedPostgres(data_dir=".holdfast") as url: ...

    `settings` are PostgreSQL's own, and count for who starts the server; who joins takes it as it is.
    """

    def __init__(
        self,
        *,
        data_dir: Path | str = DEFAULT_DATA_DIR,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout: float = 60.0,
        stop_timeout: float = 60.0,
    ) -> None:
        if port is not None and not 1 <= port <= 65535:
            raise ValueError(f"port must be between 1 and 65535, not {port}")
        if start_timeout <= 0 or stop_timeout <= 0:
            raise ValueError("start_timeout and stop_timeout must be positive")
        self._options = Options(
            data_dir=Path(data_dir).expanduser().absolute(),
            port=port,
            settings=dict(settings or {}),
            start_timeout=start_timeout,
            stop_timeout=stop_timeout,
        )
        self._users: int | None = None

    def __enter__(self) -> str:
        return self.ensure_running()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def data_dir(self) -> Path:
        """The folder that everything of this server is in."""
        return self._options.data_dir

    @property
    def log_path(self) -> Path:
        """Where PostgreSQL writes its log."""
        return self._options.log

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, or None while no server runs."""
        return Postmaster(self._options.data).pid

    def ensure_running(self) -> str:
        """Become a user of the server, starting it if need be; its URL. Again: start it anew if it died."""
        deadline = time.monotonic() + self._options.start_timeout
        try:
            self._make_folder()
            with self._lock(deadline):
                self._join()
                return Cluster(self._options).run(deadline)
        except BaseException as error:
            with suppress(EmbeddedError):  # the first error is the one to tell
                self.release()
            if isinstance(error, OSError):
                raise EmbeddedError(
                    "QH504", f"no server can run in {self.data_dir}", detail=str(error)
                ) from error
            raise

    def release(self) -> None:
        """Stop being a user of the server; the last one stops it."""
        if self._users is None:
            return
        try:
            with self._lock(time.monotonic() + self._options.start_timeout + self._options.stop_timeout):
                if _try_lock(self._users, fcntl.LOCK_EX):
                    Cluster(self._options).stop()
        finally:
            os.close(self._users)
            self._users = None

    def _make_folder(self) -> None:
        if not self.data_dir.is_dir():
            # Where there is nothing to run, or nobody to run it, no folder is left behind.
            serving_account(self._options.data)
            find_programs()
            self.data_dir.mkdir(parents=True, exist_ok=True)
            # Whoever PostgreSQL runs as must pass through, whatever our umask; secrets are closed one by one.
            self.data_dir.chmod(0o755)

    def _join(self) -> None:
        if self._users is None:
            self._users = self._open("users")
            _try_lock(self._users, fcntl.LOCK_SH)  # never refused: to have it alone takes the lock we hold

    @contextmanager
    def _lock(self, deadline: float) -> Iterator[None]:
        descriptor = self._open("lock")
        try:
            while not _try_lock(descriptor, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise self._overdue()
                time.sleep(POLL)
            yield
        finally:
            os.close(descriptor)

    def _overdue(self) -> EmbeddedError:
        return EmbeddedError(
            "QH504",
            "another process takes too long to start or stop the server",
            detail=f"It holds {self.data_dir / 'lock'}.\nEnd of {self.log_path}:\n{tail(self.log_path)}",
        )

    def _open(self, name: str) -> int:
        """Open a lock file. It belongs to the folder's owner, even if root came first."""
        path = self.data_dir / name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except PermissionError as error:
            raise EmbeddedError(
                "QH504",
                f"{self.data_dir} belongs to another user",
                detail=str(error),
                hint="Run as that user, or choose another folder.",
            ) from error
        if os.geteuid() == 0:
            owner = self.data_dir.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor


@contextmanager
def temporary_postgres(
    *, settings: Mapping[str, str] | None = None, inside: Path | None = None
) -> Iterator[EmbeddedPostgres]:
    """A server for tests and measurements, gone with its data at the end. It starts when asked to run."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=inside) as folder:
        os.chmod(folder, 0o755)  # else, as root, the data would have to go elsewhere, and stay
        server = EmbeddedPostgres(data_dir=Path(folder) / "server", settings=settings)
        try:
            yield server
        finally:
            server.release()


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
