"""What holds for all topics: looked at, and changed for those that are there and those to come."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import __version__
from holdfast.server.endpoint import ADMIN, Book, Call
from holdfast.server.service import Service

from . import configs
from .lifecycle import fits, make_grave
from .requests import Settings

SETTINGS = "/api/admin/settings"

book = Book("settings")
encode = msgspec.json.Encoder().encode



@book.add("GET", SETTINGS, ADMIN)
async def get_settings(call: Call[None]) -> object:
    """The defaults of all topics."""
    found = await call.service.annotations.of_defaults(configs.OF_ALL)
    return msgspec.structs.asdict(configs.settings_of({configs.OF_ALL: found}))


@book.add("PUT", SETTINGS, ADMIN, body=Settings)
async def put_settings(call: Call[Settings]) -> object:
    """Change the defaults of all topics; they hold at once, also for topics that are there."""
    engine = call.service.engine
    async with engine.transaction() as connection:
        # A change of nothing locks the defaults.
        defaults = msgspec.json.decode(await engine.configured_defaults(connection, "{}"))
        settings = configs.filled(call.asked, configs.settings_of(defaults["annotations"]))
        document = msgspec.structs.asdict(settings)
        change = encode({"annotations": {configs.OF_ALL: document}}).decode()
        await engine.configured_defaults(connection, change)
        changed = await configure_all(call.service, connection, settings)
    call.service.configs.changed("")
    for config in changed:
        if config["dead_letter"]:
            await make_grave(call.service, config["dead_letter"])
    return document


async def configure_all(service: Service, connection: Any, settings: Settings) -> list[configs.Config]:
    """Configure all topics that are there; returns what each was told."""
    told = []
    every = await service.annotations.of_queues(configs.ANNOTATION, connection)
    for topic, kept in every.items():
        if not fits(topic):
            continue
        config = configs.for_engine(topic, configs.own(kept), settings)
        await service.engine.configured(connection, topic, encode(config).decode())
        told.append(config)
    return told


@book.add("GET", "/api/version", None)
async def version(call: Call[None]) -> object:
    """The version of the server."""
    return {"version": __version__}
