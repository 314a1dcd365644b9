"""Avro as JSON Schema: what a payload in JSON looks like that an Avro schema describes.

A payload is plain JSON, as people write it: a value of a union stands there by itself, without the name of
its branch; bytes are text of the characters 0 to 255; a field that has a default may be left out; fields
that the schema does not name are passed over, as readers do. A logical type counts as the type below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from holdfast.client._errors import InvalidSchemaError

from .places import place, shortened

OCTETS = r"^[\x00-\xff]*$"
TYPES_IN = {"type", "items", "values", "fields"}
PRIMITIVES: dict[str, Any] = {
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "long": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "pattern": OCTETS},
}
HINT = "See the Avro specification; names are looked up inside the schema only."


def parsed(definition: Any) -> Any:
    """A definition with every name in full; an error if it is no Avro schema."""
    try:
        # Forced: a definition that says of itself that it was parsed is not believed.
        return parse_schema(definition, {}, _force=True, _write_hint=False)
    except UnknownType as error:
        name = str(error.name).rpartition(".")[2]
        known = ", ".join(PRIMITIVES)
        reason = f"there is no type {name!r}; there are {known}, and those that the schema defines before"
        raise refusal(reason, next(uses(definition, name), ())) from error
    except (SchemaParseException, ValueError) as error:
        raise refusal(str(error)) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise refusal(f"something is missing or of the wrong type: {error}") from error


def refusal(reason: str, path: tuple[str | int, ...] = ()) -> InvalidSchemaError:
    """What is wrong with a definition, and where."""
    detail = f"{place('definition', path)}: {shortened(reason)}."
    return InvalidSchemaError("QH106", "this is no Avro schema", detail, HINT)


def uses(definition: Any, name: str, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a type is used by its name."""
    if isinstance(definition, str) and definition.rpartition(".")[2] == name:
        yield path
    elif isinstance(definition, list):
        for nth, each in enumerate(definition):
            yield from uses(each, name, (*path, nth))
    elif isinstance(definition, dict):
        for key in TYPES_IN & definition.keys():
            yield from uses(definition[key], name, (*path, key))


def as_json_schema(definition: Any) -> dict[str, Any]:
    """The JSON Schema of payloads."""
    names: dict[str, Any] = {}
    found = shape(parsed(definition), names)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [found], "$defs": names}


def shape(schema: Any, names: dict[str, Any]) -> Any:
    """The JSON Schema of one type; those that have names go there."""
    if isinstance(schema, list):
        names_of = (each if isinstance(each, str) else str(each.get("name", each["type"])) for each in schema)
        return {"title": " or ".join(names_of), "anyOf": [shape(branch, names) for branch in schema]}
    if isinstance(schema, str):
        return PRIMITIVES.get(schema) or {"$ref": f"#/$defs/{schema}"}
    match schema["type"]:
        case "array":
            return {"type": "array", "items": shape(schema["items"], names)}
        case "map":
            return {"type": "object", "additionalProperties": shape(schema["values"], names)}
        case "enum" | "fixed" | "record" | "error":
            names[schema["name"]] = {}  # it may refer to itself
            names[schema["name"]] = named(schema, names)
            return {"$ref": f"#/$defs/{schema['name']}"}
        case below:
            return shape(below, names)


def named(schema: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a type that has a name."""
    if schema["type"] == "enum":
        return {"enum": list(schema["symbols"])}
    if schema["type"] == "fixed":
        return {"type": "string", "pattern": OCTETS, "minLength": schema["size"], "maxLength": schema["size"]}
    return {
        "type": "object",
        "properties": {field["name"]: shape(field["type"], names) for field in schema["fields"]},
        "required": [field["name"] for field in schema["fields"] if "default" not in field],
    }
