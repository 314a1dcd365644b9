"""holdfast stats: the figures of one queue or of all."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated

import typer
from rich.live import Live

from holdfast.client import Holdfast, QueueNotFoundError, QueueStats

from ._command import Invocation, command
from ._output import table
from ._values import duration

COLUMNS = ("queue", "ready", "scheduled", "in_flight", "dead", "depth", "oldest_age", "exact", "paused")
PAUSE = timedelta(seconds=2)
SHORTEST = timedelta(seconds=0.1)

Name = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only this queue.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show it again and again until Ctrl-C.")]
Every = Annotated[
    timedelta | None,
    typer.Option("--every", parser=duration, metavar="DURATION", help="With --watch: how often."),
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(stats)


def stats(invocation: Invocation, queue: Name = None, watch: Watch = False, every: Every = None) -> None:
    """Show how many messages are ready, scheduled, in flight and dead."""
    pause = PAUSE if every is None else every
    if pause < SHORTEST:
        raise typer.BadParameter(f"--every is at least {SHORTEST.total_seconds()} s")
    with invocation.client() as client:
        if watch:
            follow(invocation, client, queue, pause.total_seconds())
        else:
            show(invocation, collect(client, queue))


def collect(client: Holdfast, queue: str | None) -> list[QueueStats]:
    """The figures of one queue, or of all that are there."""
    if queue is not None:
        return [client.queue_stats(queue)]
    found = []
    for info in client.queues():
        try:
            found.append(client.queue_stats(info.queue))
        except QueueNotFoundError:
            continue  # dropped since it was listed
    return found


def show(invocation: Invocation, figures: list[QueueStats]) -> None:
    """Print once."""
    invocation.output.records(figures, COLUMNS, "There are no queues.")


def follow(invocation: Invocation, client: Holdfast, queue: str | None, every: float) -> None:
    """Print until interrupted: JSON lines, or a table that stays in place."""
    if invocation.output.as_json:
        while True:
            show(invocation, collect(client, queue))
            time.sleep(every)
    with Live(console=invocation.output.people, auto_refresh=False) as live:
        while True:
            live.update(table(collect(client, queue), COLUMNS), refresh=True)
            time.sleep(every)
