"""Sealing what is sent, for clients: the rules of holdfast.seals, imported on first use."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ._arguments import octets, text
from ._bulk import as_object
from ._errors import InvalidMessageError
from ._rules import Seal
from ._schema_rules import counted, json_text, parts
from ._seals import packages, public_pem
from ._types import Json, NewMessage

NOT_OPTIONS = ("queue", "payloads", "alone")


def check_public_key(public_key: str | bytes) -> None:
    """Refuse a key that nothing can be sealed with."""
    with packages():
        from holdfast.seals.content import content
        from holdfast.seals.sealing import sealed

        sealed(content(None, b"", None), public_pem(public_key), "")


def seal(
    queue: str,
    payload: Json = None,
    *,
    public_key: str | bytes,
    body: bytes | None = None,
    content_type: str | None = None,
    idempotency_key: str | None = None,
    digest_key: bytes | None = None,
) -> bytes:
    """Seal a message as the client does that sends it; the envelope is the body to send.

    With both an idempotency key and the queue's digest_key (holdfast.sealing), it is known when sent again.
    """
    known = Seal(key_id="", public_key=public_pem(public_key), digest_key=digest_key)
    return enveloped(known, text("queue", queue), payload, body, content_type, idempotency_key) or b""


def enveloped(
    seal: Seal, queue: str, payload: Any, body: Any, content_type: str | None, idempotency_key: str | None
) -> bytes | None:
    """The envelope of a message; None: its body is one already."""
    with packages():
        from holdfast.seals.content import checked, content, digest
        from holdfast.seals.envelope import is_envelope
        from holdfast.seals.sealing import sealed

        if payload is None and is_envelope(body):
            return None
        given = content(
            None if payload is None else checked(json_text(payload)),
            None if body is None else octets("body", body),
            None if content_type is None else text("content_type", content_type),
        )
        known = None
        if idempotency_key is not None and seal.digest_key is not None:
            known = digest(seal.digest_key, text("idempotency_key", idempotency_key), given)
        return sealed(given, seal.public_key, queue, known)


def sealed_call(seal: Seal, verb: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A call of send, send_batch or send_many with sealed messages."""
    queue = arguments["queue"]
    if verb == "send":
        words = ("payload", "body", "content_type", "idempotency_key")
        envelope = enveloped(seal, queue, *(arguments[word] for word in words))
        if envelope is None:
            return verb, arguments
        return verb, {**arguments, "payload": None, "body": envelope, "content_type": sealed_type()}
    if verb == "send_batch":
        sealed = sealed_batch(seal, queue, arguments)
    else:
        sealed = [sealed_object(seal, queue, each, nth) for nth, each in counted(arguments["messages"])]
    return "send_many", {"queue": queue, "messages": sealed, "alone": arguments["alone"]}


def sealed_batch(seal: Seal, queue: str, arguments: Mapping[str, Any]) -> list[dict[str, Json]]:
    """The messages of send_batch, each with the options that they share."""
    options = as_object(
        NewMessage(**{name: arguments[name] for name in arguments if name not in NOT_OPTIONS})
    )
    return [
        sealed_with(seal, queue, options, payload, None, nth)
        for nth, payload in counted(arguments["payloads"])
    ]


def sealed_object(seal: Seal, queue: str, message: Mapping[str, Any], nth: int | None) -> dict[str, Json]:
    """A message of send_many, sealed."""
    payload, body = parts(message)
    return sealed_with(seal, queue, message, payload, None if body is None else b64decode(body), nth)


def sealed_with(
    seal: Seal, queue: str, options: Mapping[str, Any], payload: Any, body: bytes | None, nth: int | None
) -> dict[str, Json]:
    """A message as send_many takes it, sealed."""
    words = (options.get("content_type"), options.get("idempotency_key"))
    try:
        envelope = enveloped(seal, queue, payload, body, *words)
    except InvalidMessageError as error:
        raise placed(error, nth) from error
    others = {name: value for name, value in options.items() if name != "payload"}
    if envelope is None:
        return others
    return {**others, "body": b64encode(envelope).decode("ascii"), "content_type": sealed_type()}


def sealed_messages(seal: Seal, queue: str, messages: list[NewMessage], before: int) -> list[NewMessage]:
    """Messages of a bulk, sealed; before: how many came before these."""
    return [sealed_message(seal, queue, message, nth) for nth, message in enumerate(messages, before)]


def sealed_message(seal: Seal, queue: str, message: NewMessage, nth: int) -> NewMessage:
    """One of them."""
    given = (message.payload, message.body, message.content_type, message.idempotency_key)
    try:
        envelope = enveloped(seal, queue, *given)
    except InvalidMessageError as error:
        raise placed(error, nth) from error
    if envelope is None:
        return message
    return replace(message, payload=None, body=envelope, content_type=sealed_type())


def sealed_type() -> str:
    """The content type of envelopes."""
    from holdfast.seals.envelope import CONTENT_TYPE

    return CONTENT_TYPE


def placed(error: InvalidMessageError, nth: int | None) -> InvalidMessageError:
    """An error that names which of several messages it is about."""
    place = "" if nth is None else f"messages[{nth}]: "
    return InvalidMessageError(error.code, error.message, f"{place}{error.detail or ''}", error.hint)
