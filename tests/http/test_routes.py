"""Every verb has a route and every route a verb, and a request takes what the verb takes."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec
import pytest

from holdfast import AsyncHoldfast
from holdfast.server.app import endpoints
from holdfast.wire import requests
from holdfast.wire.routes import ROUTES

# A transaction, LISTEN and COPY need a connection to the database.
ONLY_OVER_SQL = {"bulk_send", "close", "fast_mode", "listen", "transaction"}
ONLY_OVER_HTTP = {"auth_status", "discard_one", "docs", "docs_file", "healthz", "login", "openapi", "queue"}
ONLY_OVER_HTTP |= {"docs_too", "metrics", "readyz", "receive", "work"}
OF_SEND = {"send_batch", "send_many"}  # the same request as send
WAITING = {"claim": {"wait"}}


def parameters(verb: str) -> set[str]:
    """What a method of the client takes."""
    taken = inspect.signature(getattr(AsyncHoldfast, verb)).parameters
    return {name.rstrip("_") for name in taken} - {"self"}


def fields(kind: Any) -> set[str]:
    """What a body or a query takes."""
    if kind is None:
        return set()
    if kind == requests.Config:
        return {"config"}
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def test_every_verb_has_a_route_and_every_route_a_verb() -> None:
    verbs = {name for name, _ in inspect.getmembers(AsyncHoldfast, inspect.isfunction) if name[0] != "_"}
    served = {endpoint.name for endpoint in endpoints()}

    assert set(ROUTES) == verbs - ONLY_OVER_SQL
    assert served - ONLY_OVER_HTTP == verbs - ONLY_OVER_SQL - OF_SEND


def test_no_two_routes_have_the_same_method_and_path() -> None:
    places = [(endpoint.method, endpoint.path) for endpoint in endpoints()]

    assert len(places) == len(set(places))


@pytest.mark.parametrize("verb", sorted(set(ROUTES) - OF_SEND - {"send"}))
def test_a_request_takes_the_arguments_of_its_verb(verb: str) -> None:
    route = ROUTES[verb]

    taken = set(re.findall(r"{(\w+)}", route.path)) | fields(route.body) | fields(route.query)

    assert taken == parameters(verb) | WAITING.get(verb, set())


def test_a_new_message_takes_the_options_of_send() -> None:
    assert fields(requests.NewMessage) == parameters("send") - {"queue"}
