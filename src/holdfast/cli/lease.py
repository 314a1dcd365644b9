"""holdfast leases: who holds what, and until when."""

from __future__ import annotations

import typer

from ._command import Invocation, command
from ._options import Limit, Queue


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(leases)


def leases(invocation: Invocation, queue: Queue, limit: Limit = 20) -> None:
    """List the open claims of a queue: who holds how many messages, and until when."""
    with invocation.client() as client:
        found = client.leases(queue, limit=limit)
    columns = ("consumer", "priority", "messages", "deadline")
    invocation.output.records(found, columns, f"Nobody holds messages of {queue}.")
