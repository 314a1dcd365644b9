"""Trying again: a database that restarts, fails over or is full is no reason to end a query."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from ._database import DatabaseError, LostConnectionError

T = TypeVar("T")

log = logging.getLogger("holdfast.spark")

FIRST_PAUSE = 0.05  # seconds
LONGEST_PAUSE = 5.0  # seconds
# Connections; too many clients; shutdowns and restarts; files that a crash took along.
TRANSIENT_CLASSES = ("08", "53", "57", "58")
# A connection that was refused has no code: these are refused next time too.
PERMANENT = ("authentication failed", "does not exist", "no pg_hba.conf entry", "could not translate")
TRANSIENT_CODES = frozenset({"40001", "40P01", "55P03", "25006"})


def is_transient(error: DatabaseError) -> bool:
    """Whether the same call may work in a moment."""
    if error.sqlstate:
        return error.sqlstate in TRANSIENT_CODES or error.sqlstate.startswith(TRANSIENT_CLASSES)
    return isinstance(error, LostConnectionError) and not any(words in str(error) for words in PERMANENT)


def retried(call: Callable[[], T], *, patience: float, recover: Callable[[], None] = lambda: None) -> T:
    """The call's answer, however often it takes within so many seconds; recover comes before each new try."""
    deadline = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        try:
            return call()
        except DatabaseError as error:
            if not is_transient(error) or time.monotonic() + pause > deadline:
                raise
            log.warning("trying again: %s", error)
        time.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, LONGEST_PAUSE)
        recover()
