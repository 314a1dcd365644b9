"""From the wire to the arguments of verbs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.client import InvalidRequestError
from holdfast.durations import parse_duration
from holdfast.server.endpoint import Call
from holdfast.wire.requests import LONGEST_WAIT, Duration, Id

LARGEST = 2**63 - 1


def number(id: Id, name: str = "id") -> int:
    """An id as a number."""
    value = int(id)
    if abs(value) > LARGEST:
        raise InvalidRequestError("QH911", f"bad value for {name}", f"Got {value}.", "Ids have 63 bits.")
    return value


def path_id(call: Call[Any]) -> int:
    """The id in the path."""
    text = call.part("id")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise InvalidRequestError("QH911", "bad value for id", f"Got {text[:100]!r}.", "Ids are numbers.")
    return number(text)


def number_or_none(id: Id | None, name: str) -> int | None:
    """An id as a number; None stays."""
    return None if id is None else number(id, name)


def numbers(ids: list[Id] | None, name: str = "ids") -> list[int] | None:
    """Ids as numbers; None stays."""
    return None if ids is None else [number(id, name) for id in ids]


def span(duration: Duration | None, name: str) -> timedelta | None:
    """A length of time, given in seconds or as text."""
    if duration is None:
        return None
    try:
        return in_text(duration) if isinstance(duration, str) else timedelta(seconds=duration)
    except (OverflowError, ValueError) as error:
        raise InvalidRequestError(
            "QH911",
            f"bad value for {name}",
            f"{duration!r} is no length of time.",
            'Pass a number of seconds, or text such as "250 ms", "30 s" or "5 min".',
        ) from error


def in_text(duration: str) -> timedelta:
    """A length of time in words; a negative one is for the verb to refuse, as it does a negative number."""
    text = duration.strip()
    return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)


def waiting(duration: Duration) -> float:
    """How long to wait, in seconds."""
    wait = span(duration, "wait")
    seconds = 0.0 if wait is None else wait.total_seconds()
    if not 0 <= seconds <= LONGEST_WAIT:
        raise InvalidRequestError(
            "QH911", "bad value for wait", f"wait takes 0 to {LONGEST_WAIT} seconds.", "Claim again after it."
        )
    return seconds
