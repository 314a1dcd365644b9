"""Reading logs, and asking rate limiters: one method for each SQL function."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.client._async.calls import AsyncCalls
from holdfast.client._log_types import Allowance, LogStats, Record


class AsyncLogVerbs(AsyncCalls):
    """What can be done with logs and rate limiters, over some session."""

    async def read(self, queue: str, after: int = 0, *, limit: int | None = None) -> list[Record]:
        """The records of a log behind a sequence number, in order; of none may an earlier one still come."""
        return await self._records(Record, "read", queue=queue, after=after, limit=limit)

    async def log_delete(
        self,
        queue: str,
        seqs: Iterable[int] | None = None,
        *,
        tag: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete records of a log by sequence number, by tag, or all before one; returns how many."""
        return await self._value(
            int, "log_delete", queue=queue, seqs=seqs, tag=tag, before=before, limit=limit
        )

    async def log_stats(self, queue: str) -> LogStats:
        """From where to where a log can be read, and how many records it holds."""
        return (await self._records(LogStats, "log_stats", queue=queue))[0]

    async def take_rate(
        self, limiter: str, rate: float, burst: int | None = None, want: int = 1, *, partial: bool = False
    ) -> Allowance:
        """Ask a rate limiter for tokens: all that are wanted or none; with partial, as many as there are."""
        allowed = await self._records(
            Allowance, "take_rate", limiter=limiter, rate=rate, burst=burst, want=want, partial=partial
        )
        return allowed[0]
