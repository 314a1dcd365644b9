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
from holdfast.client._errors import UnsealedMessageError, translated
from holdfast.client._explain import explained
from holdfast.client._rows import scalar
from holdfast.client._rules import Rules
from holdfast.client._schema_rules import refuse_misfit
from holdfast.client._seal_rules import sealed_messages
from holdfast.client._sync.session import SqlSession, run
from holdfast.client._traces import current_trace
from holdfast.client._types import NewMessage

VERB = "bulk_send"


def copy_messages(
    session: SqlSession,
    queue: str,
    messages: Messages,
    *,
    chunk: int,
    progress: Callable[[int], object] | None,
    atomic: bool,
    look: Callable[..., Any],
) -> int:
    """Send all messages and return how many; look: finds the rules that they are held to."""
    if chunk < 1:
        raise ValueError(f"chunk is a number of messages, at least 1, not {chunk}")
    text("queue", queue)
    sent = Tally(progress)
    rules = look(queue, VERB)
    if atomic:
        with session.transaction() as connection:
            for part in chunks(messages, chunk):
                rules = copy_part(connection, queue, part, sent.total, rules, look)
                sent.add(len(part))
    else:
        for part in chunks(messages, chunk):
            rules = look(queue, VERB)
            with session.transaction() as connection:
                copy_part(connection, queue, part, sent.total, rules, look)
            sent.add(len(part))
    return sent.total


def copy_part(
    connection: Connection[Any],
    queue: str,
    part: list[NewMessage],
    before: int,
    rules: Rules,
    look: Callable[..., Any],
) -> Rules:
    """One COPY, and another if the queue has got a key meanwhile; before: how many messages came before."""
    try:
        with connection.transaction():
            copy_chunk(connection, queue, held_to(rules, queue, part, before))
        return rules
    except UnsealedMessageError:
        since: Rules = look(queue, VERB, again=True)
        if since.seal == rules.seal:
            raise
    copy_chunk(connection, queue, held_to(since, queue, part, before))
    return since


def held_to(rules: Rules, queue: str, part: list[NewMessage], before: int) -> list[NewMessage]:
    """Messages as they are to be stored; refuses those that do not fit."""
    if rules.schema is not None:
        for nth, message in enumerate(part, before):
            refuse_misfit(rules.schema, message.payload, message.body, nth, hidden=rules.seal is not None)
    return part if rules.seal is None else sealed_messages(rules.seal, queue, part, before)


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
    with explained(VERB), translated(), connection.cursor() as cursor, cursor.copy(COPY) as copy:
        for row in rows:
            copy.write_row(row)


def read_clock(connection: Connection[Any]) -> datetime:
    """The time by Holdfast's clock, from which delays count."""
    statement, parameters = call("now", {})
    return (run(connection, statement, parameters, scalar(datetime)))[0]
