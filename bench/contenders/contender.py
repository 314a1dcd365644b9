"""What the scenarios ask of a queue, and all that they know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench.link import Link

QUEUE = "bench"
LEASE_S = 30  # what a queue has by default
SCHEDULED_AT_ONCE = 10_000
FILLER = "jsonb_build_object('n', n, 'filler', repeat('x', 160))"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim handed out, ids as the server wrote them. A contender without tokens leaves it empty."""

    ids: list[bytes]
    token: bytes = b""


class Session(Protocol):
    """One client on one connection. Outside of `link.run('begin')` every call is a transaction of its own."""

    @property
    def link(self) -> Link: ...

    def send(self, payload: bytes) -> None: ...

    def send_batch(self, payloads: bytes) -> None:
        """Send all documents of a jsonb[] literal in one call."""

    def claim(self, size: int) -> Batch: ...

    def hold(self, size: int, lease_s: int) -> Batch:
        """Claim for longer than usual."""

    def ack(self, batch: Batch) -> int:
        """Settle all of it; how many were settled."""

    def ack_and_nack(self, batch: Batch, nacked: int, delay_s: float) -> int:
        """Settle all but the last `nacked`, which come back after the delay; how many were settled."""

    def next(self, batch: Batch, size: int) -> Batch:
        """Settle all of `batch` and claim again, in one call where the contender has one."""

    def stats(self) -> int:
        """Ask for the queue's figures; its depth."""


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def holding_size(self) -> int:
        """The size of claim that makes "many in flight" hardest for it."""

    def install(self, url: str) -> None:
        """Into an empty database: the schema, and one queue with default settings."""

    def divide(self, url: str, shards: int) -> None:
        """Let the queue serve so many claims at once, where that is a setting."""

    def schedule(self, url: str, messages: int) -> None:
        """Send so many that are due tomorrow."""

    def session(self, url: str) -> Session: ...
