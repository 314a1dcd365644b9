"""The door: who calls, and whether they may; open to everybody on this machine before the first key.

The database knows secrets by their hashes alone. What was found there is remembered for a few seconds, or
until a key changes. Guesses are looked for too, since a valid key must get in whatever else comes from its
address: those that come together go in one call, and an address without tries waits for company.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

import psycopg
from starlette.requests import Request

from holdfast.client import TooManyRequestsError, UnauthorizedError, UnavailableError
from holdfast.client._rows import scalar

from .callers import EVERYBODY, NOBODY, Caller, require
from .coalesce import Coalescer
from .credentials import Credential, Headers, hashed, new_token, presented
from .engine import Engine
from .limits import Limits
from .origins import check_local, check_site
from .settings import Settings
from .tries import Tries
from .trouble import unavailable
from .uses import Uses

FRESH_SECONDS = 5.0  # how long what is known of a secret holds
OPEN_SECONDS = 1.0  # how long it holds that there is no key
OUTAGE_SECONDS = 60.0  # how long either holds at most while the database cannot be asked
GUESS_SECONDS = 0.1  # how long a guess waits for others, from an address without tries
LOGIN_SECONDS = 900  # how long a login counts, unless its key ends before
MOST_REMEMBERED = 10_000
MOST_AT_ONCE = 1_000  # hashes in one call
NOBODYS = (None, inf)  # what is found of a secret that is none

FIND = (
    b"select h.nth, k.id, k.scopes, k.queues, k.rate, k.burst, "
    b"extract(epoch from k.expires_at - holdfast.now())::float8 "
    b"from unnest(%s::bytea[]) with ordinality h(hash, nth), lateral holdfast.find_key(h.hash) k"
)
HAS_KEYS = b"select holdfast.has_keys()"
ENDED = "It is revoked, has expired or got another secret; or there was none, and now there are keys."
OTHER_KEY = (
    "Ask who runs the server for another: holdfast key list --all shows what became of this one, "
    "by how it begins (a key that was rotated begins otherwise now), and holdfast key create makes a key."
)
LOG_IN = (
    b"select holdfast.begin_login(hash => %s, token => %s, lasts => make_interval(secs => %s)) is not null"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a secret, by the monotonic clock; no caller: it is none."""

    caller: Caller | None
    until: float  # then the database is asked again
    last: float  # then it counts no more, also if the database does not answer
    ends: float = inf  # then the key is over, as its maker has said


