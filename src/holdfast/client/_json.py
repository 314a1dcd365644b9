"""JSON that PostgreSQL accepts and Python may not: one such payload must not spoil a whole claim."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

LONGEST_INT = 4000  # digits; Python refuses to read many more into an int


@dataclass(frozen=True, slots=True)
class UnreadableJson:
    """A value that is nested too deeply for Python: its text, as PostgreSQL wrote it."""

    text: str


def read_json(data: str | bytes) -> Any:
    """The value of a JSON text; what Python cannot read comes back as UnreadableJson."""
    try:
        try:
            return json.loads(data)
        except ValueError:
            return json.loads(data, parse_int=_whole)
    except RecursionError:
        return UnreadableJson(data if isinstance(data, str) else bytes(data).decode())


def _whole(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= LONGEST_INT else Decimal(digits)
