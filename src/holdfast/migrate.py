"""The migrator: brings a database's schema to what this version ships.

State comes from migrations, `sql/migrations/NNNN_name.sql`: each is run once, in its own transaction, and
never edited afterwards. Logic comes from `sql/functions/*.sql`: applied whole, in the order of their names,
whenever any of it has changed; so it must replace what is there. A function that goes away, or changes its
arguments, is dropped by a migration.

A dialect may speak SQL too: `sql/dialects/NAME.sql` makes a schema of its own, where it is asked for. From
then on it is brought up to date with the rest, whenever its file has changed; the comment of the schema says
what it was made from.

What was run is kept in `holdfast.migration`, with a checksum; row 0 stands for the functions. Each step takes
the same advisory lock before it looks, so any number of installations at once do the work once. A migration
that has the line `-- breaking` can't be worked with by clients that don't know it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from holdfast.client._errors import MigrationError, SchemaTooNewError, translated

SQL_ROOT = Path(__file__).parent / "sql"
FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
DIALECT_SCHEMA = re.compile(r"^-- schema (\w+)$", re.MULTILINE)
BREAKING = re.compile(r"^-- breaking\s*$", re.MULTILINE)
FUNCTIONS_VERSION = 0
FUNCTIONS_NAME = "functions"
LOCK_KEY = 0x484F4C44  # "HOLD": of the advisory lock, which belongs to one database

# Names are written in full, so that the caller's search_path doesn't decide where things go.
# A message is Unicode: in another encoding some could not be stored, and in SQL_ASCII text is only bytes.
SESSION = """
set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
set local check_function_bodies = on;
do $encoding$
begin
    if current_setting('server_encoding') <> 'UTF8' then
        raise exception 'Holdfast needs a database with the encoding UTF8'
            using errcode = 'QH503', detail = format('This one has %s.', current_setting('server_encoding')),
                  hint = 'Create one: create database NAME encoding ''UTF8'' template template0;';
    end if;
end
$encoding$;
"""
LOCK = f"select pg_catalog.pg_advisory_xact_lock({LOCK_KEY});\n"
BOOKKEEPING = """
create schema if not exists holdfast;
create table if not exists holdfast.migration (
    version    int primary key,
    name       text not null,
    checksum   text not null,
    breaking   boolean not null,
    applied_at timestamptz not null default clock_timestamp()
);
comment on table holdfast.migration is
    'What the migrator ran. Row 0 stands for the functions, which are replaced whole.';
