"""Compatible changes of an Avro schema.

1. If a change is called compatible, fastavro reads with the new schema whatever it wrote with the old one.
2. An objection says where and why.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_many
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from holdfast.schemas.avro_compatibility import unreadable

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "string", "bytes"]
primitives = st.sampled_from(PRIMITIVES)


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> Any:
    """A type, or one with others in it."""
    kind = draw(st.sampled_from(["plain", "plain", "array", "map", "enum", "fixed", "record", "union"]))
    if kind == "plain" or depth == 0:
        return draw(primitives)
    if kind in ("array", "map"):
        return {"type": kind, "items" if kind == "array" else "values": draw(types(depth - 1))}
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
        default = draw(st.sampled_from([{}, {"default": symbols[0]}]))
        return {"type": "enum", "name": f"E{depth}", "symbols": symbols, **default}
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{depth}", "size": draw(st.integers(1, 2))}
    if kind == "union":
        return draw(st.lists(primitives, min_size=1, max_size=3, unique=True))
    return draw(records(depth - 1))


@st.composite
def records(draw: st.DrawFn, depth: int = 1) -> Any:
    """A record, of one of two names, whose fields may have defaults and other names."""
    fields = []
    for name in draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True)):
        field: dict[str, Any] = {"name": name, "type": draw(types(depth))}
        if isinstance(field["type"], str) and draw(st.booleans()):
            field["default"] = DEFAULTS[field["type"]]
        if draw(st.integers(0, 4)) == 0:
            field["aliases"] = [draw(st.sampled_from("xyz"))]
        fields.append(field)
    name = draw(st.sampled_from(["R", "R", "R", "S"])) + str(depth)
    return {"type": "record", "name": name, "fields": fields}


DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 1,
    "float": 1.5,
    "double": 1.5,
    "string": "a",
    "bytes": "a",
}


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """A schema with a few changes somewhere in it."""
    if isinstance(schema, str) and draw(st.booleans()):
        promoted = {"int": "long", "long": "double", "float": "double", "string": "bytes", "bytes": "string"}
        return promoted.get(schema, schema)
    if not isinstance(schema, dict) or draw(st.integers(0, 6)) == 0:
        return draw(st.sampled_from([schema, ["null", schema]]) if isinstance(schema, str) else types())
    new = dict(schema)
    for inside in {"items", "values"} & new.keys():
        new[inside] = draw(changed(new[inside]))
    if "symbols" in new:
        new["symbols"] = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
        new.pop("default", None)
        new |= draw(st.sampled_from([{}, {"default": new["symbols"][0]}]))
    if "fields" in new:
        new["fields"] = [draw(changed_field(field)) for field in new["fields"] if draw(st.integers(0, 5))]
    return new


@st.composite
def changed_field(draw: st.DrawFn, field: dict[str, Any]) -> dict[str, Any]:
    """A field of another type, or with another name."""
    new = dict(field)
    if draw(st.booleans()):
        new["type"] = draw(changed(field["type"]))
        new.pop("default", None)
    if draw(st.integers(0, 3)) == 0:
        new |= {"name": f"{field['name']}2", "aliases": [field["name"]]}
    return new


def is_schema(schema: Any) -> bool:
    """Whether names are not given twice, and unions do not hold a type twice."""
    try:
        fastavro.parse_schema(schema, {}, _force=True)
        list(generate_many(schema, 1))
    except (fastavro.schema.SchemaParseException, ValueError):
        return False
    return True


def as_ascii(value: Any) -> Any:
    """A value whose bytes are text: of a union with both, fastavro reads bytes as a string that is first."""
    match value:
        case bytes():
            return bytes(byte & 0x7F for byte in value)
        case dict():
            return {name: as_ascii(inside) for name, inside in value.items()}
        case list():
            return [as_ascii(inside) for inside in value]
    return value


def read(old: Any, new: Any, value: Any) -> Any:
    """What a reader of the new schema makes of a value that was written with the old one."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, old, value)
    written.seek(0)
    return fastavro.schemaless_reader(written, old, new)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_was_written_is_read_after_a_compatible_change(data: st.DataObject) -> None:
    old = data.draw(types() | records())
    new = data.draw(changed(old))
    assume(is_schema(old) and is_schema(new))
    compatible = next(unreadable(old, new), None) is None
    event(f"compatible: {compatible}")

    if compatible:
        for value in generate_many(old, 5):
            read(old, new, as_ascii(value))


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    """A record with these fields."""
    return {"type": "record", "name": "shop.Order", "fields": list(fields), **more}


ID = {"name": "id", "type": "int"}
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
ORDER = record(ID, {"name": "state", "type": STATE})


@pytest.mark.parametrize(
    "new",
    [
        ORDER,
        record(ID),
        record({"name": "id", "type": "long"}, {"name": "state", "type": ["null", STATE]}),
        record(ID, {"name": "note", "type": ["null", "string"], "default": None}),
        record({"name": "number", "aliases": ["id"], "type": "int"}),
        record(ID, name="other.Order"),
        record(ID, name="Bill", aliases=["Order"]),
        record({"name": "state", "type": {**STATE, "symbols": ["NEW"], "default": "NEW"}}),
    ],
    ids=repr,
)
def test_what_readers_can_resolve_is_compatible(new: Any) -> None:
    assert list(unreadable(ORDER, new)) == []


@pytest.mark.parametrize(
    ("new", "path", "reason"),
    [
        (record(ID, {"name": "note", "type": "string"}), "definition.note", "no default"),
        (record({"name": "id", "type": "string"}), "definition.id", "it was int"),
        (record({"name": "id", "type": ["null", "string"]}), "definition.id", "no branch"),
        (record({"name": "state", "type": {**STATE, "symbols": ["NEW"]}}), "definition.state", "PAID"),
        (record({"name": "id", "type": {"type": "int", "logicalType": "date"}}), "definition.id", "logical"),
        (record(ID, name="Bill"), "definition", "record shop.Order"),
        ("string", "definition", "it was record"),
    ],
    ids=repr,
)
def test_what_readers_cannot_resolve_is_refused_with_place_and_reason(
    new: Any, path: str, reason: str
) -> None:
    (objection,) = unreadable(ORDER, new)

    assert objection.path == path
    assert reason in objection.reason


def test_records_that_refer_to_themselves_are_compared() -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    value = {"name": "value", "type": "int"}

    assert list(unreadable(node, node)) == []
    assert [each.path for each in unreadable(node, {**node, "fields": [*node["fields"], value]})] == [
        "definition.value"
    ]
