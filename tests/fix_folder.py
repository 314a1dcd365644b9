"""Folders for tests: quick, and open to the user that root runs PostgreSQL as."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3  # bytes that must be free there


def fast_folder() -> Path | None:
    """Where files are made quickest: in memory, if there is room. A disk may take 1 ms for each of 370."""
    if not os.access(MEMORY, os.W_OK):
        return None
    figures = os.statvfs(MEMORY)
    return MEMORY if figures.f_bavail * figures.f_frsize > ROOM else None


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir=fast_folder()) as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In place of pytest's own, which is closed: a server that root runs as another could not be in it."""
    with open_folder() as folder:
        yield folder
