"""A server that answers nobody: it delivers to endpoints until it is told to end."""

from __future__ import annotations

import asyncio

import uvloop

from .http import SIGNALS
from .logs import configure
from .service import Service
from .settings import Settings


def run(settings: Settings) -> None:
    """Deliver until a signal comes; KeyboardInterrupt if a second one did not wait for the end."""
    configure(settings.log_format, settings.log_level)
    if uvloop.run(deliver(settings)):
        raise KeyboardInterrupt


async def deliver(settings: Settings) -> bool:
    """Deliver until a signal comes; returns whether there was a second one."""
    service = Service(settings)
    hurried = False

    def tell() -> None:
        nonlocal hurried
        if service.ending.is_set():
            hurried = True
            service.abandon()
        else:
            service.dismiss()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, tell)
    async with service.running():
        await service.ending.wait()
    return hurried
