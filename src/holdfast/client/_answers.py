"""Answers of the server as values, and its refusals as exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from holdfast.wire.answers import Answer, Single
from holdfast.wire.routes import ROUTES

from ._errors import HoldfastError, RequestError, UnexpectedAnswerError, make_error
from ._hints import in_verbs
from ._types import Delivery

SHOWN = 200  # characters of a strange answer
NOT_HOLDFAST = "This does not seem to be a Holdfast server."
DELIVERY = Single(Delivery)

Reader: TypeAlias = Callable[[bytes], Any]


def read_answer(verb: str, data: bytes, reader: Reader) -> Any:
    """What a verb returns."""
    return read(ROUTES[verb].answer, data, reader)


def read_delivery(data: bytes, reader: Reader) -> Delivery:
    """A message that was pushed."""
    delivery: Delivery = read(DELIVERY, data, reader)[0]
    return delivery


def read(answer: Answer, data: bytes, reader: Reader) -> Any:
    """The value of an answer, which must have the shape that this client knows."""
    try:
        return answer.read(data, reader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedAnswerError(
            "QH933", "the answer cannot be read", f"{error}.", "Use the same version on both sides."
        ) from error


class Refusal(msgspec.Struct):
    """An error as the server tells it."""

    code: str
    message: str
    detail: str | None = None
    hint: str | None = None


class RefusalDocument(msgspec.Struct):
    """The one shape of an error."""

    error: Refusal


def read_refusal(status: int, retry_after: str | None, data: bytes) -> HoldfastError:
    """What an answer that is no success means."""
    try:
        told = msgspec.json.decode(data, type=RefusalDocument).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return strange_answer(status, data)
    error = make_error(told.code, told.message, told.detail, in_verbs(told.hint))
    if isinstance(error, RequestError) and retry_after is not None and retry_after.isdigit():
        error.retry_after = int(retry_after)
    return error


def strange_answer(status: int, data: bytes) -> HoldfastError:
    """An answer of somebody else's: of a proxy that does not reach the server, or of another program."""
    shown = data[:SHOWN].decode("utf-8", "replace")
    if status in (502, 503, 504):
        return make_error(
            "QH932",
            "the server cannot be reached",
            f"A proxy answers with status {status}: {shown!r}. Whether the request took effect is not known.",
            "Ask again.",
        )
    return UnexpectedAnswerError(
        "QH933", f"the answer has status {status} and is not Holdfast's", f"Got {shown!r}.", NOT_HOLDFAST
    )
