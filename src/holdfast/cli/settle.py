"""holdfast ack, nack, reject, release, extend: what becomes of claimed messages."""

from __future__ import annotations

import typer

from holdfast.client import Settlement

from ._command import Invocation, command
from ._ending import ExitCode
from ._options import Delay, Failure, Ids, LeaseFor, Queue, Strict, Token


def register(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(ack)
    command(app)(nack)
    command(app)(reject)
    command(app)(release)
    command(app)(extend)


def ack(invocation: Invocation, queue: Queue, token: Token, ids: Ids = None, strict: Strict = False) -> None:
    """Messages are done: delete them. Exits with 5 if the token holds none of them."""
    with invocation.client() as client:
        settlement = client.ack(queue, token, ids or None, strict=strict)
    show(invocation, "Acked", settlement)


def nack(
    invocation: Invocation,
    queue: Queue,
    token: Token,
    ids: Ids = None,
    delay: Delay = None,
    error: Failure = None,
    strict: Strict = False,
) -> None:
    """Messages failed: deliver them again later, or bury them when their deliveries are used up."""
    with invocation.client() as client:
        settlement = client.nack(queue, token, ids or None, delay=delay, error=error, strict=strict)
    show(invocation, "Nacked", settlement)


def reject(
    invocation: Invocation,
    queue: Queue,
    token: Token,
    ids: Ids = None,
    error: Failure = None,
    strict: Strict = False,
) -> None:
    """Messages failed for good: bury them, whatever deliveries they have left."""
    with invocation.client() as client:
        settlement = client.reject(queue, token, ids or None, error=error, strict=strict)
    show(invocation, "Rejected", settlement)


def release(
    invocation: Invocation, queue: Queue, token: Token, ids: Ids = None, strict: Strict = False
) -> None:
    """Give messages back at once; it does not count as a delivery."""
    with invocation.client() as client:
        settlement = client.release(queue, token, ids or None, strict=strict)
    show(invocation, "Released", settlement)


def extend(
    invocation: Invocation,
    queue: Queue,
    token: Token,
    ids: Ids = None,
    lease: LeaseFor = None,
    strict: Strict = False,
) -> None:
    """Hold messages longer: the lease counts from now."""
    with invocation.client() as client:
        settlement = client.extend(queue, token, lease, ids or None, strict=strict)
    show(invocation, "Extended", settlement)


def show(invocation: Invocation, done: str, settlement: Settlement) -> None:
    """What was settled, and what the token does not hold; nothing settled is an exit code of its own."""
    invocation.output.document(settlement, f"{done} {len(settlement.settled)}.")
    if settlement.skipped:
        ids = ", ".join(map(str, settlement.skipped))
        invocation.output.note(f"Skipped {len(settlement.skipped)}, which the token does not hold: {ids}")
    if not settlement.settled:
        invocation.output.note("The token holds nothing of this: its lease ended, or it was settled before.")
        raise typer.Exit(ExitCode.NOT_HELD)
