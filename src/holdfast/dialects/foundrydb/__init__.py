"""The FoundryDB dialect, /managed-services: queues on services, where all that is done is done by agents."""

from __future__ import annotations

from holdfast.server.dialect import Dialect

from . import queues, sending, stats
from .errors import refuse

BOOKS = (queues.book, sending.book, stats.book)

DIALECT = Dialect(
    name="foundrydb",
    paths=("/managed-services",),
    endpoints=tuple(endpoint for book in BOOKS for endpoint in book.endpoints),
    refuse=refuse,
)
