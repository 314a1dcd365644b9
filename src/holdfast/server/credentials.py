"""Credentials: the key, or the token of a login, that a request carries."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe
from urllib.parse import parse_qsl

TOKEN_BYTES = 32

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret, by its hash, and whether a browser may have sent it by itself."""

    hash: bytes
    is_remembered: bool = False


def presented(headers: Headers) -> Credential | None:
    """What a request carries: as x-api-key, as Authorization: Bearer, or as the password of Basic."""
    if named := headers.get(b"x-api-key"):
        return Credential(hashed(named.strip()))
    kind, _, rest = headers.get(b"authorization", b"").partition(b" ")
    secret = rest.strip()
    if kind.lower() == b"bearer" and secret:
        return Credential(hashed(secret))
    if kind.lower() == b"basic" and (password := password_in(secret)):
        return Credential(hashed(password), is_remembered=True)
    return None


def with_query_key(headers: list[tuple[bytes, bytes]], query: bytes) -> list[tuple[bytes, bytes]]:
    """Headers with the key that a query has as `token`, unless they have one themselves."""
    token = dict(reversed(parse_qsl(query.decode("latin-1")))).get("token")  # of several the first
    if token is None or presented(dict(headers)) is not None:
        return headers
    return [*headers, (b"authorization", b"Bearer " + token.encode())]


def password_in(encoded: bytes) -> bytes:
    """The password of Basic auth, whoever the user is; empty if there is none."""
    try:
        return b64decode(encoded, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def hashed(secret: bytes) -> bytes:
    """What a secret is looked up by.

    No comparison needs constant time: timing could tell no more than how much of a stored hash fits that of
    a guess, and whoever knew all of it would still have to find 256 random bits that SHA-256 makes it of.
    """
    return sha256(secret).digest()


def new_token() -> str:
    """What stands for a key after a login."""
    return f"hft_{token_urlsafe(TOKEN_BYTES)}"
