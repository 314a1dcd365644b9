"""Messages as the page shows them: payloads in base64, moments, and what became of a message.

What JSON a message has is handed out as its text. A dead letter says where it came from as long as it is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.client import Delivery, Entry
from holdfast.server.contents import Content
from holdfast.server.entries import root_in

from . import configs
from .ids import uuid_of
from .values import as_base64, as_time, at, at_text, is_grave

MOVED = ("died_at", "redriven_at", "replayed_at")
SENT_BACK = ("redriven_at", "replayed_at")  # in the origin of what is no dead letter any more
STATUS = {
    "ready": "pending",
    "scheduled": "pending",
    "blocked": "pending",
    "in_flight": "processing",
    "done": "deleted",
    "discarded": "deleted",
    "failed": "failed",
    "expired": "expired",
}

Document = dict[str, Any]


def origin_of(found: Delivery | Entry) -> Document:
    """Where a message came from; empty if it was never moved, or somebody has written what is no origin."""
    origin = None if found.origin is None else msgspec.json.decode(cast(Raw, found.origin))
    return origin if isinstance(origin, dict) else {}


def is_dead(origin: Document) -> bool:
    """Whether a message with this origin is a dead letter."""
    if any(name in origin for name in SENT_BACK):
        return False
    return isinstance(origin.get("queue"), str) and at_text(origin.get("died_at")) is not None


def payload_of(found: Delivery | Entry) -> str:
    """What is in a message."""
    return as_base64(found.body if found.body is not None else bytes(found.payload))


def shared(found: Delivery | Entry, annotations: Mapping[str, Any], failures: int) -> Document:
    """What is told of a message, handed out or not."""
    origin = origin_of(found)
    dead = is_dead(origin)
    return {
        "id": uuid_of(root_in(origin, found.id)),
        "topic": found.queue,
        "payload": payload_of(found),
        "metadata": found.headers,
        "key": found.key if found.key is not None else origin.get("key"),
        "retry_count": failures,
        "max_retries": 0 if dead else most_retries(found, annotations),
        "last_error": found.last_error,
        "original_topic": origin["queue"] if dead else None,
        "dlq_moved_at": at_text(origin.get("died_at")) if dead else None,
        "created_at": created(found, origin),
    }


def most_retries(found: Delivery | Entry, annotations: Mapping[str, Any]) -> int:
    """How often a message may fail; in a queue that is no topic of this API, as its configuration has it."""
    if configs.ANNOTATION not in annotations:
        return found.max_deliveries
    if is_grave(found.queue):
        return 0
    return configs.retries_of(configs.own(annotations), configs.settings_of(annotations))


def states_of(status: str) -> list[str]:
    """The states of the engine that are one status of the page."""
    return [state for state, said in STATUS.items() if said == status]


def created(found: Delivery | Entry, origin: Document) -> str | None:
    """When a message was sent, before it was moved."""
    return at_text(origin.get("enqueued_at")) or at(found.enqueued_at)


def handed_out(delivery: Delivery, annotations: Mapping[str, Any], failures: int) -> Document:
    """A message that was dequeued."""
    return shared(delivery, annotations, failures) | {
        "status": "processing",
        "visibility_timeout": at(delivery.deadline),
    }


def listed(found: Content, annotations: Mapping[str, Any]) -> Document:
    """A message that lies in its topic, or is kept."""
    return shared(found, annotations, found.failures) | {
        "status": STATUS[found.state],
        "visibility_timeout": at(found.deadline),
        "expires_at": at(found.expires_at),
        "updated_at": at(max(moments(found))),
    }


def moments(found: Content) -> list[datetime]:
    """When something is known to have happened to a message."""
    origin = origin_of(found)
    moved = [time for name in MOVED if (time := as_time(origin.get(name))) is not None]
    came_back = found.due_at if found.state == "ready" else None
    own = (found.enqueued_at, came_back, found.claimed_at, found.ended_at)
    return moved + [moment for moment in own if moment is not None]
