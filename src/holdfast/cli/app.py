"""The root of the command tree, and the options that count everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import __version__

from . import (
    api_key,
    archive,
    dead,
    dispatch,
    endpoint,
    event,
    hook,
    key,
    lease,
    log,
    message,
    pipeline,
    postgres,
    queue,
    queue_schema,
    rate,
    schema,
    seal,
    serve,
    service,
    settle,
    stats,
    up,
    upkeep,
)
from ._command import DatabaseUrl, Globals, Json
from ._usage import Root

app = typer.Typer(
    name="holdfast",
    cls=Root,
    help="A durable message queue inside PostgreSQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
    show: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable message queue inside PostgreSQL."""
    context.obj = Globals(database_url=database_url, as_json=as_json)


up.register(app)
serve.register(app)
dispatch.register(app)
schema.register(app)
postgres.register(app)
message.register(app)
settle.register(app)
lease.register(app)
stats.register(app)
key.register(app)
upkeep.register(app)
rate.register(app)
archive.register(app, queue.app)
event.register(app)
app.add_typer(api_key.app, name="key")
app.add_typer(hook.app, name="hook")
app.add_typer(queue.app, name="queue")
app.add_typer(queue_schema.app, name="schema")
app.add_typer(seal.app, name="seal")
app.add_typer(service.app, name="service")
app.add_typer(dead.app, name="dead")
app.add_typer(endpoint.app, name="endpoint")
app.add_typer(event.app, name="event")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
