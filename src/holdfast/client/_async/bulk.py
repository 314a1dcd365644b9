"""Bulk sending: COPY into holdfast.inbox, chunk by chunk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from holdfast.client._arguments import text
from holdfast.client._async.session import AsyncSqlSession, run
from holdfast.client._bulk import COPY, Tally, inbox_row, needs_clock, new_message
from holdfast.client._calls import call
from holdfast.client._concurrency import AsyncMessages, async_each
from holdfast.client._errors import translated
from holdfast.client._explain import explained
from holdfast.client._queue_schema import InForce
from holdfast.client._rows import scalar
from holdfast.client._schema_rules import refuse_misfit
from holdfast.client._traces import current_trace
from holdfast.client._types import NewMessage


async def async_copy_messages(
    session: AsyncSqlSession,
    queue: str,
    messages: AsyncMessages,
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
        in_force = await schema(queue)
        async with session.transaction() as connection:
            async for part in async_chunks(messages, chunk):
                refuse_part(in_force, part, sent.total)
                await async_copy_chunk(connection, queue, part)
                sent.add(len(part))
    else:
        async for part in async_chunks(messages, chunk):
            refuse_part(await schema(queue), part, sent.total)
            async with session.transaction() as connection:
                await async_copy_chunk(connection, queue, part)
            sent.add(len(part))
    return sent.total


def refuse_part(schema: InForce | None, part: list[NewMessage], before: int) -> None:
    """Refuse a message that does not fit; before: how many came before these."""
    if schema is not None:
        for nth, message in enumerate(part, before):
            refuse_misfit(schema, message.payload, message.body, nth)


async def async_chunks(messages: AsyncMessages, size: int) -> AsyncIterator[list[NewMessage]]:
    """The messages in lists of at most `size`: no COPY is open while the caller makes the next message."""
    part: list[NewMessage] = []
    async for message in async_each(messages):
        part.append(new_message(message))
        if len(part) >= size:
            yield part
            part = []
    if part:
        yield part


async def async_copy_chunk(connection: AsyncConnection[Any], queue: str, part: list[NewMessage]) -> None:
    """One COPY."""
    now = await async_read_clock(connection) if needs_clock(part) else None
    trace = current_trace()
    rows = [inbox_row(queue, message, now, trace) for message in part]
    with explained("bulk_send"), translated():
        async with connection.cursor() as cursor, cursor.copy(COPY) as copy:
            for row in rows:
                await copy.write_row(row)


async def async_read_clock(connection: AsyncConnection[Any]) -> datetime:
    """The time by Holdfast's clock, from which delays count."""
    statement, parameters = call("now", {})
    return (await run(connection, statement, parameters, scalar(datetime)))[0]
