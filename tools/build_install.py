"""Writes src/holdfast/sql/install.sql: what the migrator would run on an empty database, for plain psql.

    python -m tools.build_install            write it
    python -m tools.build_install --check    fail if it is not what its sources make
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast.migrate import BOOKKEEPING, LOCK_KEY, SESSION, SQL_ROOT, Sources, Step

HEAD = r"""-- Generated from sql/migrations and sql/functions by `make generate/install-sql`. Do not edit.
--
-- Installs Holdfast with nothing but psql:  psql -f install.sql
-- It is one transaction: all of it or nothing. Where this very version is installed, nothing is done; where
-- another one is, it is refused: `holdfast migrate` upgrades. Where it is included with \i,
-- ON_ERROR_STOP and QUIET are afterwards as they were; after an error they are on, and a rollback is due.
\set holdfast_stop :ON_ERROR_STOP
\set holdfast_quiet :QUIET
\set ON_ERROR_STOP on
\set QUIET on
begin;
"""

PRESENT = r"""\else
do $install$
begin
    if {mismatch} then
        raise exception 'another version of Holdfast is installed in this database'
            using errcode = 'QH503', hint = 'Run: holdfast migrate';
    end if;
end
$install$;
\endif
commit;
\if :holdfast_absent
\echo 'Holdfast is installed, schema version {version}.'
\else
\echo 'This version of Holdfast, schema version {version}, is installed already: nothing to do.'
\endif
\set ON_ERROR_STOP :holdfast_stop
\set QUIET :holdfast_quiet
\unset holdfast_absent
\unset holdfast_stop
\unset holdfast_quiet
"""


def build(sources: Sources) -> str:
    """The whole script."""
    steps = (*sources.migrations, sources.functions)
    return "".join(
        (
            HEAD,
            SESSION.lstrip(),
            f"do $lock$ begin perform pg_catalog.pg_advisory_xact_lock({LOCK_KEY}); end $lock$;\n",
            "select to_regclass('holdfast.migration') is null as holdfast_absent \\gset\n",
            "\\if :holdfast_absent\n",
            BOOKKEEPING,
            *(_part(step) for step in steps),
            PRESENT.format(mismatch=_mismatch(steps), version=sources.version),
        )
    )


def _part(step: Step) -> str:
    record = (
        "insert into holdfast.migration (version, name, checksum, breaking)\n"
        f"values ({step.version}, '{step.name}', '{step.checksum}', {str(step.breaking).lower()});\n"
    )
    return f"\n-- {'=' * 20} {step.version:04} {step.name} {'=' * 20}\n\n{step.sql.rstrip()}\n\n{record}"


def _mismatch(steps: tuple[Step, ...]) -> str:
    rows = ",\n            ".join(f"({step.version}, '{step.checksum}')" for step in steps)
    return (
        "exists (\n"
        "        select from holdfast.migration as there\n"
        f"        full join (values\n            {rows}\n"
        "        ) as here (version, checksum) using (version, checksum)\n"
        "        where there.name is null or here.version is null\n"
        "    )"
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    parser.add_argument("--root", type=Path, default=SQL_ROOT, help="where the migrations and functions are")
    options = parser.parse_args(arguments)
    target = options.root / "install.sql"
    wanted = build(Sources.read(options.root))
    if not options.check:
        target.write_text(wanted, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != wanted:
        print(f"{target.name} is not what its sources make. Run: make generate/install-sql", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
