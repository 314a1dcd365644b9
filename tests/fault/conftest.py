"""Servers that a test may kill, databases on them, and crews at work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.embedded import EmbeddedPostgres, temporary_postgres
from tests.fault.crew import Crew, crew_at
from tests.fault.servers import DURABLE
from tests.fix_database import with_database

ROLES = ("holdfast_admin", "holdfast_producer", "holdfast_consumer", "holdfast_monitor")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def durable_server() -> Iterator[EmbeddedPostgres]:
    """A server on disk, with fsync, for tests that crash it; each must leave it able to start."""
    with temporary_postgres(settings=DURABLE) as server:
        with psycopg.connect(server.ensure_running(), autocommit=True) as connection:
            for role in ROLES:  # a dump of one database grants rights to them, and does not make them
                connection.execute(f"create role {role} nologin".encode())
        yield server


@pytest.fixture
def durable_url(durable_server: EmbeddedPostgres) -> Iterator[str]:
    """An empty database there, gone afterwards."""
    url, name = durable_server.ensure_running(), f"fault_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
    yield with_database(url, name)
    with psycopg.connect(durable_server.ensure_running(), autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def crew(database_url: str, tmp_path: Path) -> Iterator[Crew]:
    """A crew on a database of the shared server, whose sessions may be ended but not the server itself."""
    with crew_at(database_url, tmp_path / "journals") as crew:
        yield crew


@pytest.fixture
def durable_crew(durable_url: str, tmp_path: Path) -> Iterator[Crew]:
    """A crew on the server that may be killed."""
    with crew_at(durable_url, tmp_path / "journals") as crew:
        yield crew
