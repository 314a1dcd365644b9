"""holdfast log read, stats, delete: logs, which are read by sequence number."""

from __future__ import annotations

from typing import Annotated

import typer

from ._command import Invocation, command
from ._help import Group
from ._options import Limit, Queue, Tag, Yes
from ._output import counted
from ._values import sequence_number

COLUMNS = ("kind", "seq", "from_seq", "enqueued_at", "tag", "payload")

Behind = Annotated[
    int,
    typer.Option("--after", parser=sequence_number, metavar="SEQ", help="Go on behind this sequence number."),
]
Seqs = Annotated[
    list[int] | None, typer.Argument(parser=sequence_number, metavar="SEQ...", help="These records.")
]
Before = Annotated[
    int | None,
    typer.Option("--before", parser=sequence_number, metavar="SEQ", help="All before this sequence number."),
]

app = typer.Typer(cls=Group, no_args_is_help=True, help="Read logs by sequence number, and delete from them.")


@command(app)
def read(invocation: Invocation, queue: Queue, after: Behind = 0, limit: Limit = 100) -> None:
    """Show the records of a log behind a sequence number."""
    with invocation.client() as client:
        records = client.read(queue, after, limit=limit)
    invocation.output.records(records, COLUMNS, f"Nothing in {queue} behind {after}.")


@command(app)
def stats(invocation: Invocation, queue: Queue) -> None:
    """Show from where to where a log can be read, and how much it holds."""
    with invocation.client() as client:
        invocation.output.fields(client.log_stats(queue))


@command(app)
def delete(
    invocation: Invocation,
    queue: Queue,
    seqs: Seqs = None,
    tag: Tag = None,
    before: Before = None,
    limit: Limit = 10_000,
    yes: Yes = False,
) -> None:
    """Delete records of a log, for good."""
    invocation.confirm(f"Delete records of {queue}?", yes=yes)
    with invocation.client() as client:
        deleted = client.log_delete(queue, seqs or None, tag=tag, before=before, limit=limit)
    text = f"Deleted {counted(deleted, 'record')} of {queue}."
    invocation.output.document({"queue": queue, "deleted": deleted}, text)
