"""How rows are taken into a stage: which numbers they have, who judges them, and what sends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.client._queue_schema import LOOK, InForce
from holdfast.client._rows import record
from holdfast.client._schema_rules import packages

from ._outgoing import staging_rows, text_of

REASON = "reason"  # the column in which a repair says why a dead letter cannot be sent back
NAMELESS = "id: got nothing; expected that of the dead letter"


class Intake(Protocol):
    """One kind of rows. Refused rows are named by their place in the batch."""

    @property
    def verb(self) -> str:
        """The SQL function that sends them."""
        ...

    def stored(self, batch: pa.RecordBatch, stage: int, first: int) -> pa.RecordBatch:
        """A batch as rows of the staging table; first: how many came before, and one more."""
        ...

    def refused(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> dict[int, str]:
        """The rows that cannot be sent, as they say themselves, or as the schema of the queue says.

        found: the batch as rows of the staging table.
        """
        ...

    def judged(
        self, connection: psycopg.Connection[Any], stage: int, batch: pa.RecordBatch, first: int
    ) -> dict[int, str]:
        """The rows that the engine would not send, which leave the stage."""
        ...


@dataclass(frozen=True, slots=True)
class Sending:
    """Rows that are messages of a queue."""

    queue: str
    verb: ClassVar[str] = "send_staged"

    def stored(self, batch: pa.RecordBatch, stage: int, first: int) -> pa.RecordBatch:
        """Numbered in their order."""
        return staging_rows(batch, stage, _counted(batch, first))

    def refused(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> dict[int, str]:
        """Those that do not fit the schema of the queue."""
        with connection.cursor(row_factory=record(InForce)) as cursor:
            schema = cursor.execute(LOOK, [self.queue]).fetchone()
        return {} if schema is None else unfit(schema, found)

    def judged(
        self, connection: psycopg.Connection[Any], stage: int, batch: pa.RecordBatch, first: int
    ) -> dict[int, str]:
        """What a send would refuse."""
        answer = connection.execute(
            "select n - %s, message || ' [' || code || ']' from holdfast.check_staged(%s, %s, %s)",
            [first, self.queue, stage, first - 1],
        )
        return dict(answer.fetchall())


@dataclass(frozen=True, slots=True)
class Replaying:
    """Rows that were messages of an archive: they were judged when they were sent first."""

    verb: ClassVar[str] = "replay_staged"

    def stored(self, batch: pa.RecordBatch, stage: int, first: int) -> pa.RecordBatch:
        """Numbered in their order."""
        return staging_rows(batch, stage, _counted(batch, first))

    def refused(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> dict[int, str]:
        """None."""
        return {}

    def judged(
        self, connection: psycopg.Connection[Any], stage: int, batch: pa.RecordBatch, first: int
    ) -> dict[int, str]:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Repairing:
    """Rows that say what dead letters are to have; their ids rise from row to row."""

    queue: str
    target: str | None
    columns: Sequence[str]
    verb: ClassVar[str] = "redrive_staged"

    def stored(self, batch: pa.RecordBatch, stage: int, first: int) -> pa.RecordBatch:
        """Numbered by the ids of the dead letters."""
        return staging_rows(batch.select(list(self.columns)), stage, batch["id"])

    def refused(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> dict[int, str]:
        """Those that have a reason, or no id."""
        reasons = batch[REASON]
        nameless = dict.fromkeys(pc.indices_nonzero(batch["id"].is_null()).to_pylist(), NAMELESS)
        given = pc.indices_nonzero(reasons.is_valid()).to_pylist()
        return nameless | {place: reasons[place].as_py() for place in given}

    def judged(
        self, connection: psycopg.Connection[Any], stage: int, batch: pa.RecordBatch, first: int
    ) -> dict[int, str]:
        """Those whose changes a send would refuse."""
        places = {id: place for place, id in enumerate(batch["id"].to_pylist()) if id is not None}
        if not self.columns or not places:
            return {}
        answer = connection.execute(
            "select n, message || ' [' || code || ']' from holdfast.check_redrive(%s, %s, %s, %s, %s)",
            [self.queue, stage, list(self.columns), self.target, min(places) - 1],
        )
        return {places[id]: reason for id, reason in answer.fetchall()}


def unfit(schema: InForce, rows: pa.RecordBatch) -> dict[int, str]:
    """The rows that do not fit a schema, by their place."""
    with packages():
        from holdfast.schemas.judge import misfit

    nothing = [None] * rows.num_rows
    names = rows.schema.names
    payloads = text_of(rows, "payload").to_pylist() if "payload" in names else nothing
    bodies = rows["body"].is_valid().to_pylist() if "body" in names else [False] * rows.num_rows
    judged = (misfit(schema, *each) for each in zip(payloads, bodies, strict=True))
    return {place: f"{found.path}: {found.reason} [QH240]" for place, found in enumerate(judged) if found}


def _counted(batch: pa.RecordBatch, first: int) -> pa.Array:
    return pa.array(range(first, first + batch.num_rows), pa.int64())
