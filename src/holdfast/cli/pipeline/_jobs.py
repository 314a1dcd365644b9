"""The commands below `holdfast pipeline run`: a name of a job, or module:function."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

FUNCTION = "function"


class Jobs(TyperGroup):
    """Takes module:function for the job function with that argument."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word means, and the words that are left for it."""
        if args and ":" in args[0] and not args[0].startswith("-"):
            args = [FUNCTION, *args]
        return super().resolve_command(ctx, args)
