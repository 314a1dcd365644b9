"""Signatures as Standard Webhooks writes them: HMAC-SHA256 over id, time and body, one for each secret."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Sequence
from hashlib import sha256

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64  # bytes of a key
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def key_of(secret: str) -> bytes:
    """The key in a secret; ValueError, which does not show it, if there is none."""
    try:
        key = b64decode(secret.removeprefix(PREFIX).encode(), validate=True)
    except (Error, ValueError):
        raise ValueError(f"a signing secret is {PREFIX} followed by base64") from None
    if not SHORTEST <= len(key) <= LONGEST:
        raise ValueError(f"a signing secret has {SHORTEST} to {LONGEST} bytes, not {len(key)}")
    return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """One signature, with its version."""
    signed = hmac.digest(key, b"%s.%d.%s" % (id.encode(), timestamp, body), sha256)
    return f"v1,{b64encode(signed).decode()}"


def signed_headers(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery; while secrets rotate, whoever has one of the keys can check them."""
    headers = {ID: id, TIMESTAMP: str(timestamp)}
    if keys:
        headers[SIGNATURE] = " ".join(signature(key, id, timestamp, body) for key in keys)
    return headers
