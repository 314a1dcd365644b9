"""Records and jobs as the topics page shows them, and the other way round.

The meta of a record is the headers of a message; its node is a header of its own. What was moved as a dead
letter says where it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.client import Delivery, InvalidRequestError, Record
from holdfast.server.numbers import LANE_BITS
from holdfast.wire.answers import as_base64
from holdfast.wire.requests import NewMessage

from .requests import Append, NewRecord
from .values import epoch_ms, lease_id

NODE = "$node"
MOST_META_BYTES, MOST_META_KEYS = 16 * 1024, 64
MOVED = {"queue": str, "id": int, "deliveries": int}  # what the origin of a dead letter tells
SENT_BACK = ("redriven_at", "replayed_at")  # in the origin of what is no dead letter any more

Document = dict[str, Any]

encode = msgspec.json.Encoder().encode
decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def messages(asked: Append) -> list[NewMessage]:
    """The records of a request as messages."""
    return [as_message(record, record.node or asked.node) for record in asked.records]


def as_message(record: NewRecord, node: str | None) -> NewMessage:
    """A record as a message."""
    headers = {name: value for name, value in (record.meta or {}).items() if name != NODE}
    if len(headers) > MOST_META_KEYS or sum(map(len, map(bytes, headers.values()))) > MOST_META_BYTES:
        raise InvalidRequestError(
            "QH911", "bad value for meta", f"It takes {MOST_META_KEYS} keys, and {MOST_META_BYTES} bytes."
        )
    if node is not None:
        headers[NODE] = Raw(encode(node))
    return NewMessage(payload=record.data, headers=headers or None, tag=record.tag)


def as_job(delivery: Delivery, seq: int) -> Document:
    """A message that was handed out."""
    node, meta = parts(delivery)
    job: Document = {
        "$seq": seq,
        "lease_id": lease_id(delivery.token, seq),
        "deadline": epoch_ms(delivery.deadline),
        "$ts": epoch_ms(delivery.enqueued_at),
    }
    if node is not None:
        job[NODE] = node
    if delivery.tag is not None:
        job["$tag"] = delivery.tag
    job |= {"deliveries": delivery.deliveries, "data": data(delivery)}
    return job | {"meta": meta} if meta else job


def jobs(deliveries: Sequence[Delivery], seqs: Sequence[int]) -> list[Document]:
    """Messages that were handed out, ascending by their numbers."""
    by_seq = sorted(zip(seqs, deliveries, strict=True), key=lambda pair: pair[0])
    return [as_job(delivery, seq) for seq, delivery in by_seq]


def as_record(found: Record, *, tags: bool, meta: bool, content: bool = True) -> Document:
    """A record that was read."""
    node, headers = parts(found)
    assert found.enqueued_at is not None
    record: Document = {"$seq": found.seq, "$ts": epoch_ms(found.enqueued_at)}
    if node is not None:
        record[NODE] = node
    if tags and found.tag is not None:
        record["$tag"] = found.tag
    if content:
        record["data"] = data(found)
    return record | {"meta": headers} if meta and headers else record


def node_of(found: Record) -> str | None:
    """Who wrote a record."""
    return parts(found)[0]


def data(found: Delivery | Record) -> Any:
    """What is in a message; bytes as the native API shows them."""
    if found.body is not None:
        return {"body": as_base64(found.body), "content_type": found.content_type}
    return found.payload


def parts(found: Delivery | Record) -> tuple[str | None, Document]:
    """The node and the meta of a message."""
    # What is in them stays as it is: not every number of JSON is one of Python.
    headers: Document = decode_fields(cast(Raw, found.headers)) if found.headers is not None else {}
    node = headers.pop(NODE, None)
    origin: Any = msgspec.json.decode(cast(Raw, found.origin)) if found.origin is not None else None
    if is_dead(origin):
        headers |= provenance(origin)
    return (text(node) if node is not None else None), headers


def text(value: Raw) -> str | None:
    """What a text in JSON says; None: it is something else."""
    return msgspec.json.decode(value) if bytes(value).startswith(b'"') else None


def is_dead(origin: Any) -> bool:
    """Whether this is the origin of a dead letter; others may have written what is no origin."""
    if not isinstance(origin, dict) or any(name in origin for name in SENT_BACK):
        return False
    return all(isinstance(origin.get(name), kind) for name, kind in MOVED.items())


def provenance(origin: Document) -> Document:
    """Where a dead letter came from, as text, like all meta of the page."""
    return {
        "$dead_letter_from": origin["queue"],
        "$dead_letter_deliveries": str(origin["deliveries"]),
        "$dead_letter_src_seq": str(origin["id"] & ((1 << LANE_BITS) - 1)),
    }
