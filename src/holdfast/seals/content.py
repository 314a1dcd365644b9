"""What goes into an envelope: a payload as JSON, a body, or nothing; and how two are known to be the same."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.client._errors import InvalidMessageError

from .envelope import BODY, NOTHING, PAYLOAD

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Content:
    """The part of a message that is sealed."""

    kind: str
    data: bytes
    content_type: str | None


def content(payload: str | bytes | None, body: bytes | None, content_type: str | None) -> Content:
    """The content of a message; a payload is JSON text."""
    if payload is not None and body is not None:
        raise InvalidMessageError(
            "QH203",
            "a message has either a payload or a body, not both",
            "Got both.",
            "Pass JSON as payload, or bytes as body with a content_type.",
        )
    if body is not None:
        return Content(BODY, bytes(body), content_type)
    if payload is None:
        return Content(NOTHING, b"", content_type)
    try:
        data = payload.encode() if isinstance(payload, str) else payload
        if SURROGATE.search(data):
            json.dumps(json.loads(data), ensure_ascii=False).encode()
    except (RecursionError, ValueError) as error:
        raise not_json() from error
    return Content(PAYLOAD, data.strip(), content_type)


def checked(payload: str) -> str:
    """JSON text as it may be sealed; nobody looks at it later."""
    try:
        strict(payload, whole)
    except (RecursionError, ValueError) as error:
        raise not_json() from error
    return payload


def not_json() -> InvalidMessageError:
    """The refusal of a payload; nothing of it is told."""
    return InvalidMessageError(
        "QH203",
        "the payload is not JSON",
        "It is to be sealed, so nothing of it is told.",
        "JSON is Unicode text without NaN, Infinity and single surrogates; send bytes as the body.",
    )


def digest(key: bytes, scope: str, sealed: Content) -> bytes:
    """Tells whether the same was sent before, to whoever has the key: a hash of the plaintext.

    scope: the idempotency key, so that what is sent under two of them cannot be compared.
    """
    said = plain(sealed.data) if sealed.kind == PAYLOAD else sealed.data
    return hmac.digest(key, b"\0".join((scope.encode(), sealed.kind.encode(), said)), hashlib.sha256)


def plain(payload: bytes) -> bytes:
    """JSON without what the database passes over: space, the order of keys, and keys that come twice."""
    try:
        return json.dumps(strict(payload, number), sort_keys=True, separators=(",", ":")).encode()
    except (RecursionError, ValueError) as error:
        raise not_json() from error


def strict(text: str | bytes, read: Callable[[str], Any]) -> Any:
    """JSON as the standard has it, with numbers as they are written."""
    return json.loads(text, parse_float=read, parse_int=read, parse_constant=constant)


def number(digits: str) -> list[str]:
    """A number with its digits; no text is like it."""
    return ["\0", digits]


def whole(digits: str) -> None:
    """Numbers that nobody needs, however long they are."""


def constant(name: str) -> Any:
    """NaN and Infinity are no JSON."""
    raise ValueError(name)
