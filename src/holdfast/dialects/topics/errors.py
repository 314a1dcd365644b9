"""Errors as the topics page has them: a code in words, a message, and an object with what else is known."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.client import HoldfastError, RequestError
from holdfast.server.advice import advice
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
OF_NATIVE = "See /docs"
SHUTTING_DOWN = "the server is shutting down"
ABOUT_TOPICS = ("QH101", "QH103", "QH105", "QH109", "QH209", "QH602")  # in whose messages a queue is a topic
MADE = "A topic is made by PUT, or by the first POST; both take a key with the scope admin."
SEE = "docs/dialects/topics.md, in Holdfast's documentation, describes this API."
# What the engine says of queues and their settings, as it is said of topics.
REASONS = {
    "QH101": MADE,
    "QH109": "There are records in it.",
    "QH603": "Messages of another priority were sent to it natively, and have numbers of their own.",
}
HINTS = {
    "QH101": None,  # it is about queues
    "QH109": "Delete them first, or the topic without if_empty.",
    "QH602": None,
    "QH603": "Claim its jobs, or look at them with the native API.",
}
WORDS = (
    ("messages (max_depth)", "records"),
    ("messages[", "records["),
    ("max_depth", "cap_records"),
    (" (max_payload in its configuration)", ""),
    ("This queue", "This topic"),
    ("the name of a queue, or false for none", "the name of a topic, or null for none"),
    ("another queue than", "another topic than"),
    ("retention.count", "cap_records"),
    ("of queue", "of topic"),
    ("to queue", "to topic"),
)
CARRIED = {429: "retry-after", 503: "retry-after", 401: "www-authenticate"}  # headers, by status


def said(error: HoldfastError) -> Said:
    """Status and code of an error."""
    if error.message == SHUTTING_DOWN:
        return (503, "shutting_down")
    return SAID.get(error.code, INTERNAL if error.http_status >= 500 else INVALID)


def message(error: HoldfastError) -> str:
    """What an error says to people."""
    text = in_words(error.message or error.name)
    return text.replace("queue ", "topic ", 1) if error.code in ABOUT_TOPICS else text


def detail(error: HoldfastError) -> dict[str, Any]:
    """What else is known of an error."""
    reason = REASONS.get(error.code) or in_words(error.detail)
    hint = HINTS[error.code] if error.code in HINTS else in_words(error.hint)
    found: dict[str, Any] = {"reason": reason} if reason else {}
    if hint and not names_functions(hint):
        found["hint"] = SEE if OF_NATIVE in hint else hint
    if isinstance(error, RequestError) and error.retry_after:
        found["retry_after_ms"] = 1000 * error.retry_after
    return found


def in_words(text: str | None) -> str:
    """What the engine says, with the words of the topics page."""
    for word, ours in WORDS:
        text = (text or "").replace(word, ours)
    return text or ""


def names_functions(hint: str) -> bool:
    """Whether a hint is about SQL."""
    return advice(hint) != hint or "holdfast." in hint


def refuse(error: Exception) -> Response:
    """An error as an answer."""
    ours = known(error)
    status, code = said(ours)
    document = {"error": {"code": code, "message": message(ours), "detail": detail(ours)}}
    header = CARRIED.get(status)
    headers = {header: error_response(ours).headers[header]} if header is not None else {}
    return JsonResponse(document, status, headers)
