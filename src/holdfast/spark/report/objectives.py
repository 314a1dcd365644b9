"""Objectives as people write them: orders: waiting p95 < 30s, processing p99 < 5s."""

from __future__ import annotations

import re

from .figures import Objective

MEASURES = ("waiting", "processing")
PERCENTILES = (50, 90, 95, 99)
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
QUEUE = re.compile(r"\s*(?P<queue>[A-Za-z0-9._:-]{1,200}?)\s*:(?P<rest>[^:]*)")
PROMISE = re.compile(
    r"\s*(?P<measure>[a-z]+)\s+p(?P<percentile>[0-9]{1,2})\s*<\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-z]+)\s*"
)
EXPECTED = "expected QUEUE: waiting p95 < 30s, processing p99 < 5s; percentiles are p50, p90, p95 and p99"


def parsed(text: str) -> list[Objective]:
    """The objectives of one queue; a ValueError says what is wrong."""
    found = QUEUE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} names no queue: {EXPECTED}")
    return [_promise(found["queue"], part) for part in found["rest"].split(",")]


def _promise(queue: str, text: str) -> Objective:
    found = PROMISE.fullmatch(text)
    if found is None or found["measure"] not in MEASURES or int(found["percentile"]) not in PERCENTILES:
        raise ValueError(f"{text.strip()!r} is no objective: {EXPECTED}")
    if found["unit"] not in SECONDS:
        raise ValueError(f"{found['unit']!r} is no unit of time: expected one of {', '.join(SECONDS)}")
    limit = float(found["number"]) * SECONDS[found["unit"]]
    if limit <= 0:
        raise ValueError(f"{text.strip()!r} cannot be kept: expected a limit above 0")
    return Objective(queue, found["measure"], int(found["percentile"]), limit)
