"""The server that is measured: one that is there already, or an embedded one that is gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.embedded import EmbeddedPostgres

# The embedded server's own settings, but for these: room for a backlog, and no checkpoint of its own accord.
SETTINGS = {
    "shared_buffers": "2GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}


@contextmanager
def running(url: str | None) -> Iterator[str]:
    """The address of a superuser's connection."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        Path(folder).chmod(0o755)  # the server may run as another user
        with EmbeddedPostgres(data_dir=Path(folder) / "data", settings=SETTINGS) as embedded:
            yield embedded
