"""Looking at queues, and mending them: figures, reasons, dead letters, the archive."""

from __future__ import annotations

from dataclasses import replace

from holdfast.server.advice import advice
from holdfast.server.callers import require
from holdfast.server.endpoint import ADMIN, READ, Book, Call
from holdfast.wire import requests as wire

from ._values import number_or_none, numbers, span

book = Book("reports")


@book.verb(READ)
async def queue_stats(call: Call[None]) -> object:
    """How many messages are ready, scheduled, in flight, dead."""
    return await call.service.engine.queue_stats(call.queue)


@book.verb(READ)
async def why(call: Call[None]) -> object:
    """Why is nothing moving: one finding for each reason, each with what to do."""
    found = await call.service.engine.why(call.queue)
    return [replace(finding, remedy=advice(finding.remedy)) for finding in found]


@book.verb(READ)
async def samples(call: Call[wire.Period]) -> object:
    """What happened in a queue, minute by minute; by default in the last hour."""
    asked = call.asked
    return await call.service.engine.samples(call.queue, asked.since, asked.until)


@book.verb(READ)
async def rollups(call: Call[wire.Rollups]) -> object:
    """What the pipeline insights found out about a queue."""
    asked = call.asked
    return await call.service.engine.rollups(
        call.queue,
        asked.since,
        asked.until,
        span(asked.bucket, "bucket"),
        asked.limit,
    )


@book.verb(READ)
async def runs(call: Call[wire.Runs]) -> object:
    """The runs of a pipeline, or of all, the newest first."""
    return await call.service.engine.runs(call.asked.pipeline, call.asked.limit)


@book.verb(READ)
async def read_archive(call: Call[wire.Archive]) -> object:
    """What ended and is kept, the first to end first."""
    asked = call.asked
    after = number_or_none(asked.after, "after")
    return await call.service.engine.read_archive(
        call.queue, asked.from_, asked.to, limit=asked.limit, after=after
    )


@book.verb(ADMIN)
async def redrive(call: Call[wire.Redrive]) -> object:
    """Send dead letters back to the queue they came from, or to a target."""
    asked = call.asked
    require_target(call, asked.target)
    return await call.service.engine.redrive(
        call.queue, numbers(asked.ids), filter=asked.filter, limit=asked.limit, target=asked.target
    )


@book.verb(ADMIN)
async def replay(call: Call[wire.Replay]) -> object:
    """Send messages of the archive once more."""
    asked = call.asked
    require_target(call, asked.target)
    after = number_or_none(asked.after, "after")
    return await call.service.engine.replay(
        call.queue,
        asked.from_,
        asked.to,
        outcomes=asked.outcomes,
        limit=asked.limit,
        target=asked.target,
        after=after,
    )


def require_target(call: Call[wire.Redrive] | Call[wire.Replay], target: str | None) -> None:
    """Another queue than the path's must be within the key's reach too."""
    if target is not None:
        require(call.caller, ADMIN, target)
