"""holdfast dead: look at, send back and discard dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.client import Entry, Holdfast

from ._command import Invocation, command
from ._ending import ExitCode
from ._help import Group
from ._options import After, Limit, Queue, Yes
from ._output import counted, named
from ._values import instant, message_id

app = typer.Typer(cls=Group, help="Look at, send back and discard dead letters.", no_args_is_help=True)

DEAD = "dead"
LAPSED = "lease ran out"

Id = Annotated[int, typer.Argument(parser=message_id, metavar="ID", help="The dead letter.")]
SomeIds = Annotated[list[int], typer.Argument(parser=message_id, metavar="ID...", help="The dead letters.")]
TheseIds = Annotated[
    list[int] | None,
    typer.Argument(parser=message_id, metavar="ID...", help="These dead letters. Else a filter, or --all."),
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters of the queue, up to --limit.")]
Error = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Those whose error contains this text.")
]
Tag = Annotated[str | None, typer.Option("--tag", help="Those with this tag.")]
Before = Annotated[
    datetime | None,
    typer.Option("--dead-before", parser=instant, metavar="TIME", help="Those that died before then."),
]
Since = Annotated[
    datetime | None,
    typer.Option("--dead-after", parser=instant, metavar="TIME", help="Those that died after then."),
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="QUEUE", help="Send them there instead of back.")
]


@command(app, "list")
def list_dead(invocation: Invocation, queue: Queue, limit: Limit = 20, after: After = None) -> None:
    """List the dead letters of a queue."""
    with invocation.client() as client:
        entries = client.browse(queue, DEAD, limit=limit, after=after)
        lines = client.queue_stats(queue).blocked_lines
    columns = ("id", "root_id", "queue", "deliveries", "died_at", "last_error", "tag", "payload")
    letters = [told(invocation, letter(entry)) for entry in entries]
    invocation.output.records(letters, columns, f"{queue} has no dead letters.")
    if lines:
        stand = f"{counted(lines, 'line')} of {queue} {'stands' if lines == 1 else 'stand'} at a dead message"
        invocation.output.note(f"{stand} that is still in the queue: holdfast blocked {queue}")


@command(app)
def show(invocation: Invocation, queue: Queue, id: Id) -> None:
    """Show one dead letter with everything that is known of it."""
    with invocation.client() as client:
        entry = client.message(queue, id)
    if entry is None or entry.state != DEAD:
        invocation.output.error(f"there is no message {id} among the dead letters of {queue}")
        raise typer.Exit(ExitCode.ERROR)
    invocation.output.fields(told(invocation, letter(entry)))


@command(app)
def redrive(
    invocation: Invocation,
    queue: Queue,
    ids: TheseIds = None,
    everything: Everything = False,
    error: Error = None,
    tag: Tag = None,
    dead_before: Before = None,
    dead_after: Since = None,
    limit: Limit = 1000,
    target: Target = None,
) -> None:
    """Send dead letters back: some ids, those that fit a filter, or all. Exits with 5 if no id was one."""
    filter = chosen(error=error, tag=tag, dead_before=dead_before, dead_after=dead_after)
    if not (ids or filter or everything):
        raise typer.BadParameter("say which: ids, a filter such as --error, or --all")
    if ids and everything:
        raise typer.BadParameter("give ids or --all, not both")
    with invocation.client() as client:
        moved = client.redrive(queue, ids or None, filter=filter or None, limit=limit, target=target)
    invocation.output.records(moved, ("id", "new_id"), "Nothing was sent back.")
    if ids:
        done = {each.id for each in moved}
        left = [id for id in dict.fromkeys(ids) if id not in done]
        tell_left(invocation, left, f"which are no dead letters of {queue}, in a lease, or over --limit")
    if ids and not moved:
        raise typer.Exit(ExitCode.NOT_HELD)


@command(app)
def discard(invocation: Invocation, queue: Queue, ids: SomeIds, yes: Yes = False) -> None:
    """Delete dead letters for good, and nothing else. Exits with 5 if no id is one."""
    ids = list(dict.fromkeys(ids))
    invocation.confirm(f"Delete {counted(len(ids), 'dead letter')} of {queue} for good?", yes=yes)
    with invocation.client() as client:
        gone = client.discard(queue, [id for id in ids if is_dead(client, queue, id)])
    left = [id for id in ids if id not in gone]
    invocation.output.document(
        {"ids": gone, "left": left}, f"Discarded {counted(len(gone), 'dead letter')} of {queue}."
    )
    tell_left(invocation, left, f"which are no dead letters of {queue}")
    if not gone:
        raise typer.Exit(ExitCode.NOT_HELD)


def is_dead(client: Holdfast, queue: str, id: int) -> bool:
    """Whether a message is among the dead letters of a queue. It stays so: who leaves them gets a new id."""
    entry = client.message(queue, id)
    return entry is not None and entry.state == DEAD


def tell_left(invocation: Invocation, left: Sequence[int], reason: str) -> None:
    """Name the ids with which nothing was done."""
    if left:
        invocation.output.note(f"Left {len(left)}, {reason}: {', '.join(map(str, left))}")


def letter(entry: Entry) -> dict[str, Any]:
    """A dead letter as it was in life: the queue it died in, and its first id, deliveries and times there.

    Where it lies it is a message of its own, without deliveries; origin keeps what it was.
    """
    origin = entry.origin or {}
    return {
        **named(entry),
        "queue": origin["queue"],
        "dead_letter": entry.queue,
        "root_id": origin["root_id"],
        "deliveries": origin["deliveries"],
        "failures": origin["failures"],
        "max_deliveries": origin.get("max_deliveries"),
        "enqueued_at": datetime.fromisoformat(origin["enqueued_at"]),
        "died_at": datetime.fromisoformat(origin["died_at"]),
    }


def told(invocation: Invocation, letter: dict[str, Any]) -> dict[str, Any]:
    """What people are told of a dead letter: without a failure, it died because its leases ran out."""
    lapsed = letter["last_error"] is None and not letter["failures"]
    return {**letter, "last_error": LAPSED} if lapsed and not invocation.output.as_json else letter


def chosen(**fields: Any) -> dict[str, Any]:
    """The filter: what was asked for, in JSON's own types."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in fields.items()
        if value is not None
    }
