"""Tail mode: a stream that reads along and takes nothing. A Follower knows what it follows: log or archive.

How far it is safe to read is the engine's to say. What lies before that stays as it is, so a batch that is
run again has the same rows, unless somebody has removed some.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ._checkpoint import foreign_offsets, refuse_other_queue
from ._fetch import Fetcher
from ._session import Session
from ._shape import Shape
from ._worker import settle
from .options import Options
from .schema import refuse_foreign

T = TypeVar("T")

Place = dict[str, Any]  # as Spark keeps it; with the queue's name in it

PAGE = 10_000  # rows: what the engine shows at once
SINCE = "since"  # in an offset: the place where its batch begins


class Follower(Session, ABC):
    """Looks ahead, in the process that leads the stream; and reads, in the tasks."""

    def __init__(self, options: Options) -> None:
        super().__init__(url=options.url, queue=options.queue)
        self.options = options

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, and open connections of their own.
        return {**vars(self), "_connection": None, "_listening": False}

    KEYS: ClassVar[set[str]]  # of a place
    LATER_KEYS: ClassVar[set[str]] = set()  # those that places of older checkpoints do not have

    @abstractmethod
    def first(self) -> Place:
        """The place before the first row that is wanted."""

    @abstractmethod
    def finish(self) -> None:
        """Go no further than what is there now."""

    @abstractmethod
    def ahead(self, place: Place, most: int | None) -> Place:
        """How far a batch from this place on goes; the place itself if there is nothing."""

    @abstractmethod
    def doze(self, seconds: float) -> None:
        """Wait until there may be more, at most for so long."""

    @abstractmethod
    def parts(self, start: Place, end: Place) -> Sequence[InputPartition]:
        """What lies between two places, cut for tasks."""

    @abstractmethod
    def pages(self, fetcher: Fetcher, shape: Shape, part: Any) -> Iterator[pa.Table]:
        """The rows of one part."""

    def retried(self, call: Callable[[], T]) -> T:
        """The answer of a call, however often it takes."""
        return self.attempt(call, patience=self.options.retry_for)


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream along what a follower follows."""

    def __init__(self, follower: Follower, columns: Mapping[str, Any], schema: StructType) -> None:
        refuse_foreign(schema, columns)
        self._follower = follower
        self._shape = Shape(follower.options, schema)
        self._finishing = False

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many rows a batch as the options say."""
        return ReadMaxRows(self._follower.options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """Up to what is there now."""
        self._follower.retried(self._follower.finish)
        self._finishing = True

    def initialOffset(self) -> Place:
        """Where the option start says."""
        return self._follower.retried(self._follower.first)

    def latestOffset(self, start: Place, limit: ReadLimit) -> Place:
        """As far as it is safe to read. If there is nothing new, it takes its time to say so."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        follower, place = self._follower, self._checked(start)
        if follower.options.stopping:
            return start
        deadline = time.monotonic() + (0 if self._finishing else follower.options.wait)
        while True:
            found = follower.retried(lambda: follower.ahead(place, most))
            left = deadline - time.monotonic()
            if found != place:
                return {**found, SINCE: place}
            if left <= 0:
                return start
            follower.retried(lambda left=left: follower.doze(left))  # type: ignore[misc]

    def partitions(self, start: Place, end: Place) -> Sequence[InputPartition]:
        """What lies between, cut for tasks."""
        follower, place = self._follower, self._checked(end)
        if place == self._checked(start):
            return []
        # Spark does not keep where the first batch began. Asked again, `latest` is another place.
        since = self._checked(end.get(SINCE, start))
        return follower.retried(lambda: follower.parts(since, place))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, page by page."""
        settle()
        options = self._follower.options
        with Fetcher(options.url, patience=options.retry_for) as fetcher:
            for page in self._follower.pages(fetcher, self._shape, partition.value):
                for batch in page.to_batches():
                    yield from self._shape.fitted(batch)

    def stop(self) -> None:
        """Close the connection."""
        self._follower.close()

    def _checked(self, offset: Place) -> Place:
        place = {name: offset[name] for name in offset if name != SINCE}
        if place.keys() - self._follower.LATER_KEYS != self._follower.KEYS:
            raise foreign_offsets()
        refuse_other_queue(place["queue"], self._follower.options.queue)
        return place
