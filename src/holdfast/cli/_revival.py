"""An embedded server that is brought back if it dies, as long as a command needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import psycopg

from holdfast.client import HoldfastError
from holdfast.database import configured_url, database
from holdfast.embedded import EmbeddedError

LOOK_SECONDS = 5.0
LAST_LOOK_SECONDS = 5.0  # how long a look that is on its way is waited for at the end

Reach = Callable[[], AbstractContextManager[str]]
"""Gives the database's URL; an embedded server that has ended is started again by that."""


def revived(url: str | None, note: Callable[[str], None]) -> AbstractContextManager[None]:
    """Keep the embedded server running as long as the block lasts; another one is not ours to start."""
    return nullcontext() if configured_url(url) else kept_running(database, note)


@contextmanager
def kept_running(reach: Reach, note: Callable[[str], None]) -> Iterator[None]:
    """Look after a server as long as the block lasts, in a thread: one that hangs delays no ending."""
    over = threading.Event()
    watch = threading.Thread(target=keep_running, args=(reach, over, note), name="revival", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join(timeout=LAST_LOOK_SECONDS)


def keep_running(
    reach: Reach, over: threading.Event, note: Callable[[str], None], every: float = LOOK_SECONDS
) -> None:
    """Look until it is over. What fails is tried again; it is told once, and its end too."""
    told = None
    while not over.wait(every):
        problem = None
        try:
            with reach():
                pass
        except (HoldfastError, EmbeddedError, psycopg.Error) as error:
            problem = str(error).strip()
        if problem != told and not over.is_set():
            again = f"PostgreSQL does not start, and is tried again every {every:g} s: {problem}"
            note(again if problem else "PostgreSQL runs again.")
        told = problem
