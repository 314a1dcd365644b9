"""What is noted of a request on its way: for its line in the log, its figures, and errors that it meets."""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

from opentelemetry.trace import Span, format_span_id, format_trace_id

QUEUE = re.compile("[A-Za-z0-9._:-]{1,200}")  # what can be a queue's name; anything else is not told
SANE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")

_prefix = os.urandom(6).hex()
_numbers = count(1)


@dataclass(slots=True)
class Visit:
    """One request."""

    id: str
    route: str | None = None  # as it is declared: the path itself may hold what is nobody's business
    queue: str = ""
    key: int | None = None
    status: int = 0
    span: Span | None = None  # the innermost that is open
    started: float = field(default_factory=perf_counter)

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return perf_counter() - self.started

    def marks(self) -> dict[str, str]:
        """What log lines of this request have in common."""
        if self.span is None:
            return {"request_id": self.id}
        context = self.span.get_span_context()
        return {
            "request_id": self.id,
            "trace_id": format_trace_id(context.trace_id),
            "span_id": format_span_id(context.span_id),
        }


current: ContextVar[Visit | None] = ContextVar("visit", default=None)


def request_id(headers: list[tuple[bytes, bytes]]) -> str:
    """The id that a request brings as X-Request-ID, if it is fit to be logged; else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and SANE.fullmatch(value):
            return value.decode("ascii")
    return f"{_prefix}-{next(_numbers):x}"
