"""Errors as the topics page has them: a code in words, a message, and an object with what else is known."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.client import HoldfastError, RequestError
from holdfast.server.answering import JsonResponse, error_response, known

Said = tuple[int, str]  # status and code

INVALID: Said = (400, "invalid_request")
INTERNAL: Said = (500, "internal")
SAID: dict[str, Said] = {
    "QH101": (404, "topic_not_found"),
    "QH102": (409, "topic_exists_incompatible"),
    "QH105": (404, "topic_not_found"),
    "QH109": (409, "topic_not_empty"),
    "QH201": (400, "record_too_large"),
    "QH202": (400, "record_too_large"),
    "QH208": (400, "batch_too_large"),
    "QH209": (422, "topic_full"),
    "QH601": (409, "topic_exists_incompatible"),
    "QH602": (409, "not_a_queue"),
    "QH603": (409, "topic_exists_incompatible"),
    "QH912": (413, "payload_too_large"),
    "QH913": (415, "unsupported_media_type"),
    "QH914": (404, "not_found"),
    "QH915": (405, "method_not_allowed"),
    "QH916": (406, "not_acceptable"),
    "QH920": (401, "unauthorized"),
    "QH921": (403, "forbidden"),
    "QH922": (429, "throttled"),
    "QH930": (503, "not_ready"),
    "QH931": INTERNAL,
    "QH932": (503, "not_ready"),
}
SHUTTING_DOWN = "the server is shutting down"
ABOUT_TOPICS = ("QH101", "QH105", "QH109", "QH209", "QH602")  # in whose messages a queue is a topic
CARRIED = {429: "retry-after", 503: "retry-after", 401: "www-authenticate"}  # headers, by status


def said(error: HoldfastError) -> Said:
    """Status and code of an error."""
    if error.message == SHUTTING_DOWN:
        return (503, "shutting_down")
    return SAID.get(error.code, INTERNAL if error.http_status >= 500 else INVALID)


def message(error: HoldfastError) -> str:
    """What an error says to people."""
    text = error.message or error.name
    return text.replace("queue ", "topic ", 1) if error.code in ABOUT_TOPICS else text


def detail(error: HoldfastError) -> dict[str, Any]:
    """What else is known of an error."""
    found: dict[str, Any] = {"reason": error.detail} if error.detail else {}
    if isinstance(error, RequestError):
        # Others speak of SQL.
        found |= {"hint": error.hint} if error.hint else {}
        found |= {"retry_after_ms": 1000 * error.retry_after} if error.retry_after else {}
    return found


def refuse(error: Exception) -> Response:
    """An error as an answer."""
    ours = known(error)
    status, code = said(ours)
    document = {"error": {"code": code, "message": message(ours), "detail": detail(ours)}}
    header = CARRIED.get(status)
    headers = {header: error_response(ours).headers[header]} if header is not None else {}
    return JsonResponse(document, status, headers)
