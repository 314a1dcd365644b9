"""Paths and times as the FoundryDB page has them."""

from __future__ import annotations

from datetime import UTC, datetime

QUEUES = "/managed-services/{service}/queues"
QUEUE = QUEUES + "/{queue}"
MESSAGES = QUEUE + "/messages"
OWN_DATABASE = "defaultdb"  # whichever the address of the service names
STATS = QUEUE + "/stats"


def at(time: datetime) -> str:
    """A point in time."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
