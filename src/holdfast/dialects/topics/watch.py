"""Watching topics over server-sent events: one connection for many, resumed where it ended in each.

What a watch is about is in its name, so that no server has to remember it; what the caller may read is
checked whenever the stream is opened, and while it is open.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from time import monotonic, time
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.client import (
    InvalidRequestError,
    NoSuchRouteError,
    QueueNotFoundError,
    UnauthorizedError,
)
from holdfast.server.answering import known
from holdfast.server.callers import require
from holdfast.server.endpoint import CONSUME, Book, Call
from holdfast.server.service import ending
from holdfast.server.sse import MEDIA, EventStream, check_accepts
from holdfast.server.tails import Page

from . import configs
from .lifecycle import config_of, not_there
from .reading import MOST_READ, USUAL, Reading, View, earliest, nodes
from .records import Document
from .requests import Seq, Watch, Watching, Word
from .values import clamped, performance
from .work import RETRY_MS, error_event, event

WATCH = "/v0/watch"
PREFIX = "wid_"
LONGEST_NAME = 16_384
HEARTBEAT_MS = (1_000, 60_000)

book = Book("watch")
encode = msgspec.json.Encoder().encode


# Anybody can make up a name, or an id: what could not have been given out is none.
Places: TypeAlias = dict[Word, Seq]


class Session(msgspec.Struct, array_like=True, frozen=True):
    """What a watch is about."""

    key: int | None
    places: Places
    nodes: list[str]
    limit: Annotated[int, Meta(ge=1, le=MOST_READ)]
    heartbeat: Annotated[float, Meta(ge=HEARTBEAT_MS[0] / 1000, le=HEARTBEAT_MS[1] / 1000)]
    meta: bool
    tags: bool
    content: bool

    @property
    def name(self) -> str:
        """What it is called: all that it says."""
        return PREFIX + as_text(encode(self))


def as_text(document: bytes) -> str:
    """Bytes that fit into a path or a header."""
    return urlsafe_b64encode(document).rstrip(b"=").decode("ascii")


def from_text(text: str, kind: Any) -> Any:
    """What was made into text; None: it was not."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=kind)
    except (ValueError, msgspec.MsgspecError):
        return None


@book.add("POST", WATCH, CONSUME, body=Watch, anywhere=True)
async def watch(call: Call[Watch]) -> object:
    """Name a watch over topics; opening it is a request of its own."""
    asked = call.asked
    topics: dict[str, Document] = {}
    for topic, begin in asked.topics.items():
        require(call.caller, CONSUME, topic)
        if await config_of(call, topic) is None:
            raise not_there(topic)
        extent = await call.service.numbers.extent(topic)
        if extent.kind == "queue":
            await call.service.engine.read(topic, 0, limit=1)  # refused where the stream would be
        topics[topic] = {
            "from_seq": extent.last_seq if begin.tail else begin.from_seq,
            "head_seq": extent.last_seq,
            "earliest_seq": extent.first_seq or extent.last_seq + 1,
        }
    session = Session(
        call.caller.key_id,
        {topic: found["from_seq"] for topic, found in topics.items()},
        sorted(nodes(asked.node)),
        min(asked.limit, MOST_READ) or USUAL,
        clamped(asked.heartbeat_ms, HEARTBEAT_MS) / 1000,
        asked.include_meta,
        asked.include_tags,
        asked.include_data,
    )
    if len(session.name) > LONGEST_NAME:
        raise InvalidRequestError("QH911", "bad value for topics", "They are too many for one watch.")
    return {
        "wid": session.name,
        "stream_url": f"{WATCH}/{session.name}",
        "topics": topics,
        "performance": performance(call),
    }


@book.add("GET", WATCH + "/{wid}", CONSUME, query=Watching, query_key=True, anywhere=True)
async def follow(call: Call[Watching]) -> Response:
    """Open a watch: records as they come, from where the last event that was seen says."""
    check_accepts(call.request)
    session: Session | None = from_text(call.part("wid").removeprefix(PREFIX), Session)
    if session is None:
        raise NoSuchRouteError(
            "QH914", "there is no such watch", "Its name was not given out here.", "POST it again."
        )
    if session.key is not None and session.key != call.caller.key_id:
        raise UnauthorizedError("QH920", "this watch is another key's", None, "POST it again, with this key.")
    for topic in session.places:
        require(call.caller, CONSUME, topic)
    if call.request.method == "HEAD":
        return Response(media_type=MEDIA)
    seen = from_text(call.request.headers.get("last-event-id", ""), Places) or {}
    places = {topic: seen.get(topic, place) for topic, place in session.places.items()}
    return EventStream(Watcher(call, session, places).events(), lambda: None)


