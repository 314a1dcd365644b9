"""Payloads against definitions.

1. A payload that does not fit is refused with the place and the reason; of alternatives, with that of the
   closest.
2. Numbers keep every digit, and what is nested too deeply is refused before it can end the process.
3. A definition that is none, or that would fetch, go round in a circle, or never end, is refused with the
   place.
4. Avro: plain JSON, unions without names, fields with defaults left out, what fastavro takes is taken.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema
from fastavro.validation import validate
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast import InvalidSchemaError
from holdfast.schemas.checker import Misfit, checker
from tests.schemas.test_avro_compatibility import is_schema, records, types

ORDER = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
        "ship to": {
            "anyOf": [{"type": "null"}, {"type": "object", "properties": {"zip": {"type": "string"}}}]
        },
        "day": {"type": "string", "format": "date"},
    },
    "required": ["items"],
}


def misfit(definition: Any, payload: Any, kind: str = "json") -> Misfit | None:
    """What is wrong with a payload; text is JSON as it is."""
    text = payload if isinstance(payload, bytes) else json.dumps(payload)
    return checker(kind, json.dumps(definition)).misfit(text)


def refused(definition: Any, kind: str = "json") -> InvalidSchemaError:
    """The error of a definition."""
    with pytest.raises(InvalidSchemaError) as caught:
        checker(kind, json.dumps(definition))
    return caught.value


@pytest.mark.parametrize(
    ("payload", "path", "reason"),
    [
        ({"items": [{"price": 1}, {"price": "x"}]}, "payload.items[1].price", '"x" is not of type "number"'),
        ({}, "payload", '"items" is a required property'),
        (3, "payload", '3 is not of type "object"'),
        ({"items": [], "ship to": {"zip": 5}}, 'payload["ship to"].zip', '5 is not of type "string"'),
        ({"items": [], "day": "tomorrow"}, "payload.day", '"tomorrow" is not a "date"'),
    ],
)
def test_what_does_not_fit_is_named_with_place_and_reason(payload: Any, path: str, reason: str) -> None:
    assert misfit(ORDER, payload) == Misfit(path, reason)


def test_what_fits_is_taken() -> None:
    assert misfit(ORDER, {"items": [{"price": 1.5}], "ship to": None, "more": [1]}) is None


def test_a_reason_does_not_repeat_a_large_value() -> None:
    found = misfit(ORDER, {"items": "x" * 10_000})

    assert found is not None
    assert len(found.reason) < 400
    assert found.reason.endswith('is not of type "array"')


@pytest.mark.parametrize(
    ("definition", "payload", "fits"),
    [
        ({"multipleOf": 0.01}, b"19.99", True),
        ({"type": "integer", "maximum": 2**63 - 1}, b"9223372036854775807", True),
        ({"type": "integer", "maximum": 2**63 - 1}, b"9223372036854775808", False),
        ({"maximum": 10}, b"1e400", False),
        ({"maximum": 10}, b"9" * 5000, False),
        ({"type": "integer"}, b"1.0", True),
    ],
)
def test_numbers_are_looked_at_digit_by_digit(definition: Any, payload: bytes, fits: bool) -> None:
    assert (misfit(definition, payload) is None) == fits


@pytest.mark.parametrize("levels", [201, 5_000, 1_000_000])
def test_what_is_nested_too_deeply_is_refused(levels: int) -> None:
    found = misfit({"items": {"$ref": "#"}}, b"[" * levels + b"]" * levels)

    assert found == Misfit("payload", "it is nested in more than 200 levels")
    assert misfit({"items": {"$ref": "#"}}, b"[" * 200 + b"]" * 200) is None
    assert misfit({"type": "array"}, b"[" + b"[]," * 500 + b"[]]") is None


def test_a_pattern_takes_no_time_that_grows_beyond_the_text() -> None:
    assert misfit({"pattern": "^(a+)+$"}, "a" * 100_000 + "b") is not None


def test_what_is_no_json_is_left_to_the_engine() -> None:
    assert misfit(ORDER, b"{broken") is None


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ({"type": "strnig"}, 'definition.type: "strnig"'),
        (
            {"properties": {"a": {"minimum": "x"}}},
            'definition.properties.a.minimum: "x" is not of type "number"',
        ),
        ({"pattern": "^(?=a)b"}, "definition.pattern"),
        ({"pattern": "(a{1000}){1000}"}, "definition.pattern"),
        ({"$ref": "http://127.0.0.1:9/x"}, "Retrieval is disabled"),
        ({"$ref": "file:///etc/passwd"}, "Retrieval is disabled"),
        ({"$schema": "http://127.0.0.1:9/meta"}, "Unknown meta-schema"),
        ({"$ref": "#/$defs/nothing"}, "nothing"),
        ({"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}}, "for the same value"),
    ],
    ids=repr,
)
def test_a_definition_that_is_none_is_refused_with_the_place(definition: Any, told: str) -> None:
    assert told in str(refused(definition))


def test_alternatives_that_multiply_are_refused() -> None:
    names = [f"#/$defs/{n}" for n in range(30)]
    parts = {str(n): {"anyOf": [{"$ref": name}] * 2} for n, name in enumerate(names[1:])}

    error = refused({"properties": {"a": {"$ref": names[0]}}, "$defs": {**parts, "29": {"type": "string"}}})

    assert "10,000 steps" in str(error)


def test_a_definition_has_a_limited_depth() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"items": deep}

    assert "levels" in str(refused(deep))


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "next", "type": ["null", "Node"], "default": None},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}, "default": "ab"},
    ],
}


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ({"id": 1}, None),
        ({"id": 1, "note": "x", "next": {"id": 2}, "raw": "\u00ff\u0000", "other": 1}, None),
        ({"id": 2**63}, "payload.id"),
        ({"id": 1, "next": {"id": "x"}}, "payload.next.id"),
        ({"id": 1, "note": {"string": "x"}}, "payload.note"),
        ({"id": 1, "raw": "abc"}, "payload.raw"),
        ({"id": 1, "raw": "a\u0100"}, "payload.raw"),
        ({}, "payload"),
    ],
    ids=repr,
)
def test_avro_takes_plain_json(payload: Any, found: str | None) -> None:
    told = misfit(NODE, payload, "avro")

    assert (told.path if told else None) == found


@settings(max_examples=200, deadline=None)
@given(types() | records(), st.data())
def test_avro_takes_what_fastavro_takes(schema: Any, data: st.DataObject) -> None:
    assume(is_schema(schema) and '"bytes"' not in json.dumps(schema) and '"fixed"' not in json.dumps(schema))
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    names = st.sampled_from(["a", "b", "c", "A"])
    inside = st.recursive(
        plain | names, lambda each: st.lists(each, max_size=2) | st.dictionaries(names, each), max_leaves=4
    )
    payload = data.draw(inside)
    # A field that is left out is taken for null, unless it is asked to be strict.
    expected = validate(payload, parse_schema(schema), raise_errors=False, strict=True)
    whole = json.loads(json.dumps(payload), parse_float=lambda text: Decimal(text))

    if not any(
        isinstance(each, Decimal) and each == int(each) for each in leaves(whole)
    ):  # 1.0 is an integer in JSON
        assert (misfit(schema, payload, "avro") is None) == expected


def leaves(value: Any) -> list[Any]:
    """The plain values in a value."""
    if isinstance(value, dict | list):
        return [
            leaf for each in (value.values() if isinstance(value, dict) else value) for leaf in leaves(each)
        ]
    return [value]


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ("strnig", "strnig"),
        (
            {"type": "record", "name": "O", "fields": [{"name": "a", "type": "int", "default": "x"}]},
            "Default",
        ),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "unique"),
        ({"type": "array"}, "items"),
        ({"type": "record", "name": "1 x", "fields": []}, "1 x"),
        ({"type": "fixed", "name": "F", "size": "x"}, "F"),
        ({"type": "record", "name": "O", "fields": 3}, ""),
        ({"type": "record", "name": ["O"], "fields": []}, ""),
        ({"__fastavro_parsed__": True, "type": "nonsense"}, "nonsense"),
        ([], ""),
    ],
    ids=repr,
)
def test_a_definition_that_is_no_avro_is_refused(definition: Any, told: str) -> None:
    assert told in str(refused(definition, "avro"))


@pytest.mark.parametrize("nested", [False, True])
def test_a_value_of_a_union_is_told_its_types(nested: bool) -> None:
    node: Any = {"id": 1, "note": {"string": "tea"}}

    told = misfit(NODE, {"id": 0, "next": node} if nested else node, "avro")

    assert told is not None
    assert told.reason == (
        '{"string": "tea"} is not null or string; a value stands by itself, without the name of its type'
    )


def test_a_type_that_there_is_not_is_named_with_its_place() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "ids", "type": {"type": "array", "items": "lnog"}}]
    of_avro = refused({"type": "record", "name": "N", "namespace": "shop", "fields": fields}, "avro")
    of_json = refused({"properties": {"a": {"type": "objekt"}}})

    assert (of_avro.detail or "").startswith(
        "definition.fields[1].type.items: there is no type 'lnog'; there are null, boolean, int"
    )
    assert (of_json.detail or "").startswith(
        'definition.properties.a.type: "objekt" is no type; there are array, boolean'
    )
