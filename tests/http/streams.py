"""A reader of work streams: events as they come, for as long as the connection lasts."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.fix_http import Caller

TIMEOUT = 20.0  # seconds for an event to come


class Stream:
    """A connection to /work; it reads nothing before it is asked to."""

    def __init__(self, http: Caller, queue: str, query: str = "", *headers: str) -> None:
        self._socket = socket.create_connection(http.place, timeout=TIMEOUT)
        lines = [f"GET /v1/queues/{queue}/work?{query} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers = dict(line.split(": ", 1) for line in iter(self._line, ""))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()

    def _line(self) -> str:
        return self._file.readline().decode().strip("\r\n")

    def chunk(self) -> bytes | None:
        """What comes next; None at the end."""
        size = int(self._file.readline() or b"0", 16)
        data = self._file.read(size + 2)
        return data[:-2] if size else None

    def event(self) -> tuple[str, Any] | None:
        """The next event, with its data; a comment is an event of its own; None at the end."""
        data = self.chunk()
        if data is None:
            return None
        assert data.endswith(b"\n\n"), data
        if data.startswith(b":"):
            return "comment", data.decode().strip(": \n")
        fields = dict(line.split(": ", 1) for line in data.decode().strip().split("\n"))
        if "event" not in fields:
            return next(iter(fields.items()))
        found = json.loads(fields["data"])
        if fields["event"] == "message":
            assert fields["id"] == found["id"]
        return fields["event"], found

    def message(self) -> Any:
        """The next message; comments are passed over."""
        while (event := self.event()) is not None:
            kind, data = event
            if kind == "message":
                return data
            assert kind in ("comment", "retry"), event
        raise AssertionError("the stream has ended")

    def is_quiet(self, seconds: float) -> bool:
        """Whether no message comes for so long; the connection cannot be read any further then."""
        self._socket.settimeout(seconds)
        try:
            while (event := self.event()) is not None:
                if event[0] == "message":
                    return False
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(TIMEOUT)
        return True
