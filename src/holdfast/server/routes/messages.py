"""Messages: send, look, delete."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping

from msgspec import Raw, json, structs

from holdfast.client import InvalidMessageError, InvalidRequestError, MessageNotFoundError
from holdfast.client._traces import PARENT, ROOMY, STATE
from holdfast.server.endpoint import ADMIN, READ, SEND, Book, Call
from holdfast.server.traces import carried
from holdfast.wire.requests import Browse, Discard, DiscardKey, NewMessage, Send
from holdfast.wire.routes import DISCARDED, MESSAGES

from ._values import number_or_none, numbers, path_id

SPACE = re.compile(r"[ \t\r\n]+")  # in base64, the database passes over it
LONGEST_KEY = 190  # of a header: the engine takes 200, and a number may come behind it

book = Book("messages")


@book.verb(SEND, takes_idempotency_key=True)
async def send(call: Call[Send]) -> object:
    """Send messages: all of them, or none."""
    messages = call.asked.messages
    if (key := call.request.headers.get("idempotency-key")) is not None:
        messages = with_key(messages, key)
    for nth, message in enumerate(messages):
        if message.body is not None:
            check_base64(message.body, nth)
    await call.service.limit("send", call.queue)
    with call.service.traces.operation("send", "send", call.queue) as operation:
        if (trace := carried(call.request.headers.raw)) is not None:
            messages = [with_trace(message, trace) for message in messages]
        ids = await call.service.sends.send(call.queue, messages)
        operation.concerns(ids)
    return ids


def check_base64(body: str, nth: int) -> None:
    """Refuse a body that the database could not decode, by its name."""
    try:
        b64decode(SPACE.sub("", body), validate=True)
    except ValueError as error:
        raise InvalidMessageError(
            "QH203",
            f"bad value for messages[{nth}].body: this is not base64",
            f"messages[{nth}]: Got {body[:100]!r}.",
            "A body is bytes, in base64; text and all other JSON is a payload.",
        ) from error


def with_trace(message: NewMessage, trace: Mapping[str, str]) -> NewMessage:
    """A message with a trace among its headers, if it has none of its own, and there is room."""
    headers = message.headers or {}
    size = sum(len(name) + len(bytes(value)) for name, value in headers.items())
    if PARENT in headers or STATE in headers or size > ROOMY:
        return message
    own = {name: Raw(json.encode(value)) for name, value in trace.items()}
    return structs.replace(message, headers={**headers, **own})


def with_key(messages: list[NewMessage], key: str) -> list[NewMessage]:
    """The header Idempotency-Key as the key of each message; several get a number behind it."""
    if any(message.idempotency_key is not None for message in messages):
        raise InvalidRequestError(
            "QH911", "idempotency keys are given twice", "Header and message have one.", "Pass one of them."
        )
    if not 1 <= len(key) <= LONGEST_KEY:
        raise InvalidRequestError(
            "QH911", "bad value for Idempotency-Key", f"It has {len(key)} characters.", "It takes 1 to 190."
        )
    keys = [key] if len(messages) == 1 else [f"{key}/{place}" for place in range(len(messages))]
    return [
        structs.replace(message, idempotency_key=own) for message, own in zip(messages, keys, strict=True)
    ]


@book.verb(READ)
async def browse(call: Call[Browse]) -> object:
    """Look at messages by their state, without claiming them."""
    asked = call.asked
    after = number_or_none(asked.after, "after")
    return await call.service.engine.browse(call.queue, asked.state, limit=asked.limit, after=after)


@book.verb(READ)
async def message(call: Call[None]) -> object:
    """Look at one message, also in the archive."""
    id = path_id(call)
    found = await call.service.engine.message(call.queue, id)
    if found is None:
        raise not_there(call.queue, id)
    return found


@book.add("DELETE", MESSAGES + "/{id}", ADMIN, answer=DISCARDED.type, write=DISCARDED.write)
async def discard_one(call: Call[None]) -> object:
    """Delete a message."""
    id = path_id(call)
    gone = await call.service.engine.discard(call.queue, [id])
    if not gone:
        raise not_there(call.queue, id)
    return gone


@book.verb(ADMIN)
async def discard(call: Call[Discard]) -> object:
    """Delete messages of a queue or of its dead letters; answers with those that were there."""
    return await call.service.engine.discard(call.queue, numbers(call.asked.ids) or [])


@book.verb(ADMIN)
async def discard_key(call: Call[DiscardKey]) -> object:
    """Delete the messages that have a key."""
    return await call.service.engine.discard_key(call.queue, call.asked.key)


def not_there(queue: str, id: int) -> MessageNotFoundError:
    """There is no such message."""
    return MessageNotFoundError(
        "QH924", f"message {id} is not in queue {queue}", "It has ended, or never was.", None
    )
