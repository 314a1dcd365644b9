"""Every error code: the exception it becomes, and what the exception tells."""

from __future__ import annotations

import pickle
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import (
    ERRORS,
    AsyncHoldfast,
    HoldfastError,
    LeaseLostError,
    NewMessage,
    QueueNotFoundError,
    RequestError,
)
from holdfast.client import _errors
from tests.client.conftest import Bind

Scenario = Callable[[AsyncHoldfast], Awaitable[Any]]
SQL = Path(holdfast.__file__).parent / "sql"
SOON = datetime(2040, 1, 1, tzinfo=UTC)
LONG = "x" * 201
RAISED_BY_CLIENT = {"QH501", "QH502", "QH503", "QH504"}
# By functions that the client does not call.
RAISED_IN_BULK = {"QH230", "QH231", "QH232", "QH801", "QH802", "QH810", "QH811"}
# tests/http/test_refusals.py has a scenario for each of them.
RAISED_BY_SERVER = {code for code, kind in ERRORS.items() if issubclass(kind, RequestError)}


async def claim_one(client: AsyncHoldfast) -> int:
    await client.send("q", 1)
    return (await client.claim("q"))[0].token


async def claim_in_repeatable_read(client: AsyncHoldfast) -> None:
    async with client.transaction() as transaction:
        await transaction.connection.execute("set transaction isolation level repeatable read")
        await transaction.claim("q")


async def ack_twice_strictly(client: AsyncHoldfast) -> None:
    token = await claim_one(client)
    (held,) = await client.held("q", token)
    await client.ack("q", token)
    await client.ack("q", token, [held.id], strict=True)


async def nack_too_late(client: AsyncHoldfast) -> None:
    await client.nack("q", await claim_one(client), delay=timedelta(days=5000))


async def fill(client: AsyncHoldfast) -> None:
    await client.configure_queue("q", {"max_depth": 2})
    await client.send_batch("q", [1, 2, 3])


async def create_again(client: AsyncHoldfast) -> None:
    await client.create_queue("q", {"max_deliveries": 9})


async def redrive_without_dead_letters(client: AsyncHoldfast) -> None:
    await client.configure_queue("q", {"dead_letter": False})
    await client.redrive("q")


async def claim_from_a_log(client: AsyncHoldfast) -> None:
    await client.create_queue("log", {"kind": "log"})
    await client.claim("log")


async def same_key_another_payload(client: AsyncHoldfast) -> None:
    await client.send("q", 1, idempotency_key="a")
    await client.send("q", 2, idempotency_key="a")


async def strict_with_messages(client: AsyncHoldfast) -> None:
    await client.send("q", 1)
    await client.configure_queue("q", {"ordering": "strict"})


async def append_with_a_delay(client: AsyncHoldfast) -> None:
    await client.create_queue("log", {"kind": "log"})
    await client.send("log", 1, delay=1)


async def one_limiter_too_many(client: AsyncHoldfast) -> None:
    async with client.transaction() as transaction:
        await transaction.connection.execute(
            "insert into holdfast.limiter (name) select 'x' || n from generate_series(1, 10000) n"
        )
        await transaction.take_rate("a", 1)


SCENARIOS: dict[str, Scenario] = {
    "QH101": lambda client: client.send("nowhere", 1),
    "QH102": create_again,
    "QH103": lambda client: client.create_queue("not a name!"),
    "QH104": lambda client: client.create_queue("r", {"colour": "red"}),
    "QH105": redrive_without_dead_letters,
    "QH201": lambda client: client.send("q", "x" * 1_100_000),
    "QH202": lambda client: client.send("q", 1, headers={"x": "y" * 70_000}),
    "QH203": lambda client: client.send("q", 1, body=b"1"),
    "QH204": lambda client: client.send("q", 1, priority=11),
    "QH205": lambda client: client.send("q", 1, delay=-1),
    "QH206": lambda client: client.send("q", 1, ttl=-1),
    "QH207": lambda client: client.send("q", 1, tag=LONG),
    "QH208": lambda client: client.send_batch("q", [1] * 100_001),
    "QH209": fill,
    "QH210": lambda client: client.send("q", 1, max_deliveries=1001),
    "QH301": lambda client: client.claim("q", 0),
    "QH302": lambda client: client.claim("q", lease=0.01),
    "QH303": claim_in_repeatable_read,
    "QH304": ack_twice_strictly,
    "QH305": nack_too_late,
    "QH401": lambda client: client.browse("q", "asleep"),
    "QH402": lambda client: client.browse("q", limit=0),
    "QH403": lambda client: client.redrive("q", filter={"colour": "red"}),
    "QH220": lambda client: client.send("q", 1, key=""),
    "QH221": lambda client: client.send("q", 1, ordering_key="a"),
    "QH222": same_key_another_payload,
    "QH310": strict_with_messages,
    "QH311": lambda client: client.unblock("q", "a", how="somehow"),
    "QH312": lambda client: client.unblock("q", "a"),
    "QH410": lambda client: client.purge("q", ["asleep"]),
    "QH411": lambda client: client.replay("q", outcomes=["lost"]),
    "QH601": lambda client: client.configure_queue("q", {"kind": "log"}),
    "QH602": claim_from_a_log,
    "QH603": lambda client: client.log_stats("q"),
    "QH604": append_with_a_delay,
    "QH605": lambda client: client.read("q", -1),
    "QH701": lambda client: client.take_rate("a", 0),
    "QH702": lambda client: client.take_rate("", 1),
    "QH703": one_limiter_too_many,
    "QH421": lambda client: client.samples("q", SOON, SOON - timedelta(days=1)),
    "QH422": lambda client: client.maintain(60),
    "QH803": lambda client: client.rollups("q", bucket=7),
    "QH901": lambda client: client.create_key("shop", scopes=["everything"]),
    "QH902": lambda client: client.rotate_key(99),
}


