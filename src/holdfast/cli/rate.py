"""holdfast rate: ask a rate limiter."""

from __future__ import annotations

from typing import Annotated

import typer

from ._command import Invocation, command
from ._ending import ExitCode

Limiter = Annotated[str, typer.Argument(metavar="LIMITER", help="The limiter's name; a new one starts full.")]
Rate = Annotated[float, typer.Argument(metavar="RATE", help="Tokens a second.")]
Burst = Annotated[int | None, typer.Option("--burst", help="How many it holds; else one second's worth.")]
Want = Annotated[int, typer.Option("--want", help="So many.")]
Partial = Annotated[bool, typer.Option("--partial", help="Or as many as there are.")]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(rate)


def rate(
    invocation: Invocation,
    limiter: Limiter,
    rate: Rate,
    burst: Burst = None,
    want: Want = 1,
    partial: Partial = False,
) -> None:
    """Take tokens from a rate limiter. Exits with 4 if it has too few."""
    with invocation.client() as client:
        allowance = client.take_rate(limiter, rate, burst, want, partial=partial)
    invocation.output.fields(allowance)
    if want and not allowance.granted:
        raise typer.Exit(ExitCode.NOTHING)
