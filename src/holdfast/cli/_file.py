"""Sending a file, line by line, with a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer
from psycopg.types.json import Jsonb
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from holdfast.client import NewMessage

from ._command import Invocation
from ._output import counted
from ._values import json_payload

COPY_ROWS = 5_000
STDIN = "-"


def send_file(
    invocation: Invocation,
    queue: str,
    path: Path,
    options: dict[str, Any],
    *,
    text: bool,
    chunk: int,
    atomic: bool,
) -> None:
    """Send one message for each line that is not empty."""
    with (
        opened(path) as (file, size),
        bar(invocation, size) as (progress, task),
        invocation.client() as client,
    ):
        payloads = read(file, progress, task, text=text)
        sent = client.bulk_send(
            queue,
            (NewMessage(payload=payload, **options) for payload in payloads),
            chunk=chunk,
            atomic=atomic,
            progress=lambda total: progress.update(task, sent=total),
        )
    invocation.output.document({"queue": queue, "sent": sent}, f"Sent {counted(sent, 'message')} to {queue}.")


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], int | None]]:
    """The file and its size, which stdin does not have."""
    if str(path) == STDIN:
        yield sys.stdin.buffer, None
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"can't read {path}: {error.strerror}") from error
    with file:
        yield file, path.stat().st_size


@contextmanager
def bar(invocation: Invocation, size: int | None) -> Iterator[tuple[Progress, TaskID]]:
    """A progress bar on stderr, if a person is there to see it."""
    columns = (BarColumn(), TextColumn("{task.fields[sent]:,} sent"), TimeRemainingColumn())
    console = invocation.output.aside
    shown = console.is_terminal and not invocation.output.as_json
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        yield progress, progress.add_task("", total=size, sent=0)


def read(file: IO[bytes], progress: Progress, task: TaskID, *, text: bool) -> Iterator[Jsonb]:
    """The payloads, one for each line."""
    for number, line in enumerate(file, start=1):
        progress.advance(task, len(line))
        if line.strip():
            yield parse(number, line, text=text)


def parse(number: int, line: bytes, *, text: bool) -> Jsonb:
    """One line as a payload."""
    try:
        content = line.decode()
        return Jsonb(content.rstrip("\r\n")) if text else json_payload(content)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"line {number} is not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise typer.BadParameter(f"line {number} is not JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"line {number} is not UTF-8") from error
