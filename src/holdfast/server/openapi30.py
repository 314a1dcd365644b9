"""The OpenAPI document in the words of 3.0: the release of Swagger UI that is bundled reads no newer ones."""

from __future__ import annotations

from typing import Any

NULL = {"type": "null"}


def older(document: dict[str, Any]) -> dict[str, Any]:
    """The same document, as far as 3.0 can say it."""
    return {**in_older_words(document), "openapi": "3.0.3"}


def in_older_words(value: Any) -> Any:
    """A part of the document: 3.0 has words of its own for null, examples and base64."""
    if isinstance(value, list):
        return [in_older_words(each) for each in value]
    if not isinstance(value, dict):
        return value
    told = {name: in_older_words(each) for name, each in value.items() if each != []}
    if isinstance(told.get("examples"), list):
        told["example"] = told.pop("examples")[0]
    if "contentEncoding" in told:
        told["format"] = {"base64": "byte"}[told.pop("contentEncoding")]
    if NULL in told.get("anyOf", ()):
        kinds = [kind for kind in told.pop("anyOf") if kind != NULL]
        return {**(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}), **told, "nullable": True}
    if isinstance(told.get("type"), list):
        (kind,) = [kind for kind in told["type"] if kind != "null"]
        return {**told, "type": kind, "nullable": "null" in value["type"]}
    return told
