"""Rate limits, held in the database so that they count for all servers together."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from math import ceil

from holdfast.client import Allowance, TooManyRequestsError

from .coalesce import Coalescer
from .engine import Engine

MOST = 10_000  # tokens asked for at once
PREFIX = "holdfast:"  # programs have limiters of their own beside those of the servers
LONGEST_NAME = 200


class Limits:
    """Buckets by name; requests that come together ask once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._coalescer: Coalescer[tuple[str, float, int | None], int, float | None] = Coalescer(
            self._ask, weigh=lambda want: want, most=MOST
        )

    async def take(self, limiter: str, rate: float, burst: int | None = None) -> None:
        """Take a token, or refuse the request."""
        after = await self._coalescer.submit((full_name(limiter), rate, burst), 1)
        if after is not None:
            raise too_many(rate, after)

    async def _ask(self, key: tuple[str, float, int | None], wants: Sequence[int]) -> list[float | None]:
        limiter, rate, burst = key
        allowed = await self._engine.take_rate(limiter, rate, burst, len(wants), partial=True)
        refused = len(wants) - allowed.granted
        return [None] * allowed.granted + [pause(allowed, rate)] * refused


def full_name(limiter: str) -> str:
    """What a limiter is called in the database; the names of queues can be as long as a name may be."""
    name = PREFIX + limiter
    return name if len(name) <= LONGEST_NAME else PREFIX + sha256(limiter.encode()).hexdigest()


def pause(allowed: Allowance, rate: float) -> float:
    """How long until there is a token again."""
    return allowed.retry_after.total_seconds() if allowed.retry_after else 1 / rate


def too_many(rate: float, after: float) -> TooManyRequestsError:
    """The refusal, which says when to come again."""
    error = TooManyRequestsError(
        "QH922", "too many requests", f"The limit is {rate:g} a second.", "Wait as long as Retry-After says."
    )
    error.retry_after = max(1, ceil(after))
    return error
