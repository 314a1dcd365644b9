"""The envelope: a head in clear that says how to open it, and the ciphertext.

    bytes                   what
    4                       HFE1
    2                       the length of the header, big-endian
    that many               the header, JSON in UTF-8
    the rest                AES-256-GCM: the ciphertext, and a tag of 16 bytes

All that comes before the ciphertext is bound to it as associated data.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.client._errors import CannotOpenError

CONTENT_TYPE = "application/vnd.holdfast.sealed"
MAGIC = b"HFE1"
START = len(MAGIC) + 2  # of the header
TAG_BYTES = 16
RSA, X25519 = "RSA-OAEP-SHA256", "X25519-HKDF-SHA256"
CIPHER = "A256GCM"
PAYLOAD, BODY, NOTHING = "payload", "body", "nothing"
TEXTS = {"alg": (RSA, X25519), "enc": (CIPHER,), "kind": (PAYLOAD, BODY, NOTHING)}


@dataclass(frozen=True, slots=True)
class Envelope:
    """A sealed body, in its parts."""

    head: bytes  # all that comes before the ciphertext
    header: Mapping[str, Any]
    ciphertext: bytes
    tag: bytes

    @property
    def key_id(self) -> str:
        """Which key opens it."""
        return str(self.header["kid"])

    def octets(self, name: str) -> bytes:
        """A field of the header that has bytes."""
        try:
            return b64decode(self.header[name], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(f"Its header has no {name}.") from error


def is_envelope(body: object) -> bool:
    """Whether bytes begin as an envelope does."""
    return isinstance(body, bytes | bytearray | memoryview) and bytes(body[: len(MAGIC)]) == MAGIC


def headed(header: Mapping[str, Any]) -> bytes:
    """What comes before the ciphertext."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return MAGIC + len(text).to_bytes(2, "big") + text


def read_envelope(body: bytes) -> Envelope:
    """The parts of an envelope."""
    if not is_envelope(body):
        raise CannotOpenError(
            "QH242",
            "this message is not sealed",
            "An envelope begins with HFE1.",
            "holdfast.is_sealed tells; what was sent before its queue had a key is in clear.",
        )
    start = START + int.from_bytes(body[len(MAGIC) : START], "big")
    if len(body) < start + TAG_BYTES:
        raise damaged("It is too short.")
    try:
        header = json.loads(body[START:start])
    except (RecursionError, ValueError) as error:
        raise damaged("Its header is not JSON.") from error
    if not isinstance(header, dict) or not isinstance(header.get("kid"), str):
        raise damaged("Its header names no key.")
    for name, known in TEXTS.items():
        if header.get(name) not in known:
            raise damaged(f"Its {name} is none of {', '.join(known)}.")
    return Envelope(body[:start], header, body[start:-TAG_BYTES], body[-TAG_BYTES:])


def text64(data: bytes) -> str:
    """Bytes in the header."""
    return b64encode(data).decode("ascii")


def damaged(detail: str) -> CannotOpenError:
    """The refusal of what was an envelope, or looks like one."""
    return CannotOpenError(
        "QH242",
        "this envelope cannot be opened",
        detail,
        "It was changed on its way, or made in another form: docs/sealed.md describes it.",
    )
