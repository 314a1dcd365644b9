"""Logs: read, delete, figures."""

from __future__ import annotations

from holdfast.client import LogStats, Record
from holdfast.server.endpoint import ADMIN, CONSUME, READ, Book, Call
from holdfast.wire import requests as wire
from holdfast.wire.answers import all_to_wire, listing, stating, to_wire, wire_type

from ._values import number, numbers

RECORDS = "/v1/queues/{queue}/records"

book = Book("logs")
Records = listing("records", Record)
Deleted = stating("Deleted", deleted=int)


@book.add("GET", RECORDS, CONSUME, query=wire.Read, answer=Records)
async def read(call: Call[wire.Read]) -> object:
    """The records of a log behind a sequence number, in order."""
    found = await call.service.engine.read(call.queue, number(call.asked.after), limit=call.asked.limit)
    return Records(all_to_wire(found))


@book.add("POST", RECORDS + "/delete", ADMIN, body=wire.LogDelete, answer=Deleted)
async def log_delete(call: Call[wire.LogDelete]) -> object:
    """Delete records by sequence number, by tag, or all before one."""
    asked = call.asked
    before = None if asked.before is None else number(asked.before)
    gone = await call.service.engine.log_delete(
        call.queue, numbers(asked.seqs), tag=asked.tag, before=before, limit=asked.limit
    )
    return Deleted(gone)


@book.add("GET", RECORDS + "/stats", READ, answer=wire_type(LogStats))
async def log_stats(call: Call[None]) -> object:
    """From where to where a log can be read, and how many records it holds."""
    return to_wire(await call.service.engine.log_stats(call.queue))
