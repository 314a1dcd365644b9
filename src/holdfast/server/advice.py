"""What the engine advises, in requests instead of functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import quote, urlencode

from holdfast.advised import arguments, calls
from holdfast.wire.routes import ROUTES

# What a request calls the arguments that a call has in order; all others are named as in SQL.
FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType({"browse": ("state",), "unblock": ("key",)})
SUBJECTS = ("queue", "endpoint", "name")  # what the first argument of a call names
CALL = calls(ROUTES)


def advice(text: str) -> str:
    """A hint or a remedy of the engine, as it helps those who call over HTTP."""
    return CALL.sub(request, text)


def request(call: re.Match[str]) -> str:
    """The request for one call, or for the bare name of a function."""
    route = ROUTES[call["name"]]
    given = dict(fields(call))
    path = route.path
    for part in SUBJECTS:
        if part in given:
            path = path.replace(f"{{{part}}}", quote(str(given.pop(part)), safe=""))
    if given and route.body is None:
        asked = {name: "true" if value is True else value for name, value in given.items()}
        return f"{route.method} {path}?{urlencode(asked)}"
    body = f" with {json.dumps(given, ensure_ascii=False)}" if given else ""
    return f"{route.method} {path}{body}"


def fields(call: re.Match[str]) -> Iterator[tuple[str, str | bool]]:
    """What a call says, by the names that a request has for it."""
    path = ROUTES[call["name"]].path
    subject = next((part for part in SUBJECTS if f"{{{part}}}" in path), "queue")
    named = (subject, *FIELDS.get(call["name"], ()))
    for place, argument in enumerate(arguments(call)):
        if argument.name or place < len(named):
            yield argument.name or named[place], argument.value