"""
# After the functions, whose files take all rights away first: every client asks which schema it meets.
RIGHTS = "grant select on holdfast.migration to public;\n"
RIGHTS_NEEDED = "Installing takes CREATE on the database; upgrading is for the owner of the schema holdfast."
MADE_FROM = """
select split_part(obj_description(to_regnamespace(%s), 'pg_namespace'), ' #', 2)
where obj_description(to_regnamespace(%s), 'pg_namespace') like 'Holdfast: %%'
"""
RECORD = """
insert into holdfast.migration (version, name, checksum, breaking) values (%s, %s, %s, %s)
on conflict (version) do update
    set name = excluded.name, checksum = excluded.checksum, applied_at = excluded.applied_at
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to run: a migration, or all functions together."""

    version: int
    name: str
    sql: str
    checksum: str
    breaking: bool


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of a dialect, and the schema that it makes."""

    name: str
    schema: str
    sql: str
    checksum: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The SQL that a version ships."""

    migrations: tuple[Step, ...]
    functions: Step
    dialects: tuple[Dialect, ...] = ()

    @property
    def version(self) -> int:
        """The highest migration."""
        return self.migrations[-1].version

    @classmethod
    def read(cls, root: Path = SQL_ROOT) -> Sources:
        """Read the migrations and functions below a folder."""
        migrations = tuple(_migration(path) for path in sorted((root / "migrations").glob("*.sql")))
        numbers = [step.version for step in migrations]
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            raise MigrationError(
                "QH503",
                "migrations must be numbered 0001, 0002 and so on, without a gap",
                detail=f"Found in {root / 'migrations'}: {numbers or 'none'}.",
            )
        dialects = tuple(_dialect(path) for path in sorted((root / "dialects").glob("*.sql")))
        return cls(migrations, _functions(sorted((root / "functions").glob("*.sql"))), dialects)


@dataclass(frozen=True, slots=True)
class Report:
    """What a migration did, or would do."""

    version: int
    applied: tuple[str, ...]
    functions_replaced: bool
    newer: bool = False
    warnings: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.applied) or self.functions_replaced or bool(self.dialects)


@dataclass(frozen=True, slots=True)
class _Applied:
    version: int
    name: str
    checksum: str
    breaking: bool


def migrate(
    database_url: str,
    *,
    root: Path = SQL_ROOT,
    dialects: Sequence[str] = (),
    statement_timeout: float | None = None,
) -> Report:
    """Bring a database up to date, and tell what that took. A newer schema is left alone, or refused.

    dialects: those whose schemas it should have. Those that it has are brought up to date in any case.
    statement_timeout: how many seconds each step may take, waiting for others included.
    """
    sources = Sources.read(root)
    _refuse_unknown(sources, dialects)
    done: list[Step] = []
    warnings: list[str] = []
    with _connected(database_url) as connection:
        connection.add_notice_handler(lambda notice: _keep_warning(notice, warnings))
        while True:
            with connection.transaction():
                if statement_timeout is not None:
                    milliseconds = str(int(statement_timeout * 1000))
                    connection.execute("select set_config('statement_timeout', %s, true)", [milliseconds])
                applied = _look(connection, make=True)
                steps = _steps(sources, applied)
                if not steps:
                    made = _make_dialects(connection, sources, applied, dialects)
                    return _report(sources, applied, done, warnings, made)
                _run(connection, steps[0])
            done.append(steps[0])


def plan(database_url: str, *, root: Path = SQL_ROOT, dialects: Sequence[str] = ()) -> Report:
    """What migrate would do, without doing it; it refuses what migrate refuses."""
    sources = Sources.read(root)
    _refuse_unknown(sources, dialects)
    with _connected(database_url) as connection, connection.transaction():
        applied = _look(connection, make=False)
        lacking = [d.name for d in _lacking(connection, sources, applied, dialects)]
    return _report(sources, applied, _steps(sources, applied), (), lacking)


@contextmanager
def _connected(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        with (
            psycopg.connect(database_url, autocommit=True, prepare_threshold=None) as connection,
            translated(),
        ):
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        error.add_note(f"Hint: {RIGHTS_NEEDED}")
        raise


def _keep_warning(notice: psycopg.errors.Diagnostic, warnings: list[str]) -> None:
    if notice.severity_nonlocalized == "WARNING":
        warnings.append(". ".join(filter(None, [notice.message_primary, notice.message_hint])))


def _look(connection: psycopg.Connection[Any], *, make: bool) -> Mapping[int, _Applied]:
    """Read what was run. To make more, lock first, in the same transaction that will run the next step."""
    connection.execute(SESSION.encode())
    if make:
        connection.execute(LOCK.encode())
    if not connection.execute("select to_regclass('holdfast.migration') is not null").fetchall()[0][0]:
        if not make:
            return {}
        connection.execute(BOOKKEEPING.encode())
    rows = connection.execute("select version, name, checksum, breaking from holdfast.migration").fetchall()
    return {row[0]: _Applied(*row) for row in rows}


def _steps(sources: Sources, applied: Mapping[int, _Applied]) -> list[Step]:
    """What is still to be run; nothing in a newer schema."""
    _refuse_unfit(sources, applied)
    if max(applied, default=0) > sources.version:
        return []
    missing = [step for step in sources.migrations if step.version not in applied]
    known = applied.get(FUNCTIONS_VERSION)
    replace = known is None or known.checksum != sources.functions.checksum
    return [*missing, sources.functions] if replace else missing


def _refuse_unknown(sources: Sources, dialects: Sequence[str]) -> None:
    known = [dialect.name for dialect in sources.dialects]
    for name in dialects:
        if name not in known:
            raise MigrationError(
                "QH503", f'there is no SQL of a dialect "{name}"', hint=f"There is of: {', '.join(known)}."
            )


def _lacking(
    connection: psycopg.Connection[Any],
    sources: Sources,
    applied: Mapping[int, _Applied],
    wanted: Sequence[str],
) -> list[Dialect]:
    """The dialects whose schema is to be made, or is not as it should be; none in a newer schema."""
    if max(applied, default=0) > sources.version:
        return []
    found: list[Dialect] = []
    for dialect in sources.dialects:
        row = connection.execute(MADE_FROM, [dialect.schema, dialect.schema]).fetchone()
        if row[0] != dialect.checksum if row else dialect.name in wanted:
            found.append(dialect)
    return found


def _make_dialects(
    connection: psycopg.Connection[Any],
    sources: Sources,
    applied: Mapping[int, _Applied],
    wanted: Sequence[str],
) -> list[str]:
    """Under the lock of the last look: make the schemas of dialects, or replace what is in them."""
    lacking = _lacking(connection, sources, applied, wanted)
    for dialect in lacking:
        connection.execute(dialect.sql.encode(), prepare=False)
    return [dialect.name for dialect in lacking]


def _report(
    sources: Sources,
    applied: Mapping[int, _Applied],
    steps: Sequence[Step],
    warnings: Sequence[str],
    dialects: Sequence[str] = (),
) -> Report:
    names = tuple(f"{step.version:04}_{step.name}" for step in steps if step.version != FUNCTIONS_VERSION)
    return Report(
        version=max([sources.version, *applied]),
        applied=names,
        functions_replaced=len(steps) > len(names),
        newer=max(applied, default=0) > sources.version,
        warnings=tuple(warnings),
        dialects=tuple(dialects),
    )


def _refuse_unfit(sources: Sources, applied: Mapping[int, _Applied]) -> None:
    for row in applied.values():
        if row.version > sources.version and row.breaking:
            raise SchemaTooNewError(
                "QH501",
                "the schema of this database is too new for this version of Holdfast",
                detail=f"It has breaking migration {row.version}, {row.name}; known here: {sources.version}.",
                hint="Upgrade the holdfast package.",
            )
    for step in sources.migrations:
        found = applied.get(step.version)
        if found and found.checksum != step.checksum:
            raise MigrationError(
                "QH503",
                f"migration {step.version:04}_{step.name} is not the one that this database has",
                detail=f"There: {found.name}, checksum {found.checksum}. Here: {step.checksum}.",
                hint="A migration is never edited once it is applied: restore the file, and add a new one.",
            )


def _run(connection: psycopg.Connection[Any], step: Step) -> None:
    connection.execute(step.sql.encode(), prepare=False)
    connection.execute(RECORD, [step.version, step.name, step.checksum, step.breaking])


def _migration(path: Path) -> Step:
    named = FILE_NAME.fullmatch(path.name)
    if not named:
        raise MigrationError(
            "QH503", f"{path.name} is no name for a migration", hint="Call it NNNN_what_it_does.sql."
        )
    sql = _text(path)
    return Step(int(named[1]), named[2], sql, _checksum(sql), breaking=bool(BREAKING.search(sql)))


def _functions(paths: list[Path]) -> Step:
    sql = "\n".join([*(f"-- {path.name}\n{_text(path)}" for path in paths), RIGHTS])
    return Step(FUNCTIONS_VERSION, FUNCTIONS_NAME, sql, _checksum(sql), breaking=False)


def _dialect(path: Path) -> Dialect:
    sql = _text(path)
    named = DIALECT_SCHEMA.search(sql)
    if not named:
        raise MigrationError("QH503", f"{path.name} has no line `-- schema NAME`")
    checksum = _checksum(sql)
    mark = f"comment on schema {named[1]} is 'Holdfast: the dialect {path.stem} #{checksum}';\n"
    return Dialect(path.stem, named[1], f"{sql}\n{mark}", checksum)


def _text(path: Path) -> str:
    """A file's text; universal newlines, so that a checkout's line ends don't change its checksum."""
    return path.read_text(encoding="utf-8")


def _checksum(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()
