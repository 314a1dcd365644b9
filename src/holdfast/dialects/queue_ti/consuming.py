"""Consuming: take messages for a while, and settle them by their ids alone.

A message has one lease at most. Who settles it names the message, and no token: it is settled with the token
that is found, so whoever took it last in the meantime loses it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.responses import Response

from holdfast.client import Delivery, MessageNotFoundError, QueueNotFoundError
from holdfast.server.endpoint import CONSUME, SEND, Book, Call
from holdfast.server.places import Place
from holdfast.server.sse import GONE

from .calls import concern, refuse_group
from .errors import ConflictError, not_there
from .ids import id_of
from .records import handed_out, is_dead, origin_of
from .requests import Ack, Dequeue, Nack
from .values import MESSAGE, MESSAGES

book = Book("consuming")


@book.add("POST", MESSAGES + "/dequeue", CONSUME, body=Dequeue, anywhere=True)
async def dequeue(call: Call[Dequeue]) -> object:
    """Take messages, which nobody else gets until their visibility timeout is over."""
    asked, service = call.asked, call.service
    concern(call, CONSUME, asked.topic)
    refuse_group(asked.consumer_group)
    await service.limit("claim", asked.topic)
    seconds = asked.visibility_timeout_seconds
    lease = None if seconds is None else timedelta(seconds=seconds)
    try:
        taken = await service.claimed(call.request, asked.topic, asked.count, lease=lease)
    except QueueNotFoundError:
        return {"messages": []}  # topics begin with their first message
    if taken is None:
        return GONE
    try:
        return {"messages": await shown(call, taken)}
    except BaseException:
        service.give_back(asked.topic, taken)
        raise


async def shown(call: Call[Dequeue], taken: list[Delivery]) -> list[object]:
    """What was taken, as the page shows it."""
    topic = call.asked.topic
    annotations = (await call.service.configs.of(topic)).annotations
    again = [delivery.id for delivery in taken if delivery.deliveries > 1]
    failures = await call.service.entries.failures_of(topic, again)
    return [handed_out(delivery, annotations, failures.get(delivery.id, 0)) for delivery in taken]


@book.add("POST", MESSAGE + "/ack", CONSUME, body=Ack, anywhere=True)
async def ack(call: Call[Ack]) -> object:
    """A message is done: it is deleted."""
    refuse_group(call.asked.consumer_group)
    return await settled(call, "ack")


@book.add("POST", MESSAGE + "/nack", CONSUME, body=Nack, anywhere=True)
async def nack(call: Call[Nack]) -> object:
    """A message has failed: it is there again, or has used up its retries."""
    refuse_group(call.asked.consumer_group)
    return await settled(call, "nack", None, call.asked.error)


async def settled(call: Call[Any], verb: str, *options: timedelta | str | None) -> Response:
    """Settle the message of a path, whoever holds it."""
    place, service = await place_of(call), call.service
    if not call.caller.reaches(place.queue):
        raise no_such(call)
    concern(call, CONSUME, place.queue)
    await service.limit("settle", place.queue)
    (seq,) = await service.numbers.of(place.queue, [place.id])
    held = (await service.holdings.of(place.queue, [seq])).get(seq)
    if held is None:
        raise not_there(call.part("id"), "is not processing")
    done = await service.settlements.settle(verb, place.queue, held.token, [place.id], options=options)
    if not done.settled:
        raise not_there(call.part("id"), "is not processing any more")
    return Response(status_code=204)


async def place_of(call: Call[Any]) -> Place:
    """Where the message of a path is."""
    root = id_of(call.part("id"))
    place = None if root is None else await call.service.places.of(root)
    if place is None:
        raise no_such(call)
    return place


def no_such(call: Call[Any]) -> MessageNotFoundError:
    """There is no message of this id, or none that the caller may know of: ids can be guessed."""
    return not_there(call.part("id"), "does not exist")


@book.add("POST", MESSAGE + "/requeue", SEND, anywhere=True)
async def requeue(call: Call[None]) -> object:
    """Send a dead letter back to the topic that it came from; its id stays."""
    place, service = await place_of(call), call.service
    entry = (await service.entries.of(place.queue, [place.id])).get(place.id)
    origin = {} if entry is None else origin_of(entry)
    dead = entry is not None and entry.ended_at is None and is_dead(origin)
    if not call.caller.reaches(origin["queue"] if dead else place.queue):
        raise no_such(call)
    if not dead:
        raise not_there(call.part("id"), "is not in a dead-letter topic")
    concern(call, SEND, origin["queue"])
    if not await service.engine.redrive(origin["queue"], [place.id]):
        raise ConflictError(
            "QH924",
            f"message {call.part('id')} cannot be requeued now",
            f"Somebody is processing it, or {origin['queue']} has a message with its key.",
        )
    return Response(status_code=204)
