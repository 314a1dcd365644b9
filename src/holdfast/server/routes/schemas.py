"""Schemas: what the payloads of a queue must look like."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, UnsetType
from psycopg.types.json import Jsonb

from holdfast.client import NoSchemaError
from holdfast.server.endpoint import ADMIN, ANY, Book, Call
from holdfast.wire import requests as wire

book = Book("schemas")


@book.verb(ADMIN)
async def set_schema(call: Call[wire.SetSchema]) -> object:
    """Set the schema of a queue; answers with its version.

    A definition that does not go with the one in force is refused, as its compatibility says. The same
    definition once more is no new version.
    """
    asked = call.asked
    version = await call.service.engine.set_schema(
        call.queue,
        as_jsonb(asked.definition),
        kind=asked.kind,
        compatibility=asked.compatibility,
        expected_version=asked.expected_version,
    )
    call.service.configs.changed(call.queue)
    return version


@book.verb(ANY)
async def queue_schema(call: Call[None]) -> object:
    """The schema that is in force."""
    found = await call.service.engine.queue_schema(call.queue)
    if found is None:
        raise NoSchemaError(
            "QH925", f"queue {call.queue} has no schema", "Its payloads may be anything.", "PUT sets one."
        )
    return found


@book.verb(ADMIN)
async def drop_schema(call: Call[None]) -> object:
    """Let payloads be anything; the versions are kept."""
    dropped = await call.service.engine.drop_schema(call.queue)
    call.service.configs.changed(call.queue)
    return dropped


@book.verb(ANY)
async def schema_versions(call: Call[None]) -> object:
    """The last 100 versions of the schema, the newest first."""
    return await call.service.engine.schema_versions(call.queue)


@book.verb(ANY)
async def check_schema(call: Call[wire.CheckSchema]) -> object:
    """What would be refused of payloads, or of a change of the schema; nothing is sent or changed."""
    asked = call.asked
    return await call.service.engine.check_schema(
        call.queue,
        None if asked.payloads is None else list(map(as_jsonb, asked.payloads)),
        definition=None if isinstance(asked.definition, UnsetType) else as_jsonb(asked.definition),
        kind=asked.kind,
        compatibility=asked.compatibility,
    )


def as_jsonb(value: Raw) -> Any:
    """JSON, passed on as it came."""
    return Jsonb(value, dumps=bytes)
