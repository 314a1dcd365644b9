"""What servers need to know of a queue at every request: looked up once, and again when it has changed.

Each process remembers it for a few seconds. Where there is a Redis, all of them together do for half a minute
from the moment at which one of them looked: so long takes a change at most which nobody is told of.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.client._queue_schema import InForce
from holdfast.client._rows import scalar
from holdfast.durations import parse_duration

from .engine import Engine
from .second_tier import SecondTier

FRESH_SECONDS = 5.0  # also where no notification comes
MOST_REMEMBERED = 10_000
LOOK = b"""
select i.effective -> 'claim_window', i.effective -> 'rate_limits', i.effective ->> 'kind',
       i.effective -> 'annotations', s.version, s.kind, s.definition::text, s.compatibility,
       k.id, k.public_key
from (select %s::text as name) q cross join lateral holdfast.queue_info(q.name) i
  left join lateral holdfast.queue_schema(q.name) s on true
  left join lateral (
    select k.id, k.public_key from holdfast.seal_keys(q.name) k where k.dropped_at is null limit 1) k on true
"""
LOOK_AT_ALL = b"select effective from holdfast.queue_info(%s)"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What messages are sealed with. Nothing secret is in it: it may be kept anywhere."""

    id: str
    pem: str


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The part of a queue's configuration that is the server's business."""

    claim_window: float = 0.0  # seconds
    rates: dict[str, float] = field(default_factory=dict)  # by send, claim, settle
    kind: str | None = None  # None: there is no such queue
    annotations: dict[str, Any] = field(default_factory=dict)
    schema: InForce | None = None
    seal: PublicKey | None = None


@dataclass(slots=True)
class Known:
    """What was found, and until when it is used."""

    settings: QueueSettings
    until: float


# Servers with other fields have entries of their own.
FORM = hashlib.sha256(msgspec.json.encode(msgspec.json.schema(QueueSettings))).hexdigest()[:8]
as_entry = msgspec.json.Encoder().encode
of_entry = msgspec.json.Decoder(QueueSettings).decode


class Configs:
    """The settings of queues; a queue that is not there has the defaults, and the engine says so."""

    def __init__(self, engine: Engine, tier: SecondTier | None = None) -> None:
        self._engine = engine
        self._tier = tier
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._changes = 0

    def changed(self, queue: str) -> None:
        """A queue has changed; "" means: perhaps all."""
        if self._tier is not None:
            self._tier.tell(queue)
        self.forget(queue)

    def forget(self, queue: str) -> None:
        """Look again; "" means: at all. Others go on with what they know."""
        self._changes += 1
        if queue:
            self._known.pop(queue, None)
        else:
            self._known.clear()

    async def of(self, queue: str) -> QueueSettings:
        """The settings of a queue."""
        known = self._known.get(queue)
        if known is None or monotonic() > known.until:
            changes = self._changes
            known = await self._find(queue)
            if changes == self._changes:  # else it may be what was there before
                self._known[queue] = known
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        return known.settings

    async def window(self, queue: str) -> float:
        """How long claims are gathered."""
        return (await self.of(queue)).claim_window

    async def effective(self, queue: str) -> dict[str, Any] | None:
        """All that is in force for a queue now; None: there is no such queue."""
        rows = await self._engine.fetch("queue_info", LOOK_AT_ALL, [queue], scalar(Raw))
        return msgspec.json.decode(rows[0]) if rows else None

    async def _find(self, queue: str) -> Known:
        place = await self._tier.look(queue) if self._tier is not None else None
        if place is not None and (settings := read(place.entry)) is not None:
            return Known(settings, place.since + min(FRESH_SECONDS, place.left))
        settings = await self._look(queue)
        if self._tier is not None and place is not None and settings.kind is not None:
            self._tier.keep(queue, place, as_entry(settings))
        return Known(settings, monotonic() + FRESH_SECONDS)

    async def _look(self, queue: str) -> QueueSettings:
        rows = await self._engine.fetch("queue_info", LOOK, [queue], as_settings)
        return rows[0] if rows else QueueSettings()


def read(entry: bytes | None) -> QueueSettings | None:
    """What is in an entry; None: nothing of use."""
    try:
        return of_entry(entry) if entry is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def as_settings(cursor: Any) -> Any:
    """A row factory."""
    return lambda row: QueueSettings(
        seconds(row[0]),
        rates(row[1]),
        row[2],
        msgspec.json.decode(row[3]),
        schema(*row[4:8]),
        PublicKey(row[8], row[9]) if row[8] is not None else None,
    )


def seconds(window: Any) -> float:
    """A duration, as the configuration has it: seconds or text."""
    given = msgspec.json.decode(window) if window is not None else None
    return parse_duration(str(given)).total_seconds() if given else 0.0


def schema(version: int | None, kind: str, definition: str, compatibility: str) -> InForce | None:
    """The schema in force, if there is one."""
    if version is None:
        return None
    return InForce(version=version, kind=kind, definition=definition, compatibility=compatibility)


def rates(limits: Any) -> dict[str, float]:
    """The limits that are set."""
    given = msgspec.json.decode(limits) if limits is not None else None
    return {name: rate for name, rate in (given or {}).items() if rate is not None}
