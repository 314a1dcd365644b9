"""holdfast migrate: bring a database's schema up to date."""

from __future__ import annotations

import sys
from typing import Annotated

import psycopg
import typer

from holdfast.client._schema import EXISTS
from holdfast.database import database
from holdfast.migrate import FUNCTIONS_VERSION, SQL_ROOT, Report, Sources, migrate

from ._command import Invocation, command

APPLIED = "select version, checksum from holdfast.migration"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Sql = Annotated[
    bool, typer.Option("--sql", help="Print the SQL of a fresh installation, and connect to nothing.")
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app, "migrate")(bring_up_to_date)


def bring_up_to_date(invocation: Invocation, dry_run: DryRun = False, sql: Sql = False) -> None:
    """Install Holdfast in a database, or bring it up to date. Running it again changes nothing."""
    if sql:
        sys.stdout.write((SQL_ROOT / "install.sql").read_text(encoding="utf-8"))
        return
    with database(invocation.database_url) as url:
        report = pending(url) if dry_run else migrate(url)
    document = {
        "version": report.version,
        "applied": list(report.applied),
        "functions_replaced": report.functions_replaced,
        "dry_run": dry_run,
        "warnings": list(report.warnings),
    }
    for warning in report.warnings:
        invocation.output.note(f"Warning: {warning}")
    invocation.output.document(document, describe(report, dry_run=dry_run))


def pending(url: str) -> Report:
    """What a migration would do, without doing it."""
    sources = Sources.read()
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        applied: dict[int, str] = {}
        if connection.execute(EXISTS).fetchall()[0][0]:
            applied = dict(connection.execute(APPLIED).fetchall())
    return Report(
        version=max([sources.version, *applied]),
        applied=tuple(f"{s.version:04}_{s.name}" for s in sources.migrations if s.version not in applied),
        functions_replaced=applied.get(FUNCTIONS_VERSION) != sources.functions.checksum,
        newer=max(applied, default=0) > sources.version,
    )


def describe(report: Report, *, dry_run: bool) -> str:
    """What was done, or would be, in words."""
    if not report.changed:
        return f"Schema version {report.version}: nothing to do."
    lines = [f"{'Would apply' if dry_run else 'Applied'} migration {name}." for name in report.applied]
    if report.functions_replaced:
        lines.append("Would replace the functions." if dry_run else "Replaced the functions.")
    return "\n".join([*lines, f"Schema version {report.version}."])
