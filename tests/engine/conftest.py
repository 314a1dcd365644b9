"""The engine in a fresh database. A notice that no test asked for fails it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine
from tests.fix_database import Connect, fresh_database

Open = Callable[[], Engine]


@pytest.fixture
def open_engine(connect: Connect) -> Iterator[Open]:
    """Opens one more session to the test's database."""
    notices: list[str] = []

    def opened() -> Engine:
        connection: psycopg.Connection[Any] = connect()
        connection.add_notice_handler(
            lambda notice: notices.append(f"{notice.severity}: {notice.message_primary}")
        )
        return Engine(connection)

    yield opened
    assert notices == []


@pytest.fixture
def engine(open_engine: Open) -> Engine:
    """The engine, its clock stopped at T0."""
    engine = open_engine()
    engine.at(T0)
    return engine


@pytest.fixture
def queue(engine: Engine) -> Engine:
    """The engine, with a plain queue `q`."""
    engine.create("q")
    return engine


@pytest.fixture(scope="module")
def refusing(server_url: str, template_database: str) -> Iterator[Engine]:
    """A queue `q` that a whole module shares, for calls that are refused and leave no trace."""
    with (
        fresh_database(server_url, template_database) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        engine = Engine(connection)
        engine.at(T0)
        engine.create("q")
        yield engine
