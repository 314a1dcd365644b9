"""A table of PostgreSQL that a stream writes to: what it looks like, and the statements for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ._outgoing import ColumnError
from .transforms.stream import without_text

LEDGER = "holdfast_batch"
PART = "holdfast_part"  # the column of a stage that says whose row it is
FOUND = """
select n.nspname, c.relname, c.relkind in ('r', 'p'),
  has_schema_privilege(n.oid, 'create'), has_table_privilege(c.oid, 'insert')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass(%s)
"""
COLUMNS = """
select a.attname, a.attnotnull and not a.atthasdef and a.attidentity = '',
  a.attgenerated = '' and a.attidentity <> 'a'
from pg_attribute a where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
TYPES: Mapping[type[DataType], str] = {
    BinaryType: "bytea",
    BooleanType: "boolean",
    ByteType: "smallint",
    DateType: "date",
    DecimalType: "numeric",
    DoubleType: "double precision",
    FloatType: "real",
    IntegerType: "integer",
    LongType: "bigint",
    ShortType: "smallint",
    StringType: "text",
    TimestampNTZType: "timestamp",
    TimestampType: "timestamptz",
}


class TableError(ValueError):
    """A table is not there, or is not one that a stream can write to."""


class MissingTableError(TableError):
    """A table is not there. statement: what makes one for the rows, if they are known."""

    def __init__(self, name: str, statement: str | None) -> None:
        suggested = f". Make it, such as: {statement}" if statement else ""
        super().__init__(f"table {name} does not exist{suggested}")
        self.statement = statement


@dataclass(frozen=True, slots=True)
class Target:
    """A table, by the names that it has in the catalog. needed: columns that every row must have."""

    schema: str
    name: str
    writable: frozenset[str]
    needed: frozenset[str]

    @property
    def place(self) -> sql.Identifier:
        """The table in a statement."""
        return sql.Identifier(self.schema, self.name)

    @property
    def ledger(self) -> sql.Identifier:
        """The ledger of its schema in a statement."""
        return sql.Identifier(self.schema, LEDGER)

    def stage(self, query: str) -> sql.Identifier:
        """The stage of a query, which is the same after a restart."""
        known = hashlib.sha256(f"{self.name} {query}".encode()).hexdigest()[:16]
        return sql.Identifier(self.schema, f"holdfast_stage_{known}")

    def check(self, schema: StructType, key: Sequence[str]) -> None:
        """Refuse rows that have other columns than the table takes."""
        for name in schema.names:
            if name not in self.writable:
                takes = ", ".join(sorted(self.writable))
                raise ColumnError(f"column {name} is none that {self} takes; expected some of {takes}")
        if missing := sorted(self.needed - set(schema.names)):
            given = _listed(schema.names)
            raise ColumnError(f"columns: got {given}; expected {_listed(missing)} too, for {self}")
        if unknown := [name for name in key if name not in schema.names]:
            raise ColumnError(f"key: got {unknown[0]}; expected some of {_listed(schema.names)}")
        if bad := without_text(schema):
            raise ColumnError(f"column {bad[0]}: got an interval; expected a number, such as its seconds")

    def stage_statement(self, stage: sql.Identifier, columns: Sequence[str]) -> sql.Composed:
        """Make a stage for some columns."""
        return sql.SQL(
            "create unlogged table {} as select null::text as {}, {} from {} with no data"
        ).format(stage, sql.Identifier(PART), _names(columns), self.place)

    def move_statement(
        self, stage: sql.Identifier, columns: Sequence[str], key: Sequence[str]
    ) -> sql.Composed:
        """Move the rows of some parts; a row whose key is there takes its place."""
        moved = sql.SQL("insert into {} ({}) select {} from {} where {} = any (%s)").format(
            self.place, _names(columns), _names(columns), stage, sql.Identifier(PART)
        )
        if not key:
            return moved
        changed = [name for name in columns if name not in key] or key
        assigned = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed]
        return sql.SQL("{} on conflict ({}) do update set {}").format(
            moved, _names(key), sql.SQL(", ").join(assigned)
        )

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def find_table(
    connection: psycopg.Connection[Any], name: str, schema: StructType | None = None
) -> Target:
    """The table of that name, as it is written in SQL; schema: of the rows, for those who have to make it."""
    found = connection.execute(FOUND, [name]).fetchone()
    if found is None:
        raise MissingTableError(name, None if schema is None else suggestion(name, schema))
    place, table, is_table, may_create, may_insert = found
    if not is_table:
        raise TableError(f"{name}: expected a table, got another kind of relation")
    if not may_create or not may_insert:
        raise TableError(
            f"table {name}: expected the rights to insert into it, and to create tables in schema {place}:"
            " rows are staged there"
        )
    columns = connection.execute(COLUMNS, [name]).fetchall()
    writable = frozenset(column for column, _, open_ in columns if open_)
    return Target(place, table, writable, frozenset(column for column, needed, _ in columns if needed))


def suggestion(name: str, schema: StructType) -> str:
    """The statement that makes a table for such rows."""
    columns = [
        f"{sql.Identifier(field.name).as_string(None)} {TYPES.get(type(field.dataType), 'jsonb')}"
        for field in schema.fields
    ]
    return f"create table {name} ({', '.join(columns)})"


def ledger_statement(target: Target) -> sql.Composed:
    """Make the ledger of a schema."""
    return sql.SQL(
        "create table if not exists {} (table_name text, query_id uuid, batch_id bigint not null,"
        " rows bigint not null, written_at timestamptz not null default now(),"
        " primary key (table_name, query_id))"
    ).format(target.ledger)


def _names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
