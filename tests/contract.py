"""The OpenAPI document as a contract: every answer that any test gets has to be one that it tells."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import httpx
import jsonschema_rs

from holdfast.server.routes.documents import written

JSON = "application/json"
NOT_TOLD = {"HEAD", "OPTIONS"}


@cache
def document() -> dict[str, Any]:
    """The document."""
    told: dict[str, Any] = json.loads(written())
    return told


@cache
def patterns() -> list[tuple[re.Pattern[str], str]]:
    """What matches each path."""
    return [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), path) for path in document()["paths"]]


def operation(method: str, path: str) -> str | None:
    """The path of the document that a request goes to, if it takes the method."""
    for pattern, told in patterns():
        if pattern.fullmatch(path) and method.lower() in document()["paths"][told]:
            return told
    return None


def resolved(told: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for."""
    if "$ref" not in told:
        return told
    found: Any = document()
    for part in told["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


@cache
def validator(method: str, path: str, status: int) -> jsonschema_rs.Validator | None:
    """What checks the body of an answer; None where it is not JSON."""
    responses = document()["paths"][path][method.lower()]["responses"]
    assert str(status) in responses, f"{method} {path} does not tell of the status {status}"
    content = resolved(responses[str(status)]).get("content", {})
    if JSON not in content:
        return None
    schema = {**content[JSON]["schema"], "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(schema)


def codes(method: str, path: str, status: int) -> set[str]:
    """The errors that an operation may answer with under a status."""
    told = resolved(document()["paths"][path][method.lower()]["responses"][str(status)])
    return set(told["content"][JSON]["examples"])


def check_answer(response: httpx.Response) -> None:
    """Hold an answer against the document."""
    method = response.request.method
    path = response.request.url.raw_path.decode().partition("?")[0]
    told = operation(method, path)
    if told is None or method in NOT_TOLD:
        return
    checks = validator(method, told, response.status_code)
    if checks is None:
        return
    found = response.json()
    checks.validate(found)
    if not response.is_success:
        code = found["error"]["code"]
        expected = codes(method, told, response.status_code)
        assert code in expected, f"{method} {told} tells of {expected}, and not of {code}"
