"""Upkeep: maintain(), by turns with all other servers of the database, as long as this one runs."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
from msgspec import Raw

from holdfast.client import HoldfastError
from holdfast.client._rows import scalar

from .engine import Engine
from .trouble import said

MAINTAIN = b"select holdfast.maintain_in_turn(every => %s)"
SHORTEST_PAUSE = 0.05  # seconds: between two calls others get their turn at the lanes

logger = logging.getLogger("holdfast.server")


class Upkeep:
    """Takes turns until it is cancelled. What fails is tried again; it is told once, and its end too."""

    def __init__(self, engine: Engine, every: float) -> None:
        """every: seconds from one round of maintain() to the next, by whichever server."""
        self._engine = engine
        self._every = every
        self._failing = False

    async def run(self) -> None:
        """Call maintain() whenever it is due."""
        again_at_once = False
        while True:
            due_in = await self.run_once(0.0 if again_at_once else self._every)
            again_at_once = due_in == 0.0
            await asyncio.sleep(max(due_in, SHORTEST_PAUSE))

    async def run_once(self, every: float) -> float:
        """One turn, if it is ours; returns how many seconds later to try again."""
        try:
            did = await self._maintain(every)
        except (HoldfastError, psycopg.Error) as error:
            self._tell(said(error))
            return self._every
        self._tell(None)
        # Somebody else was at it, and went on at once: that is no reason to do so here.
        return float(did["due_in"]) if did["ran"] else max(float(did["due_in"]), min(self._every, 1.0))

    async def _maintain(self, every: float) -> dict[str, Any]:
        parameters = [timedelta(seconds=every)]
        rows = await self._engine.fetch("maintain_in_turn", MAINTAIN, parameters, scalar(Raw))
        did: dict[str, Any] = msgspec.json.decode(rows[0])
        return did

    def _tell(self, problem: str | None) -> None:
        if problem and not self._failing:
            logger.warning("maintain() failed, and is tried again every %g s: %s", self._every, problem)
        elif self._failing and not problem:
            logger.warning("maintain() works again")
        self._failing = bool(problem)
