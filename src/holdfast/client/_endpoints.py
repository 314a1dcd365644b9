"""Webhook endpoints and events: the values that the client returns, and what it seals."""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.types.json import Jsonb

from ._errors import InvalidEndpointError
from ._types import Duration, Id, Json

if TYPE_CHECKING:
    from holdfast.vault import Vault

SECRET_PREFIX = "whsec_"  # of Standard Webhooks
SECRET_BYTES = 32
LEAST_BYTES, MOST_BYTES = 24, 64
SEALED = "hfs1."
IN_AUTH = ("password", "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointInfo:
    """A webhook endpoint, without its secrets."""

    endpoint: str
    queue: str
    url: str
    enabled: bool
    disabled_reason: str | None
    disabled_at: datetime | None
    config: dict[str, Json]
    secrets: list[dict[str, Json]]
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointHealth:
    """How an endpoint does; latencies are in seconds."""

    endpoint: str
    queue: str
    enabled: bool
    disabled_reason: str | None
    breaker: str
    failures: int
    opened_at: datetime | None
    retry_at: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    attempts: int
    success_rate: float | None
    latency_p50: float | None
    latency_p95: float | None
    latency_p99: float | None
    pending: int
    in_flight: int
    dead: int
    oldest_pending: timedelta | None
    exact: bool
    last_errors: list[dict[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEvent:
    """Something that happened to an endpoint: its breaker moved, or it was enabled or disabled."""

    at: datetime
    event: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt to deliver a message to an endpoint."""

    endpoint: str | None
    queue: str | None
    id: Id
    root_id: Id
    at: datetime
    delivery: int | None
    outcome: str
    status: int | None
    latency: float | None
    error: str | None
    response: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedSecret:
    """The signing secret that an endpoint has now, and until when an old one signs too."""

    secret: str = field(repr=False)
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """A kind of event that can be published."""

    name: str
    description: str | None
    schema: Json
    subscriptions: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """An endpoint that gets the events of a type."""

    id: Id
    event_type: str
    endpoint: str
    filter: dict[str, Json] | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A message that an event became; nth: which event of the call, counted from 0."""

    nth: int
    endpoint: str
    queue: str
    id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to publish, with its own options; what is None is left to the queues."""

    event_type: str
    payload: Json = None
    headers: dict[str, Json] | None = None
    priority: int | None = None
    delay: Duration | None = None
    deliver_at: datetime | None = None
    ttl: Duration | None = None
    expires_at: datetime | None = None
    correlation_id: UUID | None = None
    tag: str | None = None
    max_deliveries: int | None = None
    ordering_key: str | None = None
    key: str | None = None
    idempotency_key: str | None = None


def event_object(event: NewEvent, adapt: Any) -> dict[str, Any]:
    """An event as publish_batch takes it; adapt checks one option, by its name."""
    given = {each.name: getattr(event, each.name) for each in fields(event)}
    payload = given.pop("payload")
    options = {name: in_json(adapt(name, value)) for name, value in given.items() if value is not None}
    return {**options, "payload": payload.obj if isinstance(payload, Jsonb) else payload}


def in_json(value: Any) -> Any:
    """An option in JSON's own types."""
    if isinstance(value, Jsonb):
        return value.obj
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def events(adapt: Any, given: Iterable[NewEvent]) -> list[dict[str, Any]]:
    """Events as publish_batch takes them."""
    return [event_object(event, adapt) for event in given]


def new_signing_secret() -> str:
    """A signing secret that nobody can guess."""
    return SECRET_PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signing_secret(text: object) -> str:
    """A signing secret as receivers have it; nothing of a bad one is shown."""
    encoded = text.removeprefix(SECRET_PREFIX) if isinstance(text, str) else ""
    try:
        size = len(b64decode(encoded, validate=True))
    except ValueError:
        size = 0
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise InvalidEndpointError(
            "QH872",
            "bad value for signing_secret",
            "It is not shown here.",
            f"signing_secret takes {SECRET_PREFIX} and {LEAST_BYTES} to {MOST_BYTES} bytes in base64.",
        )
    return SECRET_PREFIX + encoded


def purpose_of(endpoint: str) -> str:
    """What the secrets of an endpoint are sealed for."""
    return f"webhook:{endpoint}"


def sealed(vault: Vault, endpoint: str, secret: str) -> str:
    """A secret as the database takes it; one that is sealed stays so."""
    return secret if secret.startswith(SEALED) else vault.seal(secret, purpose_of(endpoint))


def sealed_config(vault: Vault, endpoint: str, config: Any) -> Any:
    """A configuration whose secrets are sealed; what is no secret is for the engine to check."""
    if not isinstance(config, Mapping):
        return config
    made = dict(config)
    if isinstance(made.get("signing_secret"), str):
        given = made["signing_secret"]
        clear = given if given.startswith(SEALED) else signing_secret(given)
        made["signing_secret"] = sealed(vault, endpoint, clear)
    if isinstance(made.get("auth"), Mapping):
        made["auth"] = {
            name: sealed(vault, endpoint, value) if name in IN_AUTH and isinstance(value, str) else value
            for name, value in made["auth"].items()
        }
    return made
