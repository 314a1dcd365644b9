"""Dumping and restoring with PostgreSQL's own programs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from holdfast._programs import Programs
from holdfast.embedded import EmbeddedPostgres
from tests.fault.servers import programs_of

TIMEOUT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Tools:
    """pg_dump, pg_restore and psql of a server's version."""

    programs: Programs

    @classmethod
    def of(cls, server: EmbeddedPostgres) -> Tools:
        """Those that a running server came with."""
        return cls(programs_of(server)[1])

    def dump(self, url: str, file: Path, *options: str) -> Path:
        """Dump a database; custom format unless the file is .sql."""
        form = "plain" if file.suffix == ".sql" else "custom"
        self._run("pg_dump", "--dbname", url, "--format", form, "--file", str(file), *options)
        return file

    def restore(self, file: Path, url: str, *options: str) -> str:
        """Restore a dump; what was said about it. Errors stop it, unless --clean is asked for."""
        if file.suffix == ".sql":
            quiet = ("--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--output", "/dev/null")
            return self._run("psql", "--dbname", url, *quiet, "--file", str(file))
        if "--clean" in options:
            return self._run("pg_restore", "--dbname", url, *options, str(file), strict=False)
        return self._run("pg_restore", "--dbname", url, "--exit-on-error", *options, str(file))

    def _run(self, program: str, *order: str, strict: bool = True) -> str:
        command = [str(self.programs[program]), *order]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert answer.returncode == 0 or not strict, f"{program}: {answer.stderr}"
        return answer.stderr
