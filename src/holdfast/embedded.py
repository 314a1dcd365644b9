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
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from holdfast._cluster import HIGHEST_PORT, Cluster, Options, tail
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
        settings: Mapping[str, object] | None = None,
        start_timeout: float = 60.0,
        stop_timeout: float = 60.0,
    ) -> None:
        if port is not None and not 1 <= port <= HIGHEST_PORT:
            raise ValueError(f"port must be between 1 and 65535, not {port}")
        if start_timeout <= 0 or stop_timeout <= 0:
            raise ValueError("start_timeout and stop_timeout must be positive")
        self._options = Options(
            data_dir=Path(data_dir).expanduser().absolute(),
            port=port,
            settings={name: str(value) for name, value in (settings or {}).items()},
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
            with self._enter(deadline) as new:
                self._join()
                try:
                    return Cluster(self._options).run(deadline)
                except BaseException:
                    if new:
                        self._remove_folder()
                    raise
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
            self._leave()

    @contextmanager
    def _enter(self, deadline: float) -> Iterator[bool]:
        """Have the folder to ourselves; True if we made it, and nobody has made a server in it since."""
        while True:
            made = self._make_folder()
            with self._lock(deadline) as lock:
                if self._is_there(lock):
                    yield made and not self._options.data.exists()
                    return

    def _make_folder(self) -> bool:
        """Make the folder if it is not there: True if that was us."""
        if self.data_dir.is_dir():
            return False
        # Where there is nothing to run, or nobody to run it, no folder is left behind.
        serving_account(self._options.data)
        find_programs()
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.data_dir.mkdir()
        except FileExistsError:
            if self.data_dir.is_dir():
                return False
            raise
        # Whoever PostgreSQL runs as must pass through, whatever our umask; secrets are closed one by one.
        self.data_dir.chmod(0o755)
        return True

    def _remove_folder(self) -> None:
        """Under the lock: remove the folder that we have made, since no server came of it.

        At one stroke, by another name: who waits for the lock sees that it is gone, and makes a folder anew.
        """
        link = self._options.link
        with suppress(EmbeddedError, OSError):  # the first error is the one to tell
            if self._options.data.exists():
                Cluster(self._options).stop()
                if not Postmaster(self._options.data).is_gone():
                    return
            elsewhere = link.resolve() if link.is_symlink() else None
            doomed = tempfile.mkdtemp(prefix=f"{self.data_dir.name}.", dir=self.data_dir.parent)
            self.data_dir.rename(doomed)
            self._leave()
            shutil.rmtree(doomed)
            if elsewhere is not None:
                shutil.rmtree(elsewhere)

    def _join(self) -> None:
        if self._users is None:
            self._users = self._open("users")
            _try_lock(self._users, fcntl.LOCK_SH)  # never refused: to have it alone takes the lock we hold

    def _leave(self) -> None:
        if self._users is not None:
            os.close(self._users)
            self._users = None

    @contextmanager
    def _lock(self, deadline: float) -> Iterator[int]:
        descriptor = self._open("lock")
        try:
            while not _try_lock(descriptor, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise self._overdue()
                time.sleep(POLL)
            yield descriptor
        finally:
            os.close(descriptor)

    def _is_there(self, lock: int) -> bool:
        """Whether a lock that we have is the folder's. Who made the folder may have removed it again."""
        try:
            return os.path.samestat(os.fstat(lock), os.stat(self.data_dir / "lock"))
        except FileNotFoundError:
            return False

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
    *, settings: Mapping[str, object] | None = None, inside: Path | None = None
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
