"""Waiting for a condition, for a bounded time: what tests do instead of sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL = 0.01  # seconds
PATIENCE = 20.0  # seconds
# How many in this database wait for a lock.
WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


def eventually(condition: Callable[[], T], *, what: str, timeout: float = PATIENCE) -> T:
    """The first true value of a condition; the test fails if there is none within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(POLL)


async def comes(condition: Callable[[], Awaitable[T]], *, what: str) -> T:
    """The same of a condition that is asked for in an event loop."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if value := await condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE:g} s: {what}")
        await asyncio.sleep(POLL)
