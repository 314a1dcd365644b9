"""Batches of the archive, as the database has them noted down: opened, closed, and left behind by a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.rows import class_row

from holdfast.client._errors import QueueNotFoundError
from holdfast.spark._access import explained

from ._pipeline import Run

COMPARED = pa.schema([("id", pa.int64()), ("checksum", pa.int64())])


@dataclass(frozen=True, slots=True)
class Batch:
    """A stretch of a queue's archive that is to be one file."""

    id: int
    queue: str
    day: date
    state: str
    first_at: datetime
    first_id: int
    last_at: datetime
    last_id: int
    messages: int


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: id and checksum of each message. As Arrow, since there may be millions."""

    rows: pa.Table = field(default_factory=COMPARED.empty_table)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def ids(self) -> list[int]:
        """The ids."""
        return self.rows["id"].to_pylist()  # type: ignore[no-any-return]

    @property
    def checksums(self) -> list[int]:
        """The checksums, in the order of the ids."""
        return self.rows["checksum"].to_pylist()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The batches of one lake."""

    run: Run
    lake: str
    keep: bool

    @classmethod
    def register(cls, run: Run, place: str) -> str:
        """A new lake; returns what it is known by."""
        with _allowed(run) as connection:
            row = connection.execute("select holdfast.register_lake(%s)", [place]).fetchone()
        assert row is not None
        return str(row[0])

    def unfinished(self) -> list[Batch]:
        """Batches that are open; and those that were kept, if they are not to be kept any more."""
        with _allowed(self.run) as connection:
            found = _batches(connection, "select * from holdfast.open_batches(%s)", [self.lake])
        return [batch for batch in found if batch.state == "open" or not self.keep]

    def open(self, queue: str, *, until: datetime, limit: int, behind: Batch | None) -> Batch | None:
        """The next batch of a queue; None if there is nothing left, or the queue was dropped meanwhile."""
        place = (None, None) if behind is None else (behind.last_at, behind.last_id)
        with suppress(QueueNotFoundError), _allowed(self.run) as connection:
            found = _batches(
                connection,
                "select * from holdfast.open_batch(%s, %s, %s, %s, %s, %s, %s)",
                [self.lake, queue, until, limit, *place, self.keep],
            )
            return found[0] if found else None
        return None

    def close(self, batch: Batch, content: Content) -> int:
        """The lake has this of a batch: remove it, or keep it; returns how many were removed."""
        with _allowed(self.run) as connection:
            row = connection.execute(
                "select holdfast.close_batch(%s, %s::bigint[], %s::bigint[], %s)",
                [batch.id, content.ids, content.checksums, self.keep],
            ).fetchone()
        assert row is not None
        return int(row[0])


def archive_days(run: Run, queues: Sequence[str], until: datetime) -> dict[str, dict[str, int]]:
    """How many messages the archive holds, by queue and day: of some queues, or of all."""
    found: dict[str, dict[str, int]] = {}
    with _allowed(run) as connection:
        rows = connection.execute(
            "select queue, day, messages from holdfast.archive_days(%s, %s)", [list(queues) or None, until]
        )
        for queue, day, messages in rows:
            found.setdefault(queue, {})[day.isoformat()] = messages
    return found


@contextmanager
def _allowed(run: Run) -> Iterator[psycopg.Connection[Any]]:
    with explained("close_batch"), run.database() as connection:
        yield connection


def _batches(connection: psycopg.Connection[Any], query: str, values: Sequence[Any]) -> list[Batch]:
    return connection.cursor(row_factory=class_row(Batch)).execute(query.encode(), values).fetchall()
