"""What servers need to know of a queue at every request: looked up once, and again when it has changed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.client._rows import scalar
from holdfast.durations import parse_duration

from .engine import Engine

FRESH_SECONDS = 5.0  # also where no notification comes
MOST_REMEMBERED = 10_000
LOOK = (
    b"select effective -> 'claim_window', effective -> 'rate_limits', effective ->> 'kind', "
    b"effective -> 'annotations' from holdfast.queue_info(%s)"
)

LOOK_AT_ALL = b"select effective from holdfast.queue_info(%s)"


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The part of a queue's configuration that is the server's business."""

    claim_window: float = 0.0  # seconds
    rates: dict[str, float] = field(default_factory=dict)  # by send, claim, settle
    kind: str | None = None  # None: there is no such queue
    annotations: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Known:
    """What was found, and when."""

    settings: QueueSettings
    at: float = field(default_factory=monotonic)


class Configs:
    """The settings of queues; a queue that is not there has the defaults, and the engine says so."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, Known] = OrderedDict()

    def forget(self, queue: str) -> None:
        """A queue has changed; "" means: perhaps all."""
        if queue:
            self._known.pop(queue, None)
        else:
            self._known.clear()

    async def of(self, queue: str) -> QueueSettings:
        """The settings of a queue."""
        known = self._known.get(queue)
        if known is None or monotonic() - known.at > FRESH_SECONDS:
            known = self._known[queue] = Known(await self._look(queue))
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

    async def _look(self, queue: str) -> QueueSettings:
        rows = await self._engine.fetch("queue_info", LOOK, [queue], as_settings)
        return rows[0] if rows else QueueSettings()


def as_settings(cursor: Any) -> Any:
    """A row factory."""
    return lambda row: QueueSettings(seconds(row[0]), rates(row[1]), row[2], msgspec.json.decode(row[3]))


def seconds(window: Any) -> float:
    """A duration, as the configuration has it: seconds or text."""
    given = msgspec.json.decode(window) if window is not None else None
    return parse_duration(str(given)).total_seconds() if given else 0.0


def rates(limits: Any) -> dict[str, float]:
    """The limits that are set."""
    given = msgspec.json.decode(limits) if limits is not None else None
    return {name: rate for name, rate in (given or {}).items() if rate is not None}
