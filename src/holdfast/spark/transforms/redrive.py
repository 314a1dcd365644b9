"""Redriving: dead letters as they were in life, and what becomes of them.

A repair is a list of assignments, or a function of the user's. Either way it ends in the same columns: id,
those that the engine is to replace, and REASON, why a dead letter cannot be sent back; null if it can.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from holdfast.spark._intake import REASON

from .documents import as_json, as_variant, no_object, opened, put, taken, unreadable

# What a repair may replace, and of which kind it is.
REPAIRABLE: Mapping[str, str] = MappingProxyType(
    {
        "payload": "json",
        "body": "binary",
        "content_type": "string",
        "headers": "json",
        "priority": "int",
        "correlation_id": "string",
        "tag": "string",
        "max_deliveries": "int",
        "ordering_key": "string",
        "key": "string",
        "idempotency_key": "string",
    }
)
# Of each of these a message has one at most; the engine replaces both or none.
PAIRS = (("payload", "body"), ("key", "idempotency_key"))
DOCUMENTS = ("payload", "headers", "origin")
# What is read; the rest of a dead letter is in its origin.
READ = (
    "id",
    "payload",
    "body",
    "content_type",
    "headers",
    "correlation_id",
    "tag",
    "last_error",
    "origin",
    "enqueued_at",
)
OF_ORIGIN: Mapping[str, str] = MappingProxyType(
    {
        "priority": "int",
        "max_deliveries": "int",
        "ordering_key": "string",
        "key": "string",
        "idempotency_key": "string",
        "root_id": "bigint",
        "deliveries": "int",
        "failures": "int",
        "redrives": "int",
        "enqueued_at": "timestamp",
    }
)
NAME = r"(?:[A-Za-z_]\w*|`[^`]+`)"
PLACE = re.compile(rf"\s*(?P<column>{NAME})(?P<path>(?:\.{NAME})*)\s*")
ASSIGNMENT = re.compile(rf"(?P<place>{PLACE.pattern})=(?!=)\s*(?P<expression>.*\S)\s*", re.DOTALL)


class RepairError(ValueError):
    """A repair cannot be understood, or returns something that is none."""


@dataclass(frozen=True, slots=True)
class Place:
    """A column, or a field in the document that a column is."""

    column: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join([self.column, *self.path])


@dataclass(frozen=True, slots=True)
class Assignment:
    """What goes to a place."""

    place: Place
    expression: str


def assignment(text: str) -> Assignment:
    """Read `payload.country = upper(payload:country)`."""
    found = ASSIGNMENT.fullmatch(text)
    if found is None:
        raise RepairError(f"--set: got {text!r}; expected COLUMN = EXPRESSION, or payload.FIELD = EXPRESSION")
    return Assignment(place("--set", found["place"]), found["expression"])


def place(option: str, text: str) -> Place:
    """Read `payload.customer.name`."""
    found = PLACE.fullmatch(text)
    column = found["column"].strip("`") if found else text.strip()
    if found is None or column not in (*REPAIRABLE, REASON):
        raise RepairError(f"{option}: got {column}; expected one of {', '.join(REPAIRABLE)}, {REASON}")
    path = tuple(name.strip("`") for name in re.findall(NAME, found["path"]))
    if path and REPAIRABLE.get(column) != "json":
        raise RepairError(f"{option}: got {column}.{'.'.join(path)}; expected a field of payload or headers")
    return Place(column, path)


def check_places(places: Sequence[Place]) -> None:
    """Refuse two assignments of which one would undo the other."""
    for number, one in enumerate(places):
        for other in places[number + 1 :]:
            shorter, longer = sorted((one, other), key=lambda each: len(each.path))
            if shorter.column == longer.column and longer.path[: len(shorter.path)] == shorter.path:
                raise RepairError(f"got {shorter} and {longer}; expected each place once")


def letters(dead: DataFrame) -> DataFrame:
    """Dead letters with the columns that they had when they died, out of their origins."""
    known = {name: F.get_json_object("origin", f"$.{name}").cast(kind) for name, kind in OF_ORIGIN.items()}
    died_at = F.col("enqueued_at").alias("died_at")
    kept = [F.col(name) for name in dead.columns if name not in known]
    return dead.select(*kept, died_at, *(value.alias(name) for name, value in known.items()))


def repaired(found: DataFrame, assignments: Sequence[Assignment], removed: Sequence[Place]) -> DataFrame:
    """Dead letters with some values replaced, all at once: expressions see what was there before."""
    read = _read(assignments, removed)
    beyond = {f"_beyond_{name}": unreadable(F.col(name), name) for name in read}
    documents = opened(found.withColumns(beyond), DOCUMENTS)
    values = {f"_value_{number}": F.expr(each.expression) for number, each in enumerate(assignments)}
    frame = documents.select("*", *(value.alias(name) for name, value in values.items()))
    given = [
        (each.place, F.col(name), frame.schema[name].dataType)
        for each, name in zip(assignments, values, strict=True)
    ]
    whole = {at.column: _typed(value, kind, at.column) for at, value, kind in given if not at.path}
    fields, reasons = _documents(given, removed)
    reasons = [whole.pop(REASON, F.lit(None).cast("string")), *map(F.col, beyond), *reasons]
    columns = {**_partners(whole, fields), **whole, **fields}
    reason = F.nullif(F.concat_ws("; ", *reasons), F.lit(""))
    return frame.select("id", *(value.alias(name) for name, value in columns.items()), reason.alias(REASON))


def returned(frame: DataFrame, known: Sequence[str]) -> DataFrame:
    """What a function made of dead letters that had these columns."""
    if "id" not in frame.columns:
        raise RepairError(f"columns: got {', '.join(frame.columns)}; expected id among them")
    for name in frame.columns:
        if name not in (*known, REASON):
            expected = ", ".join([*known, REASON])
            raise RepairError(f"column {name} is none of a dead letter; expected some of {expected}")
    if len({"key", "idempotency_key"} & set(frame.columns)) == 1:
        raise RepairError("columns: got one of key and idempotency_key; expected both, or none")
    reason = F.col(REASON) if REASON in frame.columns else F.lit(None)
    return frame.select("id", *replaced(frame), reason.cast("string").alias(REASON))


def replaced(frame: DataFrame) -> list[str]:
    """The columns of a repair that the engine is to replace."""
    return [name for name in REPAIRABLE if name in frame.columns]


def changes(before: DataFrame, after: DataFrame) -> DataFrame:
    """What a repair changes: id, column, before, after; a row for each value that is another."""
    names = replaced(after)
    both = before.alias("b").join(after.alias("a"), F.col("b.id") == F.col("a.id"))
    each = [_change(name, before.schema[name].dataType, after.schema[name].dataType) for name in names]
    found = F.explode(F.array_compact(F.array(*each))) if each else F.explode(F.array().cast(CHANGES))
    return both.select(F.col("a.id").alias("id"), found.alias("change")).select("id", "change.*")


CHANGES = "array<struct<column:string,before:string,after:string>>"


def _change(name: str, before: DataType, after: DataType) -> Column:
    was, becomes = _shown(f"b.{name}", name, before), _shown(f"a.{name}", name, after)
    values = F.struct(F.lit(name).alias("column"), was.alias("before"), becomes.alias("after"))
    return F.when(~was.eqNullSafe(becomes), values)


def _shown(column: str, name: str, kind: DataType) -> Column:
    """A value as text that is the same for the same value."""
    if REPAIRABLE[name] == "json":
        return F.to_json(F.try_parse_json(as_json(F.col(column), kind)))
    return F.base64(column) if isinstance(kind, BinaryType) else F.col(column).cast("string")


def _typed(value: Column, kind: DataType, column: str) -> Column:
    wanted = REPAIRABLE.get(column, "string")
    return as_json(value, kind) if wanted == "json" else value.cast(wanted)


def _documents(
    given: Sequence[tuple[Place, Column, DataType]], removed: Sequence[Place]
) -> tuple[dict[str, Column], list[Column]]:
    """Documents of which fields are set or removed, as JSON text; and the reasons why that cannot be."""
    changed: dict[str, Column] = {}
    reasons: list[Column] = []
    for at in removed:
        changed[at.column] = taken(changed.get(at.column, F.col(at.column)), at.path)
    for at, value, kind in given:
        if at.path:
            document = changed.get(at.column, F.col(at.column))
            reasons += [no_object(F.col(at.column), at.path, at.column), *_instead(at.column)]
            changed[at.column] = put(document, at.path, as_variant(value, kind))
    return {name: F.to_json(document) for name, document in changed.items()}, reasons


def _read(assignments: Sequence[Assignment], removed: Sequence[Place]) -> list[str]:
    """The documents that a repair reads: whose fields it changes, or that its expressions name."""
    places = [*removed, *(each.place for each in assignments)]
    changed = {at.column for at in places if at.path}
    words = {word for each in assignments for word in re.findall(r"\w+", each.expression.casefold())}
    return [name for name in DOCUMENTS if name in changed | words]


def _instead(column: str) -> list[Column]:
    """The reason if a message has bytes where it would have a payload: it cannot have both."""
    told = F.lit("payload: expected a JSON object, got bytes")
    return [F.when(F.col("body").isNotNull(), told)] if column == "payload" else []


def _partners(whole: Mapping[str, Column], fields: Mapping[str, Column]) -> dict[str, Column]:
    """The other one of a pair: gone if this one is given whole, as it was if only fields change."""
    found: dict[str, Column] = {}
    for pair in PAIRS:
        for one, other in (pair, pair[::-1]):
            if one in whole and other not in whole:
                found[other] = F.lit(None).cast("binary" if other == "body" else StringType())
            elif one in fields:
                found[other] = F.col(other)
    return found
