"""Server-sent events out of pieces of text, as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event: what it is, and what it says."""

    name: str
    data: bytes


class Events:
    """Puts events together. Lines end with a line feed alone: JSON may hold other line ends as they are."""

    def __init__(self) -> None:
        self.retry: float | None = None  # seconds to wait before connecting again, if the server says so
        self._rest = bytearray()
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are whole with this piece."""
        seen = len(self._rest)
        self._rest += piece
        if self._rest.find(b"\n", seen) < 0:
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.rstrip(b"\r"):
                self._take(bytes(line.rstrip(b"\r")))
            elif self._data:
                yield self._finish()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode()
        elif name == b"data":
            self._data.append(value)
        elif name == b"retry" and value.isdigit():
            self.retry = int(value) / 1000

    def _finish(self) -> Event:
        event = Event(self._name, b"\n".join(self._data))
        self._name, self._data = "message", []
        return event
