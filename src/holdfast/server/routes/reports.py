"""Looking at queues, and mending them: figures, reasons, dead letters, the archive."""

from __future__ import annotations

from holdfast.client import (
    Entry,
    Finding,
    PipelineRun,
    QueueStats,
    Redriven,
    Replayed,
    Rollup,
    Sample,
)
from holdfast.server.auth import require
from holdfast.server.endpoint import ADMIN, READ, Book, Call
from holdfast.wire import requests as wire
from holdfast.wire.answers import all_to_wire, listing, to_wire, wire_type

from ._values import number, numbers, span

QUEUE = "/v1/queues/{queue}"

book = Book("reports")
Findings = listing("findings", Finding)
Samples = listing("samples", Sample)
Rollups = listing("rollups", Rollup)
Runs = listing("runs", PipelineRun)
Archived = listing("messages", Entry)
Moved = listing("messages", Redriven)
Repeated = listing("messages", Replayed)


@book.add("GET", QUEUE + "/stats", READ, answer=wire_type(QueueStats))
async def queue_stats(call: Call[None]) -> object:
    """How many messages are ready, scheduled, in flight, dead."""
    return to_wire(await call.service.engine.queue_stats(call.queue))


@book.add("GET", QUEUE + "/why", READ, answer=Findings)
async def why(call: Call[None]) -> object:
    """Why is nothing moving: one finding for each reason, each with what to do."""
    return Findings(all_to_wire(await call.service.engine.why(call.queue)))


@book.add("GET", QUEUE + "/samples", READ, query=wire.Period, answer=Samples)
async def samples(call: Call[wire.Period]) -> object:
    """What happened in a queue, minute by minute; by default in the last hour."""
    asked = call.asked
    return Samples(all_to_wire(await call.service.engine.samples(call.queue, asked.since, asked.until)))


@book.add("GET", QUEUE + "/rollups", READ, query=wire.Rollups, answer=Rollups)
async def rollups(call: Call[wire.Rollups]) -> object:
    """What the pipeline insights found out about a queue."""
    asked = call.asked
    found = await call.service.engine.rollups(
        call.queue,
        asked.since,
        asked.until,
        span(asked.bucket),
        asked.limit,
    )
    return Rollups(all_to_wire(found))


@book.add("GET", "/v1/pipelines/runs", READ, query=wire.Runs, answer=Runs)
async def runs(call: Call[wire.Runs]) -> object:
    """The runs of a pipeline, or of all, the newest first."""
    return Runs(all_to_wire(await call.service.engine.runs(call.asked.pipeline, call.asked.limit)))


@book.add("GET", QUEUE + "/archive", READ, query=wire.Archive, answer=Archived)
async def read_archive(call: Call[wire.Archive]) -> object:
    """What ended and is kept, the first to end first."""
    asked = call.asked
    after = None if asked.after is None else number(asked.after)
    found = await call.service.engine.read_archive(
        call.queue, asked.from_, asked.to, limit=asked.limit, after=after
    )
    return Archived(all_to_wire(found))


@book.add("POST", QUEUE + "/redrive", ADMIN, body=wire.Redrive, answer=Moved)
async def redrive(call: Call[wire.Redrive]) -> object:
    """Send dead letters back to the queue they came from, or to a target."""
    asked = call.asked
    require_target(call, asked.target)
    moved = await call.service.engine.redrive(
        call.queue, numbers(asked.ids), filter=asked.filter, limit=asked.limit, target=asked.target
    )
    return Moved(all_to_wire(moved))


@book.add("POST", QUEUE + "/replay", ADMIN, body=wire.Replay, answer=Repeated)
async def replay(call: Call[wire.Replay]) -> object:
    """Send messages of the archive once more."""
    asked = call.asked
    require_target(call, asked.target)
    after = None if asked.after is None else number(asked.after)
    repeated = await call.service.engine.replay(
        call.queue,
        asked.from_,
        asked.to,
        outcomes=asked.outcomes,
        limit=asked.limit,
        target=asked.target,
        after=after,
    )
    return Repeated(all_to_wire(repeated))


def require_target(call: Call[wire.Redrive] | Call[wire.Replay], target: str | None) -> None:
    """Another queue than the path's must be within the key's reach too."""
    if target is not None:
        require(call.caller, ADMIN, target)
