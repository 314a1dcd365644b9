"""What every command has: the global options, a client, and one way to end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, TypeAlias

import typer

from holdfast.client import Holdfast
from holdfast.database import URL_VARIABLE, database

from ._ending import ExitCode, ended
from ._help import Command
from ._output import Output

DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help=f"The database. Else {URL_VARIABLE}, else the embedded server of this folder.",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Globals:
    """The options that may stand before the command as well as behind it."""

    database_url: str | None
    as_json: bool


class Invocation:
    """One run of a command: where the database is, and where the answer goes."""

    def __init__(self, *, database_url: str | None, as_json: bool) -> None:
        self.database_url = database_url
        self.output = Output(as_json=as_json)

    @contextmanager
    def client(self) -> Iterator[Holdfast]:
        """A client of the chosen database."""
        with (
            database(self.database_url, create=False) as url,
            Holdfast(url, min_size=1, max_size=2, parse_float=Decimal) as client,
        ):
            yield client

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is deleted; machines can't be asked."""
        if yes:
            return
        if self.output.as_json:
            raise typer.BadParameter("with --json nothing is asked: confirm with --yes")
        if not self.output.ask(question):
            self.output.note("Nothing was done.")
            raise typer.Exit(ExitCode.ERROR)


def command(
    app: typer.Typer, name: str | None = None, **settings: Any
) -> Callable[[Callable[Concatenate[Invocation, P], None]], Callable[Concatenate[Invocation, P], None]]:
    """Register a command; its function takes an Invocation, and then what it declares itself.

    settings: of the command's context, such as how words are read that it does not know.
    """

    def register(
        function: Callable[Concatenate[Invocation, P], None],
    ) -> Callable[Concatenate[Invocation, P], None]:
        app.command(name, cls=Command, context_settings=settings or None)(with_globals(function))
        return function

    return register


def with_globals(function: Callable[Concatenate[Invocation, P], None]) -> Callable[..., None]:
    """The function as typer sees it: the Invocation replaced by the options that it is made of."""

    @wraps(function)
    def run(**values: Any) -> None:
        before: Globals = values.pop("context").obj
        url, as_json = values.pop("database_url"), values.pop("as_json")
        invocation = Invocation(database_url=url or before.database_url, as_json=as_json or before.as_json)
        with ended(invocation.output):
            function(invocation, **values)  # type: ignore[call-arg]  # typer fills them by name

    signature = inspect.signature(function, eval_str=True)
    _, *own = signature.parameters.values()
    parameters = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
        keyword("database_url", DatabaseUrl, None),
        keyword("as_json", Json, False),
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter that has a default."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
