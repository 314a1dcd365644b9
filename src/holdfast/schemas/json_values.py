"""Values of JSON as JSON Schema sees them: their kinds, and when two are the same."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, TypeAlias

Kinds: TypeAlias = frozenset[str]
FRACTION = "fraction"  # a number that is not whole


def kinds_of(types: Any) -> Kinds:
    """The kinds that the keyword type names; number is whole numbers and others."""
    found: set[str] = set()
    for name in [types] if isinstance(types, str) else types:
        found |= {"number", FRACTION} if name == "number" else {"number"} if name == "integer" else {name}
    return frozenset(found)


def kind_of(value: Any) -> Kinds:
    """The kinds of one value."""
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int() | float() | Decimal():
            return frozenset({"number"} if value == int(value) else {"number", FRACTION})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
    return frozenset({"object"})


def canonical(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(normal(value), sort_keys=True)


def normal(value: Any) -> Any:
    """A value in which 1.0 is 1, and true is not."""
    if isinstance(value, list):
        return [normal(each) for each in value]
    if isinstance(value, dict):
        return {name: normal(each) for name, each in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, where true is not 1, and 1.0 is."""
    return canonical(one) == canonical(other)
