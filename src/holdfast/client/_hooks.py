"""Inbound hooks: the values that the client returns, and what it makes, hashes and seals."""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ._errors import InvalidHookError
from ._types import Id, Json

if TYPE_CHECKING:
    from holdfast.vault import Vault

SLUG = re.compile(r"[A-Za-z0-9_-]{16,200}")
SLUG_BYTES = 24
SHOWN = 8  # characters of a slug that people may see
SECRET_PREFIX = "whsec_"  # of Standard Webhooks
SECRET_BYTES = 32
LEAST_BYTES, MOST_BYTES = 24, 64
SEALED = "hfs1."


@dataclass(frozen=True, slots=True, kw_only=True)
class HookInfo:
    """An inbound hook, without its slugs and secrets."""

    hook: str
    queue: str
    enabled: bool
    config: dict[str, Json]
    slugs: list[dict[str, Json]]
    secrets: list[dict[str, Json]]
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHook:
    """A hook that was just made: its slug, and the path with it, are told this once."""

    hook: str
    queue: str
    slug: str = field(repr=False)
    path: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedHook:
    """What a hook has now, told this once, and until when what was before counts too."""

    slug: str | None = field(repr=False)
    secret: str | None = field(repr=False)
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A call of a hook, and what became of it."""

    id: Id
    at: datetime
    outcome: str
    status: int
    size: int | None
    code: str | None
    message_id: Id | None


def new_slug() -> str:
    """A slug that nobody can guess."""
    return f"wh_{secrets.token_urlsafe(SLUG_BYTES)}"


def slug(given: object) -> str:
    """A slug that somebody has chosen; nothing of a bad one is shown."""
    if not isinstance(given, str) or not SLUG.fullmatch(given):
        raise InvalidHookError(
            "QH882",
            "bad value for slug",
            "It is not shown here.",
            "A slug has 16 to 200 characters out of A-Z a-z 0-9 _ -, which nobody can guess.",
        )
    return given


def hash_of(slug: str) -> bytes:
    """What is stored of a slug: it is random, and needs no salt."""
    return sha256(slug.encode()).digest()


def path_of(slug: str) -> str:
    """Where a server takes calls."""
    return f"/wh/{slug}"


def new_secret() -> str:
    """A signing secret that nobody can guess."""
    return SECRET_PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signing_secret(given: object) -> str:
    """A signing secret as senders have it; nothing of a bad one is shown."""
    encoded = given.removeprefix(SECRET_PREFIX) if isinstance(given, str) else ""
    try:
        size = len(b64decode(encoded, validate=True))
    except ValueError:
        size = 0
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise InvalidHookError(
            "QH882",
            "bad value for signing_secret",
            "It is not shown here.",
            f"signing_secret takes {SECRET_PREFIX} and {LEAST_BYTES} to {MOST_BYTES} bytes in base64.",
        )
    return SECRET_PREFIX + encoded


def purpose_of(hook: str) -> str:
    """What the secrets of a hook are sealed for."""
    return f"hook:{hook}"


def sealed(vault: Vault, hook: str, secret: str) -> str:
    """A secret as the database takes it; one that is sealed stays so."""
    return secret if secret.startswith(SEALED) else vault.seal(signing_secret(secret), purpose_of(hook))


def sealed_config(vault: Vault, hook: str, config: Any) -> Any:
    """A configuration whose secret is sealed; all else is for the engine to check."""
    if not isinstance(config, Mapping) or not isinstance(config.get("signing_secret"), str):
        return config
    return {**config, "signing_secret": sealed(vault, hook, config["signing_secret"])}
