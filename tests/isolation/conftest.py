"""The scene that every interleaving plays on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fix_database import Connect
from tests.isolation.scene import Scene

MOST_THREADS = 24
TIMEOUT = 90  # seconds

# A test that failed may have left a thread waiting for a session that nobody will end.
UNBLOCK = """
select pg_cancel_backend(pid) from pg_stat_activity
where datname = current_database() and state = 'active' and pid <> pg_backend_pid()
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A session that waits where it should not is to fail its test soon."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@pytest.fixture
def scene(connect: Connect) -> Iterator[Scene]:
    """A database with one queue; whatever the test did, its journal must be sound."""
    with ThreadPoolExecutor(max_workers=MOST_THREADS) as threads:
        scene = Scene(connect=connect, threads=threads)
        yield scene
        scene.watcher.execute(UNBLOCK)
        scene.journal.check()
