"""Wording: what msgspec says of a value that it does not take, in plain words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

import msgspec

TIME = "a time such as 2040-01-01T00:00:00Z"
KINDS = MappingProxyType(
    {
        "int": "a whole number",
        "float": "a number",
        "str": "text",
        "bool": "true or false",
        "array": "a list",
        "object": "an object",
        "null": "null",
        "datetime": TIME,
        "uuid": "a UUID",
    }
)
# What may come in several shapes has a name of its own.
UNIONS = MappingProxyType(
    {
        frozenset({"int", "str"}): "an id",
        frozenset({"float", "str"}): 'a length of time (30, or "30 s")',
    }
)
SAID = MappingProxyType(
    {
        "Invalid UUID": "Expected a UUID",
        "Invalid RFC3339 encoded datetime": f"Expected {TIME}",
        "Expected `datetime` with a timezone component": f"Expected a time with a zone, {TIME[7:]}",
        "Number out of range": "The number is out of range",
    }
)
OTHER_KIND = re.compile(r"Expected `(?P<kinds>[^`]+)`, got `(?P<got>\w+)`")
BOUND = re.compile(r"Expected `\w+` (?P<sign>[<>]=) (?P<bound>-?[0-9.]+)")
LENGTH = re.compile(r"Expected `(?P<kind>\w+)` of length (?P<sign>[<>]=) (?P<bound>\d+)")
PATTERN = re.compile(r"Expected `str` matching regex '(?P<pattern>.*)'", re.DOTALL)
NO_CHOICE = "Invalid enum value"
SIGNS = {"<=": "at most", ">=": "at least"}


def plain(said: str, place: str, *, as_text: bool) -> str:
    """What is wrong with a value; as_text: in a query, where all is text."""
    if said in SAID:
        return SAID[said]
    if said.startswith(NO_CHOICE):
        return f"Got{said.removeprefix(NO_CHOICE)}"
    if found := OTHER_KIND.fullmatch(said):
        return other_kind(found["kinds"].split(" | "), found["got"], as_text=as_text)
    if found := BOUND.fullmatch(said):
        return f"Expected {SIGNS[found['sign']]} {float(found['bound']):,.15g}"
    if found := LENGTH.fullmatch(said):
        items = "items" if found["kind"] == "array" else "characters"
        return f"Expected {SIGNS[found['sign']]} {int(found['bound']):,} {items}"
    if found := PATTERN.fullmatch(said):
        return of_pattern(found["pattern"], place)
    return said.replace("`", "")


def other_kind(kinds: list[str], got: str, *, as_text: bool) -> str:
    """A value of the wrong kind."""
    known = [kind for kind in kinds if kind != "null"]
    wanted = UNIONS.get(frozenset(known)) or " or ".join(KINDS.get(kind, kind) for kind in known)
    if len(known) < len(kinds) and not as_text:
        wanted += " or null"
    if as_text:
        return f"Expected {wanted}"
    return f"Expected {wanted}, got {'a fraction' if got == 'float' else KINDS.get(got, got)}"


def of_pattern(pattern: str, place: str) -> str:
    """Text that is not of the form that it should have."""
    if "x00" in pattern:
        return "PostgreSQL stores no NUL character"
    return "Expected a token, as claim returned it" if place == "token" else "Expected an id: a whole number"


def members(kind: Any, place: str) -> tuple[Sequence[str], Sequence[str]]:
    """The fields that the object at a place takes, and those that it needs."""
    for name in re.findall(r"[^.\[\]]+(?=\[)", place):
        (hint,) = [field.type for field in msgspec.structs.fields(kind) if field.encode_name == name]
        kind = next(each for each in parts(hint) if hasattr(each, "__struct_fields__"))
    fields = msgspec.structs.fields(kind)
    return [field.encode_name for field in fields], [field.encode_name for field in fields if field.required]


def choices(kind: Any, place: str) -> list[str]:
    """The words that a field takes, where it takes some and no others."""
    for name in re.findall(r"[^.\[\]]+", place):
        holder = next((each for each in parts(kind) if hasattr(each, "__struct_fields__")), None)
        found = msgspec.structs.fields(holder) if holder is not None else ()
        kind = next((field.type for field in found if field.encode_name == name), kind)
    return [word for each in parts(kind) if get_origin(each) is Literal for word in get_args(each)]


def parts(hint: Any) -> list[Any]:
    """A type and all that it is made of."""
    return [hint, *(part for inner in get_args(hint) for part in parts(inner))]


def listing(names: Sequence[str]) -> str:
    """What is taken."""
    return f"It takes {', '.join(names)}." if names else "It takes none."
