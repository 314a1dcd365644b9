"""holdfast pipeline run redrive: dead letters, repaired and sent back."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli._command import Invocation, command
from holdfast.cli._options import Queue

from ._launch import Conf, DryRun, Master, Rate, Verbose, launch


def register(run: typer.Typer) -> None:
    """Add this command."""
    command(run)(redrive)


def redrive(
    invocation: Invocation,
    queue: Queue,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Only those for which this holds, in PostgreSQL's SQL."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PLACE=SQL",
            help="A column, or a field as payload.country, becomes this in Spark SQL; may be repeated.",
        ),
    ] = None,
    removed: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="FIELD", help="A field that goes: payload.country; may be repeated."),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option("--function", metavar="MODULE:FUNCTION", help="Repairs them: DataFrame to DataFrame."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="QUEUE", help="Send them there instead of back.")
    ] = None,
    rate: Rate = None,
    quarantine: Annotated[
        str | None,
        typer.Option("--quarantine", metavar="FOLDER", help="Lists those that cannot be sent back."),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Dead letters, repaired and sent back, nothing twice.

    They keep key, order and priority, unless you set them. Run it with --dry-run first: it shows what would
    change, and what would be refused. The same command again goes on where it stopped.
    """
    from holdfast.spark.pipelines.redrive import Redrive

    pipeline = Redrive(
        queue=queue,
        where=where,
        assignments=assignments or [],
        removed=removed or [],
        function=function,
        target=target,
        rate=rate,
        quarantine=quarantine,
    )
    launch(invocation, pipeline, dry_run=dry_run, master=master, conf=conf, verbose=verbose)
