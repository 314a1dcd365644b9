"""The page at /docs works without the internet: all it loads is here, and its policy forbids the rest."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_30

from holdfast.server.routes.documents import DESCRIPTION, FILES, OURS
from tests.contract import document
from tests.fix_http import Caller


def policy(refusing: Caller) -> dict[str, str]:
    """The directives of the page's Content-Security-Policy."""
    header = refusing.call("GET", "/docs").headers["content-security-policy"]
    return dict(part.strip().split(" ", 1) for part in header.split(";"))


def test_the_page_loads_only_files_that_are_served_here(refusing: Caller) -> None:
    page = refusing.call("GET", "/docs")

    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert sorted(loaded) == sorted(["/openapi.json", *(f"/docs/{name}" for name in FILES)])
    for path in loaded:
        assert refusing.call("GET", path).status_code == 200, path


@pytest.mark.parametrize(
    ("name", "media"),
    [
        ("start.js", "text/javascript"),
        ("swagger-ui.css", "text/css"),
        ("swagger-ui-bundle.js", "text/javascript"),
        ("favicon-32x32.png", "image/png"),
    ],
)
def test_its_files_have_their_types_and_may_be_kept(refusing: Caller, name: str, media: str) -> None:
    answer = refusing.call("GET", f"/docs/{name}")

    assert answer.headers["content-type"].partition(";")[0] == media
    assert answer.headers["cache-control"] == "private, max-age=86400"
    assert answer.content == FILES[name].read_bytes()


@pytest.mark.parametrize(
    "name", ["index.html", "..%2f..%2fapp.py", "%2e%2e", "swagger-ui.js", "etc%2fpasswd"]
)
def test_no_other_file_is_served(refusing: Caller, name: str) -> None:
    refusing.refused("GET", f"/docs/{name}", status=404, code="QH914")


def test_the_policy_lets_nothing_in_from_elsewhere(refusing: Caller) -> None:
    found = policy(refusing)

    assert found["default-src"] == "'none'"
    assert found["script-src"] == "'self'"
    assert found["connect-src"] == "'self'"
    assert found["frame-ancestors"] == "'none'"
    assert not [value for value in found.values() if "http" in value or "*" in value]


def test_the_page_has_no_script_of_its_own_inside() -> None:
    page = (OURS / "index.html").read_text()

    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\son\w+=", page) == []
    assert "http:" not in page
    assert "https:" not in page


def test_swagger_ui_is_given_the_document_in_words_that_it_reads(refusing: Caller) -> None:
    answer = refusing.call("GET", "/docs/description.json")

    jsonschema_rs.Draft4Validator(OPENAPI_30).validate(answer.json())
    assert f"/docs/{DESCRIPTION}" in FILES["start.js"].read_text()
    priority = answer.json()["components"]["schemas"]["NewMessageRequest"]["properties"]["priority"]
    assert (priority["type"], priority["nullable"], priority["maximum"]) == ("integer", True, 10)
    assert set(answer.json()["paths"]) == set(document()["paths"])
