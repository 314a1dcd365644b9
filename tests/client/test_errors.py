"""Every error code: the exception it becomes, and what the exception tells."""

from __future__ import annotations

import pickle
import re
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
    WrongIsolationError,
)
from holdfast.client import _errors
from tests.client.conftest import Bind
from tests.conformance.scenarios import SCENARIOS

SQL = Path(holdfast.__file__).parent / "sql"
RAISED_BY_CLIENT = {"QH501", "QH502", "QH503", "QH504"}
# By whoever seals and opens secrets, and connects with them.
RAISED_BY_VAULT = {"QH840", "QH841", "QH853"}
# By the rules of schemas, which the engine does not know.
RAISED_BY_SCHEMAS = {"QH108", "QH240"}
# By whoever opens messages.
RAISED_BY_CONSUMERS = {"QH242", "QH243"}
# By functions that the client does not call.
RAISED_IN_BULK = {"QH230", "QH231", "QH232", "QH801", "QH802", "QH810", "QH811"}
# By servers, to those who call a hook.
RAISED_FOR_CALLERS = {"QH883", "QH884"}
# By functions that only servers call.
RAISED_FOR_SERVERS = {"QH830", "QH831", "QH864", "QH866", "QH867", "QH868", "QH879"}
# Of a secret in clear: the client seals it.
RAISED_IN_SQL = {"QH874"}
# In transactions, with 10,000 limiters, and with a service: here, and in tests/conformance.
RAISED_ELSEWHERE = {"QH303", "QH703", "QH852", "QH863"}
# tests/http/test_refusals.py has a scenario for each of them.
RAISED_BY_SERVER = {code for code, kind in ERRORS.items() if issubclass(kind, RequestError)}


@pytest.mark.parametrize("code", ["QH101", "QH209", "QH304", "QH422"])
async def test_the_error_of_the_database_is_the_cause(client: AsyncHoldfast, code: str) -> None:
    await client.create_queue("q")

    with pytest.raises(ERRORS[code]) as caught:
        await SCENARIOS[code](client, "q")

    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert caught.value.__cause__.sqlstate == code


async def test_claims_need_read_committed(client: AsyncHoldfast) -> None:
    await client.create_queue("q")

    async with client.transaction() as transaction:
        await transaction.connection.execute("set transaction isolation level repeatable read")
        with pytest.raises(WrongIsolationError) as caught:
            await transaction.claim("q")

    assert caught.value.code == "QH303"


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

    others = RAISED_BY_CLIENT | RAISED_BY_VAULT | RAISED_BY_SCHEMAS | RAISED_BY_CONSUMERS | RAISED_BY_SERVER
    assert raised == set(ERRORS) - others - RAISED_FOR_CALLERS
    elsewhere = RAISED_IN_BULK | RAISED_FOR_SERVERS | RAISED_IN_SQL | RAISED_ELSEWHERE
    assert set(SCENARIOS) == raised - elsewhere | RAISED_BY_SCHEMAS


def test_names_of_errors_are_unique() -> None:
    names = [kind.name for kind in ERRORS.values()]

    assert len(set(names)) == len(names)


def test_traces_name_an_error_as_callers_know_it() -> None:
    kinds = [kind for kind in vars(holdfast).values() if isinstance(kind, type)]
    classes = [kind for kind in kinds if issubclass(kind, HoldfastError)]

    assert len(classes) > len(ERRORS)
    assert {kind.__module__ for kind in classes} == {"holdfast"}
    assert pickle.loads(pickle.dumps(QueueNotFoundError("QH101", "no"))).__class__ is QueueNotFoundError
