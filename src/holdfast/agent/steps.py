"""What is done on a service. Each step can be done twice: it finds what it has done before, by its mark."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
from psycopg import AsyncConnection

from holdfast.client._errors import HoldfastError, InvalidServiceQueueError, QueueExistsError
from holdfast.client._queue_schema import LOOK, InForce
from holdfast.client._schema_rules import counted
from holdfast.schemas.judge import misfit, mismatch

from .target import Target
from .tasks import Task

MARK = "service"  # the annotation of a queue that an agent has made, with the id that it has here
ONCE = timedelta(days=7)  # for so long a service remembers what was sent
DEAD_LETTERS = "{}.dlq"

TEMPLATE = "select datname from pg_database where datname = current_database() and datistemplate"
FIND = "select config #>> '{annotations,service,queue}', config -> 'dead_letter' from holdfast.queue_info(%s)"
CREATE = "select mdb_queue.create_queue(%s, %s, %s, %s)"
CONFIGURE = "select holdfast.configure_queue(%s, %s::jsonb)"
DROP = "select holdfast.drop_queue(%s)"
SEND = "select ids, deduped from holdfast.send_once(%s, %s::jsonb, %s, %s)"
SWEEP = "select holdfast.sweep(%s)"
STATS = """
select ready, in_flight, dead, case when ready > 0 then extract(epoch from oldest_age)::float8 end
from holdfast.queue_stats(%s)
"""

Sure = Callable[[], Awaitable[None]]  # raises if the task is somebody else's by now
Step = Callable[[Target, Task, Sure], Awaitable[str | None]]


class Lost(Exception):
    """Somebody else has the task by now."""


async def provision(target: Target, task: Task, sure: Sure) -> str | None:
    """Make the queue, or take up the one that was made."""
    async with target.transaction() as connection:
        await refuse_template(connection)
        await sure()  # the service is there
    await target.install()
    async with target.transaction() as connection:
        await make(connection, task)
        await sure()
    return None


async def refuse_template(connection: AsyncConnection[Any]) -> None:
    """What is in a template is in every database that is made from then on."""
    found = await (await connection.execute(TEMPLATE)).fetchone()
    if found is not None:
        raise InvalidServiceQueueError(
            "QH860",
            f"database_name: {found[0]} is a template",
            "Databases are made from it. Nothing was changed in it.",
            "Name another one.",
        )


async def make(connection: AsyncConnection[Any], task: Task) -> None:
    """The queue, with its settings and its mark."""
    found = await (await connection.execute(FIND, [task.queue])).fetchone()
    if found is None:
        await refuse_dead_letters(connection, task)
        settings = [task.queue, task.visibility_timeout_seconds, task.max_attempts, task.dlq_enabled]
        await connection.execute(CREATE, settings)
    elif found[0] != str(task.queue_id):
        raise taken(task.queue, task.database_name)
    config = {
        "lease": task.visibility_timeout_seconds,
        "max_deliveries": task.max_attempts,
        "dead_letter": DEAD_LETTERS.format(task.queue) if task.dlq_enabled else False,
        "annotations": {MARK: {"queue": str(task.queue_id)}},
    }
    await connection.execute(CONFIGURE, [task.queue, json.dumps(config)])


async def refuse_dead_letters(connection: AsyncConnection[Any], task: Task) -> None:
    """Dead letters of others are not to be mixed with ours, and to go with our queue."""
    name = DEAD_LETTERS.format(task.queue)
    if task.dlq_enabled and await (await connection.execute(FIND, [name])).fetchone() is not None:
        raise taken(name, task.database_name)


def taken(queue: str, database_name: str) -> QueueExistsError:
    """The refusal of a queue that is there already."""
    return QueueExistsError(
        "QH102",
        f'queue "{queue}" is there already, and was not made for this',
        f"In the database {database_name} of the service. Nothing was changed in it.",
        "Use another name, or drop it there.",
    )


async def deprovision(target: Target, task: Task, sure: Sure) -> str | None:
    """Remove the queue and its dead letters, if they are there and ours."""
    if not await target.has_database():
        return None
    async with target.transaction() as connection:
        there = await connection.execute("select to_regnamespace('holdfast') is not null")
        if await there.fetchone() == (True,):
            await remove(connection, task)
        await sure()
    return None


async def remove(connection: AsyncConnection[Any], task: Task) -> None:
    """The queue, if it has our mark; its dead letters, if they go where ours go."""
    found = await (await connection.execute(FIND, [task.queue])).fetchone()
    if found is None or found[0] != str(task.queue_id):
        return
    await connection.execute(DROP, [task.queue])
    if task.dlq_enabled:
        await connection.execute(DROP, [DEAD_LETTERS.format(task.queue)])


async def enqueue(target: Target, task: Task, sure: Sure) -> str | None:
    """Send a batch: all of it in one transaction, and once, however often this is done."""
    messages = [
        {"payload": message["payload"], "delay": delay}
        if (delay := msgspec.json.decode(message.get("delay_seconds", b"0")))
        else {"payload": message["payload"]}
        for message in msgspec.json.decode(task.body or b"[]", type=list[dict[str, msgspec.Raw]])
    ]
    batch = msgspec.json.encode(messages).decode()
    async with target.transaction() as connection:
        await refuse_others(connection, task)
        sent = await connection.execute(SEND, [task.queue, batch, f"task:{task.id}", ONCE])
        ids, deduped = await sent.fetchone() or ([], False)
        if not deduped:  # what was sent before is sent, whatever the schema says by now
            await refuse_misfits(connection, task, [bytes(message["payload"]) for message in messages])
        await sure()
    return json.dumps({"message_ids": ids})


async def refuse_misfits(connection: AsyncConnection[Any], task: Task, payloads: list[bytes]) -> None:
    """What does not fit the schema that the queue has there; then nothing is sent."""
    found = await (await connection.execute(LOOK, [task.queue])).fetchone()
    if found is None:
        return
    version, kind, definition, compatibility = found
    schema = InForce(version=version, kind=kind, definition=definition, compatibility=compatibility)
    for nth, payload in counted(payloads):
        wrong = misfit(schema, payload, with_body=False)
        if wrong is not None:
            raise mismatch(schema, wrong, nth)


async def stats(target: Target, task: Task, sure: Sure) -> str | None:
    """Count the messages of the queue."""
    async with target.transaction() as connection:
        await refuse_others(connection, task)
        await sure()
        row = await (await connection.execute(STATS, [task.queue])).fetchone()
        if row is not None and row[1]:
            # What is held no more can be claimed, and the count knows it only once it was swept.
            await connection.execute(SWEEP, [task.queue])
            row = await (await connection.execute(STATS, [task.queue])).fetchone()
    if row is None:
        raise HoldfastError("QH101", f'queue "{task.queue}" does not exist on the service')
    ready, in_flight, dead, oldest = row
    figures = {
        "queue_name": task.queue,
        "ready_messages": ready,
        "inflight_messages": in_flight,
        "dead_messages": dead,
        "oldest_age_seconds": oldest,
    }
    return json.dumps(figures)


async def refuse_others(connection: AsyncConnection[Any], task: Task) -> None:
    """A queue of the same name that is not ours is none."""
    found = await (await connection.execute(FIND, [task.queue])).fetchone()
    if found is None or found[0] != str(task.queue_id):
        raise HoldfastError(
            "QH101",
            f'the queue "{task.queue}" is not on the service any more',
            "Somebody dropped it there, or made another one. Nothing was sent.",
            "Delete it here, and create it again.",
        )


STEPS: dict[str, Step] = {
    "provision": provision,
    "deprovision": deprovision,
    "enqueue": enqueue,
    "stats": stats,
}
