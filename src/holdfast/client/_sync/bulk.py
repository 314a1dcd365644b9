# Made from ../_async/bulk.py by tools/generate_sync.py: change that file, then run make generate.
"""Bulk sending: COPY into holdfast.inbox, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from psycopg import Connection

from holdfast.client._arguments import text
from holdfast.client._bulk import COPY, Tally, inbox_row, needs_clock, new_message
from holdfast.client._calls import call
from holdfast.client._concurrency import Messages, each
from holdfast.client._errors import translated
from holdfast.client._explain import explained
from holdfast.client._queue_schema import InForce
from holdfast.client._rows import scalar
from holdfast.client._schema_rules import refuse_misfit
from holdfast.client._sync.session import SqlSession, run
from holdfast.client._traces import current_trace
from holdfast.client._types import NewMessage


def copy_messages(
    session: SqlSession,
    queue: str,
    messages: Messages,
    *,
    chunk: int,
    progress: Callable[[int], object] | None,
    atomic: bool,
    schema: Callable[[str], Any],
) -> int:
    """Send all messages and return how many; schema: finds the one that they have to fit."""
    if chunk < 1:
        raise ValueError(f"chunk is a number of messages, at least 1, not {chunk}")
    text("queue", queue)
    sent = Tally(progress)
    if atomic:
        in_force = schema(queue)
        with session.transaction() as connection:
            for part in chunks(messages, chunk):
                refuse_part(in_force, part, sent.total)
                copy_chunk(connection, queue, part)
                sent.add(len(part))
    else:
        for part in chunks(messages, chunk):
            refuse_part(schema(queue), part, sent.total)
            with session.transaction() as connection:
                copy_chunk(connection, queue, part)
            sent.add(len(part))
    return sent.total


def refuse_part(schema: InForce | None, part: list[NewMessage], before: int) -> None:
    """Refuse a message that does not fit; before: how many came before these."""
    if schema is not None:
        for nth, message in enumerate(part, before):
            refuse_misfit(schema, message.payload, message.body, nth)


def chunks(messages: Messages, size: int) -> Iterator[list[NewMessage]]:
    """The messages in lists of at most `size`: no COPY is open while the caller makes the next message."""
    part: list[NewMessage] = []
    for message in each(messages):
        part.append(new_message(message))
        if len(part) >= size:
            yield part
            part = []
    if part:
        yield part


def copy_chunk(connection: Connection[Any], queue: str, part: list[NewMessage]) -> None:
    """One COPY."""
    now = read_clock(connection) if needs_clock(part) else None
    trace = current_trace()
    rows = [inbox_row(queue, message, now, trace) for message in part]
    with explained("bulk_send"), translated(), connection.cursor() as cursor, cursor.copy(COPY) as copy:
        for row in rows:
            copy.write_row(row)


def read_clock(connection: Connection[Any]) -> datetime:
    """The time by Holdfast's clock, from which delays count."""
    statement, parameters = call("now", {})
    return (run(connection, statement, parameters, scalar(datetime)))[0]
