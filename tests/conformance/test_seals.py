"""Sealed messages, through every door: with a public key on the queue nothing is stored in clear.

1. Whatever is sent is an envelope in the queue, which the private key opens; with cryptography alone too.
2. What is no message of its own stays in clear: keys, tag, headers, times.
3. Under an idempotency key the same is sent once, and another is refused, though envelopes all differ.
4. Of several keys the newest seals; those before it count until they are dropped.
5. An envelope that was made elsewhere is stored as it is.
6. What a schema refuses is not told.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import (
    AsyncHoldfast,
    CannotOpenError,
    HoldfastError,
    IdempotencyConflictError,
    InvalidMessageError,
    InvalidSealKeyError,
    NewMessage,
    PayloadMismatchError,
    PayloadTooLargeError,
    PrivateKeyMissingError,
    QueueNotFoundError,
    UnsealedMessageError,
    is_sealed,
    open_sealed,
    seal,
)
from tests.conformance.conftest import MakeQueue
from tests.seals.plainly import Pair, pair, plainly_opened

SEALED = "application/vnd.holdfast.sealed"
PAIRS = {kind: pair(kind) for kind in ("x25519", "rsa")}
MINE = PAIRS["x25519"]
DEEP: dict[str, Any] = {"name": "Zoë 🫖", "list": [1, 2.5, None, True, {"": "\\u0000?"}]}


def id_of(keys: Pair) -> str:
    """What a public key is known by."""
    return hashlib.sha256(b64decode("".join(keys.public.splitlines()[1:-1]))).hexdigest()


async def opened(client: AsyncHoldfast, queue: str, keys: Pair = MINE) -> list[Any]:
    """What is in a queue, by id; all of it is sealed."""
    entries = await client.browse(queue)
    assert all(entry.payload is None and entry.content_type == SEALED for entry in entries)
    return [open_sealed(entry, keys.private) for entry in sorted(entries, key=lambda entry: entry.id)]


@pytest.mark.parametrize("kind", PAIRS)
async def test_what_is_sent_is_sealed(client: AsyncHoldfast, queue: str, kind: str) -> None:
    keys = PAIRS[kind]
    assert await client.set_seal_key(queue, keys.public) == id_of(keys)

    await client.send(queue, DEEP)
    await client.send(queue, Jsonb(None))
    await client.send(queue, body=b"\0\xff", content_type="image/png")
    await client.send(queue, body=b"")
    await client.send(queue)
    await client.send_batch(queue, iter([1, None, "two"]), tag="batch")
    await client.send_many(
        queue, [3, NewMessage(body=b"four"), NewMessage(payload=Jsonb(None)), NewMessage()]
    )
    await client.bulk_send(
        queue, [5, NewMessage(payload={"six": 6}), NewMessage(body=b"7", content_type="a/b")]
    )

    found = await opened(client, queue, keys)
    assert [(each.payload, each.body) for each in found] == [
        (DEEP, None),
        (None, None),
        (None, b"\0\xff"),
        (None, b""),
        (None, None),
        (1, None),
        (None, None),
        ("two", None),
        (3, None),
        (None, b"four"),
        (None, None),
        (None, None),
        (5, None),
        ({"six": 6}, None),
        (None, b"7"),
    ]
    assert [each.content_type for each in found if each.content_type] == ["image/png", "a/b"]
    assert {(each.queue, each.key_id) for each in found} == {(queue, id_of(keys))}


@pytest.mark.parametrize("kind", PAIRS)
async def test_cryptography_alone_opens_an_envelope(client: AsyncHoldfast, queue: str, kind: str) -> None:
    await client.set_seal_key(queue, PAIRS[kind].public)
    await client.send(queue, DEEP, content_type="application/json")
    await client.send(queue, Jsonb(None))
    await client.send_many(queue, [NewMessage(body=b"b")])

    deliveries = await client.claim(queue, 10)

    told = [plainly_opened(delivery.body or b"", PAIRS[kind].private) for delivery in deliveries]
    assert [(header["kind"], header.get("type")) for header, _ in told] == [
        ("payload", "application/json"),
        ("payload", None),
        ("body", None),
    ]
    assert json.loads(told[0][1]) == DEEP
    assert [text for _, text in told[1:]] == [b"null", b"b"]
    assert {(header["queue"], header["enc"], header["kid"]) for header, _ in told} == {
        (queue, "A256GCM", id_of(PAIRS[kind]))
    }


async def test_what_is_no_content_stays_in_clear(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(ordering="key")
    await client.set_seal_key(queue, MINE.public)

    await client.send_batch(queue, [1], tag="a", headers={"b": "c"}, ordering_key="d", priority=7, key="e")
    (entry,) = await client.browse(queue)

    assert (entry.tag, entry.headers, entry.ordering_key, entry.key, entry.priority) == (
        "a",
        {"b": "c"},
        "d",
        "e",
        7,
    )


@pytest.mark.parametrize("size", [0, 1, 1_000_000])
async def test_bodies_of_any_size_come_back(client: AsyncHoldfast, queue: str, size: int) -> None:
    await client.set_seal_key(queue, MINE.public)

    await client.send(queue, body=b"x" * size)

    assert [each.body for each in await opened(client, queue)] == [b"x" * size]


async def test_an_envelope_counts_with_all_it_has(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(max_payload=1024)
    await client.send(queue, body=b"x" * 1024)
    await client.set_seal_key(queue, MINE.public)

    await client.send(queue, body=b"x" * 500)
    with pytest.raises(PayloadTooLargeError):
        await client.send(queue, body=b"x" * 1024)


async def test_the_same_under_a_key_is_sent_once(client: AsyncHoldfast, queue: str) -> None:
    await client.set_seal_key(queue, MINE.public)

    first = await client.send(queue, {"a": 1, "b": [1.5, "ü"]}, idempotency_key="once")
    again = await client.send(
        queue, Jsonb('{"b": [1.5,"\\u00fc"],  "a": 1}', dumps=str), idempotency_key="once"
    )
    body = await client.send(queue, body=b"x", idempotency_key="body")
    many = await client.send_many(
        queue, [NewMessage(body=b"x", idempotency_key="body"), NewMessage(payload=1, idempotency_key="n")]
    )
    (batch,) = await client.send_batch(queue, [1], idempotency_key="n")
    await client.bulk_send(queue, [NewMessage(payload=1, idempotency_key="n")])

    assert (again, many, batch) == (first, [body, many[1]], many[1])
    assert len(await client.browse(queue)) == 3
    for call in (
        client.send(queue, {"a": 2}, idempotency_key="once"),
        client.send(queue, {"a": 1, "b": [1.5, "u"]}, idempotency_key="once"),
        client.send(queue, body=b"y", idempotency_key="body"),
        client.send(queue, "x", idempotency_key="body"),
        client.send_many(queue, [NewMessage(payload=2, idempotency_key="n")]),
        client.bulk_send(queue, [NewMessage(payload=2, idempotency_key="n")]),
    ):
        with pytest.raises(IdempotencyConflictError):
            await call


async def test_what_was_sent_before_a_rotation_is_known_after_it(client: AsyncHoldfast, queue: str) -> None:
    await client.set_seal_key(queue, MINE.public)
    first = await client.send(queue, 1, idempotency_key="a")

    await client.set_seal_key(queue, PAIRS["rsa"].public)

    assert await client.send(queue, 1, idempotency_key="a") == first


async def test_the_newest_key_seals_and_those_before_count(client: AsyncHoldfast, queue: str) -> None:
    old, new = MINE, PAIRS["rsa"]
    await client.set_seal_key(queue, old.public)
    await client.send(queue, 1)
    await client.set_seal_key(queue, new.public)
    await client.send(queue, 2)
    await client.send(queue, body=seal(queue, 3, public_key=old.public))  # by whoever has not heard

    entries = await client.browse(queue)
    listed = await client.seal_keys(queue)

    assert [open_sealed(entry, [old.private, new.private]).payload for entry in entries] == [1, 2, 3]
    assert [(each.id, each.kind, each.public_key) for each in listed] == [
        (id_of(new), "rsa", new.public),
        (id_of(old), "x25519", old.public),
    ]
    with pytest.raises(PrivateKeyMissingError, match=id_of(new)):
        open_sealed(entries[1], old.private)


async def test_a_dropped_key_counts_no_more(client: AsyncHoldfast, queue: str) -> None:
    old, new = id_of(MINE), id_of(PAIRS["rsa"])
    await client.set_seal_key(queue, MINE.public)
    await client.set_seal_key(queue, PAIRS["rsa"].public)

    assert await client.drop_seal_key(queue, old) is True
    assert await client.drop_seal_key(queue, old) is False
    assert await client.drop_seal_key(queue, "0" * 64) is False
    with pytest.raises(UnsealedMessageError, match=old):
        await client.send(queue, body=seal(queue, 1, public_key=MINE.public))
    gone = (await client.seal_keys(queue))[1]
    assert (gone.id, isinstance(gone.dropped_at, datetime)) == (old, True)

    # Set again it is the newest; dropped, the one before it is.
    assert await client.set_seal_key(queue, MINE.public) == old
    assert [each.id for each in await client.seal_keys(queue)] == [old, new]
    await client.drop_seal_key(queue, old)
    await client.send(queue, 2)
    assert [each.payload for each in await opened(client, queue, PAIRS["rsa"])] == [2]
    await client.drop_seal_key(queue, new)
    id = await client.send(queue, 3)
    assert [entry.payload for entry in await client.browse(queue) if entry.id == id] == [3]


async def test_an_envelope_is_stored_as_it_is(client: AsyncHoldfast, queue: str) -> None:
    await client.set_seal_key(queue, MINE.public)
    envelope = seal(queue, {"a": 1}, public_key=MINE.public)

    await client.send(queue, body=envelope, content_type=SEALED)
    await client.send_many(queue, [NewMessage(body=envelope)])
    await client.bulk_send(queue, [NewMessage(body=envelope)])

    assert [entry.body for entry in await client.browse(queue)] == [envelope] * 3


async def test_an_envelope_of_another_key_is_refused(client: AsyncHoldfast, queue: str) -> None:
    await client.set_seal_key(queue, MINE.public)
    strange = seal(queue, 1, public_key=PAIRS["rsa"].public)

    for call in (
        client.send(queue, body=strange),
        client.send_many(queue, [1, NewMessage(body=strange)]),
        client.bulk_send(queue, [1, NewMessage(body=strange)]),
    ):
        with pytest.raises(UnsealedMessageError, match=id_of(PAIRS["rsa"])):
            await call
    assert await client.browse(queue) == []


async def test_a_schema_is_held_against_what_is_inside(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, {"type": "object", "additionalProperties": {"type": "integer"}})
    await client.set_seal_key(queue, MINE.public)

    await client.send(queue, {"a": 1})
    for call in (
        client.send(queue, {"very-secret": "4711"}),
        client.send_batch(queue, [{"very-secret": "4711"}]),
        client.send_many(queue, [{"very-secret": "4711"}]),
        client.bulk_send(queue, [{"very-secret": "4711"}]),
    ):
        with pytest.raises(PayloadMismatchError, match="does not fit") as caught:
            await call
        assert "secret" not in str(caught.value)
        assert "4711" not in str(caught.value)
    assert [each.payload for each in await opened(client, queue)] == [{"a": 1}]


async def test_moves_keep_an_envelope_as_it_is(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(max_deliveries=1, keep=["done"])
    await client.set_seal_key(queue, MINE.public)
    await client.send(queue, {"a": 1}, idempotency_key="k")
    (held,) = await client.claim(queue)
    await client.nack(queue, held.token, error="no")

    (dead,) = await client.browse(queue, "dead")
    await client.redrive(queue)
    (back,) = await client.claim(queue)
    await client.ack(queue, back.token)
    (kept,) = await client.browse(queue, "archive")
    await client.replay(queue, outcomes=["done"])
    (again,) = await client.claim(queue)

    for each in (held, dead, back, kept, again):
        assert open_sealed(each, MINE.private).payload == {"a": 1}


async def test_a_log_can_be_sealed(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    log = await make_queue(kind="log")
    await client.set_seal_key(log, MINE.public)
    await client.send_batch(log, [1, 2])

    assert [open_sealed(record, MINE.private).payload for record in await client.read(log)] == [1, 2]


async def test_what_is_not_json_is_refused_and_not_told(client: AsyncHoldfast, queue: str) -> None:
    await client.set_seal_key(queue, MINE.public)

    for bad in (Jsonb('{"secret": ', dumps=str), Jsonb('["secret", NaN]', dumps=str), "secret\ud800"):
        with pytest.raises(HoldfastError) as caught:
            await client.send(queue, bad)
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidMessageError):
        await client.send(queue, 1, body=b"1")
    assert await client.browse(queue) == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "ssh-rsa AAAA",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        pair("rsa", bits=1024).public,
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VuAyEA" + "A" * 43 + "=\n-----END PUBLIC KEY-----\n",
    ],
    ids=["nothing", "another form", "short", "weak", "zero"],
)
async def test_what_is_no_public_key_is_refused(client: AsyncHoldfast, queue: str, key: str) -> None:
    with pytest.raises(InvalidSealKeyError):
        await client.set_seal_key(queue, key)

    assert await client.seal_keys(queue) == []


async def test_a_private_key_goes_nowhere(client: AsyncHoldfast, queue: str) -> None:
    with pytest.raises(InvalidSealKeyError, match="private") as caught:
        await client.set_seal_key(queue, MINE.private)

    assert MINE.private.decode().splitlines()[1] not in str(caught.value)


async def test_keys_are_of_queues_that_are_there(client: AsyncHoldfast, name: str) -> None:
    for call in (
        client.set_seal_key(name, MINE.public),
        client.seal_keys(name),
        client.drop_seal_key(name, "0" * 64),
    ):
        with pytest.raises(QueueNotFoundError):
            await call


async def test_a_key_that_was_just_set_counts_for_clients_that_have_looked(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    await client.send(queue, 0)  # it remembers that there is none

    for nth, keys in enumerate((MINE, PAIRS["rsa"], pair())):
        conn.execute("select holdfast.set_seal_key(%s, %s)", [queue, keys.public])
        if nth:  # what it has sealed with is gone
            conn.execute(
                "select holdfast.drop_seal_key(%s, %s)", [queue, id_of([MINE, PAIRS["rsa"]][nth - 1])]
            )
        await client.send(queue, 1)
        await client.send_batch(queue, [2, 3])
        await client.send_many(queue, [4])
        await client.bulk_send(queue, [5, 6], atomic=bool(nth % 2))

        entries = (await client.browse(queue))[1 + 6 * nth :]
        assert all(is_sealed(entry) for entry in entries)
        assert [open_sealed(entry, keys.private).payload for entry in entries] == [1, 2, 3, 4, 5, 6]


async def test_an_envelope_that_was_changed_cannot_be_opened(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    (clear,) = await client.claim(queue)

    assert not is_sealed(clear)
    with pytest.raises(CannotOpenError, match="not sealed"):
        open_sealed(clear, MINE.private)
