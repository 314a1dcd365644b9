"""Whether all that is valid under one JSON Schema is valid under another. What cannot be told counts as not.

The new schema is gone through keyword by keyword: each has to follow from the old one. The old one is taken
as a list of schemas that hold together (itself, its allOf, what it refers to), any one of which may imply
the keyword; where it has alternatives (anyOf, oneOf), the keyword may also follow from each of them.
Keywords that are not understood here (not, if, contains, dependentSchemas, unevaluatedProperties …) are
only allowed to stay as they are. Nothing is read or written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .json_bounds import BOUNDS
from .json_values import FRACTION, Kinds, canonical, kind_of, kinds_of, same
from .limits import pointed
from .objection import Objection
from .places import place

MOST_STEPS = 20_000
LATEST = "https://json-schema.org/draft/2020-12/schema"
ALONE_DRAFTS = ("draft-06", "draft-07")  # what stands beside $ref counts for nothing there
SILENT = frozenset(
    {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples"}
    | {"deprecated", "readOnly", "writeOnly"}
)
# What stays if it is the same as before, with what is beside it.
TOGETHER: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("pattern", "format", "not", "oneOf", "dependentSchemas")},
    **{name: (name,) for name in ("dependentRequired", "dependencies")},
    **dict.fromkeys(("contains", "minContains", "maxContains"), ("contains", "minContains", "maxContains")),
    **dict.fromkeys(("if", "then", "else"), ("if", "then", "else")),
}
# What depends on all that is beside it. Other keywords than these are notes of somebody's own.
WHOLE = frozenset(
    {"additionalItems", "unevaluatedItems", "unevaluatedProperties"}
    | {"contentEncoding", "contentMediaType", "contentSchema"}
)
ELSEWHERE = frozenset(
    {"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"}
)
# What a keyword looks at: of other values it says nothing.
LOOKS_AT: Mapping[str, str] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"), "array"),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties", "required"), "object"),
    **dict.fromkeys(("propertyNames", "minProperties", "maxProperties", "dependentRequired"), "object"),
}
Schemas = Sequence[Any]
Path = tuple[str | int, ...]
UNDECIDED = "this cannot be compared with what was there before"


def excluded(old: Any, new: Any) -> Iterator[Objection]:
    """Where the new schema may exclude what the old one allowed."""
    if canonical(old) == canonical(new):
        return
    if draft(old) != draft(new):
        yield Objection("definition.$schema", "it was another draft")
    elif "draft-04" in draft(old):
        yield Objection("definition.$schema", "schemas of draft 4 are not compared")
    elif leads_elsewhere(old) or leads_elsewhere(new):
        yield Objection("definition", "schemas with references by names or addresses are not compared")
    else:
        yield from Comparison(old, new).objections()


def draft(schema: Any) -> str:
    """The draft of a schema."""
    return str(schema.get("$schema", LATEST)).rstrip("#") if isinstance(schema, dict) else LATEST


def leads_elsewhere(schema: Any, root: bool = True) -> bool:
    """Whether references in a schema lead elsewhere than along its own structure."""
    if isinstance(schema, list):
        return any(leads_elsewhere(each, root=False) for each in schema)
    if not isinstance(schema, dict):
        return False
    names = ELSEWHERE - ({"$id"} if root else frozenset())
    named = any(isinstance(schema.get(name), str | bool) for name in names)
    reference = schema.get("$ref")
    foreign = isinstance(reference, str) and reference != "#" and not reference.startswith("#/")
    return named or foreign or any(leads_elsewhere(each, root=False) for each in schema.values())


def references(root: Any, schema: Any, found: dict[str, str] | None = None) -> dict[str, str]:
    """What a schema refers to, also by way of others: each reference with what is there."""
    found = {} if found is None else found
    if isinstance(schema, list):
        for each in schema:
            references(root, each, found)
    elif isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in found:
            target = pointed(root, reference)
            found[reference] = canonical(target)
            references(root, target, found)
        for each in schema.values():
            references(root, each, found)
    return found


@dataclass(frozen=True, slots=True)
class Both:
    """What holds of a value under the old schema, and one schema of the new one that is to follow."""

    old: Schemas
    new: dict[str, Any]
    path: Path


class Comparison:
    """Two documents."""

    def __init__(self, old: Any, new: Any) -> None:
        self._old, self._new = old, new
        self._alone = any(name in draft(old) for name in ALONE_DRAFTS)
        self._tuples = draft(old) == LATEST
        self._steps = 0
        self._assumed: dict[str, None] = {}
        self._rules: Mapping[str, Callable[[Both], Iterator[Objection]]] = {
            "$ref": self._reference,
            "type": self._type,
            "enum": self._values,
            "const": self._constant,
            "allOf": self._all,
            "anyOf": self._any,
            "properties": self._properties,
            "patternProperties": self._patterns,
            "additionalProperties": self._others,
            "propertyNames": self._names,
            "required": self._required,
            "items": self._items,
            "uniqueItems": self._unique,
        } | ({"prefixItems": self._first_items} if self._tuples else {})

    def objections(self) -> Iterator[Objection]:
        """All there are."""
        return self._follows([self._old], self._new, ())

    def _follows(self, old: Schemas, new: Any, path: Path) -> Iterator[Objection]:
        """Why a schema does not follow from those that hold together."""
        together = self._flat(old)
        if new is True or new == {} or any(each is False for each in together):
            return
        if new is False:
            yield Objection(at(path), "nothing is allowed here any more")
            return
        mark = canonical([together, new])
        if (
            mark in self._assumed
        ):  # deeper in the value: what is assumed of all values is assumed of a part too
            return
        self._assumed[mark] = None
        for keyword in new:
            yield from self._keyword(keyword, Both(together, new, path))

    def _keyword(self, keyword: str, both: Both) -> Iterator[Objection]:
        self._steps += 1
        if self._steps > MOST_STEPS:
            yield Objection(at(both.path), "this would take too long to compare")
            return
        objection = self._first(keyword, both)
        if objection is not None and not any(
            all(self._first(keyword, self._case(both, branch)) is None for branch in branches)
            for branches in alternatives(both.old)
        ):
            yield objection

    def _first(self, keyword: str, both: Both) -> Objection | None:
        """An objection, if there is any; what was assumed on the way to it counts no more."""
        before = len(self._assumed)
        objection = next(self._judged(keyword, both), None)
        while objection is not None and len(self._assumed) > before:
            self._assumed.popitem()
        return objection

    def _case(self, both: Both, branch: Any) -> Both:
        return Both(self._flat([*both.old, branch]), both.new, both.path)

    def _judged(self, keyword: str, both: Both) -> Iterator[Objection]:
        """The objections of one keyword, in one case."""
        kind = LOOKS_AT.get(keyword)
        impossible = any(each is False for each in both.old)
        if impossible or keyword in SILENT or (kind is not None and kind not in allowed(both.old)):
            return iter(())
        if (rule := self._rules.get(keyword)) is not None:
            return rule(both)
        if keyword in BOUNDS:
            return self._bound(keyword, both)
        if keyword in TOGETHER:
            return self._kept(keyword, both)
        return self._whole(keyword, both) if keyword in WHOLE else iter(())

    # What holds together

    def _flat(self, old: Schemas) -> list[Any]:
        """The old schemas with all that they include."""
        found: list[Any] = []
        waiting = list(old)
        while waiting:
            each = waiting.pop(0)
            if any(each is known for known in found) or each is True:
                continue
            if not isinstance(each, dict):
                found.append(each)
                continue
            target = pointed(self._old, each["$ref"]) if isinstance(each.get("$ref"), str) else None
            if target is None or not self._alone:
                found.append(each)
                waiting += each["allOf"] if isinstance(each.get("allOf"), list) else []
            if target is not None:
                waiting.append(target)
        return found

    # Keywords

    def _alike(self, schema: Any) -> bool:
        """Whether the same text means the same in both documents."""
        return references(self._old, schema) == references(self._new, schema)

    def _kept(self, keyword: str, both: Both) -> Iterator[Objection]:
        """What has to be as it was before."""
        wanted = {name: both.new[name] for name in TOGETHER[keyword] if name in both.new}
        before = [
            {name: each[name] for name in TOGETHER[keyword] if name in each} for each in rules(both.old)
        ]
        if not any(same(each, wanted) for each in before) or not self._alike(wanted):
            yield Objection(at((*both.path, keyword)), "it is new, or another than before")

    def _whole(self, keyword: str, both: Both) -> Iterator[Objection]:
        if not any(same(each, both.new) for each in both.old) or not self._alike(both.new):
            yield Objection(at((*both.path, keyword)), UNDECIDED)

    def _unique(self, both: Both) -> Iterator[Objection]:
        if both.new["uniqueItems"] and not any(each.get("uniqueItems") is True for each in rules(both.old)):
            yield Objection(at((*both.path, "uniqueItems")), "an item may be there twice in what was sent")

    def _reference(self, both: Both) -> Iterator[Objection]:
        target = pointed(self._new, both.new["$ref"])
        if target is None:
            yield Objection(at((*both.path, "$ref")), UNDECIDED)
        else:
            yield from self._follows(both.old, target, both.path)

    def _type(self, both: Both) -> Iterator[Objection]:
        gone = allowed(both.old) - kinds_of(both.new["type"])
        if gone:
            shown = " or ".join(sorted(gone - {FRACTION} or gone))
            yield Objection(at((*both.path, "type")), f"it may have been sent as {shown}")

    def _values(self, both: Both) -> Iterator[Objection]:
        return self._among(both, "enum", both.new["enum"])

    def _constant(self, both: Both) -> Iterator[Objection]:
        return self._among(both, "const", [both.new["const"]])

    def _among(self, both: Both, keyword: str, wanted: list[Any]) -> Iterator[Objection]:
        before = finite(both.old)
        if before is None:
            yield Objection(at((*both.path, keyword)), "it may have been sent as something else")
            return
        gone = [value for value in before if not any(same(value, each) for each in wanted)]
        if gone:
            shown = json.dumps(gone[0], ensure_ascii=False)[:100]
            yield Objection(at((*both.path, keyword)), f"the value {shown} is gone")

    def _bound(self, keyword: str, both: Both) -> Iterator[Objection]:
        if not any(BOUNDS[keyword](each, both.new[keyword]) for each in rules(both.old)):
            yield Objection(at((*both.path, keyword)), f"what was sent may be beyond {both.new[keyword]}")

    def _all(self, both: Both) -> Iterator[Objection]:
        for number, each in enumerate(both.new["allOf"]):
            yield from self._follows(both.old, each, (*both.path, "allOf", number))

    def _any(self, both: Both) -> Iterator[Objection]:
        if not any(self._surely(both.old, branch, both.path) for branch in both.new["anyOf"]):
            yield Objection(at((*both.path, "anyOf")), "what was sent may fit none of the alternatives")

    def _surely(self, old: Schemas, new: Any, path: Path) -> bool:
        """Whether a schema follows; what was assumed on the way to a no counts no more."""
        before = len(self._assumed)
        sure = next(self._follows(old, new, path), None) is None
        while not sure and len(self._assumed) > before:
            self._assumed.popitem()
        return sure

    # Objects

    def _required(self, both: Both) -> Iterator[Objection]:
        before = {name for each in rules(both.old) for name in strings(each.get("required"))}
        for name in strings(both.new["required"]):
            if name not in before:
                yield Objection(
                    at((*both.path, "required")), f"{json.dumps(name)} may be missing in what was sent"
                )

    def _properties(self, both: Both) -> Iterator[Objection]:
        for name, schema in both.new["properties"].items():
            here = (*both.path, "properties", name)
            before = self._property(both.old, name, ())
            found = self._follows(before, schema, here)
            if before:
                yield from found
            elif next(found, None) is not None:
                yield Objection(at(here), "other properties were allowed: it may have been sent, as anything")

    def _property(self, old: Schemas, name: str, unmatched: Sequence[str]) -> list[Any]:
        """What holds of a property; unmatched: patterns that its name is known not to match."""
        found = []
        for each in rules(old):
            if name in each.get("properties", {}):
                found.append(each["properties"][name])
            elif "additionalProperties" in each and set(each.get("patternProperties", {})) <= set(unmatched):
                found.append(each["additionalProperties"])
        return found

    def _patterns(self, both: Both) -> Iterator[Objection]:
        for pattern, schema in both.new["patternProperties"].items():
            known = (each.get("patternProperties", {}) for each in rules(both.old))
            before = [schemas[pattern] for schemas in known if pattern in schemas]
            yield from self._follows(before, schema, (*both.path, "patternProperties", pattern))

    def _others(self, both: Both) -> Iterator[Objection]:
        schema, here = both.new["additionalProperties"], (*both.path, "additionalProperties")
        named = set(both.new.get("properties", {}))
        patterns = list(both.new.get("patternProperties", {}))
        before = {name for each in rules(both.old) for name in each.get("properties", {})}
        for name in sorted(before - named):
            yield from self._follows(
                self._property(both.old, name, patterns), schema, (*both.path, "properties", name)
            )
        yield from self._follows(self._property(both.old, UNNAMED, patterns), schema, here)

    def _names(self, both: Both) -> Iterator[Objection]:
        before = [each["propertyNames"] for each in rules(both.old) if "propertyNames" in each]
        yield from self._follows(
            [{"type": "string"}, *before], both.new["propertyNames"], (*both.path, "propertyNames")
        )

    # Arrays

    def _first_items(self, both: Both) -> Iterator[Objection]:
        for number, schema in enumerate(both.new["prefixItems"]):
            yield from self._follows(
                self._item(both.old, number), schema, (*both.path, "prefixItems", number)
            )

    def _items(self, both: Both) -> Iterator[Objection]:
        schema, here = both.new["items"], (*both.path, "items")
        if isinstance(schema, list):  # of earlier drafts
            yield from self._whole("items", both)
            return
        first = len(both.new.get("prefixItems", []))
        last = max([first, *(len(each.get("prefixItems", [])) for each in rules(both.old))])
        for number in range(first, last):
            yield from self._follows(self._item(both.old, number), schema, (*here, number))
        yield from self._follows(self._item(both.old, last), schema, here)

    def _item(self, old: Schemas, number: int) -> list[Any]:
        """What holds of an item."""
        found = []
        for each in rules(old):
            if self._tuples and number < len(each.get("prefixItems", [])):
                found.append(each["prefixItems"][number])
            elif "items" in each and not isinstance(each["items"], list):
                found.append(each["items"])
        return found


UNNAMED = "\0"  # a property that no schema names


def rules(old: Schemas) -> Iterator[dict[str, Any]]:
    """The schemas that are not just true or false."""
    return (each for each in old if isinstance(each, dict))


def alternatives(old: Schemas) -> Iterator[list[Any]]:
    """The cases that a value under the old schemas can be: of each list, it is one."""
    for each in rules(old):
        for keyword in ("anyOf", "oneOf"):
            if isinstance(each.get(keyword), list):
                yield each[keyword]


def allowed(old: Schemas) -> Kinds:
    """The kinds of values that the old schemas allow together."""
    found = kinds_of(["null", "boolean", "number", "string", "array", "object"])
    for each in rules(old):
        if "type" in each:
            found &= kinds_of(each["type"])
        if (values := finite([each])) is not None:
            found &= frozenset(kind for value in values for kind in kind_of(value))
    return found


def finite(old: Schemas) -> list[Any] | None:
    """The values that can be there, if the old schemas name them."""
    for each in rules(old):
        if "const" in each:
            return [each["const"]]
        if isinstance(each.get("enum"), list):
            return list(each["enum"])
    return None


def strings(value: Any) -> list[str]:
    """A list of names; draft 3 and mistakes have others."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def at(path: Path) -> str:
    """Where."""
    return place("definition", path)
