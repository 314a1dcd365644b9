"""Removing: the messages of a topic that have a key, or a status."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from holdfast.server.endpoint import ADMIN, Book, Call

from .records import states_of
from .requests import Purge
from .values import TOPIC

LIVING = ("pending", "processing")
KEPT = "expired"
ALL = [*LIVING, KEPT]

book = Book("removing")


@book.add("DELETE", TOPIC + "/messages/by-key/{key}", ADMIN)
async def delete_by_key(call: Call[None]) -> object:
    """Delete the messages that have a key."""
    return {"deleted": len(await call.service.engine.discard_key(call.queue, key_of(call)))}


def key_of(call: Call[Any]) -> str:
    """The key at the end of the path, whatever slashes are in it."""
    path: bytes = call.request.scope["raw_path"]
    return unquote(path.rpartition(b"/")[2])


@book.add("POST", TOPIC + "/purge", ADMIN, body=Purge)
async def purge(call: Call[Purge]) -> object:
    """Delete the messages that have some statuses."""
    statuses = call.asked.statuses or ALL
    states = [state for status in LIVING if status in statuses for state in states_of(status)]
    deleted = await call.service.reaping.purge(call.queue, states) if states else 0
    if KEPT in statuses:
        deleted += await call.service.reaping.forget(call.queue, [KEPT])
    return {"deleted": deleted}
