"""Claiming and settling; and the stream that pushes work."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from holdfast.client import BlockedKey, Claim, Delivery, Holder, Lease, Settlement
from holdfast.server.endpoint import ADMIN, CONSUME, READ, Book, Call
from holdfast.server.sse import EventStream, check_accepts, while_there
from holdfast.server.streams import Stream
from holdfast.wire import requests as wire
from holdfast.wire.answers import IdText, all_to_wire, listing, stating, to_wire, wire_type

from ._values import number, numbers, span

QUEUE = "/v1/queues/{queue}"
GONE = Response(status_code=499)  # nobody is there to read it

book = Book("claims")
Deliveries = listing("messages", Delivery)
Settled = wire_type(Settlement)
Holders = listing("holders", Holder)
Claims = listing("claims", Claim)
Leases = listing("leases", Lease)
Blocked = listing("keys", BlockedKey)
Unblocked = stating("Unblocked", id=IdText)


@book.add("POST", QUEUE + "/claim", CONSUME, body=wire.Claim, answer=Deliveries)
async def claim(call: Call[wire.Claim]) -> object:
    """Take messages under a lease; wait for them if there are none."""
    asked = call.asked
    await call.service.limit("claim", call.queue)
    claiming = call.service.desks.claim(
        call.queue, asked.max, lease=span(asked.lease), consumer=asked.consumer, wait=asked.wait
    )
    found = await (while_there(call.request, claiming) if asked.wait else claiming)
    return GONE if found is None else Deliveries(all_to_wire(found))


@book.add("POST", QUEUE + "/next", CONSUME, body=wire.Next, answer=Deliveries)
async def next(call: Call[wire.Next]) -> object:
    """Ack everything held under a token and claim again, in one call."""
    asked = call.asked
    await call.service.limit("claim", call.queue)
    found = await call.service.engine.next(
        call.queue,
        number(asked.token),
        asked.max,
        lease=span(asked.lease),
        consumer=asked.consumer,
        strict=asked.strict,
    )
    return Deliveries(all_to_wire(found))


@book.add("POST", QUEUE + "/ack", CONSUME, body=wire.Settle, answer=Settled)
async def ack(call: Call[wire.Settle]) -> object:
    """Done: these messages, or all that the token holds, end here."""
    return await settled(call, "ack")


@book.add("POST", QUEUE + "/release", CONSUME, body=wire.Settle, answer=Settled)
async def release(call: Call[wire.Settle]) -> object:
    """Give messages back; it does not count as a delivery."""
    return await settled(call, "release")


@book.add("POST", QUEUE + "/nack", CONSUME, body=wire.Nack, answer=Settled)
async def nack(call: Call[wire.Nack]) -> object:
    """Failed: deliver again later, or move to the dead letters."""
    return await settled(call, "nack", span(call.asked.delay), call.asked.error)


@book.add("POST", QUEUE + "/extend", CONSUME, body=wire.Extend, answer=Settled)
async def extend(call: Call[wire.Extend]) -> object:
    """Hold messages longer: the lease counts from now."""
    return await settled(call, "extend", span(call.asked.lease))


async def settled(
    call: Call[wire.Settle] | Call[wire.Nack] | Call[wire.Extend], verb: str, *options: timedelta | str | None
) -> object:
    """One settlement."""
    asked = call.asked
    await call.service.limit("settle", call.queue)
    done = await call.service.settlements.settle(
        verb,
        call.queue,
        number(asked.token),
        numbers(asked.ids),
        strict=asked.strict,
        options=options,
    )
    return to_wire(done)


@book.add("GET", QUEUE + "/work", CONSUME, query=wire.Work)
async def work(call: Call[wire.Work]) -> Response:
    """Have messages pushed, as server-sent events; whatever is in flight is released on disconnect."""
    check_accepts(call.request)
    await call.service.limit("claim", call.queue)
    asked = call.asked
    await call.service.engine.queue_stats(call.queue)  # a queue that is not there is an ordinary error
    stream = Stream(call.service, call.queue, asked.max, span(asked.lease), asked.consumer)
    return EventStream(stream.events())


@book.add("GET", QUEUE + "/held", CONSUME, query=wire.Held, answer=Deliveries)
async def held(call: Call[wire.Held]) -> object:
    """What a token still holds."""
    return Deliveries(all_to_wire(await call.service.engine.held(call.queue, number(call.asked.token))))


@book.add("GET", QUEUE + "/holders", CONSUME, query=wire.Holders, answer=Holders)
async def holders(call: Call[wire.Holders]) -> object:
    """Who holds messages."""
    ids = numbers(call.asked.ids) or []
    return Holders(all_to_wire(await call.service.engine.holders(call.queue, ids)))


@book.add("GET", QUEUE + "/claims", CONSUME, query=wire.Claims, answer=Claims)
async def claims(call: Call[wire.Claims]) -> object:
    """What a consumer of this name holds, with the tokens: for one that was restarted."""
    return Claims(all_to_wire(await call.service.engine.claims(call.queue, call.asked.consumer)))


@book.add("GET", QUEUE + "/leases", READ, query=wire.Limit, answer=Leases)
async def leases(call: Call[wire.Limit]) -> object:
    """The open claims of a queue."""
    return Leases(all_to_wire(await call.service.engine.leases(call.queue, call.asked.limit)))


@book.add("GET", QUEUE + "/blocked", READ, query=wire.Limit, answer=Blocked)
async def blocked_keys(call: Call[wire.Limit]) -> object:
    """Ordering keys whose messages wait behind their head."""
    return Blocked(all_to_wire(await call.service.engine.blocked_keys(call.queue, call.asked.limit)))


@book.add("POST", QUEUE + "/unblock", ADMIN, body=wire.Unblock, answer=Unblocked)
async def unblock(call: Call[wire.Unblock]) -> object:
    """Let an ordering key go on that a dead message blocks."""
    return Unblocked(str(await call.service.engine.unblock(call.queue, call.asked.key, how=call.asked.how)))
