"""holdfast pipeline run insights: what happened in queues."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from holdfast.cli._command import Invocation, command
from holdfast.cli._values import past

from ._launch import Conf, DryRun, Master, Verbose, launch

REPORT = "holdfast-insights.html"


def register(run: typer.Typer) -> None:
    """Add this command."""
    command(run)(insights)


def insights(
    invocation: Invocation,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="QUEUE", help="Only this one; may be repeated. Else all."),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", parser=past, metavar="TIME", help="From when on; 24h: 24 hours ago."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", parser=past, metavar="TIME", help="Up to when; else up to now."),
    ] = None,
    bucket: Annotated[
        str | None, typer.Option("--bucket", help="1m, 5m, 1h or 1d; else by how long the range is.")
    ] = None,
    lake: Annotated[
        str | None, typer.Option("--lake", metavar="FOLDER", help="What the pipeline archive has written.")
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option("--objective", metavar="TEXT", help="'orders: waiting p95 < 5s'; may be repeated."),
    ] = None,
    report: Annotated[str, typer.Option("--report", metavar="FILE", help="The report, as HTML.")] = REPORT,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FOLDER", help="Rollups as Parquet, too.")
    ] = None,
    no_rollups: Annotated[
        bool, typer.Option("--no-rollups", help="Write no rollups to the database.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """What happened in queues: rollups by time, and a report as one HTML file.

    Throughput, waiting and processing times, failures, dead letters, hot keys, consumers, and objectives that
    were missed. The same range again replaces what it wrote.
    """
    from holdfast.spark.pipelines.insights import DAY, Insights

    pipeline = Insights(
        queues=queue or [],
        since=since or DAY,
        until=until or timedelta(),
        bucket=bucket,
        lake=lake,
        objectives=objective or [],
        report=None if no_report else report,
        output=output,
        rollups=not no_rollups,
    )
    launch(invocation, pipeline, dry_run=dry_run, master=master, conf=conf, verbose=verbose)
