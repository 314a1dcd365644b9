"""holdfast pipeline run replay: ended messages, sent once more."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli._command import Invocation, command
from holdfast.cli._values import instant

from ._launch import Conf, DryRun, Master, Rate, Verbose, launch


def register(run: typer.Typer) -> None:
    """Add this command."""
    command(run)(replay)


def replay(
    invocation: Invocation,
    queues: Annotated[
        list[str],
        typer.Option("--queue", metavar="QUEUE", help="Where they ended; may be repeated."),
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="QUEUE", help="Where they go; else back to their queues.")
    ] = None,
    lake: Annotated[
        str | None, typer.Option("--lake", metavar="PATH", help="Also those that are in this lake by now.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", parser=instant, metavar="TIME", help="Those that ended then or later."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", parser=instant, metavar="TIME", help="Those that ended before; else all."),
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option("--outcome", help="done, expired, failed or discarded; may be repeated; else all."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Only those for which this holds, in Spark SQL."),
    ] = None,
    rate: Rate = None,
    write_id: Annotated[
        str | None,
        typer.Option("--write-id", metavar="NAME", help="What it is known by; else its other options."),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Messages of an archive or a lake, sent once more, each once.

    They go in the order in which they ended, as new messages that know where they come from. The same command
    again sends nothing twice; after a crash it goes on where it stopped.
    """
    from holdfast.spark.pipelines.replay import Replay

    pipeline = Replay(
        queues=queues,
        to=to,
        lake=lake,
        since=since.isoformat() if since else None,
        until=until.isoformat() if until else None,
        outcomes=outcome or [],
        where=where,
        rate=rate,
        write_id=write_id,
    )
    launch(invocation, pipeline, dry_run=dry_run, master=master, conf=conf, verbose=verbose)
