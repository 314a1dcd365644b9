"""holdfast migrate: bring a database's schema up to date."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.database import database
from holdfast.migrate import SQL_ROOT, Report, migrate, plan

from ._command import Invocation, command

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and change nothing.")]
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
    with database(invocation.database_url, create=not dry_run) as url:
        report = plan(url) if dry_run else migrate(url)
    document = {
        "version": report.version,
        "applied": list(report.applied),
        "functions_replaced": report.functions_replaced,
        "dry_run": dry_run,
        "warnings": list(report.warnings),
    }
    for warning in report.warnings:
        invocation.output.note(f"Warning: {warning}")
    invocation.output.document(document, planned(report) if dry_run else done(report))


def done(report: Report) -> str:
    """What was done, in words."""
    if not report.changed:
        return nothing(report)
    lines = [f"Applied migration {name}." for name in report.applied]
    if report.functions_replaced:
        lines.append("Replaced the functions.")
    return "\n".join([*lines, f"Schema version {report.version}."])


def planned(report: Report) -> str:
    """What would be done, in words."""
    if not report.changed:
        return nothing(report)
    lines = [f"Would apply migration {name}." for name in report.applied]
    if report.functions_replaced:
        lines.append("Would replace the functions.")
    return "\n".join([*lines, f"That gives schema version {report.version}. Nothing was changed."])


def nothing(report: Report) -> str:
    """Why there is nothing to do."""
    if report.newer:
        return f"Schema version {report.version}, newer than this package: left alone, nothing to do."
    return f"Schema version {report.version}, up to date: nothing to do."
