"""One server for each module of tests, over a database of its own; a topic of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, Protocol

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.server.settings import Settings
from tests.dialects.foundrydb import FoundryDb
from tests.dialects.queue_ti import QueueTi
from tests.dialects.seeds import page
from tests.dialects.topics import Topics
from tests.fix_database import holdfast_database
from tests.fix_http import Caller, served

T0 = datetime(2030, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)

At = Callable[[float], None]


class Rows(Protocol):
    """Asks the module's database; the rows."""

    def __call__(self, statement: LiteralString, *parameters: Any) -> list[Any]: ...


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say it where the pages are not there to be compared with."""
    if any(page(name) is None for name in ("foundrydb-queues", "queue-ti", "topics")):
        terminalreporter.section("LEFT OUT")
        terminalreporter.line(
            "tests/dialects: the pages are not in ../shared/seeds (nor where HOLDFAST_SEEDS says): "
            "examples were run as the tests have them, and NOT compared with the pages."
        )


@pytest.fixture(scope="module")
def module_url(server_url: str, template_database: str) -> Iterator[str]:
    """The database of a module's server."""
    with holdfast_database(server_url, template_database) as url:
        yield url


@pytest.fixture(scope="module")
def native(module_url: str) -> Iterator[Caller]:
    """The server, by its native API."""
    with served(Settings(database_url=module_url, port=0, heartbeat=1.0)) as caller:
        yield caller


@pytest.fixture(scope="module")
def topics(native: Caller) -> Iterator[Topics]:
    """The server, by its dialect."""
    with Topics(native.address) as topics:
        yield topics


@pytest.fixture(scope="module")
def queue_ti(native: Caller) -> Iterator[QueueTi]:
    """The server, by another dialect."""
    with QueueTi(native.address) as queue_ti:
        yield queue_ti


@pytest.fixture(scope="module")
def foundrydb(native: Caller) -> Iterator[FoundryDb]:
    """The server, by a third one."""
    with FoundryDb(native.address) as foundrydb:
        yield foundrydb


@pytest.fixture(scope="module")
def holdfast(module_url: str) -> Iterator[Holdfast]:
    """The same queues without HTTP."""
    with Holdfast(module_url) as client:
        yield client


@pytest.fixture
def rows(module_url: str) -> Iterator[Rows]:
    """Asks the module's database."""
    with psycopg.connect(module_url, autocommit=True) as connection:

        def ask(statement: LiteralString, *parameters: Any) -> list[Any]:
            return connection.execute(statement, parameters).fetchall()

        yield ask


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t{next(_numbers)}"


@pytest.fixture
def at(module_url: str) -> Iterator[At]:
    """Stops the clock so many seconds after some moment; it runs again after the test."""
    with psycopg.connect(module_url, autocommit=True) as connection:

        def set_clock(seconds: float) -> None:
            connection.execute("select holdfast.set_clock(%s)", [T0 + timedelta(seconds=seconds)])

        set_clock(0)
        yield set_clock
        connection.execute("select holdfast.set_clock(null)")
