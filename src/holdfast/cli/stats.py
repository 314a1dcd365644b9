"""holdfast stats: the figures of one queue or of all, now or minute by minute."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated

import typer
from rich.live import Live

from holdfast.client import Holdfast, QueueNotFoundError, QueueStats

from ._command import Invocation, command
from ._output import named, table
from ._values import duration

COLUMNS = (
    "queue",
    "kind",
    "ready",
    "scheduled",
    "blocked",
    "in_flight",
    "dead",
    "blocked_lines",
    "depth",
    "oldest_age",
    "exact",
    "paused",
)
CLASSES = (
    "under_10ms",
    "under_100ms",
    "under_1s",
    "under_10s",
    "under_1min",
    "under_10min",
    "under_1h",
    "longer",
)
BEFORE = ("ended", "sent", "done")
RARE = ("nacked", "lapsed", "dead", "failed", "expired", "discarded", "moved")  # shown if it happened
BEHIND = ("depth", "ready", "in_flight", "oldest_age", "waited", "took")
PAUSE = timedelta(seconds=2)
SHORTEST = timedelta(seconds=0.1)

Name = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only this queue.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show it again and again until Ctrl-C.")]
Every = Annotated[
    timedelta | None,
    typer.Option("--every", parser=duration, metavar="DURATION", help="With --watch: how often."),
]

History = Annotated[
    bool, typer.Option("--history", help="Minute by minute, of one queue, as maintain wrote it down.")
]
Since = Annotated[
    timedelta | None,
    typer.Option("--since", parser=duration, metavar="DURATION", help="With --history: so far back (1h)."),
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(stats)


def stats(
    invocation: Invocation,
    queue: Name = None,
    watch: Watch = False,
    every: Every = None,
    history: History = False,
    since: Since = None,
) -> None:
    """Show how many messages are ready, scheduled, in flight and dead."""
    if history:
        if queue is None or watch:
            raise typer.BadParameter("--history is about one queue, and goes without --watch")
        with invocation.client() as client:
            show_history(invocation, client, queue, since)
        return
    pause = PAUSE if every is None else every
    if pause < SHORTEST:
        raise typer.BadParameter(f"--every is at least {SHORTEST.total_seconds()} s")
    with invocation.client() as client:
        if watch:
            follow(invocation, client, queue, pause.total_seconds())
        else:
            show(invocation, collect(client, queue))


def show_history(invocation: Invocation, client: Holdfast, queue: str, since: timedelta | None) -> None:
    """Print the samples of one queue."""
    samples = client.samples(queue, None if since is None else client.now() - since)
    if invocation.output.as_json:
        invocation.output.records(samples, (), "")
        return
    rows = [
        {**named(sample), "waited": middle(sample.waiting), "took": middle(sample.processing)}
        for sample in samples
    ]
    happened = [name for name in RARE if any(row[name] for row in rows)]
    columns = (*BEFORE, *happened, *BEHIND)
    invocation.output.records(rows, columns, f"{queue} has no samples: does anybody call maintain?")


def middle(histogram: dict[str, int]) -> str | None:
    """The class in which the median lies; none if nothing was counted."""
    half = sum(histogram.values()) / 2
    seen = 0
    for name in CLASSES:
        seen += histogram[name]
        if seen >= half > 0:
            return name.replace("_", " ")
    return None


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
