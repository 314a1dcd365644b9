"""holdfast serve: the HTTP server."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from holdfast.database import database

from ._command import Invocation, command

HOST_VARIABLE = "HOLDFAST_HOST"
PORT_VARIABLE = "HOLDFAST_PORT"
LISTEN_VARIABLE = "HOLDFAST_LISTEN_URL"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080

Host = Annotated[
    str | None,
    typer.Option(help=f"Where to listen. Else {HOST_VARIABLE}, else {DEFAULT_HOST}.", metavar="ADDRESS"),
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help=f"Else {PORT_VARIABLE}, else {DEFAULT_PORT}; 0: any that is free."),
]
Workers = Annotated[int, typer.Option(min=1, max=64, help="How many processes serve.")]
PoolSize = Annotated[int, typer.Option(min=1, max=1000, help="Database connections of each process.")]
MaxBody = Annotated[
    int, typer.Option(min=1024, max=1 << 30, help="Bytes that the body of a request may have.")
]
ListenUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"The database for LISTEN, where the other goes through PgBouncer. Else {LISTEN_VARIABLE}.",
    ),
]
NoListen = Annotated[bool, typer.Option("--no-listen", help="Never LISTEN: waiting claims poll.")]
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Use prepared statements: not through PgBouncer before 1.21.")
]
Cors = Annotated[
    list[str] | None, typer.Option(metavar="ORIGIN", help="An origin whose pages may call; repeatable.")
]
Certificate = Annotated[str | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate.")]
PrivateKey = Annotated[str | None, typer.Option(metavar="FILE", help="The key of the certificate.")]
TrustProxy = Annotated[
    bool, typer.Option("--trust-proxy", help="Take X-Forwarded-For and -Proto from a proxy on this machine.")
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(serve)


def serve(
    invocation: Invocation,
    host: Host = None,
    port: Port = None,
    workers: Workers = 1,
    pool_size: PoolSize = 8,
    max_body: MaxBody = 16 * 1024 * 1024,
    listen_url: ListenUrl = None,
    no_listen: NoListen = False,
    prepare: Prepare = False,
    cors: Cors = None,
    tls_certificate: Certificate = None,
    tls_key: PrivateKey = None,
    trust_proxy: TrustProxy = False,
) -> None:
    """Serve HTTP until Ctrl-C."""
    from holdfast.server.serve import address, bind, check, run
    from holdfast.server.settings import Settings

    with database(invocation.database_url, create=False) as url:
        settings = Settings(
            database_url=url,
            listen_url=listen_url or os.environ.get(LISTEN_VARIABLE),
            listen=not no_listen,
            host=where(host),
            port=which(port),
            max_body=max_body,
            pool_size=pool_size,
            prepare=prepare,
            cors=tuple(cors or ()),
            trust_proxy=trust_proxy,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
        )
        check(settings)
        listener = bind(settings.host, settings.port)
        reached = address(listener, settings)
        invocation.output.document({"address": reached}, served(reached))
        with listener:
            run(settings, listener, workers)
        invocation.output.say("Stopped.")


def where(host: str | None) -> str:
    """The address to listen on."""
    return host or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST


def which(port: int | None) -> int:
    """The port to listen on."""
    if port is not None:
        return port
    given = os.environ.get(PORT_VARIABLE) or str(DEFAULT_PORT)
    if not (given.isascii() and given.isdigit() and int(given) <= 65535):
        raise typer.BadParameter(f"{PORT_VARIABLE} is {given!r}: a port is a number up to 65535")
    return int(given)


def served(reached: str) -> str:
    """What people are told."""
    return f"Serving HTTP at {reached} (the API is described at {reached}/docs). Ctrl-C ends it."
