"""holdfast maintain, repair: what keeps queues in order."""

from __future__ import annotations

from typing import Annotated

import typer

from ._command import Invocation, command
from ._output import counted

Swept = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only sweep this queue.")]
Mended = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only this queue.")]

Unreadable = Annotated[
    bool, typer.Option("--unreadable-only", help="Only where a failover left them unreadable.")
]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(maintain)
    command(app)(repair)


def maintain(invocation: Invocation, queue: Swept = None) -> None:
    """One round of upkeep for all queues. With a queue: only take back what its expired leases held."""
    with invocation.client() as client:
        if queue is None:
            invocation.output.fields(client.maintain())
            return
        swept = client.sweep(queue)
    text = f"Took back {counted(swept, 'message')} in {queue}."
    invocation.output.document({"queue": queue, "swept": swept}, text)


def repair(invocation: Invocation, queue: Mended = None, unreadable_only: Unreadable = False) -> None:
    """After a failover or a restore: end every lease and start the positions afresh."""
    with invocation.client() as client:
        mended = client.repair(queue, unreadable_only=unreadable_only)
    invocation.output.document({"queue": queue, "mended": mended}, f"Mended {counted(mended, 'lane')}.")
