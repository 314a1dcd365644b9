"""What a message to a queue is held to, and what a client remembers of that."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from time import monotonic

from ._queue_schema import InForce

FRESH_SECONDS = 5.0  # also where no notification comes
MOST_REMEMBERED = 1_000  # queues
# The definition as text: a client may read numbers in a way of its own.
LOOK = b"""
select s.version, s.kind, s.definition::text, s.compatibility, k.key_id, k.public_key, k.digest_key
from (select %s::text as name) q left join lateral holdfast.queue_schema(q.name) s on true
  left join lateral holdfast.sealing(q.name) k on true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """With what messages are sealed, as those need it who do it."""

    key_id: str
    public_key: str  # PEM
    digest_key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Rules:
    """What messages have to fit, and whether they are sealed."""

    schema: InForce | None = None
    seal: Seal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The same as one row."""

    version: int | None
    kind: str
    definition: str
    compatibility: str
    key_id: str | None
    public_key: str
    digest_key: bytes | None

    @property
    def rules(self) -> Rules:
        """The rules that it has."""
        schema = seal = None
        if self.version is not None:
            schema = InForce(
                version=self.version,
                kind=self.kind,
                definition=self.definition,
                compatibility=self.compatibility,
            )
        if self.key_id is not None:
            seal = Seal(key_id=self.key_id, public_key=self.public_key, digest_key=self.digest_key)
        return Rules(schema, seal)


@dataclass(slots=True)
class Known:
    """What was found, and when."""

    rules: Rules
    at: float = field(default_factory=monotonic)


class KnownRules:
    """The rules of queues that a client has looked at."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._forgotten = 0

    def forget(self, queue: str) -> None:
        """A queue has changed; "" means: perhaps all."""
        self._forgotten += 1
        if queue:
            self._known.pop(queue, None)
        else:
            self._known.clear()

    def fresh(self, queue: str) -> Rules | None:
        """What is known of a queue, if it is not too old."""
        known = self._known.get(queue)
        return known.rules if known is not None and monotonic() - known.at <= FRESH_SECONDS else None

    @property
    def state(self) -> int:
        """Another number after each change: a look that began before may have found what was there then."""
        return self._forgotten

    def remember(self, queue: str, rules: Rules, state: int) -> None:
        """Keep what was found by a look that began in this state."""
        if state != self._forgotten:
            return
        self._known[queue] = Known(rules)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
