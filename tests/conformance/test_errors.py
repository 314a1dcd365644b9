"""Errors: each code is the same exception through every door, and tells the same."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from holdfast import ERRORS, AsyncHoldfast, HoldfastError, NewMessage, TooManyLimitersError
from holdfast.client._hints import in_verbs
from holdfast.server.advice import advice
from tests.conformance.conftest import MakeQueue, World
from tests.conformance.scenarios import LONG, SCENARIOS, SOON, Scenario

DETAIL = 2  # its place in what is told
LIMITERS = "insert into holdfast.limiter (name) select 'x' || n from generate_series(1, 10000) n"
# One request over HTTP takes fewer messages than one call over SQL, and says so.
OTHER_LIMITS = {"QH208", "QH301"}
# A server sends what it was given with send_many, which spells what it got in another way.
OTHER_DETAIL = {"QH205", "QH206", "QH604"}


async def told(scenario: Scenario, client: AsyncHoldfast, queue: str) -> tuple[str | None, ...]:
    """What the error of a scenario tells, without the names and ids of its own."""
    with pytest.raises(HoldfastError) as caught:
        await scenario(client, queue)
    error = caught.value
    assert type(error) is ERRORS[error.code]
    texts = (error.code, error.message, error.detail, error.hint)
    return tuple(text and re.sub(r"\d{10,}", "ID", text.replace(queue, "QUEUE")) for text in texts)


def as_verbs(text: str | None) -> str | None:
    """What is told, in the words of the client over HTTP, whichever door has told it."""
    return text and in_verbs(advice(text))


@pytest.mark.parametrize("code", SCENARIOS)
async def test_each_code_raises_its_own_exception_and_tells_the_same(
    client: AsyncHoldfast, make_queue: MakeQueue, world: World, code: str
) -> None:
    found = await told(SCENARIOS[code], client, await make_queue())

    assert found[0] == code
    assert all(found)
    if code not in OTHER_LIMITS:
        async with AsyncHoldfast(world.database_url) as plain:
            wanted = [as_verbs(text) for text in await told(SCENARIOS[code], plain, await make_queue())]
        different = [place for place, text in enumerate(found) if as_verbs(text) != wanted[place]]
        assert different == [] or (different == [DETAIL] and code in OTHER_DETAIL)


async def test_one_limiter_too_many_is_refused(client: AsyncHoldfast, conn: psycopg.Connection[Any]) -> None:
    conn.execute(LIMITERS)
    try:
        with pytest.raises(TooManyLimitersError):
            await client.take_rate("a", 1)
    finally:
        conn.execute("delete from holdfast.limiter")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("QH203", NewMessage(payload=1, body=b"1")),
        ("QH204", NewMessage(priority=11)),
        ("QH205", NewMessage(delay=-1)),
        ("QH205", NewMessage(delay=1, deliver_at=SOON)),
        ("QH206", NewMessage(ttl=1, expires_at=SOON)),
        ("QH207", NewMessage(tag=LONG)),
        ("QH210", NewMessage(max_deliveries=-1)),
    ],
)
async def test_every_way_of_sending_refuses_the_same(
    client: AsyncHoldfast, queue: str, code: str, message: NewMessage
) -> None:
    with pytest.raises(ERRORS[code]):
        await client.send_many(queue, [message])
    with pytest.raises(ERRORS[code]):
        await client.bulk_send(queue, [message])

    assert (await client.queue_stats(queue)).depth == 0


async def test_a_code_that_is_not_known_becomes_a_plain_error(
    client: AsyncHoldfast, queue: str, conn: psycopg.Connection[Any]
) -> None:
    ((body,),) = conn.execute("select pg_get_functiondef('holdfast.sweep(text)'::regprocedure)").fetchall()
    conn.execute(
        "create or replace function holdfast.sweep(queue text) returns int language plpgsql as "
        "$$ begin raise exception using errcode = 'QH999', message = 'news', hint = 'upgrade'; end $$"
    )
    try:
        with pytest.raises(HoldfastError) as caught:
            await client.sweep(queue)
    finally:
        conn.execute(body.encode())

    assert type(caught.value) is HoldfastError
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("QH999", "news", "upgrade")
    assert caught.value.http_status == 500
