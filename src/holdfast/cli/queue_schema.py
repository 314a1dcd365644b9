"""holdfast schema: what the payloads of a queue must look like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg.types.json import Jsonb

from holdfast.client import SchemaFinding

from ._command import Invocation, command
from ._ending import ExitCode
from ._file import opened, parse
from ._help import Group
from ._options import Queue, Yes
from ._output import named
from ._values import json_payload, shortened, stdin_text

STDIN = "-"

app = typer.Typer(cls=Group, help="What payloads must look like: JSON Schema or Avro.", no_args_is_help=True)


class Kind(StrEnum):
    """The kinds of schemas."""

    JSON = "json"
    AVRO = "avro"


class Mode(StrEnum):
    """Which changes are allowed."""

    NONE = "none"
    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"


Definition = Annotated[
    str, typer.Argument(metavar="FILE|JSON", help="A file, - for stdin, or the schema itself.")
]
Kinds = Annotated[Kind | None, typer.Option("--kind", help="JSON Schema, by default, or Avro.")]
Modes = Annotated[
    Mode | None, typer.Option("--compatibility", help="Which changes are allowed; at first backward.")
]
Expected = Annotated[
    int | None, typer.Option("--expected-version", min=0, help="Only if this one is in force; 0: none.")
]
Version = Annotated[int | None, typer.Option("--version", help="This version instead of the one in force.")]
Lines = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="Check each line of a file; - is stdin.")
]
Payload = Annotated[str | None, typer.Argument(metavar="[PAYLOAD]", help="Check this payload.")]
Against = Annotated[
    str | None, typer.Option("--definition", metavar="FILE|JSON", help="By this schema, as if it were set.")
]


@command(app, "set")
def set_schema(
    invocation: Invocation,
    queue: Queue,
    definition: Definition,
    kind: Kinds = None,
    compatibility: Modes = None,
    expected_version: Expected = None,
) -> None:
    """Set the schema of a queue. The same once more is no new version."""
    wanted = read_definition(definition)
    with invocation.client() as client:
        version = client.set_schema(
            queue, wanted, kind=kind, compatibility=compatibility, expected_version=expected_version
        )
    text = f"Version {version} of the schema of {queue} is in force."
    invocation.output.document({"queue": queue, "version": version}, text)


@command(app)
def show(invocation: Invocation, queue: Queue, version: Version = None) -> None:
    """Show the schema of a queue. Exits with 4 if there is none."""
    with invocation.client() as client:
        found = [each for each in client.schema_versions(queue) if version in (None, each.version)]
    if not found or (version is None and found[0].dropped_at is not None):
        invocation.output.note(
            f"Queue {queue} has no schema." if version is None else f"No version {version}."
        )
        raise typer.Exit(ExitCode.NOTHING)
    invocation.output.fields(named(found[0]))


@command(app)
def versions(invocation: Invocation, queue: Queue) -> None:
    """List the versions of a queue's schema, the newest first."""
    with invocation.client() as client:
        found = client.schema_versions(queue)
    columns = ("version", "kind", "compatibility", "created_at", "dropped_at", "definition")
    invocation.output.records(found, columns, f"Queue {queue} has had no schema.")


@command(app)
def drop(invocation: Invocation, queue: Queue, yes: Yes = False) -> None:
    """Let the payloads of a queue be anything; the versions are kept."""
    invocation.confirm(f"Drop the schema of {queue}?", yes=yes)
    with invocation.client() as client:
        dropped = client.drop_schema(queue)
    text = f"Dropped the schema of {queue}." if dropped else f"Queue {queue} had no schema."
    invocation.output.document({"queue": queue, "dropped": dropped}, text)


@command(app)
def check(
    invocation: Invocation,
    queue: Queue,
    payload: Payload = None,
    file: Lines = None,
    definition: Against = None,
    kind: Kinds = None,
    compatibility: Modes = None,
) -> None:
    """Say what would be refused, of payloads or of another schema, and change nothing. Exits with 1 if so."""
    if payload is not None and file is not None:
        raise typer.BadParameter("give only one of: a payload, --file")
    if payload is None and file is None and definition is None:
        raise typer.BadParameter("give what to check: a payload, --file or --definition")
    numbered = list(lines(file)) if file is not None else []
    payloads = [] if payload is None else [read(payload)]
    with invocation.client() as client:
        found = client.check_schema(
            queue,
            payloads or [content for _, content in numbered],
            definition=None if definition is None else read_definition(definition),
            kind=kind,
            compatibility=compatibility,
        )
    place = "index" if file is None else "line"
    told = found if file is None else [with_line(finding, numbered) for finding in found]
    invocation.output.records(told, (place, "path", "reason"), "Nothing would be refused.")
    if found:
        raise typer.Exit(ExitCode.ERROR)


def read_definition(given: str) -> Jsonb:
    """A schema: from stdin, from a file, or as it was typed."""
    if given != STDIN and not given.lstrip().startswith(("{", "[", '"')) and given not in ("true", "false"):
        try:
            return read(Path(given).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"can't read {shortened(given)}: {error}") from error
    return read(given)


def read(given: str) -> Jsonb:
    """JSON as it was written, or from stdin."""
    content = stdin_text() if given == STDIN else given
    try:
        return json_payload(content)
    except (RecursionError, ValueError) as error:
        raise typer.BadParameter(f"{shortened(content)} is not JSON ({error})") from error


def with_line(finding: SchemaFinding, numbered: Sequence[tuple[int, Jsonb]]) -> dict[str, Any]:
    """What would be refused, with the line that it is in."""
    return {**named(finding), "line": None if finding.index is None else numbered[finding.index][0]}


def lines(path: Path) -> Iterator[tuple[int, Jsonb]]:
    """The payloads of a file, one for each line that is not empty, and its number."""
    with opened(path) as (file, _):
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, parse(number, line, text=False)
