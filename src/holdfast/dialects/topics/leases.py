"""Leases: claim jobs, ack, nack and extend them, by node and sequence numbers."""

from __future__ import annotations

from datetime import timedelta
from time import perf_counter
from typing import Any

from holdfast.client import BatchTooLargeError, InvalidRequestError
from holdfast.server.endpoint import CONSUME, Book, Call
from holdfast.server.holdings import Outcome
from holdfast.server.sse import GONE

from .records import jobs
from .requests import Ack, Claim, Extend, Nack
from .values import (
    DELAY_MS,
    LEASE_MS,
    MOST_JOBS,
    TOPIC,
    clamped,
    epoch_ms,
    lease,
    milliseconds,
    performance,
    token_of,
)

book = Book("leases")


@book.add("POST", TOPIC + "/claim", CONSUME, body=Claim)
async def claim(call: Call[Claim]) -> object:
    """Lease jobs to a node."""
    started = perf_counter()
    await call.service.limit("claim", call.queue)
    waited = perf_counter() - started
    asked = call.asked
    claimed = await call.service.claimed(
        call.request, call.queue, min(asked.max, MOST_JOBS), lease=lease(asked.lease_ms), consumer=asked.node
    )
    if claimed is None:
        return GONE
    try:
        seqs = await call.service.numbers.of(call.queue, [delivery.id for delivery in claimed])
        count = await call.service.counts.of(call.queue)
        shown = jobs(claimed, seqs)
    except BaseException:
        call.service.give_back(call.queue, claimed)
        raise
    return {
        "topic": call.queue,
        "claimed": shown,
        "count": len(claimed),
        "ready": count.ready,
        "performance": performance(call, throttle_wait=waited),
    }


@book.add("POST", TOPIC + "/ack", CONSUME, body=Ack)
async def ack(call: Call[Ack]) -> object:
    """These jobs are done: they are deleted."""
    done = await settled(call, "ack")
    counted = await counters(call)
    return {
        "topic": call.queue,
        "acked": len(done.settled),
        "skipped": done.skipped,
        **counted,
        "performance": performance(call, fsync=done.commit),
    }


@book.add("POST", TOPIC + "/nack", CONSUME, body=Nack)
async def nack(call: Call[Nack]) -> object:
    """Give jobs back, to be claimed at once or later."""
    done = await settled(call, "nack", milliseconds(clamped(call.asked.delay_ms, DELAY_MS)), None)
    counted = await counters(call)
    return {
        "topic": call.queue,
        "nacked": len(done.settled),
        "skipped": done.skipped,
        **counted,
        "performance": performance(call),
    }


@book.add("POST", TOPIC + "/extend", CONSUME, body=Extend)
async def extend(call: Call[Extend]) -> object:
    """Hold jobs longer: the lease counts from now."""
    asked = call.asked
    done = await settled(call, "extend", milliseconds(clamped(asked.lease_ms, LEASE_MS)))
    held = await call.service.holdings.of(call.queue, done.settled) if done.settled else {}
    return {
        "topic": call.queue,
        "extended": len(done.settled),
        "skipped": done.skipped,
        "deadlines": {str(seq): epoch_ms(held[seq].deadline) for seq in done.settled if seq in held},
        "performance": performance(call),
    }


async def settled(call: Call[Any], verb: str, *options: timedelta | str | None) -> Outcome:
    """Settle what the node of a request holds."""
    asked: Ack = call.asked
    if len(asked.seqs) > MOST_JOBS:
        raise BatchTooLargeError("QH208", "too many seqs", f"Got {len(asked.seqs)}, of {MOST_JOBS}.")
    if asked.lease_ids is not None and len(asked.lease_ids) != len(asked.seqs):
        raise InvalidRequestError("QH911", "bad value for lease_ids", "It takes one for each of seqs.")
    tokens = None
    if asked.lease_ids is not None:
        tokens = [token_of(one, seq) for one, seq in zip(asked.lease_ids, asked.seqs, strict=True)]
    await call.service.limit("settle", call.queue)
    return await call.service.holdings.settle(verb, call.queue, asked.node, asked.seqs, tokens, options)


async def counters(call: Call[Any]) -> dict[str, int]:
    """What is in the queue now."""
    count = await call.service.counts.of(call.queue)
    return {"ready": count.ready, "in_flight": count.in_flight}
