"""Around every request: its id, headers that keep browsers careful, a last resort, a line in the log."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .dialect import refusal
from .service import Service
from .trouble import interrupted
from .visit import QUEUE, Visit, current, request_id

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]
# As part of a name it does not part names: it stays as it came, and leads to no other route.
SLASH = re.compile(rb"%2[fF]")
NO_STORE = (b"cache-control", b"no-store")
access = logging.getLogger("holdfast.access")


class Frame:
    """The outermost layer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if SLASH.search(scope["raw_path"]):
            scope["path"] = unquote(SLASH.sub(rb"%252F", scope["raw_path"]).decode("ascii"))
        service: Service = scope["app"].state.service
        visit = scope["visit"] = Visit(request_id(scope["headers"]))
        current.set(visit)

        async def send_framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                service.meters.request(scope["method"], visit, visit.seconds)
                # A list of its own: a response may be sent several times.
                headers = message["headers"] = [*message["headers"], *HEADERS]
                headers.append((b"x-request-id", visit.id.encode()))
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append(NO_STORE)
            await send(message)

        with service.traces.request(scope, visit):
            try:
                await self._app(scope, receive, send_framed)
            except asyncio.CancelledError:
                # By a server whose time to end is over: whoever waits is told, and nothing else has to end.
                await refuse(interrupted(), scope, receive, send_framed)
            except Exception as error:
                await refuse(error, scope, receive, send_framed)
            finally:
                if access.isEnabledFor(logging.INFO):
                    note(scope, visit, visit.seconds)


async def refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with an error, unless an answer has begun."""
    response = refusal(scope, error)
    if not scope["visit"].status:
        await response(scope, receive, send)


def note(scope: Scope, visit: Visit, seconds: float) -> None:
    """A line in the access log."""
    record = access.makeRecord(access.name, logging.INFO, "", 0, "request", (), None)
    record.request = line(scope, visit, seconds)
    access.handle(record)


def line(scope: Scope, visit: Visit, seconds: float) -> dict[str, Any]:
    """What the log says of a request: never its body, its path, its query or its headers."""
    return {
        **visit.marks(),
        "method": scope["method"],
        "route": visit.route,
        "queue": visit.queue if QUEUE.fullmatch(visit.queue) else None,
        "status": visit.status,
        "ms": round(seconds * 1000, 2),
        "client": scope["client"][0] if scope.get("client") else None,
        "key": visit.key,
    }
