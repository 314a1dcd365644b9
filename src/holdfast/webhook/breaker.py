"""The breaker of an endpoint, which all processes share: whether to claim, and what came of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from holdfast.client._rows import record, scalar
from holdfast.server.coalesce import Coalescer
from holdfast.server.engine import Engine

MOST = 1_000  # attempts in one call
CLOSED, OPEN, HALF_OPEN, DISABLED = "closed", "open", "half_open", "disabled"
ADMIT = b"select granted, state, retry_in, probe from holdfast.admit(%s, %s)"
YIELD = b"select holdfast.yield_probe(%s, %s)"
RECORD = b"select state, enabled, retry_in, settled, skipped from holdfast.record_attempts(%s, %s::jsonb)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """How many messages may be claimed now; retry_in: when to ask again, if it is none."""

    granted: int
    state: str
    retry_in: timedelta | None
    probe: int | None


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt as record_attempts() takes it, and what becomes of its message by it."""

    message: int
    token: int
    outcome: str
    latency: float
    at: datetime
    root: int | None = None
    delivery: int | None = None
    status: int | None = None
    error: str | None = None
    response: str | None = None
    probe: int | None = None
    delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """How an endpoint is after attempts, and which messages they settled."""

    state: str
    enabled: bool
    retry_in: timedelta | None
    settled: list[int]
    skipped: list[int]

    @property
    def lets_pass(self) -> bool:
        """Whether deliveries go on."""
        return self.enabled and self.state == CLOSED


class Breakers:
    """Asks the database. Attempts that end together are one call of it for each endpoint, and one commit."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._coalescer: Coalescer[str, Attempt, After] = Coalescer(
            self._record, weigh=lambda _: 1, most=MOST
        )

    async def admit(self, endpoint: str, want: int) -> Admission:
        """Ask before a claim; whoever is granted a probe has to report on it, or to yield it."""
        return (await self._engine.fetch("admit", ADMIT, [endpoint, want], record(Admission)))[0]

    async def yield_probe(self, endpoint: str, probe: int) -> None:
        """There was nothing to try it with."""
        await self._engine.fetch("yield_probe", YIELD, [endpoint, probe], scalar(bool))

    async def report(self, endpoint: str, attempt: Attempt) -> After:
        """Record an attempt, and settle its message."""
        return await self._coalescer.submit(endpoint, attempt)

    async def _record(self, endpoint: str, attempts: Sequence[Attempt]) -> list[After]:
        told = msgspec.json.encode(attempts).decode()
        rows = await self._engine.fetch("record_attempts", RECORD, [endpoint, told], record(After))
        return [rows[0]] * len(attempts)
