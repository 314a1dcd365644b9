"""Small JSON Schemas that meet one another, and values to try them on."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
PLAIN: list[Any] = [None, True, False, 0, 1, 2, -1, 1.5, "", "a", "ab", "b1"]
LISTS: list[Any] = [list(some) for n in range(3) for some in itertools.product([0, 1.5, "a", None], repeat=n)]
NESTED: list[Any] = [[[1]], [{"a": 1}], {"a": {"a": 1}}, {"a": {"b": "a"}}, {"b": [1, "a"]}, {"a": [None]}]
OBJECTS: list[Any] = [
    dict(zip(names, values, strict=True))
    for n in range(3)
    for names in itertools.combinations(["a", "b", "c", "ab"], n)
    for values in itertools.product([0, "a", None], repeat=n)
]
POOL = [*PLAIN, *LISTS, *NESTED, *OBJECTS]

numbers = st.sampled_from([-1, 0, 1, 2, 1.5])
sizes = st.integers(0, 2)
names = st.sampled_from(["a", "b", "c"])
patterns = st.sampled_from(["^a", "b"])
references = st.sampled_from(["#/$defs/one", "#/$defs/two"])


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some keywords together."""
    several = st.lists(inner, min_size=1, max_size=2)
    choices: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(TYPES)
        | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
        "enum": st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3, unique_by=repr),
        "const": st.sampled_from(PLAIN),
        "minimum": numbers,
        "maximum": numbers,
        "exclusiveMinimum": numbers,
        "exclusiveMaximum": numbers,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": sizes,
        "maxLength": sizes,
        "pattern": patterns,
        "minItems": sizes,
        "maxItems": sizes,
        "uniqueItems": st.booleans(),
        "items": inner,
        "prefixItems": several,
        "contains": inner,
        "minContains": sizes,
        "maxContains": sizes,
        "required": st.lists(names, max_size=2, unique=True),
        "properties": st.dictionaries(names, inner, max_size=2),
        "patternProperties": st.dictionaries(patterns, inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "minProperties": sizes,
        "maxProperties": sizes,
        "dependentRequired": st.dictionaries(names, st.lists(names, max_size=1), max_size=1),
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "$ref": references,
        "title": st.just("a note"),
    }
    some = st.lists(st.sampled_from(sorted(choices)), max_size=4, unique=True)
    return some.flatmap(lambda chosen: st.fixed_dictionaries({name: choices[name] for name in chosen}))


subschemas = st.recursive(st.booleans() | keywords(st.booleans()), keywords, max_leaves=5)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A schema with definitions to refer to."""
    return {**draw(keywords(subschemas)), "$defs": {"one": draw(subschemas), "two": draw(subschemas)}}


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """A schema with a few changes somewhere in it."""
    if not isinstance(schema, dict) or draw(st.integers(0, 5)) == 0:
        return draw(subschemas)
    new = dict(schema)
    how = draw(st.sampled_from(["less", "more", "inside", "inside", "wrap"]))
    if how == "less" and new:
        new.pop(draw(st.sampled_from(sorted(new))))
    elif how == "more":
        new |= draw(keywords(subschemas))
    elif how == "wrap":
        new = {"anyOf": [new, draw(subschemas)]}
    else:
        inside = [name for name, value in sorted(new.items()) if isinstance(value, dict | list) and value]
        if inside:
            name = draw(st.sampled_from(inside))
            new[name] = draw(changed_part(name, new[name]))
    return new


@st.composite
def changed_part(draw: st.DrawFn, name: str, value: Any) -> Any:
    """The value of a keyword with a change in it."""
    if name in ("properties", "patternProperties", "$defs"):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: draw(changed(value[key]))}
    if name in ("allOf", "anyOf", "oneOf", "prefixItems"):
        return [draw(changed(value[0])), *value[1:]]
    if name in ("enum", "required", "type"):
        return value[1:] or value
    return draw(changed(value)) if isinstance(value, dict) else value


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """A document and a changed one."""
    old = draw(documents())
    new = draw(changed(old))
    if isinstance(new, dict) and "$defs" not in new:
        new = {**new, "$defs": old["$defs"]}
    return old, new
