"""The server's answers as the client's values: text into ids, seconds into durations, base64 into bytes.

JSON out of the database is left as it came until the client's own reader takes it, digits and all.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw

from .nesting import Cut, cut_deep
from .provenance import read_origin

Json: TypeAlias = Callable[[bytes], Any]
Take: TypeAlias = Callable[[Any, Json], Any]
Decode: TypeAlias = Callable[[bytes], Any]


def as_id(value: str, json: Json) -> int:
    """An id."""
    return int(value)


def as_ids(values: list[str], json: Json) -> list[int]:
    """Several."""
    return [int(value) for value in values]


def as_duration(value: float, json: Json) -> timedelta:
    """A length of time."""
    return timedelta(seconds=value)


def as_json(value: Raw, json: Json) -> Any:
    """JSON, by the client's reader."""
    return json(bytes(value))


def as_origin(value: Raw, json: Json) -> Any:
    """Where a message came from."""
    return read_origin(json(bytes(value)))


def is_id(hint: Any) -> bool:
    """Whether a field of this type is an id."""
    return get_origin(hint) is Annotated and get_args(hint)[1] == "id"


def is_origin(hint: Any) -> bool:
    """Whether it is the origin of a message."""
    return get_origin(hint) is Annotated and get_args(hint)[1] == "origin"


def expected(hint: Any) -> tuple[Any, Take | None]:
    """What a field of this type is on the wire, and what takes it; None: it is taken as it is."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        inner, take = expected(kinds[0])
        return (inner if inner is Raw else inner | None), take  # Raw takes null too
    if is_id(hint):
        return str, as_id
    if is_origin(hint):
        return Raw, as_origin
    if hint is timedelta:
        return float, as_duration
    if hint is Any or get_origin(hint) is dict:
        return Raw, as_json
    if get_origin(hint) is list and is_id(get_args(hint)[0]):
        return list[str], as_ids
    return hint, None


@cache
def received_type(kind: Any) -> type[Any]:
    """The Struct that a dataclass is read into; fields that this client does not know are passed over."""
    hints = get_type_hints(kind, include_extras=True)
    members = [(field.name, expected(hints[field.name])[0]) for field in fields(kind)]
    return msgspec.defstruct(f"Received{kind.__name__}", members, module=__name__, gc=False)


@cache
def received(kind: Any) -> Decode:
    """What reads one value."""
    return msgspec.json.Decoder(received_type(kind)).decode


@cache
def received_list(name: str, kind: Any) -> Decode:
    """What reads a list of values under a name."""
    document = msgspec.defstruct("ReceivedList", [(name, list[received_type(kind)])], module=__name__)  # type: ignore[misc]
    return msgspec.json.Decoder(document).decode


@cache
def received_field(name: str, kind: Any) -> Decode:
    """What reads one plain value under a name."""
    decoder = msgspec.json.Decoder(msgspec.defstruct("ReceivedField", [(name, kind)], module=__name__))
    return lambda data: getattr(decoder.decode(data), name)


@cache
def taker(kind: Any) -> Take:
    """What makes a value of a dataclass out of its Struct."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    takes = [(name, expected(hints[name])[1]) for name in names]
    changed = [(name, take) for name, take in takes if take is not None]

    def taken(received: Any, json: Json) -> Any:
        members = msgspec.structs.asdict(received)
        for name, take in changed:
            if members[name] is not None:
                members[name] = take(members[name], json)
        return kind(**members)

    return taken


def decoded(decode: Decode, data: bytes, json: Json, level: int) -> tuple[Any, Json]:
    """A document and what reads the JSON in it; values at this level may be nested as deeply as can be."""
    try:
        return decode(data), json
    except RecursionError:
        cut: Cut = cut_deep(data, level)
        return decode(cut.document), cut.reader(json)
