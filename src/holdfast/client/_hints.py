"""Hints of the HTTP server, in verbs instead of requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote

from holdfast.wire.requests import Config
from holdfast.wire.routes import ROUTES, Route

REQUEST = re.compile(
    r"\b(?P<method>GET|POST|PUT|PATCH|DELETE) (?P<path>/v1/[\w./:%{}-]*[\w}])"
    r"(?:\?(?P<query>[^\s,;]*\w))?(?: with (?P<body>\{[^{}]*\}))?"
)
PART = re.compile(r"\\\{\w+\\\}")  # of a path that was escaped


def in_verbs(hint: str | None) -> str | None:
    """A hint as it helps those who call from Python; requests that are no verb's stay as they are."""
    return None if hint is None else REQUEST.sub(verb, hint)


def verb(request: re.Match[str]) -> str:
    """The verb of a request, as it is called."""
    for name, route in ROUTES.items():
        path = re.fullmatch(PART.sub("([^/]+)", re.escape(route.path)), request["path"])
        if path is not None and route.method == request["method"]:
            said = ", ".join(arguments(route, path, request))
            return f"{name}({said})" if said else name
    return request[0]


def arguments(route: Route, path: re.Match[str], request: re.Match[str]) -> Iterator[str]:
    """What a request says, if it says anything: of a name that is left open there is nothing to say."""
    given = dict(parse_qsl(request["query"] or "")) | json.loads(request["body"] or "{}")
    yield from (repr(unquote(part)) for part in path.groups() if not part.startswith("{"))
    if given and route.body is Config:
        yield repr(given)
        return
    yield from (f"{name}={value!r}" for name, value in given.items())
