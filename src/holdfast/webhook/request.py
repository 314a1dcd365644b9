"""What a delivery says: method, headers and body, out of a message and its endpoint."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw

from holdfast import __version__
from holdfast.client import Delivery, trace_headers

from .sign import signed_headers
from .target import LONGEST_VALUE, Target, is_plain

USER_AGENT = f"holdfast/{__version__}"
JSON, BYTES, EVENT = "application/json", "application/octet-stream", "application/cloudevents+json"
EVENT_TYPE = "event-type"  # a message's own header: publish() sets it
DEFAULT_TYPE = "holdfast.message"
SAFE_IN_EVENT = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it is sent: header names in lower case."""

    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def request_for(target: Target, delivery: Delivery, now: float) -> Request:
    """The request that delivers a message; now: seconds since the epoch, which its signature names."""
    id = message_id(delivery)
    content, body = contents(delivery)
    headers = {"content-type": content, "user-agent": USER_AGENT, **dict(target.headers)}
    if target.config.cloudevents == "binary":
        headers |= as_event_headers(target, delivery, id)
    elif target.config.cloudevents == "structured":
        body = as_event(target, delivery, id, content, body)
        headers["content-type"] = EVENT
    headers |= marks(delivery)
    headers |= signed_headers(target.keys, id, int(now), body)
    return Request(target.config.method, tuple(headers.items()), body)


def message_id(delivery: Delivery) -> str:
    """What names a message for its receiver: the same in every attempt, and after a redrive too."""
    return f"msg_{root_of(delivery)}"


def root_of(delivery: Delivery) -> int:
    """The id that a message had first."""
    origin = decoded(delivery.origin)
    return int(origin["root_id"]) if origin and origin.get("root_id") is not None else delivery.id


def contents(delivery: Delivery) -> tuple[str, bytes]:
    """Content type and bytes: the body as it was sent, else the payload as JSON, else nothing."""
    if delivery.body is not None:
        given = delivery.content_type or ""
        return (given if is_plain(given) else BYTES), delivery.body
    if delivery.payload is None:
        return JSON, b""
    return JSON, bytes(delivery.payload) if isinstance(delivery.payload, Raw) else encode(delivery.payload)


def marks(delivery: Delivery) -> dict[str, str]:
    """Headers that say more of the message: which trace, correlation and type it has, and which try it is."""
    own = own_headers(delivery)
    told = {**trace_headers(own), "holdfast-attempt": str(delivery.deliveries)}
    if delivery.correlation_id is not None:
        told["x-correlation-id"] = str(delivery.correlation_id)
    if isinstance(kind := own.get(EVENT_TYPE), str):
        told["holdfast-event-type"] = kind
    return {name: value for name, value in told.items() if is_plain(value)}


def own_headers(delivery: Delivery) -> Mapping[str, Any]:
    """The headers that its sender gave it."""
    headers: Mapping[str, Any] = decoded(delivery.headers) or {}
    return headers


def decoded(value: Any) -> Any:
    """JSON as a value, where it came as it is in the database."""
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def attributes(target: Target, delivery: Delivery, id: str) -> dict[str, str]:
    """A message as CloudEvents 1.0 describes one."""
    own = own_headers(delivery)
    kind = own.get(EVENT_TYPE)
    told = {
        "specversion": "1.0",
        "id": id,
        "source": target.config.cloudevents_source,
        "type": kind if isinstance(kind, str) and kind else target.config.cloudevents_type or DEFAULT_TYPE,
        "time": written(delivery.enqueued_at),
        **trace_headers(own),
    }
    if delivery.correlation_id is not None:
        told["correlationid"] = str(delivery.correlation_id)
    return told


def written(at: datetime) -> str:
    """An instant, as RFC 3339 writes it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_event_headers(target: Target, delivery: Delivery, id: str) -> dict[str, str]:
    """The binary mode: attributes are headers, percent-encoded where they have to be."""
    told = attributes(target, delivery, id)
    return {f"ce-{name}": quote(value, safe=SAFE_IN_EVENT)[:LONGEST_VALUE] for name, value in told.items()}


def as_event(target: Target, delivery: Delivery, id: str, content: str, body: bytes) -> bytes:
    """The structured mode: one JSON document, with the payload as it is and a body in base64."""
    told: dict[str, Any] = {**attributes(target, delivery, id)}
    if delivery.body is not None:
        told |= {"datacontenttype": content, "data_base64": b64encode(body).decode()}
    elif body:
        told |= {"datacontenttype": content, "data": Raw(body)}
    return encode(told)
