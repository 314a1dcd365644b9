"""Help: a flag takes no value, and none is shown behind it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options."""
        return [bare(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options."""
        return [bare(parameter) for parameter in super().get_params(ctx)]


def bare(parameter: Any) -> Any:
    """The same; the type of a flag, which typer would show, is hidden by a name that is empty."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    return parameter
