"""Logs: read, delete, figures."""

from __future__ import annotations

from holdfast.server.endpoint import ADMIN, CONSUME, READ, Book, Call
from holdfast.wire import requests as wire

from ._values import number, number_or_none, numbers

book = Book("logs")


@book.verb(CONSUME)
async def read(call: Call[wire.Read]) -> object:
    """The records of a log behind a sequence number, in order."""
    after = number(call.asked.after, "after")
    await call.service.limit("claim", call.queue)
    return await call.service.engine.read(call.queue, after, limit=call.asked.limit)


@book.verb(ADMIN)
async def log_delete(call: Call[wire.LogDelete]) -> object:
    """Delete records by sequence number, by tag, or all before one."""
    asked = call.asked
    before = number_or_none(asked.before, "before")
    return await call.service.engine.log_delete(
        call.queue, numbers(asked.seqs, "seqs"), tag=asked.tag, before=before, limit=asked.limit
    )


@book.verb(READ)
async def log_stats(call: Call[None]) -> object:
    """From where to where a log can be read, and how many records it holds."""
    return await call.service.engine.log_stats(call.queue)
