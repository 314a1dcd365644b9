"""What an answer means, and when the next try is due: pure, without a clock, a network or a database."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Literal

from msgspec import Struct

LONGEST_RETRY_AFTER = 3_600.0  # seconds: a receiver may ask for patience, and not for eternity
AGAIN = frozenset({408, 425, 429})  # of the 4xx: they speak of the moment, not of the message
GONE = 410


class Outcome(StrEnum):
    """What becomes of a message after an attempt."""

    DONE = "done"  # delivered
    RETRY = "retry"  # tried again, as long as it has attempts left
    DEAD = "dead"  # a dead letter at once: no repetition can help
    GONE = "gone"  # the same, and the endpoint takes nothing any more


class Backoff(Struct, frozen=True, kw_only=True):
    """How the pauses between attempts grow. Durations are in seconds."""

    strategy: Literal["exponential", "linear", "fixed"] = "exponential"
    base: float = 10.0  # the first pause
    factor: float = 2.0  # exponential: each pause is so many times the one before
    increment: float = 30.0  # linear: each pause is so much longer than the one before
    cap: float = 300.0  # the longest pause
    jitter: float = 0.1  # the share of a pause that chance may take away, so that not all come at once
    retry_after: bool = True  # whether a receiver may ask for more


def outcome_of(status: int | None) -> Outcome:
    """What an HTTP status means; None: there was no answer."""
    if status is None or status >= 500 or status in AGAIN:
        return Outcome.RETRY
    if 200 <= status < 300:
        return Outcome.DONE
    # Redirects, too: whoever answers may name any address, and none but the endpoint's own was checked.
    return Outcome.GONE if status == GONE else Outcome.DEAD


def pause(backoff: Backoff, attempt: int, chance: float) -> float:
    """Seconds from the failure of this attempt, counted from 1, to the next; chance: from 0 to 1."""
    full = min(grown(backoff, attempt), backoff.cap)
    return full * (1.0 - backoff.jitter * chance)


def grown(backoff: Backoff, attempt: int) -> float:
    """The pause before it is capped."""
    before = max(attempt, 1) - 1
    match backoff.strategy:
        case "fixed":
            return backoff.base
        case "linear":
            return backoff.base + backoff.increment * before
        case "exponential":
            try:
                return backoff.base * backoff.factor**before
            except OverflowError:
                return backoff.cap


def next_delay(
    backoff: Backoff, attempt: int, *, chance: float, asked: str | None = None, now: datetime
) -> float:
    """Seconds to the next attempt; asked: the answer's Retry-After, which can only make it longer."""
    own = pause(backoff, attempt, chance)
    wished = seconds_asked(asked, now) if backoff.retry_after else None
    return own if wished is None else max(own, min(wished, LONGEST_RETRY_AFTER))


def seconds_asked(text: str | None, now: datetime) -> float | None:
    """How long a Retry-After asks to wait, as a number of seconds or as a date; None if it says neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max((at - now).total_seconds(), 0.0)
