"""How rows are taken into a stage: which numbers they have, who judges them, and what sends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.client._errors import UnsealedMessageError
from holdfast.client._queue_schema import InForce
from holdfast.client._rows import record
from holdfast.client._rules import LOOK, Found
from holdfast.client._schema_rules import packages
from holdfast.client._seals import is_sealed

from ._outgoing import staging_rows, text_of
from ._sealed import column, sealed

REASON = "reason"  # the column in which a repair says why a dead letter cannot be sent back
UNSEALED = "QH241"
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

    def taken(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows as they are to be staged, sealed if the queue has a key; and those that cannot be sent, as
        they say themselves, or as the schema of the queue says.

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

    def taken(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """By the rules of the queue."""
        with connection.cursor(row_factory=record(Found)) as cursor:
            (known,) = cursor.execute(LOOK, [self.queue]).fetchall()
        schema, seal = known.rules.schema, known.rules.seal
        refused = {} if schema is None else unfit(schema, found, hidden=seal is not None)
        return (found if seal is None else sealed(seal, self.queue, found, refused)), refused

    def judged(
        self, connection: psycopg.Connection[Any], stage: int, batch: pa.RecordBatch, first: int
    ) -> dict[int, str]:
        """What a send would refuse."""
        answer = connection.execute(
            "select n - %s, code, message from holdfast.check_staged(%s, %s, %s)",
            [first, self.queue, stage, first - 1],
        ).fetchall()
        given = column(batch, "body") if any(code == UNSEALED for _, code, _ in answer) else []
        if any(code == UNSEALED and not is_sealed(given[place]) for place, code, _ in answer):
            raise UnsealedMessageError(
                UNSEALED, "the public key of the queue has changed", "Nothing was sent.", "Run it again."
            )
        return {place: f"{message} [{code}]" for place, code, message in answer}


@dataclass(frozen=True, slots=True)
class Replaying:
    """Rows that were messages of an archive: they were judged when they were sent first."""

    verb: ClassVar[str] = "replay_staged"

    def stored(self, batch: pa.RecordBatch, stage: int, first: int) -> pa.RecordBatch:
        """Numbered in their order."""
        return staging_rows(batch, stage, _counted(batch, first))

    def taken(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """As they are."""
        return found, {}

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

    def taken(
        self, connection: psycopg.Connection[Any], batch: pa.RecordBatch, found: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """As they are, but for those that have a reason, or no id."""
        reasons = batch[REASON]
        nameless = dict.fromkeys(pc.indices_nonzero(batch["id"].is_null()).to_pylist(), NAMELESS)
        given = pc.indices_nonzero(reasons.is_valid()).to_pylist()
        return found, nameless | {place: reasons[place].as_py() for place in given}

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


def unfit(schema: InForce, rows: pa.RecordBatch, *, hidden: bool = False) -> dict[int, str]:
    """The rows that do not fit a schema, by their place. hidden: nothing of them is told."""
    with packages():
        from holdfast.schemas.judge import misfit, told

    nothing = [None] * rows.num_rows
    names = rows.schema.names
    payloads = text_of(rows, "payload").to_pylist() if "payload" in names else nothing
    bodies = rows["body"].is_valid().to_pylist() if "body" in names else [False] * rows.num_rows
    judged = (misfit(schema, *each) for each in zip(payloads, bodies, strict=True))
    reasons = {place: told(found, hidden) for place, found in enumerate(judged) if found}
    return {place: f"{found.path}: {found.reason} [QH240]" for place, found in reasons.items()}


def _counted(batch: pa.RecordBatch, first: int) -> pa.Array:
    return pa.array(range(first, first + batch.num_rows), pa.int64())
