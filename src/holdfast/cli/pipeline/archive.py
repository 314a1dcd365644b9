"""holdfast pipeline run archive: ended messages into a lake."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from holdfast.cli._command import Invocation, command
from holdfast.cli._values import past

from ._launch import Conf, DryRun, Master, Verbose, launch

ROWS = 100_000


def register(run: typer.Typer) -> None:
    """Add this command."""
    command(run)(archive)


def archive(
    invocation: Invocation,
    lake: Annotated[
        str, typer.Option("--to", metavar="LAKE", help="A folder, on any file system of Spark's.")
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="QUEUE", help="Only this queue; may be repeated; else all."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--until", parser=past, metavar="TIME", help="Only what ended before; 7d is so long ago."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep-in-database", help="Copy: remove nothing from the database.")
    ] = False,
    rows: Annotated[int, typer.Option("--rows", help="Messages of a file, at most.")] = ROWS,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Ended messages into a lake of Parquet, compared, then out of the database.

    What queues keep goes to files, by queue and day. It is removed once the files, read back, hold the same.
    The same command again goes on where it was killed; nothing is lost, and nothing is there twice.
    """
    from holdfast.spark.pipelines.archive import Archive

    age: datetime | timedelta | None = until
    pipeline = Archive(
        lake=lake,
        queues=queue or [],
        until=age.isoformat() if isinstance(age, datetime) else None,
        older_than=age.total_seconds() if isinstance(age, timedelta) else None,
        keep=keep,
        rows=rows,
    )
    launch(invocation, pipeline, dry_run=dry_run, master=master, conf=conf, verbose=verbose)
