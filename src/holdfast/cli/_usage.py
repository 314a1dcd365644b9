"""Wrong usage: shown to people as typer does it, told to machines like every other error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from ._ending import ExitCode
from ._help import Group
from ._output import Output

# typer gives no name to the base of its usage errors; it differs between typer's versions.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


class Root(Group):
    """The command tree."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command and exit."""
        words = arguments[0] if arguments else options.get("args")
        require_streams(as_json=wants_json(sys.argv[1:] if words is None else words))
        if not wants_json(sys.argv[1:] if words is None else words):
            return super().main(*arguments, **options)
        for command in self.commands.values():
            if isinstance(command, TyperGroup):
                command.no_args_is_help = False  # help would go to stdout
        try:
            code = super().main(*arguments, **{**options, "standalone_mode": False})
        except USAGE_ERROR as error:
            tell(error)
            code = ExitCode.USAGE
        except typer.Abort:
            code = ExitCode.ERROR
        sys.exit(code or ExitCode.OK)


def require_streams(*, as_json: bool) -> None:
    """Refuse a stdout that is closed, before anything is done whose answer would be lost.

    The next file or connection would have its number, and would be written to.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as we run
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for what looks at it
        Output(as_json=as_json).error("stdout is closed", hint="For no output, send it to /dev/null.")
        sys.exit(ExitCode.USAGE)


def wants_json(words: Sequence[str]) -> bool:
    """Whether --json is among the options."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def tell(error: Any) -> None:
    """One JSON object on stderr, of the same shape as other errors."""
    hint = f"Try: {error.ctx.command_path} --help" if error.ctx else None
    Output(as_json=True).error(error.format_message(), hint=hint)
