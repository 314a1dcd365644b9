"""holdfast pipeline run load: files or tables into a queue."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from holdfast.cli._command import Invocation, command

from ._launch import Conf, DryRun, Master, Verbose, launch

SIZE = re.compile(r"([0-9]+)([kmg]?)", re.IGNORECASE)
UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
CHUNK = 64 * UNITS["m"]
SMALLEST_CHUNK = 1024


def register(run: typer.Typer) -> None:
    """Add this command."""
    command(run)(load)


def size(text: str) -> int:
    """Bytes, or with k, m, g."""
    found = SIZE.fullmatch(text.strip())
    number = int(found[1]) * UNITS[found[2].lower()] if found else 0
    if number < SMALLEST_CHUNK:
        raise typer.BadParameter(f"got {text}; expected a size such as 64m, from 1k on")
    return number


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """NAME=VALUE, parted by commas, or the option more than once."""
    found: dict[str, str] = {}
    for part in (part for text in given or [] for part in text.split(",")):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name or not value or name in found:
            raise typer.BadParameter(f"{option} {part}: expected NAME=VALUE, each name once")
        found[name] = value
    return found


def single(option: str, given: list[str] | None) -> dict[str, str]:
    """NAME=VALUE, in which the value may be anything."""
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option} {text}: expected NAME=VALUE")
        found[name] = value
    return found


def load(
    invocation: Invocation,
    to: Annotated[str, typer.Option("--to", metavar="QUEUE", help="The queue.")],
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Files, folders or globs, on any file system of Spark's."),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="A table of Spark's catalog instead.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="SQL", help="What a query of Spark SQL returns instead.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="json (lines), json-array, csv or parquet; else by the names."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Of Spark's reader; may be repeated."),
    ] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="DDL", help="Columns that rows must have, with types.")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OPTION=COLUMN,...", help="Columns that are options of a send."),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="COLUMN", help="The payload; else the whole row."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The payload is plain text, not JSON.")] = False,
    drop_mapped: Annotated[
        bool, typer.Option("--drop-mapped", help="Take mapped columns out of the payload.")
    ] = False,
    quarantine: Annotated[
        str | None,
        typer.Option("--quarantine", metavar="FOLDER", help="For rows that are no messages."),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option("--chunk", parser=size, metavar="SIZE", help="How much is sent at once: 64m."),
    ] = None,
    atomic: Annotated[bool, typer.Option("--atomic", help="All in one transaction.")] = False,
    write_id: Annotated[
        str | None,
        typer.Option("--write-id", metavar="NAME", help="What it is known by; else its files."),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Files or tables into a queue, validated, nothing twice.

    Rows that are no messages fail the load before anything is sent, or go to a quarantine with their reasons.
    The same command again sends nothing twice; after a crash it goes on where it stopped.
    """
    from holdfast.spark.pipelines.load import Load

    pipeline = Load(
        to=to,
        paths=paths or [],
        table=table,
        query=query,
        format=format,
        options=single("--option", option),
        schema=schema,
        mapping=pairs("--map", mapping),
        payload=payload,
        text=text,
        drop_mapped=drop_mapped,
        quarantine=quarantine,
        chunk=chunk or CHUNK,
        atomic=atomic,
        write_id=write_id,
    )
    launch(invocation, pipeline, dry_run=dry_run, master=master, conf=conf, verbose=verbose)
