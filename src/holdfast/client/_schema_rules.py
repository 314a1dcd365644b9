"""The rules of holdfast.schemas, for clients: imported on first use, since they take more packages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from psycopg.types.json import Jsonb

from ._arguments import jsonb, several
from ._queue_schema import InForce, SchemaFinding

NO_PACKAGES = "the schema of a queue is checked with more packages: pip install 'holdfast[schema]'"
DEFAULT_KIND, DEFAULT_MODE = "json", "backward"
T = TypeVar("T")
SENDS = frozenset({"send", "send_batch", "send_many"})


@contextmanager
def packages() -> Iterator[None]:
    """Say what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NO_PACKAGES, name=error.name) from error


def json_text(value: Any) -> str:
    """A value as the JSON that goes to the database."""
    wrapped: Jsonb = jsonb("payload", value)
    text = (wrapped.dumps or json.dumps)(wrapped.obj)
    return text if isinstance(text, str) else bytes(text).decode()


def refuse_misfit(
    schema: InForce, payload: Any, body: Any, nth: int | None = None, *, hidden: bool = False
) -> None:
    """Refuse a message that does not fit; None is no payload, and fits no schema.

    hidden: it is to be sealed, so that nothing of it is told.
    """
    with packages():
        from holdfast.schemas.judge import misfit, mismatch

    found = misfit(schema, None if payload is None else json_text(payload), with_body=body is not None)
    if found is not None:
        raise mismatch(schema, found, nth, hidden=hidden)


def refuse_misfits(schema: InForce, verb: str, arguments: dict[str, Any], *, hidden: bool = False) -> None:
    """Refuse a call of send, send_batch or send_many with messages that do not fit."""
    if verb == "send":
        refuse_misfit(schema, arguments["payload"], arguments["body"], hidden=hidden)
    elif verb == "send_batch":
        for nth, payload in counted(arguments["payloads"]):
            refuse_misfit(schema, payload, None, nth, hidden=hidden)
    else:
        for nth, message in counted(arguments["messages"]):
            refuse_misfit(schema, *parts(message), nth, hidden=hidden)


def counted(messages: Sequence[T]) -> Iterator[tuple[int | None, T]]:
    """Messages with their places; one alone has none."""
    return ((nth if len(messages) > 1 else None, message) for nth, message in enumerate(messages))


def parts(message: Mapping[str, Any]) -> tuple[Any, Any]:
    """Payload and body of a message as an object; a payload that is null is one."""
    payload = message.get("payload")
    return (Jsonb(None) if payload is None and "payload" in message else payload), message.get("body")


def refuse_change(before: InForce | None, definition: Any, kind: str, compatibility: str | None) -> None:
    """Refuse a definition that is none, or that does not go with the one in force."""
    with packages():
        from holdfast.schemas.judge import check_change

    check_change(before, json_text(definition), kind, compatibility)


def findings(
    before: InForce | None,
    payloads: Iterable[Any] | None,
    definition: Any,
    kind: str,
    compatibility: str | None,
) -> list[SchemaFinding]:
    """What would be refused."""
    with packages():
        from holdfast.schemas.judge import objections_to, unfit

    found: list[SchemaFinding] = []
    schema = before
    if definition is not None:
        text = json_text(definition)
        found += objections_to(before, text, kind, compatibility)
        schema = InForce(version=0, kind=kind, definition=text, compatibility=DEFAULT_MODE)
    if schema is not None:
        found += unfit(schema, map(json_text, several("payloads", payloads or [])))
    return found
