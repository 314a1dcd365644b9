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
from holdfast.client._errors import UnsealedMessageError, translated
from holdfast.client._explain import explained
from holdfast.client._rows import scalar
from holdfast.client._rules import Rules
from holdfast.client._schema_rules import refuse_misfit
from holdfast.client._seal_rules import sealed_messages
from holdfast.client._traces import current_trace
from holdfast.client._types import NewMessage

VERB = "bulk_send"


async def async_copy_messages(
    session: AsyncSqlSession,
    queue: str,
    messages: AsyncMessages,
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
    rules = await look(queue, VERB)
    if atomic:
        async with session.transaction() as connection:
            async for part in async_chunks(messages, chunk):
                rules = await async_copy_part(connection, queue, part, sent.total, rules, look)
                sent.add(len(part))
    else:
        async for part in async_chunks(messages, chunk):
            rules = await look(queue, VERB)
            async with session.transaction() as connection:
                await async_copy_part(connection, queue, part, sent.total, rules, look)
            sent.add(len(part))
    return sent.total


async def async_copy_part(
    connection: AsyncConnection[Any],
    queue: str,
    part: list[NewMessage],
    before: int,
    rules: Rules,
    look: Callable[..., Any],
) -> Rules:
    """One COPY, and another if the queue has got a key meanwhile; before: how many messages came before."""
    try:
        async with connection.transaction():
            await async_copy_chunk(connection, queue, held_to(rules, queue, part, before))
        return rules
    except UnsealedMessageError:
        since: Rules = await look(queue, VERB, again=True)
        if since.seal == rules.seal:
            raise
    await async_copy_chunk(connection, queue, held_to(since, queue, part, before))
    return since


def held_to(rules: Rules, queue: str, part: list[NewMessage], before: int) -> list[NewMessage]:
    """Messages as they are to be stored; refuses those that do not fit."""
    if rules.schema is not None:
        for nth, message in enumerate(part, before):
            refuse_misfit(rules.schema, message.payload, message.body, nth, hidden=rules.seal is not None)
    return part if rules.seal is None else sealed_messages(rules.seal, queue, part, before)


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
    with explained(VERB), translated():
        async with connection.cursor() as cursor, cursor.copy(COPY) as copy:
            for row in rows:
                await copy.write_row(row)


async def async_read_clock(connection: AsyncConnection[Any]) -> datetime:
    """The time by Holdfast's clock, from which delays count."""
    statement, parameters = call("now", {})
    return (await run(connection, statement, parameters, scalar(datetime)))[0]
