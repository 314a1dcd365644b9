"""How a call of a SQL function is written: arguments by name, each with its type, None left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from psycopg.types.json import Jsonb

from ._types import Duration, Json

TYPES: Mapping[str, str] = MappingProxyType(
    {
        "after": "bigint",
        "alone": "boolean",
        "before": "bigint",
        "body": "bytea",
        "burst": "integer",
        "config": "jsonb",
        "consumer": "text",
        "content_type": "text",
        "correlation_id": "uuid",
        "delay": "interval",
        "deliver_at": "timestamp with time zone",
        "error": "text",
        "expires_at": "timestamp with time zone",
        "filter": "jsonb",
        "headers": "jsonb",
        "id": "bigint",
        "ids": "bigint[]",
        "lease": "interval",
        "limit": "integer",
        "limiter": "text",
        "max": "integer",
        "max_deliveries": "integer",
        "messages": "jsonb",
        "partial": "boolean",
        "patience": "interval",
        "payload": "jsonb",
        "payloads": "jsonb[]",
        "priority": "integer",
        "queue": "text",
        "rate": "double precision",
        "seqs": "bigint[]",
        "state": "text",
        "strict": "boolean",
        "tag": "text",
        "target": "text",
        "token": "bigint",
        "ttl": "interval",
        "unreadable_only": "boolean",
        "want": "integer",
    }
)


def interval(duration: Duration) -> timedelta:
    """A duration as PostgreSQL takes it."""
    return duration if isinstance(duration, timedelta) else timedelta(seconds=duration)


def jsonb(value: Json) -> Jsonb:
    """A value as jsonb; one that is wrapped already stays as it is."""
    return value if isinstance(value, Jsonb) else Jsonb(value)


def jsonb_or_null(value: Json) -> Jsonb | None:
    """A payload: None means that there is none, which is not the JSON value null."""
    return None if value is None else jsonb(value)


def array(values: Any) -> list[Any]:
    """Any iterable of ids as a list."""
    return list(values)


def jsonb_array(values: Any) -> list[Jsonb | None]:
    """Any iterable of payloads as a list."""
    return [jsonb_or_null(value) for value in values]


ADAPTERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "interval": interval,
        "jsonb": jsonb,
        "bigint[]": array,
        "jsonb[]": jsonb_array,
    }
)
ADAPT: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {name: ADAPTERS[kind] for name, kind in TYPES.items() if kind in ADAPTERS}
)


@lru_cache(maxsize=512)
def statement(verb: str, names: tuple[str, ...]) -> bytes:
    """The call of one verb with these arguments."""
    arguments = ", ".join(f'"{name}" => %s::{TYPES[name]}' for name in names)
    return f"select * from holdfast.{verb}({arguments})".encode()


def call(verb: str, arguments: Mapping[str, Any]) -> tuple[bytes, list[Any]]:
    """The statement and its parameters; what is None is left to the function's default."""
    given = {name: value for name, value in arguments.items() if value is not None}
    parameters = [ADAPT[name](value) if name in ADAPT else value for name, value in given.items()]
    return statement(verb, tuple(given)), parameters
