"""holdfast pipeline run stream: a queue as it is filled, to a queue, a folder or a table."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli._command import Invocation, command
from holdfast.cli._values import duration

from ._launch import Conf, DryRun, Master, Verbose, launch
from .load import single


def register(run: typer.Typer) -> None:
    """Add this command."""
    command(run)(stream)


def stream(
    invocation: Invocation,
    source: Annotated[str, typer.Option("--from", metavar="QUEUE", help="The queue that is streamed.")],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="FOLDER", help="Where the stream keeps its place.")
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="QUEUE|FOLDER", help="Where its rows go; a folder has a / in it."),
    ] = None,
    to_table: Annotated[
        str | None,
        typer.Option("--to-table", metavar="SCHEMA.TABLE", help="A table of the database instead."),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="consume takes messages; tail reads a log or an archive along.")
    ] = "consume",
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="SQL", help="A query of Spark SQL over the view messages.")
    ] = None,
    function: Annotated[
        str | None,
        typer.Option("--function", metavar="MODULE:FUNCTION", help="Takes and returns a DataFrame instead."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Work off what is there now, and end.")] = False,
    trigger: Annotated[
        timedelta | None,
        typer.Option("--trigger", parser=duration, metavar="DURATION", help="Begin a batch only so often."),
    ] = None,
    output_mode: Annotated[
        str, typer.Option("--output-mode", help="append, update or complete: which rows of an aggregate.")
    ] = "append",
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="COLUMN,...", help="A row of the table with this key is replaced."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", help="The most that a batch takes; else 100,000.")
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option("--lease", parser=duration, metavar="DURATION", help="How long a restart may take: 2m."),
    ] = None,
    payload_schema: Annotated[
        str | None,
        typer.Option("--payload-schema", metavar="DDL", help="Payloads as columns: 'order BIGINT, …'."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Of a stream read; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """A queue as a stream, through SQL or a function, to a queue, a folder of Parquet or a table.

    It runs until Ctrl-C, which lets it finish its batch, or with --once until the queue is empty. The same
    command goes on where the last one stopped: the checkpoint knows.
    """
    from holdfast.spark.pipelines.stream import Stream

    pipeline = Stream(
        source=source,
        checkpoint=checkpoint,
        to=to,
        to_table=to_table,
        mode=mode,
        sql=sql,
        function=function,
        once=once,
        trigger=None if trigger is None else trigger.total_seconds(),
        output_mode=output_mode,
        key=[name.strip() for name in key.split(",")] if key else [],
        max_messages=max_messages,
        lease=None if lease is None else lease.total_seconds(),
        payload_schema=payload_schema,
        options=single("--option", option),
    )
    launch(invocation, pipeline, dry_run=dry_run, master=master, conf=conf, verbose=verbose)
