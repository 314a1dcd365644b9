"""What the routes have in common that name their topic in the body, the query, or by a message."""

from __future__ import annotations

from typing import Any

from holdfast.client._requests import check_name
from holdfast.server.callers import require
from holdfast.server.endpoint import Call

from .errors import refused


def concern(call: Call[Any], scope: str, topic: str) -> None:
    """Refuse a caller who may not do this with a topic, and what cannot be one."""
    call.request.scope["visit"].queue = topic
    require(call.caller, scope, topic)
    check_name(topic)


def refuse_group(group: Any) -> None:
    """Refuse a consumer group: a message is done here when somebody has acked it."""
    if group is not None:
        raise refused("consumer_group", "There are no consumer groups here; leave it out.")
