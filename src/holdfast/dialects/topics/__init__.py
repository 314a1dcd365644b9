"""The topics dialect, /v0/topics: logs and queues as topics, leases by node and number, push over SSE."""

from __future__ import annotations

from holdfast.server.dialect import Dialect

from . import leases, lifecycle, reading, watch, work, writing
from .errors import refuse

BOOKS = (lifecycle.book, writing.book, reading.book, leases.book, work.book, watch.book)

DIALECT = Dialect(
    name="topics",
    paths=("/v0",),
    endpoints=tuple(endpoint for book in BOOKS for endpoint in book.endpoints),
    refuse=refuse,
)
