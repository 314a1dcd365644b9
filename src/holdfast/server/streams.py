"""Work streams: messages pushed as server-sent events, at most so many in flight on each connection.

A stream asks the desk of its queue for as many as it may still take. What is settled through this process
is known at once; what is settled elsewhere, or runs out, is found by a look at who holds what.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.client import Delivery, HoldfastError
from holdfast.wire.answers import to_wire

from .answering import error_document, known

if TYPE_CHECKING:
    from .service import Service

LOOK_SECONDS = 1.0  # how often a stream that is full looks whether something was settled elsewhere
RETRY_MS = 1_000  # what a client is told to wait before it connects again
# A lease that has run out holds nothing, though nobody may have swept it yet.
HOLDERS = b"select id, token from holdfast.holders(%s, %s::bigint[]) where deadline > holdfast.now()"
ENDING_VERBS = ("ack", "nack", "reject", "release")

Check = Callable[[], Awaitable[None]]
encode = msgspec.json.Encoder().encode


class Frames(Protocol):
    """How a stream says what it has to say."""

    @property
    def opening(self) -> bytes:
        """What comes first."""

    @property
    def ending(self) -> bytes:
        """The last event when the server is shutting down."""

    async def messages(self, deliveries: Sequence[Delivery]) -> list[bytes]:
        """An event for each message."""

    def error(self, error: HoldfastError) -> bytes:
        """The last event of a stream that cannot go on."""


class NativeFrames:
    """The events of the native API."""

    opening = f"retry: {RETRY_MS}\n\n".encode()
    ending = b"event: end\ndata: {}\n\n"

    async def messages(self, deliveries: Sequence[Delivery]) -> list[bytes]:
        """An event for each message."""
        return [
            b"event: message\nid: %d\ndata: %b\n\n" % (delivery.id, encode(to_wire(delivery)))
            for delivery in deliveries
        ]

    def error(self, error: HoldfastError) -> bytes:
        """The error as it would be answered with."""
        return b"event: error\ndata: %b\n\n" % encode(error_document(error))


NATIVE = NativeFrames()
HEARTBEAT = b": hb\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a stream was asked for."""

    queue: str
    max: int
    lease: timedelta | None
    consumer: str | None


class Streams:
    """All streams of this process, so that settlements find theirs."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.open: set[Stream] = set()
        self._by_token: dict[int, Stream] = {}

    def __len__(self) -> int:
        """How many tokens are remembered."""
        return len(self._by_token)

    def settled(self, verb: str, queue: str, token: int, ids: list[int]) -> None:
        """Somebody settled messages through this process."""
        stream = self._by_token.get(token)
        if stream is not None and verb in ENDING_VERBS:
            stream.drop(ids)

    def turn_out(self) -> None:
        """Those that are full are to look now, whether they may go on, or the server ends."""
        for stream in self.open:
            stream.drop([])

    def hold(self, token: int, stream: Stream) -> None:
        """Remember whose token this is."""
        self._by_token[token] = stream

    def let_go(self, token: int) -> None:
        """Nothing is held under this token any more."""
        self._by_token.pop(token, None)


class Stream:
    """One connection: what it holds, and how much more it takes."""

    def __init__(
        self,
        service: Service,
        wanted: Wanted,
        check: Check,
        *,
        frames: Frames = NATIVE,
        give_back: str = "release",
    ) -> None:
        """check: raises an error when the caller may not go on; give_back: the verb that settles what is in
        flight when the connection ends."""
        self._check = check
        self._service = service
        self._queue = wanted.queue
        self._max = wanted.max
        self._lease = wanted.lease
        self._consumer = wanted.consumer
        self._frames = frames
        self._give_back = give_back
        self._held: dict[int, Delivery] = {}
        self._room = asyncio.Event()

    async def begin(self) -> None:
        """Claim what there is: what is wrong with the claim is an ordinary error, and no event."""
        await self._claim(wait=0)
        self._service.streams.open.add(self)

    def close(self) -> None:
        """Give back what it holds, whether it has sent anything or not."""
        held = list(self._held.values())
        self._held.clear()
        for delivery in held:
            self._service.streams.let_go(delivery.token)
        self._service.give_back(self._queue, held, self._give_back)
        self._service.streams.open.discard(self)

    async def events(self) -> AsyncIterator[bytes]:
        """The text of the stream; whoever reads it closes the stream afterwards."""
        try:
            yield self._frames.opening
            async for deliveries in self._deliveries():
                for event in await self._frames.messages(deliveries):
                    yield event
                if not deliveries:
                    yield HEARTBEAT
            yield self._frames.ending
        except Exception as error:
            yield self._frames.error(known(error))

    async def _deliveries(self) -> AsyncIterator[list[Delivery]]:
        """What comes, and an empty list whenever nothing has come for the time of a heartbeat."""
        heartbeat = self._service.settings.heartbeat
        ending = self._service.ending
        if first := list(self._held.values()):
            await self._check()
            yield first
        while not ending.is_set():
            started = monotonic()
            if len(self._held) < self._max:
                deliveries = await self._claim(wait=heartbeat)
                await self._check()
                if deliveries or not ending.is_set():
                    yield deliveries
            else:
                is_full = await self._is_full_for(heartbeat - (monotonic() - started))
                await self._check()
                if is_full:
                    yield []

    async def _claim(self, *, wait: float) -> list[Delivery]:
        with self._service.traces.operation("receive", "claim", self._queue) as operation:
            deliveries = await self._service.desks.claim(
                self._queue,
                self._max - len(self._held),
                lease=self._lease,
                consumer=self._consumer,
                wait=wait,
            )
            operation.concerns(deliveries)
        # One that is here for a second time was held under a token that holds it no more.
        self.drop([delivery.id for delivery in deliveries])
        for delivery in deliveries:
            self._held[delivery.id] = delivery
            self._service.streams.hold(delivery.token, self)
        return deliveries

    def drop(self, ids: list[int]) -> None:
        """These are not held any more."""
        for id in ids:
            delivery = self._held.pop(id, None)
            if delivery is not None and not self._holds(delivery.token):
                self._service.streams.let_go(delivery.token)
        self._room.set()

    def _holds(self, token: int) -> bool:
        return any(delivery.token == token for delivery in self._held.values())

    async def _is_full_for(self, seconds: float) -> bool:
        """Wait for room; True when there is none after so long."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0 and not self._service.ending.is_set():
            self._room.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), min(left, LOOK_SECONDS))
                return False
            if await self._look():
                return False
        return not self._service.ending.is_set()

    async def _look(self) -> bool:
        """Drop what this stream no longer holds; says whether there was such."""
        still = set(
            await self._service.engine.fetch("holders", HOLDERS, [self._queue, list(self._held)], as_tuples)
        )
        gone = [id for id, delivery in self._held.items() if (id, delivery.token) not in still]
        if gone:
            self.drop(gone)
        return bool(gone)


def as_tuples(cursor: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A row factory that leaves rows as they are."""
    return tuple

