"""Trying again: a database that restarts, fails over or is full is no reason to end a query."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

T = TypeVar("T")

log = logging.getLogger("holdfast.spark")

FIRST_PAUSE = 0.05  # seconds
LONGEST_PAUSE = 5.0  # seconds
# Connections; too many clients; shutdowns and restarts; files that a crash took along.
TRANSIENT_CLASSES = ("08", "53", "57", "58")
# A connection that was refused has no code: these are refused next time too.
PERMANENT = ("authentication failed", "does not exist", "no pg_hba.conf entry", "could not translate")
TRANSIENT_CODES = frozenset({"40001", "40P01", "55P03", "25006"})


def is_transient(error: BaseException) -> bool:
    """Whether the same call may work in a moment."""
    code = getattr(error, "sqlstate", None)
    if code:
        return code in TRANSIENT_CODES or str(code).startswith(TRANSIENT_CLASSES)
    if any(words in str(error) for words in PERMANENT):
        return False
    # ADBC says of a connection that broke only that input or output failed.
    status = getattr(getattr(error, "status_code", None), "name", "")
    return isinstance(error, psycopg.OperationalError) or status in {"IO", "TIMEOUT"}


def retried(
    call: Callable[[], T],
    *,
    patience: float,
    recover: Callable[[], None] = lambda: None,
    describe: Callable[[str], str] = str,
) -> T:
    """The call's answer, however often it takes within so many seconds; recover comes before each new try."""
    deadline = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        try:
            return call()
        except Exception as error:
            if not is_transient(error) or time.monotonic() + pause > deadline:
                raise
            log.warning("trying again: %s", describe(f"{type(error).__name__}: {error}".strip()))
        time.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, LONGEST_PAUSE)
        recover()
