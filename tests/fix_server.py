"""The PostgreSQL server that all tests share: HOLDFAST_PG_BIN's, else the one in the wheel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.embedded import EmbeddedPostgres, temporary_postgres
from tests.fix_folder import fast_folder

# A test's database needs no disk; synchronous_commit stays on, since what is tested depends on it.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "max_prepared_transactions": "20",
    "autovacuum_naptime": "1s",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
}


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    """The shared server, running."""
    with temporary_postgres(settings=SETTINGS, inside=fast_folder()) as server:
        server.ensure_running()
        yield server


@pytest.fixture(scope="session")
def server_url(server: EmbeddedPostgres) -> str:
    """The superuser's URL of the shared server, to its database `holdfast`, where no test leaves anything."""
    return server.ensure_running()
