"""Reading requests: bodies within their limits, JSON into types, and errors that name the field."""

from __future__ import annotations

import re
import zlib
from functools import cache
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from holdfast.client import (
    InvalidRequestError,
    MalformedRequestError,
    RequestTooLargeError,
    UnsupportedMediaError,
)

JSON = "application/json"
GZIP_WINDOW = 16 + zlib.MAX_WBITS
PLACE = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<where>.*)`$", re.DOTALL)


async def read_body(request: Request, most: int) -> bytes:
    """The body, unpacked; at most so many bytes before and after that."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most:
        raise too_large(most)
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise too_large(most)
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise MalformedRequestError("QH910", "the body ends before its end") from error
    return unpacked(b"".join(chunks), request.headers.get("content-encoding", "identity"), most)


def too_large(most: int) -> RequestTooLargeError:
    """The refusal of a body."""
    return RequestTooLargeError(
        "QH912", "the body is too large", f"This server takes {most} bytes.", "Send less in one request."
    )


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """A body without its compression."""
    if encoding.lower() == "identity":
        return body
    if encoding.lower() != "gzip":
        raise UnsupportedMediaError(
            "QH913", "this content encoding is not known", f"Got {encoding[:100]!r}.", "Use gzip, or none."
        )
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    try:
        plain = unpacker.decompress(body, most + 1)
    except zlib.error as error:
        raise MalformedRequestError("QH910", "the body is not gzip", str(error)) from error
    if len(plain) > most:
        raise too_large(most)
    if not unpacker.eof:
        raise MalformedRequestError("QH910", "the body is not whole", "Its gzip ends before its end.")
    return plain


def check_media(request: Request, body: bytes) -> None:
    """Refuse a body that does not say that it is JSON: a form of a web page could not say so."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON and (body or media):
        raise UnsupportedMediaError(
            "QH913",
            f"the body must be {JSON}",
            f"Got {media[:100]!r}." if media else "No Content-Type was given.",
            f"Send the header Content-Type: {JSON}.",
        )


@cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """What reads a body of this type."""
    return msgspec.json.Decoder(kind)


def parse_body(body: bytes, kind: Any) -> Any:
    """A body as a value; an empty one is one without fields."""
    try:
        return decoder(kind).decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise invalid(error, "body") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequestError("QH910", "the body is not JSON", f"{error}.") from error
    except RecursionError as error:
        raise MalformedRequestError("QH910", "the body is nested too deeply") from error


def parse_query(request: Request, kind: type[Any]) -> Any:
    """The query as a value; what may come several times is a list."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    plain = {name: values if name == "ids" else values[-1] for name, values in given.items()}
    try:
        return msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, "query") from error


def invalid(error: msgspec.ValidationError, where: str) -> InvalidRequestError:
    """The refusal of a field: which one, what was expected, and what was found."""
    found = PLACE.match(str(error))
    what, place = (found["what"], found["where"]) if found else (str(error), "")
    return InvalidRequestError(
        "QH911",
        f"the {where} is not as it should be" if not place else f"bad value for {place}",
        f"{what}.".replace("`", ""),
        "See /docs for what this route takes.",
    )
