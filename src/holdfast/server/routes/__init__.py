"""The native API, a module for each noun."""

from __future__ import annotations

from . import (
    claims,
    documents,
    endpoints,
    events,
    hooks,
    inbound,
    keys,
    logins,
    logs,
    messages,
    operations,
    queues,
    reports,
    schemas,
    seals,
    services,
)

BOOKS = (
    queues.book,
    messages.book,
    claims.book,
    reports.book,
    schemas.book,
    seals.book,
    logs.book,
    endpoints.book,
    events.book,
    hooks.book,
    inbound.book,
    keys.book,
    logins.book,
    services.book,
    operations.book,
    documents.book,
)
