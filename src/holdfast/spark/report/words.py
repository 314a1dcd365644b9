"""Numbers, durations and times as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta

NOTHING = "–"
UNITS = ((1e-3, 1e-6, "µs"), (1.0, 1e-3, "ms"), (60.0, 1.0, "s"))
LARGE = ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s"))


def number(value: int) -> str:
    """1,234,567."""
    return f"{value:,}"


def compact(value: float) -> str:
    """1.2 M: for axes and tiles."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{_digits(value / size)} {unit}"
    return _digits(value)


def duration(seconds: float | None) -> str:
    """3.2 ms, 41 s, 1 min 15 s."""
    if seconds is None:
        return NOTHING
    for below, unit, name in UNITS:
        if seconds < below and float(f"{seconds / unit:.2g}") * unit < below:
            return f"{_digits(seconds / unit)} {name}"
    for size, smaller, name, less in LARGE:
        if round(seconds / smaller) * smaller >= size:
            whole, rest = divmod(round(seconds / smaller) * smaller, size)
            return f"{whole:,} {name}" + (f" {rest // smaller} {less}" if rest else "")
    return f"{round(seconds)} s"


def roughly(seconds: float | None) -> str:
    """~10 ms: a duration that is an estimate."""
    return NOTHING if seconds is None else f"~{duration(seconds)}"


def some(count: int) -> str:
    """~1,200: a count that is an estimate."""
    return f"~{number(count)}" if count else number(count)


def percent(share: float) -> str:
    """96 %; small shares keep a digit."""
    value = 100 * share
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99.9 < value < 100:
        return "> 99.9 %"
    return f"{_digits(value)} %" if value < 10 or 99 < value < 100 else f"{value:.0f} %"


def plural(count: int, noun: str) -> str:
    """1 message, 2,000 messages."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def moment(at: datetime) -> str:
    """18 Nov 2026, 05:09."""
    return f"{at.day} {at:%b %Y, %H:%M}"


def stretch(start: datetime, length: timedelta) -> str:
    """When a bucket is: a day, or from a time to another."""
    if length >= timedelta(days=1) and length % timedelta(days=1) == timedelta():
        last = start + length - timedelta(days=1)
        return f"{start.day} {start:%b %Y}" + ("" if last == start else f" – {last.day} {last:%b %Y}")
    return f"{start.day} {start:%b, %H:%M}–{start + length:%H:%M}"


def length(bucket: timedelta) -> str:
    """5 minutes: the name of a bucket's size."""
    seconds = int(bucket.total_seconds())
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return plural(seconds // size, noun)
    return plural(seconds, "second")


def step(bucket: timedelta) -> str:
    """A bucket as a noun: hour; or step, if there is no word for it."""
    count, noun = length(bucket).rstrip("s").split()
    return noun if count == "1" else "step"


def _digits(value: float) -> str:
    """Two digits that mean something, or all before the point."""
    if value >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"
