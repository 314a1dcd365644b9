"""Sealed messages for consumers: what opens them; and what makes envelopes without a client."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ._arguments import text
from ._errors import InvalidSealKeyError
from ._json import reader
from ._types import Json

NO_PACKAGES = "messages are sealed and opened with one more package: pip install 'holdfast[secrets]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealKey:
    """A public key of a queue; once it was dropped, the time of that."""

    id: str
    kind: str
    public_key: str
    set_at: datetime
    dropped_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What was in an envelope, with the queue it was sent to and the key that opened it."""

    payload: Json
    body: bytes | None
    content_type: str | None
    queue: str
    key_id: str


@contextmanager
def packages() -> Iterator[None]:
    """Say what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NO_PACKAGES, name=error.name) from error


def is_sealed(message: Any) -> bool:
    """Whether a message, or its body, is an envelope."""
    from holdfast.seals.envelope import is_envelope

    return is_envelope(body_of(message))


def open_sealed(
    message: Any,
    private_key: Any,
    *,
    password: str | bytes | None = None,
    parse_float: Callable[[str], Any] = float,
) -> Opened:
    """Open a sealed message: a Delivery, an Entry, a Record, an object of HTTP's, or the bytes of its body.

    private_key: PEM, or a key of the package cryptography; or several of them. password: that of the PEM.
    """
    with packages():
        from holdfast.seals.envelope import BODY, PAYLOAD, damaged, read_envelope
        from holdfast.seals.keys import private_keys
        from holdfast.seals.opening import opened

        envelope = read_envelope(body_of(message) or b"")
        data = opened(envelope, private_keys(private_key, password))
    kind, payload = envelope.header["kind"], None
    if kind == PAYLOAD:
        try:
            payload = reader(parse_float)(data)
        except ValueError as error:
            raise damaged("What is in it is not JSON.") from error
    return Opened(
        payload=payload,
        body=data if kind == BODY else None,
        content_type=envelope.header.get("type"),
        queue=str(envelope.header.get("queue", "")),
        key_id=envelope.key_id,
    )


def body_of(message: Any) -> bytes | None:
    """The body of a message, in whatever form it is there; in JSON it is base64."""
    if isinstance(message, bytes | bytearray | memoryview):
        return bytes(message)
    body: Any = message.get("body") if isinstance(message, Mapping) else getattr(message, "body", None)
    if isinstance(body, str):
        try:
            return b64decode(body)
        except ValueError:
            return None
    return None if body is None else bytes(body)


def public_pem(public_key: str | bytes) -> str:
    """A public key on its way to a queue; a private one goes nowhere."""
    pem = public_key.decode("ascii", "replace") if isinstance(public_key, bytes) else public_key
    if "PRIVATE KEY" in text("public_key", pem):
        raise InvalidSealKeyError(
            "QH110",
            "this is a private key",
            "It was not sent.",
            "Keep it with the consumer; set the public one.",
        )
    return pem
