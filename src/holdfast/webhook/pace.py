"""How far ahead to claim, so that no delivery waits for the database, and no message for a slow receiver."""

from __future__ import annotations

from heapq import heappop, heappush
from time import monotonic

MOST_AHEAD = 200  # messages
WEIGHT = 0.2  # of the last measurement


class Pace:
    """How long claims and deliveries take, lately."""

    def __init__(self) -> None:
        self._claim = 0.005  # seconds
        self._delivery = 1.0

    def claimed(self, seconds: float) -> None:
        """A claim took so long."""
        self._claim += (seconds - self._claim) * WEIGHT

    def delivered(self, seconds: float) -> None:
        """A delivery took so long."""
        self._delivery += (seconds - self._delivery) * WEIGHT

    def ahead(self, concurrency: int) -> int:
        """How many messages go out while two claims are made: so many may wait here for their turn."""
        return min(int(2 * concurrency * self._claim / max(self._delivery, 1e-4)), MOST_AHEAD)


class Alarm:
    """When messages are due again that were put off here: polling would find them later."""

    def __init__(self) -> None:
        self._due: list[float] = []

    def set(self, seconds: float) -> None:
        """Ring in so many seconds."""
        heappush(self._due, monotonic() + seconds)

    def left(self) -> float:
        """Seconds until it rings next; what has rung is forgotten."""
        now = monotonic()
        rung = False
        while self._due and self._due[0] <= now:
            heappop(self._due)
            rung = True
        if rung:
            return 0.0
        return self._due[0] - now if self._due else float("inf")
