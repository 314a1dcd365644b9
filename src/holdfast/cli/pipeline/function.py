"""holdfast pipeline run module:function: a function of the user's, from DataFrame to DataFrame."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli._command import Invocation, command

from ._launch import Conf, DryRun, Master, Verbose, launch


def register(run: typer.Typer) -> None:
    """Add this command."""
    command(run)(function)


def function(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="Takes and returns a DataFrame.")],
    source: Annotated[str, typer.Option("--from", metavar="QUEUE", help="Whose messages it is given.")],
    to: Annotated[
        str, typer.Option("--to", metavar="QUEUE|FOLDER", help="Where its rows go; a folder has a / in it.")
    ],
    state: Annotated[
        str, typer.Option("--state", help="ready, scheduled, blocked, in_flight, live, dead, archive or log.")
    ] = "ready",
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Only those for which this holds, in PostgreSQL's SQL."),
    ] = None,
    payload_schema: Annotated[
        str | None,
        typer.Option("--payload-schema", metavar="DDL", help="Payloads as columns: 'order BIGINT, …'."),
    ] = None,
    write_id: Annotated[
        str | None,
        typer.Option("--write-id", metavar="NAME", help="A queue takes a write of this name once."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Messages of a queue through a function of yours, to a queue or a folder of Parquet.

    The word function may be left out: holdfast pipeline run shop.prices:raised --from orders --to repriced
    """
    from holdfast.spark.pipelines.function import Function

    pipeline = Function(
        function=name,
        source=source,
        to=to,
        state=state,
        where=where,
        payload_schema=payload_schema,
        write_id=write_id,
        overwrite=overwrite,
    )
    launch(invocation, pipeline, dry_run=dry_run, master=master, conf=conf, verbose=verbose)
