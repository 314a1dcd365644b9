"""What a client over SQL knows of schemas, and for how long.

1. It looks once and remembers; a change of its own, or one that it hears of, is in force at once.
2. What a transaction changes counts in it, and for nobody else before it commits.
3. Without the packages of the extra `schema`, sends to queues without a schema work.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from holdfast import AsyncHoldfast, Holdfast, PayloadMismatchError
from holdfast.client import _rules
from tests.waiting import eventually

SET = "select holdfast.set_schema('q', %s::jsonb)"


@pytest.fixture
def forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known does not grow old."""
    monkeypatch.setattr(_rules, "FRESH_SECONDS", 1e9)


@pytest.fixture
def queue(conn: psycopg.Connection[Any]) -> str:
    """A queue."""
    conn.execute("select holdfast.create_queue('q')")
    return "q"


def takes(client: Any, payload: Any) -> bool:
    """Whether a message is sent."""
    try:
        client.send("q", payload)
    except PayloadMismatchError:
        return False
    return True


async def taken(client: AsyncHoldfast, payload: Any) -> bool:
    """The same of an asynchronous client."""
    try:
        await client.send("q", payload)
    except PayloadMismatchError:
        return False
    return True


@pytest.mark.usefixtures("forever")
def test_a_client_looks_once_and_its_own_changes_count_at_once(
    database_url: str, queue: str, conn: psycopg.Connection[Any]
) -> None:
    with Holdfast(database_url, listen=False) as client:
        assert takes(client, 1)
        conn.execute(SET, ["false"])
        assert takes(client, 1)  # it knows of no schema yet
        client.set_schema(queue, {"type": "string"}, compatibility="none")
        assert not takes(client, 1)
        client.drop_schema(queue)
        assert takes(client, 1)


def test_what_is_known_grows_old(
    database_url: str, queue: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Holdfast(database_url, listen=False) as client:
        assert takes(client, 1)
        conn.execute(SET, ["false"])
        monkeypatch.setattr(_rules, "FRESH_SECONDS", -1.0)
        assert not takes(client, 1)


@pytest.mark.usefixtures("forever")
def test_a_client_that_listens_hears_of_changes(
    database_url: str, queue: str, conn: psycopg.Connection[Any]
) -> None:
    with Holdfast(database_url) as client:
        client.claim(queue, wait=0.01)  # from now on it listens
        assert takes(client, 1)
        conn.execute(SET, ["false"])
        eventually(lambda: not takes(client, 1), what="the client has heard of the schema")


@pytest.mark.usefixtures("forever")
async def test_an_asynchronous_client_that_listens_hears_of_changes(
    database_url: str, queue: str, conn: psycopg.Connection[Any]
) -> None:
    async with AsyncHoldfast(database_url) as client:
        await client.claim(queue, wait=0.01)
        await client.send(queue, 1)
        conn.execute(SET, ["false"])
        async with asyncio.timeout(20):
            while await taken(client, 1):
                pass


@pytest.mark.usefixtures("forever")
def test_what_a_transaction_changes_counts_in_it_alone(database_url: str, queue: str) -> None:
    with Holdfast(database_url, listen=False) as client:
        with suppress(RuntimeError), client.transaction() as transaction:
            transaction.set_schema(queue, {"type": "string"})
            assert not takes(transaction, 1)
            assert takes(transaction, "a")
            with pytest.raises(PayloadMismatchError):
                transaction.bulk_send(queue, ["a", 1])
            raise RuntimeError

        assert takes(client, 1)
        assert client.queue_schema(queue) is None


@pytest.mark.usefixtures("forever")
def test_a_transaction_knows_what_its_client_knows(
    database_url: str, queue: str, conn: psycopg.Connection[Any]
) -> None:
    with Holdfast(database_url, listen=False) as client:
        assert takes(client, 1)
        conn.execute(SET, ["false"])
        with client.transaction() as transaction:
            assert takes(transaction, 1)


def test_bulk_messages_that_do_not_fit_are_named_by_their_place_among_all(
    database_url: str, queue: str
) -> None:
    with Holdfast(database_url) as client:
        client.set_schema(queue, {"type": "integer"})
        for atomic, sent in ((True, 0), (False, 4)):
            with pytest.raises(PayloadMismatchError) as caught:
                client.bulk_send(queue, [0, 1, 2, 3, 4, "x", 6], chunk=2, atomic=atomic)
            assert caught.value.index == 5
            assert client.queue_stats(queue).ready == sent


@pytest.mark.parametrize("missing", ["jsonschema_rs", "fastavro"])
def test_without_the_packages_a_schema_says_what_is_missing(
    database_url: str,
    queue: str,
    conn: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
) -> None:
    for name in [name for name in sys.modules if name.startswith(("holdfast.schemas", missing))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with Holdfast(database_url, listen=False) as client:
        client.send(queue, 1)
        with pytest.raises(ModuleNotFoundError, match=r"holdfast\[schema\]"):
            client.set_schema(queue, {})
        conn.execute(SET, ["true"])
    with (
        Holdfast(database_url, listen=False) as client,
        pytest.raises(ModuleNotFoundError, match=r"holdfast\[schema\]"),
    ):
        client.send(queue, 1)
