"""Writing: append records, once under a key, to a topic that may be made by it."""

from __future__ import annotations

from typing import Any

from holdfast.client import BatchTooLargeError, InvalidRequestError, QueueNotFoundError
from holdfast.server.answering import JsonResponse
from holdfast.server.endpoint import ADMIN, SEND, Book, Call
from holdfast.wire.requests import NewMessage

from . import configs
from .lifecycle import made, not_there
from .records import messages
from .requests import Append, TopicConfig
from .values import TOPIC, milliseconds, performance

MOST_RECORDS = 10_000
LONGEST_KEY = 200  # what the engine takes

book = Book("writing")


@book.add("POST", TOPIC, SEND, body=Append)
async def append(call: Call[Append]) -> object:
    """Append records, all or none; makes a topic that is not there, unless told not to."""
    asked = call.asked
    if len(asked.records) > MOST_RECORDS:
        raise BatchTooLargeError("QH208", "too many records", f"Got {len(asked.records)}, of {MOST_RECORDS}.")
    key = key_of(call)
    new = messages(asked)
    await call.service.limit("send", call.queue)
    created = await made_for(call) if (await call.service.configs.of(call.queue)).kind is None else False
    try:
        ids, deduped = await sent(call, new, key)
    except QueueNotFoundError:
        # It was there a moment ago.
        call.service.configs.forget(call.queue)
        created = await made_for(call)
        ids, deduped = await sent(call, new, key)
    seqs = await call.service.numbers.of(call.queue, ids)
    head = (await call.service.numbers.extent(call.queue)).last_seq if deduped else max(seqs)
    document: dict[str, Any] = {"topic": call.queue, "first_seq": min(seqs), "last_seq": max(seqs)}
    if call.request.query_params.get("return_seqs") != "false":
        document["seqs"] = seqs
    document |= {"head_seq": head, "count": len(seqs), "created": created, "deduped": deduped}
    return JsonResponse({**document, "performance": performance(call)}, 201 if created else 200)


def key_of(call: Call[Append]) -> str | None:
    """The idempotency key of a request: of its body, else of its header."""
    key = call.asked.idempotency_key
    if key is None:
        key = call.request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= LONGEST_KEY:
        raise InvalidRequestError(
            "QH911", "bad value for idempotency_key", f"It takes 1 to {LONGEST_KEY} characters."
        )
    return key


async def made_for(call: Call[Append]) -> bool:
    """Make the topic of a request that may; says whether it did."""
    asked = call.asked
    given = asked.config or TopicConfig()
    may = asked.create if asked.create is not None else given.auto_create is not False
    if not may or not call.caller.may(ADMIN, call.queue):
        # What is remembered may be older than the topic.
        call.service.configs.forget(call.queue)
        if (await call.service.configs.of(call.queue)).kind is None:
            raise not_there(call.queue)
        return False
    return await made(call, given) is not None


async def sent(call: Call[Append], new: list[NewMessage], key: str | None) -> tuple[list[int], bool]:
    """Send messages; their ids, and whether they were sent before."""
    known = await call.service.configs.of(call.queue)
    window = configs.kept(known.annotations, "idempotency_window_ms")
    if key is None or window == 0:
        return await call.service.sends.send(call.queue, new), False
    return await call.service.sends.send_once(call.queue, new, key, milliseconds(window))
