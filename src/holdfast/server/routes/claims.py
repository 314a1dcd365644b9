"""Claiming and settling; and the stream that pushes work."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from time import monotonic

from starlette.responses import Response

from holdfast.client import Delivery, Settlement
from holdfast.client._requests import check_max
from holdfast.server.endpoint import ADMIN, CONSUME, READ, Book, Call
from holdfast.server.sse import GONE, MEDIA, EventStream, check_accepts, while_there
from holdfast.server.streams import Stream, Wanted
from holdfast.wire import requests as wire
from holdfast.wire.routes import QUEUE

from ._values import number, numbers, span, waiting

book = Book("claims")


@book.verb(CONSUME)
async def claim(call: Call[wire.Claim]) -> object:
    """Take messages under a lease; wait for them if there are none."""
    asked = call.asked
    await call.service.limit("claim", call.queue)
    lease, wait = span(asked.lease, "lease"), waiting(asked.wait)
    check_max(asked.max)
    may_take_long = wait > 0 or await call.service.configs.window(call.queue) > 0
    with call.service.traces.operation("receive", "claim", call.queue) as operation:
        if may_take_long:
            found = await patient_while_there(call, lease, wait)
        else:
            found = await at_once(call, lease)
        operation.concerns(found or [])
    return GONE if found is None else found


async def at_once(call: Call[wire.Claim], lease: timedelta | None) -> list[Delivery]:
    """A claim of what is there."""
    asked = call.asked
    return await call.service.desks.claim(call.queue, asked.max, lease=lease, consumer=asked.consumer)


async def patient_while_there(
    call: Call[wire.Claim], lease: timedelta | None, wait: float
) -> list[Delivery] | None:
    """A claim that may take long; None when nobody waits for it any more."""
    give_back = partial(call.service.give_back, call.queue)
    return await while_there(call.request, patient(call, lease, wait), give_back)


async def patient(call: Call[wire.Claim], lease: timedelta | None, wait: float) -> list[Delivery]:
    """A claim that may take long: who may not claim any more, before or after, gets nothing."""
    service, asked = call.service, call.asked
    until = monotonic() + wait
    while True:
        # On the way here a key may have ended: nobody would turn out this claim once it waits.
        await service.door.readmit(call.request, CONSUME, call.queue)
        left = max(until - monotonic(), 0.0)
        found = await service.desks.claim(
            call.queue, asked.max, lease=lease, consumer=asked.consumer, wait=left
        )
        await service.readmit(call.request, call.queue, found)
        if found or monotonic() >= until or service.ending.is_set():
            return found


@book.verb(CONSUME)
async def next(call: Call[wire.Next]) -> object:
    """Ack everything held under a token and claim again, in one call."""
    asked = call.asked
    check_max(asked.max)
    await call.service.limit("claim", call.queue)
    with call.service.traces.operation("receive", "next", call.queue) as operation:
        claimed = await call.service.engine.next(
            call.queue,
            number(asked.token, "token"),
            asked.max,
            lease=span(asked.lease, "lease"),
            consumer=asked.consumer,
            strict=asked.strict,
        )
        operation.concerns(claimed)
    call.service.meters.messages("claimed", call.queue, len(claimed))
    return claimed


@book.verb(CONSUME)
async def ack(call: Call[wire.Settle]) -> object:
    """Done: these messages, or all that the token holds, end here."""
    return await settled(call, "ack")


@book.verb(CONSUME)
async def release(call: Call[wire.Settle]) -> object:
    """Give messages back; it does not count as a delivery."""
    return await settled(call, "release")


@book.verb(CONSUME)
async def nack(call: Call[wire.Nack]) -> object:
    """Failed: deliver again later, or move to the dead letters."""
    return await settled(call, "nack", span(call.asked.delay, "delay"), call.asked.error)


@book.verb(CONSUME)
async def reject(call: Call[wire.Reject]) -> object:
    """Failed for good: move to the dead letters, whatever deliveries are left."""
    return await settled(call, "reject", call.asked.error)


@book.verb(CONSUME)
async def extend(call: Call[wire.Extend]) -> object:
    """Hold messages longer: the lease counts from now."""
    return await settled(call, "extend", span(call.asked.lease, "lease"))


async def settled(
    call: Call[wire.Settle] | Call[wire.Nack] | Call[wire.Reject] | Call[wire.Extend],
    verb: str,
    *options: timedelta | str | None,
) -> Settlement:
    """One settlement."""
    asked = call.asked
    await call.service.limit("settle", call.queue)
    with call.service.traces.operation("settle", verb, call.queue) as operation:
        done = await call.service.settlements.settle(
            verb,
            call.queue,
            number(asked.token, "token"),
            numbers(asked.ids),
            strict=asked.strict,
            options=options,
        )
        operation.concerns(done.settled)
    return done


@book.add("GET", QUEUE + "/work", CONSUME, query=wire.Work)
async def work(call: Call[wire.Work]) -> Response:
    """Have messages pushed, as server-sent events; whatever is in flight is released on disconnect."""
    check_accepts(call.request)
    asked = call.asked
    lease = span(asked.lease, "lease")
    check_max(asked.max)
    await call.service.limit("claim", call.queue)
    if call.request.method == "HEAD":
        await call.service.engine.claims(call.queue, "")  # refused where a stream would be
        return Response(media_type=MEDIA)
    check = partial(call.service.door.readmit, call.request, CONSUME, call.queue)
    wanted = Wanted(queue=call.queue, max=asked.max, lease=lease, consumer=asked.consumer)
    stream = Stream(call.service, wanted, check)
    await stream.begin()
    return EventStream(stream.events(), stream.close)


@book.verb(CONSUME)
async def held(call: Call[wire.Held]) -> object:
    """What a token still holds."""
    return await call.service.engine.held(call.queue, number(call.asked.token, "token"))


@book.verb(CONSUME)
async def holders(call: Call[wire.Holders]) -> object:
    """Who holds messages."""
    return await call.service.engine.holders(call.queue, numbers(call.asked.ids) or [])


@book.verb(CONSUME)
async def claims(call: Call[wire.Claims]) -> object:
    """What a consumer of this name holds, with the tokens: for one that was restarted."""
    return await call.service.engine.claims(call.queue, call.asked.consumer)


@book.verb(READ)
async def leases(call: Call[wire.Limit]) -> object:
    """The open claims of a queue."""
    return await call.service.engine.leases(call.queue, call.asked.limit)


@book.verb(READ)
async def blocked_keys(call: Call[wire.Limit]) -> object:
    """Ordering keys whose messages wait behind their head."""
    return await call.service.engine.blocked_keys(call.queue, call.asked.limit)


@book.verb(ADMIN)
async def unblock(call: Call[wire.Unblock]) -> object:
    """Let an ordering key go on that a dead message blocks."""
    return await call.service.engine.unblock(call.queue, call.asked.key, how=call.asked.how)
