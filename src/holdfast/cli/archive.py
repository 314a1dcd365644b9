"""holdfast queue purge, holdfast replay: what ends many messages, and what sends ended ones once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from holdfast.client import Holdfast, Replayed

from ._command import Invocation, command
from ._options import After, Limit, Queue, Yes
from ._output import counted
from ._values import past

CHUNK = 10_000  # messages in one call: a transaction of its own
PAGE = 1_000
STATES = ("ready", "scheduled", "blocked", "in_flight", "dead", "archive")

Purgeable = Annotated[
    list[str] | None,
    typer.Option("--state", help="ready, scheduled, blocked, in_flight, dead or archive; may be repeated."),
]
Everything = Annotated[bool, typer.Option("--all", help="All of these states.")]
From = Annotated[
    datetime | None,
    typer.Option("--from", parser=past, metavar="TIME", help="Those that ended since; 6h: 6 hours ago."),
]
To = Annotated[
    datetime | None,
    typer.Option("--to", parser=past, metavar="TIME", help="Those that ended before; 6h: 6 hours ago."),
]
All = Annotated[bool, typer.Option("--all", help="The whole archive, up to --limit.")]
Outcomes = Annotated[
    list[str] | None,
    typer.Option("--outcome", help="done, expired, failed or discarded; may be repeated; else all."),
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="QUEUE", help="Send them there instead of back.")
]


def register(app: typer.Typer, queues: typer.Typer) -> None:
    """Add these commands."""
    command(queues)(purge)
    command(app)(replay)


def purge(
    invocation: Invocation,
    queue: Queue,
    state: Purgeable = None,
    everything: Everything = False,
    yes: Yes = False,
) -> None:
    """End all messages that are in some state."""
    states = list(STATES) if everything else state
    if not states:
        raise typer.BadParameter("say which: --state ready, or --all")
    invocation.confirm(f"End the messages of queue {queue} that are {', '.join(states)}?", yes=yes)
    with invocation.client() as client, counting(invocation, "purged") as show:
        purged, more = purge_all(client, queue, states, show)
    text = f"Purged {counted(purged, 'message')} of {queue}."
    if more:
        text += " Some may be left: somebody else is claiming at this moment."
    invocation.output.document({"queue": queue, "purged": purged, "more": more}, text)


def purge_all(
    client: Holdfast, queue: str, states: list[str], show: Callable[[int], None]
) -> tuple[int, bool]:
    """Purge in chunks until nothing is left, or nothing more can be got."""
    total = 0
    while True:
        chunk = client.purge(queue, states, limit=CHUNK)
        total += chunk.purged
        show(total)
        if not (chunk.more and chunk.purged):
            return total, chunk.more


def replay(
    invocation: Invocation,
    queue: Queue,
    from_: From = None,
    to: To = None,
    outcome: Outcomes = None,
    limit: Limit = PAGE,
    target: Target = None,
    after: After = None,
    everything: All = False,
) -> None:
    """Send messages of the archive once more, the first to end first."""
    if not (everything or from_ or to or outcome):
        raise typer.BadParameter("say which: --from, --to, --outcome, or --all")
    replayed = 0
    last: Replayed | None = None
    with invocation.client() as client, counting(invocation, "sent") as show:
        from_, to = (moment(client, time) for time in (from_, to))
        while replayed < limit or not replayed:
            size = PAGE if limit - replayed > PAGE else limit - replayed
            page = client.replay(queue, from_, to, outcomes=outcome, limit=size, target=target, after=after)
            replayed += len(page)
            show(replayed)
            if page:
                last = page[-1]
                from_, after = last.ended_at, last.id
            if len(page) < size:
                break
    answer = {
        "queue": queue,
        "replayed": replayed,
        "ended_at": last.ended_at if last else None,
        "after": last.id if last else None,
    }
    text = f"Sent {counted(replayed, 'message')} of {queue} once more."
    if last and replayed == limit:
        text += f" To go on: --from {last.ended_at.isoformat()} --after {last.id}"
    invocation.output.document(answer, text)


def moment(client: Holdfast, time: datetime | timedelta | None) -> datetime | None:
    """When it was; so long ago by the clock of the database."""
    return client.now() - time if isinstance(time, timedelta) else time


@contextmanager
def counting(invocation: Invocation, word: str) -> Iterator[Callable[[int], None]]:
    """A running count on stderr, if a person is there to see it."""
    console = invocation.output.aside
    shown = console.is_terminal and not invocation.output.as_json
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + word))
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=None)
        yield lambda count: progress.update(task, completed=count)
