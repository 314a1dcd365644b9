"""Inbound hooks: whose slug it is, by its hash; looked up once, and again when something has changed.

What was found is remembered for a few seconds, or until a hook changes. A slug that is nobody's is not
remembered: all that are asked for at once are looked up together, one call at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.client._hooks import SLUG, hash_of, purpose_of
from holdfast.vault import Vault
from holdfast.webhook.sign import key_of

from .coalesce import Coalescer
from .engine import Engine
from .numbers import Numbers

FRESH_SECONDS = 5.0
MOST_REMEMBERED = 10_000
MOST_AT_ONCE = 1_000  # hashes in one call
FIND = b"select nth, hook, queue, config, secrets, expires_in from holdfast.find_hooks(%s::bytea[])"


class HookConfig(msgspec.Struct, frozen=True):
    """What holds for calls of a hook; durations in seconds."""

    enabled: bool
    tolerance: float
    idempotency_header: str | None
    idempotency_window: float
    max_body: int
    content_types: list[str] | None
    drop_headers: list[str]
    rate_limit: float | None
    burst: int | None


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook, with what it takes to answer a call."""

    name: str
    queue: str
    base: int  # what its sequence numbers count from: once a message is stored, nothing is asked any more
    config: HookConfig
    keys: tuple[bytes, ...]  # by which callers sign; none: they do not


@dataclass(frozen=True, slots=True)
class Found:
    """What a slug leads to, and until when, by the monotonic clock."""

    hook: Hook
    until: float


class Hooks:
    """Finds hooks."""

    def __init__(self, engine: Engine, numbers: Numbers, vault: Vault) -> None:
        self._engine = engine
        self._numbers = numbers
        self._vault = vault
        self._found: OrderedDict[bytes, Found] = OrderedDict()
        self._changes = 0
        self._finding: Coalescer[None, bytes, Sequence[Any] | None] = Coalescer(
            self._find, weigh=lambda _: 1, most=MOST_AT_ONCE, apart=False
        )

    def forget(self, _: str = "") -> None:
        """Something has changed about hooks."""
        self._changes += 1
        self._found.clear()

    async def of(self, slug: str) -> Hook | None:
        """The hook that a slug leads to; None: there is none."""
        if not SLUG.fullmatch(slug):
            return None
        hash = hash_of(slug)
        known = self._found.get(hash)
        if known is None or known.until <= monotonic():
            changes = self._changes
            self._found.pop(hash, None)
            known = await self._look(hash)
            if known is not None and changes == self._changes:  # else it may be what was there before
                self._keep(hash, known)
        return None if known is None else known.hook

    def _keep(self, hash: bytes, found: Found) -> None:
        self._found[hash] = found
        while len(self._found) > MOST_REMEMBERED:
            self._found.popitem(last=False)

    async def _look(self, hash: bytes) -> Found | None:
        began = monotonic()
        row = await self._finding.submit(None, hash)
        if row is None:
            return None
        _, name, queue, config, secrets, left = row
        opened = (self._vault.open(secret, purpose_of(name)) for secret in secrets)
        hook = Hook(
            name=name,
            queue=queue,
            base=await self._numbers.base(queue),
            config=msgspec.json.decode(config, type=HookConfig),
            keys=tuple(key_of(secret) for secret in opened),
        )
        return Found(hook, began + min(FRESH_SECONDS, inf if left is None else left))

    async def _find(self, _: None, hashes: Sequence[bytes]) -> list[Sequence[Any] | None]:
        rows = await self._engine.fetch("find_hooks", FIND, [list(hashes)], as_rows)
        by_nth = {row[0]: row for row in rows}
        return [by_nth.get(nth) for nth in range(1, len(hashes) + 1)]


def as_rows(cursor: Any) -> Any:
    """A row factory: JSON stays as it is."""
    return lambda row: tuple(bytes(value) if isinstance(value, Raw) else value for value in row)