@pytest.mark.parametrize("code", SCENARIOS)
async def test_each_code_raises_its_own_exception(client: AsyncHoldfast, code: str) -> None:
    await client.create_queue("q")

    with pytest.raises(HoldfastError) as caught:
        await SCENARIOS[code](client)

    error = caught.value
    assert type(error) is ERRORS[code]
    assert error.code == code
    assert error.message
    assert error.hint
    assert isinstance(error.__cause__, psycopg.Error)
    assert error.__cause__.sqlstate == code


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
async def test_bulk_send_refuses_what_send_many_refuses(
    client: AsyncHoldfast, code: str, message: NewMessage
) -> None:
    await client.create_queue("q")

    with pytest.raises(ERRORS[code]):
        await client.send_many("q", [message])
    with pytest.raises(ERRORS[code]):
        await client.bulk_send("q", [message])


async def test_an_error_inside_a_transaction_is_mapped_too(client: AsyncHoldfast) -> None:
    with pytest.raises(QueueNotFoundError):
        async with client.transaction() as transaction:
            await transaction.send("nowhere", 1)


async def test_an_error_on_a_connection_of_the_callers_is_mapped_too(bind: Bind) -> None:
    client, _ = await bind()

    with pytest.raises(QueueNotFoundError):
        await client.send("nowhere", 1)


async def test_other_database_errors_pass_through(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("create schema other")
    conn.execute("drop function holdfast.sweep(text)")

    with pytest.raises(psycopg.errors.UndefinedFunction):
        await client.sweep("q")


async def test_a_code_that_is_not_known_becomes_a_plain_error(
    client: AsyncHoldfast, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(
        "create or replace function holdfast.sweep(queue text) returns int language plpgsql as "
        "$$ begin raise exception using errcode = 'QH999', message = 'news', hint = 'upgrade'; end $$"
    )

    with pytest.raises(HoldfastError) as caught:
        await client.sweep("q")

    assert type(caught.value) is HoldfastError
    assert (caught.value.code, caught.value.message, caught.value.detail) == ("QH999", "news", None)
    assert caught.value.http_status == 500


def test_an_error_prints_its_code_detail_and_hint() -> None:
    error = LeaseLostError("QH304", "lost", "ids 1, 2", "claim again")

    assert str(error) == "lost [QH304]\nDetail: ids 1, 2\nHint: claim again"


async def test_an_error_tells_which_of_several_messages_was_refused(client: AsyncHoldfast) -> None:
    await client.create_queue("q")

    with pytest.raises(HoldfastError) as of_many:
        await client.send_many("q", [1, 2, NewMessage(payload=3, priority=11)])
    with pytest.raises(HoldfastError) as of_all:
        await client.send_batch("q", [1, 2, 3], priority=11)

    assert of_many.value.index == 2
    assert of_all.value.index is None


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(LeaseLostError("QH304", "lost", None, "claim again")))

    assert type(error) is LeaseLostError
    assert (error.code, error.message, error.detail, error.hint) == ("QH304", "lost", None, "claim again")


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"(\w+Error)\s+(QH\d{3})\s+(\d{3})", _errors.__doc__ or "")

    assert {code: (name, int(status)) for name, code, status in drawn} == {
        code: (kind.__name__, kind.http_status) for code, kind in ERRORS.items()
    }


def test_every_code_that_the_sql_raises_has_an_exception_and_a_scenario() -> None:
    sources = [*SQL.glob("functions/*.sql"), *SQL.glob("migrations/*.sql")]
    raised = {code for path in sources for code in re.findall(r"'(QH(?!000)\d{3})'", path.read_text())}

    assert raised == set(ERRORS) - RAISED_BY_CLIENT - RAISED_BY_SERVER
    assert set(SCENARIOS) == raised - RAISED_IN_BULK


def test_names_of_errors_are_unique() -> None:
    names = [kind.name for kind in ERRORS.values()]

    assert len(set(names)) == len(names)


def test_traces_name_an_error_as_callers_know_it() -> None:
    kinds = [kind for kind in vars(holdfast).values() if isinstance(kind, type)]
    classes = [kind for kind in kinds if issubclass(kind, HoldfastError)]

    assert len(classes) > len(ERRORS)
    assert {kind.__module__ for kind in classes} == {"holdfast"}
    assert pickle.loads(pickle.dumps(QueueNotFoundError("QH101", "no"))).__class__ is QueueNotFoundError
