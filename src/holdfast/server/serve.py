"""Running the server: a socket, uvicorn on it, and one process or several."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import psycopg
import uvicorn
import uvicorn.supervisors
from starlette.applications import Starlette

from holdfast.client import ForbiddenError, UnavailableError
from holdfast.client._explain import explained
from holdfast.client._schema import check_schema

from .app import make_app
from .protocol import Protocol
from .settings import Patience, Settings

SETTINGS_VARIABLE = "HOLDFAST_SERVER_SETTINGS"  # from a server to its workers
BACKLOG = 2048
IDLE_SECONDS = 30  # how long a connection may stay without a request
STOP_SECONDS = 15


def check(settings: Settings) -> None:
    """Refuse to serve a database that is not ours, or the world without keys."""
    with psycopg.connect(settings.database_url, autocommit=True, prepare_threshold=None) as connection:
        check_schema(connection)
        with explained("has_keys"):
            row = connection.execute("select holdfast.has_keys()").fetchone()
    if not settings.on_loopback and row == (False,):
        raise ForbiddenError(
            "QH921",
            f"without API keys a server listens on this machine alone, not on {settings.host}",
            "Everybody who can reach it could read and delete everything.",
            "Make the first key with: holdfast key create NAME --scope admin. Or listen on 127.0.0.1.",
        )


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
            "Choose another port with --port; 0 is any that is free.",
        ) from error
    listener.set_inheritable(True)
    return listener


def address(listener: socket.socket, settings: Settings) -> str:
    """Where a server can be reached."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_certificate else 'http'}://{name}:{port}"


def uvicorn_config(app: Starlette | str, settings: Settings, **options: Any) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=partial(Protocol, patience=settings.patience),  # type: ignore[arg-type]  # it is called, no more
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=settings.trust_proxy,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        **options,
    )


def run(settings: Settings, listener: socket.socket, workers: int) -> None:
    """Serve until a signal comes."""
    if workers == 1:
        uvicorn.Server(uvicorn_config(make_app(settings), settings)).run(sockets=[listener])
        return
    os.environ[SETTINGS_VARIABLE] = json.dumps(asdict(settings))
    config = uvicorn_config("holdfast.server.serve:worker_app", settings, factory=True, workers=workers)
    uvicorn.supervisors.Multiprocess(config, sockets=[listener]).run()


def worker_app() -> Starlette:
    """The application of one of several processes, which inherits its settings."""
    given = json.loads(os.environ[SETTINGS_VARIABLE])
    given |= {"cors": tuple(given["cors"]), "patience": Patience(**given["patience"])}
    return make_app(Settings(**given))


@contextmanager
def serving(settings: Settings, listener: socket.socket) -> Iterator[None]:
    """A server in a thread, as long as the block lasts."""
    server = uvicorn.Server(uvicorn_config(make_app(settings), settings))
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="holdfast-server", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=STOP_SECONDS)
