"""Schemas: what payloads of a topic have to look like, in Avro or JSON Schema."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from starlette.responses import Response

from holdfast.client import InvalidSchemaError, NoSchemaError
from holdfast.schemas.judge import check_change
from holdfast.server.definitions import Definition
from holdfast.server.endpoint import ADMIN, Book, Call

from .errors import refused
from .lifecycle import made_or_there, refuse_reserved
from .requests import TopicSchema
from .values import SCHEMA, SCHEMAS, at

AVRO, JSON_SCHEMA = "avro", "json"  # in this order: what can be either is Avro
KINDS = {AVRO: "Avro", JSON_SCHEMA: "JSON Schema"}

book = Book("schemas")
encode = msgspec.json.Encoder().encode


@book.add("PUT", SCHEMA, ADMIN, body=TopicSchema)
async def put_schema(call: Call[TopicSchema]) -> object:
    """Set the schema of a topic; makes a topic that is not there."""
    refuse_reserved(call.queue)
    definition = definition_in(call.asked.schema_json)
    kind = kind_of(definition, call.asked.kind)
    await made_or_there(call.service, call.queue)
    await call.service.engine.set_schema(call.queue, definition, kind=kind, compatibility="none")
    call.service.configs.changed(call.queue)
    return shown(await schema_of(call))


def definition_in(given: Raw) -> Any:
    """The schema in a request: JSON, or text that is."""
    try:
        value = msgspec.json.decode(given)
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError) as error:
        raise refused("schema_json", f"It is not JSON: {error}.") from error


def kind_of(definition: Any, named: str | None) -> str:
    """The kind of a schema: the one that is named, else the first that it can be."""
    reasons = []
    for kind in (AVRO, JSON_SCHEMA) if named is None else (named,):
        try:
            check_change(None, encode(definition).decode(), kind, "none")
        except InvalidSchemaError as error:
            reasons.append(f"As {KINDS[kind]}: {error.detail}")
        else:
            return kind
    raise refused("schema_json", " ".join(reasons))


async def schema_of(call: Call[Any]) -> Definition:
    """The schema of the topic of a path."""
    found = await call.service.definitions.of(call.queue)
    if found is None:
        raise NoSchemaError("QH925", f'topic "{call.queue}" has no schema')
    return found


def shown(found: Definition) -> dict[str, Any]:
    """A schema as the page shows it: its definition is text."""
    return {
        "topic": found.queue,
        "schema_json": bytes(found.definition).decode(),
        "kind": found.kind,
        "version": found.version,
        "updated_at": at(found.created_at),
    }


@book.add("GET", SCHEMA, ADMIN)
async def get_schema(call: Call[None]) -> object:
    """The schema of a topic."""
    return shown(await schema_of(call))


@book.add("GET", SCHEMAS, ADMIN, anywhere=True)
async def list_schemas(call: Call[None]) -> object:
    """The schemas of all topics that have one."""
    every = await call.service.definitions.all()
    return {"items": [shown(found) for found in every if call.caller.reaches(found.queue)]}


@book.add("DELETE", SCHEMA, ADMIN)
async def delete_schema(call: Call[None]) -> object:
    """Let payloads of a topic be anything."""
    await schema_of(call)
    await call.service.engine.drop_schema(call.queue)
    call.service.configs.changed(call.queue)
    return Response(status_code=204)
