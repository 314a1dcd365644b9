"""Places in JSON, as people write them: payload.items[0].price."""

from __future__ import annotations

import re
from collections.abc import Iterable

WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
LONGEST = 300  # characters of a reason, which may show a value
LONGEST_NAME = 100


def place(root: str, path: Iterable[str | int]) -> str:
    """Where something is."""
    return root + "".join(step(each) for each in path)


def step(name: str | int) -> str:
    """One step down."""
    if isinstance(name, int):
        return f"[{name}]"
    if WORD.fullmatch(name) and len(name) <= LONGEST_NAME:
        return f".{name}"
    return f'["{name[:LONGEST_NAME]}"]'


def shortened(reason: str) -> str:
    """A reason without its middle: what was found stands first, what was expected last."""
    half = LONGEST // 2
    return reason if len(reason) <= LONGEST else f"{reason[:half]} … {reason[-half:]}"
