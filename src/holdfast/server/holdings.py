"""Settling by name: what a consumer holds, by sequence numbers, where a request brings no token.

Who holds what is looked up for all requests that come together; what each names is then settled with the
tokens that were found. Those are the fence: what changes hands in between is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .coalesce import Coalescer
from .engine import Engine
from .settlements import Settlements

MOST = 10_000  # numbers in one look
LOOK = (
    b"select h.id - b.base, h.id, h.token, h.consumer, h.deadline "
    b"from (select holdfast.base_id(%s) as base) b, "
    b"lateral holdfast.holders(%s, array(select b.base + s from unnest(%s::bigint[]) s)) h"
)


@dataclass(frozen=True, slots=True)
class Holding:
    """A message in somebody's hands."""

    id: int
    token: int
    consumer: str | None
    deadline: datetime


@dataclass(slots=True)
class Outcome:
    """What became of a settlement by name."""

    settled: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    commit: float = 0.0  # seconds


class Holdings:
    """Who holds which messages, and settling what somebody holds."""

    def __init__(self, engine: Engine, settlements: Settlements) -> None:
        self._engine = engine
        self._settlements = settlements
        self._looks: Coalescer[str, Sequence[int], dict[int, Holding]] = Coalescer(
            self._look, weigh=len, most=MOST
        )

    async def of(self, queue: str, seqs: Sequence[int]) -> dict[int, Holding]:
        """Who holds the messages with these numbers; those that nobody holds are left out."""
        return await self._looks.submit(queue, seqs)

    async def settle(
        self,
        verb: str,
        queue: str,
        consumer: str,
        seqs: Sequence[int],
        tokens: Sequence[int | None] | None = None,
        options: tuple[timedelta | str | None, ...] = (),
    ) -> Outcome:
        """Settle what this consumer holds; tokens: for each number the one under which it must be held."""
        found = await self.of(queue, seqs)
        mine: dict[int, int] = {}
        fences = tokens if tokens is not None else [None] * len(seqs)
        for seq, fence in zip(seqs, fences, strict=True):
            holding = found.get(seq)
            if holding is None or holding.consumer != consumer:
                continue
            if tokens is None or holding.token == fence:
                mine[holding.id] = seq
        outcome = await self._settle(verb, queue, {id: found[seq] for id, seq in mine.items()}, options)
        outcome.settled = sorted(mine[id] for id in outcome.settled)
        done = set(outcome.settled)
        outcome.skipped = [seq for seq in dict.fromkeys(seqs) if seq not in done]
        return outcome

    async def _settle(
        self, verb: str, queue: str, held: Mapping[int, Holding], options: tuple[timedelta | str | None, ...]
    ) -> Outcome:
        """Settle ids under their tokens, all in one statement."""
        by_token: dict[int, list[int]] = {}
        for id, holding in held.items():
            by_token.setdefault(holding.token, []).append(id)
        answers = await asyncio.gather(
            *(
                self._settlements.settle_timed(verb, queue, token, ids, options=options)
                for token, ids in by_token.items()
            )
        )
        outcome = Outcome()
        for done in answers:
            outcome.settled += done.settlement.settled
            outcome.commit = max(outcome.commit, done.commit)
        return outcome

    async def _look(self, queue: str, asked: Sequence[Sequence[int]]) -> list[dict[int, Holding]]:
        wanted = sorted({seq for seqs in asked for seq in seqs})
        rows = await self._engine.fetch("holders", LOOK, [queue, queue, wanted], as_holdings)
        found = dict(rows)
        return [{seq: found[seq] for seq in seqs if seq in found} for seqs in asked]


def as_holdings(cursor: Any) -> Any:
    """A row factory: a number, and who holds it."""
    return lambda row: (row[0], Holding(*row[1:]))
