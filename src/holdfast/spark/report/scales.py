"""Axes: where a value lies between 0 and 1, and which values are written beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log, log10

from .words import compact, duration

MOST_TICKS = 6  # beside an axis of durations
MOST_TIMES = 9  # below an axis of time
# The steps of a logarithmic axis of durations, in seconds: powers of ten, and what clocks show.
LADDER = (
    1e-6,
    1e-5,
    1e-4,
    1e-3,
    0.01,
    0.1,
    1.0,
    10.0,
    60.0,
    600.0,
    3600.0,
    36000.0,
    86400.0,
    864000.0,
    8640000.0,
)
# The steps of a time axis.
STRIDES = tuple(
    timedelta(minutes=minutes)
    for minutes in (
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        180,
        360,
        720,
        1440,
        2880,
        10080,
        20160,
        43200,
        129600,
        525600,
    )
)
EPOCH = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday, so that weeks begin as calendars have it


@dataclass(frozen=True, slots=True)
class Tick:
    """A value beside an axis: where, and how it is written."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Linear:
    """Counts, from nothing to a round number."""

    top: float

    @classmethod
    def up_to(cls, highest: float) -> Linear:
        """A scale that ends at a round number, not below the highest value."""
        step = _step(highest)
        return cls(max(ceil(highest / step), 1) * step)

    def at(self, value: float) -> float:
        """Where a value lies."""
        return value / self.top

    def ticks(self) -> list[Tick]:
        """Round numbers."""
        step = _step(self.top)
        return [Tick(self.at(n * step), compact(n * step)) for n in range(round(self.top / step) + 1)]


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Durations, from one step of the ladder to another."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Logarithmic:
        """A scale for these values, which are some."""
        found = sorted(min(max(value, LADDER[0]), LADDER[-1]) for value in values)
        low = max(step for step in LADDER if step <= found[0])
        high = min(step for step in LADDER if step >= found[-1])
        if low == high:
            place = LADDER.index(low)
            low, high = LADDER[max(place - 1, 0)], LADDER[min(place + 1, len(LADDER) - 1)]
        return cls(low, high)

    def at(self, value: float) -> float:
        """Where a value lies; what is below the scale lies at its end."""
        bounded = min(max(value, self.low), self.high)
        return log(bounded / self.low) / log(self.high / self.low)

    def ticks(self) -> list[Tick]:
        """The steps of the ladder, or every second one if they are many."""
        steps = [step for step in LADDER if self.low <= step <= self.high]
        thin = 1 if len(steps) <= MOST_TICKS else 2
        return [Tick(self.at(step), duration(step)) for step in steps[::thin]]


@dataclass(frozen=True, slots=True)
class Time:
    """The range of the report."""

    since: datetime
    until: datetime

    def at(self, moment: datetime) -> float:
        """Where a moment lies."""
        return (moment - self.since) / (self.until - self.since)

    def ticks(self) -> list[Tick]:
        """Round times: full hours, midnights, Mondays."""
        length = self.until - self.since
        stride = next((each for each in STRIDES if length / each <= MOST_TIMES), STRIDES[-1])
        first = EPOCH + ceil((self.since - EPOCH) / stride) * stride
        count = floor((self.until - first) / stride) + 1
        moments = [first + n * stride for n in range(max(count, 0))]
        return [Tick(self.at(each), _clock(each, stride)) for each in moments]


def _step(highest: float) -> float:
    """A round step, of which about four make the highest value; counts have no halves."""
    rough = max(highest / 4, 1)
    power = 10 ** floor(log10(rough))
    return float(next(power * n for n in (1, 2, 5, 10) if power * n >= rough))


def _clock(moment: datetime, stride: timedelta) -> str:
    if stride >= timedelta(days=1) or (moment.hour, moment.minute) == (0, 0):
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M}"
