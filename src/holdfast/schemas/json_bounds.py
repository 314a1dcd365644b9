"""Bounds of JSON Schema: when that of one schema implies that of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .json_values import same

COUNTED = ("minLength", "minItems", "minProperties")  # nothing has fewer than none


def number(value: Any) -> Any:
    """A number, or None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def at_least(*names: str, strict: bool = False) -> Callable[[dict[str, Any], Any], bool]:
    """Whether one of these bounds of a schema is at least as high as wanted."""

    def holds(schema: dict[str, Any], wanted: Any) -> bool:
        low = number(wanted)
        if low == 0 and not strict and names[0] in COUNTED:
            return True
        found = [(name, number(schema.get(name))) for name in names]
        return low is not None and any(
            value is not None and (value > low or (value == low and not (strict and name == "minimum")))
            for name, value in found
        )

    return holds


def at_most(*names: str, strict: bool = False) -> Callable[[dict[str, Any], Any], bool]:
    """Whether one of these bounds of a schema is at least as low as wanted."""

    def holds(schema: dict[str, Any], wanted: Any) -> bool:
        high = number(wanted)
        found = [(name, number(schema.get(name))) for name in names]
        return high is not None and any(
            value is not None and (value < high or (value == high and not (strict and name == "maximum")))
            for name, value in found
        )

    return holds


def is_multiple(schema: dict[str, Any], wanted: Any) -> bool:
    """Whether all multiples of the one are multiples of the other."""
    had = schema.get("multipleOf")
    if isinstance(had, int) and isinstance(wanted, int):
        return had % wanted == 0
    return had is not None and same(had, wanted)


BOUNDS: Mapping[str, Callable[[dict[str, Any], Any], bool]] = {
    "minimum": at_least("minimum", "exclusiveMinimum"),
    "exclusiveMinimum": at_least("minimum", "exclusiveMinimum", strict=True),
    "maximum": at_most("maximum", "exclusiveMaximum"),
    "exclusiveMaximum": at_most("maximum", "exclusiveMaximum", strict=True),
    "multipleOf": is_multiple,
    **{name: at_least(name) for name in COUNTED},
    **{name: at_most(name) for name in ("maxLength", "maxItems", "maxProperties")},
}
