"""An endpoint as the dispatcher sees it: where to, how, and with which secrets, read out of the database."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from .guard import Place, read_url
from .policy import Backoff
from .sign import key_of

PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
LONGEST_VALUE = 8_192  # characters of a header
# Whatever a configuration says, these are ours: they frame the request, or say that it is ours.
RESERVED = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)

OpenSecret = Callable[[str, str], str]


class Config(Struct, frozen=True, kw_only=True):
    """What is in force for an endpoint, as far as it concerns deliveries. Durations are in seconds."""

    method: str = "POST"
    headers: dict[str, str] = {}
    timeout: float = 10.0  # for an attempt as a whole
    connect_timeout: float = 5.0
    retry: Backoff = Backoff()
    concurrency: int = 10  # deliveries at once, of each process
    ordering: Literal["none", "key", "strict"] = "none"
    rate_limit: float | None = None  # messages a second, which claims see to
    cloudevents: Literal["off", "binary", "structured"] = "off"
    cloudevents_type: str | None = None
    cloudevents_source: str = "/holdfast"
    capture_response: bool = False
    capture_limit: int = 65_536  # bytes
    allow: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One endpoint. Its secrets are in clear here, and shown by nothing."""

    endpoint: str
    queue: str
    version: int
    enabled: bool
    place: Place
    config: Config
    headers: tuple[tuple[str, str], ...]  # of every delivery, names in lower case
    keys: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"Target({self.endpoint!r}, version={self.version})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A row of dispatch_endpoints()."""

    endpoint: str
    queue: str
    enabled: bool
    url: str
    version: int
    config: msgspec.Raw
    secrets: list[str]
    auth: msgspec.Raw | None


def as_target(row: TargetRow, open_secret: OpenSecret) -> Target:
    """An endpoint with its secrets opened; ValueError for what cannot be dispatched as it is."""
    config = msgspec.json.decode(row.config, type=Config)
    purpose = f"webhook:{row.endpoint}"
    auth: Mapping[str, Any] | None = msgspec.json.decode(row.auth) if row.auth is not None else None
    headers = {name.lower(): value for name, value in config.headers.items()}
    if auth is not None:
        headers["authorization"] = authorization(auth, lambda sealed: open_secret(sealed, purpose))
    for name, value in headers.items():
        if not is_plain(value):
            raise ValueError(f"the header {name} is no text in ASCII, or too long")
    return Target(
        endpoint=row.endpoint,
        queue=row.queue,
        version=row.version,
        enabled=row.enabled,
        place=read_url(row.url),
        config=config,
        headers=tuple((name, value) for name, value in headers.items() if name not in RESERVED),
        keys=tuple(key_of(open_secret(sealed, purpose)) for sealed in row.secrets),
    )


def is_plain(value: str) -> bool:
    """Whether text can be the value of a header."""
    return len(value) <= LONGEST_VALUE and PLAIN.fullmatch(value) is not None


def authorization(auth: Mapping[str, Any], opened: Callable[[str], str]) -> str:
    """The value of the header of that name."""
    if auth["type"] == "bearer":
        return f"Bearer {opened(auth['token'])}"
    pair = f"{auth['username']}:{opened(auth['password'])}"
    return f"Basic {b64encode(pair.encode()).decode()}"
