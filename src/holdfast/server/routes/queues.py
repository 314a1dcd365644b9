"""Queues: make, configure, pause, drop, purge."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from holdfast.client import QueueInfo, QueueNotFoundError
from holdfast.client._rows import record
from holdfast.server.answering import JsonResponse
from holdfast.server.callers import EVERY_QUEUE, require
from holdfast.server.conditions import check_match, etag, wanted_tags
from holdfast.server.endpoint import ADMIN, READ, Book, Call
from holdfast.server.reading import parse_body
from holdfast.wire import requests as wire
from holdfast.wire.answers import to_wire, wire_type
from holdfast.wire.requests import Config
from holdfast.wire.routes import QUEUE, ROUTES

INFO = b"select %s as queue, i.* from holdfast.queue_info(%s) i"

book = Book("queues")


@book.verb(READ, anywhere=True)
async def queues(call: Call[None]) -> object:
    """The queues that the key reaches, with their configuration."""
    every = await call.service.engine.queues()
    return [info for info in every if call.caller.reaches(info.queue)]


@book.verb(ADMIN)
async def create_queue(call: Call[Config]) -> object:
    """Make a queue with a configuration; 201 if it was made, 200 if it was there with the same one."""
    require_dead_letter(call)
    created = await call.service.engine.create_queue(call.queue, as_jsonb(call.asked))
    call.service.configs.changed(call.queue)
    return JsonResponse(ROUTES["create_queue"].answer.write(created), 201 if created else 200)


@book.add("GET", QUEUE, READ, answer=wire_type(QueueInfo))
async def queue(call: Call[None]) -> object:
    """A queue: what was configured for it, and what is in force. The ETag stands for the configuration."""
    found = await info(call)
    return JsonResponse(to_wire(found), headers={"ETag": etag(found.effective)})


async def info(call: Call[Any]) -> QueueInfo:
    """The queue of a path."""
    found = await call.service.engine.fetch("queues", INFO, [call.queue, call.queue], record(QueueInfo))
    if not found:
        raise QueueNotFoundError(
            "QH101", f'queue "{call.queue}" does not exist', None, f"PUT /v1/queues/{call.queue} makes it."
        )
    return found[0]


@book.verb(ADMIN, takes_if_match=True)
async def configure_queue(call: Call[Config]) -> object:
    """Change fields of the configuration (null: back to the default); answers with what is in force.

    With If-Match it changes only the configuration that the ETag stands for.
    """
    require_dead_letter(call)
    wanted = wanted_tags(call.request)
    change = str(call.asked, "utf-8")
    async with call.service.engine.transaction() as connection:
        if wanted is not None:
            # A change of nothing locks the queue: nobody else changes it between the look and the change.
            check_match(wanted, await call.service.engine.configured(connection, call.queue, "{}"))
        effective = await call.service.engine.configured(connection, call.queue, change)
    call.service.configs.changed(call.queue)
    return JsonResponse(effective, headers={"ETag": etag(effective)})


def require_dead_letter(call: Call[Config]) -> None:
    """Messages that die must not go where the key could not send them."""
    if EVERY_QUEUE in call.caller.queues:
        return
    named = parse_body(bytes(call.asked), dict[str, Any]).get("dead_letter")
    if isinstance(named, str):
        require(call.caller, ADMIN, named)


@book.verb(ADMIN, takes_if_match=True)
async def drop_queue(call: Call[wire.DropQueue]) -> object:
    """Delete a queue and its messages, or with if_empty only a queue that has none.

    With If-Match it deletes only a queue with the configuration that the ETag stands for; one that is not
    there is 404 then.
    """
    wanted, if_empty = wanted_tags(call.request), call.asked.if_empty
    if wanted is None:
        dropped = await call.service.engine.drop_queue(call.queue, if_empty=if_empty)
        call.service.configs.changed(call.queue)
        return dropped
    check_match(wanted, (await info(call)).effective)
    async with call.service.engine.transaction() as connection:
        dropped = await call.service.engine.dropped(connection, call.queue, if_empty)
        # Nobody can change it any more, and whoever looks from outside still sees it.
        check_match(wanted, (await info(call)).effective)
    call.service.configs.changed(call.queue)
    return dropped


@book.verb(ADMIN)
async def pause_queue(call: Call[None]) -> object:
    """Hand out nothing more for now."""
    return await call.service.engine.pause_queue(call.queue)


@book.verb(ADMIN)
async def resume_queue(call: Call[None]) -> object:
    """Hand out messages again."""
    return await call.service.engine.resume_queue(call.queue)


@book.verb(ADMIN)
async def purge(call: Call[wire.Purge]) -> object:
    """End messages in some states; call again while there is more."""
    return await call.service.engine.purge(call.queue, call.asked.states, limit=call.asked.limit)


@book.verb(ADMIN)
async def configure_defaults(call: Call[Config]) -> object:
    """Change the defaults of all queues; answers with what is in force."""
    effective = await call.service.engine.configure_defaults(as_jsonb(call.asked))
    call.service.configs.changed("")
    return effective


def as_jsonb(config: Config) -> Any:
    """A configuration, passed on as it came."""
    return Jsonb(config, dumps=bytes)
