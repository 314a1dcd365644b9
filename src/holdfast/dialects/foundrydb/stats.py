"""Stats: how many messages a queue has, counted by an agent."""

from __future__ import annotations

import msgspec

from holdfast.client import ServiceTask
from holdfast.server.endpoint import READ, Book, Call

from .requests import Poll
from .tasks import answer, begun, polled
from .values import STATS

book = Book("stats")


class Figures(msgspec.Struct):
    """How many messages a queue has."""

    queue_name: str
    ready_messages: int
    inflight_messages: int
    dead_messages: int
    oldest_age_seconds: float | None


@book.add("POST", STATS, READ)
async def request_stats(call: Call[None]) -> object:
    """Have the messages of a queue counted."""
    return begun(await call.service.services.ask_stats(call.part("service"), call.queue))


@book.add("GET", STATS, READ, query=Poll)
async def poll_stats(call: Call[Poll]) -> object:
    """Whether they are counted, and how many there were."""
    task = await polled(call, "stats")
    return answer(task, snapshot(task))


def snapshot(task: ServiceTask) -> Figures | None:
    """What was counted; where nothing is ready nothing has an age, and the page has a number there."""
    if task.result is None:
        return None
    found = msgspec.json.decode(task.result, type=Figures)
    return msgspec.structs.replace(found, oldest_age_seconds=found.oldest_age_seconds or 0.0)
