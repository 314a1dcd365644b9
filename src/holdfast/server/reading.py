"""Reading requests: bodies within their limits, JSON into types, and errors that name the field."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw
from starlette.requests import ClientDisconnect, Request

from holdfast.client import (
    InvalidRequestError,
    MalformedRequestError,
    RequestTooLargeError,
    UnsupportedMediaError,
)

from .wording import NO_CHOICE, choices, listing, members, plain

JSON = "application/json"
GZIP_WINDOW = 16 + zlib.MAX_WBITS
PLACE = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<where>.*)`$", re.DOTALL)
# What msgspec says of a field that is not known, or not there: it has the name, and not the place.
NAMED = re.compile(r"(?P<what>unknown|missing required) field `(?P<name>.*)`$", re.DOTALL)
Given: TypeAlias = Callable[[], Collection[str]]
NUMBER = re.compile(r"[0-9.eE+-]+")
LOOK = "See /docs for what this route takes."
QUERY = "query"
SEVERAL = "ids"  # the one parameter of a query that may come several times


def has_body(request: Request) -> bool:
    """Whether there is anything to read, as the headers have it."""
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


async def read_body(request: Request, most: int) -> bytes:
    """The body, unpacked; at most so many bytes before and after that."""
    body = await read_raw(request, most)
    return unpacked(body, request.headers.get("content-encoding", "identity"), most)


async def read_raw(request: Request, most: int) -> bytes:
    """The body as it came; at most so many bytes."""
    if int(request.headers.get("content-length", "0")) > most:  # a number: else it would not have come here
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
    return b"".join(chunks)


def too_large(most: int) -> RequestTooLargeError:
    """The refusal of a body."""
    return RequestTooLargeError(
        "QH912", "the body is too large", f"{most} bytes are taken here.", "Send less in one request."
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
    if not unpacker.eof or unpacker.unused_data:
        found = "There is more behind its gzip." if unpacker.eof else "Its gzip ends before its end."
        raise MalformedRequestError("QH910", "the body is not whole", found)
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
        body.decode()  # also what is passed on as it came
        return decoder(kind).decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise invalid(error, "body", kind, partial(names_in, body)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequestError("QH910", "the body is not JSON", f"{error}.") from error
    except RecursionError as error:
        raise MalformedRequestError("QH910", "the body is nested too deeply") from error


def parse_query(request: Request, kind: type[Any], body: Any = None) -> Any:
    """The query as a value; what may come several times is a list. body: the type of the body beside it."""
    try:
        given = parameters(request.scope["query_string"])
    except UnicodeDecodeError as error:
        raise MalformedRequestError("QH910", "the query is not UTF-8", f"{error}.") from error
    refuse_misplaced(given, body)
    try:
        asked = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, QUERY, kind, partial(list, given)) from error
    for field in msgspec.structs.fields(kind) if given else ():
        if field.encode_name in given:
            check_text(field.encode_name, given[field.encode_name], getattr(asked, field.name))
    return asked


def refuse_misplaced(given: Mapping[str, Any], body: Any) -> None:
    """Refuse parameters of a route that takes a body."""
    for name in given if body is not None else ():
        known = not isinstance(body, type) or name in members(body, "")[0]
        detail = f"{name[:200]} belongs into the body." if known else "This route takes no query."
        raise InvalidRequestError("QH911", f'unknown parameter "{name[:200]}"', detail, LOOK)


def check_text(name: str, text: str | list[str], value: object) -> None:
    """Refuse what msgspec takes of text, and JSON would not have: "null", and a time that is a number."""
    if value is None:
        raise refused_field(name, "It is null.")
    if isinstance(value, datetime) and NUMBER.fullmatch(str(text)):
        raise refused_field(name, "Expected a time such as 2040-01-01T00:00:00Z, got a number.")


def parameters(query: bytes) -> dict[str, str | list[str]]:
    """The parameters of a query, by name."""
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query.decode(), keep_blank_values=True, errors="strict"):
        given.setdefault(name, []).append(value)
    for name, values in given.items():
        if len(values) > 1 and name != SEVERAL:
            raise refused_field(name, f"It is given {len(values)} times.")
    return {name: values if name == SEVERAL else values[0] for name, values in given.items()}


def names_in(body: bytes) -> Collection[str]:
    """The names of its fields, as far as they can be read."""
    try:
        return list(decoder(dict[str, Raw]).decode(body or b"{}"))
    except (msgspec.DecodeError, RecursionError):
        return ()


def invalid(error: msgspec.ValidationError, where: str, kind: Any, given: Given) -> InvalidRequestError:
    """The refusal of a field: which one, what was expected, and what was found; given: the names of all."""
    found = PLACE.match(str(error))
    what, place = (found["what"], found["where"]) if found else (str(error), "")
    if named := NAMED.search(what):
        return refused_name(named["name"], place, where == QUERY, members(kind, place), given)
    detail = f"{plain(what, place, as_text=where == QUERY)}."
    if what.startswith(NO_CHOICE):
        detail += f" {listing(choices(kind, place))}"
    return refused_field(place or f"the {where}", detail)


def refused_name(
    name: str, place: str, in_query: bool, known: tuple[Sequence[str], Sequence[str]], given: Given
) -> InvalidRequestError:
    """The refusal of an unknown or missing field; where both are, what is missing is said first."""
    taken, needed = known
    word = "parameter" if in_query else "field"
    told = listing(taken)
    if name in taken:
        return InvalidRequestError("QH911", f'missing {word} "{name}"', told, LOOK)
    found = set(given()) if needed and not place else set(needed)
    if missing := [each for each in needed if each not in found]:
        detail = f'There is "{name[:200]}", which is unknown. {told}'
        return InvalidRequestError("QH911", f'missing {word} "{missing[0]}"', detail, LOOK)
    where = f"{place}.{name}" if place else name
    return InvalidRequestError("QH911", f'unknown {word} "{where[:200]}"', told, LOOK)


def refused_field(name: str, detail: str) -> InvalidRequestError:
    """The refusal of a field, by its name."""
    return InvalidRequestError("QH911", f"bad value for {name[:200]}", detail[:1000], LOOK)
