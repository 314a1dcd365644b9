"""Around every request: headers that keep browsers careful, and a line in the access log."""

from __future__ import annotations

import logging
import re
from time import perf_counter
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]
# As part of a name it does not part names: it stays as it came, and leads to no other route.
SLASH = re.compile(rb"%2[fF]")
KEY_ID = "holdfast.key_id"  # in the scope of a request whose key was good
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
        started, status = perf_counter(), 0

        async def send_framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A list of its own: a response may be sent several times.
                message["headers"] = [*message["headers"], *HEADERS]
                if not any(name == b"cache-control" for name, _ in message["headers"]):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        try:
            await self._app(scope, receive, send_framed)
        finally:
            if access.isEnabledFor(logging.INFO):
                access.info("request", extra={"request": line(scope, status, perf_counter() - started)})


def line(scope: Scope, status: int, seconds: float) -> dict[str, Any]:
    """What the log says of a request: never its body, its query or its headers."""
    return {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "ms": round(seconds * 1000, 2),
        "client": scope["client"][0] if scope.get("client") else None,
        "key": scope.get(KEY_ID),
    }
