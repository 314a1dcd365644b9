"""Looking: the messages of topics, a page at a time, and how many there are."""

from __future__ import annotations

from typing import Any

from holdfast.client import QueueNotFoundError
from holdfast.server.endpoint import READ, Book, Call

from .calls import concern
from .records import STATUS, Document, listed, states_of
from .requests import Listing
from .values import MESSAGES

MOST_LISTED = 200
STATS = "/api/stats"

Counts = dict[str, dict[str, int]]

book = Book("listing")


@book.add("GET", MESSAGES, READ, query=Listing, anywhere=True)
async def messages(call: Call[Listing]) -> object:
    """Messages of a topic, or of all, a page at a time."""
    asked = call.asked
    limit = min(asked.limit, MOST_LISTED)
    counts = await counts_of(call, asked.topic)
    states = states_of(asked.status) if asked.status else list(STATUS)
    sizes = {topic: sum(count[state] for state in states) for topic, count in counts.items()}
    items = await page(call, sizes, states, limit)
    return {"items": items, "total": sum(sizes.values()), "limit": limit, "offset": asked.offset}


async def counts_of(call: Call[Any], topic: str | None) -> Counts:
    """How many messages are in which state: of a topic, or of each that the key reaches."""
    if topic is not None:
        concern(call, READ, topic)
        return await call.service.contents.counts([topic])
    every = [info.queue for info in await call.service.engine.queues()]
    return await call.service.contents.counts([one for one in every if call.caller.reaches(one)])


async def page(call: Call[Listing], sizes: dict[str, int], states: list[str], limit: int) -> list[Document]:
    """One page of the messages of several topics, one topic after the other."""
    items: list[Document] = []
    skip = call.asked.offset
    for topic, size in sizes.items():
        # What has ended is not counted to its end: of a single topic it can be paged through all the same.
        if len(sizes) > 1 and skip >= size:
            skip -= size
            continue
        items += await part(call, topic, states, limit - len(items), skip)
        skip = 0
        if len(items) == limit:
            break
    return items


async def part(call: Call[Any], topic: str, states: list[str], limit: int, offset: int) -> list[Document]:
    """Messages of one topic; none of one that is gone by now."""
    try:
        found = await call.service.contents.page(topic, states, limit, offset)
    except QueueNotFoundError:
        return []
    annotations = (await call.service.configs.of(topic)).annotations
    return [listed(content, annotations) for content in found]


@book.add("GET", STATS, READ, anywhere=True)
async def stats(call: Call[None]) -> object:
    """How many messages of each topic have which status; what there is none of is left out."""
    topics = []
    for topic, count in (await counts_of(call, None)).items():
        for status in dict.fromkeys(STATUS.values()):
            messages = sum(count[state] for state in states_of(status))
            if messages:
                topics.append({"topic": topic, "status": status, "count": messages})
    return {"topics": topics}
