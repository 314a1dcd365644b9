"""Secrets of API keys: how they are made, and what of them goes to the database."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime

from ._types import Id

SECRET_BYTES = 32
PREFIX_LENGTH = 11  # of what people see: hf_ and eight characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key to the HTTP server, without its secret."""

    id: Id
    name: str
    prefix: str
    scopes: list[str]
    queues: list[str]
    rate: float | None
    burst: int | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that was just made, or has a new secret: `key` is told this once."""

    id: Id
    key: str = field(repr=False)
    prefix: str


def new_secret() -> str:
    """A secret that nobody can guess."""
    return f"hf_{secrets.token_urlsafe(SECRET_BYTES)}"


def prefix_of(secret: str) -> str:
    """What may be shown of a secret."""
    return secret[:PREFIX_LENGTH]


def hash_of(secret: str) -> bytes:
    """What is stored of a secret: with 256 random bits, it needs no salt."""
    return hashlib.sha256(secret.encode()).digest()
