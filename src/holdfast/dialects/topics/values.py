"""Numbers and names as the topics page has them: milliseconds, bounds, lease ids, how long things took."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from holdfast.server.endpoint import Call

TOPICS = "/v0/topics"
TOPIC = TOPICS + "/{queue}"
MOST_JOBS = 1_000  # in one claim, on one stream, in one settlement
LEASE_MS = (100, 86_400_000)
DELAY_MS = (0, 86_400_000)
TOKEN_DIGITS, SEQ_DIGITS = 16, 14
LEASE = "lease_"


def clamped(value: int, bounds: tuple[int, int]) -> int:
    """A number, or the bound that it lies beyond."""
    least, most = bounds
    return min(max(value, least), most)


def milliseconds(value: int) -> timedelta:
    """A length of time."""
    return timedelta(milliseconds=value)


def lease(value: int | None) -> timedelta | None:
    """The length of a lease, within its bounds."""
    return None if value is None else milliseconds(clamped(value, LEASE_MS))


def epoch_ms(at: datetime) -> int:
    """A point in time."""
    return round(at.timestamp() * 1000)


def lease_id(token: int, seq: int) -> str:
    """What names the lease of one job: nobody else's, and no other job's."""
    return f"{LEASE}{token:0{TOKEN_DIGITS}x}{seq:0{SEQ_DIGITS}x}"


def token_of(lease_id: str, seq: int) -> int | None:
    """The token in a lease id; None: it is not of this job, or none at all."""
    digits = lease_id.removeprefix(LEASE)
    if lease_id == digits or len(digits) != TOKEN_DIGITS + SEQ_DIGITS:
        return None
    try:
        token, of = int(digits[:TOKEN_DIGITS], 16), int(digits[TOKEN_DIGITS:], 16)
    except ValueError:
        return None
    return token if of == seq else None


def performance(call: Call[Any], **more: float) -> dict[str, float]:
    """How long this request took until now, in milliseconds, and parts of that, in seconds."""
    parts = {f"{name}_ms": round(seconds * 1000, 3) for name, seconds in more.items()}
    return {"server_total_ms": round(call.request.scope["visit"].seconds * 1000, 3), **parts}
