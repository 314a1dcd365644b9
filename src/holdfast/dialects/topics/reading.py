"""Reading on and deleting: what is behind a place in a topic, what is lost, what is not wanted any more."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

from holdfast.client import InvalidRequestError, Record
from holdfast.server.endpoint import ADMIN, CONSUME, Book, Call
from holdfast.server.service import Service
from holdfast.server.sse import GONE, while_there
from holdfast.server.tails import Page

from . import configs
from .lifecycle import state_of
from .records import Document, as_record, node_of
from .requests import Delete, Diff
from .values import TOPIC, performance

MOST_READ, USUAL = 1_000, 256
LONGEST_WAIT_MS = 30_000

book = Book("reading")


@dataclass(frozen=True, slots=True)
class View:
    """Which records a reader wants to see, and what of them."""

    nodes: frozenset[str]  # whose records are left out
    tags: bool
    meta: bool
    content: bool = True

    def of(self, page: Page, *, filtered: bool) -> list[Document]:
        """The records of a page; filtered: whether the topic leaves out those of the reader's own nodes."""
        hidden = self.nodes if filtered else frozenset[str]()
        return [
            as_record(row, tags=self.tags, meta=self.meta, content=self.content)
            for row in page.rows
            if row.kind == "record" and (not hidden or node_of(row) not in hidden)
        ]


def nodes(given: str | list[str] | None) -> frozenset[str]:
    """The nodes of a request, one or several."""
    return frozenset([given] if isinstance(given, str) else given or [])


def tombstone(page: Page, config: configs.Config) -> Document | None:
    """What retention has removed that the reader has not seen."""
    gaps = [row for row in page.rows if row.kind == "gap"]
    return lost(page, gaps[0], config) if gaps else None


def lost(page: Page, gap: Record, config: configs.Config) -> Document:
    """A range that is gone, and why."""
    limits = {"ttl": config["ttl_ms"], "cap": config["cap_records"]}
    reasons = [reason for reason, limit in limits.items() if limit]
    return {
        "gap_from": gap.from_seq,
        "gap_to": gap.to_seq,
        "reason": reasons[0] if len(reasons) == 1 else "mixed",
        "missed_estimate": gap.to_seq - gap.from_seq + 1,
        "earliest_seq": earliest(page),
        "head_seq": page.head,
    }


def earliest(page: Page) -> int:
    """The first number that is there; the next one, if there is none."""
    return page.extent.first_seq or page.extent.last_seq + 1


def recreated(place: int, page: Page) -> Document:
    """The reader has been further than the topic reaches: it is another one of this name."""
    return {
        "gap_from": place,
        "gap_to": place,
        "reason": "recreated",
        "missed_estimate": 0,
        "earliest_seq": earliest(page),
        "head_seq": page.extent.last_seq,
    }


@dataclass(slots=True)
class Reading:
    """One reader's way through a topic."""

    service: Service
    topic: str
    view: View
    limit: int
    place: int
    gap: Document | None = None
    base: int | None = None  # of the topic as it was looked at last: another one has another

    async def step(self) -> tuple[Page, list[Document]]:
        """What is behind the place now; moves it on, and to the beginning if the topic was made again."""
        page = await self.service.tails.read(self.topic, self.place, self.limit)
        if page.place < self.place or self.base not in (None, page.extent.base):
            self.gap = recreated(self.place, page)
            page = await self.service.tails.read(self.topic, 0, self.limit)
        elif any(row.kind == "gap" for row in page.rows):
            effective = await self.service.configs.effective(self.topic)
            self.gap = tombstone(page, configs.shown(effective) if effective else configs.DEFAULTS)
        self.place, self.base = page.place, page.extent.base
        annotations = (await self.service.configs.of(self.topic)).annotations
        return page, self.view.of(page, filtered=bool(configs.kept(annotations, "dedupe_node")))


@book.add("POST", TOPIC + "/diff", CONSUME, body=Diff)
async def diff(call: Call[Diff]) -> object:
    """The records behind a place, and where to go on; waits for some if told to."""
    asked = call.asked
    view = View(nodes(asked.node), asked.include_tags, asked.include_meta)
    limit = min(asked.limit, MOST_READ) or USUAL
    reading = Reading(call.service, call.queue, view, limit, asked.from_seq)
    await call.service.limit("claim", call.queue)
    if asked.wait_ms == 0:
        page, records = await reading.step()
    else:
        until = monotonic() + min(asked.wait_ms, LONGEST_WAIT_MS) / 1000
        found = await while_there(call.request, awaited(reading, until), lambda _: None)
        if found is None:
            return GONE
        page, records = found
    return {
        "topic": call.queue,
        "records": records,
        "next_from_seq": page.place,
        "head_seq": page.head,
        "earliest_seq": earliest(page),
        "caught_up": page.at_end,
        "tombstone": reading.gap,
        "lag": page.head - page.place,
        "performance": performance(call),
    }


async def awaited(reading: Reading, until: float) -> tuple[Page, list[Document]]:
    """The first records that come, or none when the time is over."""
    service = reading.service
    with service.tails.following([reading.topic]) as news:
        while True:
            news.clear()
            page, records = await reading.step()
            left = until - monotonic()
            if records or reading.gap or left <= 0 or service.ending.is_set():
                return page, records
            if page.at_end or not page.rows:
                await service.tails.sleep([reading.topic], news, left)


@book.add("POST", TOPIC + "/delete", ADMIN, body=Delete)
async def delete_records(call: Call[Delete]) -> object:
    """Delete the records that are there now: before a number, by tag, or both."""
    tag, prefix = matched(call.asked)
    deleted = await call.service.removals.remove(call.queue, tag, prefix, call.asked.before_seq)
    kind = (await call.service.numbers.extent(call.queue)).kind
    state = await state_of(call, kind)
    state.pop("queue", None)
    return {"topic": call.queue, "deleted": deleted, **state, "performance": performance(call)}


def matched(asked: Delete) -> tuple[str | None, str | None]:
    """The tag, or the beginning of tags, that a request is about."""
    match: Any = asked.match
    if match is None:
        if asked.before_seq is None:
            raise refused("Got neither before_seq nor match.")
        return None, None
    if isinstance(match, str):
        return match, None
    if not (isinstance(match, list) and len(match) == 3 and match[0] == "tag" and isinstance(match[2], str)):
        raise refused('It takes ["tag", "Eq", "x"], ["tag", "Glob", "x*"], or text.')
    operator, text = match[1:]
    if operator == "Eq":
        return text, None
    if operator != "Glob" or not text.endswith("*") or text.count("*") > 1:
        raise refused("Its operator is Eq, or Glob with one star, at the end.")
    return None, text[:-1]


def refused(reason: str) -> InvalidRequestError:
    """The refusal of what is to be deleted."""
    return InvalidRequestError("QH911", "bad value for match", reason)
