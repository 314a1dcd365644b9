"""A server that answers as it is told to, and writes down what it was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx

PATIENCE = 20.0  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a status, a document, and headers; or nothing at all, when the connection is cut."""

    status: int = 200
    document: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    text: str | None = None  # in place of a document

    def encoded(self) -> bytes:
        """The bytes of the answer."""
        text = json.dumps(self.document) if self.text is None else self.text
        body = text.encode("utf-8", "surrogateescape")
        lines = [f"HTTP/1.1 {self.status} x", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode() + body


CUT = Answer(status=0)  # the connection is closed
SILENCE = Answer(status=-1)  # it stays open, until the client gives up


def refusal(code: str, status: int, *, after: int | None = None) -> Answer:
    """An error of the server's."""
    error = {"code": code, "name": "x", "message": "no", "detail": "because", "hint": "go on"}
    headers = () if after is None else (("Retry-After", str(after)),)
    return Answer(status, {"error": error}, headers)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: httpx.Headers
    body: Any


class Scripted:
    """Gives each request the next answer, and those after the last one the last."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self.asked: list[Asked] = []
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, name="scripted", daemon=True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Scripted:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE)
                self.asked.append(read(connection))
                answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
                if answer is SILENCE:
                    connection.recv(1)
                elif answer is not CUT:
                    connection.sendall(answer.encoded())


def read(connection: socket.socket) -> Asked:
    """One request, to its end."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = httpx.Headers([(line.partition(":")[0], line.partition(":")[2].strip()) for line in lines])
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65_536)
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body) if body else None)
