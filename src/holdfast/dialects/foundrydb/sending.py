"""Enqueueing: a batch that an agent writes in one transaction, and the ids that it got."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.server.callers import require
from holdfast.server.endpoint import ANY, READ, SEND, Book, Call

from .requests import Enqueue, NewMessage, Poll
from .tasks import answer, begun, polled
from .values import MESSAGES

book = Book("sending")


@book.add("POST", MESSAGES, SEND, body=Enqueue, needs_body=True)
async def enqueue(call: Call[Enqueue]) -> object:
    """Have messages written, all or none."""
    messages = [as_given(message) for message in call.asked.messages]
    return begun(await call.service.services.enqueue(call.part("service"), call.queue, messages))


def as_given(message: NewMessage) -> dict[str, Any]:
    """A message for the agent."""
    given = msgspec.structs.asdict(message).items()
    return {name: value for name, value in given if value is not UNSET and value is not None}


@book.add("GET", MESSAGES, ANY, query=Poll)
async def poll_enqueue(call: Call[Poll]) -> object:
    """Whether they are written, and by which ids: for those who may send, or read."""
    if not call.caller.may(SEND, call.queue):
        require(call.caller, READ, call.queue)
    task = await polled(call, "enqueue")
    return answer(task, None if task.result is None else msgspec.json.decode(task.result))
