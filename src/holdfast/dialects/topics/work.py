"""Work streams: jobs claimed for a connection and pushed to it, as many as it has room for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from starlette.responses import Response

from holdfast.client import Delivery, HoldfastError
from holdfast.server.endpoint import CONSUME, Book, Call
from holdfast.server.numbers import Numbers
from holdfast.server.service import ending
from holdfast.server.sse import MEDIA, EventStream, check_accepts
from holdfast.server.streams import Stream, Wanted

from .errors import message, said
from .records import jobs
from .requests import Work
from .values import MOST_JOBS, TOPIC, lease

RETRY_MS = 2_000
OPENING = f"retry: {RETRY_MS}\n\n: hb\n\n".encode()

book = Book("work")
encode = msgspec.json.Encoder().encode


def event(name: str, data: object, id: str | int | None = None) -> bytes:
    """An event."""
    head = f"id: {id}\n" if id is not None else ""
    return b"%bevent: %b\ndata: %b\n\n" % (head.encode(), name.encode(), encode(data))


def error_event(error: HoldfastError) -> bytes:
    """The last event of a stream that cannot go on: the status that an answer would have, and why."""
    status, code = said(error)
    return event("error", {"code": status, "error": message(error), "reason": code})


class JobFrames:
    """The events of a work stream."""

    opening = OPENING
    ending = error_event(ending())

    def __init__(self, topic: str, numbers: Numbers) -> None:
        self._topic = topic
        self._numbers = numbers

    async def messages(self, deliveries: Sequence[Delivery]) -> list[bytes]:
        """An event for each job."""
        seqs = await self._numbers.of(self._topic, [delivery.id for delivery in deliveries])
        return [event("job", {"topic": self._topic, **job}, job["$seq"]) for job in jobs(deliveries, seqs)]

    def error(self, error: HoldfastError) -> bytes:
        """What is wrong."""
        return error_event(error)


@book.add("GET", TOPIC + "/work", CONSUME, query=Work, query_key=True)
async def work(call: Call[Work]) -> Response:
    """Have jobs pushed; what is in flight on the connection when it ends may be claimed again at once."""
    check_accepts(call.request)
    asked = call.asked
    await call.service.limit("claim", call.queue)
    if call.request.method == "HEAD":
        await call.service.engine.claims(call.queue, "")  # refused where a stream would be
        return Response(media_type=MEDIA)
    wanted = Wanted(
        queue=call.queue, max=min(asked.max, MOST_JOBS), lease=lease(asked.lease_ms), consumer=asked.node
    )
    check = partial(call.service.door.readmit, call.request, CONSUME, call.queue)
    frames = JobFrames(call.queue, call.service.numbers)
    # Every claim counts as a delivery here, so what was delivered is not released, but given back as failed.
    stream = Stream(call.service, wanted, check, frames=frames, give_back="nack")
    await stream.begin()
    return EventStream(stream.events(), stream.close)
