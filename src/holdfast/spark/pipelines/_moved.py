"""Messages that archive has moved to lakes which a run does not read: it says so, since it misses them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from ._lake_files import known_lakes
from ._storage import Storage

MOVED = "select queue, lake::text, place, messages, first_at, last_at from holdfast.archived(%s, %s, %s)"


@dataclass(frozen=True, slots=True)
class Moved:
    """What a queue has in a lake."""

    queue: str
    lake: str
    place: str
    messages: int
    first_at: datetime
    last_at: datetime

    def __str__(self) -> str:
        return f"{self.messages:,} messages of {self.queue} were moved to {self.place}: name it with --lake"


def moved(
    connection: psycopg.Connection[Any],
    queues: Collection[str],
    since: datetime | None,
    until: datetime | None,
    *,
    read: Collection[str],
) -> list[Moved]:
    """What ended in a range, and is in no lake that is read."""
    found = connection.execute(MOVED, [list(queues), since, until]).fetchall()
    return [each for each in (Moved(*row) for row in found) if each.lake not in read]


def lakes(spark: SparkSession, path: str | None) -> set[str]:
    """The lakes in a path, by what the database knows them by: it may be another name for the same place."""
    return set() if path is None else known_lakes(Storage(spark, path))


def not_read(found: Sequence[Moved]) -> dict[str, list[str]]:
    """The same as a figure, if there is something."""
    return {"not_read": [str(each) for each in found]} if found else {}
