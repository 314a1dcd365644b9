"""The origin of a message on the wire: the ids in it are text, and its times end in Z, as everywhere else.

The database keeps ids as numbers and times with an offset. Anything else in an origin is left as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

IDS = ("id", "root_id")
TIMES = ("sent_at", "enqueued_at", "died_at", "redriven_at", "ended_at", "replayed_at")
IN_UTC, ZONE = "+00:00", "Z"

_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def write_origin(stored: Raw) -> Any:
    """An origin out of the database, as it goes over the wire."""
    try:
        origin = _fields(stored)
    except (msgspec.DecodeError, RecursionError):  # who stages a replay may write what is no origin
        return stored
    for name in IDS:
        if name in origin and bytes(origin[name]).isdigit():
            origin[name] = Raw(b'"%b"' % bytes(origin[name]))
    for name in TIMES:
        if name in origin:
            origin[name] = write_time(origin[name])
    return origin


def write_time(stored: Raw) -> Raw:
    """A time in UTC, with all digits that were stored."""
    try:
        text = msgspec.json.decode(stored, type=str)
        if not text.endswith(IN_UTC):  # it was stored by a session with a time zone of its own
            text = datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError):
        return stored
    return Raw(msgspec.json.encode(text.removesuffix(IN_UTC) + ZONE))


def read_origin(origin: Any) -> Any:
    """An origin from the wire, as the database has it."""
    if not isinstance(origin, dict):
        return origin
    return {name: read_field(name, value) for name, value in origin.items()}


def read_field(name: str, value: Any) -> Any:
    """A field of it."""
    if name in IDS and isinstance(value, str) and value.isdecimal():
        return int(value)
    if name in TIMES and isinstance(value, str) and value.endswith(ZONE):
        return value.removesuffix(ZONE) + IN_UTC
    return value
