"""Running the server: checks, a socket, and one process on it or several, or a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import psycopg

from holdfast.client import ForbiddenError, UnavailableError
from holdfast.client._explain import explained
from holdfast.client._schema import check_schema

from .connections import RETRY_SECONDS, careful
from .exporters import export
from .http import BACKLOG, TICK_SECONDS, HttpServer
from .logs import configure
from .settings import Settings
from .workers import Workers


def check(settings: Settings, patience: float = 0.0) -> bool:
    """Refuse to serve a database that is not there or not ours, or the world without keys.

    Says whether there was ever a key.

    patience: how many seconds to wait for the database to be there.
    """
    with reached(settings.database_url, patience) as connection, explained("the server"):
        check_schema(connection)
        row = connection.execute("select holdfast.has_keys()").fetchone()
    has_keys = row == (True,)
    if not settings.on_loopback and not has_keys:
        raise ForbiddenError(
            "QH921",
            f"without API keys a server listens on this machine alone, not on {settings.host}",
            "Everybody who can reach it could read and delete everything.",
            "Make the first key with: holdfast key create NAME --scope admin. Or listen on 127.0.0.1.",
        )
    return has_keys


def reached(url: str, patience: float) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection, as soon as there is one."""
    until = monotonic() + patience
    while True:
        try:
            return psycopg.connect(careful(url), autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError:
            if monotonic() > until:
                raise
        sleep(RETRY_SECONDS)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UnavailableError(
            "QH930",
            f"can't listen on {host}:{port}",
            f"{error.strerror}.",
            "Choose another port with --port, or HOLDFAST_PORT; 0 is any that is free.",
        ) from error
    listener.set_inheritable(True)
    return listener


def address(listener: socket.socket, settings: Settings) -> str:
    """Where a server can be reached."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_certificate else 'http'}://{name}:{port}"


def run(settings: Settings, listener: socket.socket, workers: int) -> None:
    """Serve until a signal comes; KeyboardInterrupt if a second one did not wait for the end."""
    configure(settings.log_format, settings.log_level)
    if workers > 1:
        Workers(settings, listener, workers).run()
        return
    export()
    server = HttpServer(settings)
    server.run(sockets=[listener])
    if server.force_exit:
        raise KeyboardInterrupt


@contextmanager
def serving(
    settings: Settings, listener: socket.socket, hurry: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """A server in a thread, as long as the block lasts; hurry: whether it is to end at once."""
    server = HttpServer(settings)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="holdfast-server", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        while thread.is_alive():
            server.force_exit = hurry()
            thread.join(timeout=TICK_SECONDS)
