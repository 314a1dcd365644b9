"""Who calls, and what they may: API keys, their scopes and queues; and the open mode before the first key.

A key comes as `Authorization: Bearer`, as `x-api-key`, or as the password of Basic auth. The database
knows its hash alone; what was found is remembered for a few seconds, or until a key changes.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

from starlette.requests import Request

from holdfast.client import ForbiddenError, UnauthorizedError

from .endpoint import ADMIN, ANY
from .engine import Engine
from .limits import Limits
from .settings import Settings, is_loopback

FRESH_SECONDS = 5.0  # how long what is known of a key holds
OPEN_SECONDS = 1.0  # how long it holds that there is none
MOST_REMEMBERED = 10_000
TRIES_PER_SECOND, TRIES_AT_ONCE = 10 / 60, 10  # of wrong keys from one address

FIND = b"select id, scopes, queues, rate, burst, expires_at from holdfast.find_key(%s)"
HAS_KEYS = b"select holdfast.has_keys()"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request."""

    key_id: int | None  # None: open mode, or a route that needs no key
    scopes: frozenset[str]
    queues: tuple[str, ...]
    rate: float | None = None
    burst: int | None = None
    expires_at: datetime | None = None

    def may(self, scope: str, queue: str) -> bool:
        """Whether this may be done with a queue; "" stands for what belongs to no queue."""
        return (scope in self.scopes or ADMIN in self.scopes) and self.reaches(queue)

    def reaches(self, queue: str) -> bool:
        """Whether a queue is among this caller's."""
        if queue:
            return any(fnmatchcase(queue, pattern) for pattern in self.queues)
        return "*" in self.queues


EVERYBODY = Caller(None, frozenset({ADMIN}), ("*",))
NOBODY = Caller(None, frozenset(), ())


@dataclass(slots=True)
class Known:
    """What was found of a key, and when."""

    caller: Caller | None
    at: float = field(default_factory=monotonic)


class Door:
    """Lets callers in, or says why not."""

    def __init__(self, engine: Engine, settings: Settings, limits: Limits) -> None:
        self._engine = engine
        self._settings = settings
        self._limits = limits
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._closed = False
        self._looked_at = float("-inf")
        self.used: dict[int, datetime] = {}

    def forget(self, _: str = "") -> None:
        """Something has changed about keys."""
        self._known.clear()
        self._looked_at = float("-inf")

    async def is_open(self) -> bool:
        """Whether there has never been a key; once there was one, it never is again."""
        if not self._closed and monotonic() - self._looked_at > OPEN_SECONDS:
            (has_keys,) = await self._engine.fetch("has_keys", HAS_KEYS, [], first)
            self._closed, self._looked_at = bool(has_keys), monotonic()
        return not self._closed

    async def admit(self, request: Request, scope: str | None, queue: str) -> Caller:
        """The caller of a request, who may do this; anybody else is turned away."""
        if await self.is_open():
            check_same_site(request, self._settings)
            return EVERYBODY
        if scope is None:
            return NOBODY
        caller = await self.identify(request)
        if scope != ANY:
            require(caller, scope, queue)
        if caller.rate is not None:
            await self._limits.take(f"key:{caller.key_id}", caller.rate, caller.burst)
        return caller

    async def identify(self, request: Request) -> Caller:
        """Whose key a request carries."""
        secret = presented_key(request)
        if secret is None:
            raise UnauthorizedError(
                "QH920",
                "an API key is needed",
                None,
                "Send it as Authorization: Bearer hf_…; holdfast key create makes one.",
            )
        caller = await self._find(hashlib.sha256(secret).digest())
        if caller is None or (caller.expires_at is not None and caller.expires_at <= datetime.now(UTC)):
            await self._limits.take(f"login:{address(request)}", TRIES_PER_SECOND, TRIES_AT_ONCE)
            raise UnauthorizedError(
                "QH920", "the API key is not valid", "It is unknown, revoked or expired.", "Use another."
            )
        assert caller.key_id is not None
        self.used[caller.key_id] = datetime.now(UTC)
        return caller

    async def _find(self, digest: bytes) -> Caller | None:
        known = self._known.get(digest)
        if known is None or monotonic() - known.at > FRESH_SECONDS:
            rows = await self._engine.fetch("find_key", FIND, [digest], as_callers)
            known = self._known[digest] = Known(rows[0] if rows else None)
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        return known.caller


def require(caller: Caller, scope: str, queue: str) -> None:
    """Refuse what a key does not allow."""
    if not caller.may(scope, queue):
        where = f"of the queue {queue}" if queue else "of all queues"
        raise ForbiddenError(
            "QH921",
            "this key may not do that",
            f"It takes the scope {scope} {where}.",
            "Use a key that has it: holdfast key list shows what each may do.",
        )


def presented_key(request: Request) -> bytes | None:
    """The key that a request carries, in one of its three forms."""
    if named := request.headers.get("x-api-key"):
        return named.encode()
    kind, _, rest = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and rest:
        return rest.strip().encode()
    if kind.lower() == "basic":
        try:
            return b64decode(rest, validate=True).partition(b":")[2] or None
        except binascii.Error:
            return None
    return None


def check_same_site(request: Request, settings: Settings) -> None:
    """In open mode, refuse what a web page may have sent: another host's name, or another origin."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    scheme = "https" if settings.tls_certificate else "http"
    if not is_loopback(host_name(host)) or (origin is not None and origin != f"{scheme}://{host}"):
        raise ForbiddenError(
            "QH921",
            "this request is from elsewhere",
            f"Host is {host[:200]!r}, Origin {(origin or 'none')[:200]!r}.",
            "Without API keys the server answers programs on this machine alone: use 127.0.0.1 or localhost.",
        )


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def address(request: Request) -> str:
    """Where a request came from."""
    return request.client.host if request.client else "unknown"


def first(cursor: Any) -> Any:
    """A row factory for one value."""
    return lambda row: row[0]


def as_callers(cursor: Any) -> Any:
    """A row factory for keys."""
    return lambda row: Caller(row[0], frozenset(row[1]), tuple(row[2]), *row[3:])
