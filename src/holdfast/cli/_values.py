"""How words of the command line become values: durations, instants, JSON, assignments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import typer

UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]*)")


def duration(text: str) -> timedelta:
    """250ms, 30s, 5m, 2h, 1d, or a plain number of seconds."""
    found = DURATION.fullmatch(text.strip().lower())
    unit = UNITS.get(found["unit"] or "s") if found else None
    if found is None or unit is None:
        raise typer.BadParameter(f"{text!r} is not a duration such as 250ms, 30s, 5m, 2h, 1d")
    return timedelta(seconds=float(found["number"]) * unit)


def instant(text: str) -> datetime:
    """An ISO 8601 time; without a zone it is local time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time such as 2030-01-31T12:00:00Z") from error


def uuid(text: str) -> UUID:
    """A UUID."""
    try:
        return UUID(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a UUID") from error


def json_value(text: str) -> Any:
    """A JSON value."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not JSON ({error}); for plain text use --text") from error


def assignments(words: Iterable[str]) -> dict[str, Any]:
    """field=value words; a value is JSON where it can be read as such, else text."""
    config: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{word!r} is not of the form field=value")
        config[name] = lenient(text)
    return config


def lenient(text: str) -> Any:
    """JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def headers(words: Iterable[str]) -> dict[str, Any] | None:
    """name=value words; None if there are none."""
    return assignments(words) or None
