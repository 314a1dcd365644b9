"""Lengths of time as people write them: 90, 250ms, 30s, 5 min, 1m30s, 2 hours, 1d12h."""

from __future__ import annotations

import re
from datetime import timedelta

# The units that PostgreSQL reads in an interval, as far as their length is fixed.
UNITS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), timedelta(milliseconds=1)),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}
PART = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]*)")


def parse_duration(text: str) -> timedelta:
    """Numbers with units; a number alone is seconds. ValueError or OverflowError where it is no duration."""
    words = text.strip().lower()
    parts = list(PART.finditer(words))
    whole = "".join(part[0] for part in parts) == words
    known = all(part["unit"] in UNITS and (part["unit"] or len(parts) == 1) for part in parts)
    if not (parts and whole and known):
        raise ValueError(text)
    return sum((float(part["number"]) * UNITS[part["unit"]] for part in parts), timedelta())
