"""The client's values as JSON: one Struct is made of each dataclass, so that nothing is written twice.

Ids become text, durations seconds, bytes base64, times UTC, also in an origin. Other JSON out of the database
passes through as it is.
"""

from __future__ import annotations

import types
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from .provenance import write_origin
from .reading import Json, decoded, expected, is_id, is_origin, received, received_field, received_list, taker

BASE64 = {"contentEncoding": "base64"}
IdText = Annotated[
    str,
    msgspec.Meta(
        pattern="^[0-9]{1,19}$", description="A number of up to 63 bits, as text.", examples=["1099511627777"]
    ),
]
Seconds = Annotated[float, msgspec.Meta(description="Seconds.")]
Base64 = Annotated[str, msgspec.Meta(description="Bytes, in base64.", extra_json_schema=BASE64)]

Convert = Callable[[Any], Any]


def as_base64(value: bytes) -> str:
    """Bytes as text."""
    return b64encode(value).decode("ascii")


def in_utc(value: datetime) -> datetime:
    """A time, in UTC."""
    return value.astimezone(UTC)


def texts(values: Iterable[int]) -> list[str]:
    """Ids as text."""
    return [str(value) for value in values]


PLAIN: dict[Any, tuple[Any, Convert | None]] = {
    timedelta: (Seconds, timedelta.total_seconds),
    datetime: (datetime, in_utc),
    bytes: (Base64, as_base64),
}


def shape(hint: Any) -> tuple[Any, Convert | None]:
    """The type on the wire of a field, and what makes its value; None: the value is taken as it is."""
    if is_id(hint):
        return IdText, str
    if is_origin(hint):
        return get_args(hint)[0], write_origin
    if hint in PLAIN:
        return PLAIN[hint]
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        inner, convert = shape(kinds[0])
        return inner | None, convert
    if get_origin(hint) is list and is_id(get_args(hint)[0]):
        return list[IdText], texts
    return hint, None


@cache
def wire_type(kind: Any) -> type[msgspec.Struct]:
    """The Struct that stands for a dataclass on the wire."""
    hints = get_type_hints(kind, include_extras=True)
    members = [(field.name, shape(hints[field.name])[0]) for field in fields(kind)]
    return msgspec.defstruct(
        kind.__name__, members, namespace={"__doc__": kind.__doc__}, module=__name__, gc=False
    )


@cache
def converter(kind: Any) -> Convert:
    """What makes the Struct of one value of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    changes = [(place, shape(hints[name])[1]) for place, name in enumerate(names)]
    changed = [(place, convert) for place, convert in changes if convert is not None]
    read, make = attrgetter(*names), wire_type(kind)
    single = len(names) == 1

    def convert(value: Any) -> Any:
        members = [read(value)] if single else list(read(value))
        for place, change in changed:
            if members[place] is not None:
                members[place] = change(members[place])
        return make(*members)

    return convert


def to_wire(value: Any) -> Any:
    """One value of the client, as it goes over the wire."""
    kind: Any = type(value)
    return converter(kind)(value)


def all_to_wire(values: Iterable[Any]) -> list[Any]:
    """Several."""
    return [to_wire(value) for value in values]


def listing(name: str, kind: Any) -> type[Any]:
    """The answer that is a list of values, under a name."""
    return msgspec.defstruct(f"{kind.__name__}List", [(name, list[wire_type(kind)])], module=__name__)  # type: ignore[misc]


def stating(name: str, **members: Any) -> type[Any]:
    """An answer of a few plain fields."""
    return msgspec.defstruct(name, list(members.items()), module=__name__)


class Listing:
    """An answer that is a list of values, under a name."""

    def __init__(self, name: str, kind: Any) -> None:
        self.type = listing(name, kind)
        self._name = name
        self._kind = kind

    def write(self, values: Any) -> Any:
        """The values, as they go over the wire."""
        return self.type(all_to_wire(values))

    def read(self, data: bytes, json: Json) -> Any:
        """The values of an answer."""
        document, json = decoded(received_list(self._name, self._kind), data, json, level=3)
        take = taker(self._kind)
        return [take(value, json) for value in getattr(document, self._name)]


class Single:
    """An answer that is one value."""

    def __init__(self, kind: Any) -> None:
        self.type = wire_type(kind)
        self._kind = kind

    def write(self, value: Any) -> Any:
        """The value, as it goes over the wire."""
        return to_wire(value)

    def read(self, data: bytes, json: Json) -> Any:
        """The value of an answer, as a list of one."""
        document, json = decoded(received(self._kind), data, json, level=1)
        return [taker(self._kind)(document, json)]


class Field:
    """An answer that is one plain value, under a name."""

    def __init__(self, title: str, name: str, kind: Any) -> None:
        wire, self._convert = shape(kind)
        self.type = stating(title, **{name: wire})
        self._name = name
        self._taken, self._take = expected(kind)

    def write(self, value: Any) -> Any:
        """The value, as it goes over the wire."""
        return self.type(value if self._convert is None else self._convert(value))

    def read(self, data: bytes, json: Json) -> Any:
        """The value of an answer."""
        value = received_field(self._name, self._taken)(data)
        return value if self._take is None else self._take(value, json)


class Document:
    """An answer that is an object out of the database, as it is."""

    type = dict[str, Any]

    def write(self, value: Any) -> Any:
        """The object."""
        return value

    def read(self, data: bytes, json: Json) -> Any:
        """The object."""
        return json(data)


Answer: TypeAlias = Listing | Single | Field | Document
