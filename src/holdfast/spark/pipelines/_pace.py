"""How fast messages may go: so many a second, in steps that are small enough to be smooth."""

from __future__ import annotations

import time
from collections.abc import Callable

from ._pipeline import PipelineError

STEP = 1.0  # seconds: as much as this brings goes at once


class Pace:
    """Says how many messages may go at once, and how long to wait after them.

    What was late is not made up for: after a pause nobody is flooded.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._next = clock()

    def size(self, largest: int) -> int:
        """How many go at once."""
        return largest if self._rate is None else max(1, min(largest, int(self._rate * STEP)))

    def wait(self, messages: int) -> float:
        """So many went; returns in how many seconds the next may."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._next = max(self._next, now - STEP) + messages / self._rate
        return max(0.0, self._next - now)


def check_rate(rate: float | None) -> None:
    """Refuse a rate at which nothing would ever go."""
    if rate is not None and not 0 < rate < float("inf"):
        raise PipelineError(f"--rate: got {rate:g}; expected messages a second, more than 0")
