"""Consume mode: leased micro-batches. What a batch holds is acked when Spark asks for the one after it.

Spark asks for the next place only once the last batch is in its commit log, so an ack never comes before the
effects; a batch that is run again reads the same messages, as long as its claims live.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ._claims import Claim, Claims, Place
from ._database import literal
from ._fetch import Fetcher
from ._heartbeat import Heartbeat
from ._parts import PARTITIONS, even
from ._shape import Shape
from ._worker import settle
from .options import Options
from .schema import COLUMNS, refuse_foreign

T = TypeVar("T")

log = logging.getLogger("holdfast.spark")

# In the order of holdfast.delivery.
DELIVERED = {
    name: COLUMNS[name]
    for name in COLUMNS
    if name not in {"state", "failures", "due_at", "expires_at", "ended_at", "consumer", "claimed_at", "seq"}
}
DRAIN_PATIENCE = 10.0  # seconds: for messages that are there but cannot be claimed at once
DRAIN_PAUSE = 0.05  # seconds


@dataclass(frozen=True)
class Slice:
    """Messages under one token, between two ids."""

    token: int
    first_id: int
    last_id: int


class Slices(InputPartition):
    """What one task reads."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(tuple(slices))


class ConsumeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that takes messages out of a queue, beside other consumers."""

    def __init__(self, options: Options, schema: StructType) -> None:
        refuse_foreign(schema, DELIVERED)
        self._options = options
        self._schema = schema
        self._consumer: Consumer | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy for read, which needs neither connection nor thread.
        return {"_options": self._options, "_schema": self._schema, "_consumer": None}

    @property
    def consumer(self) -> Consumer:
        """What keeps connection, thread and place; made when the stream starts."""
        if self._consumer is None:
            self._consumer = Consumer(self._options)
        return self._consumer

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many messages a batch as the options say."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on: what is there, until nothing of that is left."""
        self.consumer.drain()

    def initialOffset(self) -> dict[str, Any]:
        """Before the first batch. A new name for the stream each time: it counts once a batch is logged."""
        return Place.first(self._options.queue).offset()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Ack the batch that ends at start, and claim the next one."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.consumer.advance(Place.parse(start, self._options.queue), most).offset()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Slices of the claims of the batch that ends at end."""
        place = Place.parse(end, self._options.queue)
        if place.batch == Place.parse(start, self._options.queue).batch:
            return []
        self.consumer.hold(place)
        return [Slices(part) for part in sliced(place.claims, self._options.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of these slices that their claims still hold."""
        settle()
        assert isinstance(partition, Slices)
        shape = Shape(self._options, self._schema)
        queue = literal(self._options.queue)
        with Fetcher(self._options.url, patience=self._options.retry_for) as fetcher:
            for piece in partition.value:
                table = fetcher.table(
                    f"select {shape.selection} from holdfast.held({queue}, {piece.token}) m"
                    f" where m.id between {piece.first_id} and {piece.last_id}"
                )
                for batch in table.to_batches():
                    yield from shape.fitted(batch)

    def stop(self) -> None:
        """End the heartbeat. What is held is held until its lease is over: the query may come back for it."""
        if self._consumer is not None:
            self._consumer.stop()


class Consumer:
    """The place of one stream, in the process that leads it."""

    def __init__(self, options: Options) -> None:
        lease = f"{options.lease} s"
        self._options = options
        self._claims = Claims(url=options.url, queue=options.queue, lease=lease)
        beating = Claims(url=options.url, queue=options.queue, lease=lease)
        self._heartbeat = Heartbeat(beating, options.lease)
        self._known: Place | None = None  # up to where this process knows all claims of the stream
        self._acked: Place | None = None
        self._until: datetime | None = None
        self._drained = False

    def drain(self) -> None:
        """End when all that is there now is done."""
        self._until = self._retried(self._claims.now)

    def advance(self, place: Place, most: int | None) -> Place:
        """Ack what a place holds; then the next place, or this one if there is nothing to claim."""
        return self._retried(lambda: self._advance(place, most))

    def hold(self, place: Place) -> None:
        """Keep a place's claims alive: it is worked on. What is lost by now stays lost."""
        if self._known != place:
            self._retried(lambda: [self._claims.extend(claim) for claim in place.claims])
        self._heartbeat.watch(place.claims)

    def stop(self) -> None:
        """Close what is open."""
        self._heartbeat.stop()
        self._claims.close()

    def _advance(self, place: Place, most: int | None) -> Place:
        known = self._known
        if known is not None and (known.stream, known.batch) == (place.stream, place.batch + 1):
            return known
        self._ack(place)
        claims: tuple[Claim, ...] = ()
        if known != place:
            # Somebody may have claimed for the next place: a process before this one, a call that broke off.
            claims = self._claims.adopt(place.next(()))
            for claim in claims:
                self._claims.extend(claim)
        if not claims and not self._options.stopping:
            claims = self._drawn(place.next(()), most) if self._until else self._awaited(place.next(()), most)
        self._known = place.next(claims) if claims else place
        if claims:
            self._heartbeat.watch(claims)
        return self._known

    def _ack(self, place: Place) -> None:
        if self._acked == place:
            return
        acked = self._claims.ack(place)
        if acked < place.messages:
            lost = place.messages - acked
            log.warning("%s of %s messages were not held any more: others get them", lost, place.messages)
        self._acked = place
        self._heartbeat.watch(())

    def _awaited(self, place: Place, most: int | None) -> tuple[Claim, ...]:
        """Claims, waiting for a send for a bounded time: Spark asks again at once, without end."""
        claims = self._claims.take(place, most).claims
        deadline = time.monotonic() + self._options.wait
        while not claims and (left := deadline - time.monotonic()) > 0:
            self._claims.announce(left)
            claims = self._claims.take(place, most).claims
            if not claims:
                self._claims.await_send(left)
                claims = self._claims.take(place, most).claims
        return claims

    def _drawn(self, place: Place, most: int | None) -> tuple[Claim, ...]:
        """Claims, for as long as there is something that was sent before the drain began."""
        if self._drained:
            return ()
        haul = self._claims.take(place, most)
        deadline = time.monotonic() + DRAIN_PATIENCE
        while not haul.claims and time.monotonic() < deadline and self._claims.ready():
            # Another consumer has the lane, or a limit holds them back for a moment.
            time.sleep(DRAIN_PAUSE)
            haul = self._claims.take(place, most)
        self._drained = haul.oldest is None or self._until is None or haul.oldest > self._until
        return haul.claims

    def _retried(self, call: Callable[[], T]) -> T:
        return self._claims.attempt(call, patience=self._options.retry_for, recover=self._recover)

    def _recover(self) -> None:
        self._claims.close()
        self._known = None


def sliced(claims: Sequence[Claim], wanted: int | None) -> list[list[Slice]]:
    """The claims in so many parts, if they have enough messages: claims together, or cut by their ids."""
    parts = wanted or min(PARTITIONS, len(claims))
    if not claims:
        return []
    pieces = -(-parts // len(claims))
    slices = [piece for claim in claims for piece in _cut(claim, pieces)]
    return [slices[lo:hi] for lo, hi in even(0, len(slices), min(parts, len(slices)))]


def _cut(claim: Claim, pieces: int) -> list[Slice]:
    cut = even(claim.first_id, claim.last_id + 1, max(1, min(pieces, claim.messages)))
    return [Slice(claim.token, lo, hi - 1) for lo, hi in cut]
