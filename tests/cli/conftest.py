"""The command line as people run it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(sys.executable).parent / "holdfast"
PATIENCE = 60.0  # seconds a command takes at most
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        """Its one JSON document."""
        (only,) = self.lines
        return only


Run = Callable[..., Answer]


def environment(database_url: str | None = None, **variables: str) -> Mapping[str, str]:
    """This process's environment, with the test's database and nothing of the developer's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_DATABASE")}
    chosen = {"HOLDFAST_DATABASE_URL": database_url} if database_url else {}
    return {**kept, **chosen, **variables, "NO_COLOR": "1", "COLUMNS": "120"}


def execute(*words: str, env: Mapping[str, str], stdin: str = "", cwd: Path | None = None) -> Answer:
    """Run holdfast with these words."""
    done = subprocess.run(
        [str(PROGRAM), *words],
        env=env,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(database_url: str) -> Run:
    """Run holdfast on the test's database."""

    def running(*words: str, stdin: str = "") -> Answer:
        return execute(*words, env=environment(database_url), stdin=stdin)

    return running


@contextmanager
def started(
    *words: str, cwd: Path | None = None, database_url: str | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until it is told to end; killed if it does not."""
    with subprocess.Popen(
        [str(PROGRAM), *words],
        env=environment(database_url),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
