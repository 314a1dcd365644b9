"""Some rows as a dry run shows them: plain JSON, with payloads as what they say."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame

ROWS = 5
IN_JSON = ("payload", "headers")


def sample(frame: DataFrame) -> list[dict[str, Any]]:
    """The first rows of a frame."""
    return [shown(row.asDict(recursive=True)) for row in frame.limit(ROWS).collect()]


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row in JSON's own types."""
    told = {name: _read(value) if name in IN_JSON else value for name, value in row.items()}
    plain: dict[str, Any] = json.loads(json.dumps(told, default=_text))
    return plain


def _read(value: Any) -> Any:
    """What a text says in JSON; the text itself, if it is none."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)
