"""Running the server: is it well, upkeep, rate limiters."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw

from holdfast import __version__
from holdfast.client import Allowance
from holdfast.server.endpoint import ADMIN, CONSUME, Book, Call
from holdfast.wire import requests as wire
from holdfast.wire.answers import stating, to_wire, wire_type

from ._values import span

book = Book("operations")
Health = stating("Health", status=str, version=str)
Now = stating("Now", now=datetime)
Swept = stating("Swept", freed=int)
Repaired = stating("Repaired", lanes=int)


@book.add("GET", "/healthz", None, answer=Health)
async def healthz(call: Call[None]) -> object:
    """The process answers."""
    return Health("ok", __version__)


@book.add("GET", "/readyz", None, answer=Health)
async def readyz(call: Call[None]) -> object:
    """The database answers too: this server can do its work."""
    await call.service.engine.now()
    return Health("ready", __version__)


@book.add("GET", "/v1/now", CONSUME, answer=Now)
async def now(call: Call[None]) -> object:
    """The time by Holdfast's clock."""
    return Now(await call.service.engine.now())


@book.add("POST", "/v1/queues/{queue}/sweep", ADMIN, answer=Swept)
async def sweep(call: Call[None]) -> object:
    """Take back what leases let go, now; claims do it by themselves."""
    return Swept(await call.service.engine.sweep(call.queue))


@book.add("POST", "/v1/maintain", ADMIN, body=wire.Maintain, answer=dict)
async def maintain(call: Call[wire.Maintain]) -> object:
    """A round of upkeep; the server does it by itself."""
    done: object = await call.service.engine.maintain(span(call.asked.budget))
    assert isinstance(done, Raw)
    return done


@book.add("POST", "/v1/repair", ADMIN, body=wire.Repair, answer=Repaired)
async def repair(call: Call[wire.Repair]) -> object:
    """Start afresh after a failover or restore: every lease ends."""
    asked = call.asked
    return Repaired(await call.service.engine.repair(asked.queue, unreadable_only=asked.unreadable_only))


@book.add("POST", "/v1/rates/{limiter}/take", ADMIN, body=wire.TakeRate, answer=wire_type(Allowance))
async def take_rate(call: Call[wire.TakeRate]) -> object:
    """Take tokens from a named bucket."""
    asked = call.asked
    allowed = await call.service.engine.take_rate(
        call.part("limiter"), asked.rate, asked.burst, asked.want, partial=asked.partial
    )
    return to_wire(allowed)
