"""holdfast maintain, repair, why: what keeps queues in order, and what stands in their way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import psycopg
import typer

from holdfast.client import Holdfast

from ._advice import advice
from ._command import Invocation, command
from ._ending import is_unreachable
from ._options import Queue
from ._output import counted
from ._values import duration
from .up import Stop

SHORTEST = timedelta(seconds=0.1)

Swept = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only sweep this queue.")]
Mended = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only this queue.")]

Every = Annotated[
    timedelta | None,
    typer.Option("--every", parser=duration, metavar="DURATION", help="Again and again, until Ctrl-C."),
]
Budget = Annotated[
    timedelta | None,
    typer.Option("--budget", parser=duration, metavar="DURATION", help="How long one call may take."),
]
Unreadable = Annotated[
    bool, typer.Option("--unreadable-only", help="Only where a failover left them unreadable.")
]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(maintain)
    command(app)(repair)
    command(app)(why)


def maintain(invocation: Invocation, queue: Swept = None, every: Every = None, budget: Budget = None) -> None:
    """One call of upkeep, or one after the other. With a queue: take back what its expired leases held."""
    if every is not None and (every < SHORTEST or queue is not None):
        raise typer.BadParameter(f"--every is at least {SHORTEST.total_seconds()} s, and takes no queue")
    with invocation.client() as client:
        if every is not None:
            keep(invocation, client, every.total_seconds(), budget)
            return
        if queue is None:
            invocation.output.fields(client.maintain(budget))
            return
        swept = client.sweep(queue)
    text = f"Took back {counted(swept, 'message')} in {queue}."
    invocation.output.document({"queue": queue, "swept": swept}, text)


def keep(invocation: Invocation, client: Holdfast, every: float, budget: timedelta | None) -> None:
    """Call maintain until told to stop: again at once while work is left, else after a rest."""
    with Stop() as stop:
        stop.started()
        invocation.output.say(f"Maintaining every {every:g} s. Ctrl-C ends it.")
        resting = 0.0
        while not stop.wait(resting):
            try:
                did = client.maintain(budget)
            except psycopg.Error as error:
                if not is_unreachable(error):
                    raise
                invocation.output.note(f"No connection, trying again: {str(error).strip()}")
                did = {"done": True}
            else:
                if invocation.output.as_json:
                    invocation.output.document(did)
            resting = every if did["done"] else 0.0
        invocation.output.say("Stopped.")


def why(invocation: Invocation, queue: Queue) -> None:
    """Say why nothing is moving in a queue, and what to do about it."""
    with invocation.client() as client:
        found = [replace(finding, remedy=advice(finding.remedy, queue)) for finding in client.why(queue)]
    if invocation.output.as_json:
        invocation.output.records(found, (), "")
        return
    for finding in found:
        invocation.output.say(f"{finding.severity}: {finding.message} [{finding.finding}]")
        invocation.output.say(f"    {finding.remedy}")


def repair(invocation: Invocation, queue: Mended = None, unreadable_only: Unreadable = False) -> None:
    """After a failover or a restore: end every lease and start the positions afresh."""
    with invocation.client() as client:
        mended = client.repair(queue, unreadable_only=unreadable_only)
    invocation.output.document({"queue": queue, "mended": mended}, f"Mended {counted(mended, 'lane')}.")
