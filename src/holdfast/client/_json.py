"""JSON that PostgreSQL accepts and Python may not: one such payload must not spoil a whole claim."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

LONGEST_INT = 4000  # digits; Python refuses to read many more into an int


@dataclass(frozen=True, slots=True)
class UnreadableJson:
    """A value that is nested too deeply for Python: its text, as PostgreSQL wrote it."""

    text: str


def reader(parse_float: Callable[[str], Any]) -> Callable[[str | bytes], Any]:
    """What reads JSON, with numbers that have a fraction made by `parse_float`."""
    return read_json if parse_float is float else partial(read_json, parse_float=parse_float)


def read_json(data: str | bytes, *, parse_float: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON text; what Python cannot read comes back as UnreadableJson."""
    try:
        try:
            return json.loads(data, parse_float=parse_float)
        except ValueError:
            return json.loads(data, parse_float=parse_float, parse_int=_whole)
    except RecursionError:
        return UnreadableJson(data if isinstance(data, str) else bytes(data).decode())


def _whole(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= LONGEST_INT else Decimal(digits)
