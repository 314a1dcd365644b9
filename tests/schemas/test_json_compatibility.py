"""Compatible changes of a JSON Schema.

1. If a change is called compatible, whatever was valid before is valid now: tried on a few hundred values.
2. The changes that people make every day are told apart, and an objection says where and why.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, event, given, settings

from holdfast import InvalidSchemaError
from holdfast.schemas.checker import checker
from holdfast.schemas.json_compatibility import excluded
from tests.schemas.json_schemas import POOL, pairs

TEXTS = [json.dumps(value) for value in POOL]
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 1}, "state": {"enum": ["new", "paid"]}},
    "required": ["id"],
    "additionalProperties": False,
}


def order(**changes: Any) -> dict[str, Any]:
    """An order with other keywords."""
    return {**ORDER, **changes}


def with_property(name: str, schema: Any) -> dict[str, Any]:
    """An order with another property."""
    return order(properties={**ORDER["properties"], name: schema})


@settings(max_examples=400, deadline=None)
@given(pairs())
def test_what_was_valid_stays_valid_after_a_compatible_change(pair: tuple[Any, Any]) -> None:
    old, new = pair
    try:
        before, after = checker("json", json.dumps(old)), checker("json", json.dumps(new))
    except InvalidSchemaError:
        assume(False)
    compatible = next(excluded(old, new), None) is None
    event(f"compatible: {compatible}")

    lost = [text for text in TEXTS if before.misfit(text) is None and after.misfit(text) is not None]

    assert not (compatible and lost), lost[:3]


@pytest.mark.parametrize(
    "new",
    [
        ORDER,
        order(title="An order"),
        order(required=[]),
        order(additionalProperties=True),
        with_property("note", {"type": "string"}),
        with_property("state", {"enum": ["paid", "new", "sent"]}),
        with_property("state", {"type": "string"}),
        with_property("id", {"type": "number"}),
        with_property("id", {"type": ["integer", "null"], "minimum": 0}),
        with_property("id", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        with_property("id", {"$ref": "#/properties/count"}) | {"$comment": "below"},
        {"allOf": [ORDER]},
        {"anyOf": [{"type": "string"}, ORDER]},
        {"type": "object"},
        {},
        True,
    ],
    ids=repr,
)
def test_a_wider_schema_is_compatible(new: Any) -> None:
    if isinstance(new, dict) and "$comment" in new:
        new["properties"]["count"] = {"type": "integer"}

    assert list(excluded(ORDER, new)) == []


@pytest.mark.parametrize(
    ("new", "path", "reason"),
    [
        (order(required=["id", "state"]), "definition.required", '"state" may be missing'),
        (with_property("id", {"type": "string"}), "definition.properties.id.type", "number"),
        (with_property("id", {"type": "integer", "minimum": 2}), "definition.properties.id.minimum", "2"),
        (with_property("id", {"type": "integer", "maximum": 9}), "definition.properties.id.maximum", "9"),
        (with_property("state", {"enum": ["new"]}), "definition.properties.state.enum", '"paid" is gone'),
        (order(properties={"id": {}}), "definition.properties.state", "nothing is allowed"),
        (order(minProperties=2), "definition.minProperties", "2"),
        (order(type="array"), "definition.type", "object"),
        (with_property("id", False), "definition.properties.id", "nothing"),
        ({"not": ORDER}, "definition.not", "new, or another"),
        ({"oneOf": [ORDER, {"type": "null"}]}, "definition.oneOf", "new, or another"),
        ({"unevaluatedProperties": False}, "definition.unevaluatedProperties", "cannot be compared"),
        ({"$anchor": "here"}, "definition", "not compared"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "definition.$schema", "another draft"),
        (False, "definition", "nothing"),
    ],
    ids=repr,
)
def test_a_narrower_schema_is_refused_with_place_and_reason(new: Any, path: str, reason: str) -> None:
    first, *_ = excluded(ORDER, new)

    assert first.path == path
    assert reason in first.reason


def test_a_property_that_may_have_been_sent_as_anything_cannot_get_a_type() -> None:
    (objection,) = excluded(
        {"type": "object"}, {"type": "object", "properties": {"note": {"type": "string"}}}
    )

    assert objection.path == "definition.properties.note"
    assert "as anything" in objection.reason


def test_schemas_that_refer_to_themselves_are_compared() -> None:
    node: dict[str, Any] = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}},
        "additionalProperties": False,
    }
    wider = {**node, "properties": {**node["properties"], "value": {"type": "number"}}}

    assert list(excluded(node, wider)) == []
    assert [each.path for each in excluded(wider, node)] == [
        "definition.properties.next.properties.value.type"
    ]


def test_a_kept_alternative_counts_only_if_what_it_refers_to_is_kept_too() -> None:
    old = {"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "number"}}}
    new = {"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer"}}}

    assert list(excluded(old, {**old, "title": "t"})) == []
    assert [each.path for each in excluded(old, new)] == ["definition.oneOf"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"$ref": "#/$defs/a", "minimum": 5}, {"minimum": 5}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}]},
            {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        ),
    ],
    ids=["beside a reference", "prefixItems"],
)
def test_keywords_that_an_earlier_draft_passes_over_imply_nothing(old: Any, new: Any) -> None:
    seventh = {"$schema": "http://json-schema.org/draft-07/schema#", "$defs": {"a": {"type": "number"}}}

    assert next(excluded({**old, **seventh}, {**new, **seventh}), None) is not None
