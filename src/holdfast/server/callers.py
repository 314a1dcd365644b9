"""Callers: what a key may do, and with which queues."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from holdfast.client import ForbiddenError

from .endpoint import ADMIN, ANY

EVERY_QUEUE = "*"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request."""

    key_id: int | None  # None: open mode, or a route that needs no key
    scopes: frozenset[str]
    queues: tuple[str, ...]  # patterns
    rate: float | None = None  # requests a second
    burst: int | None = None

    def may(self, scope: str, queue: str | None) -> bool:
        """Whether this may be done with a queue; "": with what belongs to none; None: with some queue."""
        if scope == ANY:
            return not queue or self.reaches(queue)
        return (scope in self.scopes or ADMIN in self.scopes) and (queue is None or self.reaches(queue))

    def reaches(self, queue: str) -> bool:
        """Whether a queue is among this caller's; "" is what belongs to no queue, and so to all of them."""
        if EVERY_QUEUE in self.queues:
            return True
        return queue != "" and any(fits(pattern, queue) for pattern in self.queues)


EVERYBODY = Caller(None, frozenset({ADMIN}), (EVERY_QUEUE,))
NOBODY = Caller(None, frozenset(), ())


def fits(pattern: str, queue: str) -> bool:
    """Whether a name fits a pattern, in which a star stands for any characters and all else for itself."""
    return expression(pattern).match(queue) is not None


@lru_cache(maxsize=10_000)
def expression(pattern: str) -> re.Pattern[str]:
    """A pattern as fnmatch would have it, whose expressions do not backtrack from one star into another."""
    # What else fnmatch takes as special is escaped: no bracket can widen what a key reaches.
    return re.compile(translate("*".join(glob.escape(part) for part in pattern.split("*"))))


def require(caller: Caller, scope: str, queue: str | None) -> None:
    """Refuse what a key does not allow."""
    if not caller.may(scope, queue):
        where = "" if queue is None else f" for the queue {queue[:200]}" if queue else " for all queues"
        raise ForbiddenError(
            "QH921",
            "this key may not do that",
            f"It takes the scope {scope}{where}.",
            "Use a key that has it: GET /v1/keys, or holdfast key list, shows what each may do.",
        )
