"""Consuming: take messages for a while, and settle them by their ids alone."""

from __future__ import annotations

from datetime import timedelta

from holdfast.client import Delivery, QueueNotFoundError
from holdfast.server.endpoint import CONSUME, Book, Call

from .calls import concern, refuse_group
from .records import handed_out
from .requests import Dequeue
from .values import MESSAGES

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
        taken = await service.desks.claim(asked.topic, asked.count, lease=lease)
    except QueueNotFoundError:
        return {"messages": []}  # topics begin with their first message
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
