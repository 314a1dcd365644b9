"""Errors as queue-ti has them: a status and a text."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.client import HoldfastError, InvalidRequestError, MessageNotFoundError
from holdfast.server.advice import advice
from holdfast.server.answering import JsonResponse, error_response, known

# Others are as the native API has them, but for its 422: that is 400, a request that cannot be.
SAID = {
    "QH102": 409,
    "QH105": 409,
    "QH240": 422,
    "QH930": 503,
    "QH931": 500,
    "QH932": 503,
}
INVALID, UNPROCESSABLE = 400, 422
NATIVE = ("/v1/", "/docs", "holdfast.")
WORDS = (
    ("queue ", "topic "),
    ("queue's", "topic's"),
    ("of its queue", "of its topic"),
    ("queue name", "topic name"),
    ("messages (max_depth)", "messages"),
)
CARRIED = {429: "retry-after", 503: "retry-after", 401: "www-authenticate"}  # headers, by status


class ConflictError(MessageNotFoundError):
    """A message that is not where it has to be at this moment."""

    http_status = 409


class UnprocessableError(InvalidRequestError):
    """A request that could be, and is refused for what it is about."""


def status(error: HoldfastError) -> int:
    """The status of an error."""
    if isinstance(error, UnprocessableError):
        return UNPROCESSABLE
    found = SAID.get(error.code, error.http_status)
    return INVALID if found == UNPROCESSABLE and error.code not in SAID else found


def message(error: HoldfastError) -> str:
    """What an error says to people: all that is known of it, in one text."""
    parts = [(error.message or error.name).rstrip(".")]
    if error.detail:
        parts.append(error.detail.removeprefix("messages[0]: ").rstrip("."))
    if error.hint and not is_native(error.hint):
        parts.append(error.hint.rstrip("."))
    return in_words(". ".join(parts))


def in_words(text: str) -> str:
    """What the engine says, with the words of the page."""
    for word, ours in WORDS:
        text = text.replace(word, ours)
    return text


def is_native(hint: str) -> bool:
    """Whether a hint is about SQL, or another API."""
    return advice(hint) != hint or any(word in hint for word in NATIVE)


def refuse(error: Exception) -> Response:
    """An error as an answer."""
    ours = known(error)
    found = status(ours)
    header = CARRIED.get(found)
    headers = {header: error_response(ours).headers[header]} if header is not None else {}
    return JsonResponse({"error": message(ours)}, found, headers)


def not_there(id: str, why: str) -> MessageNotFoundError:
    """There is no such message, or it is in another state than it has to be."""
    return MessageNotFoundError("QH924", f"message {id[:100]} {why}")


def refused(field: str, reason: str) -> InvalidRequestError:
    """The refusal of a field."""
    return InvalidRequestError("QH911", f"bad value for {field}", reason)
