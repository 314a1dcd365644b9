"""One server process: uvicorn, which ends in order and in bounded time."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from .app import make_app
from .protocol import Protocol
from .service import Service
from .settings import Settings

BACKLOG = 2048
IDLE_SECONDS = 30  # how long a connection may stay without a request
TICK_SECONDS = 0.05

THIS_MACHINE = ("127.0.0.0/8", "::1", "::ffff:127.0.0.0/104")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HttpServer(uvicorn.Server):
    """Serves until it is told to end.

    It ends in steps: /readyz says so while all else goes on, for as long as `drain` says; then it takes no
    more connections, sends waiting claims and streams away, and finishes requests, as long as `grace` says.
    """

    def __init__(self, settings: Settings) -> None:
        self.app = make_app(settings)
        self.settings = settings
        super().__init__(uvicorn_config(self.app, settings))

    @property
    def service(self) -> Service:
        """What it serves, once it has started."""
        service: Service = self.app.state.service
        return service

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Have signals end it, in the main thread; they are its ordinary end, and not raised once more."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends it in order, the second at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def main_loop(self) -> None:
        """Serve until told to end, and a little longer."""
        await super().main_loop()
        self.service.leaving = True
        for _ in range(round(self.settings.drain / TICK_SECONDS)):
            if self.force_exit:
                return
            await asyncio.sleep(TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: first whoever waits, since nothing else ends before."""
        self.service.dismiss()
        await super().shutdown(sockets)
        if self.force_exit:
            self.service.abandon()
            await self.lifespan.shutdown()


class WorkerServer(HttpServer):
    """One of several processes: its supervisor tells it when to end, or does so by being gone."""

    def __init__(self, settings: Settings, supervisor: int) -> None:
        """supervisor: its process; asked for here, it might be gone already."""
        super().__init__(settings)
        self._supervisor = supervisor

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in order, however often it is told: systemd tells it, and so does the supervisor."""
        if sig == signal.SIGTERM:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to end."""
        if os.getppid() != self._supervisor:
            self.should_exit = True
        return await super().on_tick(counter)


def uvicorn_config(app: Starlette, settings: Settings, **options: Any) -> uvicorn.Config:
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
        proxy_headers=settings.trust_proxy or bool(settings.proxies),
        # Always told: uvicorn has a variable of its own for it.
        forwarded_allow_ips=[*(THIS_MACHINE if settings.trust_proxy else ()), *settings.proxies],
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=settings.grace,  # type: ignore[arg-type]  # fractions will do
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        **options,
    )
