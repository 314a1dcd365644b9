"""One server for each module of tests, over a database of its own; a topic of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.server.settings import Settings
from tests.dialects.queue_ti import QueueTi
from tests.dialects.seeds import page
from tests.dialects.topics import Topics
from tests.fix_database import holdfast_database
from tests.fix_http import Caller, served

T0 = datetime(2030, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)

At = Callable[[float], None]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say it where the pages are not there to be compared with."""
    if page("topics") is None or page("queue-ti") is None:
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
def holdfast(module_url: str) -> Iterator[Holdfast]:
    """The same queues without HTTP."""
    with Holdfast(module_url) as client:
        yield client


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
