"""Paths, names and times as the queue-ti page has them."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime

MESSAGES = "/api/messages"
MESSAGE = MESSAGES + "/{id}"
TOPICS = "/api/topics"
TOPIC = TOPICS + "/{queue}"
CONFIGS = "/api/topic-configs"
CONFIG = CONFIGS + "/{queue}"
SCHEMAS = "/api/topic-schemas"
SCHEMA = SCHEMAS + "/{queue}"

GRAVE = ".dlq"  # how the name of a dead-letter topic ends


def grave_of(topic: str) -> str:
    """The dead-letter topic of a topic."""
    return topic + GRAVE


def is_grave(topic: str) -> bool:
    """Whether a name is one of a dead-letter topic."""
    return topic.endswith(GRAVE)


def at(time: datetime | None) -> str | None:
    """A point in time."""
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def as_time(text: object) -> datetime | None:
    """A point in time as the database writes it into JSON; None: it is none."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
        return None if time is None or time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def at_text(text: object) -> str | None:
    """The same, as the page has it."""
    return at(as_time(text))


def as_base64(content: bytes) -> str:
    """Bytes, as JSON has them."""
    return b64encode(content).decode("ascii")
