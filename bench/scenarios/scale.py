"""How much of everything a run does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    singles: int  # messages of a block of single-message calls, per client up to 8 clients
    batches: int  # calls of a block of 100-message calls, over all clients
    shallow: int  # waiting
    deep: int
    scheduled: int  # due tomorrow
    in_flight: int
    stats_calls: int
    seconds: float  # of a long run
    window_s: float  # first and last of it
    pressure_backlog: int


FULL = Scale(
    singles=3_000,
    batches=800,
    shallow=10_000,
    deep=2_000_000,
    scheduled=1_000_000,
    in_flight=100_000,
    stats_calls=10,
    seconds=60.0,
    window_s=5.0,
    pressure_backlog=50_000,
)

QUICK = Scale(
    singles=600,
    batches=160,
    shallow=10_000,
    deep=200_000,
    scheduled=100_000,
    in_flight=100_000,
    stats_calls=5,
    seconds=8.0,
    window_s=2.0,
    pressure_backlog=20_000,
)


def short(count: int) -> str:
    """2_000_000 as `2 M`, 10_000 as `10 k`."""
    if count >= 1_000_000:
        return f"{count / 1_000_000:g} M"
    return f"{count / 1_000:g} k" if count >= 1_000 else str(count)
