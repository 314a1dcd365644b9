"""What a client over SQL does with public keys of queues.

1. One that knows of no key, or of another, is refused, looks again and seals; in a transaction it says so.
2. What a transaction sends in several pieces is sealed from the piece on that meets a key.
3. What a transaction sets counts in it, and for nobody else before it commits.
4. Without the package that encrypts, queues without a key work; with one it says what is missing.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from holdfast import (
    AsyncHoldfast,
    Holdfast,
    NewMessage,
    UnsealedMessageError,
    is_sealed,
    open_sealed,
    seal,
)
from holdfast.client import _rules
from tests.client.conftest import Bind
from tests.seals.plainly import pair

KEYS = pair()
SET = "select holdfast.set_seal_key('q', %s)"


@pytest.fixture(autouse=True)
def forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known does not grow old."""
    monkeypatch.setattr(_rules, "FRESH_SECONDS", 1e9)


@pytest.fixture
def queue(conn: psycopg.Connection[Any]) -> str:
    """A queue."""
    conn.execute("select holdfast.create_queue('q')")
    return "q"


def stored(conn: psycopg.Connection[Any]) -> list[Any]:
    """What is in the queue: the opened payload of an envelope, and in a list what is in clear."""
    rows = conn.execute("select payload, body from holdfast.browse('q') order by id").fetchall()
    return [open_sealed(body, KEYS.private).payload if is_sealed(body) else [clear] for clear, body in rows]


async def test_a_transaction_that_meets_a_key_says_so_and_the_next_seals(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    await client.send(queue, 0)
    conn.execute(SET, [KEYS.public])

    with pytest.raises(UnsealedMessageError):
        async with client.transaction() as transaction:
            await transaction.send(queue, 1)
    async with client.transaction() as transaction:
        await transaction.send(queue, 2)
        await transaction.send_batch(queue, [3])
        await transaction.bulk_send(queue, [4])

    assert stored(conn) == [[0], 2, 3, 4]


@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_connection_of_the_callers_is_retried_where_that_breaks_no_transaction(
    bind: Bind, queue: str, conn: psycopg.Connection[Any], autocommit: bool
) -> None:
    client, connection = await bind(autocommit=autocommit)
    await client.send(queue, 0)
    await connection.commit()
    conn.execute(SET, [KEYS.public])

    if autocommit:
        await client.send(queue, 1)
    else:
        with pytest.raises(UnsealedMessageError):
            await client.send(queue, 1)
        await connection.rollback()
        await client.send(queue, 1)
        await connection.commit()

    assert stored(conn) == [[0], 1]


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_bulk_that_meets_a_key_is_sealed_from_there_on(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any], atomic: bool
) -> None:
    def messages() -> Any:
        for number in range(10):
            if number == 5:
                conn.execute(SET, [KEYS.public])
            yield NewMessage(payload=number) if number % 2 else number

    told: list[int] = []
    sent = await client.bulk_send(queue, messages(), chunk=2, atomic=atomic, progress=told.append)

    assert (sent, told) == (10, [2, 4, 6, 8, 10])
    assert stored(conn) == [[0], [1], [2], [3], 4, 5, 6, 7, 8, 9]


async def test_a_bulk_within_a_transaction_goes_on_too(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    await client.send(queue, 0)
    conn.execute(SET, [KEYS.public])

    async with client.transaction() as transaction:
        await transaction.bulk_send(queue, [1, 2])

    assert stored(conn) == [[0], 1, 2]


async def test_an_envelope_of_a_key_that_is_not_there_is_not_tried_for_ever(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(SET, [KEYS.public])
    strange = seal(queue, 1, public_key=pair().public)

    with pytest.raises(UnsealedMessageError) as caught:
        await client.send_many(queue, [1, NewMessage(body=strange)])
    with pytest.raises(UnsealedMessageError):
        await client.bulk_send(queue, [NewMessage(body=strange)], atomic=False)

    assert caught.value.index == 1
    assert stored(conn) == []


def test_what_a_transaction_sets_counts_in_it_alone(
    database_url: str, queue: str, conn: psycopg.Connection[Any]
) -> None:
    with Holdfast(database_url, listen=False) as client:
        client.send(queue, 0)
        with suppress(RuntimeError), client.transaction() as transaction:
            transaction.set_seal_key(queue, KEYS.public)
            transaction.send(queue, 1)
            (_, sealed) = transaction.browse(queue)
            assert is_sealed(sealed)
            raise RuntimeError
        client.send(queue, 2)

    assert stored(conn) == [[0], [2]]


async def test_a_change_of_its_own_counts_at_once(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    await client.send(queue, 0)
    id = await client.set_seal_key(queue, KEYS.public)
    await client.send(queue, 1)
    await client.drop_seal_key(queue, id)
    await client.send(queue, 2)

    assert stored(conn) == [[0], 1, [2]]


def test_without_the_package_a_key_says_what_is_missing(
    database_url: str, queue: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    envelope = seal(queue, 1, public_key=KEYS.public)
    for name in [name for name in sys.modules if name.startswith(("holdfast.seals", "cryptography"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with Holdfast(database_url, listen=False) as client:
        client.send(queue, 0)
        conn.execute(SET, [KEYS.public])
        for call in (
            lambda: client.send(queue, 1),
            lambda: client.bulk_send(queue, [1]),
            lambda: client.set_seal_key(queue, KEYS.public),
            lambda: open_sealed(envelope, KEYS.private),
            lambda: seal(queue, 1, public_key=KEYS.public),
        ):
            with pytest.raises(ModuleNotFoundError, match=r"holdfast\[secrets\]"):
                call()
        client.send(queue, body=envelope)
        assert [is_sealed(each) for each in client.browse(queue)] == [False, True]


def test_nothing_secret_is_shown_by_what_is_remembered() -> None:
    known = _rules.Seal(key_id="a", public_key="b", digest_key=b"very secret")

    assert "very secret" not in repr(known) + repr(_rules.Rules(None, known))
