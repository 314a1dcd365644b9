"""How words of the command line become values: durations, instants, JSON, assignments."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from io import TextIOWrapper
from typing import IO, Any
from uuid import UUID

import typer
from psycopg.types.json import Jsonb

from holdfast.durations import parse_duration

LARGEST_ID = 2**63 - 1
LONGEST = 200  # characters of bad input that are shown


def stdin() -> IO[bytes]:
    """What is piped into the command."""
    if sys.stdin is None:
        raise typer.BadParameter("stdin is closed: there is nothing to read")
    return sys.stdin.buffer


def stdin_text() -> str:
    """The same as text."""
    try:
        return TextIOWrapper(stdin(), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        raise typer.BadParameter("stdin is not UTF-8") from error


def duration(text: str) -> timedelta:
    """90, 250ms, 30s, 5 min, 1m30s, 2 hours, 1d12h: numbers with units; a number alone is seconds."""
    try:
        return parse_duration(text)
    except (OverflowError, ValueError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a duration such as 90, 250ms, 1m30s, 5 min; "
            "the units are ms, s (or none), m (minutes), h, d, w"
        ) from error


def token(text: str) -> int:
    """A token; what a claim of nothing leaves in a variable is none."""
    return positive(text, "a token: claim prints one, and exits with 4 if it finds nothing")


def message_id(text: str) -> int:
    """The id of a message."""
    return positive(text, "the id of a message")


def sequence_number(text: str | int) -> int:
    """The sequence number of a record; typer passes defaults through here too."""
    return positive(str(text), "a sequence number")


def positive(text: str, what: str) -> int:
    """A whole number as PostgreSQL counts messages."""
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_ID):
        raise typer.BadParameter(f"{text!r} is not {what}")
    return int(text)


def instant(text: str) -> datetime:
    """An ISO 8601 time; without a zone it is local time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (OverflowError, ValueError) as error:
        raise typer.BadParameter(f"{text!r} is not a time such as 2030-01-31T12:00:00Z") from error


def past(text: str) -> datetime | timedelta:
    """An instant, or a duration: so long ago. Which instant that is, the clock of the database says."""
    for reading in (instant, duration):
        try:
            return reading(text)
        except typer.BadParameter:
            continue
    raise typer.BadParameter(
        f"{text!r} is neither a time such as 2030-01-31T12:00:00Z nor a duration such as 6h, for so long ago"
    )


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
    except (RecursionError, ValueError) as error:
        raise typer.BadParameter(f"{shortened(text)} is not JSON ({error})") from error


def json_payload(text: str) -> Jsonb:
    """A payload: sent as it was written, so that no number loses digits on its way."""
    json.loads(text, parse_int=str, parse_float=str)
    return Jsonb(text, dumps=str)


def shortened(text: str) -> str:
    """What somebody has typed, in quotes, as much of it as tells what it is."""
    return repr(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


def assignments(words: Iterable[str]) -> dict[str, Any]:
    """FIELD=VALUE words; a value is JSON where it can be read as such, else text."""
    found: dict[str, Any] = {}
    for name, value in pairs(words):
        if name in found:
            raise typer.BadParameter(f"{name} is given twice")
        found[name] = lenient(value)
    return found


def lenient(text: str) -> Any:
    """JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def headers(words: Iterable[str]) -> dict[str, str] | None:
    """NAME=VALUE words; a value is text, whatever it looks like. None if there are none."""
    return dict(pairs(words)) or None


def pairs(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What stands before and behind the first equals sign of each word."""
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{word!r} is not of the form NAME=VALUE")
        yield name, value
