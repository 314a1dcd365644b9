"""Which database: the one asked for, else HOLDFAST_DATABASE_URL, else the embedded server of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.embedded import DEFAULT_DATA_DIR, EmbeddedError, EmbeddedPostgres

URL_VARIABLE = "HOLDFAST_DATABASE_URL"


def configured_url(url: str | None = None) -> str | None:
    """The URL that was given, or that the environment gives; None means the embedded server."""
    return url or os.environ.get(URL_VARIABLE) or None


def has_server(data_dir: Path | str = DEFAULT_DATA_DIR) -> bool:
    """Whether an embedded server was made in this folder; what a first start cut short left is none."""
    server = Path(data_dir) / "server"
    return os.path.islink(server) or os.path.exists(server / "data")


def key_folder(url: str | None = None) -> Path | None:
    """Where the key that secrets are sealed with may be: beside the embedded server, if that is used."""
    return None if configured_url(url) else Path(DEFAULT_DATA_DIR).resolve()


@contextmanager
def database(
    url: str | None = None, *, data_dir: Path | str = DEFAULT_DATA_DIR, create: bool = True
) -> Iterator[str]:
    """The URL to connect to. If it is the embedded server's, that runs at least as long as this context."""
    if known := configured_url(url):
        yield known
        return
    if not create and not has_server(data_dir):
        raise EmbeddedError(
            "QH504",
            "there is no Holdfast in this folder",
            detail=f"No server is in {data_dir}, and {URL_VARIABLE} is not set.",
            hint=f"Run holdfast up here, or name a database in {URL_VARIABLE} (or with --database-url).",
        )
    with EmbeddedPostgres(data_dir=data_dir) as own:
        yield own
