"""Topics: make, configure, look, list, delete."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import Any

import msgspec

from holdfast.client import (
    HoldfastError,
    InvalidRequestError,
    QueueExistsError,
    QueueNotFoundError,
)
from holdfast.server.answering import JsonResponse
from holdfast.server.callers import EVERY_QUEUE, require
from holdfast.server.endpoint import ADMIN, READ, Book, Call

from . import configs
from .errors import MADE
from .requests import Dropping, Listing, TopicConfig
from .values import TOPIC, TOPICS, performance

MOST_LISTED = 1_000

book = Book("topics")
encode = msgspec.json.Encoder().encode


async def config_of(call: Call[Any], topic: str) -> configs.Config | None:
    """The configuration of a topic; None: there is no such topic."""
    effective = await call.service.configs.effective(topic)
    return None if effective is None else configs.shown(effective)


async def made(call: Call[Any], given: TopicConfig) -> configs.Config | None:
    """Make the topic; None: somebody else was faster."""
    config = configs.merged(configs.DEFAULTS, given)
    require_dead_letter(call, config)
    try:
        created = await call.service.engine.create_queue(
            call.queue, without_nulls(configs.for_engine(config)) | {"kind": config["type"]}
        )
    except QueueExistsError:
        created = False
    call.service.configs.changed(call.queue)
    return config if created else None


def without_nulls(config: configs.Config) -> configs.Config:
    """A configuration to begin with: what is null has its default anyway."""
    return {name: value for name, value in config.items() if value is not None}


def require_dead_letter(call: Call[Any], config: configs.Config) -> None:
    """Jobs that die must not go where the key could not send them."""
    if EVERY_QUEUE not in call.caller.queues and config["dead_letter"] is not None:
        require(call.caller, ADMIN, config["dead_letter"])


@book.add("PUT", TOPIC, ADMIN, body=TopicConfig)
async def put(call: Call[TopicConfig]) -> object:
    """Make a topic, or change the fields of its configuration that are named."""
    current = await config_of(call, call.queue)
    config = await made(call, call.asked) if current is None else None
    created = config is not None
    if config is None:
        config = await changed(call)
        call.service.configs.changed(call.queue)
    document = {"topic": call.queue, "created": created, "config": config, "performance": performance(call)}
    return JsonResponse(document, 201 if created else 200)


async def changed(call: Call[TopicConfig]) -> configs.Config:
    """Change what a topic is told, and nothing else; returns what holds now."""
    async with call.service.engine.transaction() as connection:
        # A change of nothing locks the queue: nobody else changes it between the look and the change.
        effective = await call.service.engine.configured(connection, call.queue, "{}")
        current = configs.shown(msgspec.json.decode(effective))
        configs.check_type(current, call.asked)
        config = configs.merged(current, call.asked)
        if config["dead_letter"] != current["dead_letter"]:
            require_dead_letter(call, config)
        if change := configs.change(current, config):
            await call.service.engine.configured(connection, call.queue, encode(change).decode())
    return config


def not_there(topic: str) -> HoldfastError:
    """There is no such topic."""
    return QueueNotFoundError("QH101", f'topic "{topic}" does not exist', MADE)


@book.add("GET", TOPIC, READ)
async def get(call: Call[None]) -> object:
    """How far a topic reaches, what is in it, and how it is configured."""
    config = await config_of(call, call.queue)
    if config is None:
        raise not_there(call.queue)
    state = await state_of(call, config["type"])
    counted = state.pop("queue", None)
    document = {"topic": call.queue, "type": config["type"], **state, "config": config}
    if counted is not None:
        document["queue"] = counted
    return {**document, "performance": performance(call)}


async def state_of(call: Call[Any], kind: str) -> dict[str, Any]:
    """How far a topic reaches and what is in it."""
    extent = await call.service.numbers.extent(call.queue)
    count = await call.service.counts.of(call.queue, kind)
    state: dict[str, Any] = {
        "head_seq": extent.last_seq,
        "earliest_seq": extent.first_seq or extent.last_seq + 1,
        "count": count.depth,
    }
    if kind == "queue":
        state["queue"] = {"ready": count.ready, "in_flight": count.in_flight, "dead_lettered": count.dead}
    return state


@book.add("GET", TOPICS, READ, query=Listing, anywhere=True)
async def listing(call: Call[Listing]) -> object:
    """The topics that the key reaches, by name, a page at a time."""
    asked = call.asked
    after = cursor_of(asked.cursor)
    names = [
        info.queue
        for info in await call.service.engine.queues()
        if info.queue > after and info.queue.startswith(asked.prefix) and call.caller.reaches(info.queue)
    ]
    names.sort()
    size = min(asked.page_size, MOST_LISTED)
    found = await call.service.numbers.listed(names[:size])
    topics = [
        {
            "topic": one.queue,
            "type": one.kind,
            "head_seq": one.last_seq,
            "earliest_seq": one.first_seq or one.last_seq + 1,
            "count": one.depth,
            "durable": configs.shown(msgspec.json.decode(one.effective))["durable"],
        }
        for one in found
    ]
    more = {"next_cursor": urlsafe_b64encode(names[size - 1].encode()).decode()} if len(names) > size else {}
    return {"topics": topics, **more, "performance": performance(call)}


def cursor_of(cursor: str | None) -> str:
    """The name behind which a page begins."""
    try:
        return urlsafe_b64decode(cursor or "").decode()
    except (NotBase64, ValueError) as error:
        raise InvalidRequestError(
            "QH911", "bad value for cursor", "It is not one that was given out."
        ) from error


@book.add("DELETE", TOPIC, ADMIN, query=Dropping)
async def delete(call: Call[Dropping]) -> object:
    """Delete a topic and all that is in it; false: there was none."""
    deleted = await call.service.engine.drop_queue(call.queue, if_empty=call.asked.if_empty)
    call.service.configs.changed(call.queue)
    return {"topic": call.queue, "deleted": deleted, "performance": performance(call)}
