"""The OpenAPI document: made of the routes, their types, and what is told of fields, examples and errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from holdfast import __version__
from holdfast.client import ERRORS, HoldfastError
from holdfast.wire.requests import LEAST, MOST

from .endpoint import ANY, Book, Endpoint
from .fields import ANSWERED, ASKED, EXAMPLES, HEADERS, METRICS, PATH, STREAM, TAGS
from .refusals import refusals

Json: TypeAlias = dict[str, Any]

JSON, EVENTS = "application/json", "text/event-stream"
REF = "#/components/schemas/{name}"
# A body and an answer may have the same name: what is asked for is called so.
REQUEST_REF = "#/components/schemas/{name}Request"
SCHEMES: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "Authorization: Bearer hf_…"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "basic": {"type": "http", "scheme": "basic", "description": "The key is the password; any user name."},
}
ABOUT = """\
A durable message queue inside PostgreSQL.

Ids and tokens are text: they have up to 63 bits, and many readers of JSON keep 53. Times are UTC, lengths of
time seconds (a request may also say `"5 min"`). Bodies may be packed: `Content-Encoding: gzip`.
Every error has one shape and a code; each code is explained where a route may answer with it.

While there is no API key, the server answers programs on its own machine, and no key is needed. From the
first one on, each route takes a key with its scope and, where the path names a queue, for that queue.
"""
# Routes that say by their status whether there was something to make.
MADE_OR_THERE = ("create_queue", "create_endpoint", "create_event_type")
ERROR: Json = {
    "title": "Error",
    "description": "Why a request was refused, or could not be answered.",
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "name", "message", "detail", "hint"],
            "additionalProperties": False,
            "properties": {
                "code": {"type": "string", "pattern": "^QH[0-9]{3}$"},
                "name": {"type": "string"},
                "message": {"type": "string", "description": "What is wrong."},
                "detail": {"type": ["string", "null"], "description": "What was found."},
                "hint": {"type": ["string", "null"], "description": "What to do."},
            },
        }
    },
}


def document(books: Iterable[Book]) -> Json:
    """The document that describes all routes."""
    books = [book for book in books if book.endpoints]
    told = [(book.noun, endpoint) for book in books for endpoint in book.endpoints if endpoint.told]
    paths: dict[str, Json] = {}
    for noun, endpoint in told:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation(endpoint, noun)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": __version__, "description": ABOUT},
        "tags": [{"name": book.noun, "description": TAGS[book.noun]} for book in books],
        "paths": paths,
        "components": {
            "schemas": schemas([endpoint for _, endpoint in told]),
            "securitySchemes": SCHEMES,
            "examples": {code: {"value": error_example(code, kind)} for code, kind in ERRORS.items()},
            "responses": {code: refusal([code]) for code in ERRORS},
        },
    }


def operation(endpoint: Endpoint, noun: str) -> Json:
    """One method of one path."""
    told: Json = {
        "operationId": endpoint.name,
        "tags": [noun],
        "summary": endpoint.summary,
        "description": description(endpoint),
        "parameters": [*path_parameters(endpoint), *query_parameters(endpoint), *header_parameters(endpoint)],
        "responses": {**answers(endpoint), **errors(endpoint)},
        "security": [] if endpoint.scope is None else [{scheme: []} for scheme in SCHEMES],
    }
    if endpoint.body is not None:
        told["requestBody"] = request_body(endpoint)
    return {name: value for name, value in told.items() if value != [] or name == "security"}


def description(endpoint: Endpoint) -> str:
    """What is to be known of a route beside its summary: the rest of its text, and who may call it."""
    rest = endpoint.description
    needs = {None: "No key is needed.", ANY: "Any key will do."}
    return f"{rest}\n\n{needs.get(endpoint.scope, f'Scope: `{endpoint.scope}`.')}".strip()


def path_parameters(endpoint: Endpoint) -> list[Json]:
    """What stands in the path."""
    names = re.findall(r"{(\w+)}", endpoint.path)
    return [{"name": name, "in": "path", "required": True, **PATH[name]} for name in names]


def query_parameters(endpoint: Endpoint) -> list[Json]:
    """What stands in the query."""
    if endpoint.query is None:
        return []
    _, parts = msgspec.json.schema_components([endpoint.query], ref_template=REF)
    (struct,) = parts.values()
    return [
        {
            "name": name,
            "in": "query",
            "required": name in struct["required"],
            "description": meaning(struct, name, ASKED),
            "schema": without_null(schema),
        }
        for name, schema in struct["properties"].items()
    ]


def without_null(schema: Json) -> Json:
    """The schema of a parameter: one that is not given is left out, not null."""
    kinds: list[Json] = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    plain = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if len(kinds) == 1:
        return in_range(plain | kinds[0])
    return in_range(plain | ({"anyOf": kinds} if kinds else {}))


def header_parameters(endpoint: Endpoint) -> list[Json]:
    """Which headers mean something to a route."""
    return [{"in": "header", "required": False, **header} for header in HEADERS.get(endpoint.name, [])]


def request_body(endpoint: Endpoint) -> Json:
    """What a route takes."""
    (schema,), _ = msgspec.json.schema_components([endpoint.body], ref_template=REQUEST_REF)
    content: Json = {"schema": schema}
    if endpoint.name in EXAMPLES:
        content["example"] = EXAMPLES[endpoint.name]
    return {"required": needs_body(endpoint), "content": {JSON: content}}


def needs_body(endpoint: Endpoint) -> bool:
    """Whether a request without a body makes no sense."""
    try:
        msgspec.json.decode(b"{}", type=endpoint.body)
    except msgspec.ValidationError:
        return True
    return False


def answers(endpoint: Endpoint) -> Json:
    """What a route answers with when all is well."""
    if endpoint.name == "work":
        return {"200": {"description": STREAM, "content": {EVENTS: {"schema": {"type": "string"}}}}}
    if endpoint.name == "metrics":
        return {"200": {"description": METRICS, "content": {"text/plain": {"schema": {"type": "string"}}}}}
    (schema,), _ = msgspec.json.schema_components([endpoint.answer], ref_template=REF)
    told: Json = {"description": "Done.", "content": {JSON: {"schema": schema}}}
    if endpoint.name in ("queue", "configure_queue"):
        told["headers"] = {"ETag": {"schema": {"type": "string"}}}
    if endpoint.name in MADE_OR_THERE:
        return {"200": {**told, "description": "It was there."}, "201": told}
    return {str(endpoint.status): told}


def errors(endpoint: Endpoint) -> Json:
    """What a route refuses, by status; each with the codes that it may have."""
    by_status: dict[int, list[str]] = {}
    for code in refusals(endpoint):
        by_status.setdefault(ERRORS[code].http_status, []).append(code)
    return {
        str(status): refusal(codes) if len(codes) > 1 else {"$ref": f"#/components/responses/{codes[0]}"}
        for status, codes in sorted(by_status.items())
    }


def refusal(codes: list[str]) -> Json:
    """The errors of one status."""
    kinds = {code: ERRORS[code] for code in codes}
    told: Json = {
        "description": "\n\n".join(f"`{code}` {kind.name}: {kind.__doc__}" for code, kind in kinds.items()),
        "content": {
            JSON: {
                "schema": {"$ref": REF.format(name="Error")},
                "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
            }
        },
    }
    status = next(iter(kinds.values())).http_status
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        told["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return told


def error_example(code: str, kind: type[HoldfastError]) -> Json:
    """An error of some kind."""
    said = {"code": code, "name": kind.name, "message": (kind.__doc__ or "").split("\n")[0].rstrip(".")}
    return {"error": {**said, "detail": None, "hint": None}}


def schemas(endpoints: list[Endpoint]) -> Json:
    """The types of bodies and answers."""
    bodies = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    types = [endpoint.answer for endpoint in endpoints if endpoint.answer is not None]
    _, asked = msgspec.json.schema_components(bodies, ref_template=REQUEST_REF)
    _, answered = msgspec.json.schema_components(types, ref_template=REF)
    told = {f"{name}Request": described(schema, ASKED) for name, schema in asked.items()}
    told |= {name: described(schema, ANSWERED) for name, schema in answered.items()}
    return {"Error": ERROR, **dict(sorted(told.items()))}


def described(schema: Json, words: Mapping[str, str]) -> Json:
    """A type with what its fields mean."""
    fields: Json = schema["properties"]
    told = {
        name: {**in_range(field), "description": said} if (said := meaning(schema, name, words)) else field
        for name, field in fields.items()
    }
    return {**schema, "properties": told}


def meaning(struct: Json, name: str, words: Mapping[str, str]) -> str | None:
    """What a field means: in this type, else anywhere."""
    return words.get(f"{struct['title']}.{name}", words.get(name))


def in_range(schema: Json) -> Json:
    """A field with the range that the engine checks, in place of its type's."""
    told = {name: value for name, value in schema.items() if name not in (LEAST, MOST)}
    if "anyOf" in told:
        told["anyOf"] = [in_range(each) for each in told["anyOf"]]
    ranges = {"minimum": schema.get(LEAST), "maximum": schema.get(MOST)}
    return told | {name: bound for name, bound in ranges.items() if bound is not None}
