"""HTTP on a connection: uvicorn's way, with the limits that it has not.

A request's head has a size, and head and body have a time within which they must come; an answer has to be
read. So nobody holds connections and memory by being slow. What is not HTTP is refused in the one shape of
errors.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast.client import (
    HoldfastError,
    MalformedRequestError,
    RequestHeadTooLargeError,
    RequestTimeoutError,
)

from .answering import encode, error_document
from .settings import Patience

HEAD_BYTES = 64 * 1024


class Refused(Exception):
    """Ends the parsing of a request; uvicorn answers then, by send_400_response."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *, patience: Patience, **options: Any) -> None:
        super().__init__(**options)
        self._patience = patience
        self._running: RequestResponseCycle | None = None
        self._refusal: HoldfastError | None = None
        self._received = 0  # bytes since the last request was complete
        self._beside = 0  # of these, since the last of a body: chunks have heads, and trailers behind them
        self._begun = False  # a request has begun, and is not complete
        self._in_body = False
        self._waiting: asyncio.TimerHandle | None = None  # for the rest of a request
        self._stalled: asyncio.TimerHandle | None = None  # until they read on

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody connects, and is to say something."""
        super().connection_made(transport)
        self._expect(self._patience.head)

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone: also whoever answers a request that others wait behind learns it."""
        self._rest()
        self._unstall()
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """They say something. A request that comes whole, as most do, needs no timer."""
        self._received += len(data)
        self._beside += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not (self._begun or self._received):
            self._rest()
        elif self._beside > HEAD_BYTES:
            self.refuse(head_too_large())
        elif self._waiting is None:
            self._expect(self._patience.body if self._in_body else self._patience.head)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of its head. One of a trailer counts for nothing: who calls was decided before it came."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self._refusal = head_too_large()
            raise Refused
        self._rest()
        self._in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._rest()
        self._begun = self._in_body = False
        self._received = self._beside = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """They do not read what is sent."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self._patience.stall, self.transport.abort)

    def resume_writing(self) -> None:
        """They read on."""
        self._unstall()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """The request cannot be read."""
        malformed = MalformedRequestError("QH910", "this is not HTTP", None, "Send HTTP/1.1.")
        self.refuse(self._refusal or malformed)

    def refuse(self, error: HoldfastError) -> None:
        """Answer in place of the application, if no other answer is on its way, and hang up."""
        self._rest()
        running = self._running
        if (
            running is None
            or running.response_complete
            or (self._in_body and running is self.cycle and not running.response_started)
        ):
            self.transport.write(answer(error))
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol gets HTTP; that is no matter for the log."""

    def _expect(self, seconds: float) -> None:
        self._waiting = self.loop.call_later(seconds, self._late)

    def _rest(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _unstall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _late(self) -> None:
        """They were too slow; unless it is the server that does not read on."""
        if self.flow.read_paused:
            self._expect(self._patience.body)
        elif self._received or self._begun:
            what = "body" if self._in_body else "head"
            self.refuse(RequestTimeoutError("QH918", f"the {what} of the request did not come in time"))
        else:
            self.transport.close()


def head_too_large() -> RequestHeadTooLargeError:
    """The refusal of a head."""
    return RequestHeadTooLargeError(
        "QH917",
        "path, query and headers are too large",
        f"This server takes {HEAD_BYTES} bytes of them.",
        "Send less, or in the body.",
    )


def answer(error: HoldfastError) -> bytes:
    """An error, as it is sent where there is no application to send it."""
    body = encode(error_document(error))
    head = (
        f"HTTP/1.1 {error.http_status} {HTTPStatus(error.http_status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
