"""holdfast psql, pg_dump, pg_restore: PostgreSQL's own programs, on the database of the command line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from psycopg import conninfo, pq

from holdfast._programs import find_programs
from holdfast.database import database
from holdfast.embedded import EmbeddedError

from ._command import Invocation, command

# What the program takes is not for us to read: everything behind our own options goes on to it.
PASSED_ON = {
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": ["--help"],
}
KILLED = 128  # a shell's exit code for a program that a signal ended, less the signal's number

Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARGUMENT...", help="What the program itself takes.")
]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for function in (psql, pg_dump, pg_restore):
        command(app, function.__name__, **PASSED_ON)(function)


def psql(invocation: Invocation, arguments: Arguments = None) -> None:
    """Run psql on the database, of a version that fits."""
    run(invocation, "psql", arguments or [])


def pg_dump(invocation: Invocation, arguments: Arguments = None) -> None:
    """Run pg_dump on the database, of a version that fits."""
    run(invocation, "pg_dump", arguments or [])


def pg_restore(invocation: Invocation, arguments: Arguments = None) -> None:
    """Run pg_restore on the server of the database, of a version that fits."""
    run(invocation, "pg_restore", arguments or [])


def run(invocation: Invocation, name: str, arguments: Sequence[str]) -> None:
    """Run a program to its end; its exit code is ours."""
    program = find_program(name)
    with database(invocation.database_url, create=False) as url:
        code = finished([str(program), *arguments], {**os.environ, **variables(url)})
    raise typer.Exit(code if code >= 0 else KILLED - code)


def find_program(name: str) -> Path:
    """Where a program is: among the embedded server's, which are the newest, else on the PATH."""
    missing = EmbeddedError("QH504", f"there is no {name} to run", hint=f"Install PostgreSQL's {name}.")
    try:
        program = find_programs()[name]
        if program.is_file():
            return program
    except EmbeddedError as error:
        missing = error
    if found := shutil.which(name):
        return Path(found)
    raise missing


def variables(url: str) -> Mapping[str, str]:
    """A database's address in libpq's variables: words of a command could be read by every user."""
    known = {option.keyword.decode(): option.envvar for option in pq.Conninfo.get_defaults()}
    parts = conninfo.conninfo_to_dict(url)
    return {
        variable.decode(): str(part) for name, part in parts.items() if (variable := known.get(name)) and part
    }


def finished(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program on our terminal. Ctrl-C reaches it by itself, and is its own; SIGTERM is passed on."""
    with subprocess.Popen(words, env=environment) as process:

        def pass_on(number: int, frame: FrameType | None) -> None:
            process.terminate()

        before = signal.signal(signal.SIGINT, leave_alone), signal.signal(signal.SIGTERM, pass_on)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before[0])
            signal.signal(signal.SIGTERM, before[1])


def leave_alone(number: int, frame: FrameType | None) -> None:
    """A handler and not SIG_IGN, which the program would inherit."""
