"""JSON that is nested too deeply for a parser: such values are cut out, so that the rest can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DEEP = 100  # levels; what has fewer is left where it is
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')
# PostgreSQL writes no number with an exponent: such a one can stand for what was cut out.
STAND_IN = b"0e"


@dataclass(frozen=True, slots=True)
class Cut:
    """A document without its deep values, and those."""

    document: bytes
    values: list[bytes]

    def reader(self, json: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """What reads the JSON in this document, the values that were cut out too."""

        def read(data: bytes) -> Any:
            return json(self.values[int(data[2:])] if data.startswith(STAND_IN) else data)

        return read


def cut_deep(data: bytes, level: int) -> Cut:
    """Cut out the values that begin inside so many brackets and hold many more."""
    parts: list[bytes] = []
    values: list[bytes] = []
    kept = 0
    start = depth = deepest = 0
    for token in TOKEN.finditer(data):
        if token[0] in b"[{":
            if depth == level:
                start, deepest = token.start(), depth
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in b"]}":
            depth -= 1
            if depth == level and deepest - level > DEEP:
                parts += [data[kept:start], STAND_IN + str(len(values)).encode()]
                values.append(data[start : token.end()])
                kept = token.end()
    return Cut(b"".join([*parts, data[kept:]]), values)
