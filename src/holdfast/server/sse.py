"""Server-sent events as an answer: it ends at once when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.client import NotAcceptableError

T = TypeVar("T")

MEDIA = "text/event-stream"
GONE = Response(status_code=499)  # nobody is there to read it


class EventStream(Response):
    """Sends what an iterator yields, until it ends or the client disconnects; then it calls `close`."""

    media_type = MEDIA

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        # no-transform and the second header: proxies must neither pack nor hold back events.
        super().__init__(headers={"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await self._run(receive, send)
        finally:
            self._close()

    async def _run(self, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sending
            with suppress(asyncio.CancelledError):
                await leaving

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:  # type: ignore[type-var]
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def gone(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_there(request: Request, work: Awaitable[T], give_back: Callable[[T], None]) -> T | None:
    """The result of some work, which is given up, or back, when the client disconnects; None then."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.create_task(gone(request.receive))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not leaving.done():
            return doing.result()
        if doing.done() and doing.exception() is None:
            give_back(doing.result())
        return None
    finally:
        for task in (doing, leaving):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def check_accepts(request: Request) -> None:
    """Refuse a client that does not take events."""
    accepted = request.headers.get("accept", "*/*")
    kinds = {kind.partition(";")[0].strip().lower() for kind in accepted.split(",")}
    if kinds.isdisjoint((MEDIA, "*/*", "text/*")):
        raise NotAcceptableError(
            "QH916", f"this route answers with {MEDIA}", f"Accept is {accepted[:200]!r}.", f"Accept {MEDIA}."
        )
