"""What an argument may be: the Python values that each SQL type takes. Any other is refused, by name."""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, SupportsIndex
from uuid import UUID

from psycopg.types.json import Jsonb

from ._errors import make_error
from ._types import NewMessage

NOT_STORED = re.compile("[\0\ud800-\udfff]")
# Whose error it is that text cannot be stored; where nothing is said, the message's: QH203.
UNSTORABLE: Mapping[str, str] = MappingProxyType(
    {
        "queue": "QH103",
        "target": "QH103",
        "state": "QH401",
        "each of states": "QH410",
        "each of outcomes": "QH411",
        "name": "QH901",
        "each of scopes": "QH901",
        "each of queues": "QH901",
    }
)


def refusal(name: str, expected: str, value: object) -> TypeError:
    """The error of an argument that has the wrong type."""
    found = "None" if value is None else f"the {type(value).__name__} {reprlib.repr(value)}"
    return TypeError(f"{name} takes {expected}, not {found}")


def seconds(name: str, value: object) -> float:
    """A duration as a number of seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(name, "a timedelta or a number of seconds", value)
    return value


def interval(name: str, value: object) -> timedelta:
    """A duration as PostgreSQL takes it."""
    if isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=seconds(name, value))
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{name} is no length of time: {value} seconds") from error


def whole(name: str, value: object) -> int:
    """A whole number."""
    if type(value) is int:  # nearly always, and the other look takes microseconds
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise refusal(name, "a whole number", value)
    return operator.index(value)


def number(name: str, value: object) -> float:
    """A number, whole or not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(name, "a number", value)
    return float(value)


def wholes(name: str, value: object) -> list[int]:
    """Ids, as a list."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refusal(name, "whole numbers, such as a list of ids", value)
    return [whole(f"each of {name}", each) for each in value]


def truth(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise refusal(name, "True or False", value)
    return value


def chosen(name: str, value: object) -> str | bool:
    """A text, or whether there is to be one at all."""
    return value if isinstance(value, bool) else text(name, value)


def text(name: str, value: object) -> str:
    """Text that PostgreSQL can store: all of Unicode but NUL, and no half of a surrogate pair."""
    if not isinstance(value, str):
        raise refusal(name, "text (str)", value)
    if NOT_STORED.search(value):
        raise make_error(
            UNSTORABLE.get(name, "QH203"),
            f"{name} has a character that PostgreSQL cannot store",
            f"Got {reprlib.repr(value)}.",
            "Text is Unicode without NUL and without single surrogates.",
        )
    return value


def texts(name: str, value: object) -> list[str]:
    """Words, as a list; a single one is not several."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refusal(name, "texts, such as a list of words", value)
    return [text(f"each of {name}", each) for each in value]


def octets(name: str, value: object) -> bytes:
    """Bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise refusal(name, "bytes (text is a payload, or has to be encoded)", value)
    return bytes(value)


def instant(name: str, value: object) -> datetime:
    """A point in time; without a zone it would be taken in the time zone of the server's session."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise refusal(name, "a datetime with a time zone", value)
    return value


def uuid(name: str, value: object) -> UUID:
    """A UUID, or the text of one."""
    try:
        return value if isinstance(value, UUID) else UUID(text(name, value))
    except (TypeError, ValueError) as error:
        raise refusal(name, "a UUID", value) from error


def jsonb(name: str, value: object) -> Jsonb:
    """A value as jsonb; one that is wrapped already stays as it is."""
    if isinstance(value, NewMessage):
        raise TypeError(f"{name} takes JSON values, not a NewMessage: use send_many")
    return value if isinstance(value, Jsonb) else Jsonb(value)


def config(name: str, value: object) -> Jsonb:
    """A configuration, in which durations may be timedeltas."""
    return value if isinstance(value, Jsonb) else Jsonb(_in_seconds(value))


def payloads(name: str, value: object) -> list[Jsonb | None]:
    """Payloads, as a list; None means that there is none, which is not the JSON value null."""
    return [None if each is None else jsonb(name, each) for each in several(name, value)]


def several(name: str, value: object) -> Iterable[Any]:
    """Many messages; a single text or object is one message, not many."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refusal(name, "several messages, such as a list", value)
    return value


def _in_seconds(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _in_seconds(field) for name, field in value.items()}
    if isinstance(value, timedelta):
        total = value.total_seconds()
        return int(total) if total.is_integer() else total
    return value
