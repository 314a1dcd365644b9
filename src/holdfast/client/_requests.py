"""Verbs as HTTP requests, by the table that the server's routes are made of."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw
from psycopg.types.json import Jsonb

from holdfast.wire.requests import MOST_MESSAGES, Config
from holdfast.wire.routes import ROUTES, Route

from ._calls import given
from ._errors import BatchTooLargeError, make_error
from ._explain import CODES, bad_json

NOT_FOR_THE_WIRE = ("alone", "wait")
IN_A_PATH = re.compile(r"[A-Za-z0-9._:-]{1,200}")
NAMED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "queue": ("QH103", "invalid queue name"),
        "endpoint": ("QH872", "invalid name of an endpoint"),
        "event-types": ("QH878", "invalid name of an event type"),
        "hook": ("QH882", "invalid name of a hook"),
    }
)
SHOWN = 200  # characters of a name that is none

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What goes over the wire for one call."""

    method: str
    path: str
    query: Mapping[str, Any] | None = None
    content: bytes | None = None
    repeatable: bool  # a second time does no harm
    wait: float = 0.0  # seconds that the server may take on purpose


def request(verb: str, arguments: Mapping[str, Any]) -> Request:
    """The request that stands for a call."""
    route = ROUTES[verb]
    values = given(verb, {name: value for name, value in arguments.items() if name not in NOT_FOR_THE_WIRE})
    check_max(values.get("max", 1))
    noun = route.path.split("/")[2]
    path = re.sub(
        r"{(\w+)}",
        lambda place: in_path(values.pop(place[1]), noun if place[1] == "name" else place[1]),
        route.path,
    )
    wait = arguments.get("wait") or 0.0
    return Request(
        method=route.method,
        path=path,
        query={name: in_query(value) for name, value in values.items()} if route.query else None,
        content=content(verb, route, values, wait),
        repeatable=is_repeatable(verb, route, values),
        wait=wait,
    )


def event_request(queue: str, options: Mapping[str, Any]) -> Request:
    """The request that opens a stream of work."""
    values = given("claim", {"queue": queue, **options})
    check_max(values.get("max", 1))
    path = f"/v1/queues/{in_path(values.pop('queue'))}/work"
    query = {name: in_query(value) for name, value in values.items()}
    return Request(method="GET", path=path, query=query, repeatable=True)


def in_path(value: Any, part: str = "queue") -> str:
    """A part of a path; a name that has no place in one is nothing's."""
    text = str(value)
    check_name(text, part)
    return text.replace(".", "%2E") if text in (".", "..") else text


def check_name(name: str, part: str = "queue") -> None:
    """Refuse what is the name of no queue, endpoint, hook or event type."""
    if not IN_A_PATH.fullmatch(name):
        code, message = NAMED.get(part, NAMED["queue"])
        raise make_error(
            code,
            message,
            f"Got {name[:SHOWN]!r}.",
            "A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -",
        )


def in_query(value: Any) -> str:
    """A value of a query."""
    if isinstance(value, list):
        return ",".join(map(in_query, value))
    plain = on_the_wire("query", value)
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def content(verb: str, route: Route, values: dict[str, Any], wait: float) -> bytes | None:
    """The body of a request."""
    if route.body is None:
        return None
    if verb in MESSAGES:
        return encode({"messages": MESSAGES[verb](verb, values)})
    if route.body is Config and "config" in values:
        return bytes(on_the_wire(verb, values["config"]))
    if verb == "publish_batch":
        check_number(len(values["events"].obj))
    fields = {name: on_the_wire(verb, value) for name, value in values.items()}
    return encode({**fields, "wait": wait} if wait else fields)


def one_message(verb: str, values: dict[str, Any]) -> list[Any]:
    """The messages of send."""
    return [{name: on_the_wire(verb, value) for name, value in values.items()}]


def equal_messages(verb: str, values: dict[str, Any]) -> list[Any]:
    """The messages of send_batch, which share their options."""
    payloads = values.pop("payloads")
    check_number(len(payloads))
    options = one_message(verb, values)[0]
    return [
        options if payload is None else {**options, "payload": on_the_wire(verb, payload)}
        for payload in payloads
    ]


def own_messages(verb: str, values: dict[str, Any]) -> Raw:
    """The messages of send_many, which are JSON already."""
    check_number(len(values["messages"].obj))
    return as_json(verb, values["messages"])


MESSAGES: Mapping[str, Callable[[str, dict[str, Any]], Any]] = MappingProxyType(
    {"send": one_message, "send_batch": equal_messages, "send_many": own_messages}
)


def check_number(messages: int) -> None:
    """Refuse more messages than one request takes."""
    if messages > MOST_MESSAGES:
        raise BatchTooLargeError(
            "QH208",
            f"too many messages for one request: {messages}",
            f"Over HTTP one request takes {MOST_MESSAGES:,}.",
            "Send them in several calls, or with bulk_send and atomic=False.",
        )


def check_max(max: int) -> None:
    """Refuse to claim more messages than one answer holds, or none."""
    if not 1 <= max <= MOST_MESSAGES:
        raise make_error(
            "QH301",
            "max is out of range",
            f"Got {max}.",
            f"Over HTTP a claim takes 1 to {MOST_MESSAGES:,} messages.",
        )


def on_the_wire(verb: str, value: Any) -> Any:
    """An argument in JSON's own types."""
    if isinstance(value, Jsonb):
        return as_json(verb, value)
    if isinstance(value, list):
        return [on_the_wire(verb, each) for each in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return in_utc(value).isoformat()
    return str(value) if isinstance(value, UUID) else value


strict_dumps = partial(json.dumps, allow_nan=False, ensure_ascii=False)


def in_utc(value: datetime) -> datetime:
    """A time in UTC, where Python's calendar has it."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return value


def as_json(verb: str, value: Jsonb) -> Raw:
    """JSON as psycopg would write it; what PostgreSQL would refuse is refused as it would be."""
    try:
        text = (value.dumps or strict_dumps)(value.obj)
        return Raw(text.encode() if isinstance(text, str) else text)
    except ValueError as error:
        raise bad_json(CODES.get(verb, "QH203"), f"{error}.") from error


def is_repeatable(verb: str, route: Route, values: Mapping[str, Any]) -> bool:
    """Whether a call may be repeated whose outcome is not known.

    A send needs idempotency keys for that. A strict settlement would find its own work done, and refuse.
    """
    if verb == "send_many":
        return all("idempotency_key" in message for message in values["messages"].obj)
    if verb in MESSAGES:
        return "idempotency_key" in values
    return route.repeatable and not values.get("strict")
