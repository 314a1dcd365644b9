"""How a call of a SQL function is written: arguments by name, each with its type, None left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FunctionType, MappingProxyType
from typing import Any, TypeVar

from ._arguments import (
    chosen,
    config,
    instant,
    interval,
    jsonb,
    number,
    octets,
    payloads,
    text,
    texts,
    truth,
    uuid,
    whole,
    wholes,
)

C = TypeVar("C", bound=type)

TYPES: Mapping[str, str] = MappingProxyType(
    {
        "address": "text",
        "after": "bigint",
        "alone": "boolean",
        "before": "bigint",
        "body": "bytea",
        "bucket": "interval",
        "budget": "interval",
        "burst": "integer",
        "compatibility": "text",
        "config": "jsonb",
        "consumer": "text",
        "content_type": "text",
        "correlation_id": "uuid",
        "database_name": "text",
        "definition": "jsonb",
        "delay": "interval",
        "description": "text",
        "endpoint": "text",
        "deliver_at": "timestamp with time zone",
        "dlq_enabled": "boolean",
        "error": "text",
        "event_type": "text",
        "events": "jsonb",
        "expected_version": "integer",
        "expires_at": "timestamp with time zone",
        "expires_in": "interval",
        "filter": "jsonb",
        "grace": "interval",
        "hash": "bytea",
        "forget": "boolean",
        "from": "timestamp with time zone",
        "headers": "jsonb",
        "hook": "text",
        "how": "text",
        "id": "bigint",
        "idempotency_key": "text",
        "ids": "bigint[]",
        "if_empty": "boolean",
        "key": "text",
        "key_id": "text",
        "kind": "text",
        "lease": "interval",
        "limit": "integer",
        "limiter": "text",
        "max": "integer",
        "max_attempts": "integer",
        "max_deliveries": "integer",
        "messages": "jsonb",
        "name": "text",
        "ordering_key": "text",
        "outcomes": "text[]",
        "overlap": "interval",
        "partial": "boolean",
        "patience": "interval",
        "payload": "jsonb",
        "payloads": "jsonb[]",
        "pipeline": "text",
        "prefix": "text",
        "priority": "integer",
        "public_key": "text",
        "queue": "text",
        "queues": "text[]",
        "rate": "double precision",
        "reason": "text",
        "schema": "jsonb",
        "scopes": "text[]",
        "sealed": "text",
        "seqs": "bigint[]",
        "service": "text",
        "since": "timestamp with time zone",
        "state": "text",
        "states": "text[]",
        "strict": "boolean",
        "tag": "text",
        "target": "text",
        "to": "timestamp with time zone",
        "token": "bigint",
        "ttl": "interval",
        "unreadable_only": "boolean",
        "until": "timestamp with time zone",
        "visibility_timeout_seconds": "integer",
        "want": "integer",
        "window": "interval",
        "with_queue": "boolean",
    }
)


ADAPTERS: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "bigint": whole,
        "bigint[]": wholes,
        "boolean": truth,
        "bytea": octets,
        "double precision": number,
        "integer": whole,
        "interval": interval,
        "jsonb": jsonb,
        "jsonb[]": payloads,
        "text": text,
        "text[]": texts,
        "timestamp with time zone": instant,
        "uuid": uuid,
    }
)
ADAPT: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {name: ADAPTERS[kind] for name, kind in TYPES.items()}
    | {"config": config, "secret": chosen, "slug": chosen, "url": text}
)


# What has no default: there None is a value of the wrong type.
NEEDED_ANYWHERE = frozenset({"queue", "token", "id"})
NEEDED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "repair": frozenset(),
        "send_batch": frozenset({"queue", "payloads"}),
        "send_many": frozenset({"queue", "messages"}),
        "discard": frozenset({"queue", "ids"}),
        "purge": frozenset({"queue", "states"}),
        "discard_key": frozenset({"queue", "key"}),
        "unblock": frozenset({"queue"}),
        "holders": frozenset({"queue", "ids"}),
        "claims": frozenset({"queue", "consumer"}),
        "configure_queue": frozenset({"queue", "config"}),
        "configure_defaults": frozenset({"config"}),
        "set_schema": frozenset({"queue", "definition"}),
        "set_seal_key": frozenset({"queue", "public_key"}),
        "drop_seal_key": frozenset({"queue", "key_id"}),
        "take_rate": frozenset({"limiter", "rate"}),
        "create_endpoint": frozenset({"endpoint", "config"}),
        "configure_endpoint": frozenset({"endpoint", "config"}),
        "rotate_secret": frozenset({"endpoint", "sealed"}),
        "enable_endpoint": frozenset({"endpoint"}),
        "disable_endpoint": frozenset({"endpoint"}),
        "drop_endpoint": frozenset({"endpoint"}),
        "endpoint_info": frozenset({"endpoint"}),
        "endpoint_events": frozenset({"endpoint"}),
        "endpoint_attempts": frozenset({"endpoint"}),
        "reset_breaker": frozenset({"endpoint"}),
        "create_event_type": frozenset({"name"}),
        "drop_event_type": frozenset({"name"}),
        "subscribe": frozenset({"event_type", "endpoint"}),
        "publish": frozenset({"event_type", "payload"}),
        "publish_batch": frozenset({"events"}),
        "create_key": frozenset({"name", "prefix", "hash", "scopes"}),
        "rotate_key": frozenset({"id", "prefix", "hash"}),
        "put_service": frozenset({"name", "address", "sealed"}),
        "drop_service": frozenset({"name"}),
        "create_service_queue": frozenset({"service", "name"}),
        "service_queues": frozenset({"service"}),
        "delete_service_queue": frozenset({"service", "name"}),
        "retry_service_queue": frozenset({"service", "name"}),
        "create_hook": frozenset({"hook", "prefix", "hash"}),
        "configure_hook": frozenset({"hook", "config"}),
        "rotate_hook": frozenset({"hook"}),
        "drop_hook": frozenset({"hook"}),
        "hook_info": frozenset({"hook"}),
        "hook_calls": frozenset({"hook"}),
    }
)


def adapted(name: str, value: Any) -> Any:
    """An argument as psycopg is given it; None stays."""
    return None if value is None else ADAPT[name](name, value)


@lru_cache(maxsize=512)
def statement(verb: str, names: tuple[str, ...]) -> bytes:
    """The call of one verb with these arguments."""
    arguments = ", ".join(f'"{name}" => %s::{TYPES[name]}' for name in names)
    return f"select * from holdfast.{verb}({arguments})".encode()


def given(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, adapted; what is None is left out, unless the verb needs it."""
    needed = NEEDED.get(verb, NEEDED_ANYWHERE)
    return {
        name: ADAPT[name](name, value)
        for name, value in arguments.items()
        if value is not None or name in needed
    }


def call(verb: str, arguments: Mapping[str, Any]) -> tuple[bytes, list[Any]]:
    """The statement and its parameters; what is None is left to the function's default."""
    parameters = given(verb, arguments)
    return statement(verb, tuple(parameters)), list(parameters.values())


def unqualified(verbs: C) -> C:
    """Python names a method by this when an argument is wrong; the class is nothing that callers know."""
    for each in vars(verbs).values():
        if isinstance(each, FunctionType):
            each.__qualname__ = each.__name__
    return verbs
