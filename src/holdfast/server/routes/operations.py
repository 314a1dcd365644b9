"""Running the server: is it well, upkeep, rate limiters."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdfast import __version__
from holdfast.server.endpoint import ADMIN, CONSUME, READ, Book, Call
from holdfast.wire import requests as wire
from holdfast.wire.answers import stating

from ._values import span

book = Book("operations")
Health = stating("Health", status=str, version=str)


@book.add("GET", "/healthz", None, answer=Health)
async def healthz(call: Call[None]) -> object:
    """The process answers."""
    return Health("ok", __version__)


@book.add("GET", "/readyz", None, answer=Health)
async def readyz(call: Call[None]) -> object:
    """The database answers too: this server can do its work."""
    call.service.refuse_if_leaving()
    await call.service.reach()
    return Health("ready", __version__)


@book.add("GET", "/metrics", READ)
async def metrics(call: Call[None]) -> Response:
    """What the server counts and measures, and the figures of all queues, for Prometheus: for a key of all.

    In its text format, or as OpenMetrics if that is accepted. It takes a key that reads all queues.
    """
    service = call.service
    await service.figures.refresh()
    service.meters.look(service)
    accept = call.request.headers.get("accept", "")
    content, media = await asyncio.to_thread(service.meters.written, accept)
    return Response(content, media_type=media)


@book.verb(CONSUME, anywhere=True)
async def now(call: Call[None]) -> object:
    """The time by Holdfast's clock."""
    return await call.service.engine.now()


@book.verb(ADMIN)
async def sweep(call: Call[None]) -> object:
    """Take back what leases let go, now; claims do it by themselves."""
    return await call.service.engine.sweep(call.queue)


@book.verb(ADMIN)
async def maintain(call: Call[wire.Maintain]) -> object:
    """A round of upkeep; the server does it by itself."""
    return await call.service.engine.maintain(span(call.asked.budget, "budget"))


@book.verb(ADMIN)
async def repair(call: Call[wire.Repair]) -> object:
    """Start afresh after a failover or restore: every lease ends."""
    asked = call.asked
    return await call.service.engine.repair(asked.queue, unreadable_only=asked.unreadable_only)


@book.verb(ADMIN)
async def take_rate(call: Call[wire.TakeRate]) -> object:
    """Take tokens from a named bucket."""
    asked = call.asked
    return await call.service.engine.take_rate(
        asked.limiter, asked.rate, asked.burst, asked.want, partial=asked.partial
    )
