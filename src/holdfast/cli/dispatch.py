"""holdfast dispatch: messages delivered to HTTP endpoints, without a server."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated

import typer

from holdfast.database import database, key_folder

from ._command import Invocation, command
from ._output import counted
from .serve import (
    FORMAT_VARIABLE,
    LEVEL_VARIABLE,
    LISTEN_VARIABLE,
    Allow,
    Format,
    Grace,
    Level,
    ListenUrl,
    LogFormat,
    LogLevel,
    PoolSize,
    Prepare,
    StatementTimeout,
    Wait,
    chosen,
    dispatching,
    lasting,
    seconds,
)

Endpoint = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Deliver to this endpoint; repeatable. Else to all.")
]
Concurrency = Annotated[int, typer.Option(min=1, max=10_000, help="Deliveries at once, to all endpoints.")]
Lease = Annotated[
    timedelta | None, lasting("Others wait so long for messages of a dispatcher that died. Else 15 s.")
]
NoListen = Annotated[bool, typer.Option("--no-listen", help="Never LISTEN: look for messages by polls.")]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(dispatch)


def dispatch(
    invocation: Invocation,
    endpoint: Endpoint = None,
    allow: Allow = None,
    concurrency: Concurrency = 100,
    lease: Lease = None,
    pool_size: PoolSize = 4,
    listen_url: ListenUrl = None,
    no_listen: NoListen = False,
    prepare: Prepare = False,
    statement_timeout: StatementTimeout = None,
    wait: Wait = None,
    grace: Grace = None,
    log_format: Format = None,
    log_level: Level = None,
) -> None:
    """Deliver messages to their endpoints until Ctrl-C or SIGTERM."""
    from holdfast.server.dispatch import run
    from holdfast.server.serve import check
    from holdfast.server.settings import Settings

    whom = None if endpoint is None else tuple(endpoint)
    to = dispatching(allow, endpoints=whom, concurrency=concurrency, **seconds(lease=lease))
    with database(invocation.database_url, create=False) as url:
        settings = Settings(
            database_url=url,
            listen_url=listen_url or os.environ.get(LISTEN_VARIABLE),
            listen=not no_listen,
            pool_size=pool_size,
            prepare=prepare,
            upkeep=0.0,
            dispatch=to,
            agent=False,
            key_folder=key_folder(invocation.database_url),
            log_format=chosen(LogFormat, log_format, FORMAT_VARIABLE, LogFormat.TEXT),
            log_level=chosen(LogLevel, log_level, LEVEL_VARIABLE, LogLevel.INFO),
            **seconds(statement_timeout=statement_timeout, grace=grace),
        )
        check(settings, seconds(wait=wait).get("wait", 0.0))
        named = "all endpoints" if endpoint is None else counted(len(endpoint), "endpoint")
        told = f"Delivering the messages of {named}. Ctrl-C ends it."
        invocation.output.document({"endpoints": endpoint}, told)
        run(settings)
        invocation.output.say("Stopped.")
