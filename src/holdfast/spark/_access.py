"""Whether a queue is there and may be used: asked before the work begins. Nothing changes by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.client._explain import needed

from ._database import DatabaseError, calls
from .options import Secret

MISSING_FUNCTION = "42883"
NOT_ALLOWED = "42501"


def check_sendable(url: Secret, queue: str) -> None:
    """Refuse a queue that is not there, or that this user may not send to."""
    with explained("send"), calls(url) as connection:
        connection.execute("select from holdfast.writes(%s, '', 1)", [queue])


def check_readable(url: Secret, queue: str, state: str) -> None:
    """Refuse a queue that is not there, or whose messages this user may not read."""
    with explained("scan"), calls(url) as connection:
        connection.execute("select from holdfast.scan_bounds(%s, %s)", [queue, state])


def check_condition(url: Secret, queue: str, state: str, condition: str) -> None:
    """Refuse a condition that PostgreSQL cannot plan, for this user. Nothing is read.

    Values beside the statement make it one that the server takes alone, whatever the condition holds.
    """
    planned = f"explain select from holdfast.scan(%s, %s, 0, 0) m where ({condition.replace('%', '%%')}\n)"
    with calls(url) as connection, connection.transaction():
        connection.execute("set transaction read only")
        connection.execute(planned.encode(), [queue, state])


def check_archivable(url: Secret, queues: Sequence[str]) -> None:
    """Refuse queues that are not there, or whose messages this user may not remove for good."""
    with explained("close_batch"), calls(url) as connection:
        connection.execute("select from holdfast.archive_days(%s, '-infinity')", [list(queues) or None])


def check_redrivable(url: Secret, queue: str, target: str | None) -> None:
    """Refuse dead letters that are not kept, or that this user may not send back, or not there."""
    with explained("redrive"), calls(url) as connection:
        connection.execute("select from holdfast.check_redrive(%s, 0, '{}', %s)", [queue, target])


def check_replayable(url: Secret, target: str) -> None:
    """Refuse a queue that is not there, or is a log, or that this user may not replay to."""
    with explained("replay"), calls(url) as connection:
        # Nothing has ended at the end of time.
        connection.execute("select from holdfast.replay(%s, 'infinity', null, null, 1)", [target])


@contextmanager
def explained(verb: str) -> Iterator[None]:
    """Say of a refusal which role is missing, or that the schema is too old."""
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate == MISSING_FUNCTION:
            told = "the schema of this database is older than this version\nHint: Run: holdfast migrate"
        elif error.sqlstate == NOT_ALLOWED:
            told = f"{str(error).strip()}\nHint: {needed(verb)}"
        else:
            raise
        raise DatabaseError(told, error.sqlstate) from None