class Watcher:
    """One connection that follows topics."""

    def __init__(self, call: Call[Any], session: Session, places: dict[str, int]) -> None:
        self._call = call
        self._service = call.service
        self._session = session
        view = View(frozenset(session.nodes), session.tags, session.meta, session.content)
        self._readings = {
            topic: Reading(call.service, topic, view, session.limit, place) for topic, place in places.items()
        }
        self._live: set[str] = set()  # topics that were shown to their end
        self._said_at = monotonic()

    @property
    def _cursor(self) -> str:
        """Where the watch is in each topic: what it is resumed by."""
        return as_text(encode({topic: reading.place for topic, reading in self._readings.items()}))

    async def events(self) -> AsyncIterator[bytes]:
        """The text of the stream."""
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            async for one in self._all():
                self._said_at = monotonic()
                yield one
            if self._service.ending.is_set():
                yield error_event(ending())
        except Exception as error:
            yield error_event(known(error))

    async def _all(self) -> AsyncIterator[bytes]:
        """What comes, or a sign of life; it ends with the last topic, or with the server."""
        topics = await self._in_order()
        with self._service.tails.following(topics) as news:
            while self._readings and not self._service.ending.is_set():
                news.clear()
                moved = False
                for topic in [topic for topic in topics if topic in self._readings]:
                    before = self._readings[topic].place
                    async for one in self._of(topic):
                        yield one
                    moved = moved or (topic in self._readings and self._readings[topic].place != before)
                await self._check()
                if moved or not self._readings:
                    continue
                quiet = self._session.heartbeat - (monotonic() - self._said_at)
                if quiet <= 0:
                    yield f": hb {round(time() * 1000)}\n\n".encode()
                else:
                    await self._service.tails.sleep(list(self._readings), news, quiet)

    async def _in_order(self) -> list[str]:
        """The topics, those of a higher priority first."""
        priorities: dict[str, int] = {}
        for topic in self._readings:
            annotations = (await self._service.configs.of(topic)).annotations
            priorities[topic] = configs.kept(annotations, "priority") or 0
        return sorted(priorities, key=lambda topic: -priorities[topic])

    async def _check(self) -> None:
        """Whether the caller may go on."""
        for topic in self._readings:
            await self._service.door.readmit(self._call.request, CONSUME, topic)

    async def _of(self, topic: str) -> AsyncIterator[bytes]:
        """What is new in a topic."""
        reading = self._readings[topic]
        before = reading.place
        try:
            page, records = await reading.step()
        except QueueNotFoundError:
            yield self._deleted(topic)
            return
        if reading.gap is not None:
            before = 0 if reading.gap["reason"] == "recreated" else reading.gap["gap_to"]
            yield event("tombstone", {"topic": topic, **reading.gap}, self._cursor_at(topic, before))
            reading.gap = None
        if records:
            yield self._records(topic, page, records, before)
        if page.is_full:
            self._live.discard(topic)
        elif page.at_end and topic not in self._live:
            self._live.add(topic)
            yield event("caught-up", {"topic": topic, "head_seq": page.head}, self._cursor)

    def _records(self, topic: str, page: Page, records: list[Document], before: int) -> bytes:
        document = {
            "topic": topic,
            "records": records,
            "from_seq": before,
            "to_seq": page.place,
            "head_seq": page.head,
            "earliest_seq": earliest(page),
        }
        return event("record", document, self._cursor)

    def _cursor_at(self, topic: str, place: int) -> str:
        """Where the watch would be if it stood there in this topic."""
        places = {name: reading.place for name, reading in self._readings.items()}
        return as_text(encode({**places, topic: place}))

    def _deleted(self, topic: str) -> bytes:
        """The topic is gone; the others go on."""
        reading = self._readings.pop(topic)
        document = {"topic": topic, "head_seq": reading.place, "reason": "deleted"}
        return event("topic-deleted", document, self._cursor)
