"""Signatures of senders, as Standard Webhooks has them: whether one of our keys made one, just now."""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest

from holdfast.client import WrongSignatureError

from .sign import ID, SIGNATURE, TIMESTAMP, signature

LONGEST_NUMBER = 12  # digits of a time
HINT = "Sign as Standard Webhooks has it: webhook-id, webhook-timestamp, webhook-signature."


def verify(
    keys: Sequence[bytes],
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    now: float,
    tolerance: float,
) -> str:
    """The id of a request that whoever has one of the keys has signed, within so many seconds of now."""
    id, timestamp, signatures = (only(headers, name) for name in (ID, TIMESTAMP, SIGNATURE))
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= LONGEST_NUMBER):
        raise wrong(f"{TIMESTAMP} is no number of seconds since 1970.")
    if abs(now - int(timestamp)) > tolerance:
        apart = f"It is {abs(now - int(timestamp)):.0f} seconds from now; {tolerance:g} are tolerated."
        raise wrong(f"{TIMESTAMP} is out of time. {apart}")
    given = [each.encode() for each in signatures.split()]
    for key in keys:
        expected = signature(key, id, int(timestamp), body).encode()
        if any(compare_digest(expected, each) for each in given):
            return id
    raise wrong("None of the signatures fits.")


def only(headers: Sequence[tuple[str, str]], wanted: str) -> str:
    """The value of a header that has to be there, once."""
    values = [value for name, value in headers if name == wanted]
    if len(values) != 1 or not values[0]:
        raise wrong(f"{wanted} is there several times." if len(values) > 1 else f"{wanted} is missing.")
    return values[0]


def wrong(detail: str) -> WrongSignatureError:
    """The refusal."""
    return WrongSignatureError("QH883", "this request is not signed as it has to be", detail, HINT)
