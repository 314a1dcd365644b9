"""The columns of a message: their types in Spark, and how PostgreSQL is asked for them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .options import OptionError, Options

# In the order of holdfast.entry; then what only records of a log have.
COLUMNS: Mapping[str, DataType] = MappingProxyType(
    {
        "id": LongType(),
        "queue": StringType(),
        "state": StringType(),
        "payload": StringType(),
        "body": BinaryType(),
        "content_type": StringType(),
        "headers": StringType(),
        "priority": IntegerType(),
        "key": StringType(),
        "ordering_key": StringType(),
        "correlation_id": StringType(),
        "tag": StringType(),
        "deliveries": IntegerType(),
        "failures": IntegerType(),
        "max_deliveries": IntegerType(),
        "enqueued_at": TimestampType(),
        "due_at": TimestampType(),
        "expires_at": TimestampType(),
        "last_error": StringType(),
        "origin": StringType(),
        "ended_at": TimestampType(),
        "consumer": StringType(),
        "claimed_at": TimestampType(),
        "seq": LongType(),
    }
)
# ADBC hands jsonb and uuid over in the database's own binary form: as text they are what they look like.
AS_TEXT = frozenset({"payload", "headers", "correlation_id", "origin"})
SEQ_MASK = (1 << 40) - 1  # the part of an id below the number of its lane
COMPLEX = re.compile(r"\s*(struct|array|map)\s*<", re.IGNORECASE)


def schema_of(options: Options, columns: Mapping[str, DataType] = COLUMNS) -> str:
    """The schema of a read as DDL, which Spark parses: the payload's own may be a part of it."""
    wanted = options.columns or tuple(columns)
    for name in wanted:
        if name not in columns:
            raise OptionError("columns", repr(name), f"some of {', '.join(columns)}")
    return ", ".join(f"{name} {_type_of(name, options, columns)}" for name in wanted)


def refuse_foreign(schema: StructType, columns: Mapping[str, DataType] = COLUMNS) -> None:
    """Refuse a schema that the user gave and that has other columns, or other types, than a message."""
    for field in schema.fields:
        if field.name not in columns:
            raise OptionError("schema", f"the column {field.name}", f"some of {', '.join(columns)}")
        if field.name != "payload" and field.dataType != columns[field.name]:
            raise OptionError(
                "schema",
                f"{field.dataType.simpleString()} for the column {field.name}",
                columns[field.name].simpleString(),
            )


def selection(names: Sequence[str], *, raw: bool = False) -> str:
    """The select list over a row `m` of holdfast.entry, in the order of the names."""
    return ", ".join(f"{_expression(name, raw)} as {name}" for name in names)


def payload_type(schema: StructType) -> DataType | None:
    """The type of the column payload; None if there is no such column."""
    found: list[StructField] = [field for field in schema.fields if field.name == "payload"]
    return found[0].dataType if found else None


def _expression(name: str, raw: bool) -> str:
    if name == "seq":
        return f"case when m.state = 'log' then m.id & {SEQ_MASK} end"
    if name == "payload" and raw:
        return "coalesce(m.body, convert_to(m.payload::text, 'UTF8'))"
    return f"m.{name}::text" if name in AS_TEXT else f"m.{name}"


def _type_of(name: str, options: Options, columns: Mapping[str, DataType]) -> str:
    if name == "payload" and options.payload == "raw":
        return BinaryType().simpleString()
    if name == "payload" and options.payload_schema is not None:
        return _payload_ddl(options.payload_schema)
    return columns[name].simpleString()


def _payload_ddl(given: str) -> str:
    """`a INT, b STRING`, `struct<…>`, `array<…>`, `map<…>` or a schema as JSON, as the type of a column."""
    if given.lstrip().startswith("{"):
        try:
            return StructType.fromJson(json.loads(given)).simpleString()
        except (ValueError, KeyError, TypeError) as error:
            raise OptionError("payload_schema", repr(given[:100]), "a schema as DDL or JSON") from error
    return given.strip() if COMPLEX.match(given) else f"struct<{given.strip()}>"
