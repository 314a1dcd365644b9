"""Requests made from the OpenAPI document, valid and not: no server error, and answers that fit it."""

from __future__ import annotations

import copy
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast import Holdfast
from holdfast.server.settings import Settings
from tests.contract import codes, document
from tests.fix_database import fresh_database
from tests.fix_http import Caller, served

FEW, MANY = 5, 250  # requests for each route
PATIENCE = 30.0  # seconds for an answer
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
QUEUES: dict[str, dict[str, Any]] = {"orders": {}, "events": {"kind": "log"}}


def described() -> dict[str, Any]:
    """The document without what it says of keys: tests/http/test_scopes.py is about those."""
    told = copy.deepcopy(document())
    del told["components"]["securitySchemes"]
    for operation in (each for methods in told["paths"].values() for each in methods.values()):
        del operation["security"]
    return told


# A stream has no end: tests/http/test_work.py reads it.
api = schemathesis.openapi.from_dict(described()).exclude(operation_id="work")


class Target:
    """A server with a key, a queue and a log; a request may do away with any of them."""

    def __init__(self, caller: Caller, engine: Holdfast) -> None:
        self._caller = caller
        self._engine = engine
        self._turn = 0
        self._key = ""

    def ask(self, case: Case[Any]) -> Response:
        """Send a request."""
        self._engine.configure_defaults({"max_depth": None, "max_payload": None})
        for name, config in QUEUES.items():
            if self._engine.create_queue(name, config):
                self._engine.send_batch(name, [1, 2, 3])
        response = self._send(case)
        if response.status_code == 401:
            self._key = self._engine.create_key("fuzz", scopes=["admin"]).key
            response = self._send(case)
        return response

    def aim(self, case: Case[Any]) -> bool:
        """Let every second request be about a queue that is there; says whether this one is."""
        self._turn += 1
        if isinstance(case.body, dict) and is_long(case.body.get("wait")):
            case.body["wait"] = 0.01
        if "queue" not in case.path_parameters or self._turn % 2:
            return False
        case.path_parameters["queue"] = list(QUEUES)[self._turn // 2 % len(QUEUES)]
        return True

    def _send(self, case: Case[Any]) -> Response:
        headers = {"Authorization": f"Bearer {self._key}"}
        return case.call(base_url=self._caller.address, headers=headers, timeout=PATIENCE)


@pytest.fixture(scope="module", autouse=True)
def secret_key() -> Iterator[None]:
    """The key that secrets are sealed with: without one, 503 would be right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_SECRET_KEY", b64encode(b"k" * 32).decode())
        yield


@pytest.fixture(scope="module")
def target(server_url: str, template_database: str) -> Iterator[Target]:
    """One server for the whole module."""
    with (
        fresh_database(server_url, template_database) as url,
        Holdfast(url) as engine,
        served(Settings(database_url=url, port=0)) as caller,
    ):
        yield Target(caller, engine)


def is_long(wait: object) -> bool:
    """Whether a claim is to wait, and may."""
    return isinstance(wait, int | float) and not isinstance(wait, bool) and 0 < wait <= 30


def check(case: Case[Any], target: Target) -> None:
    """Send a request, and hold the answer against the document; an error has a code that it tells of."""
    aimed = target.aim(case)
    response = target.ask(case)
    if case.method.upper() != case.operation.method.upper():
        assert response.status_code in (204, 405), "methods that a path does not take are tried, too"
        return
    # Where the queue's name was replaced, nothing may be wrong with the request any more; and whatever the
    # name, a queue that is not there is dropped by not being there.
    accepted = response.status_code < 400 and not aimed and case.operation.method != "delete"
    case.validate_response(response, checks=[*CHECKS, *([negative_data_rejection] if accepted else [])])
    if response.status_code >= 400:
        told = codes(case.operation.method.upper(), case.operation.path, response.status_code)
        assert response.json()["error"]["code"] in told


@api.parametrize()
@settings(max_examples=FEW, suppress_health_check=SLOW, derandomize=True)
def test_a_few_requests_to_each_route(case: Case[Any], target: Target) -> None:
    check(case, target)


@pytest.mark.verify
@api.parametrize()
@settings(max_examples=MANY, suppress_health_check=SLOW)
def test_many_requests_to_each_route(case: Case[Any], target: Target) -> None:
    check(case, target)
