"""Errors as clients of FoundryDB read them: a status and a text, and the code that stays the same."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.client import HoldfastError
from holdfast.server.advice import advice
from holdfast.server.answering import JsonResponse, error_response, known

INVALID, UNPROCESSABLE = 400, 422  # a request that cannot be is the former here, a failed task the latter
NATIVE = ("/v1/", "/docs", "holdfast.", "holdfast ")
BYTES = ", or send bytes as the body"  # an advice of the engine; there are none here
CARRIED = {429: "retry-after", 503: "retry-after", 401: "www-authenticate"}  # headers, by status


def status(error: HoldfastError) -> int:
    """The status of an error."""
    return INVALID if error.http_status == UNPROCESSABLE else error.http_status


def message(error: HoldfastError) -> str:
    """What an error says to people: all that is known of it, in one text."""
    parts = [error.message or error.name, error.detail]
    if error.hint and not is_native(error.hint):
        parts.append(error.hint)
    sentences = [part if part.endswith(("?", "!")) else f"{part.rstrip('.')}." for part in parts if part]
    return " ".join(sentences).removesuffix(".").replace(BYTES, "")


def is_native(hint: str) -> bool:
    """Whether a hint is about SQL, or another API."""
    return advice(hint) != hint or any(word in hint for word in NATIVE)


def refuse(error: Exception) -> Response:
    """An error as an answer."""
    ours = known(error)
    found = status(ours)
    header = CARRIED.get(found)
    headers = {header: error_response(ours).headers[header]} if header is not None else {}
    return JsonResponse({"error": message(ours), "code": ours.code}, found, headers)