class Memory:
    """What was found last, of so many secrets at most."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, Found] = OrderedDict()

    def get(self, hash: bytes) -> Found | None:
        """What was found of a secret, however old."""
        return self._found.get(hash)

    def keep(self, hash: bytes, found: Found) -> None:
        """Remember it."""
        self._found[hash] = found
        self._found.move_to_end(hash)
        if len(self._found) > MOST_REMEMBERED:
            self._found.popitem(last=False)

    def drop(self, hash: bytes) -> None:
        """Forget a secret."""
        self._found.pop(hash, None)

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()


class Door:
    """Lets callers in, or says why not."""

    def __init__(self, engine: Engine, settings: Settings, limits: Limits) -> None:
        self.uses = Uses(engine)
        self._engine = engine
        self._settings = settings
        self._limits = limits
        self._tries = Tries()
        # Apart, so that guesses cannot push keys out.
        self._keys, self._guesses = Memory(), Memory()
        self._changes = 0  # how often keys have changed
        self._finding: Coalescer[bool, bytes, Found] = Coalescer(
            self._find, weigh=lambda _: 1, most=MOST_AT_ONCE, apart=False
        )
        self._looking: Coalescer[None, None, bool] = Coalescer(
            self._look, weigh=lambda _: 1, most=MOST_AT_ONCE, apart=False
        )
        self._closed = not settings.on_loopback
        self._looked_at = -inf
        self._known_at = -inf  # the same, whatever has changed since

    def forget(self) -> None:
        """Something has changed about keys."""
        self._changes += 1
        self._keys.clear()
        self._guesses.clear()
        self._looked_at = -inf

    async def is_open(self) -> bool:
        """Whether there has never been a key; once there was one, or away from loopback, it never is.

        While the database does not answer, what was known last holds on for a while: here, and of keys.
        """
        if not self._closed and monotonic() - self._looked_at > OPEN_SECONDS:
            try:
                await self._looking.submit(None, None)
            except (psycopg.Error, UnavailableError) as error:
                if unavailable(error) is None or monotonic() > self._known_at + OUTAGE_SECONDS:
                    raise
        return not self._closed

    async def admit(self, request: Request, scope: str | None, queue: str | None) -> Caller:
        """The caller of a request, who may do this; anybody else is turned away."""
        if scope is None:
            return NOBODY
        headers: Headers = dict(request.scope["headers"])
        if await self.is_open():
            check_local(headers, self._settings.cors)
            return EVERYBODY
        caller = await self.identify(presented(headers), headers, address(request))
        request.scope["visit"].key = caller.key_id
        require(caller, scope, queue)
        await self._limit(caller)
        return caller

    async def readmit(self, request: Request, scope: str, queue: str) -> None:
        """Turn away a caller whom this door has let in, and who may not go on."""
        if await self.is_open():
            return
        credential = presented(dict(request.scope["headers"]))
        caller = None if credential is None else await self.caller_of(credential.hash)
        if caller is None:
            raise UnauthorizedError("QH920", "the API key is not valid any more", ENDED, OTHER_KEY)
        require(caller, scope, queue)

    async def identify(self, credential: Credential | None, headers: Headers, address: str) -> Caller:
        """Whose key, or token, this is."""
        if credential is None:
            raise UnauthorizedError(
                "QH920",
                "an API key is needed",
                "The request has none.",
                "Send it as Authorization: Bearer hf_…; who runs the server makes one: holdfast key create.",
            )
        if credential.is_remembered:
            check_site(headers, self._settings.cors)
        caller = await self.caller_of(credential.hash, hurried=self._tries.are_left(address))
        if caller is None:
            raise self._wrong(address)
        assert caller.key_id is not None
        self.uses.note(caller.key_id)
        return caller

    async def log_in(self, secret: bytes, address: str) -> str:
        """Exchange a key for a token, which counts for a quarter of an hour at every server."""
        credential = Credential(hashed(secret))
        caller = await self.identify(credential, {}, address)
        await self._limit(caller)
        token = new_token()
        parameters = [credential.hash, hashed(token.encode()), LOGIN_SECONDS]
        (is_key,) = await self._engine.fetch("begin_login", LOG_IN, parameters, scalar(bool))
        if not is_key:  # but a token
            raise self._wrong(address)
        return token

    async def caller_of(self, hash: bytes, *, hurried: bool = True) -> Caller | None:
        """Whose secret has this hash; one that was not known to be a key is in no hurry if it is a guess."""
        known = self._keys.get(hash)
        found = known or self._guesses.get(hash)
        if found is None or found.until <= monotonic():
            try:
                found = await self._finding.submit(hurried or known is not None, hash)
            except (psycopg.Error, UnavailableError) as error:
                if found is None or unavailable(error) is None:
                    raise
                if found.ends > monotonic() > found.last:  # it may count, and nobody knows
                    raise
        return found.caller if found.ends > monotonic() else None

    async def _find(self, hurried: bool, hashes: Sequence[bytes]) -> list[Found]:
        if not hurried:
            await asyncio.sleep(GUESS_SECONDS)
        changes, now = self._changes, monotonic()
        rows = await self._engine.fetch("find_key", FIND, [list(hashes)], as_found)
        known: dict[int, tuple[Caller | None, float]] = dict(rows)
        answers = [dated(now, *known.get(nth, NOBODYS)) for nth in range(1, len(hashes) + 1)]
        if changes == self._changes:  # else what was found may be from before the change
            for hash, answer in zip(hashes, answers, strict=True):
                self._keep(hash, answer)
        return answers

    def _keep(self, hash: bytes, found: Found) -> None:
        right, wrong = (self._keys, self._guesses) if found.caller else (self._guesses, self._keys)
        right.keep(hash, found)
        wrong.drop(hash)

    async def _look(self, _: None, askers: Sequence[None]) -> list[bool]:
        (has_keys,) = await self._engine.fetch("has_keys", HAS_KEYS, [], scalar(bool))
        self._closed = self._closed or has_keys
        self._looked_at = self._known_at = monotonic()
        return [self._closed] * len(askers)

    async def _limit(self, caller: Caller) -> None:
        if caller.rate is not None:
            await self._limits.take(f"key:{caller.key_id}", caller.rate, caller.burst)

    def _wrong(self, address: str) -> UnauthorizedError | TooManyRequestsError:
        pause = self._tries.take(address)
        if pause is None:
            return UnauthorizedError(
                "QH920", "the API key is not valid", "It is unknown, revoked, expired or replaced.", OTHER_KEY
            )
        error = TooManyRequestsError(
            "QH922", "too many wrong keys", f"They came from {address}.", "Wait as long as Retry-After says."
        )
        error.retry_after = pause
        return error


def address(request: Request) -> str:
    """Where a request came from."""
    return request.client.host if request.client else "unknown"


def as_found(cursor: Any) -> Any:
    """A row factory: which of the hashes, and whose it is, for how many seconds."""

    def make(row: Sequence[Any]) -> tuple[int, tuple[Caller, float]]:
        nth, id, scopes, queues, rate, burst, left = row
        return nth, (Caller(id, frozenset(scopes), tuple(queues), rate, burst), inf if left is None else left)

    return make


def dated(now: float, caller: Caller | None, left: float) -> Found:
    """What was found now, of a secret that has so many seconds left."""
    return Found(caller, now + min(left, FRESH_SECONDS), now + OUTAGE_SECONDS, now + left)
