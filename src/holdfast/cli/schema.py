"""holdfast migrate: bring a database's schema up to date."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast._programs import find_programs
from holdfast.database import configured_url, database, has_server
from holdfast.embedded import DEFAULT_DATA_DIR
from holdfast.migrate import SQL_ROOT, Report, Sources, migrate, plan

from ._command import Invocation, command

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and change nothing.")]
Sql = Annotated[
    bool, typer.Option("--sql", help="Print the SQL of a fresh installation, and connect to nothing.")
]
Dialects = Annotated[
    list[str] | None,
    typer.Option("--dialect", metavar="NAME", help="Make the schema of this dialect too: foundrydb."),
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app, "migrate")(bring_up_to_date)


def bring_up_to_date(
    invocation: Invocation, dry_run: DryRun = False, sql: Sql = False, dialect: Dialects = None
) -> None:
    """Install Holdfast in a database, or bring it up to date. Running it again changes nothing."""
    if sql:
        sys.stdout.write((SQL_ROOT / "install.sql").read_text(encoding="utf-8"))
        return
    new_server = not (configured_url(invocation.database_url) or has_server())
    if dry_run and new_server:
        report = from_nothing(dialect or ())
    else:
        with database(invocation.database_url) as url:
            report = (plan if dry_run else migrate)(url, dialects=dialect or ())
    document = {
        "version": report.version,
        "applied": list(report.applied),
        "functions_replaced": report.functions_replaced,
        "dialects": list(report.dialects),
        "dry_run": dry_run,
        "new_server": new_server,
        "warnings": list(report.warnings),
    }
    for warning in report.warnings:
        invocation.output.note(f"Warning: {warning}")
    text = planned(report, new_server=new_server) if dry_run else done(report)
    invocation.output.document(document, text)


def from_nothing(dialects: Sequence[str]) -> Report:
    """What would be done in a folder without a server, if PostgreSQL's programs are there to make one."""
    find_programs()
    sources = Sources.read()
    names = tuple(f"{step.version:04}_{step.name}" for step in sources.migrations)
    return Report(
        version=sources.version, applied=names, functions_replaced=True, dialects=tuple(dialects)
    )


def done(report: Report) -> str:
    """What was done, in words."""
    if not report.changed:
        return nothing(report)
    lines = [f"Applied migration {name}." for name in report.applied]
    if report.functions_replaced:
        lines.append("Replaced the functions.")
    lines += [f"Made the schema of the dialect {name} anew." for name in report.dialects]
    return "\n".join([*lines, f"Schema version {report.version}."])


def planned(report: Report, *, new_server: bool) -> str:
    """What would be done, in words."""
    if not report.changed:
        return nothing(report)
    lines = [f"Would make an embedded PostgreSQL in {DEFAULT_DATA_DIR}."] if new_server else []
    lines += [f"Would apply migration {name}." for name in report.applied]
    if report.functions_replaced:
        lines.append("Would replace the functions.")
    lines += [f"Would make the schema of the dialect {name} anew." for name in report.dialects]
    return "\n".join([*lines, f"That gives schema version {report.version}. Nothing was changed."])


def nothing(report: Report) -> str:
    """Why there is nothing to do."""
    if report.newer:
        return f"Schema version {report.version}, newer than this package: left alone, nothing to do."
    return f"Schema version {report.version}, up to date: nothing to do."
