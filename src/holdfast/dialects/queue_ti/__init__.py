"""The queue-ti dialect, /api/messages: topics that are queues, messages by UUID, settled without a token."""

from __future__ import annotations

from holdfast.server.dialect import Dialect

from . import consuming, lifecycle, listing, reapers, removing, schemas, sending, settings
from .errors import refuse
from .values import CONFIGS, MESSAGES, SCHEMAS, TOPICS

BOOKS = (
    sending.book,
    consuming.book,
    listing.book,
    removing.book,
    lifecycle.book,
    settings.book,
    schemas.book,
    reapers.book,
)

DIALECT = Dialect(
    name="queue-ti",
    paths=(MESSAGES, TOPICS, CONFIGS, SCHEMAS, "/api/stats", "/api/admin", "/api/version"),
    endpoints=tuple(endpoint for book in BOOKS for endpoint in book.endpoints),
    refuse=refuse,
    jobs=reapers.JOBS,
)
