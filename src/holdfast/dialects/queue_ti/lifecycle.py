"""Topics: made by their first message, configured one by one."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.client import InvalidQueueNameError, NotAQueueError, QueueExistsError, QueueNotFoundError
from holdfast.client._requests import check_name
from holdfast.server.endpoint import ADMIN, Book, Call
from holdfast.server.service import Service

from . import configs
from .errors import UnprocessableError
from .requests import TopicConfig
from .values import CONFIG, CONFIGS, GRAVE, grave_of, is_grave

LONGEST_TOPIC = 200 - len(GRAVE)

book = Book("topics")
encode = msgspec.json.Encoder().encode


# --- making them ---------------------------------------------------------------------------------


async def ensure(call: Call[Any], topic: str) -> None:
    """Make a topic that is not there, if the caller may."""
    kind = (await call.service.configs.of(topic)).kind
    if kind is None:
        # What is remembered may be older than the topic.
        call.service.configs.forget(topic)
        kind = (await call.service.configs.of(topic)).kind
    if kind is None:
        if not call.caller.may(ADMIN, topic):
            raise UnprocessableError(
                "QH101",
                f'topic "{topic[:200]}" does not exist',
                "It is made by its first message if the key has the scope admin, or by PUT "
                f"{CONFIGS}/{{topic}}.",
            )
        await make(call.service, topic)
    elif kind != "queue":
        raise is_log(topic)


def is_log(topic: str) -> NotAQueueError:
    """The refusal of a log."""
    return NotAQueueError("QH602", f'"{topic}" is a log, and no topic of this API')


def refuse_reserved(topic: str) -> None:
    """Refuse the name of a dead-letter topic."""
    if is_grave(topic):
        raise UnprocessableError(
            "QH911", f"the topic name {topic[:200]} is reserved", f"{GRAVE} is for dead letters."
        )


def check_topic(topic: str) -> None:
    """Refuse a name that no topic can have: its dead-letter topic has to have one too."""
    check_name(topic)
    if not fits(topic):
        raise InvalidQueueNameError(
            "QH103", "invalid topic name", f"It has {len(topic)} characters, and takes 1 to {LONGEST_TOPIC}."
        )


def fits(name: str) -> bool:
    """Whether a queue can be a topic, as far as its name goes."""
    return is_grave(name) or len(name) <= LONGEST_TOPIC


async def made_or_there(service: Service, topic: str) -> None:
    """Make a topic unless it is there."""
    kind = (await service.configs.of(topic)).kind
    if kind is None:
        await make(service, topic)
    elif kind != "queue":
        raise is_log(topic)


async def make(service: Service, topic: str) -> None:
    """Make a topic as the defaults have it; it does no harm if it is there."""
    check_topic(topic)
    # Before the topic: the engine itself would make it otherwise, for the first message that dies.
    await make_queue(service, grave_of(topic))
    await make_queue(service, topic)


async def make_queue(service: Service, name: str) -> bool:
    """Make the queue of a topic, or of dead letters; false: it is there."""
    config = configs.for_engine(name, TopicConfig(), configs.DEFAULTS)
    given = {field: value for field, value in config.items() if value is not None}
    try:
        async with service.engine.transaction() as connection:
            made = await service.engine.created(connection, name, encode(given).decode())
            if made:
                await adjusted(service, connection, name, None)
    except QueueExistsError:
        made = False
    service.configs.changed(name)
    return made


async def adjust(service: Service, topic: str, config: TopicConfig | None) -> None:
    """Give a topic a configuration of its own, or the one that it has, under the defaults that hold."""
    async with service.engine.transaction() as connection:
        told = await adjusted(service, connection, topic, config)
    service.configs.changed(topic)
    # Not before the end: whoever changes the defaults holds all queues.
    if told["dead_letter"]:
        await make_grave(service, told["dead_letter"])


async def adjusted(
    service: Service, connection: Any, topic: str, config: TopicConfig | None
) -> configs.Config:
    """The same within a transaction; returns what the engine was told."""
    # A change of nothing locks the queue: from here on nobody changes it, or the defaults under it.
    effective = msgspec.json.decode(await service.engine.configured(connection, topic, "{}"))
    settings = configs.settings_of(effective["annotations"])
    chosen = configs.own(effective["annotations"]) if config is None else config
    change = configs.for_engine(topic, chosen, settings)
    await service.engine.configured(connection, topic, encode(change).decode())
    return change


async def make_grave(service: Service, grave: str) -> None:
    """Make a dead-letter topic of what is there by that name, or of nothing; a log stays one."""
    known = await service.configs.of(grave)
    if known.kind == "log" or configs.ANNOTATION in known.annotations:
        return
    if not await make_queue(service, grave):
        await adjust(service, grave, None)


# --- configuring them ----------------------------------------------------------------------------


@book.add("PUT", CONFIG, ADMIN, body=TopicConfig)
async def put_config(call: Call[TopicConfig]) -> object:
    """Give a topic a configuration of its own; makes a topic that is not there."""
    refuse_reserved(call.queue)
    await made_or_there(call.service, call.queue)
    await adjust(call.service, call.queue, call.asked)
    return configs.shown(call.queue, call.asked)


@book.add("GET", CONFIG, ADMIN)
async def get_config(call: Call[None]) -> object:
    """What a topic has of its own."""
    return configs.shown(call.queue, configs.own(await kept(call)))


@book.add("DELETE", CONFIG, ADMIN)
async def delete_config(call: Call[None]) -> object:
    """Let a topic be as the defaults have it."""
    if not configs.said(configs.own(await kept(call))):
        raise QueueNotFoundError("QH101", f'topic "{call.queue}" has no configuration of its own')
    await adjust(call.service, call.queue, TopicConfig())
    return Response(status_code=204)


async def kept(call: Call[Any]) -> configs.Annotations:
    """What is kept with a topic, as it is now."""
    effective = await call.service.configs.effective(call.queue)
    if effective is None:
        raise QueueNotFoundError("QH101", f'topic "{call.queue}" does not exist')
    found: configs.Annotations = effective["annotations"]
    return found


@book.add("GET", CONFIGS, ADMIN, anywhere=True)
async def list_configs(call: Call[None]) -> object:
    """The topics that have something of their own."""
    every = await call.service.annotations.of_queues(configs.ANNOTATION)
    found = {topic: configs.own(kept) for topic, kept in every.items() if call.caller.reaches(topic)}
    items = [configs.shown(topic, config) for topic, config in found.items() if configs.said(config)]
    return {"items": items}
