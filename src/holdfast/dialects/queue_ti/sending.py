"""Sending: bytes in base64, once under a key as long as it waits, to a topic that may be made by it."""

from __future__ import annotations

from base64 import b64decode

import msgspec
from msgspec import Raw

from holdfast.client import PayloadMismatchError, QueueNotFoundError
from holdfast.server.answering import JsonResponse
from holdfast.server.endpoint import SEND, Book, Call
from holdfast.wire.requests import NewMessage

from .calls import concern
from .errors import refused
from .ids import uuid_of
from .lifecycle import ensure, refuse_reserved
from .requests import Enqueue
from .values import MESSAGES

book = Book("sending")
encode = msgspec.json.Encoder().encode


@book.add("POST", MESSAGES, SEND, body=Enqueue, anywhere=True)
async def enqueue(call: Call[Enqueue]) -> object:
    """Send a message; under a key it takes the place of the one that waits."""
    asked, service = call.asked, call.service
    concern(call, SEND, asked.topic)
    refuse_reserved(asked.topic)
    content = decoded(asked.payload)
    await service.limit("send", asked.topic)
    await ensure(call, asked.topic)
    try:
        id = await sent(call, content)
    except QueueNotFoundError:
        # It was there a moment ago.
        await ensure(call, asked.topic)
        id = await sent(call, content)
    if asked.key is not None:  # it may have replaced a message that was moved, and has had another id before
        id = await service.entries.root_of(asked.topic, id)
    return JsonResponse({"id": uuid_of(id)}, 201)


def decoded(payload: str) -> bytes:
    """The bytes of a payload."""
    try:
        return b64decode(payload, validate=True)
    except ValueError as error:
        raise refused("payload", "It takes bytes, in base64.") from error


async def sent(call: Call[Enqueue], content: bytes) -> int:
    """Send the message of a request; its id."""
    topic = call.asked.topic
    if call.asked.key is not None:
        # A message whose visibility timeout is over waits, whether anybody has asked for it since or not.
        await call.service.engine.sweep(topic)
    schema = (await call.service.configs.of(topic)).schema
    message = as_message(call.asked, None if schema is None else as_json(content))
    (id,) = await call.service.sends.send(topic, [message])
    return id


def as_message(asked: Enqueue, payload: Raw | None) -> NewMessage:
    """A message with the bytes of a request, or with the JSON that they are."""
    headers = {name: Raw(encode(value)) for name, value in (asked.metadata or {}).items()} or None
    if payload is None:
        return NewMessage(body=asked.payload, headers=headers, key=asked.key)
    return NewMessage(payload=payload, headers=headers, key=asked.key)


def as_json(content: bytes) -> Raw:
    """Bytes as the JSON that a schema is about."""
    try:
        msgspec.json.decode(content.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadMismatchError(
            "QH240", "the payload is not JSON", "The topic has a schema, which only JSON can fit."
        ) from error
    return Raw(content)
