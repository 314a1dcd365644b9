"""Payloads against a definition: a Checker is compiled once, and says where one does not fit, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import jsonschema_rs

from holdfast.client._errors import InvalidSchemaError
from holdfast.client._json import UnreadableJson, read_json

from .avro import as_json_schema
from .limits import check_limits
from .places import place, shortened

MOST_REMEMBERED = (
    128  # definitions: a queue that is dropped and made anew cannot be mistaken for the one before
)
DEEPEST = 200  # levels of a payload; what is far deeper would end the process
TYPES = "array, boolean, integer, null, number, object, string, and lists of them"
BRANCHING = ("anyOf", "oneOf")
# An engine without look-around and back-references, whose time grows with the text and with nothing else.
LINEAR = jsonschema_rs.RegexOptions()
HINT = "Drafts 4 to 2020-12 are known. References stay inside the schema, and patterns have no look-around."


@dataclass(frozen=True, slots=True)
class Misfit:
    """Where a payload does not fit, and why."""

    path: str
    reason: str


class Checker:
    """A compiled definition."""

    def __init__(self, schema: Any, *, of_avro: bool = False) -> None:
        """schema: JSON Schema; of_avro: whether it was made of Avro, so that alternatives are unions."""
        self._validator = compiled(schema)
        self._unions = schema if of_avro else None

    def misfit(self, payload: str | bytes) -> Misfit | None:
        """The first place at which a payload, as JSON text, does not fit."""
        try:
            value = read_json(payload, parse_float=Decimal)
        except ValueError:
            return None  # it is no JSON: the engine has an error for that
        if isinstance(value, UnreadableJson) or is_deep(payload, value):
            return Misfit("payload", f"it is nested in more than {DEEPEST} levels")
        try:
            if self._validator.is_valid(value):
                return None
            return first_misfit(self._validator.iter_errors(value), self._unions)
        except ValueError as error:  # a number of thousands of digits
            return Misfit("payload", f"it cannot be checked: {shortened(str(error))}")


def first_misfit(errors: Iterator[jsonschema_rs.ValidationError], unions: Any) -> Misfit:
    """The first error; of alternatives none of which fits, that of the one that comes closest."""
    error = next(errors)
    while (closer := closest(error)) is not None:
        error = closer
    said = error.message
    if unions is not None and error.kind.name in BRANCHING:
        said = of_union(error, unions)
    return Misfit(place("payload", error.instance_path), shortened(said))


def of_union(error: jsonschema_rs.ValidationError, schema: Any) -> str:
    """What is wrong with a value that is of no type of its union."""
    for step in error.schema_path[:-1]:
        schema = schema[step]
    found = shortened(json.dumps(error.instance, default=str, ensure_ascii=False))
    return f"{found} is not {schema['title']}; a value stands by itself, without the name of its type"


def closest(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError | None:
    """Of the errors of alternatives the one that lies deepest, if it lies deeper than the alternatives."""
    if error.kind.name not in BRANCHING:
        return None
    found = [each for branch in getattr(error.kind, "context", []) for each in branch]
    best = max(found, key=lambda each: len(each.instance_path), default=error)
    return best if len(best.instance_path) > len(error.instance_path) else None


def compiled(schema: Any) -> Any:
    """The validator of a JSON Schema; nothing is fetched for it, from nowhere."""
    try:
        return jsonschema_rs.validator_for(
            schema, offline=True, validate_formats=True, pattern_options=LINEAR
        )
    except jsonschema_rs.ValidationError as error:
        where = place("definition", error.instance_path)
        said = error.message.split("\n")[0]
        if where.endswith(".type") and error.kind.name in BRANCHING:
            said = f"{json.dumps(error.instance, default=str)} is no type; there are {TYPES}"
        raise InvalidSchemaError(
            "QH106", "this is no JSON Schema", f"{where}: {shortened(said)}.", HINT
        ) from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchemaError(
            "QH106", "this is no JSON Schema", f"definition: {shortened(str(error))}.", HINT
        ) from error


def is_deep(text: str | bytes, value: Any) -> bool:
    """Whether a payload has too many levels: most have fewer brackets than that."""
    brackets = (
        text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    )
    return brackets > DEEPEST and depth(value) > DEEPEST


def depth(value: Any) -> int:
    """How many levels of arrays and objects there are."""
    levels, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        levels += 1
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return levels


@lru_cache(maxsize=MOST_REMEMBERED)
def checker(kind: str, definition: str) -> Checker:
    """The checker of a definition, as JSON text; an error if it is not one."""
    try:
        given = json.loads(definition)
    except (RecursionError, ValueError) as error:
        raise InvalidSchemaError(
            "QH106", "this is no JSON", f"definition: {shortened(str(error))}.", HINT
        ) from error
    check_limits(given)
    return Checker(as_json_schema(given), of_avro=True) if kind == "avro" else Checker(given)
