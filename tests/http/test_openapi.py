"""The OpenAPI document: valid, whole, and in step with the routes, their types and their errors."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from holdfast.client import ERRORS
from holdfast.server.app import endpoints
from holdfast.server.fields import ASKED, EXAMPLES
from holdfast.server.refusals import ALWAYS, OF_VERBS, refusals
from holdfast.server.routes.documents import written
from tests.fix_http import Caller

DOCUMENT: dict[str, Any] = json.loads(written())
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
TOLD = [endpoint for endpoint in endpoints() if endpoint.told]
BODIES = [endpoint for endpoint in TOLD if endpoint.body is not None]
# What only a connection, or no server at all, can refuse: see docs/errors.md.
NEVER_ANSWERED = {
    *("QH208", "QH230", "QH231", "QH232", "QH303"),
    *("QH501", "QH502", "QH503", "QH504"),
    *("QH242", "QH243"),  # where messages are opened
    *("QH801", "QH802", "QH810", "QH811"),
    *("QH830", "QH831"),  # of dialects only
    "QH853",  # where services are connected to
    *("QH864", "QH866", "QH867", "QH868"),  # of dialects only
    "QH879",  # of dispatchers only
    *("QH914", "QH915"),  # where no route is
    "QH933",
}


def references(value: Any) -> set[str]:
    """All references in a part of the document."""
    if isinstance(value, list):
        return {found for each in value for found in references(each)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if "$ref" in value else set()
    return own | {found for each in value.values() for found in references(each)}


def test_the_document_is_valid_openapi_3_1() -> None:
    jsonschema_rs.Draft202012Validator(OPENAPI_31).validate(DOCUMENT)


@pytest.mark.parametrize("name", sorted(DOCUMENT["components"]["schemas"]))
def test_every_type_is_valid_json_schema(name: str) -> None:
    jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    )


def test_every_reference_leads_somewhere() -> None:
    for reference in references(DOCUMENT):
        place: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_every_type_is_used() -> None:
    used = {reference.rsplit("/", 1)[1] for reference in references(DOCUMENT)}

    assert set(DOCUMENT["components"]["schemas"]) <= used


def test_every_route_is_told_with_its_method_and_path() -> None:
    assert {name: (method, path) for name, (method, path, _) in OPERATIONS.items()} == {
        endpoint.name: (endpoint.method, endpoint.path) for endpoint in TOLD
    }


def test_every_route_says_what_it_does_and_who_may() -> None:
    for endpoint in TOLD:
        _, _, told = OPERATIONS[endpoint.name]
        assert told["summary"].endswith("."), endpoint.name
        assert bool(told["security"]) == (endpoint.scope is not None), endpoint.name
        needs = {None: "No key is needed.", "any": "Any key will do."}
        assert told["description"].endswith(needs.get(endpoint.scope, f"Scope: `{endpoint.scope}`."))


def test_every_error_of_a_route_is_told_under_its_status() -> None:
    for endpoint in TOLD:
        _, _, told = OPERATIONS[endpoint.name]
        wanted = {str(ERRORS[code].http_status) for code in refusals(endpoint)}
        assert {status for status in told["responses"] if status >= "400"} == wanted


def test_every_code_is_answered_by_some_route_or_known_not_to_be() -> None:
    answered = {code for endpoint in endpoints() for code in refusals(endpoint)}

    assert answered == (set(ERRORS) - NEVER_ANSWERED) | {"QH914"}
    assert set(ALWAYS) <= answered


def test_the_errors_of_verbs_are_those_of_routes_that_are_there() -> None:
    assert set(OF_VERBS) <= {endpoint.name for endpoint in endpoints()}


def test_every_field_of_a_request_is_explained_and_no_other() -> None:
    structs = [kind for endpoint in TOLD for kind in (endpoint.body, endpoint.query) if kind is not None]
    _, types = msgspec.json.schema_components(structs)
    fields = {name for schema in types.values() for name in schema.get("properties", {})}
    places = {f"{title}.{name}" for title, schema in types.items() for name in schema.get("properties", {})}

    assert fields <= set(ASKED)
    assert set(ASKED) <= fields | places


@pytest.mark.parametrize("endpoint", BODIES, ids=lambda endpoint: endpoint.name)
def test_every_body_has_an_example_that_its_type_takes(endpoint: Any) -> None:
    example = EXAMPLES[endpoint.name]
    schema = OPERATIONS[endpoint.name][2]["requestBody"]["content"]["application/json"]["schema"]

    msgspec.json.decode(json.dumps(example), type=endpoint.body)
    jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(example)


def test_no_example_is_left_over() -> None:
    assert set(EXAMPLES) == {endpoint.name for endpoint in BODIES}


def test_the_document_is_served_as_it_is_made(refusing: Caller) -> None:
    answer = refusing.call("GET", "/openapi.json")

    assert answer.headers["content-type"] == "application/json"
    assert answer.content == written()
