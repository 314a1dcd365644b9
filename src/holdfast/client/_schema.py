"""Whether the schema in a database fits this client: there, and not broken by a newer migration."""

from __future__ import annotations

from typing import Any

import psycopg

from ._errors import SchemaMissingError, SchemaTooNewError

KNOWN_VERSION = 25
"""The highest migration that this client was written for."""

EXISTS = "select to_regclass('holdfast.migration') is not null"
BREAKING = "select coalesce(max(version), 0) from holdfast.migration where breaking"


def check_schema(connection: psycopg.Connection[Any]) -> None:
    """Raise SchemaMissingError or SchemaTooNewError unless this client can work with the database."""
    require_schema(connection.execute(EXISTS).fetchone())
    require_version(connection.execute(BREAKING).fetchone())


async def async_check_schema(connection: psycopg.AsyncConnection[Any]) -> None:
    """The same as check_schema, over an asynchronous connection."""
    require_schema(await (await connection.execute(EXISTS)).fetchone())
    require_version(await (await connection.execute(BREAKING)).fetchone())


def require_schema(row: tuple[Any, ...] | None) -> None:
    """Refuse a database without Holdfast."""
    if row is None or not row[0]:
        raise SchemaMissingError(
            "QH502",
            "this database has no Holdfast schema",
            hint="Run: holdfast migrate",
        )


def require_version(row: tuple[Any, ...] | None) -> None:
    """Refuse a database that a newer version changed in a way this client can't work with."""
    version = 0 if row is None else int(row[0])
    if version > KNOWN_VERSION:
        raise SchemaTooNewError(
            "QH501",
            "the schema of this database is too new for this client",
            detail=f"The database has breaking migration {version}; this client knows up to {KNOWN_VERSION}.",
            hint="Upgrade the holdfast package.",
        )
