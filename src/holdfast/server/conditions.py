"""Conditions: what others have changed meanwhile is left alone, and none is passed over; nor is a key."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from starlette.requests import Request

from holdfast.client import InvalidRequestError, PreconditionFailedError

ANYTHING = "*"
NAMES = ("If-Match", "If-Unmodified-Since")
KEY = "Idempotency-Key"
TAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
BETWEEN = " \t,"


def etag(effective: Any) -> str:
    """What stands for a configuration."""
    return f'"{hashlib.sha256(bytes(effective)).hexdigest()[:24]}"'


def refuse_conditions(request: Request, *, takes_if_match: bool) -> None:
    """Refuse a condition that the route would pass over."""
    for name in NAMES:
        if name.lower() in request.headers and not (takes_if_match and name == NAMES[0]):
            raise InvalidRequestError(
                "QH911",
                f"{request.method} of this path takes no {name}",
                "It would change, or answer, whatever the condition says.",
                "If-Match is for PATCH and DELETE of a queue; a schema has expected_version.",
            )


def refuse_key(request: Request, *, takes_key: bool) -> None:
    """Refuse an idempotency key that the route would pass over."""
    if KEY.lower() in request.headers and not takes_key:
        raise InvalidRequestError(
            "QH911",
            f"{request.method} of this path takes no {KEY}",
            "It would be done once more if it were asked for once more, whatever the key says.",
            "It is for sending: POST to the messages of a queue.",
        )


def wanted_tags(request: Request) -> str | None:
    """What If-Match says; None: there is no condition."""
    wanted = request.headers.get("if-match")
    if wanted is not None and wanted.strip() != ANYTHING and not are_tags(wanted):
        raise InvalidRequestError(
            "QH911",
            "bad value for If-Match",
            f"Got {wanted[:200]}.",
            "If-Match takes the ETag with its quotes, strong (without W/), or several of them, or *.",
        )
    return wanted


def are_tags(wanted: str) -> bool:
    """Whether a header has strong ETags, and nothing else."""
    return TAG.search(wanted) is not None and not TAG.sub("", wanted).strip(BETWEEN)


def check_match(wanted: str, effective: Any) -> None:
    """Refuse a change of a configuration that is not the one the caller knows."""
    current = etag(effective)
    if wanted.strip() != ANYTHING and current not in TAG.findall(wanted):
        raise PreconditionFailedError(
            "QH923",
            "the configuration has changed",
            f"If-Match is {wanted[:200]}, and it is {current} now.",
            "Get it anew, look at it, and change it then.",
        )
