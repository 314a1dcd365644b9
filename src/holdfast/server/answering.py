"""Answering: JSON, and one shape for every error."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from starlette.responses import Response

from holdfast.client import (
    HoldfastError,
    HookPausedError,
    InternalError,
    InvalidRequestError,
    RequestError,
)

from .advice import advice
from .trouble import unavailable

RETRY_SECONDS = 1
# invalid_datetime_format, datetime_field_overflow, interval_field_overflow: of durations alone.
BAD_TIME = ("22007", "22008", "22015")
# Of class 54: nested too deeply, or too much of something.
TOO_MUCH = "54"

logger = logging.getLogger("holdfast.server")
encode = msgspec.json.Encoder().encode


class JsonResponse(Response):
    """An answer in JSON."""

    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(encode(content), status, headers)


def known(error: Exception) -> HoldfastError:
    """What an error is called outside."""
    if isinstance(error, HoldfastError):
        return error
    if refusal := unavailable(error):
        return refusal
    if isinstance(error, psycopg.Error) and error.sqlstate in BAD_TIME:
        return InvalidRequestError(
            "QH911",
            "a duration or a time cannot be read",
            f"{error.diag.message_primary}.",
            'Pass a number of seconds, or text such as "30 s" or "5 min".',
        )
    if isinstance(error, psycopg.Error) and is_about_values(error):
        return InvalidRequestError(
            "QH911",
            "PostgreSQL does not take a value of this request",
            f"{error.diag.message_primary or error}.",
            "The detail says what is wrong with it.",
        )
    if isinstance(error, ValueError | TypeError) and error.__traceback__ is not None and is_refusal(error):
        return InvalidRequestError("QH911", str(error))
    tell(error)
    return InternalError("QH931", "something went wrong", "The log of the server says what.")


def tell(error: Exception) -> None:
    """Log an error that nobody foresaw: once, also if several requests meet it."""
    if not getattr(error, "told", False):
        logger.error("an error that nobody foresaw", exc_info=error)
        error.told = True  # type: ignore[attr-defined]


def is_about_values(error: psycopg.Error) -> bool:
    """Whether what was passed on from a request is at fault: a number out of range, text with NUL."""
    return isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith(TOO_MUCH)


def is_refusal(error: Exception) -> bool:
    """Whether the client's own check of an argument has said no."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__") == "holdfast.client._arguments":
            return True
        traceback = traceback.tb_next
    return False


def error_document(error: HoldfastError) -> dict[str, Any]:
    """The one shape of an error."""
    return {
        "error": {
            "code": error.code,
            "name": error.name,
            "message": error.message,
            "detail": error.detail,
            "hint": error.hint and advice(error.hint),
        }
    }


def error_response(error: Exception) -> JsonResponse:
    """An error as an answer."""
    ours = known(error)
    headers = {}
    if ours.http_status in (429, 503):
        pause = ours.retry_after if isinstance(ours, RequestError | HookPausedError) else None
        headers["Retry-After"] = str(pause or RETRY_SECONDS)
    response = JsonResponse(error_document(ours), ours.http_status, headers)
    if ours.http_status == 401:
        # A line for each, since Chromium reads no second scheme of a line; it asks where it finds Basic.
        for scheme in ("Basic", "Bearer"):
            response.headers.append("WWW-Authenticate", f'{scheme} realm="holdfast"')
    return response
