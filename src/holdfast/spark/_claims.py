"""Claims of a stream: taken, found again, extended and acked. Knows nothing of Spark.

A place is where a stream stands: the batch's number, and the claims whose messages are that batch. A claim is
made under a consumer name that says stream and number, so a process that comes later finds what an earlier
one took.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ._checkpoint import foreign_offsets, refuse_other_queue
from ._session import Session
from .options import Secret

LARGEST_CLAIM = 10_000  # messages: what the engine hands out at once

ACK = """
select coalesce(sum(cardinality(a.settled)), 0)
from unnest(%s::bigint[]) t(token) cross join lateral holdfast.ack(%s, t.token) a
"""
CLAIM = """
select c.token, count(*), min(c.id), max(c.id), min(c.enqueued_at)
from holdfast.claim(%s, max => %s, lease => %s, consumer => %s, alone => true) c group by c.token
"""
CLAIMS = "select token, messages, first_id, last_id from holdfast.claims(%s, %s)"
EXTEND = "select cardinality(settled) from holdfast.extend(%s, %s, %s)"


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages under one token: how many, and between which ids."""

    token: int
    messages: int
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream stands. As JSON it is Spark's offset."""

    stream: str
    batch: int
    queue: str
    claims: tuple[Claim, ...] = ()

    @classmethod
    def first(cls, queue: str) -> Place:
        """Before the first batch of a new stream."""
        return cls(uuid.uuid4().hex, 0, queue)

    @classmethod
    def parse(cls, offset: Mapping[str, Any], queue: str) -> Place:
        """The place that an offset of Spark's stands for."""
        try:
            claims = tuple(
                Claim(int(c["token"]), int(c["messages"]), int(c["first_id"]), int(c["last_id"]))
                for c in offset["claims"]
            )
            place = cls(str(offset["stream"]), int(offset["batch"]), str(offset["queue"]), claims)
        except (KeyError, TypeError, ValueError) as error:
            raise foreign_offsets() from error
        refuse_other_queue(place.queue, queue)
        return place

    def offset(self) -> dict[str, Any]:
        """The place as Spark keeps it. Tokens are text: JSON's numbers end at 2^53 elsewhere."""
        claims = [
            {"token": str(c.token), "messages": c.messages}
            | {"first_id": str(c.first_id), "last_id": str(c.last_id)}
            for c in self.claims
        ]
        return {"stream": self.stream, "batch": self.batch, "queue": self.queue, "claims": claims}

    def next(self, claims: Sequence[Claim]) -> Place:
        """The place behind this one."""
        return Place(self.stream, self.batch + 1, self.queue, tuple(claims))

    @property
    def consumer(self) -> str:
        """The name under which this place's claims are made."""
        return f"spark {self.stream} {self.batch}"

    @property
    def messages(self) -> int:
        """How many messages its claims were given."""
        return sum(claim.messages for claim in self.claims)


@dataclass(frozen=True, slots=True)
class Haul:
    """What was claimed, and when the oldest of it was sent."""

    claims: tuple[Claim, ...]
    oldest: datetime | None = None


class Claims(Session):
    """The verbs on claims."""

    def __init__(self, *, url: Secret, queue: str, lease: str) -> None:
        super().__init__(url=url, queue=queue)
        self._lease = lease

    def ack(self, place: Place) -> int:
        """Ack all that the place's claims still hold, in one transaction; returns how many."""
        if not place.claims:
            return 0
        return self._number(ACK, [[claim.token for claim in place.claims], self._queue])

    def adopt(self, place: Place) -> tuple[Claim, ...]:
        """What is claimed for this place already, by whichever process."""
        found = self.connection.execute(CLAIMS, [self._queue, place.consumer]).fetchall()
        return tuple(Claim(*row) for row in found)

    def take(self, place: Place, most: int | None) -> Haul:
        """Claim for a place until there is no more, or so many."""
        taken: list[Claim] = []
        oldest: datetime | None = None
        left = most
        while left is None or left > 0:
            want = LARGEST_CLAIM if left is None else min(left, LARGEST_CLAIM)
            rows = self.connection.execute(CLAIM, [self._queue, want, self._lease, place.consumer]).fetchall()
            if not rows:
                break
            for token, messages, first_id, last_id, sent in rows:
                taken.append(Claim(token, messages, first_id, last_id))
                oldest = sent if oldest is None else min(oldest, sent)
            if left is not None:
                left -= taken[-1].messages
        return Haul(tuple(taken), oldest)

    def extend(self, claim: Claim) -> int:
        """Hold a claim for another lease; returns how many messages it still has."""
        return self._number(EXTEND, [self._queue, claim.token, self._lease])

    def ready(self) -> bool:
        """Whether messages wait that could be claimed now."""
        stats = self.connection.execute(
            "select ready > 0 and not paused from holdfast.queue_stats(%s)", [self._queue]
        ).fetchone()
        return bool(stats and stats[0])

    def _number(self, query: str, parameters: list[Any]) -> int:
        row = self.connection.execute(query.encode(), parameters).fetchone()
        return 0 if row is None or row[0] is None else int(row[0])
