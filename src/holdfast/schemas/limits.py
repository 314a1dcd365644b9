"""How large a definition may be: deep ones, and alternatives that multiply, would hold everybody up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.client._errors import InvalidSchemaError

DEEPEST = 64  # levels of a definition
MOST_STEPS = 10_000  # of one look at one value, with references followed
LISTED = ("allOf", "anyOf", "oneOf")
SINGLE = ("not", "if", "then", "else")


def check_limits(definition: Any) -> None:
    """Refuse a definition that is too deep, or that takes too many steps."""
    if levels(definition) > DEEPEST:
        raise too_large(
            f"It has more than {DEEPEST} levels.", "Name parts of it in $defs, and refer to them."
        )
    steps = Steps(definition)
    if any(steps.of(schema) > MOST_STEPS for schema in objects(definition)):
        raise too_large(
            f"To look at one value takes more than {MOST_STEPS:,} steps: alternatives multiply.",
            "Let alternatives differ by one property.",
        )


def too_large(detail: str, hint: str) -> InvalidSchemaError:
    """The refusal."""
    return InvalidSchemaError("QH106", "the schema is too large", detail, hint)


def levels(definition: Any) -> int:
    """How many levels of arrays and objects there are, counted up to one too many."""
    found, level = 0, [definition]
    while found <= DEEPEST and (level := [each for each in level if isinstance(each, dict | list)]):
        found += 1
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return found


def objects(definition: Any) -> Iterator[dict[str, Any]]:
    """Every object in a definition."""
    if isinstance(definition, dict):
        yield definition
    if isinstance(definition, dict | list):
        for each in definition.values() if isinstance(definition, dict) else definition:
            yield from objects(each)


class Steps:
    """Counts what a look at one value may come by, references followed; refuses to go round in a circle."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int | None] = {}  # None: begun

    def of(self, schema: Any) -> int:
        """The steps of one schema."""
        if not isinstance(schema, dict):
            return 1
        if id(schema) not in self._known:
            self._known[id(schema)] = None
            self._known[id(schema)] = min(1 + sum(map(self.of, self._together(schema))), MOST_STEPS + 1)
        known = self._known[id(schema)]
        if known is None:
            raise InvalidSchemaError(
                "QH106",
                "the schema goes round in a circle",
                "A part of it refers to itself, for the same value.",
                "Refer to a part of itself under properties or items.",
            )
        return known

    def _together(self, schema: dict[str, Any]) -> Iterator[Any]:
        """What looks at the same value."""
        for name in LISTED:
            yield from schema[name] if isinstance(schema.get(name), list) else ()
        yield from (schema[name] for name in SINGLE if name in schema)
        dependent = schema.get("dependentSchemas")
        yield from dependent.values() if isinstance(dependent, dict) else ()
        if isinstance(schema.get("$ref"), str):
            yield pointed(self._root, schema["$ref"])


def pointed(root: Any, reference: str) -> Any:
    """What a reference such as #/$defs/item points to; None if it is of another form, or leads nowhere."""
    if not reference.startswith("#"):
        return None
    found = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found if reference == "#" or reference[1] == "/" else None
