"""Messages: send, look, delete."""

from __future__ import annotations

from msgspec import structs

from holdfast.client import Entry, InvalidRequestError, MessageNotFoundError
from holdfast.server.endpoint import ADMIN, READ, SEND, Book, Call
from holdfast.wire.answers import IdText, all_to_wire, listing, stating, texts, to_wire, wire_type
from holdfast.wire.requests import Browse, Discard, NewMessage, Send

from ._values import number, numbers

MESSAGES = "/v1/queues/{queue}/messages"
LONGEST_KEY = 200

book = Book("messages")
Sent = stating("Sent", ids=list[IdText])
Entries = listing("messages", Entry)
Discarded = stating("Discarded", ids=list[IdText])


@book.add("POST", MESSAGES, SEND, body=Send, answer=Sent, status=201)
async def send(call: Call[Send]) -> object:
    """Send messages: all of them, or none."""
    messages = call.asked.messages
    if key := call.request.headers.get("idempotency-key"):
        messages = with_key(messages, key)
    await call.service.limit("send", call.queue)
    return Sent(texts(await call.service.sends.send(call.queue, messages)))


def with_key(messages: list[NewMessage], key: str) -> list[NewMessage]:
    """The header Idempotency-Key as the key of each message; several get a number behind it."""
    if any(message.idempotency_key is not None for message in messages):
        raise InvalidRequestError(
            "QH911", "idempotency keys are given twice", "Header and message have one.", "Pass one of them."
        )
    keys = [key] if len(messages) == 1 else [f"{key}/{place}" for place in range(len(messages))]
    if len(keys[-1]) > LONGEST_KEY:
        raise InvalidRequestError(
            "QH911", "the idempotency key is too long", f"It has {len(key)} characters.", "At most 190."
        )
    return [
        structs.replace(message, idempotency_key=own) for message, own in zip(messages, keys, strict=True)
    ]


@book.add("GET", MESSAGES, READ, query=Browse, answer=Entries)
async def browse(call: Call[Browse]) -> object:
    """Look at messages by their state, without claiming them."""
    asked = call.asked
    after = None if asked.after is None else number(asked.after)
    found = await call.service.engine.browse(call.queue, asked.state, limit=asked.limit, after=after)
    return Entries(all_to_wire(found))


@book.add("GET", MESSAGES + "/{id}", READ, answer=wire_type(Entry))
async def message(call: Call[None]) -> object:
    """Look at one message, also in the archive."""
    id = path_id(call)
    found = await call.service.engine.message(call.queue, id)
    if found is None:
        raise not_there(call.queue, id)
    return to_wire(found)


@book.add("DELETE", MESSAGES + "/{id}", ADMIN, answer=Discarded)
async def discard_one(call: Call[None]) -> object:
    """Delete a message."""
    id = path_id(call)
    gone = await call.service.engine.discard(call.queue, [id])
    if not gone:
        raise not_there(call.queue, id)
    return Discarded(texts(gone))


@book.add("POST", "/v1/queues/{queue}/discard", ADMIN, body=Discard, answer=Discarded)
async def discard(call: Call[Discard]) -> object:
    """Delete messages of a queue or of its dead letters; answers with those that were there."""
    return Discarded(texts(await call.service.engine.discard(call.queue, numbers(call.asked.ids) or [])))


@book.add("DELETE", "/v1/queues/{queue}/keys/{key}", ADMIN, answer=Discarded)
async def discard_key(call: Call[None]) -> object:
    """Delete the messages that have a key."""
    return Discarded(texts(await call.service.engine.discard_key(call.queue, call.part("key"))))


def path_id(call: Call[None]) -> int:
    """The id in the path."""
    text = call.part("id")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise InvalidRequestError("QH911", "bad value for id", f"Got {text[:100]!r}.", "Ids are numbers.")
    return number(text)


def not_there(queue: str, id: int) -> MessageNotFoundError:
    """There is no such message."""
    return MessageNotFoundError(
        "QH924", f"message {id} is not in queue {queue}", "It has ended, or never was.", None
    )
